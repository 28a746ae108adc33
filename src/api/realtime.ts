import { createServer, type Server as HttpServer, type IncomingMessage, type RequestListener } from 'node:http'
import type { Duplex } from 'node:stream'
import { Server as Engine } from 'engine.io'
import { Server, type Socket } from 'socket.io'
import type { Config } from '../config.ts'
import { directUrl, tlsOptions, withoutSslMode } from '../db/pools.ts'
import { AppError } from '../errors.ts'
import { type Feed, openFeed } from '../events/feed.ts'
import { bearerOf, callerOfToken } from '../features/auth/authenticate.ts'
import { cookieNamesOf, tokenOfCookies } from '../features/auth/cookie.ts'
import { isTrustedOrigin } from '../features/auth/origins.ts'
import { withOwnNotifications } from '../features/notifications/own.ts'
import { type Caller, collectionsWithRowRules } from '../features/permissions/permissions.ts'
import { unkeepable } from '../json-values.ts'
import type { Runtime } from '../runtime.ts'
import { openCluster } from './realtime/cluster.ts'
import { type Begun, type Delivery, notAllowed, openDelivery } from './realtime/delivery.ts'
import { errorAnswer } from './realtime/error-answer.ts'
import { openSocketLimits, type SocketLimits } from './realtime/limits.ts'
import { dispatchMessage } from './realtime/messages.ts'
import { openOutbox } from './realtime/outbox.ts'
import { openPushes } from './realtime/push.ts'
import { type LiveReports, openLiveReports } from './realtime/reports.ts'
import { openRooms, type RoomChannel } from './realtime/rooms.ts'
import { openTaskProgress, type TaskProgress } from './realtime/tasks.ts'
import { callerOf } from './realtime/users.ts'
import { boundedWebSocketServer } from './realtime/websocket-server.ts'
import { collectionOf, inOneMessage, readWish } from './realtime/wish.ts'

/** The realtime channel: socket.io on SOCKET_PATH, fed from the log (realtime facts §1). */
export type Realtime = {
  readonly feed: Feed
  /** What this process serves just now. */
  counts(): { readonly connections: number; readonly subscriptions: number; readonly reports: number }
  close(): Promise<void>
}

/** A connection of which nothing is known has so long to say who it is; afterwards it is closed. Milliseconds. */
const patienceMs = 5000
/** A client that does not take its last messages is cut off after this. */
const farewellMs = 1000

/**
 * Sockets share the HTTP server. The path is also the prefix of REST endpoints, so only requests of the socket
 * protocol (path exactly SOCKET_PATH, with its `EIO` parameter) go to the engine, all others to the application.
 */
export function realtimeServerFactory(config: Config, engine: Engine) {
  const isSocket = (request: IncomingMessage) => {
    const [path = ''] = targetOf(request)
    return path.replace(/\/$/, '') === config.realtime.path.replace(/\/$/, '') && queryOf(request).has('EIO')
  }
  return (application: RequestListener): HttpServer => {
    // An offer that is not taken up, such as HTTP/2 of clients that always make it, is a request like any other.
    const server = createServer({ shouldUpgradeCallback: isSocket }, (request, response) =>
      isSocket(request) ? engine.handleRequest(request as never, response) : application(request, response),
    )
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on('error', () => socket.destroy())
      if (isSocket(request)) engine.handleUpgrade(request as never, socket, head)
      // Before Node 24.9 nobody is asked whether to upgrade.
      else socket.end('HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n')
    })
    return server
  }
}

/** The engine under the sockets; for pages of its own origin and of those that may connect. */
export function openEngine(config: Config): { engine: Engine; limits: SocketLimits } {
  const { messageBytes, messagesPerSecond } = config.realtime
  const limits = openSocketLimits(config)
  const engine = new Engine({
    pingInterval: 25_000,
    pingTimeout: 60_000,
    maxHttpBufferSize: messageBytes,
    wsEngine: boundedWebSocketServer(messagesPerSecond),
    cors: {
      origin: (origin, decide) => decide(null, origin !== undefined && mayConnect(config, origin)),
      credentials: true,
    },
    allowRequest: (request, decide) => {
      const isAllowed = isAllowedOrigin(config, request) && !isJsonp(request)
      const refusal = isAllowed ? limits.refusal(request) : 'Origin not allowed'
      decide(refusal, refusal === undefined)
    },
  })
  return { engine, limits }
}

/** Clients that are no browser send neither header; a browser sends no Origin for a page's own or a foreign page's tags. */
function isAllowedOrigin(config: Config, { headers }: IncomingMessage): boolean {
  const { origin, host, 'sec-fetch-site': site = 'none' } = headers
  if (origin === undefined) return site === 'none' || site === 'same-origin'
  return mayConnect(config, origin) || (URL.canParse(origin) && new URL(origin).host === host)
}

/** The origins that may call the API may connect; SOCKET_CORS_ENABLED_ORIGINS names some that may only do this. */
function mayConnect(config: Config, origin: string): boolean {
  return isTrustedOrigin(config, origin) || config.realtime.corsOrigins.includes(origin)
}

/** Polling by script tags, which the pages of any origin could read with the cookies of their visitors (quality R-08). */
const isJsonp = (request: IncomingMessage): boolean => queryOf(request).has('j')

const queryOf = (request: IncomingMessage) => new URLSearchParams(targetOf(request)[1])

/** Path and query, by the text: it need not be an address, and nobody would catch what parsing one throws here. */
const targetOf = ({ url = '/' }: IncomingMessage) => url.split('?', 2)

/** Starts feed and socket server; sockets are accepted from here on. */
export async function openRealtime(
  rt: Runtime,
  { engine, limits }: { engine: Engine; limits: SocketLimits },
): Promise<Realtime> {
  const { config, log } = rt
  const feed = openFeed({
    db: rt.feedDb,
    directUrl: withoutSslMode(directUrl(config)),
    tls: tlsOptions(config, directUrl(config)),
    log,
    walEnabled: config.realtime.walConsumerEnabled,
  })
  const cluster = openCluster(rt)
  const io = new Server({ serveClient: false, connectTimeout: patienceMs, ...cluster.options })
  const outbox = openOutbox(config, io)
  engine.on('connection', (conn: Socket['conn']) => {
    outbox.watch(conn)
    limits.watch(conn, () => cutOff(io, conn))
  })
  io.bind(engine)
  const check = (socket: Socket): Promise<void> =>
    recheck(rt, { delivery, reports, rooms }, socket).then(() => checkAtEnd(socket, check))
  const delivery = openDelivery(rt, feed, outbox, async () => {
    if (!rt.listener.isLive()) await Promise.all([...io.sockets.sockets.values()].map(check))
  })
  const reports = openLiveReports(rt, feed, async (socket) => {
    const found = await callerOfToken(rt, (socket.data as SocketData).token)
    return typeof found === 'string' ? undefined : found.caller
  })
  const progress = openTaskProgress(rt, io, (socket) => callerOf(socket).access)
  const rooms = openRooms(rt, io, cluster)
  openPushes(rt, io)
  io.use((socket, next) => {
    authenticate(rt, limits, socket).then(
      () => next(),
      (error: unknown) => next(error instanceof Error ? error : new Error(String(error))),
    )
  })
  io.on('connection', (socket) => {
    accept(rt, { delivery, reports, progress, rooms }, socket)
    // Its session may have ended while it connected, before it could be told.
    void check(socket)
  })
  // Told after every change of roles and permissions too.
  rt.sessions.onEnded((concerns) => {
    for (const socket of io.sockets.sockets.values()) {
      const { sessionId, keyId, userId, role, tenantId } = callerOf(socket)
      if (concerns({ id: sessionId ?? keyId, userId, roleId: role.id, tenantId })) void check(socket)
    }
  })
  warnAboutRowRules(rt)
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

type SocketData = { caller: Caller; token: string; endsInMs: number; timer?: NodeJS.Timeout }

/** Looks again when the session would expire: nobody is notified of that. */
function checkAtEnd(socket: Socket, check: (socket: Socket) => Promise<void>): void {
  const data = socket.data as SocketData
  clearTimeout(data.timer)
  if (socket.connected) data.timer = setTimeout(() => void check(socket), Math.min(data.endsInMs + 50, longestTimerMs))
}

const longestTimerMs = 2 ** 31 - 1

/**
 * A live session is needed; the token comes in the handshake, in the Authorization header or as the session cookie, never
 * in the query. The first of them that is there decides, even a bad one.
 */
async function authenticate(rt: Runtime, limits: SocketLimits, socket: Socket): Promise<void> {
  const token = tokenOf(rt, socket.handshake)
  if (token === undefined) throw new Error('No authentication token provided')
  const found = await callerOfToken(rt, token)
  if (typeof found === 'string') throw Object.assign(new Error('Invalid or expired token'), { data: { code: found } })
  limits.admit(socket, found.caller.userId)
  socket.data = { ...found, token } satisfies SocketData
}

function tokenOf(rt: Runtime, { auth, headers }: Socket['handshake']): string | undefined {
  const { token } = auth as { token?: unknown }
  if (typeof token === 'string') return token
  const { authorization = '', cookie } = headers
  if (authorization !== '') return bearerOf(authorization) ?? ''
  return tokenOfCookies(cookieNamesOf(rt), cookie)
}

type Channels = {
  readonly delivery: Delivery
  readonly reports: LiveReports
  readonly progress: TaskProgress
  readonly rooms: RoomChannel
}

function accept(rt: Runtime, { delivery, reports, progress, rooms }: Channels, socket: Socket): void {
  const { userId, tenantId } = callerOf(socket)
  socket.on('error', (error) => rt.log.debug({ err: error }, 'socket error'))
  refuseUnknown(socket)
  socket.on('subscribe', async (request: unknown, ack: unknown) => {
    let begun: Begun | undefined
    await answer(rt, ack, async () => {
      begun = await subscribe(rt, delivery, socket, request)
      return begun.answer
    })
    begun?.begin()
  })
  socket.on('unsubscribe', (request: unknown, ack: unknown) =>
    answer(rt, ack, async () => {
      delivery.unsubscribe(socket, collectionOf(request))
      return {}
    }),
  )
  socket.on('report:subscribe', (request: unknown, ack: unknown) =>
    answer(rt, ack, () => reports.subscribe(socket, request)),
  )
  socket.on('report:unsubscribe', (request: unknown, ack: unknown) =>
    answer(rt, ack, async () => {
      reports.unsubscribe(socket, request)
      return {}
    }),
  )
  socket.on('task:join', (request: unknown, ack: unknown) => answer(rt, ack, () => progress.join(socket, request)))
  socket.on('task:leave', (request: unknown, ack: unknown) => answer(rt, ack, () => progress.leave(socket, request)))
  for (const [name, handle] of rooms.requests)
    socket.on(name, (request: unknown, ack: unknown) => answer(rt, ack, () => handle(socket, request)))
  socket.on('custom', (request: unknown, ack: unknown) => dispatchMessage(rt, socket, request, ack))
  socket.on('disconnect', () => {
    clearTimeout((socket.data as SocketData).timer)
    rooms.forget(socket)
    delivery.forget(socket)
    reports.forget(socket)
    // Whoever only takes leave of the channel would keep the connection.
    closeSoon(socket.conn)
  })
  void rooms.welcome(socket)
  socket.emit('connected', { userId, tenant: tenantId ?? null })
}

/** `{status:"success", …}` or `{status:"error", code, message}`; a fault of ours tells nothing but that it was one. */
async function answer(rt: Runtime, ack: unknown, work: () => Promise<object>): Promise<void> {
  const reply = typeof ack === 'function' ? ack : () => {}
  try {
    reply({ status: 'success', ...(await work()) })
  } catch (error) {
    if (!(error instanceof AppError)) rt.log.error({ err: error }, 'a socket request failed')
    reply(errorAnswer(error))
  }
}

/**
 * `subscribe {collection, since?, snapshot?, filter?, fields?}` (docs/realtime.md). The answer's `cursor` is where a client
 * resumes that has received nothing after it.
 */
async function subscribe(rt: Runtime, delivery: Delivery, socket: Socket, request: unknown): Promise<Begun> {
  const wish = inOneMessage(() => readWish(request))
  if (delivery.othersOf(socket, wish.collection) >= rt.config.realtime.subscriptionsPerSocket)
    throw new AppError(400, 'Too many subscriptions on one connection')
  const access = withOwnNotifications(callerOf(socket).access)
  if (!delivery.mayRead(access, wish.collection)) throw new AppError(403, notAllowed)
  return delivery.subscribe(socket, access, wish)
}

/**
 * Nobody listens to other names, least of all to those that only the server says, and nothing is done with values that
 * cannot be kept; whoever waits for an answer gets one.
 */
function refuseUnknown(socket: Socket): void {
  socket.use(([name, ...rest], next) => {
    if (typeof name !== 'string') return void socket.disconnect(true)
    const refusal = socket.listenerCount(name) > 0 ? unkeepable(rest, 'The message') : unknownEvent()
    if (refusal === undefined) return next()
    const ack: unknown = rest.at(-1)
    if (typeof ack === 'function') ack(errorAnswer(refusal))
  })
}

const unknownEvent = () => new AppError(400, 'Unknown event', { code: 'UNKNOWN_EVENT' })

/** Says why, where there is somebody to say it to, and hangs up. */
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
async function recheck(
  rt: Runtime,
  { delivery, reports, rooms }: Omit<Channels, 'progress'>,
  socket: Socket,
): Promise<void> {
  const data = socket.data as SocketData
  try {
    const found = await callerOfToken(rt, data.token)
    if (typeof found === 'string') return void socket.disconnect(true)
    const before = data.caller
    Object.assign(data, found)
    rooms.renew(socket, before)
    delivery.renew(socket, withOwnNotifications(found.caller.access))
    reports.renew(socket)
  } catch (error) {
    rt.log.warn({ err: error, userId: data.caller.userId }, 'a session could not be checked: its socket is closed')
    socket.disconnect(true)
  }
}

/** Without row scoping everybody who may read a collection sees changes of all its rows; say so where rules exist. */
function warnAboutRowRules(rt: Runtime): void {
  const conditioned = collectionsWithRowRules(rt.access.current())
  if (conditioned.length > 0 && !rt.config.realtime.rowLevelScoping)
    rt.log.warn(
      { collections: conditioned },
      'REALTIME_ROW_LEVEL_SCOPING is false: subscribers also see changes of rows that their read rule hides',
    )
}
