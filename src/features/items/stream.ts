import { Readable } from 'node:stream'
import { type BatchReader, openBatches } from '../../db/cursor-stream.ts'
import type { Statement } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'

/**
 * `{"data":[…],"totalCount":n}` row by row. The first batch is read before this returns, so an error of the query is an
 * ordinary answer; one that comes later destroys the connection, and the client sees a truncated body (design §7).
 */
export async function streamList(rt: Runtime, rows: Statement, count: Statement | undefined): Promise<Readable> {
  const batches = await openBatches<{ data: string }>(rt.db, rows.text, rows.values)
  try {
    const first = await batches.next()
    const stream = Readable.from(chunks(batches, first, count))
    // Not in the generator's `finally`: a client that is gone before the first byte never starts the generator.
    stream.once('close', () => {
      batches
        .close(!stream.readableEnded)
        .catch((error: unknown) => rt.log.warn({ err: error }, 'a cursor could not be closed'))
    })
    return stream
  } catch (error) {
    await batches.close(true)
    throw error
  }
}

async function* chunks(
  batches: BatchReader<{ data: string }>,
  first: { data: string }[],
  count: Statement | undefined,
) {
  yield '{"data":['
  let separator = ''
  for (let rows = first; rows.length > 0; rows = await batches.next()) {
    yield separator + rows.map((row) => row.data).join(',')
    separator = ','
  }
  if (count === undefined) yield ']}'
  else {
    const [row] = await batches.query<{ total: string }>(count.text, count.values)
    yield `],"totalCount":${row!.total}}`
  }
}
