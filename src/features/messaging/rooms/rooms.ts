import type { IdSource } from '../../../adapters/ids.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Tx, UnloggedWrites } from '../../../db/sql.ts'
import { notifySockets } from '../../../db/unlogged/processes.ts'
import { isUuid } from '../../../language/text.ts'
import type { Accountability } from '../../data/items/items.ts'
import {
  type JoinRequest,
  type JoinResult,
  type Kick,
  type Left,
  type ListedRoom,
  listed,
  type Participant,
  type Room,
  type RoomMember,
  type RoomStore,
  roomBounds,
  roomKey,
} from './room.ts'

export { openRedisStore, type RedisStore } from './redis-store.ts'
export {
  type JoinRequest,
  type Left,
  type Participant,
  type Room,
  type RoomStore,
  roomBounds,
  roomKey,
} from './room.ts'

/**
 * A message to sockets of the server's own accord. It goes to all web processes by NOTIFY, from any process, and in a
 * transaction with its commit: no Redis is needed, and nothing is sent of what was rolled back. Nothing is kept: a client
 * that is not connected misses it.
 */
export type Push = {
  readonly to: PushTarget
  readonly event: string
  readonly body: unknown
}

/** Tenants: null for sockets without one, undefined for all. */
export type PushTarget =
  | { readonly kind: 'user'; readonly userId: string; readonly tenantId?: string | null | undefined }
  | { readonly kind: 'room'; readonly name: string; readonly tenantId: string | null }
  | { readonly kind: 'all'; readonly tenantId?: string | null | undefined }

/** PostgreSQL takes 8,000 bytes a time, some of which name the part. */
const partLength = 7000
const longest = 262_144

const reserved = new Set(['connect', 'connect_error', 'disconnect', 'disconnecting', 'newListener', 'removeListener'])

/** Throws a TypeError for an event or target that there cannot be, and for a body of more than 256 kB. */
export async function push(
  deps: UnloggedWrites & Configuration & IdSource,
  tx: Tx | undefined,
  what: Push,
): Promise<void> {
  if (typeof what.event !== 'string' || what.event === '' || reserved.has(what.event))
    throw new TypeError(`${JSON.stringify(what.event)} is no name for an event`)
  if (what.to.kind === 'user' && !isUuid(what.to.userId)) throw new TypeError('userId must be the id of a user')
  if (!deps.config.realtime.enabled) return
  await notifySockets(deps, tx, partsOf(deps.newId(), what))
}

/** `{id}:{index}:{count}:{text}`: the JSON in ASCII, so that a character is a byte, cut into pieces. */
function partsOf(id: string, what: Push): string[] {
  const text = JSON.stringify(what).replaceAll(/[^\x20-\x7e]/g, escaped)
  if (text.length > longest) throw new TypeError(`a push is at most ${longest} bytes`)
  const count = Math.ceil(text.length / partLength)
  return Array.from(
    { length: count },
    (_, index) => `${id}:${index}:${count}:${text.slice(index * partLength, (index + 1) * partLength)}`,
  )
}

const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`

/** Puts parts together; gives the push with its last part. Forgets what has stayed incomplete. */
export function openAssembly(): { add(part: string): Push | undefined; clear(): void } {
  const waiting = new Map<string, string[]>()
  return {
    add: (given) => {
      const [, id = '', index = '', count = '', text = ''] = /^([^:]+):(\d+):(\d+):(.*)$/s.exec(given) ?? []
      const parts = waiting.get(id) ?? []
      parts[Number(index)] = text
      waiting.set(id, parts)
      if (Object.keys(parts).length < Number(count)) return undefined
      waiting.delete(id)
      return JSON.parse(parts.join('')) as Push
    },
    clear: () => waiting.clear(),
  }
}

/** A connected user, as handlers and validators of extensions see it. */
export type SocketUser = {
  readonly id: string
  readonly userId: string
  readonly tenantId: string | undefined
  /** The user's present rights, for `ItemsService`. */
  readonly accountability: Accountability
  /** To this connection alone. */
  emit(event: string, payload: unknown): void
}

/** Answers by `ack`; one that does not take it answers with what it returns. */
export type MessageHandler = (socket: SocketUser, payload: unknown, ack: (answer: unknown) => void) => unknown

/** Whether the user may join the room; anything but a true value refuses. */
export type RoomValidator = (socket: SocketUser, room: string, metadata: unknown) => unknown

type OwnedHandler<Fn> = { readonly owner: string; readonly fn: Fn }

/** The rooms as the process that has the sockets knows them. */
export type LiveRooms = {
  /** Whether rooms are shared between processes, and can be used at the moment. */
  state(): { readonly shared: boolean; readonly available: boolean }
  stats(): Promise<LiveStats>
  members(room: Room): Promise<readonly RoomMember[]>
  count(room: Room): Promise<number>
  list(): Promise<readonly ListedRoom[]>
}

export type LiveStats = {
  readonly totalConnections: number
  readonly uniqueUsers: number
  readonly rooms: number
  readonly customRooms: number
}

/** Handlers that extensions registered for the realtime channel. Every process has one; only a web process has sockets. */
type SocketRegistry = {
  readonly handlers: ReadonlyMap<string, OwnedHandler<MessageHandler>>
  /** By prefix of the room's name. */
  readonly validators: ReadonlyMap<string, OwnedHandler<RoomValidator>>
  /** Throws when the event has one already. */
  registerMessageHandler(owner: string, event: string, fn: MessageHandler): void
  registerRoomValidator(owner: string, prefix: string, fn: RoomValidator): void
  /** False when there was none. */
  unregisterMessageHandler(event: string): boolean
  unregisterRoomValidator(prefix: string): boolean
  /** All whose prefix the name begins with: each of them must agree. */
  validatorsOf(name: string): readonly OwnedHandler<RoomValidator>[]
  live(): LiveRooms | undefined
  attach(rooms: LiveRooms): void
}

/** Handlers that extensions registered for the realtime channel; filled before the process serves. */
export type Sockets = { readonly sockets: SocketRegistry }

export function openSocketRegistry(): SocketRegistry {
  const handlers = new Map<string, OwnedHandler<MessageHandler>>()
  const validators = new Map<string, OwnedHandler<RoomValidator>>()
  let live: LiveRooms | undefined
  return {
    handlers,
    validators,
    registerMessageHandler: (owner, event, fn) => add(handlers, 'message handler', owner, event, fn),
    registerRoomValidator: (owner, prefix, fn) => add(validators, 'room validator', owner, prefix, fn),
    unregisterMessageHandler: (event) => handlers.delete(event),
    unregisterRoomValidator: (prefix) => validators.delete(prefix),
    validatorsOf: (name) => [...validators].filter(([prefix]) => name.startsWith(prefix)).map(([, owned]) => owned),
    live: () => live,
    attach: (rooms) => {
      live = rooms
    },
  }
}

function add<Fn>(known: Map<string, OwnedHandler<Fn>>, what: string, owner: string, name: string, fn: Fn): void {
  if (typeof name !== 'string' || typeof fn !== 'function') throw new TypeError(`a ${what} is a name and a function`)
  const other = known.get(name)
  if (other !== undefined) throw new Error(`${other.owner} has a ${what} for ${JSON.stringify(name)} already`)
  known.set(name, { owner, fn })
}

type RoomState = {
  readonly room: Room
  /** In the order in which they came. */
  readonly members: Map<string, { readonly userId: string; readonly metadata: string | undefined }>
  creator: string
  /** The user who made the room, and gets it back. */
  readonly original: string
  readonly history: string[]
}

/** Characters of all histories of the process; beyond them that of the oldest room is dropped. */
const historiesAtMost = 64 * 1024 * 1024

/** All rooms of a process, and the characters of their histories. */
type Rooms = { readonly states: Map<string, RoomState>; kept: number }

/** Rooms of the sockets of this process alone. */
export function openMemoryStore(): RoomStore {
  const rooms: Rooms = { states: new Map(), kept: 0 }
  const stateOf = (room: Room) => rooms.states.get(roomKey(room))
  return {
    join: async (room, joining) => join(rooms, room, joining),
    leave: async (room, socketId) => {
      const state = stateOf(room)
      return state && remove(rooms, state, socketId)
    },
    record: async (room, socketId, record) => {
      const state = stateOf(room)
      if (state?.members.has(socketId) !== true) return false
      if (record !== undefined) keep(rooms, state, record)
      return true
    },
    members: async (room) => {
      const state = stateOf(room)
      const members = [...(state?.members ?? [])]
      return members.map(([socketId, member]) => ({ socketId, ...member, isCreator: state?.creator === socketId }))
    },
    kick: async (room, socketId, userId) => kick(rooms, stateOf(room), socketId, userId),
    list: async (tenantId, prefix) =>
      listed(
        [...rooms.states.values()]
          .filter(({ room }) => tenantId === 'all' || (room.tenantId ?? null) === tenantId)
          .filter(({ room }) => room.name.startsWith(prefix))
          .map(({ room, members }) => ({ ...room, memberCount: members.size })),
      ),
    count: async (room) => stateOf(room)?.members.size ?? 0,
  }
}

function join({ states }: Rooms, room: Room, { socketId, userId, metadata }: JoinRequest): JoinResult | 'full' {
  const known = states.get(roomKey(room))
  const state = known ?? { room, members: new Map(), creator: socketId, original: userId, history: [] }
  const isNew = !state.members.has(socketId)
  if (isNew && state.members.size >= roomBounds.members) return 'full'
  states.set(roomKey(room), state)
  state.members.set(socketId, { userId, metadata })
  return { history: [...state.history], isNew, newCreator: userId === state.original ? elect(state) : undefined }
}

function remove(rooms: Rooms, state: RoomState, socketId: string): Left | undefined {
  const member = state.members.get(socketId)
  if (member === undefined) return undefined
  state.members.delete(socketId)
  if (state.members.size === 0) {
    drop(rooms, state, state.history.length)
    rooms.states.delete(roomKey(state.room))
  }
  const person = { socketId, userId: member.userId }
  return { person, newCreator: state.creator === socketId ? elect(state) : undefined }
}

function kick(rooms: Rooms, state: RoomState | undefined, socketId: string, userId: string): Kick {
  if (state === undefined) return { outcome: 'no room' }
  if (state.creator !== socketId) return { outcome: 'not the creator' }
  const targets = [...state.members].filter(([, member]) => member.userId === userId)
  if (targets.length === 0) return { outcome: 'not in the room' }
  return { outcome: 'kicked', people: targets.map(([target]) => remove(rooms, state, target)!.person) }
}

function keep(rooms: Rooms, state: RoomState, record: string): void {
  state.history.push(record)
  rooms.kept += record.length
  let length = state.history.reduce((sum, one) => sum + one.length, 0)
  while (state.history.length > roomBounds.records || length > roomBounds.history) {
    length -= state.history[0]!.length
    drop(rooms, state, 1)
  }
  for (const other of rooms.states.values()) {
    if (rooms.kept <= historiesAtMost) break
    drop(rooms, other, other.history.length)
  }
}

function drop(rooms: Rooms, state: RoomState, count: number): void {
  for (const record of state.history.splice(0, count)) rooms.kept -= record.length
}

/** The first socket of the user who made the room, else the one that has been there longest; who it is, if that is new. */
function elect(state: RoomState): Participant | undefined {
  const members = [...state.members]
  const next = members.find(([, { userId }]) => userId === state.original) ?? members[0]
  if (next === undefined || next[0] === state.creator) return undefined
  state.creator = next[0]
  return { socketId: next[0], userId: next[1].userId }
}
