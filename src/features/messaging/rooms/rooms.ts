import type { IdSource } from '../../../adapters/ids.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Tx, UnloggedWrites } from '../../../db/sql.ts'
import { notifySockets } from '../../../db/unlogged/processes.ts'
import { isUuid } from '../../../language/uuid.ts'
import type { Accountability } from '../../data/items/items.ts'
import type { ListedRoom, Member, Room } from './room.ts'

export { openMemoryStore } from './memory-store.ts'
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
  readonly to: Target
  readonly event: string
  readonly body: unknown
}

/** Tenants: null for sockets without one, undefined for all. */
export type Target =
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
  members(room: Room): Promise<readonly Member[]>
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
  /** Throws when somebody has registered one for the event. */
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
