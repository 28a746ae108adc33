import { readFileSync } from 'node:fs'
import type { ConnectionOptions as TlsOptions } from 'node:tls'
import pg from 'pg'
import type { Logger } from 'pino'
import type { SpanOptions, Tracing } from '../adapters/tracing.ts'
import type { Config } from '../config.ts'
import { AppError, errors } from '../errors.ts'
import { oncePer } from '../once-per.ts'
import { cancellable } from './cancel.ts'
import { isConnectionLoss } from './errors.ts'
import type { Query, Reader } from './sql.ts'
import { toldOfSessions } from './told.ts'

export type PgPool = pg.Pool
export type PgClient = pg.Client

/** The pool that routes hold: read-only at the database, so a stray write fails in the first test that meets it. */
export type Database = Reader & {
  /**
   * Runs a compiled plan. With a name it becomes a prepared statement of the connection (at most 200 per connection,
   * then unnamed): about 2.5 times as fast on a primary-key read. Aborting `signal` cancels the statement (cancel.ts).
   */
  run<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[],
    name?: string,
    signal?: AbortSignal,
  ): Promise<Row[]>
  /** As `run`, for a statement that writes: also what it means for sessions, as their triggers tell (told.ts). */
  runTold<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[],
    name?: string,
  ): Promise<{ rows: Row[]; told: readonly string[] }>
  /** The pool itself, for cursors and for libraries that need `query(text, values)`. */
  readonly pool: pg.Pool
}

/** Most connections of a worker's pools. */
export const workerConnections = 5

export type PoolShare = 'read' | 'hotWrite' | 'write' | 'reserved' | 'feed'

/**
 * DATABASE_POOL_MAX is the sum of all pools of a process (design §2): two connections stay reserved for session and
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

export type PoolOptions = {
  config: Config
  log: Logger
  max: number
  readOnly: boolean
  name: string
  /** Default: the primary's, with the times of its pool. */
  url?: string
  idleMs?: number
  acquireMs?: number
  evictMs?: number
}

/** Opens a pg pool with the timeouts, TLS and logging of the configuration. Connections are made when needed. */
export function openPool({ config, log, max, readOnly, name, ...own }: PoolOptions): pg.Pool {
  const { database } = config
  const { url = databaseUrl(config), idleMs, acquireMs, evictMs } = own
  const pool = new pg.Pool({
    connectionString: withoutSslMode(url),
    max,
    ssl: tlsOptions(config, url),
    idleTimeoutMillis: idleMs ?? database.poolIdleMs,
    connectionTimeoutMillis: acquireMs ?? database.poolAcquireMs,
    maxLifetimeSeconds: connectionLifetimeSeconds(evictMs ?? database.poolEvictMs),
    application_name: `daybook ${name}`,
    options: sessionOptions(database.transactionTimeoutMs, readOnly),
    keepAlive: true,
  })
  pool.on('error', (error) => log.warn({ err: error, pool: name }, 'an idle database connection was lost'))
  // The borrower of a connection hears of its loss by the failed statement; the event without a listener ends the process.
  pool.on('connect', (client) => {
    client.on('error', (error) => log.debug({ err: error, pool: name }, 'a database connection was lost'))
  })
  return pool
}

/**
 * Wraps a pool for readers; `logSql` prints every statement's text, never its values (DATABASE_LOGGING). With `tracing`
 * every statement is a span, wait for a connection included.
 */
export function openDatabase(pool: pg.Pool, log: Logger, logSql: boolean, tracing?: Tracing): Database {
  const query = (...[text, values, name, signal, onNotice]: Parameters<typeof queryNow>) =>
    tracing?.isOn === true
      ? tracing.part(spanName(text), statementSpan(name), () => queryNow(text, values, name, signal, onNotice))
      : queryNow(text, values, name, signal, onNotice)
  const queryNow = async (
    text: string,
    values: readonly unknown[],
    name?: string,
    signal?: AbortSignal,
    onNotice?: (notice: { readonly message?: string | undefined }) => void,
  ) => {
    if (logSql) log.info({ sql: text }, 'sql')
    const client = await acquire(pool)
    if (onNotice !== undefined) client.on('notice', onNotice)
    try {
      const statement = { text, values: values as unknown[], name: statementName(client, text, name) }
      const result = await cancellable(client, signal, () => answerTo(client, statement))
      client.release()
      return result
    } catch (error) {
      client.release(isConnectionLoss(error) ? (error as Error) : undefined)
      // Its own stack ends at the socket; this one leads to whoever has asked.
      Error.captureStackTrace(error as Error)
      throw error
    } finally {
      if (onNotice !== undefined) client.off('notice', onNotice)
    }
  }
  const runTold = async (text: string, values: readonly unknown[], name?: string) => {
    const told: string[] = []
    const { rows } = await query(text, values, name, undefined, ({ message }) => {
      const said = toldOfSessions(message)
      if (said !== undefined) told.push(said)
    })
    return { rows: rows as never, told }
  }
  return {
    ...readerOf((text, values) => query(text, values)),
    run: async (text, values, name, signal) => (await query(text, values, name, signal)).rows as never,
    runTold,
    pool,
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

/** The three reader functions over anything that runs a statement. */
export function readerOf(query: (text: string, values: readonly unknown[]) => Promise<{ rows: unknown[] }>): Reader {
  const any = async <Row>(q: Query) => (await query(plainPlaceholders(q.sql), q.values)).rows as Row[]
  const maybeOne = async <Row>(q: Query) => {
    const rows = await any<Row>(q)
    if (rows.length > 1) throw new Error(`one row expected, ${rows.length} came: ${q.sql.slice(0, 80)}`)
    return rows[0]
  }
  const one = async <Row>(q: Query) => {
    const row = await maybeOne<Row>(q)
    if (row === undefined) throw new Error(`one row expected, none came: ${q.sql.slice(0, 80)}`)
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

/** The tag numbers its placeholders `$slonik_1` so that they can be told from text; the wire wants `$1`. */
function plainPlaceholders(text: string): string {
  return text.replaceAll('$slonik_', '$')
}

/** TLS for every connection: a certificate to trust, or whatever `sslmode` of the address asks for. */
export function tlsOptions(config: Config, url = databaseUrl(config)): TlsOptions | undefined {
  const { sslCertificate, sslRejectUnauthorized } = config.database
  const mode = new URL(url).searchParams.get('sslmode')
  if (sslCertificate === undefined && (mode === null || mode === 'disable')) return undefined
  const ca = sslCertificate === undefined ? {} : { ca: readFileSync(sslCertificate, 'utf8') }
  return { ...ca, rejectUnauthorized: sslRejectUnauthorized }
}

/** pg lets `sslmode` in the address win over `ssl`; ours is the one that counts. */
export function withoutSslMode(url: string): string {
  const parsed = new URL(url)
  parsed.searchParams.delete('sslmode')
  return parsed.toString()
}

/** Settings every session starts with; UTC so that text forms of timestamps do not depend on the server. */
export function sessionOptions(transactionTimeoutMs: number, readOnly: boolean): string {
  const settings = [
    'timezone=UTC',
    `statement_timeout=${transactionTimeoutMs}`,
    `idle_in_transaction_session_timeout=${transactionTimeoutMs}`,
    ...(readOnly ? ['default_transaction_read_only=on'] : []),
  ]
  return settings.map((setting) => `-c ${setting}`).join(' ')
}

/** DATABASE_POOL_EVICT is a base: at its default of 1 s a connection is replaced after half an hour. */
export function connectionLifetimeSeconds(evictMs: number): number {
  return Math.max(1, Math.round((evictMs * 1800) / 1000))
}

async function acquire(pool: pg.Pool): Promise<pg.PoolClient> {
  try {
    return await pool.connect()
  } catch (error) {
    throw Object.assign(errors.unavailable(), { cause: error })
  }
}

/**
 * By callback: what pg's own promise leaves behind gets into the old generation, with the rows of every answer, and makes
 * the collector work for them again.
 */
function answerTo(client: pg.PoolClient, statement: pg.QueryConfig): Promise<pg.QueryResult> {
  return new Promise((resolve, reject) => {
    client.query(statement, (error: Error | undefined, result: pg.QueryResult) => {
      if (error) reject(error)
      else resolve(result)
    })
  })
}

const statementsPerConnection = 200
const preparedTexts = oncePer((_client: object) => new Map<string, string>())

function statementName(client: object, text: string, name: string | undefined): string | undefined {
  if (name === undefined) return undefined
  const known = preparedTexts(client)
  const before = known.get(name)
  if (before === text) return name
  if (before !== undefined || known.size >= statementsPerConnection) return undefined
  known.set(name, text)
  return name
}
