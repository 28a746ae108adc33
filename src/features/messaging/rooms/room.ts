/**
 * Custom rooms of the realtime channel (docs/rooms.md): who is in them, who made them, and what was said last. The stores
 * keep that in this process, or in Redis for several.
 */

/** A room of one tenant; rooms of others with the same name have nothing to do with it. */
export type Room = { readonly tenantId: string | undefined; readonly name: string }

export type Participant = { readonly socketId: string; readonly userId: string }

export type JoinRequest = Participant & {
  /** Metadata of the member, as JSON text; undefined where it says nothing. */
  readonly metadata: string | undefined
}

export type RoomMember = JoinRequest & { readonly isCreator: boolean }

export type JoinResult = {
  /** The records of the last messages as JSON texts, the oldest first. */
  readonly history: readonly string[]
  /** False when the socket was in the room before; its metadata is the new one then. */
  readonly isNew: boolean
  /** Set when the room had passed to another user: the original creator has come back. */
  readonly newCreator: Participant | undefined
}

export type Left = { readonly person: Participant; readonly newCreator: Participant | undefined }

export type Kick =
  | { readonly outcome: 'kicked'; readonly people: readonly Participant[] }
  | { readonly outcome: KickRefusal }

export type KickRefusal = 'no room' | 'not the creator' | 'not in the room'

export type ListedRoom = Room & { readonly memberCount: number }

/** Each operation happens as a whole or not at all, however many there are at once. */
export type RoomStore = {
  join(room: Room, joining: JoinRequest): Promise<JoinResult | 'full'>
  /** Undefined when the socket was not in the room. */
  leave(room: Room, socketId: string): Promise<Left | undefined>
  /** Keeps a record where one is given; false when the socket is not in the room. */
  record(room: Room, socketId: string, record: string | undefined): Promise<boolean>
  /** In the order in which they came. */
  members(room: Room): Promise<readonly RoomMember[]>
  /** Removes all sockets of a user; asked by a socket that must be the creator. */
  kick(room: Room, socketId: string, userId: string): Promise<Kick>
  /** By name; of one tenant (null: rooms without one), or of all. */
  list(tenantId: string | null | 'all', prefix: string): Promise<readonly ListedRoom[]>
  /** How many members; 0 where there is no such room. */
  count(room: Room): Promise<number>
}

export const roomBounds = {
  /** Characters of a name, and of an event's. */
  name: 128,
  /** Characters of JSON. */
  metadata: 1024,
  payload: 65_536,
  /** Of one socket. */
  rooms: 50,
  /** Of one room. */
  members: 5000,
  records: 200,
  /** Characters of all records of a room; the oldest go first. */
  history: 262_144,
  listed: 1000,
} as const

/** A tenant's id is a UUID and a name may be anything, so no two rooms have the same key. */
export const roomKey = ({ tenantId, name }: Room): string => `${tenantId ?? '-'}:${name}`

/** Sorted by name, as many as an answer holds. */
export function listed(rooms: readonly ListedRoom[]): readonly ListedRoom[] {
  return rooms.toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)).slice(0, roomBounds.listed)
}
