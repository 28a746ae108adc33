import type { Tx } from '../db/sql.ts'
import type { LiveRooms, LiveStats, MessageHandler, Room, RoomValidator } from '../features/messaging/rooms/rooms.ts'
import { push, type Target } from '../features/messaging/rooms/rooms.ts'
import type { ExtensionWrites } from './capabilities.ts'

/** The tenant of the room or sockets; without it the room of those without a tenant, and sockets of all tenants. */
type OfTenant = { readonly tenantId?: string | null }

type RoomMember = {
  readonly socketId: string
  readonly userId: string
  readonly isCreator: boolean
  readonly metadata: unknown
}

/**
 * The realtime channel for extensions (docs/rooms.md). Its messages reach the sockets of all web processes, in a
 * before-hook if and when the change is committed. Its questions have answers in web processes only.
 */
export type SocketService = {
  /** For `custom {event, payload}` of clients. Throws when somebody has registered one for the event. */
  registerMessageHandler(event: string, handler: MessageHandler): void
  /** False when there was none. */
  unregisterMessageHandler(event: string): boolean
  /** Decides who may join rooms whose name begins with `prefix`; of several all must agree. */
  registerRoomValidator(prefix: string, validator: RoomValidator): void
  unregisterRoomValidator(prefix: string): boolean
  /** Members get `event` with `{room, payload, timestamp}`. */
  broadcastToRoom(room: string, event: string, payload: unknown, options?: OfTenant): Promise<void>
  /** Everybody who is connected gets `event` with `{payload, timestamp}`. */
  broadcastToAll(event: string, payload: unknown, options?: OfTenant): Promise<void>
  /** All sockets of a user get `event` with `{payload, timestamp}`. */
  sendToUser(userId: string, event: string, payload: unknown, options?: OfTenant): Promise<void>
  getRoomMembers(room: string, options?: OfTenant): Promise<readonly RoomMember[]>
  getRoomMemberCount(room: string, options?: OfTenant): Promise<number>
  roomExists(room: string, options?: OfTenant): Promise<boolean>
  /** Of all tenants, at most a thousand. */
  getCustomRooms(): Promise<readonly { name: string; tenantId: string | null; memberCount: number }[]>
  getStats(): Promise<SocketStats>
}

/** Connections and rooms are those of this process; with Redis custom rooms are those of all. */
type SocketStats = LiveStats & {
  readonly status: 'running' | 'not in this process'
  readonly registeredHandlers: number
  readonly registeredValidators: number
}

/** `scope` gives the transaction that is going on, where there is one. */
export function socketServiceFor(deps: ExtensionWrites, owner: string, scope: () => Tx | undefined): SocketService {
  const { sockets } = deps
  const now = () => deps.clock().toISOString()
  const send = (to: Target, event: string, body: object) =>
    push(deps, scope(), { to, event, body: { ...body, timestamp: now() } })
  const live = (): LiveRooms => {
    const rooms = sockets.live()
    if (rooms === undefined) throw new Error('rooms are known in web processes with SOCKET_ENABLED only')
    return rooms
  }
  return Object.freeze({
    registerMessageHandler: (event, handler) => sockets.registerMessageHandler(owner, event, handler),
    unregisterMessageHandler: sockets.unregisterMessageHandler,
    registerRoomValidator: (prefix, validator) => sockets.registerRoomValidator(owner, prefix, validator),
    unregisterRoomValidator: sockets.unregisterRoomValidator,
    broadcastToRoom: (name, event, payload, { tenantId = null } = {}) =>
      send({ kind: 'room', name, tenantId }, event, { room: name, payload }),
    broadcastToAll: (event, payload, { tenantId } = {}) => send({ kind: 'all', tenantId }, event, { payload }),
    sendToUser: (userId, event, payload, { tenantId } = {}) =>
      send({ kind: 'user', userId, tenantId }, event, { payload }),
    getRoomMembers: async (room, options) =>
      (await live().members(roomOf(room, options))).map(({ socketId, userId, isCreator, metadata }) => ({
        ...{ socketId, userId, isCreator },
        metadata: metadata === undefined ? null : JSON.parse(metadata),
      })),
    getRoomMemberCount: async (room, options) => live().count(roomOf(room, options)),
    roomExists: async (room, options) => (await live().count(roomOf(room, options))) > 0,
    getCustomRooms: async () =>
      (await live().list()).map(({ name, tenantId = null, memberCount }) => ({ name, tenantId, memberCount })),
    getStats: async () => ({
      ...((await sockets.live()?.stats()) ?? none),
      status: sockets.live() === undefined ? 'not in this process' : 'running',
      registeredHandlers: sockets.handlers.size,
      registeredValidators: sockets.validators.size,
    }),
  } satisfies SocketService)
}

const none: LiveStats = { totalConnections: 0, uniqueUsers: 0, rooms: 0, customRooms: 0 }

const roomOf = (name: string, { tenantId }: OfTenant = {}): Room => ({ name, tenantId: tenantId ?? undefined })
