import type { Accountability } from '../../data/items/items.ts'
import type { ListedRoom, Member, Room } from './room.ts'

/** A connected user, as handlers and validators of extensions see it. */
export type SocketUser = {
  readonly id: string
  readonly userId: string
  readonly tenantId: string | undefined
  /** What the user may by now, for `ItemsService`. */
  readonly accountability: Accountability
  /** To this connection alone. */
  emit(event: string, payload: unknown): void
}

/** Answers by `ack`; one that does not take it answers with what it returns. */
export type MessageHandler = (socket: SocketUser, payload: unknown, ack: (answer: unknown) => void) => unknown

/** Whether the user may join the room; anything but a true value refuses. */
export type RoomValidator = (socket: SocketUser, room: string, metadata: unknown) => unknown

type Owned<Fn> = { readonly owner: string; readonly fn: Fn }

/** What the process that has the sockets knows. */
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

/** What extensions registered for the realtime channel. Every process has one; only a web process has sockets. */
type SocketRegistry = {
  readonly handlers: ReadonlyMap<string, Owned<MessageHandler>>
  /** By prefix of the room's name. */
  readonly validators: ReadonlyMap<string, Owned<RoomValidator>>
  /** Throws when somebody has registered one for the event. */
  registerMessageHandler(owner: string, event: string, fn: MessageHandler): void
  registerRoomValidator(owner: string, prefix: string, fn: RoomValidator): void
  /** False when there was none. */
  unregisterMessageHandler(event: string): boolean
  unregisterRoomValidator(prefix: string): boolean
  /** All whose prefix the name begins with: each of them must agree. */
  validatorsOf(name: string): readonly Owned<RoomValidator>[]
  live(): LiveRooms | undefined
  attach(rooms: LiveRooms): void
}

/** What extensions registered for the realtime channel; filled before the process serves. */
export type Sockets = { readonly sockets: SocketRegistry }

export function openSocketRegistry(): SocketRegistry {
  const handlers = new Map<string, Owned<MessageHandler>>()
  const validators = new Map<string, Owned<RoomValidator>>()
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

function add<Fn>(known: Map<string, Owned<Fn>>, what: string, owner: string, name: string, fn: Fn): void {
  if (typeof name !== 'string' || typeof fn !== 'function') throw new TypeError(`a ${what} is a name and a function`)
  const other = known.get(name)
  if (other !== undefined) throw new Error(`${other.owner} has a ${what} for ${JSON.stringify(name)} already`)
  known.set(name, { owner, fn })
}
