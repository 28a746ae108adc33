import type { EventEmitter } from 'node:events'
import type { Server as HttpServer, IncomingMessage, RequestListener } from 'node:http'
import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type { Server as Engine } from 'engine.io'
import type { Server, Socket } from 'socket.io'
import { clientNetwork, forwardedAddress } from '../../adapters/network-addresses.ts'
import type { Config } from '../../config/config.ts'
import { AppError } from '../../errors.ts'
import { isTrustedOrigin } from '../../features/accounts/auth/auth.ts'
import { createServer } from '../../language/node-http.ts'
import { onFirstUse } from '../../language/once.ts'
import { openWindows } from '../counters.ts'

const engineIo = onFirstUse<typeof import('engine.io')>('engine.io')

/*
 * Connections below the messages: who may connect, how much clients may send, and how much may wait for them.
 */

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
      socket.on('error', destroyThis)
      if (isSocket(request)) engine.handleUpgrade(request as never, socket, head)
      // Before Node 24.9 a server cannot decide whether to upgrade.
      else socket.end('HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n')
    })
    return server
  }
}

function destroyThis(this: Duplex): void {
  this.destroy()
}

/** The engine under the sockets; for pages of its own origin and of those that may connect. */
export function openEngine(config: Config): OpenEngine {
  const { messageBytes, messagesPerSecond } = config.realtime
  const limits = openSocketLimits(config)
  const engine = new (engineIo().Server)({
    pingInterval: 25_000,
    pingTimeout: 20_000,
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
  const upgrades = new WeakMap<IncomingMessage, { req: unknown }>()
  engine.use((request: IncomingMessage, response: { req: unknown }, next: () => void) => {
    if (request.headers.upgrade !== undefined) upgrades.set(request, response)
    next()
  })
  const forgetRequest = (conn: EngineConnection) => {
    const upgrade = upgrades.get(conn.request)
    if (upgrade !== undefined) upgrade.req = undefined
    Object.assign(conn, { request: undefined })
  }
  return { engine, limits, forgetRequest }
}

type OpenEngine = {
  readonly engine: Engine
  readonly limits: SocketLimits
  /**
   * Lets go of the request that began a connection when its sender is known: two kilobytes, which the engine and its answer to an
   * upgrade would keep as long as the connection lasts.
   */
  forgetRequest(conn: EngineConnection): void
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

/** Polling by script tags, which the pages of any origin could read with the cookies of their visitors. */
const isJsonp = (request: IncomingMessage): boolean => queryOf(request).has('j')

const queryOf = (request: IncomingMessage) => new URLSearchParams(targetOf(request)[1])

/** Path and query, by the text: it need not be an address, and an exception of a parser would go uncaught here. */
const targetOf = ({ url = '/' }: IncomingMessage) => url.split('?', 2)

/** The limits of clients in a process (docs/realtime.md). */
export type SocketLimits = {
  /** Why this request may not begin a connection; undefined when it may. Every question counts as a beginning. */
  refusal(request: IncomingMessage): 'Too many connections' | undefined
  /** Counts a connection, and its messages: `onExcess` is called once, when there are too many in a second. */
  watch(conn: EngineConnection, onExcess: (conn: EngineConnection) => void): void
  /**
   * Counts a socket for its user until its connection closes. Throws AppError 429 for one too many, 400 where the connection
   * has closed meanwhile.
   */
  admit(socket: Socket, userId: string | undefined): void
}

type EngineConnection = Socket['conn']

const windowMs = 10_000
const addressesAtMost = 10_000

function openSocketLimits(config: Config): SocketLimits {
  const { realtime } = config
  const addresses = openCounts()
  const users = openCounts()
  const beginnings = openWindows(addressesAtMost)
  /** Of the connections that are open: what is counted for one of them is taken off when it closes. */
  const counted = new WeakMap<EngineConnection, Counted>()
  function onPacket(this: EngineConnection): void {
    const { messages, onExcess } = counted.get(this)!
    if (isWithin(messages, realtime.messagesPerSecond)) return
    this.off('packet', onPacket)
    onExcess(this)
  }
  function onClose(this: EngineConnection): void {
    const own = counted.get(this)!
    counted.delete(this)
    addresses.remove(own.address)
    for (const user of own.users) users.remove(user)
  }
  const addressOf = ({ socket, headers }: IncomingMessage) =>
    clientNetwork(forwardedAddress(socket.remoteAddress ?? '', headers['x-forwarded-for'], config.server.trustProxy))
  const begins = (address: string): number => {
    const fresh = { count: 0, endsAt: performance.now() + windowMs }
    const window = beginnings.live(address) ?? beginnings.begin(address, fresh)
    window.count += 1
    return window.count
  }
  return {
    refusal: (request) => {
      const address = addressOf(request)
      const isOver = exceeds(begins(address), realtime.connectsPerAddress)
      return isOver || exceeds(addresses.of(address) + 1, realtime.socketsPerAddress)
        ? 'Too many connections'
        : undefined
    },
    watch: (conn, onExcess) => {
      const address = addressOf(conn.request)
      addresses.add(address)
      counted.set(conn, { address, users: [], messages: { count: 0, endsAt: 0 }, onExcess })
      conn.on('close', onClose)
      conn.on('packet', onPacket)
    },
    admit: ({ conn }, userId) => {
      const own = counted.get(conn)
      if (own === undefined) throw connectionClosed()
      const user = String(userId)
      if (users.of(user) >= realtime.socketsPerUser) throw new AppError(429, 'Too many connections')
      users.add(user)
      // A list that is pushed to gets room for sixteen more.
      own.users = [...own.users, user]
    },
  }
}

/** Nobody reads it: it ends what was begun for the client. */
export const connectionClosed = () => new AppError(400, 'The connection is closed')

/** The counts of a connection until it closes. Listeners find them by `this`: closures would cost each connection more. */
type Counted = {
  readonly address: string
  users: readonly string[]
  readonly messages: Rate
  readonly onExcess: (conn: EngineConnection) => void
}

const exceeds = (count: number, limit: number): boolean => limit > 0 && count > limit

type Rate = { count: number; endsAt: number }

/** Counts a call: false for one beyond `limit` in a second. */
function isWithin(rate: Rate, limit: number): boolean {
  const now = performance.now()
  if (now >= rate.endsAt) {
    rate.count = 0
    rate.endsAt = now + 1000
  }
  rate.count += 1
  return rate.count <= limit
}

function openCounts() {
  const counts = new Map<string, number>()
  const of = (key: string) => counts.get(key) ?? 0
  return {
    of,
    add: (key: string) => counts.set(key, of(key) + 1),
    remove: (key: string) => (of(key) > 1 ? counts.set(key, of(key) - 1) : counts.delete(key)),
  }
}

type WebSocket = EventEmitter & {
  /** Bytes that the client has not taken yet. */
  readonly bufferedAmount: number
  pong(data: Buffer): void
  terminate(): void
}

type WebSocketServer = {
  handleUpgrade(...args: [...request: unknown[], done: (socket: WebSocket, ...rest: unknown[]) => void]): void
}

/**
 * A WebSocket server for the engine that bounds the pings of the protocol itself, which no limit of messages sees. By itself
 * it answers every one at once: who pings and never reads filled the memory with answers. Here a ping stays unanswered while
 * answers wait, and more of them in a second than a client may send messages end the connection.
 */
function boundedWebSocketServer(pingsPerSecond: number): new (options: object) => WebSocketServer {
  // The one that the engine uses by itself.
  const Plain: new (options: object) => WebSocketServer = new (engineIo().Server)().opts.wsEngine
  const rates = new WeakMap<WebSocket, Rate>()
  function onPing(this: WebSocket, data: Buffer): void {
    const rate = rates.get(this) ?? { count: 0, endsAt: 0 }
    rates.set(this, rate)
    if (!isWithin(rate, pingsPerSecond)) this.terminate()
    else if (this.bufferedAmount === 0) this.pong(data)
  }
  return class extends Plain {
    constructor(options: object) {
      super({ ...options, autoPong: false })
    }

    override handleUpgrade(...args: Parameters<WebSocketServer['handleUpgrade']>): void {
      const done = args.pop() as (socket: WebSocket, ...rest: unknown[]) => void
      const request = args as unknown[]
      super.handleUpgrade(...request, (socket, ...rest) => {
        socket.on('ping', onPing)
        done(socket, ...rest)
      })
    }
  }
}

/**
 * Data that waits to be sent on each connection. A client that does not read must cost no more than its share of
 * memory, so senders ask before they add to it.
 */
export type Outbox = {
  /** Counts what waits on this connection from now on, and closes it when that is far too much. */
  watch(conn: EngineConnection): void
  /** More waits than a connection may hold: nothing is to be added. */
  isFull(socket: Socket): boolean
  /** Sends one message, encoded once, to these sockets of this process. */
  send(sockets: readonly Socket[], name: string, body: object): void
  /** Resolves when most has been sent; false when the client has not read anything for ten seconds, or is gone. */
  drained(socket: Socket): Promise<boolean>
}

type Backlog = { bytes: number; messages: number; inFlight: number }

const stalledMs = 10_000
const lookMs = 5
/**
 * Messages sent without asking, such as answers and the messages of rooms, may make the waiting data so many times
 * larger.
 */
const cutOffAt = 4
/** A sender of many pages adds the next one when this share of what may wait is left. */
const drainedShare = 0.25

export function openOutbox({ realtime }: Config, io: Server): Outbox {
  const waiting = new WeakMap<EngineConnection, Backlog>()
  const { sendBufferBytes, sendBufferMessages } = realtime
  /** The part that the transport took last counts until it takes more. */
  const bytesOn = (conn: EngineConnection): number => {
    const { bytes, inFlight } = waiting.get(conn)!
    return bytes + (conn.transport.writable ? 0 : inFlight)
  }
  const isOver = ({ conn }: Socket, share: number) =>
    bytesOn(conn) > sendBufferBytes * share || waiting.get(conn)!.messages > sendBufferMessages * share
  function onPacketCreate(this: EngineConnection, { data }: { data?: unknown }): void {
    const backlog = waiting.get(this)!
    backlog.bytes += sizeOf(data)
    backlog.messages += 1
    if (bytesOn(this) <= sendBufferBytes * cutOffAt) return
    this.off('packetCreate', onPacketCreate)
    this.close(true)
  }
  function onFlush(this: EngineConnection): void {
    const backlog = waiting.get(this)!
    backlog.inFlight = backlog.bytes
    backlog.bytes = 0
    backlog.messages = 0
  }
  return {
    watch: (conn) => {
      waiting.set(conn, { bytes: 0, messages: 0, inFlight: 0 })
      conn.on('packetCreate', onPacketCreate)
      conn.on('flush', onFlush)
    },
    isFull: (socket) => isOver(socket, 1),
    send: (sockets, name, body) => {
      if (sockets.length === 1) sockets[0]!.emit(name, body)
      else if (sockets.length > 1) io.local.to(sockets.map(({ id }) => id)).emit(name, body)
    },
    drained: async (socket) => {
      let least = bytesOn(socket.conn)
      let movedAt = performance.now()
      while (socket.connected && isOver(socket, drainedShare)) {
        await delay(lookMs)
        const now = bytesOn(socket.conn)
        if (now < least) movedAt = performance.now()
        least = now
        if (performance.now() - movedAt > stalledMs) return false
      }
      return socket.connected
    },
  }
}

/** Texts by their length: what is counted is memory, roughly. */
function sizeOf(data: unknown): number {
  if (typeof data === 'string') return data.length
  return Buffer.isBuffer(data) ? data.byteLength : 0
}
