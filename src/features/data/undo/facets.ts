import { admitted } from '../../../admission/lane.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { rawQuery } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import type { Access } from '../../../query/access.ts'
import { createParams } from '../../../query/sql.ts'
import { type LogSight, sightOf, type UndoReads } from './queries.ts'
import { checkFilter, isTime, type RequestFilter } from './requests.ts'

/** Counts of the events in a period, for a search in the log. */

type FacetFilter = Pick<RequestFilter, 'actor' | 'from' | 'to' | 'collection' | 'action' | 'tenant' | 'agent'> & {
  readonly buckets?: number
}

type FacetName = 'collection' | 'action' | 'actor' | 'tenant' | 'agent'
type FacetValue = { readonly value: string | null; readonly events: number }

type Facets = {
  readonly from: string
  readonly to: string
  /** Of one bar of the histogram. */
  readonly bucketMs: number
  readonly events: number
  readonly histogram: readonly { readonly at: string; readonly events: number }[]
  /** By name; without those that the caller may not read. */
  readonly facets: Partial<Record<FacetName, readonly FacetValue[]>>
  /** False where there are more events than are looked at: then the counts are of those since `since`. */
  readonly complete: boolean
  readonly since: string
}

/** One statement looks at so many events at most, the newest, by the index of times. */
const eventsAtMost = 200_000
const valuesAtMost = 50
const dayMs = 86_400_000
const defaultBuckets = 60

/** Column of the log, and field of svc_AuditLog that the caller must be allowed to read. */
const dimensions: readonly { readonly name: FacetName; readonly sql: string; readonly field: string }[] = [
  { name: 'collection', sql: 'l.entity', field: 'entity' },
  { name: 'action', sql: 'l.action', field: 'action' },
  { name: 'actor', sql: 'l."userId"::text', field: 'userId' },
  { name: 'tenant', sql: 'l."tenant_Id"::text', field: 'tenant_Id' },
  { name: 'agent', sql: `l.agent->>'name'`, field: 'agent' },
]

/**
 * `GET /log/facets`: how many events there are between two times (the last day without them), by their values and over time.
 * Each facet counts what the filters of the *others* leave, so that it offers what one could choose instead.
 */
export async function readFacets(deps: UndoReads, access: Access, filter: FacetFilter): Promise<Facets> {
  const sight = sightOf(deps, access)
  checkFilter(filter)
  const range = rangeOf(filter, deps.clock())
  const open = dimensions.filter(({ field }) => sight.names.has(field))
  const hidden = dimensions.find(({ name, field }) => filter[name] !== undefined && !sight.names.has(field))
  if (hidden !== undefined) throw errors.fieldDenied('read', hidden.field)
  const { text, values } = facetsStatement(sight, open, filter, range)
  const [row] = await admitted(deps.admission, { shape: 'facets of the log', presumed: 'heavy' }, () =>
    deps.db.any<FacetRow>(rawQuery(text, [...values])),
  )
  const { looked, oldest, events, bars, ...facets } = row!
  const isComplete = looked <= eventsAtMost
  return {
    from: new Date(range.from).toISOString(),
    to: new Date(range.to).toISOString(),
    bucketMs: range.bucketMs,
    events,
    histogram: histogramOf(range, bars),
    facets: Object.fromEntries(open.map(({ name }) => [name, facets[name] ?? []])),
    complete: isComplete,
    since: isComplete || oldest === null ? new Date(range.from).toISOString() : oldest,
  }
}

type FacetRow = {
  readonly looked: number
  readonly oldest: string | null
  readonly events: number
  readonly bars: readonly { readonly bar: number; readonly events: number }[] | null
} & Partial<Record<FacetName, readonly FacetValue[]>>

type TimeRange = { readonly from: number; readonly to: number; readonly bucketMs: number; readonly buckets: number }

function rangeOf({ from, to, buckets = defaultBuckets }: FacetFilter, now: Date): TimeRange {
  const end = to === undefined ? now.getTime() : Date.parse(to)
  const start = from === undefined ? end - dayMs : Date.parse(from)
  if (start >= end) throw errors.badQuery('from: must be before to')
  const bucketMs = Math.max(1, Math.ceil((end - start) / buckets))
  return { from: start, to: end, bucketMs, buckets: Math.ceil((end - start) / bucketMs) }
}

function histogramOf({ from, bucketMs, buckets }: TimeRange, bars: FacetRow['bars']): Facets['histogram'] {
  const counts = new Map((bars ?? []).map(({ bar, events }) => [bar, events]))
  return Array.from({ length: buckets }, (_, bar) => ({
    at: new Date(from + bar * bucketMs).toISOString(),
    events: counts.get(bar) ?? 0,
  }))
}

function facetsStatement(
  sight: LogSight,
  open: typeof dimensions,
  filter: FacetFilter,
  { from, to, bucketMs }: TimeRange,
) {
  const params = createParams()
  const time = (ms: number) => params.bind(new Date(ms).toISOString(), 'timestamptz')
  const start = time(from)
  const wanted = dimensions.filter(({ name }) => filter[name] !== undefined)
  const passes = new Map(
    wanted.map(({ name, sql }) => [name, `coalesce(${sql} = ${params.bind(filter[name] ?? null, 'text')}, false)`]),
  )
  const columns = open.map(({ name, sql }) => `${sql} as "${name}"`)
  const flags = wanted.map(({ name }) => `${passes.get(name)} as "is_${name}"`)
  const allBut = (left?: FacetName) =>
    wanted
      .filter(({ name }) => name !== left)
      .map(({ name }) => `"is_${name}"`)
      .join(' and ') || 'true'
  const facet = ({ name }: (typeof dimensions)[number]) => `(select json_agg(f) from (
      select "${name}" as value, count(*)::int as events from looked where ${allBut(name)}
      group by 1 order by 2 desc, 1 limit ${valuesAtMost}) f) as "${name}"`
  const text = `with looked as materialized (
      select ${[`floor(extract(epoch from l."createdAt" - ${start}) * 1000 / ${params.bind(bucketMs, 'float8')})::int as bar`, 'l."createdAt" as at', ...columns, ...flags].join(', ')}
      from "${logTable}" l where l."createdAt" >= ${start} and l."createdAt" < ${time(to)} and ${sight.where(params)}
      order by l."createdAt" desc limit ${eventsAtMost + 1})
    select (select count(*)::int from looked) as looked,
      (select to_char(min(at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') from looked) as oldest,
      (select count(*)::int from looked where ${allBut()}) as events,
      (select json_agg(b) from (select bar, count(*)::int as events from looked where ${allBut()} group by 1) b) as bars
      ${open.map((one) => `, ${facet(one)}`).join('')}`
  return { text, values: params.values }
}

/** Moments at which something changed: the steps for a reader who goes through the past with `asOf`. */

type MomentsQuery = {
  /** Names by commas. */
  readonly collections: string
  /** Of one item; needs a single collection. */
  readonly item?: string
  /** Now unless given. */
  readonly at?: string
}

/** Times with microseconds, for `asOf`. */
type Moments = {
  /** The change that made what is there at the time, and those before and after it. */
  readonly at: string | null
  readonly before: string | null
  readonly after: string | null
}

/**
 * `GET /log/moments`: the moment of the last change up to a time, and the moments of the changes before and after it. A change is all
 * that one transaction did to the collections, at the moment of its last event, so that no moment shows half of it. 403
 * without the permission to read `svc_AuditLog`, whose rule holds.
 */
export async function readMoments(deps: UndoReads, access: Access, query: MomentsQuery): Promise<Moments> {
  const sight = sightOf(deps, access)
  const closed = ['createdAt', 'entity', ...(query.item === undefined ? [] : ['entityId'])].find(
    (name) => !sight.names.has(name),
  )
  if (closed !== undefined) throw errors.fieldDenied('read', closed)
  const collections = query.collections.split(',').filter((name) => name !== '')
  if (collections.length === 0) throw errors.badQuery('collections: name at least one')
  if (query.item !== undefined && collections.length > 1) throw errors.badQuery('item: needs a single collection')
  const at = query.at ?? deps.clock().toISOString()
  if (!isTime(at)) throw errors.badQuery('at: expected a time')
  const { text, values } = momentsStatement(sight, { collections, item: query.item, at })
  const [row] = await admitted(deps.admission, { shape: 'moments of the log', presumed: 'heavy' }, () =>
    deps.db.any<MomentsRow>(rawQuery(text, [...values])),
  )
  return momentsOf(row!)
}

type MomentsRow = {
  readonly asked: string
  /** The newest event up to the time, and the first and last one of its transaction. */
  readonly event: string | null
  readonly last: string | null
  readonly earlier: string | null
  readonly later: string | null
}

function momentsOf({ asked, event, last, earlier, later }: MomentsRow): Moments {
  // Of one format and zone, so that they compare as texts.
  const isWhole = last !== null && last <= asked
  const at = isWhole ? last : event
  // Where events are shown their times have milliseconds: the time of a change may be said so.
  const isThere = at !== null && at.slice(0, 23) === asked.slice(0, 23)
  return { at, before: isThere || !isWhole ? earlier : at, after: later }
}

type MomentsRequest = {
  readonly collections: readonly string[]
  readonly item: string | undefined
  readonly at: string
}

/** Finds events by time, and what else their transactions did by transaction: both have an index. */
function momentsStatement(sight: LogSight, { collections, item, at }: MomentsRequest) {
  const params = createParams()
  const asked = params.bind(at, 'timestamptz')
  const ofItem = item === undefined ? '' : ` and l."entityId" = ${params.bind(item, 'text')}`
  const from = `from "${logTable}" l where l.type = 'data' and l.entity = any(${params.bind(collections, 'text[]')})${ofItem} and ${sight.where(params)}`
  const text = `with event as materialized (
      select l.xid, l."createdAt" ${from} and l."createdAt" <= ${asked} order by l."createdAt" desc limit 1),
    change as materialized (
      select min(l."createdAt") as first, max(l."createdAt") as last ${from} and l.xid = (select xid from event)),
    earlier as materialized (
      select l.xid ${from} and l."createdAt" < (select first from change) order by l."createdAt" desc limit 1),
    later as materialized (
      select l.xid ${from} and l."createdAt" > ${asked} order by l."createdAt" limit 1)
    select ${wire(asked)} as asked,
      ${wire('(select "createdAt" from event)')} as event, ${wire('(select last from change)')} as last,
      ${wire(`(select max(l."createdAt") ${from} and l.xid = (select xid from earlier) and l."createdAt" < (select first from change))`)} as earlier,
      ${wire(`(select max(l."createdAt") ${from} and l.xid = (select xid from later) and l."createdAt" > ${asked})`)} as later`
  return { text, values: params.values }
}

const wire = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
