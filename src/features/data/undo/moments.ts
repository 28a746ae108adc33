import { admitted } from '../../../admission/lane.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { rawQuery } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import type { Access } from '../../../query/access.ts'
import { createParams } from '../../../query/sql.ts'
import type { UndoReads } from './capabilities.ts'
import { type LogSight, sightOf } from './log-sight.ts'
import { isTime } from './requests.ts'

/** Moments at which something changed: the steps of whoever goes through the past with `asOf`. */

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
  const { text, values } = statement(sight, { collections, item: query.item, at })
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

type Asked = { readonly collections: readonly string[]; readonly item: string | undefined; readonly at: string }

/** Finds events by time, and what else their transactions did by transaction: both have an index. */
function statement(sight: LogSight, { collections, item, at }: Asked) {
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
