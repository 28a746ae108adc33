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
