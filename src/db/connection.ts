import type { Socket } from 'node:net'
import pg from 'pg'

/**
 * Connections to PostgreSQL that notice a line that swallows what is sent. No error comes from such a line: packets are
 * lost somewhere, or the other end of a tunnel stopped, and what waits for an answer would wait for ever.
 */
export type ConnectionConfig = pg.ClientConfig & {
  /**
   * For how long the server may say nothing while an answer is waited for: more than its own timeouts allow a statement.
   * Default: for ever, as for what has no timeout.
   */
  readonly silenceMs?: number
  /** Of a pool: when another connection to the server turns out to be dead, this one is closed unless it is in use. */
  readonly isSpare?: boolean
}

/**
 * As `pg.Client`; its line is cut when it proves to be dead, and what waits for it fails with a connection loss (see
 * errors.ts). Two things prove that: the silence allowed is over, or the server, asked over another line after a few
 * seconds, says that it is not working on anything for this connection. `end()` does not wait for a dead line.
 */
export class Connection extends pg.Client {
  constructor(config: ConnectionConfig) {
    const { connectionTimeoutMillis = connectWithinMs } = config
    super({
      keepAlive: true,
      keepAliveInitialDelayMillis: 5000,
      ...config,
      // Shorter than what may be waited for a place in a pool, which is the same setting there.
      connectionTimeoutMillis: Math.min(connectionTimeoutMillis || connectWithinMs, connectWithinMs),
    })
    // For each: connections of a pool are made by it, with its configuration.
    this.once('connect', () => watch(this, config))
    this.once('end', () => unwatch(this))
  }

  override end(): Promise<void>
  override end(callback: (error: Error) => void): void
  override end(callback?: (error: Error) => void): Promise<void> | void {
    const stream = streamOf(this)
    const farewellTimer = setTimeout(() => stream.destroy(), farewellMs)
    stream.once('close', () => clearTimeout(farewellTimer))
    // One that never connected has no line to close.
    if (stream.connecting || stream.destroyed || stream.pending) clearTimeout(farewellTimer)
    return callback === undefined ? super.end() : super.end(callback)
  }
}

/** How long a server may take to greet. */
const connectWithinMs = 5000
/** How long it may take to say goodbye. */
const farewellMs = 2000
const lookMs = 250
/** How long an answer takes before the server is asked whether it works on it, and how often it is asked. */
const suspectMs = 2000
/** How long the server may take to answer that. */
const timeoutMs = 2000

/** The state of a line; it changes when something was sent or received. */
type LineState = {
  readonly config: ConnectionConfig
  read: number
  written: number
  /** Since when nothing has been sent or received while an answer is waited for. */
  silentSince: number
  heardAt: number
}

const lines = new Map<Connection, LineState>()
let timer: NodeJS.Timeout | undefined
let lookedAt = 0
let askedAt = 0
let isAsking = false

function watch(connection: Connection, config: ConnectionConfig): void {
  const { bytesRead: read, bytesWritten: written } = streamOf(connection)
  const now = performance.now()
  lines.set(connection, { config, read, written, silentSince: now, heardAt: now })
  if (timer !== undefined) return
  lookedAt = now
  timer = setInterval(look, lookMs).unref()
}

function unwatch(connection: Connection): void {
  lines.delete(connection)
  if (lines.size > 0) return
  clearInterval(timer)
  timer = undefined
}

function look(): void {
  const now = performance.now()
  // The process was stopped or busy: what has arrived meanwhile has yet to be read.
  const wasAway = now - lookedAt > 4 * lookMs
  lookedAt = now
  const suspects: Connection[] = []
  for (const [connection, line] of lines) {
    if (moved(connection, line, now) || wasAway) {
      line.silentSince = now
      continue
    }
    const silentMs = now - line.silentSince
    if (silentMs > (line.config.silenceMs ?? Number.POSITIVE_INFINITY)) cut(connection, silentMs)
    else if (silentMs > suspectMs) suspects.push(connection)
  }
  if (suspects.length === 0 || isAsking || now - askedAt < suspectMs) return
  isAsking = true
  askedAt = now
  void cutDead(suspects).finally(() => {
    isAsking = false
  })
}

/** Whether something went over the line since the last look, or nothing is waited for. */
function moved(connection: Connection, line: LineState, now: number): boolean {
  const { bytesRead, bytesWritten } = streamOf(connection)
  const wasHeard = bytesRead !== line.read
  const wasUsed = wasHeard || bytesWritten !== line.written
  if (wasHeard) line.heardAt = now
  line.read = bytesRead
  line.written = bytesWritten
  return wasUsed || !isWaiting(connection)
}

/** Cuts those of which their servers say that they wait for the next statement, since more than a moment. */
async function cutDead(suspects: readonly Connection[]): Promise<void> {
  const since = new Map(suspects.map((connection) => [connection, lines.get(connection)!.silentSince]))
  const byServer = Map.groupBy(suspects, serverOf)
  const idle = await Promise.all([...byServer.values()].map(idleAmong))
  for (const connection of idle.flat()) {
    const line = lines.get(connection)
    const silentSince = since.get(connection)!
    if (line === undefined) continue
    if (moved(connection, line, performance.now())) line.silentSince = performance.now()
    if (line.silentSince !== silentSince) continue
    cut(connection, performance.now() - silentSince)
    // The same fault may have broken neighbouring lines; a repeated statement must not get one of those.
    for (const [other, { config, heardAt }] of lines)
      if (config.isSpare && heardAt < silentSince && isFree(other) && serverOf(other) === serverOf(connection))
        cut(other, performance.now() - heardAt)
  }
}

const idleSql = `
  select pid from pg_stat_activity
  where pid = any($1::int[]) and state like 'idle%' and state_change < clock_timestamp() - interval '1 second'`

/**
 * Behind a pooler the processes that we know by number are not the server's, so none is found. A connection that cannot
 * be asked about is not cut here: its silence has a limit.
 */
async function idleAmong(suspects: readonly Connection[]): Promise<readonly Connection[]> {
  const { config } = lines.get(suspects[0]!)!
  const { host, port, user, database, password, ssl, connectionString } = config
  const address = connectionString === undefined ? { host, port, user, database, password } : { connectionString }
  const client = new pg.Client({
    ...address,
    ssl,
    application_name: 'daybook watch',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  } as pg.ClientConfig)
  // An error now fails the question, which is all that it can do.
  client.on('error', () => undefined)
  try {
    await client.connect()
    const { rows } = await client.query<{ pid: number }>(idleSql, [suspects.map(processOf)])
    const pids = new Set(rows.map(({ pid }) => pid))
    return suspects.filter((connection) => pids.has(processOf(connection)))
  } catch {
    return []
  } finally {
    streamOf(client).destroy()
  }
}

function cut(connection: Connection, silentMs: number): void {
  const message = `connection terminated: the server has been silent for ${Math.round(silentMs)} ms`
  streamOf(connection).destroy(Object.assign(new Error(message), { code: 'ETIMEDOUT' }))
}

/** Members of a connection that pg does not declare. */
type Insides = {
  readonly connection: { readonly stream: Socket }
  readonly processID: number | null
  readonly host: string
  readonly port: number
  readonly readyForQuery?: boolean
  readonly _activeQuery?: { readonly state?: string } | null
  /** False once the connection is lost. */
  readonly _queryable: boolean
  readonly _txStatus?: string | null
}

const insides = (client: pg.Client) => client as unknown as Insides

/** The socket under a connection. */
export const streamOf = (client: pg.ClientBase): Socket => insides(client as pg.Client).connection.stream

/**
 * Whether statements are sent at once, or each after the answer to the one before. To be changed only while the connection
 * works on nothing: pg asks for it at every statement, and no cursor can be opened while it is on.
 */
export function setPipelining(client: pg.ClientBase, isOn: boolean): void {
  if (isOn && !isAtRest(client)) throw new Error('this connection is in use')
  ;(client as { pipeline?: boolean }).pipeline = isOn
}

/**
 * Waits until the server is done with the statement before: pg tells of an error when it comes, and the server may take a
 * moment longer. False where the connection is lost meanwhile.
 */
export async function becomesReady(client: pg.ClientBase): Promise<boolean> {
  if (!insides(client as pg.Client)._queryable) return false
  if (isAtRest(client)) return true
  const settled = Promise.withResolvers<boolean>()
  const ready = () => settled.resolve(true)
  const lost = () => settled.resolve(false)
  client.once('drain', ready).once('end', lost)
  try {
    return await settled.promise
  } finally {
    client.off('drain', ready).off('end', lost)
  }
}

/** Whether the server works on nothing for the connection, and has said so. */
function isAtRest(client: pg.ClientBase): boolean {
  const { readyForQuery, _activeQuery } = insides(client as pg.Client)
  return readyForQuery === true && !_activeQuery
}

/** The server's process at the other end. */
export const processOf = (client: pg.ClientBase): number => insides(client as pg.Client).processID ?? 0

function serverOf(connection: Connection): string {
  const { host, port } = insides(connection)
  return `${host}:${port}`
}

/** A cursor whose reader takes its time waits for nothing. */
function isWaiting(connection: Connection): boolean {
  const { readyForQuery, _activeQuery: query } = insides(connection)
  return readyForQuery !== true && query?.state !== 'idle'
}

function isFree(connection: Connection): boolean {
  const { readyForQuery, _txStatus: status } = insides(connection)
  return readyForQuery === true && (status ?? 'I') === 'I'
}

const noticeChannels = ['svc_sessions', 'svc_catalog', 'svc_access', 'svc_settings'] as const

/** A change of what processes keep in memory. `payload` says of which sessions. */
export type ChangeNotice = { readonly channel: (typeof noticeChannels)[number]; readonly payload: string }

/**
 * The change that a notice tells of: triggers tell the connection that makes it what they notify everybody of, since the code
 * that answers for the change must know (migrations/schema/notifications.ts). Undefined for every other notice.
 */
export function changeNotice(notice: string | undefined): ChangeNotice | undefined {
  const channel = noticeChannels.find((name) => notice?.startsWith(`${name} `))
  return channel && { channel, payload: notice!.slice(channel.length + 1) }
}
