/** Consumers of the log as operators see them, and the commands that tell a consumer where to continue. */
import { logSchema, logTable } from '../catalog/log-triggers.ts'
import { type Reader, rawQuery, type UnloggedWrites } from '../db/sql.ts'
import { resetConsumer, type StoredCursor } from '../db/unlogged/consumers.ts'
import { AppError } from '../errors.ts'
import { type Cursor, parseCursor } from './cursor.ts'
import { eventIdSql } from './log.ts'
import { unseenSql } from './log-reader.ts'

export { forgetSetAside, retrySetAside, skipEvent } from '../db/unlogged/consumers.ts'

export type ConsumerState = {
  readonly name: string
  /** `paused` by who owns it, `halted` before an event that fails, `stopped` where the log does not reach back to its place any more. */
  readonly state: 'running' | 'paused' | 'halted' | 'stopped'
  readonly reason: string | null
  readonly failedPosition: string | null
  /** Whether a process works for it. */
  readonly held: boolean
  /** Since when the oldest event waits that it has not passed; 0 when there is none. */
  readonly lagSeconds: number
  readonly setAside: number
  readonly advancedAt: Date
}

/** All consumers that were ever registered, by name. */
export async function consumerStates(db: Reader): Promise<readonly ConsumerState[]> {
  return db.any<ConsumerState>(rawQuery(consumerStatesSql))
}

export type SetAsideEvent = {
  readonly consumer: string
  readonly position: string
  readonly entity: string | null
  readonly action: string | null
  readonly reason: string
  readonly attempts: number
  readonly failedAt: Date
}

/** The newest of the events that consumers have set aside. */
export async function setAsideEvents(db: Reader, atMost: number): Promise<readonly SetAsideEvent[]> {
  return db.any<SetAsideEvent>(rawQuery(setAsideSql, [atMost]))
}

/**
 * Has a consumer go on at another place: `now`, the `beginning` of what is kept, a cursor, or a moment (ISO 8601), from which
 * on everything is handled again, with perhaps a little from before. Throws AppError 404 for an unknown name, 400 for a place
 * that is none.
 */
export async function moveTo(
  deps: UnloggedWrites & { readonly db: Reader },
  name: string,
  place: string,
): Promise<void> {
  const cursor = await placeIn(deps.db, place)
  const stored: StoredCursor = { snapshot: cursor.snapshot, upTo: cursor.upTo ?? null, position: cursor.position }
  if (!(await resetConsumer(deps, name, stored))) throw unknownConsumer(name)
}

/** 404 where no consumer has the name. */
export async function knownConsumer(db: Reader, name: string): Promise<void> {
  if (!(await consumerStates(db)).some((state) => state.name === name)) throw unknownConsumer(name)
}

const unknownConsumer = (name: string) => new AppError(404, `There is no consumer ${JSON.stringify(name)}`)

async function placeIn(db: Reader, place: string): Promise<Pick<Cursor, 'snapshot' | 'upTo' | 'position'>> {
  const at = (snapshot: string) => ({ snapshot, upTo: undefined, position: '0' })
  if (place === 'now')
    return at((await db.one<StoredSnapshot>(rawQuery('select pg_current_snapshot()::text as snapshot'))).snapshot)
  if (place === 'beginning') return at((await db.one<StoredSnapshot>(rawQuery(beginningSql))).snapshot)
  const moment = /^\d{4}-\d\d-\d\d/.test(place) ? new Date(place) : undefined
  if (moment === undefined) {
    const cursor = parseCursor(place)
    const { lineage } = await db.one<{ lineage: string }>(rawQuery(`select ${logSchema}."$lineage"() as lineage`))
    if (cursor.lineage === lineage) return cursor
    throw new AppError(410, 'The cursor is from before a restore or a failover: name a moment', {
      code: 'HISTORY_GONE',
    })
  }
  if (Number.isNaN(moment.getTime())) throw new AppError(400, `${JSON.stringify(place)} is no moment`)
  // A slip of the pen would pass over all that waits to be handled; `now` does that on purpose.
  if (moment.getTime() > Date.now() + clocksDifferMs) throw new AppError(400, `${JSON.stringify(place)} is yet to come`)
  return at((await db.one<StoredSnapshot>(rawQuery(momentSql, [moment.toISOString()]))).snapshot)
}

type StoredSnapshot = { readonly snapshot: string }

const clocksDifferMs = 60_000

/** A snapshot in which everything before a transaction has been seen. */
const beforeSql = (xid: string) => `${xid}::text || ':' || ${xid}::text || ':'`

/** The first transaction of which nothing was removed. */
const floorSql = `select greatest(removed::text::numeric + 1, 3) as first from ${logSchema}.floor`
const beginningSql = `select ${beforeSql('first')} as snapshot from (${floorSql}) floor`

/**
 * Only transactions that ran when the first event after the moment was written, or began later, can have followed the
 * moment.
 */
const momentSql = `select coalesce(
    (select ${beforeSql('greatest(floor.first, e.horizon::text::numeric)')} from (${floorSql}) floor, "${logTable}" e
      where e."createdAt" >= $1::timestamptz order by e."createdAt" limit 1),
    pg_current_snapshot()::text) as snapshot`

const unseenBy = (condition: string) =>
  `(select e."createdAt" from "${logTable}" e where ${condition} order by e.xid limit 1)`

/** A select of the members of {@link ConsumerState}. */
export const consumerStatesSql = `
  select c.name, c.state, c.reason, c."failedPosition"::text as "failedPosition", c."advancedAt",
    c.token is not null and c."leaseUntil" > clock_timestamp() as held,
    case when c.state = 'paused' then 0
      else greatest(coalesce(extract(epoch from clock_timestamp() - waiting.since), 0), 0)::float8 end as "lagSeconds",
    (select count(*)::int from ${logSchema}.set_aside s where s.consumer = c.name) as "setAside"
  from ${logSchema}.consumer c
  cross join lateral (select least(
    ${unseenBy(unseenSql.later('e.xid', 'pg_snapshot_xmax(c.snapshot)'))},
    ${unseenBy(unseenSql.running('e.xid', 'array(select pg_snapshot_xip(c.snapshot))'))}) as since) waiting
  order by c.name`

const setAsideSql = `
  select s.consumer, s.position::text, e.entity, e.action, s.reason, s.attempts, s."failedAt"
  from ${logSchema}.set_aside s left join "${logTable}" e
    on e.id = ${eventIdSql('s.position')}
  order by s."failedAt" desc, s.position limit $1`
