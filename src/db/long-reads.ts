import type pg from 'pg'
import Cursor from 'pg-cursor'
import { goneSignal } from '../admission/asker.ts'
import { cancellable, cancelQuery } from './cancel.ts'
import { acquire, type Database } from './pools.ts'

const rowsPerBatch = 500

export type BatchReader<Row> = {
  /** The next rows; empty at the end. */
  next(): Promise<Row[]>
  /** Runs another statement in the same snapshot. */
  query<Other>(text: string, values: readonly unknown[]): Promise<Other[]>
  /** Must be called, also after an error; `failed` throws the connection away. */
  close(failed: boolean): Promise<void>
}

/**
 * Reads a result of any size in batches, in one read-only snapshot; memory stays flat whatever its size.
 * Aborting `signal`, by default the asker's, cancels the statement that runs, and so does closing.
 */
export async function openBatches<Row>(
  db: Database,
  text: string,
  values: readonly unknown[],
  signal = goneSignal(),
): Promise<BatchReader<Row>> {
  const client = await acquire(db.pool, signal)
  let busy = false
  const running = async <T>(work: () => Promise<T>): Promise<T> => {
    busy = true
    try {
      return await cancellable(client, signal, work)
    } finally {
      busy = false
    }
  }
  try {
    await client.query(db.beginSql('isolation level repeatable read read only'))
    const cursor = client.query(new Cursor<Row>(text, values as unknown[]))
    return {
      next: () => running(() => cursor.read(rowsPerBatch)),
      query: async (other, otherValues) => (await running(() => client.query(other, otherValues as unknown[]))).rows,
      close: async (failed) => {
        if (failed) return giveUp(client, busy)
        await cursor.close()
        await client.query('commit')
        client.release()
      },
    }
  } catch (error) {
    client.release(true)
    throw error
  }
}

/** A server that is busy does not notice that its client is gone. */
async function giveUp(client: pg.PoolClient, busy: boolean): Promise<void> {
  try {
    if (busy) await cancelQuery(client)
  } finally {
    client.release(true)
  }
}

type LongStatement = { readonly text: string; readonly values: readonly unknown[] }

/** The SQLSTATE of a statement that took too long. */
export const timedOut = '57014'

/**
 * Runs a statement that has until `deadline` (of `performance.now()`), the wait for a connection included. One that is
 * not done by then fails with SQLSTATE 57014, as with any statement_timeout, and its connection can be used again. It ends
 * with 499 when the asker is gone.
 */
export async function runWithin<Row extends pg.QueryResultRow>(
  db: Database,
  { text, values }: LongStatement,
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
