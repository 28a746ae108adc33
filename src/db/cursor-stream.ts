import Cursor from 'pg-cursor'
import type { Database } from './pools.ts'

const rowsPerBatch = 500

export type BatchReader<Row> = {
  /** The next rows; empty at the end. */
  next(): Promise<Row[]>
  /** Runs another statement in the same snapshot. */
  query<Other>(text: string, values: readonly unknown[]): Promise<Other[]>
  /** Must be called, also after an error; `failed` throws the connection away. */
  close(failed: boolean): Promise<void>
}

/** Reads a result of any size in batches, in one read-only snapshot; memory stays flat whatever its size (quality P5). */
export async function openBatches<Row>(
  db: Database,
  text: string,
  values: readonly unknown[],
): Promise<BatchReader<Row>> {
  const client = await db.pool.connect()
  try {
    await client.query('begin isolation level repeatable read read only')
    const cursor = client.query(new Cursor<Row>(text, values as unknown[]))
    return {
      next: () => cursor.read(rowsPerBatch),
      query: async (other, otherValues) => (await client.query(other, otherValues as unknown[])).rows,
      close: async (failed) => {
        if (failed) return client.release(true)
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
