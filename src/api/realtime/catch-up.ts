import { openSemaphore, retryTransient } from '../../adapters/retry.ts'
import type { Field, Kind } from '../../catalog/catalog.ts'
import { type CurrentCatalog, withFreshCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import { isPassing } from '../../db/errors.ts'
import { type BatchReader, openBatches } from '../../db/long-reads.ts'
import type { Reads } from '../../db/pools.ts'
import { AppError } from '../../errors.ts'
import { type Cursor, cursorAt, momentSql } from '../../events/cursor.ts'
import { pullRound } from '../../events/log-reader.ts'
import { disturbedCollections, viewersOf } from '../../features/data/changes/changes.ts'
import { compileStream } from '../../query/compile.ts'
import { parseListQuery } from '../../query/parse.ts'
import { resolveEnv, resolveList } from '../../query/resolve.ts'
import type { Statement } from '../../query/sql.ts'
import type { RealtimeReads } from '../capabilities.ts'
import type { Outbox } from './connections.ts'
import { currentView, type Subscriber } from './registry.ts'
import { changesSeen, fieldsOf, partsOf, scopesRows } from './views.ts'

/*
 * The messages that a subscriber gets before live ones: the changes since its cursor, or the rows themselves.
 */

export type CatchUp = {
  /**
   * Sends what was missed, as fast as the client reads. The round ends at a snapshot taken after the subscriber was
   * registered, so what is neither visible in it nor arrives live does not exist. Undefined when the log no longer holds
   * what was missed, or the subscription has ended meanwhile.
   */
  from(subscriber: Subscriber, cursor: Cursor): Promise<Cursor | undefined>
}

const eventsPerPage = 500
/** Live events go through the same few connections, and first. */
const pagesAtOnce = 1
/** While the database does not answer. */
export const readBackoff = { firstMs: 50, longestMs: 2000 }

export function openCatchUp(deps: RealtimeReads, outbox: Outbox, isOpen: (subscriber: Subscriber) => boolean): CatchUp {
  const semaphore = openSemaphore(pagesAtOnce)
  const tried = <Result>(subscriber: Subscriber, work: () => Promise<Result>) =>
    retryTransient(work, {
      backoff: readBackoff,
      mayRetry: (error) => isPassing(error) && isOpen(subscriber),
      onRetry: (error, pauseMs) => deps.log.warn({ err: error, retryInMs: pauseMs }, 'changes could not be read'),
    })
  const sendPage = async (subscriber: Subscriber, cursor: Cursor) => {
    const { collection } = subscriber.request
    const wanted = { collections: [collection], limit: eventsPerPage }
    const page = await tried(subscriber, () => pullRound(deps.feedDb, cursor, wanted))
    if (page.resync) return undefined
    for (const part of partsOf(page.events)) {
      const { messages } = await tried(subscriber, () => {
        const view = currentView(deps, subscriber)
        return changesSeen(deps, collection, view, viewersOf([view]), part)
      })
      for (const { message } of messages)
        if (isOpen(subscriber)) outbox.send([subscriber.socket], message.name, message.body)
    }
    return page
  }
  return {
    from: async (subscriber, start) => {
      let isOwnRound = false
      for (let cursor = start; ; ) {
        // One that was begun elsewhere has ended before now.
        isOwnRound ||= cursor.upTo === undefined
        const page = await semaphore(() => sendPage(subscriber, cursor))
        if (page === undefined || !isOpen(subscriber)) return undefined
        cursor = page.cursor
        if (!page.more && isOwnRound) {
          const isWhole = !(await tried(subscriber, () => isDisturbed(deps, subscriber, start, cursor)))
          return isWhole ? cursor : undefined
        }
        if (!(await outbox.drained(subscriber.socket))) return undefined
      }
    },
  }
}

/** Whether something happened meanwhile that no event of the collection's rows shows. */
async function isDisturbed(
  deps: RealtimeReads,
  { request, access }: Subscriber,
  from: Cursor,
  to: Cursor,
): Promise<boolean> {
  const collection = deps.catalog.current().collections.get(request.collection)
  if (collection === undefined) return true
  const followed = new Map([[collection.name, { collection, fields: [], filter: request.filter }]])
  const asked = { followed, named: [collection.name], scoped: scopesRows(deps, request) }
  const round = { from: from.snapshot, upTo: to.snapshot }
  return (await disturbedCollections(deps, access, asked, round)).length > 0
}

export type Snapshots = {
  /**
   * Sends the rows that the subscriber may read, in pieces, as fast as the client takes them, all as of one moment:
   * `at` is that moment. Undefined when the client is too slow or the subscription has ended. Throws AppError 400 when
   * there are more than QUERY_MAX_LIMIT.
   */
  send(subscriber: Subscriber): Promise<{ at: Cursor; rows: number } | undefined>
}

type SnapshotRow = { readonly data: string }

/** Each holds a connection and an old snapshot of the database. */
const snapshotsAtOnce = 2
const longestMs = 60_000
/** Characters of one message. */
const pieceSize = 200_000

export function openSnapshots(
  deps: RealtimeReads,
  outbox: Outbox,
  isOpen: (subscriber: Subscriber) => boolean,
): Snapshots {
  const semaphore = openSemaphore(snapshotsAtOnce)
  const read = async (subscriber: Subscriber) => {
    const signal = AbortSignal.timeout(longestMs)
    const { batches, first } = await withFreshCatalog(deps.catalog, () =>
      openRows(deps, rowsOf(deps, subscriber), signal),
    )
    let whole = false
    try {
      const pieces = openPieces(subscriber, outbox, factsOf(deps, subscriber))
      for (let rows = first; rows.length > 0; rows = await batches.next()) {
        pieces.add(rows)
        refuseTooMany(deps, pieces.count())
        const goesOn = isOpen(subscriber) && (await outbox.drained(subscriber.socket)) && !signal.aborted
        if (!goesOn) return undefined
      }
      const [now] = await batches.query<{ snapshot: string }>(`select ${momentSql} as snapshot`, [])
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
function rowsOf(deps: Clock & Configuration & CurrentCatalog, { access, request }: Subscriber): Statement {
  const catalog = deps.catalog.current()
  const fields = fieldsOf(catalog, access, request).map(({ name }) => name)
  const query = { ...parseListQuery({ limit: -1 }), fields, filter: request.filter }
  const env = { ...resolveEnv(deps), maxLimit: undefined }
  return compileStream(resolveList(catalog, access, request.collection, query, env))
}

/**
 * A client keeps the rows by these itself: by what tells them apart, by which texts are numbers in an order, and by which fields
 * are compared otherwise than by their code points.
 */
type RowFacts = {
  readonly key: string
  readonly numbers: readonly string[]
  readonly orders?: Readonly<Record<string, FieldOrder>>
}

/** `none`: the field has no order, or none that its form in an answer shows. */
type FieldOrder = 'caseless' | 'date' | 'time' | 'none'

function factsOf({ catalog }: CurrentCatalog, { access, request }: Subscriber): RowFacts {
  const fields = fieldsOf(catalog.current(), access, request)
  const key = catalog.current().collections.get(request.collection)!.primaryKey.name
  const numbers = fields.filter(({ kind }) => numberKinds.has(kind)).map(({ name }) => name)
  const orders = fields.flatMap((field) => {
    const order = orderOf(field)
    return order === undefined ? [] : [[field.name, order] as const]
  })
  return { key, numbers, ...(orders.length > 0 && { orders: Object.fromEntries(orders) }) }
}

const numberKinds: ReadonlySet<Kind> = new Set(['integer', 'bigint', 'decimal', 'float'])
const unordered: ReadonlySet<Kind> = new Set(['json', 'geometry', 'geography', 'vector', 'array', 'range'])
/** Their years may have more than four digits. */
const dates: ReadonlySet<Kind> = new Set(['date', 'datetime', 'datetime_no_tz'])

function orderOf({ kind, pgType }: Field): FieldOrder | undefined {
  if (unordered.has(kind)) return 'none'
  if (kind === 'time') return 'time'
  if (dates.has(kind)) return 'date'
  return kind === 'text' && pgType === 'citext' ? 'caseless' : undefined
}

async function openRows({ db }: Reads, { text, values }: Statement, signal: AbortSignal) {
  const batches: BatchReader<SnapshotRow> = await openBatches<SnapshotRow>(db, text, values, signal)
  try {
    return { batches, first: await batches.next() }
  } catch (error) {
    await batches.close(true)
    throw error
  }
}

function refuseTooMany({ config }: Configuration, rows: number): void {
  const { maxLimit } = config.query
  if (maxLimit !== undefined && rows > maxLimit)
    throw new AppError(400, `There are more than ${maxLimit} rows: subscribe with a filter`)
}

/**
 * Collects rows into messages of a bearable size; the first one has the facts, and the last one, perhaps empty, says that
 * nothing more comes.
 */
function openPieces({ socket, request: { collection } }: Subscriber, outbox: Outbox, facts: RowFacts) {
  let texts: string[] = []
  let size = 0
  let index = 0
  let count = 0
  const send = (more: boolean) => {
    const data = texts.map((text) => JSON.parse(text))
    const piece = { collection, index, data, more, ...(index === 0 && facts) }
    outbox.send([socket], `${collection}:snapshot`, piece)
    index += 1
    texts = []
    size = 0
  }
  return {
    add: (rows: readonly SnapshotRow[]) => {
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
