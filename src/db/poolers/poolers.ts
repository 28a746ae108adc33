import { randomBytes } from 'node:crypto'
import pg from 'pg'
import type { Logger } from 'pino'
import { retryTransient } from '../../adapters/retry.ts'
import { type Config, ConfigError } from '../../config/config.ts'
import { databaseError, isNameError, isPassing, sqlState } from '../errors.ts'
import {
  type Database,
  databaseUrl,
  directUrl,
  openDatabase,
  openPool,
  tlsOptions,
  withoutOwnParameters,
} from '../pools.ts'
import { sql } from '../sql.ts'
import { type Line, type LineFacts, neededSettings, openLine, plainLine, settingsOf } from './line.ts'

/**
 * Looks at the ways to the database before anything relies on them, and waits for one that is not there yet:
 * DATABASE_MAX_RETRY attempts, DATABASE_RETRY_INTERVAL apart, so that a process may be started before or together with its
 * database. Throws a ConfigError that names the variable where it can't be reached, and where sessions are needed and what
 * lies in between gives none.
 */
export async function lookAtDatabase(config: Config, log: Logger): Promise<Line> {
  const url = databaseUrl(config)
  const facts = await lookAt('DATABASE_URL', config, url, log)
  if (config.database.directUrl !== undefined || !facts.keepsSessions) await requireOwnSessions(config, log)
  if (facts.isPooled) log.info(facts, 'there is a pooler on the way to the database')
  return openLine({ facts, named: config.database.preparedStatements, log })
}

/**
 * Checks the direct way to the database. Throws a ConfigError where that leads to sessions that others get as well. With
 * `waitingLog` it waits for the database as {@link lookAtDatabase} does; without one a database that is not there is an error.
 */
export async function requireOwnSessions(config: Config, waitingLog?: Logger): Promise<LineFacts> {
  const variable = config.database.directUrl === undefined ? 'DATABASE_URL' : 'DATABASE_DIRECT_URL'
  const facts = await lookAt(variable, config, directUrl(config), waitingLog)
  if (facts.keepsSessions) return facts
  throw new ConfigError(
    config.database.directUrl === undefined
      ? `DATABASE_DIRECT_URL: missing, for ${lacksSessions('DATABASE_URL')}`
      : `DATABASE_DIRECT_URL: ${lacksSessions('it')}`,
  )
}

const lacksSessions = (variable: string) =>
  `${variable} leads through a pooler in transaction mode, and LISTEN, advisory locks, replication, setup and migrations need sessions of their own: name the server itself, or a pooler in session mode, in DATABASE_DIRECT_URL (docs/poolers.md)`

type StepOptions = {
  readonly config: Config
  readonly log: Logger
  /** Ends the waiting: rejects with its reason. */
  readonly signal?: AbortSignal
}

/**
 * Takes a step of a start again while the database has no connection to give or is away, as {@link lookAtDatabase} does: it may
 * have given one for the look and none for what follows. The step leaves nothing open when it throws.
 */
export async function onceReached<Result>(
  { config, log, signal }: StepOptions,
  step: () => Promise<Result>,
): Promise<Result> {
  const patience = patienceOf(config)
  try {
    return await retryTransient(step, {
      ...patience,
      ...(signal && { signal }),
      mayRetry: isPassing,
      onRetry: (error, _pauseMs, attempt) =>
        log.warn({ attempt, reason: reasonOf(databaseError(error)) }, 'the database cannot be reached yet'),
    })
  } catch (error) {
    if (!isPassing(error)) throw error
    const variables = config.database.directUrl === undefined ? 'DATABASE_URL' : 'DATABASE_URL, DATABASE_DIRECT_URL'
    throw neverReached(variables, patience.attempts, databaseError(error))
  }
}

function patienceOf({ database: { maxRetry, retryIntervalMs } }: Config) {
  return { backoff: { firstMs: retryIntervalMs, longestMs: retryIntervalMs }, attempts: Math.max(1, maxRetry) }
}

function neverReached(variables: string, attempts: number, error: unknown): ConfigError {
  return new ConfigError(`${variables}: the database cannot be reached (attempts: ${attempts}): ${reasonOf(error)}`)
}

/** A pooler whose connections are all taken is waited for; so is a database that is not there yet, with `waitingLog`. */
async function lookAt(variable: string, config: Config, url: string, waitingLog?: Logger): Promise<LineFacts> {
  const patience = patienceOf(config)
  const waits = waitingLog !== undefined
  // A refusal of the certificate names a variable of its own: the address is not at fault.
  tlsOptions(config, url)
  try {
    return await retryTransient(() => lookAtLine({ config, url }), {
      ...patience,
      mayRetry: (error) => isTimeout(error) || (waits && !(error instanceof ConfigError)),
      onRetry: (error, _pauseMs, attempt) => {
        if (isTimeout(error)) waitingLog?.warn({ attempt }, `${variable}: the pooler has no connection to give yet`)
        else waitingLog?.warn({ attempt, reason: reasonOf(error) }, 'the database cannot be reached yet')
      },
    })
  } catch (error) {
    if (error instanceof ConfigError) throw new ConfigError(`${variable}: ${error.message}`)
    if (isTimeout(error))
      throw new ConfigError(`${variable}: the pooler has no connection to give: all of them are taken`)
    if (!waits) throw error
    throw neverReached(variable, patience.attempts, error)
  }
}

function reasonOf(error: unknown): string {
  const { message, code } = error as { message: string; code?: string }
  return message || (code ?? 'unknown')
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
  return db.one<LineSettings>(sql`
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

type LookOptions = { readonly config: Config; readonly url: string; readonly timeoutMs?: number }

/**
 * Looks at what lies between here and an address, over two connections at most. Rejects when the server can't be reached,
 * and with a ConfigError without the variable's name where transactions do not work.
 */
export async function lookAtLine(options: LookOptions): Promise<LineFacts> {
  const clients: pg.Client[] = []
  const open = async (withOptions: boolean) => {
    const client = clientOf(options, withOptions)
    clients.push(client)
    await client.connect()
    return client
  }
  try {
    const first = await open(true).catch((error: unknown) => {
      if (sqlState(error) !== refusedParameter) throw error
      return undefined
    })
    const seen = first && (await whatArrived(first, options.config))
    if (first !== undefined && seen?.isOwn && seen.arrived) return plainLine
    const kept = await tryOut(first ?? (await open(false)), await open(false))
    return { isPooled: true, keepsSettings: false, ...kept }
  } finally {
    await Promise.all(clients.map(close))
  }
}

/** PgBouncer takes no startup parameters but its own, unless it is told to. */
const refusedParameter = '08P01'
const defaultPatienceMs = 10_000

function clientOf({ config, url, timeoutMs = defaultPatienceMs }: LookOptions, withOptions: boolean): pg.Client {
  const { transactionTimeoutMs } = config.database
  const { ofSession, ofAddress } = settingsOf(url, { transactionTimeoutMs, readOnly: true })
  const options = withOptions ? ofSession : ofAddress
  const client = new pg.Client({
    connectionString: withoutOwnParameters(url),
    ssl: tlsOptions(config, url),
    application_name: 'daybook start',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: Math.min(timeoutMs, busyMs),
    ...(options !== undefined && { options }),
  })
  // The next statement rejects; the event without a listener ends the process.
  client.on('error', () => undefined)
  return client
}

/** How long a statement may wait for a session of the pooler before all of them count as taken. */
const busyMs = 2000

/** One whose answer did not come in time would be waited for. */
async function close(client: pg.Client): Promise<void> {
  const { connection } = client as unknown as { connection: { stream: { destroy(): void } } }
  await Promise.race([client.end(), new Promise((resolve) => setTimeout(resolve, 200))])
  connection.stream.destroy()
}

/** A pooler makes up the process that it tells its clients: they need it to cancel, and get others' sessions. */
async function whatArrived(client: pg.Client, config: Config): Promise<{ isOwn: boolean; arrived: boolean }> {
  const { transactionTimeoutMs } = config.database
  const wanted = Object.entries(neededSettings({ transactionTimeoutMs, readOnly: true }))
  const { rows } = await client.query(
    `select pg_backend_pid() as pid,
       (select json_object_agg(lower(name), setting) from pg_settings where lower(name) = any($1)) as settings`,
    [wanted.map(([name]) => name)],
  )
  const { pid, settings } = rows[0]
  const { processID } = client as unknown as { processID: number }
  return { isOwn: pid === processID, arrived: wanted.every(([name, value]) => settings[name] === value) }
}

const rounds = 5

type LineMemory = Pick<LineFacts, 'keepsSessions' | 'keepsNames'>

/**
 * Whether two clients share sessions, and what then becomes of names: one client asks, another one takes a session for a
 * transaction and asks, and while it has it, the first one asks again. Names are new each time: old ones may be there still.
 */
async function tryOut(one: pg.Client, two: pg.Client): Promise<LineMemory> {
  try {
    for (let round = 0; round < rounds; round += 1) {
      // A name of an earlier round may be known to several sessions by now, so that a change of sessions does not show.
      const name = `svc_look_${randomBytes(9).toString('base64url')}`
      const ask = async (client: pg.Client): Promise<number> =>
        (await client.query({ name, text: 'select pg_backend_pid() as pid' })).rows[0].pid
      const first = await ask(one)
      // A second client gets no session while the first one does nothing with its own: they are not shared.
      if (!(await inTime(() => begin(two)))) return { keepsSessions: await inTime(() => ask(one)), keepsNames: false }
      const held = await ask(two)
      if (held === first) return { keepsSessions: false, keepsNames: true }
      let next: number | undefined
      const isAnswered = await inTime(async () => {
        next = await ask(one)
      })
      if (!isAnswered) return { keepsSessions: false, keepsNames: false }
      if (next !== first) return { keepsSessions: false, keepsNames: true }
      await two.query('rollback')
    }
    return { keepsSessions: true, keepsNames: true }
  } catch (error) {
    if (!isNameError(error)) throw error
    return { keepsSessions: false, keepsNames: false }
  }
}

async function begin(client: pg.Client): Promise<void> {
  try {
    await client.query('begin')
  } catch (error) {
    if (isTimeout(error)) throw error
    throw new ConfigError(`a pooler is in between that gives no transactions: ${(error as Error).message}`)
  }
}

async function inTime(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work()
    return true
  } catch (error) {
    if (isTimeout(error)) return false
    throw error
  }
}

/** Whether an answer did not come in time: all sessions of a pooler may be taken for a while. */
function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}
