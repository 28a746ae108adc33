import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import type * as manager from '../catalog/change.ts'
import type { Config } from '../config/config.ts'
import { Connection, processOf } from '../db/connection.ts'
import { AnswerLost, isConnectionLoss, sqlState } from '../db/errors.ts'
import { settingsOf } from '../db/poolers/line.ts'
import { requireOwnSessions } from '../db/poolers/poolers.ts'
import { directUrl, readerOn, tlsOptions, withoutOwnParameters } from '../db/pools.ts'
import { type Reader, sql, type Tx } from '../db/sql.ts'
import { type Actor, actorJson } from './types.ts'

/** The exports of a migration script. */
export type MigrationScript = {
  readonly version: string
  readonly name: string
  readonly description?: string
  readonly type?: MigrationType
  /** False lets the script run outside of a transaction, e.g. for CREATE INDEX CONCURRENTLY. */
  readonly transaction?: boolean
  readonly up: (context: MigrationContext) => Promise<MigrationResult>
  readonly down?: (context: MigrationContext) => Promise<MigrationResult>
}

export type MigrationType = 'upgrade' | 'hotfix' | 'schema' | 'data' | 'rollback'

export type MigrationContext = {
  /** Readers and statements on the migration's transaction; of a script without one, on its session. */
  readonly db: Tx
  /** Runs SQL text with numbered parameters. */
  readonly sql: (text: string, values?: readonly unknown[]) => Promise<readonly unknown[]>
  /** Changes collections: definition and table together, in the migration's transaction or else in one of their own. */
  readonly schemaManager: typeof manager
  readonly env: Readonly<Record<string, string | undefined>>
  readonly log: (message: string) => void
}

export type MigrationResult = { readonly success: boolean; readonly message?: string; readonly metadata?: object }

/** One session past any pooler, for locks that outlive a transaction and for DDL. */
export type DirectSession = Reader & {
  transaction<T>(actor: Actor, work: (tx: Tx) => Promise<T>): Promise<T>
  /** Runs statements one by one, each a transaction of its own, under the actor's name. */
  untransacted<T>(actor: Actor, work: (db: Tx) => Promise<T>): Promise<T>
  /** Takes an advisory lock that ends with the session; false when another session has it. */
  tryLock(name: string): Promise<boolean>
  /** As `tryLock`, but waits. Between its questions it has no snapshot that CREATE INDEX CONCURRENTLY would wait for. */
  lock(name: string): Promise<void>
  close(): Promise<void>
}

const lockPauseMs = 100
/** How soon the server notices that the process at the other end is gone, and lets go of its locks. */
const goneAfterMs = 1000

/**
 * Opens the session of a setup or a migration run; its statements are not bound by TRANSACTION_TIMEOUT_MS. Throws a
 * ConfigError where a pooler would give it to others as well. With `waitingLog` it waits for a database that is not there yet.
 */
export async function openDirectSession(config: Config, waitingLog?: Logger): Promise<DirectSession> {
  const url = directUrl(config)
  const { keepsSettings } = await requireOwnSessions(config, waitingLog)
  const settings = settingsOf(url, { transactionTimeoutMs: 0, readOnly: false })
  const options = keepsSettings ? settings.ofSession : settings.ofAddress
  const client = new Connection({
    connectionString: withoutOwnParameters(url),
    ssl: tlsOptions(config, url),
    application_name: 'daybook setup',
    ...(options !== undefined && { options }),
  })
  // The next statement rejects; the event without a listener ends the process.
  client.on('error', () => undefined)
  await client.connect()
  if (!keepsSettings) await client.query(settings.afterOpening)
  await noticeGoneClient(client)
  const answerLost = (error: unknown): never => {
    throw isConnectionLoss(error) ? new AnswerLost(error, processOf(client)) : error
  }
  const reader = readerOn(client)
  const transaction = async <T>(actor: Actor, work: (tx: Tx) => Promise<T>): Promise<T> => {
    await client.query('begin')
    try {
      await client.query(`select set_config('svc.actor', $1, true)`, [actorJson(actor)])
      const result = await work({ ...reader, isTransaction: true })
      await client.query('commit').catch(answerLost)
      return result
    } catch (error) {
      // Of a lost connection the server has ended the transaction already, and the loss is what the caller must hear of.
      await client.query('rollback').catch(() => undefined)
      throw error
    }
  }
  const untransacted = async <T>(actor: Actor, work: (db: Tx) => Promise<T>): Promise<T> => {
    const name = (value: string) => client.query(`select set_config('svc.actor', $1, false)`, [value])
    await name(actorJson(actor))
    const result = await work({ ...reader, isTransaction: true })
      .finally(() => name(''))
      .catch(answerLost)
    return result
  }
  const tryLock = async (name: string) => {
    const { taken } = await reader.one<{ taken: boolean }>(sql`select pg_try_advisory_lock(hashtext(${name})) as taken`)
    return taken
  }
  const lock = async (name: string) => {
    while (!(await tryLock(name))) await delay(lockPauseMs)
  }
  return { ...reader, transaction, untransacted, tryLock, lock, close: () => client.end() }
}

/** Not every system that PostgreSQL runs on can do it; there a lock lasts until the running statement ends. */
async function noticeGoneClient(client: pg.Client): Promise<void> {
  try {
    await client.query(`select set_config('client_connection_check_interval', '${goneAfterMs}', false)`)
  } catch (error) {
    if (sqlState(error) !== '22023') throw error
  }
}
