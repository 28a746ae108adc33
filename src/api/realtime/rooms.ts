import type { Server, Socket } from 'socket.io'
import type { Caller } from '../../features/permissions/permissions.ts'
import { openMemoryStore } from '../../features/rooms/memory-store.ts'
import { openRedisStore, type RedisStore } from '../../features/rooms/redis-store.ts'
import type { LiveRooms } from '../../features/rooms/registry.ts'
import { type Room, type RoomStore, roomKey } from '../../features/rooms/rooms.ts'
import type { Runtime } from '../../runtime.ts'
import type { Cluster } from './cluster.ts'
import { socketRoom } from './push.ts'
import { openQueues } from './queues.ts'
import { isAdmitted } from './room-admission.ts'
import { metadataValue, type RoomAnnouncements, roomAnnouncements } from './room-announcements.ts'
import { isConnected, leaveRoom, type Membership, type RoomContext, roomRequests } from './room-requests.ts'
import { callerOf, tenantOf, tenantRoom, userOf, userRoom } from './users.ts'

/** Custom rooms (realtime facts §1, docs/rooms.md). */
export type RoomChannel = {
  /** `room:join` and so on, each answering what goes into its acknowledgement. */
  readonly requests: ReadonlyMap<string, (socket: Socket, request: unknown) => Promise<object>>
  /** A socket that has just been accepted. */
  welcome(socket: Socket): void
  /** The caller behind the socket may be at another tenant, or may other things, than `before`. */
  renew(socket: Socket, before: Caller): void
  /** The socket is gone: it leaves its rooms. */
  forget(socket: Socket): void
  /** When all sockets are gone. */
  close(): Promise<void>
}

type Store = RoomStore & Pick<RedisStore, 'isAvailable' | 'forget' | 'audit' | 'close'>

export function openRooms(rt: Runtime, io: Server, cluster: Cluster): RoomChannel {
  const own = new Map<Socket, Map<string, Membership>>()
  const queues = openQueues()
  const events = roomAnnouncements(rt, io)
  const roomsOf = (socket: Socket): Room[] => [...(own.get(socket)?.values() ?? [])].map(({ room }) => room)

  /** Of a socket of this process; nothing happens for others. */
  const showOutHere = (room: Room, socketId: string, kickedBy: string | null) => {
    store.forget(room, socketId)
    const socket = io.sockets.sockets.get(socketId)
    if (socket === undefined || own.get(socket)?.delete(roomKey(room)) !== true) return
    void socket.leave(socketRoom(roomKey(room)))
    events.kicked(room, socketId, kickedBy)
  }
  const store = openStore(rt, cluster, events, (room, socketId) => showOutHere(room, socketId, null))

  const context: RoomContext = {
    ...{ rt, io, cluster, store, events, own },
    showOut: (room, socketId, kickedBy) => {
      showOutHere(room, socketId, kickedBy)
      cluster.tell(io, 'svc:removed', room, socketId, kickedBy)
    },
  }

  /** After its user's rights have changed. What cannot be decided is decided against it. */
  const reconsider = async (socket: Socket, room: Room) => {
    const membership = own.get(socket)?.get(roomKey(room))
    if (membership === undefined) return
    const isAtTenant = tenantOf(rt, callerOf(socket)) === room.tenantId
    if (isAtTenant && (await isAdmitted(rt, socket, room.name, metadataValue(membership.metadata)))) return
    events.kicked(room, socket.id, null)
    await leaveRoom(context, socket, room)
  }

  const inTurn = (socket: Socket, work: () => Promise<unknown>) =>
    void queues.run(socket, work).catch((error: unknown) => {
      rt.log.warn({ err: error }, 'a socket could not leave a room properly')
    })

  io.on('svc:removed', showOutHere)
  io.on('svc:connected', (userId: string, answer: (is: boolean) => void) => answer(isConnected(io, userId)))
  cluster.onReconnect(() => {
    for (const socket of own.keys()) for (const room of roomsOf(socket)) events.resync(room, socket.id)
    store.audit().catch((error: unknown) => rt.log.debug({ err: error }, 'rooms could not be compared with Redis'))
  })
  attach(rt, io, store, () => ({ shared: cluster.shared !== undefined, available: store.isAvailable() }))

  return {
    requests: new Map(
      Object.entries(roomRequests).map(([name, handle]) => [
        `room:${name}`,
        (socket, request) => queues.run(socket, () => handle(context, socket, request)),
      ]),
    ),
    welcome: (socket) => {
      own.set(socket, new Map())
      void socket.join([userRoom(userOf(socket)), tenantRoom(callerOf(socket).tenantId)])
    },
    renew: (socket, before) => {
      const caller = callerOf(socket)
      if (caller.access === before.access) return
      void socket.leave(tenantRoom(before.tenantId))
      void socket.join(tenantRoom(caller.tenantId))
      for (const room of roomsOf(socket)) inTurn(socket, () => reconsider(socket, room))
    },
    forget: (socket) => {
      // After what it has asked for before, which may be to join another one.
      inTurn(socket, async () => {
        const left = await Promise.allSettled(roomsOf(socket).map((room) => leaveRoom(context, socket, room)))
        own.delete(socket)
        for (const outcome of left) if (outcome.status === 'rejected') throw outcome.reason
      })
    },
    close: async () => {
      await queues.idle()
      await store.close()
    },
  }
}

function openStore(rt: Runtime, cluster: Cluster, events: RoomAnnouncements, onRemoved: RedisStoreRemoval): Store {
  if (cluster.shared === undefined) return { ...openMemoryStore(), ...nothingShared }
  const heard = { onLeft: events.left, onBack: events.joined, onRemoved }
  return openRedisStore({ ...cluster.shared, ...heard, log: rt.log, newId: rt.newId })
}

const nothingShared = {
  isAvailable: () => true,
  forget: () => undefined,
  audit: async () => undefined,
  close: async () => undefined,
}

type RedisStoreRemoval = (room: Room, socketId: string) => void

/** What extensions can ask about the sockets of this process. */
function attach(rt: Runtime, io: Server, store: RoomStore, state: LiveRooms['state']): void {
  rt.sockets.attach({
    state,
    stats: async () => ({
      totalConnections: io.sockets.sockets.size,
      uniqueUsers: new Set([...io.sockets.sockets.values()].map(userOf)).size,
      rooms: io.sockets.adapter.rooms.size,
      customRooms: (await store.list('all', '')).length,
    }),
    members: store.members,
    count: store.count,
    list: () => store.list('all', ''),
  })
}
