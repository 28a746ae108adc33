import type { Server, Socket } from 'socket.io'
import { AppError } from '../../errors.ts'
import {
  eventOf,
  membersOfRequest,
  metadataOf,
  payloadOf,
  prefixOf,
  roomNameOf,
  userIdOf,
} from '../../features/rooms/input.ts'
import { type Room, type RoomStore, roomBounds, roomKey } from '../../features/rooms/rooms.ts'
import type { Runtime } from '../../runtime.ts'
import type { Cluster } from './cluster.ts'
import { socketRoom } from './push.ts'
import { isAdmitted } from './room-admission.ts'
import { metadataValue, type RoomAnnouncements } from './room-announcements.ts'
import { callerOf, tenantOf, userOf, userRoom } from './users.ts'

/** A room that a socket is in, with the metadata (JSON) that it was admitted with. */
export type Membership = { readonly room: Room; readonly metadata: string | undefined }

/** What the requests work with. */
export type RoomContext = {
  readonly rt: Runtime
  readonly io: Server
  readonly cluster: Cluster
  readonly store: RoomStore
  readonly events: RoomAnnouncements
  /** The rooms of the sockets of this process, by key; a socket that is gone has none. */
  readonly own: ReadonlyMap<Socket, Map<string, Membership>>
  /** Takes a socket, wherever it is connected, out of a room that it is no member of any more. */
  showOut(room: Room, socketId: string, kickedBy: string): void
}

export type RoomRequest = (context: RoomContext, socket: Socket, request: unknown) => Promise<object>

/** `room:join`, `room:leave` and so on; what they answer goes into the acknowledgement. */
export const roomRequests: Readonly<Record<string, RoomRequest>> = { join, leave, message, members, kick, list }

async function join(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const { store, events } = context
  const given = membersOfRequest(request)
  const room = roomOf(context, socket, given.room)
  const joining = { socketId: socket.id, userId: userOf(socket), metadata: metadataOf(given.metadata) }
  const mine = context.own.get(socket)
  if (mine === undefined) throw new AppError(400, 'The connection is closed')
  if (!mine.has(roomKey(room)) && mine.size >= roomBounds.rooms)
    throw new AppError(400, 'Too many rooms on one connection')
  if (!(await isAdmitted(context.rt, socket, room.name, metadataValue(joining.metadata))))
    throw new AppError(403, 'Not authorized to join this room')
  // First, so that no message falls between the history and the first one that is received.
  await socket.join(socketRoom(roomKey(room)))
  const joined = await store.join(room, joining).catch((error: unknown) => error as Error)
  if (joined === 'full' || joined instanceof Error) {
    if (!mine.has(roomKey(room))) await socket.leave(socketRoom(roomKey(room)))
    throw joined === 'full' ? new AppError(400, 'Room is full') : joined
  }
  mine.set(roomKey(room), { room, metadata: joining.metadata })
  if (joined.isNew) events.joined(room, joining)
  events.creatorChanged(room, joined.newCreator)
  return { room: room.name, history: joined.history.map((record) => JSON.parse(record)) }
}

async function leave(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const room = roomOf(context, socket, membersOfRequest(request).room)
  await leaveRoom(context, socket, room)
  return { room: room.name }
}

/** Nothing happens when the socket is not in the room. */
export async function leaveRoom({ own, store, events }: RoomContext, socket: Socket, room: Room): Promise<void> {
  if (own.get(socket)?.delete(roomKey(room)) !== true) return
  await socket.leave(socketRoom(roomKey(room)))
  const left = await store.leave(room, socket.id)
  if (left !== undefined) events.left(room, left)
}

async function message(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const given = membersOfRequest(request)
  const room = roomOf(context, socket, given.room)
  const event = eventOf(given.event)
  const sender = { userId: userOf(socket), socketId: socket.id }
  const body = {
    event,
    payload: JSON.parse(payloadOf(given.payload)),
    sender,
    timestamp: context.rt.clock().toISOString(),
  }
  const record = given.history === false ? undefined : JSON.stringify(body)
  if (!(await context.store.record(room, socket.id, record))) throw notMember()
  context.events.message(room, event, body)
  return {}
}

async function members(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const room = roomOf(context, socket, membersOfRequest(request).room)
  const all = await context.store.members(room)
  if (all.length === 0) throw new AppError(400, refusals['no room'])
  if (!all.some(({ socketId }) => socketId === socket.id)) throw notMember()
  return {
    members: all.map(({ socketId, userId, isCreator, metadata }) => ({
      socketId,
      userId,
      isCreator,
      metadata: metadataValue(metadata),
    })),
  }
}

async function kick(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const given = membersOfRequest(request)
  const room = roomOf(context, socket, given.room)
  const userId = userIdOf(given.userId)
  // Nobody has this id: that is for whoever asks for themselves, to hear of what else is wrong first.
  const target = userId === userOf(socket) ? '-' : userId
  const kicked = await context.store.kick(room, socket.id, target)
  if (kicked.outcome === 'not in the room' && target !== '-') throw await notThere(context, userId)
  if (kicked.outcome !== 'kicked') throw new AppError(400, refusals[kicked.outcome])
  for (const person of kicked.people) {
    context.showOut(room, person.socketId, userOf(socket))
    context.events.left(room, { person, newCreator: undefined })
  }
  return {}
}

const refusals = {
  'no room': 'Room not found',
  'not the creator': 'Only the room creator can kick users',
  'not in the room': 'Room creator cannot kick themselves',
} as const

async function notThere({ io, cluster }: RoomContext, userId: string): Promise<AppError> {
  const isHere = isConnected(io, userId) || (await cluster.ask(io, 'svc:connected', userId)).includes(true)
  return new AppError(400, isHere ? 'Target user is not in this room' : 'Target user is not connected')
}

/** To this process. */
export function isConnected(io: Server, userId: string): boolean {
  return io.sockets.adapter.rooms.has(userRoom(userId))
}

async function list({ rt, store }: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const prefix = prefixOf(membersOfRequest(request).prefix)
  const rooms = await store.list(tenantOf(rt, callerOf(socket)) ?? null, prefix)
  return { rooms: rooms.map(({ name, memberCount }) => ({ name, memberCount })) }
}

/** Rooms belong to the tenant that the socket is at; nothing that a client says names another one. */
function roomOf({ rt }: RoomContext, socket: Socket, name: unknown): Room {
  return { tenantId: tenantOf(rt, callerOf(socket)), name: roomNameOf(name) }
}

const notMember = () => new AppError(403, 'Not a member of this room')
