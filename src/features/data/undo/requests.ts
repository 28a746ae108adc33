import { hash } from 'node:crypto'
import { logFieldsOf, requireLogFields } from '../../../access/log-fields.ts'
import { admitted } from '../../../admission/lane.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Agent, Cause } from '../../../events/types.ts'
import { isUuid } from '../../../language/text.ts'
import type { Access } from '../../../query/access.ts'
import { createParams, type Params } from '../../../query/sql.ts'
import {
  causedBy,
  isRequestId,
  type LogSight,
  madeAt,
  requestWindow,
  sightOf,
  transactionAt,
  type UndoReads,
  wireTime,
} from './queries.ts'
import { positionOf, unknownRequest } from './undo.ts'

/**
 * The requests of the log: events that were caused together. Callers who may read svc_AuditLog see them, within the
 * rule and the fields of that permission.
 */

type RequestFilter = {
  readonly actor?: string
  readonly from?: string
  readonly to?: string
  readonly collection?: string
  readonly action?: string
  readonly tenant?: string
  readonly requestId?: string
  readonly agent?: string
  readonly cause?: string
  readonly limit?: number
  readonly cursor?: string
}

/** Where a list goes on: before this event, without the requests (by {@link markOf}) that were listed and may have older events. */
type RequestCursor = { readonly at: string; readonly position: string; readonly seen: readonly string[] }

/** Without what comes from fields of svc_AuditLog that the caller may not read. */
type RequestEntry = {
  readonly requestId?: string | null
  readonly position: string
  readonly clientRequestId?: string | null
  readonly at?: string
  readonly until?: string
  readonly userId?: string | null
  readonly tenant_Id?: string | null
  readonly ipaddress?: string | null
  readonly agent?: Agent | null
  readonly cause?: Cause | null
  readonly events: number
  readonly counts?: readonly { readonly collection?: string; readonly action?: string; readonly events: number }[]
}

const defaultLimit = 25
/** Events that one statement looks at, and how many such a page may take: a filter that finds little ends a page early. */
const eventsPerLook = 5_000
const mostLooks = 20

/**
 * `GET /log/requests`: the newest first; `nextCursor` is null at the end. A page may be short, or even empty, before it. 403
 * for filters by fields that the caller may not read, and without `createdAt`, which orders the list and is in its cursors.
 */
export async function listRequests(
  deps: UndoReads,
  access: Access,
  filter: RequestFilter,
): Promise<{ readonly data: readonly RequestEntry[]; readonly nextCursor: string | null }> {
  const sight = sightOf(deps, access)
  const limit = filter.limit ?? defaultLimit
  const start = filter.cursor === undefined ? undefined : readPlace(filter.cursor)
  checkFilter(filter)
  requireLogFields(sight.names, ['createdAt', ...logFieldsOf(filter)])
  const listed = new Set(start?.seen)
  return admitted(deps.admission, { shape: 'requests of the log', presumed: 'heavy' }, async () => {
    let place = start
    const found = new Map<string, RequestGroup>()
    let isEnd = false
    for (let look = 0; look < mostLooks && found.size < limit && !isEnd; look += 1) {
      const groups = await nextGroups(deps.db, sight, filter, place)
      isEnd = groups.length === 0
      for (const group of groups) {
        const isKnown = found.has(group.key) || (listed.size > 0 && listed.has(markOf(group.key)))
        if (isKnown || group.isSeen) place = group.last
        else if (found.size === limit) break
        else {
          found.set(group.key, group)
          place = group.last
        }
      }
      const rest = groups.at(-1)
      if (found.size < limit && rest !== undefined) place = rest.place
    }
    const data = (await detailsOf(deps.db, sight, [...found.values()])).map(({ entry }) => entry)
    if (isEnd || place === undefined) return { data, nextCursor: null }
    // A request began when its id was made: what began later has no event further on.
    const began = Date.parse(place.at)
    const marks = [...found.keys()].filter((key) => isUuid(key)).map(markOf)
    const seen = [...listed, ...marks].filter((mark) => madeAt(mark) <= began)
    return { data, nextCursor: writePlace({ ...place, seen }) }
  })
}

/** Names a request in a cursor: by its time and, for the rest of its id, which a caller need not be shown, a digest. */
function markOf(id: string): string {
  const digest = hash('sha256', id)
  return `${id.slice(0, 14)}${digest.slice(0, 4)}-${digest.slice(4, 8)}-${digest.slice(8, 20)}`
}

const writePlace = (place: RequestCursor): string => Buffer.from(JSON.stringify(place)).toString('base64url')

function readPlace(cursor: string): RequestCursor {
  try {
    const place = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    const { at, position, seen } = place as RequestCursor
    const isSound =
      !Number.isNaN(Date.parse(at)) && /^\d{1,18}$/.test(position) && Array.isArray(seen) && seen.every(isUuid)
    if (isSound) return { at, position, seen }
  } catch {
    // Falls through to the refusal.
  }
  throw errors.badQuery('cursor: expected the nextCursor of the page before')
}

function checkFilter({ actor, tenant, cause, from, to }: RequestFilter): void {
  for (const [name, value] of Object.entries({ actor, tenant, cause }))
    if (value !== undefined && !isUuid(value)) throw errors.badQuery(`${name}: expected an id`)
  for (const [name, value] of Object.entries({ from, to }))
    if (value !== undefined && !isTime(value)) throw errors.badQuery(`${name}: expected a time`)
}

/** A day, or a time of one, that JavaScript and PostgreSQL read alike. */
const isTime = (text: string): boolean => /^\d{4}-\d\d-\d\d/.test(text) && !Number.isNaN(Date.parse(text))

/** A request, or a transaction of none, as it was met. `last` is its newest event, `place` the oldest that was looked at. */
type RequestGroup = {
  readonly key: string
  readonly requestId: string | null
  readonly xids: readonly string[]
  readonly last: RequestCursor
  readonly place: RequestCursor
  /** It has newer events that are wanted than those looked at: a page before this one has listed it. */
  readonly isSeen: boolean
}

async function nextGroups(
  db: Reader,
  sight: LogSight,
  filter: RequestFilter,
  place: RequestCursor | undefined,
): Promise<readonly RequestGroup[]> {
  const params = createParams()
  const at = params.bind(place?.at ?? 'infinity', 'timestamptz')
  const position = params.bind(place?.position ?? '9223372036854775807', 'bigint')
  const wanted = [sight.where(params), ...filterSql(filter, params)].join(' and ')
  const rows = await db.any<{
    key: string
    requestId: string | null
    xids: string[]
    lastAt: string
    lastPosition: string
    endAt: string
    endPosition: string
    isSeen: boolean
  }>(
    rawQuery(
      `with looked as materialized (
         select l.position, l."createdAt", l.xid, l."logRequestId" as request, coalesce(l."logRequestId"::text, l.xid::text) as key
         from "${logTable}" l where (l."createdAt", l.position) < (${at}, ${position}) and ${wanted}
         order by l."createdAt" desc, l.position desc limit ${params.bind(eventsPerLook, 'int')}),
       groups as (
         select key, min(request::text) as request, array_agg(distinct xid) as xids, max("createdAt") as at,
           (array_agg(position order by "createdAt" desc, position desc))[1] as position
         from looked group by key)
       select g.key, g.request as "requestId", g.xids::text[] as xids, to_char(g.at at time zone 'UTC', ${iso}) as "lastAt",
         g.position::text as "lastPosition", e."endAt", e."endPosition",
         exists (select from "${logTable}" l where l.xid = any(g.xids) and coalesce(l."logRequestId"::text, l.xid::text) = g.key
           and (l."createdAt", l.position) >= (${at}, ${position}) and ${wanted}) as "isSeen"
       from groups g cross join (select to_char("createdAt" at time zone 'UTC', ${iso}) as "endAt", position::text as "endPosition"
         from looked order by "createdAt", position limit 1) e
       order by g.at desc, g.position desc`,
      params.values,
    ),
  )
  return rows.map(({ lastAt, lastPosition, endAt, endPosition, ...group }) => ({
    ...group,
    last: { at: lastAt, position: lastPosition, seen: [] },
    place: { at: endAt, position: endPosition, seen: [] },
  }))
}

/** With microseconds, so that it names an event's own time. */
const iso = `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'`

function filterSql(filter: RequestFilter, params: Params): string[] {
  const { actor, from, to, collection, action, tenant, requestId, agent, cause } = filter
  const is = (column: string, value: string | undefined, type: string) =>
    value === undefined ? [] : [`l.${column} = ${params.bind(value, type)}`]
  return [
    ...is('"userId"', actor, 'uuid'),
    ...is('entity', collection, 'text'),
    ...is('action', action, 'text'),
    ...is('"tenant_Id"', tenant, 'uuid'),
    ...is('"requestId"', requestId, 'text'),
    ...(agent === undefined ? [] : [`l.agent->>'name' = ${params.bind(agent, 'text')}`]),
    ...(cause === undefined ? [] : [`l.cause is not null and l.cause->>'request' = ${params.bind(cause, 'text')}`]),
    ...(from === undefined ? [] : [`l."createdAt" >= ${params.bind(from, 'timestamptz')}`]),
    ...(to === undefined ? [] : [`l."createdAt" < ${params.bind(to, 'timestamptz')}`]),
  ]
}

/** A request with what is shown of it. */
type ToldRequest = { readonly group: RequestGroup; readonly entry: RequestEntry }

/** The effects of requests, counted over all their events, in the given order. */
async function detailsOf(
  db: Reader,
  sight: LogSight,
  groups: readonly RequestGroup[],
): Promise<readonly ToldRequest[]> {
  if (groups.length === 0) return []
  const params = createParams()
  const ids = groups.flatMap(({ requestId }) => requestId ?? [])
  const xids = groups.filter(({ requestId }) => requestId === null).flatMap((group) => group.xids)
  const own = [`(l."logRequestId" is null and l.xid = any(${params.bind(xids, 'text[]')}::xid8[]))`]
  if (ids.length > 0) {
    const from = new Date(Math.min(...ids.map(madeAt))).toISOString()
    const to = groups
      .map(({ last }) => last.at)
      .sort()
      .at(-1)!
    own.push(`(l."logRequestId" = any(${params.bind(ids, 'uuid[]')})
      and l."createdAt" >= ${params.bind(from, 'timestamptz')} - interval '${requestWindow.before}' and l."createdAt" <= ${params.bind(to, 'timestamptz')})`)
  }
  const shown = (field: string, sql: string, member = field) => shownMember(sight, field, member, sql)
  const first = (column: string) => `(array_agg(l.${column} order by l.position))[1]`
  const counted = countsSql(sight)
  const members = [
    ...shown('logRequestId', 'min(l."logRequestId"::text)', 'requestId'),
    `'position', min(l.position)::text`,
    ...shown('requestId', first('"requestId"'), 'clientRequestId'),
    ...shown('createdAt', wireTime('min(l."createdAt")'), 'at'),
    ...shown('createdAt', wireTime('max(l."createdAt")'), 'until'),
    ...shown('userId', first('"userId"')),
    ...shown('tenant_Id', first('"tenant_Id"')),
    ...shown('ipaddress', first('ipaddress')),
    ...shown('agent', first('agent')),
    ...shown('cause', first('cause')),
    `'events', count(*)`,
    ...(counted === undefined ? [] : [`'counts', (select counts from counted c where c.key = l.key)`]),
  ]
  const rows = await db.any<{ key: string; data: RequestEntry }>(
    rawQuery(
      `with own as materialized (select l.*, coalesce(l."logRequestId"::text, l.xid::text) as key from "${logTable}" l
         where (${own.join(' or ')}) and ${sight.where(params)})${counted === undefined ? '' : `, counted as (${counted})`}
       select l.key, json_build_object(${members.join(', ')}) as data from own l group by l.key`,
      params.values,
    ),
  )
  const byKey = new Map(rows.map(({ key, data }) => [key, data]))
  return groups.flatMap((group) => {
    const entry = byKey.get(group.key)
    return entry === undefined ? [] : [{ group, entry }]
  })
}

/** An argument of `json_build_object`; none where the caller may not read the field that it comes from. */
const shownMember = ({ names }: LogSight, field: string, member: string, sql: string): readonly string[] =>
  names.has(field) ? [`'${member}', ${sql}`] : []

/** The numbers of events in `own` by what the caller may read of them, for each key; undefined where that is nothing. */
function countsSql(sight: LogSight): string | undefined {
  const by = ['entity', 'action'].filter((field) => sight.names.has(field))
  if (by.length === 0) return undefined
  const columns = [...by, ...(by.includes('action') && sight.names.has('type') ? ['type'] : [])]
  const action = columns.includes('type')
    ? `case when type = 'data' then action else type || '.' || action end`
    : 'action'
  const members = [
    ...shownMember(sight, 'entity', 'collection', 'entity'),
    ...shownMember(sight, 'action', 'action', action),
    `'events', n`,
  ]
  return `select key, json_agg(json_build_object(${members.join(', ')}) order by ${by.join(', ')}) as counts
    from (select key, ${columns.join(', ')}, count(*) as n from own group by key, ${columns.join(', ')}) c group by key`
}

/** A request with its events and, below it, what it led to, for those who may read the causes of events. */
type RequestTree = RequestEntry & {
  readonly eventList: readonly ShownEvent[]
  readonly caused?: readonly RequestTree[]
}

type ShownEvent = {
  readonly id: string
  readonly position: string
  readonly type?: string
  readonly collection?: string
  readonly item?: string | null
  readonly action?: string
  readonly createdAt?: string
  readonly changes?: unknown
}

const mostEvents = 1000
const mostCaused = 200

/**
 * `GET /log/requests/{id}` by the log's id of a request, or the position or id of an event for the transaction of it. The
 * events of each are its first 1,000, of the requests that it led to the first 200 are told; `chain` is what led to it, the
 * first cause first, and `undoneBy` the requests that undid it: each only for those who may read the fields that tell it.
 */
export async function readRequest(deps: UndoReads, access: Access, id: string) {
  const sight = sightOf(deps, access)
  const { db } = deps
  const isRequest = isUuid(id) && positionOf(id) === undefined
  const root = isRequest ? await groupOfRequest(db, id.toLowerCase()) : await groupOfTransaction(db, id)
  const [own] = root === undefined ? [] : await detailsOf(db, sight, [root])
  if (own === undefined)
    throw isRequest ? unknownRequest(id) : new AppError(404, 'The log has no event at this position')
  const mayReadCauses = sight.names.has('cause')
  const caused = mayReadCauses ? await causedByRequest(db, sight, own.group) : []
  const events = new Map<string, readonly ShownEvent[]>()
  for (const { group } of [own, ...caused]) events.set(group.key, await eventsOf(db, sight, group))
  const treeOf = ({ group, entry }: ToldRequest): RequestTree => ({
    ...entry,
    eventList: events.get(group.key)!,
    ...(mayReadCauses && { caused: caused.filter((one) => causeOf(one) === group.requestId).map(treeOf) }),
  })
  const chain = mayReadCauses ? { chain: await chainAbove(db, sight, own) } : {}
  const maySeeUndoers = undoersFields.every((name) => sight.names.has(name))
  const undoneBy = maySeeUndoers ? { undoneBy: await undoersOf(db, sight, own.group, own.entry.position) } : {}
  return { data: { ...treeOf(own), ...chain, ...undoneBy } }
}

async function causedByRequest(
  db: Reader,
  sight: LogSight,
  { requestId }: RequestGroup,
): Promise<readonly ToldRequest[]> {
  const below = requestId === null ? [] : (await causedBy(db, [requestId])).slice(0, mostCaused)
  const groups = (await Promise.all(below.map((each) => groupOfRequest(db, each)))).flatMap((group) => group ?? [])
  return detailsOf(db, sight, groups)
}

async function groupOfRequest(db: Reader, id: string): Promise<RequestGroup | undefined> {
  if (!isRequestId(id)) return undefined
  const made = new Date(madeAt(id)).toISOString()
  const last = await db.one<{ at: string | null; position: string }>(
    rawQuery(
      `select to_char(max("createdAt") at time zone 'UTC', ${iso}) as at, coalesce(max(position), 0)::text as position from "${logTable}"
       where "logRequestId" = $1::uuid and "createdAt" >= $2::timestamptz - interval '${requestWindow.before}'
         and "createdAt" < $2::timestamptz + interval '${requestWindow.after}'`,
      [id, made],
    ),
  )
  if (last.at === null) return undefined
  const place = { at: last.at, position: last.position, seen: [] }
  return { key: id, requestId: id, xids: [], last: place, place, isSeen: false }
}

async function groupOfTransaction(db: Reader, id: string): Promise<RequestGroup | undefined> {
  const position = positionOf(id)
  const transaction = position === undefined ? undefined : await transactionAt(db, position)
  if (transaction === undefined) return undefined
  const { xid, requests } = transaction
  if (requests.length > 0) return groupOfRequest(db, requests.toSorted()[0]!)
  const place = { at: new Date(0).toISOString(), position: position!, seen: [] }
  return { key: xid, requestId: null, xids: [xid], last: place, place, isSeen: false }
}

async function eventsOf(
  db: Reader,
  sight: LogSight,
  { requestId, xids, last }: RequestGroup,
): Promise<readonly ShownEvent[]> {
  const params = createParams()
  const own =
    requestId === null
      ? `l."logRequestId" is null and l.xid = any(${params.bind([...xids], 'text[]')}::xid8[])`
      : `l."logRequestId" = ${params.bind(requestId, 'uuid')} and l."createdAt" <= ${params.bind(last.at, 'timestamptz')}
         and l."createdAt" >= ${params.bind(new Date(madeAt(requestId)).toISOString(), 'timestamptz')} - interval '${requestWindow.before}'`
  const shown = (field: string, sql: string, member = field) => shownMember(sight, field, member, sql)
  const members = [
    `'id', l.id`,
    `'position', l.position::text`,
    ...shown('type', 'l.type'),
    ...shown('entity', 'l.entity', 'collection'),
    ...shown('entityId', 'l."entityId"', 'item'),
    ...shown('action', 'l.action'),
    ...shown('createdAt', wireTime('l."createdAt"')),
    ...shown('changes', 'svc_log.shown(l.type, l.entity, l.action, l.changes)'),
  ]
  const rows = await db.any<{ event: ShownEvent }>(
    rawQuery(
      `select json_build_object(${members.join(', ')}) as event
       from "${logTable}" l where ${own} and ${sight.where(params)} order by l.position limit ${mostEvents}`,
      params.values,
    ),
  )
  return rows.map(({ event }) => event)
}

/** The causes above a request, as far as the log has them; a chain is a few links long. */
async function chainAbove(db: Reader, sight: LogSight, own: ToldRequest): Promise<readonly RequestEntry[]> {
  const chain: RequestEntry[] = []
  for (let cause = causeOf(own); cause !== undefined && chain.length < 32; ) {
    const group = await groupOfRequest(db, cause)
    const [above] = group === undefined ? [] : await detailsOf(db, sight, [group])
    if (above === undefined) break
    chain.unshift(above.entry)
    cause = causeOf(above)
  }
  return chain
}

const causeOf = ({ entry: { cause } }: ToldRequest): string | undefined => cause?.request

/** Fields of the events that name undone requests. */
const undoersFields = ['type', 'action', 'entity', 'entityId', 'logRequestId']

async function undoersOf(
  db: Reader,
  sight: LogSight,
  { requestId }: RequestGroup,
  position: string,
): Promise<readonly string[]> {
  const params = createParams()
  const undone = params.bind([...(requestId === null ? [] : [requestId]), position], 'text[]')
  const rows = await db.any<{ id: string }>(
    rawQuery(
      `select distinct l."logRequestId"::text as id from "${logTable}" l where l.type = 'history' and l.action = 'undone'
         and l.entity = 'svc_AuditLog' and l."entityId" = any(${undone}) and l."logRequestId" is not null and ${sight.where(params)}`,
      params.values,
    ),
  )
  return rows.map(({ id }) => id)
}

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
 * Each facet counts what the filters of the *others* leave, so that it offers what one could choose instead. 403 for filters by
 * fields that the caller may not read, and without `createdAt`, by which all of it is counted.
 */
export async function readFacets(deps: UndoReads, access: Access, filter: FacetFilter): Promise<Facets> {
  const sight = sightOf(deps, access)
  checkFilter(filter)
  const range = rangeOf(filter, deps.clock())
  const open = dimensions.filter(({ field }) => sight.names.has(field))
  requireLogFields(sight.names, ['createdAt', ...logFieldsOf(filter)])
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
  /**
   * The change that made what is there at the time, the last change before the time, and the next one after it. The first two
   * are the same unless the time is that of the change.
   */
  readonly at: string | null
  readonly before: string | null
  readonly after: string | null
}

/**
 * `GET /log/moments`: the moment of the last change up to a time, and the moments of the changes before and after that time. A change is all
 * that one transaction did to the collections, at the moment of its last event, so that no moment shows half of it. 403
 * without the permission to read `svc_AuditLog`, whose rule holds.
 */
export async function readMoments(deps: UndoReads, access: Access, query: MomentsQuery): Promise<Moments> {
  const sight = sightOf(deps, access)
  requireLogFields(sight.names, ['createdAt', 'entity', ...logFieldsOf({ item: query.item })])
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
