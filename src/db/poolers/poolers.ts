import type { Logger } from 'pino'
import { retryTransient } from '../../adapters/retry.ts'
import { type Config, ConfigError } from '../../config/config.ts'
import { type Database, databaseUrl, directUrl, openDatabase, openPool } from '../pools.ts'
import { sql } from '../sql.ts'
import { type Line, type LineFacts, openLine } from './line.ts'
import { isTimeout, lookAtLine } from './look-at-line.ts'
import { neededSettings } from './session-settings.ts'

/**
 * Looks at the ways to the database before anything relies on them. Throws a ConfigError that names the variable where
 * sessions are needed and what lies in between gives none.
 */
export async function lookAtDatabase(config: Config, log: Logger): Promise<Line> {
  const url = databaseUrl(config)
  const facts = await lookAt('DATABASE_URL', config, url, log)
  if (config.database.directUrl !== undefined || !facts.keepsSessions) await requireOwnSessions(config)
  if (facts.isPooled) log.info(facts, 'there is a pooler on the way to the database')
  return openLine({ facts, named: config.database.preparedStatements, log })
}

/** Checks the direct way to the database. Throws a ConfigError where that leads to sessions that others get as well. */
export async function requireOwnSessions(config: Config): Promise<LineFacts> {
  const facts = await lookAt('DATABASE_DIRECT_URL', config, directUrl(config))
  if (facts.keepsSessions) return facts
  throw new ConfigError(
    config.database.directUrl === undefined
      ? `DATABASE_DIRECT_URL: missing, for ${lacksSessions('DATABASE_URL')}`
      : `DATABASE_DIRECT_URL: ${lacksSessions('it')}`,
  )
}

const lacksSessions = (variable: string) =>
  `${variable} leads through a pooler in transaction mode, and LISTEN, advisory locks, replication, setup and migrations need sessions of their own: name the server itself, or a pooler in session mode, in DATABASE_DIRECT_URL (docs/poolers.md)`

/** A pooler whose connections are all taken is waited for as a database is that is not there yet. */
async function lookAt(variable: string, config: Config, url: string, log?: Logger): Promise<LineFacts> {
  const { maxRetry, retryIntervalMs } = config.database
  try {
    return await retryTransient(() => lookAtLine({ config, url }), {
      backoff: { firstMs: retryIntervalMs, longestMs: retryIntervalMs },
      attempts: Math.max(1, maxRetry),
      mayRetry: isTimeout,
      onRetry: (_error, _pauseMs, attempt) =>
        log?.warn({ attempt }, `${variable}: the pooler has no connection to give yet`),
    })
  } catch (error) {
    if (error instanceof ConfigError) throw new ConfigError(`${variable}: ${error.message}`)
    if (isTimeout(error))
      throw new ConfigError(`${variable}: the pooler has no connection to give: all of them are taken`)
    throw error
  }
}

/** The settings that statements of a pool run under, as the server says. */
type LineSettings = {
  readonly settings: Readonly<Record<string, string>>
  /** Where tables are looked for. */
  readonly schemas: string
  /** Which database of which server. */
  readonly database: string
}

export async function readArrived(db: Database): Promise<LineSettings> {
  return db.one<LineSettings>(sql.unsafe`
    select (select jsonb_object_agg(lower(name), setting) from pg_settings) as settings, current_schemas(false)::text as schemas,
      (select oid from pg_database where datname = current_database()) || ' ' || extract(epoch from pg_postmaster_start_time()) as database`)
}

type WaysOfDatabase = {
  readonly config: Config
  readonly log: Logger
  readonly line: Line
  readonly reading: Database
  readonly writing: Database
}

/**
 * Behind a pooler, reads back through the pools themselves what their statements rely on. Throws a ConfigError that says
 * what does not hold: reads that could write, other forms of time stamps, statements without an end, other tables.
 */
export async function refuseLostSettings({ config, log, line, reading, writing }: WaysOfDatabase): Promise<void> {
  if (!line.facts().isPooled) return
  const [read, write] = [await readArrived(reading), await readArrived(writing)]
  const lost = new Set([...lostSettings(config, read, true), ...lostSettings(config, write, false)])
  if (lost.size > 0)
    throw new ConfigError(
      `DATABASE_URL: settings do not reach the server: ${[...lost].join(', ')}; name the server itself, or another pooler (docs/poolers.md)`,
    )
  if (config.database.directUrl !== undefined) refuseOtherPlace(read, await readDirectly(config, log))
}

/** Each setting that is not as it must be, in words. */
export function lostSettings({ database }: Config, { settings }: LineSettings, readOnly: boolean): string[] {
  const needed = neededSettings({ transactionTimeoutMs: database.transactionTimeoutMs, readOnly: false })
  return Object.entries({ ...needed, transaction_read_only: readOnly ? 'on' : 'off' })
    .filter(([name, value]) => settings[name] !== value)
    .map(([name, value]) => `${name} is ${settings[name]} instead of ${value}`)
}

async function readDirectly(config: Config, log: Logger): Promise<LineSettings> {
  const line = openLine({ facts: await requireOwnSessions(config), named: false, log })
  const pool = openPool({ config, log, line, max: 1, readOnly: true, name: 'start', url: directUrl(config) })
  try {
    return await readArrived(openDatabase(pool, { log, logSql: false, onLoss: 'fail' }))
  } finally {
    await pool.end()
  }
}

/** Setup, migrations and notifications go one way, requests the other. */
function refuseOtherPlace(pooled: LineSettings, direct: LineSettings): void {
  if (pooled.database !== direct.database)
    throw new ConfigError('DATABASE_DIRECT_URL: names another database than DATABASE_URL')
  if (pooled.schemas !== direct.schemas)
    throw new ConfigError(
      `DATABASE_DIRECT_URL: tables are looked for in ${direct.schemas} there, and in ${pooled.schemas} by DATABASE_URL: give both the same search_path, e.g. by alter role … set search_path`,
    )
}
