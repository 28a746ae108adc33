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

export type RequestFilter = {
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

/** Where a list goes on: before this event, without the requests that were listed and may have older events. */
type RequestCursor = { readonly at: string; readonly position: string; readonly seen: readonly string[] }

type RequestEntry = {
  readonly requestId: string | null
  readonly position: string
  readonly clientRequestId?: string | null
  readonly at: string
  readonly until: string
  readonly userId?: string | null
  readonly tenant_Id?: string | null
  readonly ipaddress?: string | null
  readonly agent?: Agent | null
  readonly cause?: Cause | null
  readonly events: number
  readonly counts: readonly { readonly collection: string; readonly action: string; readonly events: number }[]
}

const defaultLimit = 25
const largestLimit = 100
/** Events that one statement looks at, and how many such a page may take: a filter that finds little ends a page early. */
const eventsPerLook = 5_000
const mostLooks = 20

/** `GET /log/requests`: the newest first; `nextCursor` is null at the end. A page may be short, or even empty, before it. */
export async function listRequests(
  deps: UndoReads,
  access: Access,
  filter: RequestFilter,
): Promise<{ readonly data: readonly RequestEntry[]; readonly nextCursor: string | null }> {
  const sight = sightOf(deps, access)
  const limit = Math.min(filter.limit ?? defaultLimit, largestLimit)
  const start = filter.cursor === undefined ? undefined : readPlace(filter.cursor)
  checkFilter(filter)
  return admitted(deps.admission, { shape: 'requests of the log', presumed: 'heavy' }, async () => {
    let place = start
    const found = new Map<string, RequestGroup>()
    let isEnd = false
    for (let look = 0; look < mostLooks && found.size < limit && !isEnd; look += 1) {
      const groups = await nextGroups(deps.db, sight, filter, place)
      isEnd = groups.length === 0
      const known = new Set([...found.keys(), ...(start?.seen ?? [])])
      for (const group of groups) {
        if (known.has(group.key) || group.isSeen) place = group.last
        else if (found.size === limit) break
        else {
          found.set(group.key, group)
          place = group.last
        }
      }
      const rest = groups.at(-1)
      if (found.size < limit && rest !== undefined) place = rest.place
    }
    const data = await detailsOf(deps.db, sight, [...found.values()])
    if (isEnd || place === undefined) return { data, nextCursor: null }
    // A request began when its id was made: what began later has no event further on.
    const began = Date.parse(place.at)
    const seen = [...(start?.seen ?? []), ...found.keys()].filter((key) => isUuid(key) && madeAt(key) <= began)
    return { data, nextCursor: writePlace({ ...place, seen }) }
  })
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

export function checkFilter({ actor, tenant, cause, from, to }: RequestFilter): void {
  for (const [name, value] of Object.entries({ actor, tenant, cause }))
    if (value !== undefined && !isUuid(value)) throw errors.badQuery(`${name}: expected an id`)
  for (const [name, value] of Object.entries({ from, to }))
    if (value !== undefined && !isTime(value)) throw errors.badQuery(`${name}: expected a time`)
}

/** A day, or a time of one, that JavaScript and PostgreSQL read alike. */
export const isTime = (text: string): boolean => /^\d{4}-\d\d-\d\d/.test(text) && !Number.isNaN(Date.parse(text))

/** A request, or a transaction of none, as it was met. `last` is its newest event, `place` the oldest that was looked at. */
type RequestGroup = {
  readonly key: string
  readonly requestId: string | null
  readonly xids: readonly string[]
  readonly last: RequestCursor
  readonly place: RequestCursor
  /** It has newer events than those looked at: a page before this one has listed it. */
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
  const where = [
    `(l."createdAt", l.position) < (${at}, ${position})`,
    sight.where(params),
    ...filterSql(filter, params),
  ].join(' and ')
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
         from "${logTable}" l where ${where} order by l."createdAt" desc, l.position desc limit ${params.bind(eventsPerLook, 'int')}),
       groups as (
         select key, min(request::text) as request, array_agg(distinct xid) as xids, max("createdAt") as at,
           (array_agg(position order by "createdAt" desc, position desc))[1] as position
         from looked group by key)
       select g.key, g.request as "requestId", g.xids::text[] as xids, to_char(g.at at time zone 'UTC', ${iso}) as "lastAt",
         g.position::text as "lastPosition", e."endAt", e."endPosition",
         exists (select from "${logTable}" o where o.xid = any(g.xids) and coalesce(o."logRequestId"::text, o.xid::text) = g.key
           and (o."createdAt", o.position) >= (${at}, ${position})) as "isSeen"
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

/** The effects of requests, counted over all their events, in the given order. */
async function detailsOf(
  db: Reader,
  sight: LogSight,
  groups: readonly RequestGroup[],
): Promise<readonly RequestEntry[]> {
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
  const shown = (name: string, sql: string) => (sight.names.has(name) ? [`'${name}', ${sql}`] : [])
  const first = (column: string) => `(array_agg(l.${column} order by l.position))[1]`
  const members = [
    `'requestId', min(l."logRequestId"::text)`,
    `'position', min(l.position)::text`,
    ...shown('requestId', first('"requestId"')).map((member) => member.replace(`'requestId'`, `'clientRequestId'`)),
    `'at', ${wireTime('min(l."createdAt")')}`,
    `'until', ${wireTime('max(l."createdAt")')}`,
    ...shown('userId', first('"userId"')),
    ...shown('tenant_Id', first('"tenant_Id"')),
    ...shown('ipaddress', first('ipaddress')),
    ...shown('agent', first('agent')),
    ...shown('cause', first('cause')),
    `'events', count(*)`,
  ]
  const rows = await db.any<{ key: string; data: Omit<RequestEntry, 'counts'>; counts: RequestEntry['counts'] }>(
    rawQuery(
      `with own as materialized (select l.*, coalesce(l."logRequestId"::text, l.xid::text) as key from "${logTable}" l
         where (${own.join(' or ')}) and ${sight.where(params)}),
       counted as (select key, json_agg(json_build_object('collection', entity, 'action', case when type = 'data' then action else type || '.' || action end, 'events', n)
           order by entity, action) as counts
         from (select key, type, entity, action, count(*) as n from own group by 1, 2, 3, 4) c group by key)
       select l.key, jsonb_build_object(${members.join(', ')}) as data, (select counts from counted c where c.key = l.key) as counts
       from own l group by l.key`,
      params.values,
    ),
  )
  const byKey = new Map(rows.map(({ key, data, counts }) => [key, { ...data, counts }]))
  return groups.flatMap(({ key }) => byKey.get(key) ?? [])
}

/** A request with its events and, below it, what it led to. */
type RequestTree = RequestEntry & { readonly eventList: readonly ShownEvent[]; readonly caused: readonly RequestTree[] }

type ShownEvent = {
  readonly id: string
  readonly position: string
  readonly type: string
  readonly collection: string
  readonly item: string | null
  readonly action: string
  readonly createdAt: string
  readonly changes?: unknown
}

const mostEvents = 1000
const mostCaused = 200

/**
 * `GET /log/requests/{id}` by the log's id of a request, or the position or id of an event for the transaction of it. The
 * events of each are its first 1,000, of the requests that it led to the first 200 are told; `chain` is what led to it, the
 * first cause first, and `undoneBy` the requests that undid it.
 */
export async function readRequest(deps: UndoReads, access: Access, id: string) {
  const sight = sightOf(deps, access)
  const { db } = deps
  const isRequest = isUuid(id) && positionOf(id) === undefined
  const root = isRequest ? await groupOfRequest(db, id.toLowerCase()) : await groupOfTransaction(db, id)
  const [own] = root === undefined ? [] : await detailsOf(db, sight, [root])
  if (own === undefined)
    throw isRequest ? unknownRequest(id) : new AppError(404, 'The log has no event at this position')
  const below = own.requestId === null ? [] : (await causedBy(db, [own.requestId])).slice(0, mostCaused)
  const groups = (await Promise.all(below.map((each) => groupOfRequest(db, each)))).flatMap((group) => group ?? [])
  const caused = await detailsOf(db, sight, groups)
  const all = [root!, ...groups]
  const events = new Map<string, readonly ShownEvent[]>()
  for (const group of all) events.set(group.key, await eventsOf(db, sight, group))
  const treeOf = (node: RequestEntry): RequestTree => ({
    ...node,
    eventList: events.get(node.requestId ?? root!.key)!,
    caused: caused.filter(({ cause }) => cause?.request === node.requestId).map(treeOf),
  })
  const chain = await chainAbove(db, sight, own)
  return { data: { ...treeOf(own), chain, undoneBy: await undoersOf(db, sight, own) } }
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
  const changes = sight.names.has('changes') ? `, 'changes', svc_log.shown(l.type, l.entity, l.action, l.changes)` : ''
  const rows = await db.any<{ event: ShownEvent }>(
    rawQuery(
      `select json_build_object('id', l.id, 'position', l.position::text, 'type', l.type, 'collection', l.entity, 'item', l."entityId",
         'action', l.action, 'createdAt', ${wireTime('l."createdAt"')}${changes}) as event
       from "${logTable}" l where ${own} and ${sight.where(params)} order by l.position limit ${mostEvents}`,
      params.values,
    ),
  )
  return rows.map(({ event }) => event)
}

/** The causes above a request, as far as the log has them; a chain is a few links long. */
async function chainAbove(db: Reader, sight: LogSight, own: RequestEntry): Promise<readonly RequestEntry[]> {
  const chain: RequestEntry[] = []
  for (let cause = causeOf(own); cause !== undefined && chain.length < 32; cause = causeOf(chain[0]!)) {
    const group = await groupOfRequest(db, cause)
    const [above] = group === undefined ? [] : await detailsOf(db, sight, [group])
    if (above === undefined) break
    chain.unshift(above)
  }
  return chain
}

const causeOf = ({ cause }: RequestEntry): string | undefined => cause?.request

async function undoersOf(
  db: Reader,
  sight: LogSight,
  { requestId, position }: RequestEntry,
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
