/**
 * Reading the log in rounds. A round reads what became visible between two snapshots, by position: nothing
 * is lost, nothing comes twice, and per record the order is the order of the writes.
 *
 * Only the primary can be read: on a standby `pg_current_snapshot()` does not list the running transactions. Nor may the
 * reader's own transaction have written: its snapshots would show its events before they are committed.
 */

import { logSchema, logTable } from '../catalog/log-triggers.ts'
import { type Cursor, cursorAt, eventCursors, momentSql, parseSnapshot, type Snapshot } from './cursor.ts'
import { bytesFrom, eventIdSql, positionsIn, timeSql } from './log.ts'

/** Runs a statement; pg's pool and client both fit. */
export type LogDb = {
  // biome-ignore lint/suspicious/noExplicitAny: the rows of a driver have the shape of the statement
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>
}

/** An event without its images, which are read by position, in SQL, through the projection of a read. */
export type LogEvent = {
  /** bigint as text. */
  readonly position: string
  /** The transaction that wrote it. */
  readonly xid: string
  /** `data` for row changes, otherwise the group of a domain event, e.g. `auth`. */
  readonly type: string
  readonly entity: string
  readonly entityId: string | null
  readonly action: string
  readonly userId: string | null
  readonly tenantId: string | null
  /** ISO 8601 in UTC with milliseconds; in a brief page its day alone. */
  readonly createdAt: string
  /** Encoded: after this event, for a reader of round after round. */
  readonly cursor: string
}

export type LogPage =
  | {
      readonly resync: false
      readonly events: readonly LogEvent[]
      /** Where to continue. */
      readonly cursor: Cursor
      /** Whether to read on at once: the round may have further pages, or the cursor was of an event of an earlier one. */
      readonly more: boolean
      /** Of a brief page. */
      readonly summarized?: Summarized | undefined
    }
  /** Some of what the cursor's holder has not seen is gone or unknown; `cursor` is where to go on after reading the state. */
  | { readonly resync: true; readonly cursor: Cursor }

export type PullOptions = {
  /** Events of these collections only; default all. */
  collections?: readonly string[] | undefined
  /** Events per page, default 1000. */
  limit?: number
  /** Ends the round at this snapshot (`pg_snapshot` text) instead of now; it must include the cursor's. */
  upTo?: string | undefined
  /** Only that there were events and on which day, the rest of them being empty; and this summary of them. */
  brief?: Summary | undefined
}

/** An event in a brief page. */
export type BriefEvent = Pick<LogEvent, 'position' | 'createdAt'>

/** A reader's own columns over the events of a brief page, made by the statement that finds them. */
export type Summary = {
  /** SQL of a value for an event `e`, from the reader's own parameters; null where the event is to have none. */
  readonly each: (parameters: readonly string[]) => string
  /** SQL of columns by name: aggregates of `value` over the events of a run, ordered by `position`. */
  readonly ofRun: Readonly<Record<string, string>>
  /** SQL of a text that is read with them. */
  readonly once: string
  readonly values: readonly unknown[]
  /** Events at most in a run. */
  readonly runLength: number
}

/** A summary as the statement has made it, with the columns of its `ofRun` in each run. */
export type Summarized = { readonly once: string | null; readonly runs: readonly EventRun[] }

/** Events of one day of UTC that are close to each other. */
export type EventRun = {
  /** YYYY-MM-DD. */
  readonly day: string
  readonly first: string
  readonly last: string
  readonly count: number
  /** 8 bytes each, in order; null where none is missing between the first and the last. */
  readonly positions: Buffer | null
  /** The time of the youngest: ISO 8601 in UTC with microseconds. */
  readonly latest: string
  /** Whether each has a value. */
  readonly isComplete: boolean
  readonly [column: string]: unknown
}

/** The positions of the events of a run, in order, as {@link bytesOfPositions}. */
export function positionsOf({ first, count, positions }: Pick<EventRun, 'first' | 'count' | 'positions'>): Buffer {
  return positions ?? bytesFrom(BigInt(first), count)
}

/**
 * One page of a round: call again with the returned cursor, at once while `more`, later for the next round.
 * Each page is one statement, so its events and its snapshot belong together.
 */
export async function pullRound(db: LogDb, cursor: Cursor, options: PullOptions = {}): Promise<LogPage> {
  const request = toRequest(cursor, options)
  return (await nextOfDenseRound(db, request)) ?? (await nextOfRound(db, request))
}

/** Events by their positions, those that are kept; each with a cursor that all before its transaction has been seen at. */
export async function readEvents(db: LogDb, positions: readonly string[]): Promise<LogEvent[]> {
  const { rows } = await db.query(
    `select ${eventColumns} from "${logTable}" e
     where e.id = any(array(select ${eventIdSql('p')} from unnest($1::bigint[]) p)) order by e.position`,
    [positions],
  )
  return rows.map((row: Omit<LogEvent, 'cursor'>) => {
    const next = BigInt(row.xid) + 1n
    return { ...row, cursor: eventCursors(`${row.xid}:${row.xid}:`, `${next}:${next}:`)(row.position) }
  })
}

/** The cursor of a reader that knows the state of this moment; take it before reading that state. */
export async function currentCursor(db: LogDb): Promise<Cursor> {
  const { rows } = await db.query(`select ${momentSql} as moment`)
  return cursorAt(rows[0].moment)
}

/** When the oldest event that is kept was written, ISO 8601 in UTC; null when there is none. */
export async function oldestMoment(db: LogDb): Promise<string | null> {
  const { rows } = await db.query(`select min("createdAt") as oldest from "${logTable}"`)
  const oldest: Date | null = rows[0].oldest
  return oldest === null ? null : oldest.toISOString()
}

type Request = {
  readonly kind: Cursor['kind']
  readonly from: string
  readonly upTo: string | undefined
  readonly position: string
  readonly collections: readonly string[] | undefined
  readonly limit: number
  readonly brief: Summary | undefined
  readonly lineage: string | undefined
}

function toRequest(cursor: Cursor, { collections, limit = 1000, upTo, brief }: PullOptions): Request {
  const { kind, snapshot: from, upTo: end, position, lineage } = cursor
  const start = { kind, from, collections, limit, brief, lineage }
  return end === undefined ? { ...start, upTo, position: '0' } : { ...start, upTo: end, position }
}

/** Of a large round, what is new follows closely in position; undefined where that does not fill a page. */
async function nextOfDenseRound(db: LogDb, request: Request): Promise<LogPage | undefined> {
  const { from, upTo, position, collections, limit } = request
  if (upTo === undefined || position === '0') return undefined
  for (const lookedAt of collections === undefined ? [limit * 1.25, limit * 4] : [limit * 4]) {
    const { rows } = await runPage(db, densePage, request, [
      upTo,
      from,
      position,
      Math.ceil(lookedAt),
      collections ?? null,
      mostFound(request),
    ])
    const events = eventsOf(request, rows)
    if (events.length === mostFound(request)) return toPage(request, rows, events)
  }
  return undefined
}

/**
 * By one event more than a page may have it is known that there is another page. Runs have no event too many, so that after a full
 * brief page an empty one may come.
 */
const mostFound = ({ brief, limit }: Request): number => (brief === undefined ? limit + 1 : limit)

function runPage(db: LogDb, page: Pages, { brief }: Request, values: readonly unknown[]) {
  if (brief === undefined) return db.query(page.whole, [...values])
  const own = brief.values.map((_, i) => `$${values.length + 1 + i}`)
  return db.query(page.brief(brief, own), [...values, ...brief.values])
}

async function nextOfRound(db: LogDb, request: Request): Promise<LogPage> {
  const { from, upTo, position, collections } = request
  const unseen = unseenValues(parseSnapshot(from)!)
  const end = upTo === undefined ? null : parseSnapshot(upTo)!.xmax.toString()
  const { rows } = await runPage(db, pageOfRound, request, [
    ...[upTo ?? null, ...unseen, position],
    ...[collections ?? null, mostFound(request), end],
  ])
  return toPage(request, rows, eventsOf(request, rows))
}

type RoundRow = { readonly upTo: string; readonly removed: string; readonly now: string; readonly lineage: string }
type EventOfRound = RoundRow & Omit<LogEvent, 'cursor' | 'position'> & { position: string | null }
type BriefRow = RoundRow & { readonly once: string | null } & (EventRun | { readonly day: null })

/** `found`: as many as {@link mostFound}, where it may not be the last page of its round. */
function toPage(request: Request, rows: readonly RoundRow[], found: readonly LogEvent[]): LogPage {
  const { kind, from, limit, lineage: known } = request
  const { upTo, removed, now, lineage } = rows[0]!
  const isOther = known !== undefined && known !== lineage
  if (isOther || BigInt(removed) >= parseSnapshot(from)!.xmin || !hasHappened(from, now) || !hasHappened(upTo, now))
    return { resync: true, cursor: { ...cursorAt(now), lineage } }
  const events = found.slice(0, limit)
  const page = {
    resync: false,
    events,
    summarized: request.brief && toSummarized(rows as readonly BriefRow[]),
  } as const
  if (found.length < mostFound(request))
    return { ...page, cursor: { ...cursorAt(upTo), lineage }, more: kind === 'event' }
  const cursor = { kind, snapshot: from, upTo, position: events.at(-1)!.position, lineage }
  return { ...page, cursor, more: true }
}

const toSummarized = (rows: readonly BriefRow[]): Summarized => ({ once: rows[0]!.once, runs: rows.filter(isRun) })

const isRun = <Row extends BriefRow>(row: Row): row is Row & EventRun => row.day !== null

/** A place that was kept over a failover or `pg_restore` may name transactions that this server has yet to begin. */
function hasHappened(snapshot: string, now: string): boolean {
  return parseSnapshot(snapshot)!.xmax <= parseSnapshot(now)!.xmax
}

function eventsOf({ from, brief }: Request, rows: readonly (EventOfRound | BriefRow)[]): readonly LogEvent[] {
  if (brief) return toBriefEvents(rows as readonly BriefRow[])
  const cursorOf = eventCursors(from, rows[0]!.upTo, rows[0]!.lineage)
  return (rows as readonly EventOfRound[]).flatMap(
    ({ upTo: _upTo, removed: _removed, now: _now, lineage: _lineage, ...row }) =>
      row.position === null ? [] : [{ ...row, position: row.position, cursor: cursorOf(row.position) }],
  )
}

function toBriefEvents(rows: readonly BriefRow[]): readonly LogEvent[] {
  const runs = rows.filter(isRun)
  const events = runs.flatMap((run) => positionsIn(positionsOf(run)).map((position) => briefly(position, run.day)))
  // Those of two days may be in between each other.
  return runs.some(({ day }) => day !== runs[0]!.day) ? events.sort(byPosition) : events
}

/** The members that a brief page leaves out are empty. */
const briefly = (position: string, createdAt: string): LogEvent => ({
  position,
  createdAt,
  xid: '',
  type: '',
  entity: '',
  entityId: null,
  action: '',
  userId: null,
  tenantId: null,
  cursor: '',
})

/** Of two numbers as text the longer one is the greater. */
const byPosition = ({ position: a }: LogEvent, { position: b }: LogEvent): number =>
  a.length - b.length || (a < b ? -1 : 1)

/**
 * Events that are not visible in a snapshot, spelled as its definition: of a transaction that began after it, or was
 * running. Each of the two is a range of the index on xid. The feed, `/changes`, the consumers and the cache all find
 * new events by it. `$later` and `$running` are the parameters of {@link unseenValues}.
 */
export const unseenSql = {
  later: (xid: string, parameter: string) => `${xid} >= ${parameter}::xid8`,
  running: (xid: string, parameter: string) => `${xid} = any(${parameter}::xid8[])`,
} as const

/** The values of {@link unseenSql} for a snapshot. */
export function unseenValues({
  xmax,
  running,
}: Pick<Snapshot, 'xmax' | 'running'>): [later: string, running: string[]] {
  return [String(xmax), running.map(String)]
}

/** The columns of an event that a reader gets. */
const createdAtColumn = `to_char(e."createdAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt"`
const eventColumns = `e.position::text, e.xid::text, e.type, e.entity, e."entityId", e.action, e."userId", e."tenant_Id" as "tenantId",
  ${createdAtColumn}`

/** The beginning of its day in UTC: arithmetic, where a time zone would be looked up for each event. */
const dayOfEvent = `date_bin('1 day', "createdAt", '2000-01-01 00:00:00+00')`

/**
 * Both statements find the same events, each by an index of its own, and leave the planner no other: its estimates for
 * the newest transactions are poor, and a round of three events read by id walks the whole log.
 *
 * By transaction, see {@link unseenSql}. With `xid >= xmin`, one long transaction would make every round read all since its start; without
 * an end of the range, a reader in the middle of a round would read all since then.
 */
const pageOfRound = pages(
  `where (${unseenSql.later('e.xid', '$2')} and e.xid < coalesce($7::xid8, '18446744073709551615') or ${unseenSql.running('e.xid', '$3')})
    and e.position > $4::bigint`,
  'e.position',
)

/**
 * By id, which is in the order of the positions, looking at no more than `$4` events, all of which it sorts: for a round of half a
 * million, whose pages would each sort the rest.
 */
const densePage = pages(
  `where not pg_visible_in_snapshot(e.xid, $2::pg_snapshot)
    and e.id > ${eventIdSql('$3::bigint')} and e.id <= ${eventIdSql('$3::bigint + $4::int')}`,
  'e.id',
)

type Pages = {
  readonly whole: string
  readonly brief: (summary: Summary, parameters: readonly string[]) => string
}

function pages(where: string, order: string): Pages {
  const round = `round as materialized (
  select coalesce($1::pg_snapshot, pg_current_snapshot()) as up_to, (select removed from ${logSchema}.floor) as removed,
    ${logSchema}."$lineage"() as lineage
)`
  const found = (columns: string) => `select ${columns}
  from "${logTable}" e, round
  ${where}
    and pg_visible_in_snapshot(e.xid, round.up_to)
    and ($5::text[] is null or e.entity = any($5))`
  const ofRound = `round.up_to::text as "upTo", pg_current_snapshot()::text as now, coalesce(round.removed, '0')::text as removed,
    round.lineage`
  return {
    whole: `with ${round}, page as (
  ${found(eventColumns)}
  order by ${order}
  limit $6
)
select ${ofRound}, page.*
from round left join page on true
order by page.position::bigint`,
    // In a subquery of its own: else what an event is made of would be sorted instead of its value.
    brief: ({ each, ofRun, once, runLength }, parameters) => `with ${round}, page as (
  select * from (
    ${found(`e.id, e.position, e."createdAt", ${each(parameters)} as value`)}
    ${order === 'e.id' ? 'order by e.id' : ''} offset 0
  ) e
  order by ${order}
  limit $6
), run as (
  select ${dayOfEvent} as start, min(position) as first, max(position) as last, count(*)::int as count, max("createdAt") as latest,
    count(value) = count(*) as "isComplete", string_agg(int8send(position), '' order by position) as positions,
    ${Object.entries(ofRun)
      .map(([name, sql]) => `${sql} as "${name}"`)
      .join(', ')}
  from page group by 1, position / ${runLength}
)
select ${ofRound}, (${once}) as once, run.first::text as first, run.last::text as last, run.count,
  to_char(run.start at time zone 'UTC', 'YYYY-MM-DD') as day, ${timeSql('run.latest')} as latest,
  case when run.last - run.first + 1 > run.count then run.positions end as positions, run."isComplete",
  ${Object.keys(ofRun)
    .map((name) => `run."${name}"`)
    .join(', ')}
from round left join run on true
order by run.first`,
  }
}
