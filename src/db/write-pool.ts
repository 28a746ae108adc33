import type { QueryResult } from 'pg'
import type { Logger } from 'pino'
import type { DatabasePool, DriverFactory, Interceptor, QuerySqlToken } from 'slonik'
import type { Tracing } from '../adapters/running-span.ts'
import type { Config } from '../config/config.ts'
import { openByUse } from '../language/once.ts'
import { cancelledBy, whileStaying } from './cancel.ts'
import { type ChangeNotice, Connection, type ConnectionConfig, changeNotice } from './connection.ts'
import { severalStatements } from './errors.ts'
import { type Line, type SessionSettings, settingsOf } from './poolers/line.ts'
import {
  connectionLifetimeSeconds,
  type Database,
  databaseUrl,
  longestSilenceMs,
  openDatabase,
  openPool,
  type PoolState,
  readerOf,
  spanName,
  statementSpan,
  stateOf,
  tlsOptions,
  withoutOwnParameters,
} from './pools.ts'
import type { Tx, UnloggedWrites, WriteKey } from './sql.ts'

/**
 * The connections that may write. Only `events/commit.ts`, `db/unlogged/run.ts` and `process/runtime.ts`, which opens it, may
 * import this file (checked by the import rules), so whoever writes by them goes through one of two doors. The third door,
 * `events/direct-session.ts`, opens a connection of its own: for setup, migrations and the upkeep of the log.
 */
export type WritePool = {
  /** Runs `work` in a transaction, again on serialization conflicts. It waits for no connection when `gone` aborts. */
  transaction<T>(work: (connection: TransactionConnection) => Promise<T>, gone?: AbortSignal | undefined): Promise<T>
  /** Single statements with named plans: the short way of one-row item writes. */
  readonly hot: Database
  /** For the job queue, whose maintenance sends several statements in one text. */
  script(text: string, values?: readonly unknown[]): Promise<{ rows: unknown[] }>
  states(): readonly PoolState[]
  close(): Promise<void>
}

/** Runs the statements of a transaction. */
export type TransactionConnection = {
  query(
    text: string,
    values?: readonly unknown[],
  ): Promise<{ rows: unknown[]; notices: readonly { message: string }[] }>
}

type WritePoolOptions = {
  config: Config
  log: Logger
  line: Line
  transactions: number
  hot: number
  name: string
  tracing: Tracing
}

export function openWritePool(options: WritePoolOptions): WritePool {
  const { config, log, line } = options
  const { database } = config
  const settings = settingsOf(databaseUrl(config), {
    transactionTimeoutMs: database.transactionTimeoutMs,
    readOnly: false,
  })
  const transactions = openTransactions(options, settings)
  const hot = openPool({ config, log, line, max: options.hot, readOnly: false, name: `${options.name} hot` })
  const { tracing } = options
  const hotDatabase = openDatabase(hot, { log, logSql: database.logging, tracing, onLoss: 'tell' })
  return {
    transaction: (work, gone) =>
      whileStaying(gone, (begin) =>
        transactions.run(async (connection) => {
          begin()
          if (!line.facts().keepsSettings) await connection.query(settings.ofTransaction)
          return work(connection)
        }),
      ),
    hot: hotDatabase,
    script: async (text, values = []) => {
      // One text is one transaction, where it does not say otherwise, but takes no values.
      if (values.length > 0) return hotDatabase.query(text, [...values])
      if (line.facts().keepsSettings) return hot.query(text)
      return withoutFirst(await hot.query(`${settings.ofTransaction}; ${text}`))
    },
    states: () => [transactions.state(), stateOf('hot', hot)],
    close: async () => {
      await Promise.all([transactions.close(), hot.end()])
    },
  }
}

type Transactions = {
  run<T>(work: (connection: TransactionConnection) => Promise<T>): Promise<T>
  state(): PoolState
  close(): Promise<void>
}

/** slonik is loaded by the first transaction: it is a tenth of the files of a start, and many processes never write by it. */
function openTransactions(options: WritePoolOptions, settings: SessionSettings): Transactions {
  let state = (): SlonikState => notOpened
  const { opened, close } = openByUse(
    async () => {
      const slonik = await import('slonik')
      const pool = await openSlonik(slonik, options, settings)
      state = () => pool.state()
      return { pool, statement: slonik.sql.unsafe`` }
    },
    ({ pool }) => pool.end(),
    // In slonik's words, as it says it of a pool that was open.
    'the connection pool has been shut down',
  )
  return {
    run: async (work) => {
      const { pool, statement } = await opened()
      return pool.transaction((connection) =>
        work({
          query: async (text, values = []) => {
            const query = { ...statement, sql: text, values: values as QuerySqlToken['values'] }
            const { rows, notices } = await connection.query(query)
            return { rows: rows as unknown[], notices }
          },
        }),
      )
    },
    state: () => {
      const { acquiredConnections: taken, idleConnections: idle, waitingClients: waiting } = state()
      return { name: 'write', max: options.transactions, open: taken + idle, idle, waiting }
    },
    close,
  }
}

type SlonikState = Pick<ReturnType<DatabasePool['state']>, keyof typeof notOpened>
const notOpened = { acquiredConnections: 0, idleConnections: 0, waitingClients: 0 }

type Slonik = typeof import('slonik')

async function openSlonik(
  slonik: Slonik,
  { config, log, line, transactions, name }: WritePoolOptions,
  settings: SessionSettings,
): Promise<DatabasePool> {
  const { database } = config
  const url = withoutOwnParameters(databaseUrl(config))
  const driver = driverFor(slonik, {
    connectionString: url,
    application_name: `daybook ${name} write`,
    options: line.facts().keepsSettings ? settings.ofSession : settings.ofAddress,
    ssl: tlsOptions(config),
    connectionTimeoutMillis: database.poolAcquireMs,
    silenceMs: longestSilenceMs(config),
  })
  const pool = await slonik.createPool(url, {
    driverFactory: driver,
    maxPoolSize: transactions,
    connectionTimeout: database.poolAcquireMs,
    idleTimeout: database.poolIdleMs,
    maximumConnectionAge: connectionLifetimeSeconds(database.poolEvictMs) * 1000,
    typeParsers: [],
    // Our settings are local to a transaction, so nothing is left to reset; DISCARD ALL would cost a round trip.
    resetConnection: async () => {},
    interceptors: database.logging ? [logInterceptor(log)] : [],
  })
  pool.on('error', (error) => log.warn({ err: error, pool: 'write' }, 'a database connection was lost'))
  return pool
}

const pools = new WeakMap<WriteKey, WritePool>()

export function keyOf(pool: WritePool): WriteKey {
  const key: WriteKey = Object.freeze({ opens: 'the write pool' })
  pools.set(key, pool)
  return key
}

export function writePoolOf({ writes }: UnloggedWrites): WritePool {
  const pool = pools.get(writes)
  if (pool === undefined) throw new Error('this key opens no write pool')
  return pool
}

type TxOptions = {
  /** What triggers say of changes is added to it. */
  readonly changeNotices: ChangeNotice[]
  readonly tracing: Tracing
  /** Ends the statement that runs, and keeps others from beginning; COMMIT is none of them. */
  readonly gone: AbortSignal | undefined
  /** Cancels what the connection runs. */
  readonly cancel: () => Promise<void>
}

/** Our reader over slonik's transaction connection. */
export function txOf(connection: TransactionConnection, { changeNotices, tracing, gone, cancel }: TxOptions): Tx {
  const run = async (text: string, values: readonly unknown[]) => {
    const { rows, notices } = await cancelledBy(gone, cancel, () => connection.query(text, values))
    changeNotices.push(...notices.flatMap(({ message }) => changeNotice(message) ?? []))
    return { rows }
  }
  const query: typeof run = (text, values) =>
    tracing.isOn ? tracing.part(spanName(text), statementSpan(), () => run(text, values)) : run(text, values)
  return { ...readerOf(query), isTransaction: true }
}

/** pg answers several statements by a list, and one by its result. */
function withoutFirst(results: unknown): QueryResult {
  const rest = (results as QueryResult[]).slice(1)
  return rest.length === 1 ? rest[0]! : (rest as unknown as QueryResult)
}

function logInterceptor(log: Logger): Interceptor {
  return {
    name: 'log',
    beforeQueryExecution: (_context, query: { readonly sql: string }) => {
      log.info({ sql: query.sql }, 'sql')
      return null
    },
  }
}

/**
 * Lets slonik's transactions run on connections of ours: with their deadlines, and with the errors of the database as they
 * are.
 */
function driverFor({ createDriverFactory }: Slonik, config: ConnectionConfig): DriverFactory {
  return createDriverFactory(async () => ({
    createPoolClient: async ({ clientEventEmitter }) => {
      const client = new Connection({ ...config, isSpare: true })
      client.on('error', (error) => clientEventEmitter.emit('error', error))
      client.on('notice', ({ message }) => {
        if (message !== undefined) clientEventEmitter.emit('notice', { message })
      })
      return {
        connect: async () => void (await client.connect()),
        end: () => client.end(),
        query: async (text, values) => {
          const result = await client.query(text, values as unknown[])
          if (Array.isArray(result)) throw severalStatements()
          const { command, fields, rowCount, rows } = result
          return {
            command: command as 'SELECT',
            fields: fields.map(({ dataTypeID, name }) => ({ dataTypeId: dataTypeID, name })),
            rowCount,
            rows,
          }
        },
        stream: () => {
          throw new Error('transactions do not stream')
        },
      }
    },
  }))
}
