/**
 * Consumers follow the log and miss none of it, by any writer (ADR 39). The database stores the place of a
 * consumer, and the effects of a page of events commit together with the next place: in the database each event is
 * handled exactly once. Effects elsewhere become jobs of the same transaction.
 *
 * `workers/consumers.ts` hosts consumers.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Logs } from '../adapters/logger.ts'
import { logSchema, logTable } from '../catalog/log-triggers.ts'
import { isPassing } from '../db/errors.ts'
import type { Reads } from '../db/pools.ts'
import { type Reader, rawQuery, type Tx, type UnloggedWrites } from '../db/sql.ts'
import {
  type HeldConsumer,
  moveConsumer,
  moveIdleConsumer,
  resetConsumer,
  type StoredCursor,
  setEventAside,
  takeSetAside,
} from '../db/unlogged/consumers.ts'
import { AppError } from '../errors.ts'
import { commit, type Writes } from './commit.ts'
import { type Cursor, cursorAt, parseCursor } from './cursor.ts'
import { eventIdSql } from './log.ts'
import {
  type BriefEvent,
  type LogEvent,
  pullRound,
  readEvents,
  type Summarized,
  type Summary,
  unseenSql,
} from './log-reader.ts'
import { type Cause, causeOf, type DomainEvent, systemActor } from './types.ts'

export type Consumer = {
  /** Under which its place is kept, for good. */
  readonly name: string
  /** Asked before every page. */
  wants(): Wants
  /**
   * The reaction to an event that fails on its own again and again: `set-aside` lets the consumer continue without it,
   * `halt` stops before it until an operator decides.
   */
  readonly onFailure: 'set-aside' | 'halt'
  /** How long it rests when it has caught up, so that what is written meanwhile becomes one page; else it is woken. */
  readonly paceMs?: number
} & (HandlesAtOnce | ReadsFirst)

type HandlesAtOnce = {
  /**
   * Handles a page in the transaction that moves the consumer's place. Per record its events are in the order of the
   * writes. SQL only: it may be run again, for the same page or for single events of it. An event may have been erased
   * before it is handled, see {@link imagesOf}. Events that it returns are appended, with the jobs that follow from them.
   */
  handle(tx: Tx, page: ConsumerPage): Promise<HandlerResult | undefined>
  readonly prepare?: undefined
}

type ReadsFirst = {
  /**
   * Reads what the page needs before the transaction begins, and gives what is to be done in it. A transaction that waits
   * for a second connection waits for ever where all of a pooler are held by others that do the same. `read-again` where
   * the page shows that the consumer wants other events than it was read for; not for a page that `isRetry`.
   */
  prepare(page: ConsumerPage): Promise<((tx: Tx) => Promise<HandlerResult | undefined>) | 'read-again'>
  readonly handle?: undefined
}

type HandlerResult = { readonly events?: readonly DomainEvent[] }

/**
 * `collections` and `actions` default to all; domain events have their entity for a collection. With `brief` the events of a
 * page are those of {@link BriefEvent}, which is cheaper to read; its consumer declares that it handles no more.
 */
type Wants = { readonly collections?: readonly string[] } & (
  | { readonly actions?: readonly string[]; readonly brief?: undefined }
  | { readonly actions?: undefined; readonly brief: Summary }
)

export type ConsumerPage<Event extends BriefEvent = LogEvent> = {
  /** One or more, by position. */
  readonly events: readonly Event[]
  /** The round that they are of: what became visible after `from` until `upTo`, both `pg_snapshot` texts. */
  readonly round: { readonly from: string; readonly upTo: string }
  /** Whether it is a single event out of its place, which was set aside before. */
  readonly isRetry: boolean
  /** The wanted summary of the page, read before the transaction that handles it; none where events are handled one by one. */
  readonly summarized?: Summarized | undefined
}

/** The capabilities of a consumer's process. */
export type ConsumerWrites = Reads & Writes & Logs

/** A consumer that this process works for; `cursor` is where it has read to, `stored` the place that is kept. */
export type ConsumerHold = {
  readonly lease: Pick<HeldConsumer, 'name' | 'token'>
  readonly cursor: Cursor
  readonly stored: StoredCursor
  /** Events of the next page, if its kind may have so many: fewer after a page that took long. */
  readonly limit: number
}

/** The outcome of a page. */
export type PageOutcome =
  | { readonly is: 'handled'; readonly held: ConsumerHold; readonly events: number; readonly more: boolean }
  /** What follows the place is to be read with what the consumer wants now. */
  | { readonly is: 'read-again'; readonly held: ConsumerHold }
  /** The event at `position` cannot be handled: the consumer is to be halted. */
  | { readonly is: 'failed'; readonly held: ConsumerHold; readonly position: string; readonly reason: string }
  /** The log does not reach back to its place any more. */
  | { readonly is: 'gone' }
  /** Somebody else works for it, or has moved it. */
  | { readonly is: 'lost' }

const mostEvents = 500
/** The first page of a round looks at all of it, so a round had better be few pages. */
const mostBriefEvents = 20_000
/** A page that takes longer than this is too large. */
const longestPageMs = 1000
const attempts = 3
const pauseMs = 100

export function heldFrom({ name, token, snapshot, upTo, position }: HeldConsumer): ConsumerHold {
  const stored = { snapshot, upTo, position }
  return { lease: { name, token }, cursor: cursorOf(stored), stored, limit: mostBriefEvents }
}

/**
 * Handles the next page, and moves the consumer past it. The page is read before the transaction begins that handles it:
 * a transaction has its number from then on, so once it has committed no number of its snapshot can be given out again,
 * not even by a server that crashed (ADR 39). Throws what passes, such as a lost connection: then the place is to be read
 * again, because it is not known whether the page was handled.
 */
export async function handleNext(deps: ConsumerWrites, consumer: Consumer, held: ConsumerHold): Promise<PageOutcome> {
  const { collections, actions, brief } = consumer.wants()
  const most = brief ? mostBriefEvents : mostEvents
  const page = await pullRound(deps.db, held.cursor, { collections, brief, limit: Math.min(held.limit, most) })
  if (page.resync) return { is: 'gone' }
  const events = actions === undefined ? page.events : page.events.filter(({ action }) => actions.includes(action))
  const { more, summarized } = page
  // Of the database's own history, whatever that is by the next page.
  const reached = cursorOf(storedOf(page.cursor))
  if (events.length === 0) return { is: 'handled', held: { ...held, cursor: reached }, events: 0, more }
  const startedAt = performance.now()
  const progress = await handlePage(deps, consumer, held, { events, reached, summarized })
  if (progress.is !== 'handled') return progress
  const limit = nextLimit(held.limit, performance.now() - startedAt, most)
  return { ...progress, held: { ...progress.held, limit }, more }
}

/** Keeps the place of a consumer that has found nothing it wants for a while; false when it is not its process's any more. */
export async function keepPlace(deps: Writes, held: ConsumerHold): Promise<ConsumerHold | undefined> {
  const to = storedOf(held.cursor)
  const isKept = await moveIdleConsumer(deps, { ...held.lease, from: held.stored, to })
  return isKept ? { ...held, stored: to } : undefined
}

/** Whether it has read further than the place that is kept. */
export function isAhead({ cursor, stored }: ConsumerHold): boolean {
  const { snapshot, upTo, position } = storedOf(cursor)
  return snapshot !== stored.snapshot || upTo !== stored.upTo || position !== stored.position
}

/** Handles an event that was set aside. If it fails again, it stays there. */
export async function handleSetAside(
  deps: ConsumerWrites,
  consumer: Consumer,
  { lease }: ConsumerHold,
  position: string,
): Promise<void> {
  const [event] = await readEvents(deps.db, [position])
  try {
    const handle = event && (await handlerOf(consumer, pageOfRetry(event)))
    if (handle === 'read-again') throw new Error(`${consumer.name} wants a single event read again`)
    await commit(deps, systemActor, async (tx) => {
      // The event is forgotten with the log that held it.
      if (!(await takeSetAside(tx, lease, position)) || handle === undefined) return { result: null }
      return outcomeOf(await handle(tx))
    })
  } catch (error) {
    if (isPassing(error)) throw error
    deps.log.warn({ err: error, consumer: consumer.name, position }, 'an event that was set aside has failed again')
    await commit(deps, systemActor, async (tx) => {
      await setEventAside(tx, consumer.name, { position, reason: reasonOf(error) })
      return { result: null }
    })
  }
}

function pageOfRetry(event: LogEvent): ConsumerPage {
  const { snapshot: from, upTo } = parseCursor(event.cursor)
  return { events: [event], round: { from, upTo: upTo! }, isRetry: true }
}

async function handlerOf(
  consumer: Consumer,
  page: ConsumerPage,
): Promise<((tx: Tx) => Promise<HandlerResult | undefined>) | 'read-again'> {
  return consumer.prepare === undefined ? (tx) => consumer.handle(tx, page) : consumer.prepare(page)
}

/** The images of events as the log has them now, by position; null where they were erased. */
export async function imagesOf(
  db: Reader,
  positions: readonly string[],
): Promise<ReadonlyMap<string, EventImages | null>> {
  const rows = await db.any<{ position: string; changes: EventImages & { erased?: true } }>(
    rawQuery(imagesSql, [positions]),
  )
  return new Map(rows.map(({ position, changes }) => [position, changes?.erased ? null : changes]))
}

/**
 * The causes that events are for consumers of the log, by position; none for events of no request. A consumer that
 * writes because of an event does so as `causedActor` with this cause.
 */
export async function causesOf(
  db: Reader,
  positions: readonly string[],
  by: Cause['by'],
): Promise<ReadonlyMap<string, Cause>> {
  const rows = await db.any<{ position: string; logRequestId: string; cause: Cause | null }>(
    rawQuery(causesSql, [positions]),
  )
  return new Map(rows.map(({ position, ...made }) => [position, causeOf(made, by)!]))
}

const causesSql = `select position::text, "logRequestId"::text, cause from "${logTable}"
  where "logRequestId" is not null and id = any(array(select ${eventIdSql('p')} from unnest($1::bigint[]) p))`

/** Of a row: whole after a change, for a delete before it; `before` of an update has what changed. */
export type EventImages = {
  readonly before?: Readonly<Record<string, unknown>>
  readonly after?: Readonly<Record<string, unknown>>
}

const imagesSql = `select position::text, changes from "${logTable}"
  where id = any(array(select ${eventIdSql('p')} from unnest($1::bigint[]) p))`

/** Events, and where the log has been read to with them. */
type PagePart = Pick<ConsumerPage, 'events' | 'summarized'> & { readonly reached: Cursor }

async function handlePage(
  deps: ConsumerWrites,
  consumer: Consumer,
  held: ConsumerHold,
  page: PagePart,
): Promise<PageOutcome> {
  try {
    return await commitPart(deps, consumer, held, page)
  } catch (error) {
    if (error instanceof LeaseLost) return { is: 'lost' }
    if (isPassing(error)) throw error
    deps.log.warn({ err: error, consumer: consumer.name, events: page.events.length }, 'a page of the log failed')
    return page.events.length === 1
      ? handleAlone(deps, consumer, held, page, error)
      : handleOneByOne(deps, consumer, held, page)
  }
}

/** A page that fails as a whole is handled event by event, so that only what fails alone is left out. */
async function handleOneByOne(
  deps: ConsumerWrites,
  consumer: Consumer,
  held: ConsumerHold,
  page: PagePart,
): Promise<PageOutcome> {
  const round = roundOf(held.cursor, page.reached)
  let now = held
  for (const [i, event] of page.events.entries()) {
    const isLast = i === page.events.length - 1
    const reached = isLast ? page.reached : within(round, event.position)
    const progress = await handleAlone(deps, consumer, now, { events: [event], reached })
    if (progress.is !== 'handled') return progress
    now = progress.held
  }
  return { is: 'handled', held: now, events: page.events.length, more: true }
}

/** A single event, several times; then it is set aside, or the consumer is to halt before it. */
async function handleAlone(
  deps: ConsumerWrites,
  consumer: Consumer,
  held: ConsumerHold,
  part: PagePart,
  before?: unknown,
): Promise<PageOutcome> {
  let last = before
  for (let attempt = before === undefined ? 1 : 2; attempt <= attempts; attempt += 1) {
    if (attempt > 1) await delay(pauseMs * 2 ** attempt)
    try {
      return await commitPart(deps, consumer, held, part)
    } catch (error) {
      if (error instanceof LeaseLost) return { is: 'lost' }
      if (isPassing(error)) throw error
      last = error
      // A definition may have changed under a statement.
      await deps.catalog.reload()
    }
  }
  const { position } = part.events[0]!
  const reason = reasonOf(last)
  deps.log.error({ err: last, consumer: consumer.name, position }, 'an event of the log cannot be handled')
  if (consumer.onFailure === 'halt') {
    // Within its round, so that an operator may have it go on after the event.
    const cursor = within(roundOf(held.cursor, part.reached), held.cursor.position)
    return { is: 'failed', held: { ...held, cursor }, position, reason }
  }
  return setAside(deps, held, part, reason)
}

async function setAside(
  deps: ConsumerWrites,
  held: ConsumerHold,
  part: PagePart,
  reason: string,
): Promise<PageOutcome> {
  const { position } = part.events[0]!
  const next = after(held, part)
  try {
    await commit(deps, systemActor, async (tx) => {
      await setEventAside(tx, held.lease.name, { position, reason })
      await move(tx, held, next)
      return { result: null }
    })
    return { is: 'handled', held: next, events: 1, more: true }
  } catch (error) {
    if (error instanceof LeaseLost) return { is: 'lost' }
    throw error
  }
}

async function commitPart(
  deps: ConsumerWrites,
  consumer: Consumer,
  held: ConsumerHold,
  part: PagePart,
): Promise<PageOutcome> {
  const { events, reached, summarized } = part
  const next = after(held, part)
  const round = roundOf(held.cursor, reached)
  const handle = await handlerOf(consumer, { events, round, isRetry: false, summarized })
  if (handle === 'read-again') return { is: 'read-again', held }
  await commit(deps, systemActor, async (tx) => {
    const outcome = outcomeOf(await handle(tx))
    // Last, so that no lock is held while the handler runs.
    await move(tx, held, next)
    return outcome
  })
  return { is: 'handled', held: next, events: events.length, more: true }
}

const after = (held: ConsumerHold, { reached }: PagePart): ConsumerHold => ({
  ...held,
  cursor: reached,
  stored: storedOf(reached),
})

async function move(tx: Tx, { lease, stored }: ConsumerHold, next: ConsumerHold): Promise<void> {
  if (!(await moveConsumer(tx, { ...lease, from: stored, to: next.stored }))) throw new LeaseLost()
}

/** Somebody else works for the consumer, or an operator has moved it: nothing of this page may be. */
class LeaseLost extends Error {
  override readonly name = 'LeaseLost'
}

function outcomeOf(handled: HandlerResult | undefined) {
  return { result: null, ...(handled?.events !== undefined && { events: handled.events }) }
}

function roundOf(from: Cursor, reached: Cursor): ConsumerPage['round'] {
  return { from: from.snapshot, upTo: reached.upTo ?? reached.snapshot }
}

const within = ({ from, upTo }: ConsumerPage['round'], position: string): Cursor => ({
  ...cursorAt(from),
  upTo,
  position,
})

/** Halved by a page that took too long, doubled by one whose double would not have. */
export function nextLimit(limit: number, tookMs: number, most: number): number {
  const was = Math.min(limit, most)
  if (tookMs > longestPageMs) return Math.max(1, Math.floor(was / 2))
  return tookMs < longestPageMs / 2 ? Math.min(most, was * 2) : was
}

function cursorOf({ snapshot, upTo, position }: StoredCursor): Cursor {
  return { ...cursorAt(snapshot), upTo: upTo ?? undefined, position }
}

function storedOf({ snapshot, upTo, position }: Cursor): StoredCursor {
  return { snapshot, upTo: upTo ?? null, position }
}

const longestReason = 1000

function reasonOf(error: unknown): string {
  const { message, cause } = error as { message?: string; cause?: { message?: string } }
  return (cause?.message ?? message ?? String(error)).replace(/\s+/g, ' ').slice(0, longestReason)
}

/** Consumers of the log as operators see them, and the commands that tell a consumer where to continue. */

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
    const cursor = cursorIn(place)
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

function cursorIn(place: string): Cursor {
  try {
    return parseCursor(place)
  } catch (cause) {
    const known = 'a time such as 2026-03-14T09:26:53Z, a cursor, now or beginning'
    throw new AppError(400, `${JSON.stringify(place)} is not ${known}`, { code: 'INVALID_CURSOR', cause })
  }
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
