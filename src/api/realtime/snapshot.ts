import { openSemaphore } from '../../adapters/semaphore.ts'
import { type BatchReader, openBatches } from '../../db/cursor-stream.ts'
import { AppError } from '../../errors.ts'
import { type Cursor, cursorAt } from '../../events/cursor.ts'
import { withFreshCatalog } from '../../features/items/reads.ts'
import { compileStream } from '../../query/compile.ts'
import { resolveEnv } from '../../query/env.ts'
import { parseListQuery } from '../../query/parse.ts'
import { resolveList } from '../../query/resolve.ts'
import type { Statement } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'
import type { Outbox } from './outbox.ts'
import type { Subscriber } from './subscribers.ts'
import { fieldsOf } from './wish.ts'

export type Snapshots = {
  /**
   * Sends the rows that the subscriber may read, in pieces, as fast as the client takes them, all as of one moment:
   * `at` is that moment. Undefined when the client is too slow or the subscription has ended. Throws AppError 400 when
   * there are more than QUERY_MAX_LIMIT.
   */
  send(subscriber: Subscriber): Promise<{ at: Cursor; rows: number } | undefined>
}

type Row = { readonly data: string }

/** Each holds a connection and an old snapshot of the database. */
const atOnce = 2
const longestMs = 60_000
/** Characters of one message. */
const pieceSize = 200_000

export function openSnapshots(rt: Runtime, outbox: Outbox, isOpen: (subscriber: Subscriber) => boolean): Snapshots {
  const semaphore = openSemaphore(atOnce)
  const read = async (subscriber: Subscriber) => {
    const signal = AbortSignal.timeout(longestMs)
    const { batches, first } = await withFreshCatalog(rt, () => openRows(rt, rowsOf(rt, subscriber), signal))
    let whole = false
    try {
      const pieces = openPieces(subscriber, outbox)
      for (let rows = first; rows.length > 0; rows = await batches.next()) {
        pieces.add(rows)
        refuseTooMany(rt, pieces.count())
        const goesOn = isOpen(subscriber) && (await outbox.drained(subscriber.socket)) && !signal.aborted
        if (!goesOn) return undefined
      }
      const [now] = await batches.query<{ snapshot: string }>('select pg_current_snapshot()::text as snapshot', [])
      whole = true
      pieces.end()
      return { at: cursorAt(now!.snapshot), rows: pieces.count() }
    } finally {
      await batches.close(!whole)
    }
  }
  return { send: (subscriber) => semaphore(async () => (isOpen(subscriber) ? read(subscriber) : undefined)) }
}

/** The list that `/items` would give, whole. */
function rowsOf(rt: Runtime, { access, wish }: Subscriber): Statement {
  const catalog = rt.catalog.current()
  const fields = fieldsOf(catalog, access, wish).map(({ name }) => name)
  const query = { ...parseListQuery({ limit: -1 }), fields, filter: wish.filter }
  const env = { ...resolveEnv(rt), maxLimit: undefined }
  return compileStream(resolveList(catalog, access, wish.collection, query, env))
}

async function openRows(rt: Runtime, { text, values }: Statement, signal: AbortSignal) {
  const batches: BatchReader<Row> = await openBatches<Row>(rt.db, text, values, signal)
  try {
    return { batches, first: await batches.next() }
  } catch (error) {
    await batches.close(true)
    throw error
  }
}

function refuseTooMany({ config }: Runtime, rows: number): void {
  const { maxLimit } = config.query
  if (maxLimit !== undefined && rows > maxLimit)
    throw new AppError(400, `There are more than ${maxLimit} rows: subscribe with a filter`)
}

/** Collects rows into messages of a bearable size; the last one, perhaps empty, says that nothing more comes. */
function openPieces({ socket, wish: { collection } }: Subscriber, outbox: Outbox) {
  let texts: string[] = []
  let size = 0
  let index = 0
  let count = 0
  const send = (more: boolean) => {
    const data = texts.map((text) => JSON.parse(text))
    outbox.send([socket], `${collection}:snapshot`, { collection, index, data, more })
    index += 1
    texts = []
    size = 0
  }
  return {
    add: (rows: readonly Row[]) => {
      for (const { data } of rows) {
        texts.push(data)
        size += data.length
        count += 1
        if (size >= pieceSize) send(true)
      }
    },
    end: () => send(false),
    count: () => count,
  }
}
