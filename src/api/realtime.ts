import type { Server, Socket } from 'socket.io'
import { collectionsWithRowRules } from '../access/access.ts'
import { type Caller, ownerOf } from '../access/principal.ts'
import type { CurrentAccess } from '../access/store.ts'
import type { Logs } from '../adapters/logger.ts'
import type { Configuration } from '../config/config.ts'
import { directUrl, tlsOptions, withoutSslMode } from '../db/pools.ts'
import { inRounds } from '../db/rounds.ts'
import { AppError } from '../errors.ts'
import { type Feed, openFeed } from '../events/feed.ts'
import { bearerOf, callerOfToken, cookieNamesOf, tokenOfCookies } from '../features/accounts/auth/auth.ts'
import { withOwnNotifications } from '../features/messaging/notifications/notifications.ts'
import { onFirstUse } from '../language/once.ts'
import type { RealtimeReads, RealtimeWrites } from './capabilities.ts'
import { type openEngine, openOutbox, type SocketLimits } from './realtime/connections.ts'
import { type EventDelivery, notAllowed, openDelivery, type SubscriptionStart } from './realtime/delivery.ts'
import { type ExecutionRooms, openExecutionRooms } from './realtime/execution-rooms.ts'
import { answer, callerOf, dispatchMessage, handleMessages, type MessageHandler } from './realtime/messages.ts'
import { openPushes } from './realtime/pushes.ts'
import { type LiveReports, openLiveReports } from './realtime/reports.ts'
import { openCluster, openRooms, type RoomChannel } from './realtime/rooms.ts'
import { openTaskProgress, type TaskProgressRooms } from './realtime/task-progress.ts'
import { inOneMessage, readSubscribeRequest } from './realtime/views.ts'

const socketIo = onFirstUse<typeof import('socket.io')>('socket.io')

/** The realtime channel: socket.io on SOCKET_PATH, fed from the log (docs/realtime.md). */
export type Realtime = {
  readonly feed: Feed
  /** The sockets that this process serves just now. */
  counts(): { readonly connections: number; readonly subscriptions: number; readonly reports: number }
  close(): Promise<void>
}

/** A connection that does not say who it is within this time is closed. Milliseconds. */
const handshakeMs = 5000
/** A client that does not take its last messages is cut off after this. */
const farewellMs = 1000

type Channels = {
  readonly delivery: EventDelivery
  readonly reports: LiveReports
  readonly progress: TaskProgressRooms
  readonly executions: ExecutionRooms | undefined
  readonly rooms: RoomChannel
}

/** Starts feed and socket server; sockets are accepted from here on. */
export async function openRealtime(
  deps: RealtimeWrites,
  { engine, limits, forgetRequest }: ReturnType<typeof openEngine>,
): Promise<Realtime> {
  const { config, log } = deps
  const address = directUrl(config)
  const feed = openFeed({
    db: deps.feedDb,
    directUrl: withoutSslMode(address),
    tls: tlsOptions(config, address),
    log,
    walEnabled: config.realtime.walConsumerEnabled,
  })
  const cluster = openCluster(deps)
  const io: Server = new (socketIo().Server)({ serveClient: false, connectTimeout: handshakeMs, ...cluster.options })
  const outbox = openOutbox(config, io)
  const cutOffConnection = (conn: Socket['conn']) => cutOff(io, conn)
  engine.on('connection', (conn: Socket['conn']) => {
    outbox.watch(conn)
    limits.watch(conn, cutOffConnection)
  })
  io.bind(engine)
  const sockets = () => [...io.sockets.sockets.values()]
  const checks = new WeakMap<Socket, () => Promise<void>>()
  /** Of two beside each other, the one that began with the rights of before could end last. */
  const check = (socket: Socket): Promise<void> => {
    const newCheck = () => recheck(deps, channels, socket).then(() => checkAtEnd(socket, check))
    const inTurn = checks.get(socket) ?? inRounds<never, void>(newCheck)
    checks.set(socket, inTurn)
    return inTurn()
  }
  const confirmAll = async () => {
    if (!deps.listener.isLive()) await Promise.all(sockets().map(check))
  }
  const channels: Channels = {
    delivery: openDelivery(deps, feed, outbox, confirmAll),
    reports: openLiveReports(deps, feed, (socket) => currentCaller(deps, socket)),
    progress: openTaskProgress(deps, io, (socket) => callerOf(socket).access),
    executions: config.workflows.enabled ? openExecutionRooms(deps, io) : undefined,
    rooms: openRooms(deps, io, cluster),
  }
  openPushes(deps, io)
  admit(deps, { io, limits, channels, check, forgetRequest })
  warnAboutRowRules(deps)
  const { delivery, reports, rooms } = channels
  return {
    feed,
    counts: () => ({ connections: io.sockets.sockets.size, subscriptions: delivery.total(), reports: reports.total() }),
    close: async () => {
      delivery.close()
      reports.close()
      await feed.close()
      await io.close()
      await rooms.close()
      cluster.close()
    },
  }
}

type SocketAdmission = {
  readonly io: Server
  readonly limits: SocketLimits
  readonly channels: Channels
  check(socket: Socket): Promise<void>
  forgetRequest(conn: Socket['conn']): void
}

/** Lets sockets in, and looks at them again when their sessions may have ended. */
function admit(deps: RealtimeWrites, { io, limits, channels, check, forgetRequest }: SocketAdmission): void {
  const handlers = handlersOf(deps, channels)
  const onError = (error: unknown) => deps.log.debug({ err: error }, 'socket error')
  // With `this`, all sockets share it.
  function onDisconnect(this: Socket): void {
    clearTimeout((this.data as SocketData).timer)
    channels.rooms.forget(this)
    channels.delivery.forget(this)
    channels.reports.forget(this)
    // A client that only leaves the channel would keep the connection.
    closeSoon(this.conn)
  }
  io.use((socket, next) => {
    authenticate(deps, limits, socket).then(
      () => next(),
      (error: unknown) => next(error instanceof Error ? error : new Error(String(error))),
    )
  })
  io.on('connection', (socket) => {
    forgetRequest(socket.conn)
    socket.on('error', onError)
    socket.on('disconnect', onDisconnect)
    handleMessages(socket, handlers)
    void channels.rooms.welcome(socket)
    const { userId, tenantId } = callerOf(socket)
    socket.emit('connected', { userId, tenant: tenantId ?? null })
    // Its session may have ended while it connected, before anybody could notify it.
    void check(socket)
  })
  // Called after every change of roles and permissions too.
  deps.sessions.onEnded((concerns) => {
    for (const socket of io.sockets.sockets.values()) {
      const caller = callerOf(socket)
      const isAbout = ({ sessionId, keyId, userId, role, tenantId }: Caller) =>
        concerns({ id: sessionId ?? keyId, userId, roleId: role.id, tenantId })
      if (isAbout(caller) || isAbout(ownerOf(caller))) void check(socket)
    }
  })
}

type SocketData = { caller: Caller; token: string; endsInMs: number; timer?: NodeJS.Timeout }

async function currentCaller(deps: RealtimeWrites, socket: Socket): Promise<Caller | undefined> {
  const found = await callerOfToken(deps, (socket.data as SocketData).token)
  return typeof found === 'string' ? undefined : found.caller
}

/** Looks again when the session would expire: an expiry sends no notification. */
function checkAtEnd(socket: Socket, check: (socket: Socket) => Promise<void>): void {
  const data = socket.data as SocketData
  clearTimeout(data.timer)
  if (socket.connected) data.timer = setTimeout(check, Math.min(data.endsInMs + 50, longestTimerMs), socket)
}

const longestTimerMs = 2 ** 31 - 1

/**
 * A live session is needed; the token comes in the handshake, in the Authorization header or as the session cookie, never
 * in the query. The first of them that is there decides, even a bad one.
 */
async function authenticate(deps: RealtimeWrites, limits: SocketLimits, socket: Socket): Promise<void> {
  const token = tokenOf(deps, socket.handshake)
  if (token === undefined) throw new Error('No authentication token provided')
  const found = await callerOfToken(deps, token)
  if (typeof found === 'string') throw Object.assign(new Error('Invalid or expired token'), { data: { code: found } })
  limits.admit(socket, ownerOf(found.caller).userId)
  socket.data = { ...found, token } satisfies SocketData
}

function tokenOf(deps: CurrentAccess, { auth, headers }: Socket['handshake']): string | undefined {
  const { token } = auth as { token?: unknown }
  // An empty one is how some clients say that they have none.
  if (typeof token === 'string' && token !== '') return token
  const { authorization = '', cookie } = headers
  if (authorization !== '') return bearerOf(authorization) ?? ''
  return tokenOfCookies(cookieNamesOf(deps), cookie)
}

/** The handler of each message, by its name. */
function handlersOf(
  deps: RealtimeReads,
  { delivery, reports, progress, rooms, executions }: Channels,
): ReadonlyMap<string, MessageHandler> {
  const answered: [string, (socket: Socket, request: unknown) => Promise<object>][] = [
    ['unsubscribe', delivery.unsubscribe],
    ['report:subscribe', reports.subscribe],
    ['report:unsubscribe', reports.unsubscribe],
    ['task:join', progress.join],
    ['task:leave', progress.leave],
    ...rooms.requests,
  ]
  const handlers = new Map<string, MessageHandler>(
    answered.map(([name, handle]) => [
      name,
      (socket, request, acknowledge) => answer(deps, acknowledge, () => handle(socket, request)),
    ]),
  )
  handlers.set('subscribe', async (socket, request, acknowledge) => {
    let begun: SubscriptionStart | undefined
    await answer(deps, acknowledge, async () => {
      begun = await subscribe(deps, delivery, socket, request)
      return begun.answer
    })
    begun?.begin()
  })
  handlers.set('custom', (socket, request, acknowledge) => dispatchMessage(deps, socket, request, acknowledge))
  if (executions !== undefined)
    handlers.set('workflow:execution:join', (socket, request) => joinExecution(deps, executions, socket, request))
  return handlers
}

/** The client waits for no answer: a refusal is an event. */
async function joinExecution(deps: Logs, executions: ExecutionRooms, socket: Socket, request: unknown): Promise<void> {
  const { executionId = null } = (request ?? {}) as { executionId?: unknown }
  const refuse = (answered: object) => {
    const { status, message } = answered as { status: string; message?: string }
    if (status === 'error') socket.emit('workflow:execution:error', { executionId, message })
  }
  await answer(deps, refuse, async () => {
    await executions.join(socket, request)
    return {}
  })
}

/**
 * `subscribe {collection, since?, snapshot?, filter?, fields?}` (docs/realtime.md). The answer's `cursor` is where a client
 * resumes that has received nothing after it.
 */
async function subscribe(
  { config }: Configuration,
  delivery: EventDelivery,
  socket: Socket,
  request: unknown,
): Promise<SubscriptionStart> {
  const wanted = inOneMessage(() => readSubscribeRequest(request))
  if (delivery.othersOf(socket, wanted.collection) >= config.realtime.subscriptionsPerSocket)
    throw new AppError(400, 'Too many subscriptions on one connection')
  const access = withOwnNotifications(callerOf(socket).access)
  if (!delivery.mayRead(access, wanted.collection)) throw new AppError(403, notAllowed)
  return delivery.subscribe(socket, access, wanted)
}

/** Says why, where the client can still be told, and hangs up. */
function cutOff(io: Server, conn: Socket['conn']): void {
  for (const socket of io.sockets.sockets.values())
    if (socket.conn === conn) {
      socket.emit('limited', { message: 'Too many messages' })
      socket.disconnect(true)
    }
  closeSoon(conn)
}

function closeSoon(conn: Socket['conn']): void {
  conn.close()
  setTimeout(() => conn.close(true), farewellMs).unref()
}

/** The session may still be good (a changed role, a message that said "all"): look it up again, otherwise disconnect. */
async function recheck(deps: RealtimeWrites, { delivery, reports, rooms }: Channels, socket: Socket): Promise<void> {
  const data = socket.data as SocketData
  try {
    const found = await callerOfToken(deps, data.token)
    if (typeof found === 'string') return void socket.disconnect(true)
    const before = data.caller
    Object.assign(data, found)
    rooms.renew(socket, before)
    delivery.renew(socket, withOwnNotifications(found.caller.access))
    reports.renew(socket)
  } catch (error) {
    deps.log.warn({ err: error, userId: data.caller.userId }, 'a session could not be checked: its socket is closed')
    socket.disconnect(true)
  }
}

/** Without row scoping every caller who may read a collection sees changes of all its rows; say so where rules exist. */
function warnAboutRowRules({ access, config, log }: Configuration & CurrentAccess & Logs): void {
  const conditioned = collectionsWithRowRules(access.current())
  if (conditioned.length > 0 && !config.realtime.rowLevelScoping)
    log.warn(
      { collections: conditioned },
      'REALTIME_ROW_LEVEL_SCOPING is false: subscribers also see changes of rows that their read rule hides',
    )
}
