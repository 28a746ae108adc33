import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { ConnectionOptions as TlsOptions } from 'node:tls'
import pg from 'pg'
import type { Logger } from 'pino'
import type { SpanOptions, Tracing } from '../adapters/running-span.ts'
import { clientGone } from '../admission/asker.ts'
import { type Config, ConfigError } from '../config/config.ts'
import { AppError, errors } from '../errors.ts'
import { oncePer } from '../language/once.ts'
import { cancellable } from './cancel.ts'
import {
  becomesReady,
  type ChangeNotice,
  Connection,
  type ConnectionConfig,
  changeNotice,
  processOf,
} from './connection.ts'
import { AnswerLost, isConnectionLoss, isNameError, isOutdated } from './errors.ts'
import { openPipeline, type Pipeline } from './pipeline.ts'
import { type Line, openLine, type SessionSettings, settingsOf } from './poolers/line.ts'
import type { Query, Reader } from './sql.ts'

export type PgClient = pg.Client

/** Under a name, planned once per connection; or by itself. */
export type StatementSending = 'prepared' | 'unnamed'

/** The pool that routes hold: read-only at the database, so a stray write fails in the first test that meets it. */
export type Database = Reader & {
  /**
   * Runs a compiled plan. `prepared` makes a prepared statement of the connection of it (at most 200 per connection, then
   * unnamed), where the way to the server keeps those: about 2.5 times as fast on a primary-key read. Aborting `signal`
   * cancels the statement (cancel.ts); without one it is the pool's own, see {@link DatabaseOptions}.
   */
  run<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[],
    sending?: StatementSending,
    signal?: AbortSignal,
  ): Promise<Row[]>
  /**
   * As `run`, for a statement that only reads: where it is quick, it shares a connection with others (pipeline.ts), else it
   * runs alone. `isQuick` is what `isQuick` has said of its text; by default a new text is presumed to be quick.
   */
  runQuick<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[], isQuick?: boolean): Promise<Row[]>
  /** Whether statements of this text have been quick lately; `presumed` for a text that is new. */
  isQuick(text: string, presumed: boolean): boolean
  /** As `run`, for a statement that writes: also which changes it makes of what processes keep. */
  runWithNotices<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[],
    sending?: StatementSending,
    signal?: AbortSignal,
  ): Promise<{ rows: Row[]; notices: readonly ChangeNotice[] }>
  /** As `run`, in the form that libraries expect. */
  query(text: string, values?: unknown[]): Promise<pg.QueryResult>
  /** SQL that begins a transaction on a connection of the pool itself, with the settings that every statement has. */
  beginSql(mode: string): string
  /** The pool itself, for transactions and cursors, which begin with `beginSql`. */
  readonly pool: pg.Pool
}

/** The read-only pool of the routes; what it runs ends when its asker is gone (asker.ts). */
export type Reads = { readonly db: Database }

/** Two connections of their own for session and health checks. */
export type ReservedReads = { readonly reserved: Database }

/** The pool that the realtime channel reads through; its own where that is enabled. */
export type FeedReads = { readonly feedDb: Database }

/** Most connections of a worker's pools, but for one more of the worker of workflows. */
const workerConnections = 6

type PoolShare = 'read' | 'hotWrite' | 'write' | 'reserved' | 'feed'

/**
 * DATABASE_POOL_MAX is the sum of all pools of a process: two connections stay reserved for session and
 * health checks, and two for realtime where it is on, so that a flood of heavy reads can neither lock everybody out nor
 * delay changes; the rest is shared. One-row writes get most of it: each waits for the disk on a connection of its own, and
 * the more of them wait together, the fewer writes to the disk they cost.
 */
export function poolShares(max: number, realtime: boolean): Record<PoolShare, number> {
  const few = max >= 8 ? 2 : 1
  const feed = realtime ? few : 0
  const rest = Math.max(max - few - feed, 3)
  const write = Math.max(1, Math.floor(rest * 0.2))
  const hotWrite = Math.max(1, Math.floor(rest * 0.45))
  return { reserved: few, feed, write, hotWrite, read: Math.max(1, rest - write - hotWrite) }
}

/** Workers write more than they read, and much of it in transactions; that of workflows little else. */
export function workerShares(max: number, name: string): Record<PoolShare, number> {
  if (max < workerConnections) return poolShares(max, false)
  return { reserved: 1, feed: 0, write: name === 'workflows' ? 3 : 2, hotWrite: 1, read: 1 }
}

type ConnectionPoolOptions = {
  config: Config
  log: Logger
  max: number
  readOnly: boolean
  name: string
  /** Default: the primary's, with the times of its pool. */
  url?: string
  /** Facts of the way there; default: nothing between. */
  line?: Line
  idleMs?: number
  acquireMs?: number
  evictMs?: number
}

/**
 * After a statement that has used more than 128 kB, the memory allocator of a PostgreSQL on Linux (glibc) gives them back to the
 * system, and the next statement takes each page anew, which can be a fifth of its time. The allocator keeps twice as much as the
 * largest block that was ever freed, so a connection begins with one of a megabyte. For `lpad` PostgreSQL takes four bytes for each
 * character of UTF-8 and writes one of them: memory that is not written costs nothing.
 */
const keepsMemory = "select octet_length(lpad('', 262144, '0'))"

/** Opens a pg pool with the timeouts, TLS and logging of the configuration. Connections are made when needed. */
export function openPool({ config, log, max, readOnly, name, ...own }: ConnectionPoolOptions): pg.Pool {
  const { database } = config
  const { url = databaseUrl(config), idleMs, acquireMs, evictMs } = own
  const line = own.line ?? openLine({ named: database.preparedStatements, log })
  const settings = settingsOf(url, { transactionTimeoutMs: database.transactionTimeoutMs, readOnly })
  const options: pg.PoolConfig & ConnectionConfig = {
    Client: clientOn(line, settings, readOnly) as unknown as NonNullable<pg.PoolConfig['Client']>,
    connectionString: withoutOwnParameters(url),
    max,
    ssl: tlsOptions(config, url),
    idleTimeoutMillis: idleMs ?? database.poolIdleMs,
    connectionTimeoutMillis: acquireMs ?? database.poolAcquireMs,
    maxLifetimeSeconds: connectionLifetimeSeconds(evictMs ?? database.poolEvictMs),
    application_name: `daybook ${name}`,
    silenceMs: longestSilenceMs(config),
    isSpare: true,
    onConnect: (client) => client.query(keepsMemory),
  }
  const pool = new pg.Pool(options)
  ways.set(pool, { line, settings })
  pool.on('error', (error) => log.warn({ err: error, pool: name }, 'an idle database connection was lost'))
  // The borrower of a connection hears of its loss by the failed statement; the event without a listener ends the process.
  pool.on('connect', (client) => {
    client.on('error', (error) => log.debug({ err: error, pool: name }, 'a database connection was lost'))
  })
  return pool
}

type StatementWay = { readonly line: Line; readonly settings: SessionSettings }
const ways = new WeakMap<pg.Pool, StatementWay>()

/** A connection that opens its session as the line wants it, and hears which settings the server says it has. */
function clientOn(line: Line, settings: SessionSettings, readOnly: boolean): typeof Connection {
  return class extends Connection {
    constructor(config: ConnectionConfig) {
      const { keepsSettings } = line.facts()
      const options = keepsSettings ? settings.ofSession : settings.ofAddress
      super({ ...config, ...(options !== undefined && { options }) })
      const reported = new Map<string, string>()
      const { connection } = this as unknown as { connection: pg.Connection }
      connection.on('parameterStatus', (message: { parameterName: string; parameterValue: string }) =>
        reported.set(message.parameterName, message.parameterValue),
      )
      this.once('connect', () => {
        const wanted = { TimeZone: 'UTC', ...(readOnly && { default_transaction_read_only: 'on' }) }
        const differs = Object.entries(wanted).some(([name, value]) => (reported.get(name) ?? value) !== value)
        if (keepsSettings && differs) line.settingsLost(Object.fromEntries(reported))
      })
    }
  }
}

type DatabaseOptions = {
  readonly log: Logger
  /** Prints every statement's text, never its values (DATABASE_LOGGING). */
  readonly logSql: boolean
  /** With it every statement is a span, wait for a connection included. */
  readonly tracing?: Tracing
  /**
   * The reaction to a connection that is lost during a statement: a statement that only reads runs once more on another
   * connection, or fails so that its caller repeats it; one that may write fails with {@link AnswerLost}.
   */
  readonly onLoss: 'repeat' | 'fail' | 'tell'
  /**
   * Ends the statements that have no signal of their own. A view of a pool without it is for shared work, which one of
   * its waiters must not end for the others.
   */
  readonly ends?: () => AbortSignal | undefined
}

/** Wraps a pool for statements one by one. */
export function openDatabase(pool: pg.Pool, options: DatabaseOptions): Database {
  const { tracing } = options
  const { line, settings } = ways.get(pool)!
  const traced = <T>(text: string, sending: StatementSending | undefined, begin: () => Promise<T>) => {
    if (tracing?.isOn !== true) return begin()
    return tracing.part(spanName(text), statementSpan(sending === 'prepared' ? statementName(text) : undefined), begin)
  }
  const query = (text: string, values: readonly unknown[], sending?: StatementSending, more: More = {}) =>
    traced(text, sending, () => queryOn(pool, options, { text, values, sending }, more))
  const pipeline = pipelineOf(pool)
  const isQuick = (text: string, presumed: boolean) =>
    line.isNamed() && line.facts().keepsSettings && pipeline.isQuick(text, presumed)
  const runQuick = async (text: string, values: readonly unknown[], isShared = isQuick(text, true)) => {
    const signal = options.ends?.()
    // Where it is called later, the asker is another one.
    const own = { ...options, ends: () => signal }
    const alone = () => queryOn(pool, own, { text, values, sending: 'prepared' }, {})
    const read = { text, values: values as unknown[], signal, alone }
    if (isShared && options.logSql) options.log.info({ sql: text }, 'sql')
    const work = () => (isShared ? pipeline.run(read) : timed(pipeline, text, alone))
    return (await traced(text, 'prepared', work)).rows as never
  }
  const runWithNotices = async (
    text: string,
    values: readonly unknown[],
    sending?: StatementSending,
    signal?: AbortSignal,
  ) => {
    const notices: ChangeNotice[] = []
    const onNotice = ({ message }: Notice) => {
      const said = changeNotice(message)
      if (said !== undefined) notices.push(said)
    }
    const { rows } = await query(text, values, sending, { signal, onNotice })
    return { rows: rows as never, notices }
  }
  return {
    ...readerOf((text, values) => query(text, values)),
    run: async (text, values, sending, signal) => (await query(text, values, sending, { signal })).rows as never,
    runQuick,
    isQuick,
    runWithNotices,
    query: (text, values = []) => query(text, values),
    beginSql: (mode) => (line.facts().keepsSettings ? `begin ${mode}` : `begin ${mode}; ${settings.ofTransaction}`),
    pool,
  }
}

/** Half of the connections of a pool, so that what is slow always finds others. */
const pipelineOf = oncePer((pool: pg.Pool) =>
  openPipeline({
    acquire: () => acquireReady(pool),
    connections: Math.max(1, Math.floor(pool.options.max / 2)),
    nameOn,
    forgetName: (client, text) => preparedTexts(client).set(text, false),
  }),
)

async function timed<T>(pipeline: Pipeline, text: string, work: () => Promise<T>): Promise<T> {
  const since = performance.now()
  const result = await work()
  pipeline.learn(text, performance.now() - since)
  return result
}

type Notice = { readonly message?: string | undefined }
type QueryText = {
  readonly text: string
  readonly values: readonly unknown[]
  readonly sending?: StatementSending | undefined
}
type More = {
  readonly signal?: AbortSignal | undefined
  readonly onNotice?: (notice: Notice) => void
  /** How often it was begun before, on connections that were lost. */
  readonly repeats?: number
}

/** Where several connections die together, the next one that the pool has may be dead as well. */
const mostRepeats = 2

/** Runs a statement on a connection of the pool, and again where its loss does no harm. */
async function queryOn(pool: pg.Pool, options: DatabaseOptions, asked: QueryText, more: More): Promise<pg.QueryResult> {
  const { log, logSql, onLoss, ends } = options
  const { text, values, sending } = asked
  const { signal = ends?.(), onNotice, repeats = 0 } = more
  const way = ways.get(pool)!
  if (logSql) log.info({ sql: text }, 'sql')
  const client = await acquire(pool, signal)
  if (onNotice !== undefined) client.on('notice', onNotice)
  try {
    const name = sending === 'prepared' && way.line.isNamed() ? nameOn(client, text) : undefined
    const statement = { text, values: values as unknown[], name }
    const result = await cancellable(client, signal, () => answerOn(client, statement, way))
    client.release()
    return result
  } catch (error) {
    const isLost = isConnectionLoss(error)
    client.release(isLost ? (error as Error) : undefined)
    if (isLost && onLoss === 'repeat' && repeats < mostRepeats && signal?.aborted !== true)
      return queryOn(pool, options, asked, { ...more, signal, repeats: repeats + 1 })
    if (isLost && onLoss === 'tell' && !wasRefused(error)) throw new AnswerLost(error, processOf(client))
    // Its own stack ends at the socket; this one leads to the caller.
    Error.captureStackTrace(error as Error)
    throw error
  } finally {
    if (onNotice !== undefined) client.off('notice', onNotice)
  }
}

/**
 * A name that did not hold, and a plan that a change of its table has made useless, cost another round trip and nothing
 * else: the statement is a transaction of its own, so nothing of it has happened.
 */
async function answerOn(client: pg.PoolClient, statement: SentStatement, { line, settings }: StatementWay) {
  const send = (client: pg.PoolClient, statement: SentStatement, callback: QueryCallback) => {
    if (line.facts().keepsSettings) client.query(statement, callback)
    else client.query(withSettings(settings.ofTransaction, statement, callback))
  }
  try {
    return await answerTo(client, statement, send)
  } catch (error) {
    const isLost = isNameError(error)
    if (statement.name === undefined || !(isLost || isOutdated(error))) throw error
    if (isLost) line.nameLost(error)
    preparedTexts(client).set(statement.text, false)
    return answerTo(client, { ...statement, name: undefined }, send)
  }
}

/** The kind of a statement, never its text: that may hold names of clients' fields. */
export function spanName(text: string): string {
  return /^[\s(]*([a-z]+)/i.exec(text)?.[1]?.toUpperCase() ?? 'SQL'
}

/** `name` is the one it is prepared under. */
export function statementSpan(name?: string): SpanOptions {
  return { kind: 'client', attributes: { 'db.system.name': 'postgresql', 'daybook.statement': name } }
}

/** The three reader functions on one connection. */
export const readerOn = (client: PgClient): Reader =>
  readerOf((text, values) => client.query(text, values as unknown[]))

/** The three reader functions over anything that runs a statement. */
export function readerOf(query: (text: string, values: readonly unknown[]) => Promise<{ rows: unknown[] }>): Reader {
  const any = async <Row>(q: Query) => (await query(q.text, q.values)).rows as Row[]
  const maybeOne = async <Row>(q: Query) => {
    const rows = await any<Row>(q)
    if (rows.length > 1) throw new Error(`one row expected, ${rows.length} came: ${q.text.slice(0, 80)}`)
    return rows[0]
  }
  const one = async <Row>(q: Query) => {
    const row = await maybeOne<Row>(q)
    if (row === undefined) throw new Error(`one row expected, none came: ${q.text.slice(0, 80)}`)
    return row
  }
  return { any, maybeOne, one }
}

/** The server's address; the launcher has put the embedded server's there where none is configured. */
export function databaseUrl(config: Config): string {
  const { url } = config.database
  if (url === undefined)
    throw new AppError(500, 'DATABASE_URL is missing: name a PostgreSQL 15 or newer, or run npm start')
  return url
}

/** Where LISTEN, advisory locks and replication connect: past any transaction pooler. */
export function directUrl(config: Config): string {
  return config.database.directUrl ?? databaseUrl(config)
}

/** TLS for every connection: a certificate to trust, or whatever `sslmode` of the address asks for. */
export function tlsOptions(config: Config, url = databaseUrl(config)): TlsOptions | undefined {
  const { sslCertificate, sslRejectUnauthorized } = config.database
  const mode = new URL(url).searchParams.get('sslmode')
  if (sslCertificate === undefined && (mode === null || mode === 'disable')) return undefined
  const ca = sslCertificate === undefined ? {} : { ca: certificateOf(sslCertificate) }
  return { ...ca, rejectUnauthorized: sslRejectUnauthorized }
}

/** Without the variable the error would read like one of the way to the database, and be waited out. */
function certificateOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigError(`DATABASE_SSL_CERTIFICATE: ${path} cannot be read: ${(error as Error).message}`)
  }
}

/** The rest of it is given to pg: whatever stays in the address wins over what comes with it. */
export function withoutOwnParameters(url: string): string {
  const parsed = new URL(withoutSslMode(url))
  parsed.searchParams.delete('options')
  return parsed.toString()
}

/** pg lets `sslmode` in the address win over `ssl`; ours is the one that counts. */
export function withoutSslMode(url: string): string {
  const parsed = new URL(url)
  parsed.searchParams.delete('sslmode')
  return parsed.toString()
}

/** A server whose own timeouts hold says something within this time of any statement. */
export function longestSilenceMs({ database }: Config): number {
  return database.transactionTimeoutMs + silenceMarginMs
}

const silenceMarginMs = 2000

/** DATABASE_POOL_EVICT is a base: at its default of 1 s a connection is replaced after half an hour. */
export function connectionLifetimeSeconds(evictMs: number): number {
  return Math.max(1, Math.round((evictMs * 1800) / 1000))
}

/** Takes a connection of a pool; 503 where none becomes free in time. A client that is gone does not wait for one. */
export async function acquire(pool: pg.Pool, signal: AbortSignal | undefined): Promise<pg.PoolClient> {
  if (signal?.aborted) throw clientGone()
  const coming = pool.connect()
  try {
    return await (signal === undefined || pool.waitingCount === 0 ? coming : unlessGone(coming, signal))
  } catch (error) {
    throw error instanceof AppError ? error : Object.assign(errors.unavailable(), { cause: error })
  }
}

/** One that the server works on nothing for any more, as pipelining requires. */
async function acquireReady(pool: pg.Pool): Promise<pg.PoolClient> {
  for (;;) {
    const client = await acquire(pool, undefined)
    if (await becomesReady(client)) return client
    client.release(true)
  }
}

/** A connection that comes all the same goes back at once. */
async function unlessGone(coming: Promise<pg.PoolClient>, signal: AbortSignal): Promise<pg.PoolClient> {
  const left = Promise.withResolvers<never>()
  const leave = () => left.reject(clientGone())
  signal.addEventListener('abort', leave, { once: true })
  try {
    return await Promise.race([coming, left.promise])
  } catch (error) {
    if (signal.aborted)
      coming.then(
        (client) => client.release(),
        () => undefined,
      )
    throw error
  } finally {
    signal.removeEventListener('abort', leave)
  }
}

type SentStatement = { readonly text: string; readonly values: unknown[]; readonly name: string | undefined }
type QueryCallback = (error: Error | undefined, result: pg.QueryResult) => void

/**
 * By callback: what pg's own promise leaves behind gets into the old generation, with the rows of every answer, and makes
 * the collector work for them again.
 */
function answerTo(
  client: pg.PoolClient,
  statement: SentStatement,
  send: (client: pg.PoolClient, statement: SentStatement, callback: QueryCallback) => void,
): Promise<pg.QueryResult> {
  return new Promise((resolve, reject) => {
    send(client, statement, (error, result) => {
      if (error) reject(error)
      else resolve(result)
    })
  })
}

/**
 * True when the statement was not carried out: the server said so as it ended the session, or it was never sent. A crash
 * says nothing of what was done before (57P02).
 */
function wasRefused(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown }
  return code === '57P01' || code === '57P03' || /is not queryable/.test(String(message))
}

const statementsPerConnection = 200
/** The texts that a connection knows by name; false for those that it knows no longer. */
const preparedTexts = oncePer((_client: object) => new Map<string, string | false>())

function nameOn(client: object, text: string): string | undefined {
  const known = preparedTexts(client)
  const before = known.get(text)
  if (before !== undefined) return before === false ? undefined : before
  if (known.size >= statementsPerConnection) return undefined
  const name = statementName(text)
  known.set(text, name)
  return name
}

/**
 * The read-only pool of the routes while it has a connection to spare, else the reserved one: for the short statements
 * about who somebody is, which must be answered while slow reads hold all the others.
 */
export function withoutWaiting({ db, reserved }: Reads & ReservedReads): Database {
  const { options, totalCount, idleCount, waitingCount } = db.pool
  return waitingCount < idleCount + options.max - totalCount ? db : reserved
}

/** Connections of a pool, and how many callers wait for one. */
export type PoolState = {
  readonly name: string
  readonly max: number
  readonly open: number
  readonly idle: number
  readonly waiting: number
}

/** How busy every pool is, the writing ones too. */
export type PoolStates = { readonly pools: () => readonly PoolState[] }

export function stateOf(name: string, { options, totalCount, idleCount, waitingCount }: pg.Pool): PoolState {
  return { name, max: options.max, open: totalCount, idle: idleCount, waiting: waitingCount }
}

/** Members of pg's connections and queries that pg does not declare. */
type PreparingConnection = {
  readonly submittedNamedStatements: Record<string, string>
  parse(message: object): void
  bind(message: object): void
  execute(message: object): void
}
type Inner = {
  name: string | undefined
  prepare(connection: PreparingConnection): void
  handleDataRow(message: unknown): void
  handleCommandComplete(message: unknown, connection: PreparingConnection): void
  handleError(error: Error, connection: PreparingConnection): void
}

/**
 * A statement together with settings that it runs under. Both are sent at once and before the Sync that ends a
 * transaction, so they are one transaction, of one session, whatever lies in between; and they cost one round trip. For `client.query()`.
 */
function withSettings(
  settings: string,
  statement: pg.QueryConfig,
  callback: (error: Error | undefined, result: pg.QueryResult) => void,
): pg.Submittable {
  // Also without values: only the extended protocol can hold both together.
  const query = new pg.Query({ ...statement, queryMode: 'extended' } as pg.QueryConfig, callback as never)
  const inner = query as unknown as Inner
  const { name } = statement
  const { prepare, handleDataRow, handleCommandComplete, handleError } = inner
  let isSet = false
  Object.assign(query, {
    prepare: (connection: PreparingConnection) => {
      connection.parse({ text: settings, name: '' })
      connection.bind({})
      connection.execute({})
      prepare.call(query, connection)
      // The first answer to a Parse is not about the statement of this name.
      inner.name = undefined
    },
    handleDataRow: (message: unknown) => {
      if (isSet) handleDataRow.call(query, message)
    },
    handleCommandComplete: (message: unknown, connection: PreparingConnection) => {
      if (isSet) return handleCommandComplete.call(query, message, connection)
      isSet = true
      inner.name = name
    },
    handleError: (error: Error, connection: PreparingConnection) => {
      if (!isSet && name !== undefined) delete connection.submittedNamedStatements?.[name]
      handleError.call(query, error, connection)
    },
  })
  return query
}

const names = new Map<string, string>()
const namesAtMost = 2000

/**
 * The name that a statement is prepared under: a hash of its text, which the types of its parameters are part of, as
 * casts. So a name stands for the same text whichever process has given it, and a process that meets it on a
 * connection that others use as well gets its own statement or an error, never another one. PostgreSQL cuts names at 63 bytes.
 */
export function statementName(text: string): string {
  let name = names.get(text)
  if (name === undefined) {
    if (names.size >= namesAtMost) names.delete(names.keys().next().value!)
    // 192 bits.
    name = `svc_${hash('sha256', text, 'base64url').slice(0, 32)}`
    names.set(text, name)
  }
  return name
}
