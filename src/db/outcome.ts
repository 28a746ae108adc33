import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import { sqlState } from './errors.ts'
import type { Database } from './pools.ts'
import { rawQuery, sql } from './sql.ts'

/*
 * How a write ended whose connection was lost: between COMMIT and its answer nobody at this end knows. The server does,
 * and is asked over another connection.
 */

/** Names a transaction for good, also to a server that has crashed meanwhile. */
export type TransactionId = {
  readonly xid: string
  /** The life of the server in which the number was given out: after a crash the same numbers are given out again. */
  readonly life: string
}

/**
 * SQL: a server begins a new life when it recovers from a crash, which starts its statistics anew, or is promoted, which
 * starts a new timeline. An orderly restart keeps both, and gives out no number twice.
 */
const lifeSql = `pg_stat_get_bgwriter_stat_reset_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)`

/** SQL, a select list: the running transaction's {@link TransactionId}. It gets a number by that if it has none. */
export const transactionIdSql = `pg_current_xact_id()::text as xid, ${lifeSql} as life`

type TransactionEnding = 'committed' | 'aborted' | 'unknown'

/** The server's knowledge of a transaction; `status` null where it has forgotten it, `future` where it has yet to begin. */
export type TransactionStatus = {
  readonly status: 'committed' | 'aborted' | 'in progress' | 'future' | null
  readonly isSameLife: boolean
}

/**
 * How a transaction ended, as far as it can be told; undefined while it runs.
 *
 * In another life of the server its number may be somebody else's. A commit that had been confirmed, or would have been,
 * survives a crash, so its number is not given out again: `committed` may be the other's, everything else says that ours
 * did not survive.
 */
export function endingOf({ status, isSameLife }: TransactionStatus): TransactionEnding | undefined {
  if (status === null) return 'unknown'
  if (isSameLife) return status === 'in progress' ? undefined : status === 'future' ? 'unknown' : status
  return status === 'committed' ? 'unknown' : 'aborted'
}

/** How long it is waited for a transaction that has not ended, and for a server that does not answer. */
const outcomeWithinMs = 10_000

/**
 * Asks how a transaction ended, and waits for its end and for the server. Never rejects. One that waits for a client that
 * is gone is ended.
 */
export async function endOfTransaction(db: Database, log: Logger, id: TransactionId): Promise<TransactionEnding> {
  return untilKnown(log, async () => {
    const ending = endingOf(await statusOf(db, id))
    if (ending === undefined) await db.any(endAbandoned(id))
    return ending
  }).then((ending) => ending ?? 'unknown')
}

/** Repeats a question until it has an answer, or gives up: undefined. */
export async function untilKnown<T>(log: Logger, ask: () => Promise<T | undefined>): Promise<T | undefined> {
  const deadline = performance.now() + outcomeWithinMs
  for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, 500)) {
    const answer = await Promise.race([
      ask().catch(unanswered(log)),
      delay(deadline - performance.now(), undefined, unreferenced),
    ])
    if (answer !== undefined || performance.now() + pauseMs > deadline) return answer
    await delay(pauseMs)
  }
}

const unreferenced = { ref: false }

const unanswered = (log: Logger) => (error: unknown) => {
  log.debug({ err: error }, 'the database could not be asked how a write ended')
  return undefined
}

type StatusAnswer = { readonly status: TransactionStatus['status']; readonly life: string }

const statusSql = `select pg_xact_status($1::xid8) as status, ${lifeSql} as life`

async function statusOf(db: Database, { xid, life }: TransactionId): Promise<TransactionStatus> {
  try {
    const { status, life: now } = await db.one<StatusAnswer>(rawQuery(statusSql, [xid]))
    return { status, isSameLife: now === life }
  } catch (error) {
    if (sqlState(error) !== notYetBegun) throw error
    const { life: now } = await db.one<StatusAnswer>(rawQuery(`select ${lifeSql} as life`))
    return { status: 'future', isSameLife: now === life }
  }
}

/** The error of `pg_xact_status` for a number that has not been given out. */
const notYetBegun = '22023'

/**
 * A server does not notice that a client is gone that it waits for, and would keep the transaction open until it times
 * out. Not one that is committing: that has an end.
 */
const endAbandoned = ({ xid }: TransactionId) => sql.unsafe`
  select pg_terminate_backend(pid) from pg_stat_activity
  where backend_xid = ${xid}::xid8::xid and state like 'idle in transaction%'`
