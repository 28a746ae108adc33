import type pg from 'pg'
import { goneSignal } from '../admission/asker.ts'
import { cancellable } from './cancel.ts'
import { acquire, type Database } from './pools.ts'

type Statement = { readonly text: string; readonly values: readonly unknown[] }

/** The SQLSTATE of a statement that took too long. */
export const timedOut = '57014'

/**
 * Runs a statement that has until `deadline` (of `performance.now()`), the wait for a connection included. One that is
 * not done by then fails with SQLSTATE 57014, as with any statement_timeout, and its connection can be used again. It ends
 * with 499 when the asker is gone.
 */
export async function runWithin<Row extends pg.QueryResultRow>(
  db: Database,
  { text, values }: Statement,
  deadline: number,
): Promise<Row[]> {
  const gone = goneSignal()
  const client = await acquire(db.pool, gone)
  try {
    const left = Math.round(deadline - performance.now())
    // PostgreSQL takes zero for no limit at all.
    if (left <= 0) throw Object.assign(new Error('no time was left for this statement'), { code: timedOut })
    await client.query(`${db.beginSql('read only')}; set local statement_timeout = ${left}`)
    const { rows } = await cancellable(client, gone, () => client.query<Row>(text, values as unknown[]))
    await client.query('commit')
    client.release()
    return rows
  } catch (error) {
    await client.query('rollback').then(
      () => client.release(),
      () => client.release(true),
    )
    throw error
  }
}
