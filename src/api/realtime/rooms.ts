import type { Server, Socket } from 'socket.io'
import type { Caller } from '../../access/principal.ts'
import type { IdSource } from '../../adapters/ids.ts'
import type { Logs } from '../../adapters/logger.ts'
import { openRedis, type Redis } from '../../adapters/redis.ts'
import { type Fanout, openFanout } from '../../adapters/socket-fanout.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import { AppError } from '../../errors.ts'
import { statedRefusal } from '../../features/data/hooks/hooks.ts'
import {
  type JoinRequest,
  type Left,
  type LiveRooms,
  openMemoryStore,
  openRedisStore,
  type Participant,
  type RedisStore,
  type Room,
  type RoomStore,
  roomBounds,
  roomKey,
} from '../../features/messaging/rooms/rooms.ts'
import { asExtension } from '../../language/extension-code.ts'
import type { RealtimeReads } from '../capabilities.ts'
import { connectionClosed } from './connections.ts'
import {
  callerOf,
  jsonOf,
  readMessage,
  socketRoom,
  socketUser,
  tenantOf,
  tenantRoom,
  userOf,
  userRoom,
} from './messages.ts'

/** Custom rooms (docs/rooms.md). */
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

/** A room that a socket is in, with the metadata (JSON) that it was admitted with. */
type RoomMembership = { readonly room: Room; readonly metadata: string | undefined }

type SharedRoomStore = RoomStore & Pick<RedisStore, 'isAvailable' | 'forget' | 'audit' | 'close'>

/** The parts that the channel works with. */
type RoomContext = {
  readonly deps: RealtimeReads
  readonly io: Server
  readonly cluster: Cluster
  readonly store: SharedRoomStore
  readonly events: RoomAnnouncements
  /** The rooms of the sockets of this process, by key; a socket that is gone has none. */
  readonly own: Map<Socket, Map<string, RoomMembership>>
  readonly queues: Queues
}

export function openRooms(deps: RealtimeReads, io: Server, cluster: Cluster): RoomChannel {
  const own: RoomContext['own'] = new Map()
  const events = roomAnnouncements(deps, io)
  const store = openStore(deps, cluster, events, (room, socketId) => showOutHere(context, room, socketId, null))
  const context: RoomContext = { deps, io, cluster, store, events, own, queues: openQueues() }
  hearOthers(context)
  attach(context)
  const requests = Object.entries(roomRequests).map(([name, handle]) => {
    const inTurn = (socket: Socket, request: unknown) =>
      context.queues.request(socket, () => handle(context, socket, request))
    return [`room:${name}`, inTurn] as const
  })
  return {
    requests: new Map(requests),
    welcome: (socket) => {
      own.set(socket, new Map())
      void socket.join([userRoom(userOf(socket)), tenantRoom(callerOf(socket).tenantId)])
    },
    renew: (socket, before) => {
      const caller = callerOf(socket)
      if (caller.access === before.access) return
      void socket.leave(tenantRoom(before.tenantId))
      void socket.join(tenantRoom(caller.tenantId))
      leaveInTurn(context, socket, () => reconsiderAll(context, socket))
    },
    // After what it has asked for before, which may be to join another one.
    forget: (socket) => leaveInTurn(context, socket, () => leaveAll(context, socket)),
    close: async () => {
      await context.queues.idle()
      await store.close()
    },
  }
}

function openStore(
  { log, newId }: IdSource & Logs,
  cluster: Cluster,
  events: RoomAnnouncements,
  onRemoved: RedisStoreRemoval,
): SharedRoomStore {
  if (cluster.shared === undefined) return { ...openMemoryStore(), ...nothingShared }
  const heard = { onLeft: events.left, onBack: events.joined, onRemoved }
  return openRedisStore({ ...cluster.shared, ...heard, log, newId })
}

type RedisStoreRemoval = (room: Room, socketId: string) => void

const nothingShared = {
  isAvailable: () => true,
  forget: () => undefined,
  audit: async () => undefined,
  close: async () => undefined,
}

/** Answers the questions of other processes, and repairs rooms after messages may have been lost. */
function hearOthers(context: RoomContext): void {
  const { deps, io, cluster, store, events, own } = context
  io.on('svc:removed', (room: Room, socketId: string, kickedBy: string) =>
    showOutHere(context, room, socketId, kickedBy),
  )
  io.on('svc:connected', (userId: string, answer: (is: boolean) => void) => answer(isConnected(io, userId)))
  cluster.onReconnect(() => {
    for (const socket of own.keys()) for (const room of roomsOf(context, socket)) events.resync(room, socket.id)
    store.audit().catch((error: unknown) => deps.log.debug({ err: error }, 'rooms could not be compared with Redis'))
  })
}

/** Questions that extensions can ask about the sockets of this process. */
function attach({ deps, io, cluster, store }: RoomContext): void {
  const live: LiveRooms = {
    state: () => ({ shared: cluster.shared !== undefined, available: store.isAvailable() }),
    stats: async () => ({
      totalConnections: io.sockets.sockets.size,
      uniqueUsers: new Set([...io.sockets.sockets.values()].map(userOf)).size,
      rooms: io.sockets.adapter.rooms.size,
      customRooms: (await store.list('all', '')).length,
    }),
    members: store.members,
    count: store.count,
    list: () => store.list('all', ''),
  }
  deps.sockets.attach(live)
}

const roomsOf = ({ own }: RoomContext, socket: Socket): Room[] =>
  [...(own.get(socket)?.values() ?? [])].map(({ room }) => room)

/** Takes a socket of this process out of a room that it is no member of any more; nothing happens for other sockets. */
function showOutHere(context: RoomContext, room: Room, socketId: string, kickedBy: string | null): void {
  const { io, own, store, events } = context
  store.forget(room, socketId)
  const socket = io.sockets.sockets.get(socketId)
  if (socket === undefined || own.get(socket)?.delete(roomKey(room)) !== true) return
  void socket.leave(socketRoom(roomKey(room)))
  events.kicked(room, socketId, kickedBy)
}

/** The same for a socket of whichever process. */
function showOut(context: RoomContext, room: Room, socketId: string, kickedBy: string): void {
  showOutHere(context, room, socketId, kickedBy)
  context.cluster.notify(context.io, 'svc:removed', room, socketId, kickedBy)
}

/** After a change of its user's rights; of the rooms at its turn, since one may be joined with the rights of before. */
async function reconsiderAll(context: RoomContext, socket: Socket): Promise<void> {
  for (const room of roomsOf(context, socket))
    await reconsider(context, socket, room).catch((error: unknown) => notLeft(context, error))
}

/** If the validator fails, the socket leaves. */
async function reconsider(context: RoomContext, socket: Socket, room: Room): Promise<void> {
  const { deps, own, events } = context
  const membership = own.get(socket)?.get(roomKey(room))
  if (membership === undefined) return
  const isAtTenant = tenantOf(deps, callerOf(socket)) === room.tenantId
  if (isAtTenant && (await isAdmitted(deps, socket, room.name, metadataValue(membership.metadata)))) return
  events.kicked(room, socket.id, null)
  await leaveRoom(context, socket, room)
}

async function leaveAll(context: RoomContext, socket: Socket): Promise<void> {
  const left = await Promise.allSettled(roomsOf(context, socket).map((room) => leaveRoom(context, socket, room)))
  context.own.delete(socket)
  for (const outcome of left) if (outcome.status === 'rejected') throw outcome.reason
}

function leaveInTurn(context: RoomContext, socket: Socket, work: () => Promise<void>): void {
  context.queues.run(socket, work).catch((error: unknown) => notLeft(context, error))
}

function notLeft({ deps }: RoomContext, error: unknown): void {
  deps.log.warn({ err: error }, 'a socket could not leave a room properly')
}

/**
 * Whether a user may be in a room: every validator that extensions have for it agrees, and there is one where
 * REALTIME_ROOMS is `validated`. One that fails does not agree.
 */
async function isAdmitted(deps: RealtimeReads, socket: Socket, name: string, metadata: unknown): Promise<boolean> {
  const validators = deps.sockets.validatorsOf(name)
  if (validators.length === 0) return deps.config.realtime.rooms === 'open'
  for (const { owner, fn } of validators) {
    try {
      if (!(await asExtension(owner, () => fn(socketUser(deps, socket), name, metadata)))) return false
    } catch (error) {
      if (statedRefusal(error) === undefined)
        deps.log.error({ err: error, extension: owner }, 'a room validator failed')
      return false
    }
  }
  return true
}

type RoomRequest = (context: RoomContext, socket: Socket, request: unknown) => Promise<object>

/** `room:join`, `room:leave` and so on; what they answer goes into the acknowledgement. */
const roomRequests: Readonly<Record<string, RoomRequest>> = { join, leave, message, members, kick, list }

async function join(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const { store, events } = context
  const given = readMessage('room:join', request)
  const room = roomOf(context, socket, given.room)
  const joining = { socketId: socket.id, userId: userOf(socket), metadata: metadataOf(given.metadata) }
  const mine = context.own.get(socket)
  if (mine === undefined) throw connectionClosed()
  if (!mine.has(roomKey(room)) && mine.size >= roomBounds.rooms)
    throw new AppError(400, 'Too many rooms on one connection')
  if (!(await isAdmitted(context.deps, socket, room.name, metadataValue(joining.metadata))))
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
  const room = roomOf(context, socket, readMessage('room:leave', request).room)
  await leaveRoom(context, socket, room)
  return { room: room.name }
}

/** Nothing happens when the socket is not in the room. */
async function leaveRoom({ own, store, events }: RoomContext, socket: Socket, room: Room): Promise<void> {
  if (own.get(socket)?.delete(roomKey(room)) !== true) return
  await socket.leave(socketRoom(roomKey(room)))
  const left = await store.leave(room, socket.id)
  if (left !== undefined) events.left(room, left)
}

async function message(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const given = readMessage('room:message', request)
  const room = roomOf(context, socket, given.room)
  const { event } = given
  const sender = { userId: userOf(socket), socketId: socket.id }
  const body = {
    event,
    payload: JSON.parse(jsonOf('payload', given.payload ?? null, roomBounds.payload)),
    sender,
    timestamp: context.deps.clock().toISOString(),
  }
  const record = given.history === false ? undefined : JSON.stringify(body)
  if (!(await context.store.record(room, socket.id, record))) throw notMember()
  context.events.message(room, event, body)
  return {}
}

async function members(context: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const room = roomOf(context, socket, readMessage('room:members', request).room)
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
  const given = readMessage('room:kick', request)
  const room = roomOf(context, socket, given.room)
  const userId = given.userId.toLowerCase()
  // The id `-` exists for no user: creators who name themselves are first refused for their other mistakes.
  const target = userId === userOf(socket) ? '-' : userId
  const kicked = await context.store.kick(room, socket.id, target)
  if (kicked.outcome === 'not in the room' && target !== '-') throw await notThere(context, userId)
  if (kicked.outcome !== 'kicked') throw new AppError(400, refusals[kicked.outcome])
  for (const person of kicked.people) {
    showOut(context, room, person.socketId, userOf(socket))
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
function isConnected(io: Server, userId: string): boolean {
  return io.sockets.adapter.rooms.has(userRoom(userId))
}

async function list({ deps, store }: RoomContext, socket: Socket, request: unknown): Promise<object> {
  const prefix = readMessage('room:list', request).prefix ?? ''
  const rooms = await store.list(tenantOf(deps, callerOf(socket)) ?? null, prefix)
  return { rooms: rooms.map(({ name, memberCount }) => ({ name, memberCount })) }
}

/** Rooms belong to the tenant that the socket is at; nothing that a client says names another one. */
function roomOf({ deps }: RoomContext, socket: Socket, name: string): Room {
  return { tenantId: tenantOf(deps, callerOf(socket)), name }
}

/** As JSON text; undefined where there is none. */
const metadataOf = (value: unknown): string | undefined =>
  value === undefined || value === null ? undefined : jsonOf('metadata', value, roomBounds.metadata)

const notMember = () => new AppError(403, 'Not a member of this room')

/** Messages of a room to its members. */
type RoomAnnouncements = {
  joined(room: Room, joining: JoinRequest): void
  left(room: Room, left: Left): void
  creatorChanged(room: Room, newCreator: Participant | undefined): void
  /** To all members, the sender too. */
  message(room: Room, event: string, body: object): void
  /** To one socket of this process: it is out. `kickedBy` is a user, or null without one. */
  kicked(room: Room, socketId: string, kickedBy: string | null): void
  /** To one socket of this process: it may have missed something. */
  resync(room: Room, socketId: string): void
}

function roomAnnouncements(deps: Clock, io: Server): RoomAnnouncements {
  const audience = (room: Room) => io.to(socketRoom(roomKey(room)))
  const about = ({ name: room }: Room, more: object) => ({ room, ...more, timestamp: deps.clock().toISOString() })
  const creatorChanged: RoomAnnouncements['creatorChanged'] = (room, newCreator) => {
    if (newCreator === undefined) return
    const { socketId: newCreatorSocketId, userId: newCreatorUserId } = newCreator
    audience(room).emit('room:creator:changed', about(room, { newCreatorSocketId, newCreatorUserId }))
  }
  return {
    joined: (room, { socketId, userId, metadata }) => {
      const joined = about(room, { userId, socketId, metadata: metadataValue(metadata) })
      audience(room).except(socketId).emit('room:user:joined', joined)
    },
    left: (room, { person: { userId, socketId }, newCreator }) => {
      audience(room).emit('room:user:left', about(room, { userId, socketId }))
      creatorChanged(room, newCreator)
    },
    creatorChanged,
    message: (room, event, body) => void audience(room).emit(`room:${event}`, { room: room.name, ...body }),
    kicked: (room, socketId, kickedBy) =>
      void io.sockets.sockets.get(socketId)?.emit('room:kicked', about(room, { kickedBy })),
    resync: (room, socketId) => void io.sockets.sockets.get(socketId)?.emit('room:resync', about(room, {})),
  }
}

/** Metadata as it was given; null where there is none. */
const metadataValue = (json: string | undefined): unknown => (json === undefined ? null : JSON.parse(json))

/** Work for one socket, one after the other: a client may join a room and speak in it without waiting in between. */
type Queues = {
  /** Work that its client asks for. 429 for a socket that has too much waiting. */
  request<T>(socket: Socket, work: () => Promise<T>): Promise<T>
  /** Work of the server's own is never refused: nobody would ask for it again. */
  run<T>(socket: Socket, work: () => Promise<T>): Promise<T>
  /** Resolves when nothing is waiting. */
  idle(): Promise<void>
}

const waitingAtMost = 200

function openQueues(): Queues {
  const queues = new Map<Socket, { readonly last: Promise<unknown>; readonly waiting: number }>()
  const run: Queues['run'] = async (socket, work) => {
    const before = queues.get(socket)
    const done = (before?.last ?? Promise.resolve()).then(work, work)
    queues.set(socket, { last: done, waiting: (before?.waiting ?? 0) + 1 })
    try {
      return await done
    } finally {
      const now = queues.get(socket)!
      if (now.waiting === 1) queues.delete(socket)
      else queues.set(socket, { ...now, waiting: now.waiting - 1 })
    }
  }
  return {
    request: async (socket, work) => {
      if ((queues.get(socket)?.waiting ?? 0) >= waitingAtMost) throw new AppError(429, 'Too many requests at once')
      return run(socket, work)
    },
    run,
    idle: async () => {
      while (queues.size > 0) await Promise.allSettled([...queues.values()].map(({ last }) => last))
    },
  }
}

/**
 * The other web processes, as far as custom rooms are concerned (ADR 24): with SOCKET_REDIS_ENABLED their sockets share
 * rooms; without it a process has rooms of its own. Changes, notifications, pushes and the progress of tasks need none of
 * this: they come through PostgreSQL.
 */
type Cluster = {
  /** Undefined where every process is alone. */
  readonly shared: { readonly redis: Redis; readonly prefix: string } | undefined
  /** For the constructor of the socket server. */
  readonly options: { readonly adapter?: Fanout['adapter'] }
  /** Calls the others' handler of that name. Nothing is sent while Redis is away. */
  notify(io: Server, name: string, ...values: readonly unknown[]): void
  /** The answers of the other processes' handlers that come in time. */
  ask(io: Server, name: string, ...values: readonly unknown[]): Promise<readonly unknown[]>
  /** Called when messages of others may have been missed. */
  onReconnect(handler: () => void): void
  close(): void
}

const answersWithinMs = 2500
/** Scripts are few and small; what is slow is a busy machine. */
const redisWaitMs = 1000

export function openCluster({ config: { realtime }, log }: Configuration & Logs): Cluster {
  if (!realtime.redisEnabled) return alone
  const url = realtime.redisUrl!
  const redis = openRedis(url, log, redisWaitMs)
  const fanout = openFanout(url, realtime.redisKey, log)
  return {
    shared: { redis, prefix: `${realtime.redisKey}:` },
    options: { adapter: fanout.adapter },
    notify: (io, name, ...values) => void io.serverSideEmit(name, ...values),
    ask: (io, name, ...values) => {
      const { promise, resolve } = Promise.withResolvers<readonly unknown[]>()
      // There is no answer while Redis is away.
      const timeout = setTimeout(() => resolve([]), answersWithinMs)
      io.serverSideEmit(name, ...values, (_error: unknown, answers: readonly unknown[] = []) => resolve(answers))
      return promise.finally(() => clearTimeout(timeout))
    },
    onReconnect: fanout.onReconnect,
    close: () => {
      fanout.close()
      redis.close()
    },
  }
}

const alone: Cluster = {
  shared: undefined,
  options: {},
  notify: () => undefined,
  ask: async () => [],
  onReconnect: () => undefined,
  close: () => undefined,
}
