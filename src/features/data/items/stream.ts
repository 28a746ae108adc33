import { Readable } from 'node:stream'
import type { AdmissionLane } from '../../../admission/lane.ts'
import { type BatchReader, openBatches } from '../../../db/long-reads.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { type AnyReader, type ReplicaReads, readAnywhere } from '../../../db/replicas/replicas.ts'
import { cursorAt, encodeCursor, momentSql } from '../../../events/cursor.ts'
import { compileCount, compileStream, isWhole } from '../../../query/compile.ts'
import { horizonOf } from '../../../query/past.ts'
import type { Plan } from '../../../query/resolve.ts'
import type { Statement } from '../../../query/sql.ts'
import type { ItemReads } from './context.ts'

/** Rows as JSON texts, in batches that are never empty. */
export type RowBatches = AsyncIterable<readonly string[]>

/** Makes the text of an answer from its rows; `query` runs another statement in the rows' snapshot. */
type RowRenderer = (rows: RowBatches, query: BatchReader<unknown>['query']) => AsyncIterable<string>

export type StreamOptions = {
  /** The caller that a read replica may answer; without it only the primary does. */
  readonly replicaFor?: AnyReader | undefined
  /** The changes that a replica must have, see `readAnywhere`. */
  readonly horizon?: bigint | undefined
}

/** An answer that is being read: its text in pieces. `close` must be called. */
export type OpenAnswer = { readonly chunks: AsyncIterable<string>; close(failed: boolean): Promise<void> }

/** `{"data":[…],"totalCount":n}` row by row; see {@link streamRows}. */
export function streamList(deps: ItemReads, plan: Plan, options: StreamOptions = {}): Promise<Readable> {
  return streamRows(deps, compileStream(plan), (rows, query) => listText(rows, plan, query), ofPlan(plan, options))
}

/** As {@link streamList}, and at its end the cursor of the snapshot that it was read in: see {@link markOf}. */
export function streamMarkedList(deps: ItemReads, plan: Plan): Promise<Readable> {
  // The cursor is a snapshot of the primary's.
  return streamRows(deps, compileStream(plan), (rows, query) => listText(rows, plan, query, true))
}

/** The member of a list's answer from which `GET /changes` goes on, without a gap and without a repeat. */
export const markOf = (snapshot: string): string => `,"changesCursor":"${encodeCursor(cursorAt(snapshot))}"`

/** As {@link streamList}, for a list that is a part of another answer. */
export function openList(
  deps: Reads & ReplicaReads & AdmissionLane,
  plan: Plan,
  options: StreamOptions = {},
): Promise<OpenAnswer> {
  return openRows(deps, compileStream(plan), (rows, query) => listText(rows, plan, query), ofPlan(plan, options))
}

/**
 * An answer of any size. The first batch is read before this returns, so an error of the query is an ordinary answer; one
 * that comes later destroys the connection, and the client sees a truncated body.
 */
export async function streamRows(
  deps: ItemReads,
  rows: Statement,
  render: RowRenderer,
  options: StreamOptions = {},
): Promise<Readable> {
  const answer = await openRows(deps, rows, render, options)
  const stream = Readable.from(answer.chunks)
  // Not in the generator's `finally`: a client that is gone before the first byte never starts the generator.
  stream.once('close', () => {
    answer
      .close(!stream.readableEnded)
      .catch((error: unknown) => deps.log.warn({ err: error }, 'a cursor could not be closed'))
  })
  return stream
}

/** Holds a place until it is closed: as long as its client reads, a connection is its own. */
async function openRows(
  deps: Reads & ReplicaReads & AdmissionLane,
  rows: Statement,
  render: RowRenderer,
  options: StreamOptions,
): Promise<OpenAnswer> {
  const place = await deps.admission.enter({ shape: `stream ${rows.text}`, presumed: 'heavy' })
  try {
    const { chunks, close } = await openRowsAnywhere(deps, rows, render, options)
    return { chunks, close: (failed) => close(failed).finally(place.leave) }
  } catch (error) {
    place.leave()
    throw error
  }
}

/** Reads the first batch; nothing stays open when that fails. A later failure can't be made good from elsewhere. */
function openRowsAnywhere(
  deps: Reads & ReplicaReads,
  rows: Statement,
  render: RowRenderer,
  options: StreamOptions,
): Promise<OpenAnswer> {
  const { replicaFor, horizon } = options
  const openAt = (db: Database) => openRowsAt(db, rows, render)
  if (replicaFor === undefined) return openAt(deps.db)
  return readAnywhere(deps, replicaFor, openAt, { horizon, discard: ({ close }) => void close(true) })
}

/** The options for reading what a plan says. */
export const ofPlan = ({ past }: Plan, options: StreamOptions): StreamOptions => ({
  ...options,
  horizon: horizonOf(past),
})

async function openRowsAt(db: Database, rows: Statement, render: RowRenderer): Promise<OpenAnswer> {
  const batches = await openBatches<Row>(db, rows.text, rows.values)
  try {
    const first = await batches.next()
    return { chunks: render(textsOf(batches, first), batches.query), close: (failed) => batches.close(failed) }
  } catch (error) {
    await batches.close(true)
    throw error
  }
}

type Row = { readonly data: string }

async function* textsOf(batches: BatchReader<Row>, first: readonly Row[]): AsyncGenerator<readonly string[]> {
  for (let rows = first; rows.length > 0; rows = await batches.next()) yield rows.map(({ data }) => data)
}

async function* listText(rows: RowBatches, plan: Plan, query: BatchReader<unknown>['query'], marked = false) {
  yield '{"data":['
  let sent = 0
  for await (const batch of rows) {
    yield (sent > 0 ? ',' : '') + batch.join(',')
    sent += batch.length
  }
  yield plan.count ? `],"totalCount":${await totalOf(plan, sent, query)}` : ']'
  if (marked) yield markOf(await snapshotOf(query))
  yield '}'
}

async function snapshotOf(query: BatchReader<unknown>['query']): Promise<string> {
  const [row] = await query<{ snapshot: string }>(`select ${momentSql} as snapshot`, [])
  return row!.snapshot
}

async function totalOf(plan: Plan, sent: number, query: BatchReader<unknown>['query']): Promise<string> {
  if (isWhole(plan)) return String(sent)
  const { text, values } = compileCount(plan)
  const [row] = await query<{ total: string }>(text, values)
  return row!.total
}
