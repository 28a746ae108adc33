/** Seals: a log that shows whether it was tampered with (ADR 42). The public face of this folder. */

import type { LogKeys } from '../../adapters/log-key.ts'
import { logSchema, logTable } from '../../catalog/log-triggers.ts'
import { type Reader, rawQuery, type Tx } from '../../db/sql.ts'
import { parseSnapshot, type Round } from '../cursor.ts'
import { bytesOfPositions, eventIdSql, positionsIn } from '../log.ts'
import { type EventRun, positionsOf, type Summarized, type Summary, unseenSql } from '../log-reader.ts'
import {
  extend,
  type Head,
  hashOf,
  headOf,
  type LinkContent,
  readStatement,
  type SealedEvents,
  type SealLink,
} from './chain.ts'
import {
  canonical,
  chainVersionSql,
  type FreshLeaves,
  freshLeaves,
  leavesSummary,
  newSalts,
  type SaltWindow,
  type SummarizedLeaves,
  saltsOf,
} from './leaves.ts'

export type { SealProblem, SealTrust } from './chain.ts'
export { type Head, lastHeadIn, readHeads } from './chain.ts'
export { keepCommitments, sealTablesSql } from './leaves.ts'
export { type SealVerification, verifySeals, verifySealsOf } from './verify-chain.ts'

/*
 * Writing the chain of seals. Everything that adds a link holds the row of `svc_log.seal_state` until its transaction ends,
 * and a link's number is the key of its table: however many processes try and however they end, the chain has one end.
 */

/** An event that is to be sealed. */
type Sealable = { readonly position: string; readonly createdAt: string }

/** Events that became visible in a round, by position; `isRetry` where they are out of their turn. */
type SealablePage = {
  readonly events: readonly Sealable[]
  readonly round: Round
  readonly isRetry: boolean
  /** Of {@link sealSummary}, with the salts that it was asked with. */
  readonly leaves?: (SaltWindow & Summarized) | undefined
}

/** The summary by which the events of a brief page are sealed at little cost: most that follow closely on the position `after`. */
export function sealSummary(after: string): SaltWindow & { readonly summary: Summary } {
  const late = BigInt(after) - lateSlots
  const window = { from: `${late > 0n ? late : 0n}`, salts: newSalts(slots) }
  return { ...window, summary: leavesSummary(window, mostOfLink) }
}

/** Of a page, with some to spare for events that become visible out of their turn, before and after. */
const slots = 24_000
const lateSlots = 2000n

/**
 * Seals a page of a consumer, in the transaction that moves it. Where the page does not follow on what was sealed last
 * (sealing begins, was off, or was reset), events may have been passed over: the chain says that they are going to be swept up.
 */
export async function sealPage(tx: Tx, keys: LogKeys, page: SealablePage): Promise<void> {
  const { events, round, isRetry, leaves } = page
  const state = await holdChain(tx)
  const isExpected = !isRetry && isNext(state, round, events[0]!.position)
  const hasGap = !isRetry && !isExpected && (await isGapBefore(tx, state, round.from))
  const isMade = isExpected && leaves !== undefined && leaves.once === state.version
  const sealed = isMade
    ? await sealRuns(tx, leaves, round)
    : await sealEvents(tx, isExpected ? events : await unsealedOf(tx, events), isRetry ? undefined : round)
  const gap: Sealed[] = hasGap ? [{ content: { kind: 'sweep', snapshot: round.from } }] : []
  await append(tx, state, keys, [...gap, ...sealed])
}

/** Whether {@link sweepGap} or {@link sweepOn} would do anything: a read, which holds nothing. */
export async function isSweepDue(db: Reader, consumer: string, seen: string | undefined): Promise<boolean> {
  const rows = await db.any(
    rawQuery(
      `select from ${logSchema}.seal_state s where s.sweep is not null or exists (
        select from ${logSchema}.consumer c where c.name = $1
          and c.snapshot::text <> all (array_remove(array[$2, s."from"::text, s."upTo"::text], null)))`,
      [consumer, seen ?? null],
    ),
  )
  return rows.length > 0
}

/**
 * Opens a sweep where the consumer that seals stands beyond events without a seal: where there is no chain yet, and where the
 * consumer was set on while nothing was written since. Gives the place that was looked at; `seen` is the one of last time.
 */
export async function sweepGap(tx: Tx, keys: LogKeys, consumer: string, seen: string | undefined) {
  const state = await holdChain(tx)
  const place = await tx.maybeOne<{ snapshot: string }>(
    rawQuery(`select snapshot::text as snapshot from ${logSchema}.consumer where name = $1`, [consumer]),
  )
  const from = place?.snapshot
  if (from === undefined || [seen, state.from, state.upTo].includes(from)) return from
  if (await isGapBefore(tx, state, from))
    await append(tx, state, keys, [{ content: { kind: 'sweep', snapshot: from } }])
  return from
}

/**
 * After a restore: what is not sealed yet is swept up, and the consumer that seals goes on from here. The places that the chain
 * names are numbers of another server.
 */
export async function beginChainAnew(tx: Tx, keys: LogKeys, consumer: string): Promise<void> {
  const state = await holdChain(tx)
  if (state.number === 0) return
  const { snapshot } = await tx.one<{ snapshot: string }>(rawQuery('select pg_current_snapshot()::text as snapshot'))
  await append(tx, state, keys, [{ content: { kind: 'sweep', snapshot } }])
  await tx.any(
    rawQuery(
      `update ${logSchema}.consumer set snapshot = $2::pg_snapshot, "upTo" = null, position = 0 where name = $1`,
      [consumer, snapshot],
    ),
  )
}

/** How far a sweep has come: `after` is a position, `done` that the chain says it has ended. */
export type Sweep = { readonly after: string; readonly done: boolean }

/** Seals the next events that were passed over; without an open sweep, or at its end, it is `done`. */
export async function sweepOn(tx: Tx, keys: LogKeys, { after }: Sweep): Promise<Sweep> {
  const state = await holdChain(tx)
  if (state.sweep === null) return { after, done: true }
  const { last, events } = await tx.one<{ last: string | null; events: readonly Sealable[] }>(
    rawQuery(sweepSql, [after, state.sweep, state.floor]),
  )
  if (last === null) {
    await append(tx, state, keys, [{ content: { kind: 'swept' } }])
    return { after, done: true }
  }
  await append(tx, state, keys, await sealEvents(tx, events, undefined))
  return { after: events.length === sweptAtOnce ? events.at(-1)!.position : last, done: false }
}

/**
 * The moment before which events may be removed: `before` itself where nothing was ever sealed; else the beginning of its
 * day, and the chain says that what is older may be gone. To be committed before anything goes.
 */
export async function raiseSealFloor(tx: Tx, keys: LogKeys, before: Date): Promise<Date> {
  const state = await holdChain(tx)
  if (state.number === 0) return before
  const day = before.toISOString().slice(0, 10)
  if (state.floor === null || state.floor < day)
    await append(tx, state, keys, [{ content: await floorAt(tx, state, day) }])
  return new Date(day)
}

async function floorAt(tx: Tx, state: ChainState, before: string): Promise<LinkContent> {
  const [oldest] = await tx.any<{ number: number; statement: string }>(rawQuery(oldestSql, [before]))
  const first = oldest?.number ?? state.number + 1
  const follows = oldest === undefined ? state.hash : readStatement(oldest.statement).previous
  return { kind: 'floor', before, first, follows }
}

/** The first link that is about a day that stays. */
const oldestSql = `select number::float8 as number, statement from ${logSchema}.seal s
  where kind = 'events' and day >= $1::date order by s.number limit 1`

/** Removes some links that a floor has let go, with what was kept of their erased events; how many. */
export async function pruneLinks(tx: Reader): Promise<number> {
  const rows = await tx.any(rawQuery(pruneSql, [prunedAtOnce]))
  return rows.length
}

/** The newest head; undefined where nothing was ever sealed. */
export async function newestHead(db: Reader): Promise<Head | undefined> {
  const row = await db.maybeOne<HeadRow>(rawQuery(`${headSql} order by s.number desc limit 1`))
  return row && headOf(row, publicKeyOf(row))
}

type HeadRow = { readonly statement: string; readonly signature: Buffer; readonly keys: string }

/** Links, each with the statement that names the key it was signed with. */
const headSql = `select s.statement, s.signature,
    (select k.statement from ${logSchema}.seal k where k.kind = 'key' and k.number <= s.number order by k.number desc limit 1) as keys
  from ${logSchema}.seal s`

const publicKeyOf = ({ keys }: HeadRow): string => (JSON.parse(keys) as { publicKey: string }).publicKey

/**
 * Heads that follow on one that is kept, the oldest first, not all of them where they are many. Of a chain that does not hold the
 * kept one, as after a restore, and without one, the newest head alone.
 */
export async function headsAfter(
  db: Reader,
  kept: Pick<Head, 'number' | 'hash'> | undefined,
): Promise<readonly Head[]> {
  const [end] = await db.any<{ newest: number; known: string | null }>(
    rawQuery(
      `select number::float8 as newest, (select statement from ${logSchema}.seal where number = $1) as known
       from ${logSchema}.seal order by number desc limit 1`,
      [kept?.number ?? null],
    ),
  )
  if (end === undefined) return []
  const after = placeAfter(kept, end)
  if (after === end.newest) return []
  const rows = await db.any<HeadRow>(
    rawQuery(`${headSql} where s.number > $1 order by s.number limit ${headsAtOnce}`, [after]),
  )
  return rows.map((row) => headOf(row, publicKeyOf(row)))
}

const headsAtOnce = 500

/** Retention removes old links: one that is missing before the end was in the chain. */
function placeAfter(
  kept: Pick<Head, 'number' | 'hash'> | undefined,
  { newest, known }: { readonly newest: number; readonly known: string | null },
): number {
  const isOfChain = kept !== undefined && kept.number <= newest && (known === null || hashOf(known) === kept.hash)
  return isOfChain ? kept.number : newest - 1
}

/** The keys that the chain says it was signed with, the newest first: public, with the moment of their first signature. */
export async function keysOfChain(db: Reader): Promise<readonly { id: string; publicKey: string; since: string }[]> {
  const rows = await db.any<{ statement: string }>(
    rawQuery(`select statement from ${logSchema}.seal where kind = 'key' order by number desc`),
  )
  return rows.map(({ statement }) => {
    const { key, publicKey, at } = JSON.parse(statement) as { key: string; publicKey: string; at: string }
    return { id: key, publicKey, since: at }
  })
}

type SealLag = {
  /** Of the newest link; 0 where nothing was ever sealed. */
  readonly number: number
  /** The id of the key that signed it. */
  readonly key: string | null
  /** Age of the oldest event that waits to be sealed; 0 where none does. */
  readonly seconds: number
  /** Events that were passed over are being sealed. */
  readonly sweeping: boolean
}

/** How far sealing lags the log. */
export function sealLag(db: Reader): Promise<SealLag> {
  return db.one<SealLag>(rawQuery(sealLagSql))
}

/**
 * Of one row: {@link SealLag}. Unsealed events are unseen by the snapshot that the newest round began with, by the
 * index on transactions, and are either beyond that round's end or come later in it than the last sealed event.
 */
const sealLagSql = `select s.number::float8 as number, s.key, s.sweep is not null as sweeping,
    coalesce(extract(epoch from clock_timestamp() - waiting.since), 0)::float8 as seconds
  from ${logSchema}.seal_state s
  cross join lateral (select least(
    ${oldestWaiting(unseenSql.later('e.xid', `coalesce(pg_snapshot_xmax(s."from"), '0')`))},
    ${oldestWaiting(unseenSql.running('e.xid', 'array(select pg_snapshot_xip(s."from"))'))}) as since) waiting`

function oldestWaiting(unseen: string): string {
  return `(select e."createdAt" from "${logTable}" e
      where ${unseen} and (s."upTo" is null or not pg_visible_in_snapshot(e.xid, s."upTo") or e.position > s.position)
      order by e.xid limit 1)`
}

type ChainState = {
  readonly number: number
  readonly hash: string | null
  readonly key: string | null
  readonly from: string | null
  readonly upTo: string | null
  /** Of the newest event of that round that is sealed. */
  readonly position: string
  readonly sweep: string | null
  readonly floor: string | null
  /** Of {@link chainVersionSql}. */
  readonly version: string
  readonly at: string
}

/** A link to be, with what is stored beside its statement. */
type Sealed = {
  readonly content: LinkContent
  /** Undefined where none is missing between the first and the last. */
  readonly positions?: readonly string[] | undefined
  readonly marks?: Buffer
  readonly salts?: Buffer
}

/** The end of the chain, which no other transaction moves before this one ends. */
function holdChain(tx: Tx): Promise<ChainState> {
  return tx.one<ChainState>(
    rawQuery(`select number::float8 as number, hash, key, "from"::text as "from", "upTo"::text as "upTo", position::text as position, sweep::text as sweep,
        floor::text as floor, ${chainVersionSql} as version, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at
      from ${logSchema}.seal_state for update`),
  )
}

/** The next page of the same round, or the first one of the next. */
const isNext = (state: ChainState, { from, upTo }: Round, position: string): boolean =>
  from === state.from && upTo === state.upTo ? BigInt(position) > BigInt(state.position) : from === state.upTo

/** Whether an event may be unsealed that the consumer will not come back for. */
async function isGapBefore(tx: Tx, { from }: ChainState, snapshot: string): Promise<boolean> {
  if (from === null) return true
  const { xmax, running } = parseSnapshot(from)!
  const end = parseSnapshot(snapshot)!.xmax
  const { found } = await tx.one<{ found: boolean }>(
    rawQuery(gapSql, [xmax.toString(), running.map(String), end.toString(), from, snapshot]),
  )
  return found
}

/** A chain from another server, or from before events were removed that it may not have, can't be gone on with. */
const gapSql = `select f.removed >= pg_snapshot_xmin($4::pg_snapshot)
    or $1::text::numeric > pg_snapshot_xmax(pg_current_snapshot())::text::numeric
    or exists (
      select from "${logTable}" e
      where (e.xid >= $1::xid8 and e.xid < $3::xid8 or e.xid = any($2::xid8[]))
        and pg_visible_in_snapshot(e.xid, $5::pg_snapshot) and ${isUnsealed('e.position')}) as found
  from ${logSchema}.floor f`

async function unsealedOf(tx: Tx, events: readonly Sealable[]): Promise<readonly Sealable[]> {
  const rows = await tx.any<{ position: string }>(
    rawQuery(`select p::text as position from unnest($1::bigint[]) p where ${isUnsealed('p')}`, [
      positionsOfEvents(events),
    ]),
  )
  const left = new Set(rows.map(({ position }) => position))
  return events.filter(({ position }) => left.has(position))
}

function isUnsealed(position: string): string {
  return `not exists (select from ${logSchema}.seal s
    where s.range @> ${position} and (s.positions is null or ${position} = any(s.positions)))`
}

const lookedAtAtOnce = 5000
const sweptAtOnce = 500

/** `last` is how far was looked, null at the end; `events` are the first of those that are to be sealed. */
const sweepSql = `with looked as materialized (
    select e.position, e.xid, e."createdAt" from "${logTable}" e
    where e.id > ${eventIdSql('$1::bigint')} order by e.id limit ${lookedAtAtOnce}
  ), unsealed as (
    select l.position, l."createdAt" from looked l
    where pg_visible_in_snapshot(l.xid, $2::pg_snapshot) and ${isUnsealed('l.position')}
      and ($3::text is null or l."createdAt" >= $3::timestamp at time zone 'UTC')
    order by l.position limit ${sweptAtOnce}
  )
  select (select max(position)::text from looked) as last,
    coalesce((select json_agg(json_build_object('position', position::text,
      'createdAt', to_char("createdAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) order by position) from unsealed), '[]') as events`

/** Erasing one event writes all salts of its link anew. */
const mostOfLink = 5000

const positionsOfEvents = (events: readonly Sealable[]): readonly string[] => events.map(({ position }) => position)

/** Links of the events of a day each. */
async function sealEvents(tx: Tx, events: readonly Sealable[], round: Round | undefined): Promise<readonly Sealed[]> {
  const byDay = Map.groupBy(events, ({ createdAt }) => createdAt.slice(0, 10))
  const sealed: Sealed[] = []
  for (const [day, ofDay] of byDay)
    for (let start = 0; start < ofDay.length; start += mostOfLink)
      sealed.push(await sealLink(tx, day, positionsOfEvents(ofDay.slice(start, start + mostOfLink)), round))
  return sealed
}

/** Of runs whose leaves were made with the page; what has come out of its turn by far is looked at again. */
async function sealRuns(
  tx: Tx,
  { runs, ...window }: SaltWindow & Summarized,
  round: Round,
): Promise<readonly Sealed[]> {
  const sealed: Sealed[] = []
  for (const run of runs as readonly SummarizedLeaves[]) {
    const { day, isComplete, leaves, marks } = run
    const places = positionsOf(run)
    sealed.push(
      isComplete
        ? linkOf(run, places, { ...run, leaves: leaves!, marks: marks!, salts: saltsOf(window, places) }, round)
        : await sealLink(tx, day, positionsIn(places), round),
    )
  }
  return sealed
}

async function sealLink(tx: Tx, day: string, positions: readonly string[], round: Round | undefined): Promise<Sealed> {
  const salts = newSalts(positions.length)
  const { count, ...made } = await freshLeaves(tx, { positions, salts, canonical, day })
  const first = positions[0]!
  const last = positions.at(-1)!
  // It was read a moment ago, so the log is being changed.
  if (count !== positions.length)
    throw new Error(`events from ${first} to ${last} are not in the log as they were read`)
  return linkOf({ day, first, last, count }, bytesOfPositions(positions), { ...made, salts }, round)
}

type MadeLeaves = Omit<FreshLeaves, 'count'> & { readonly salts: Buffer }

function linkOf(
  { day, first, last, count }: Pick<EventRun, 'day' | 'first' | 'last' | 'count'>,
  places: Buffer,
  { leaves, marks, latest, salts }: MadeLeaves,
  round: Round | undefined,
): Sealed {
  const isWhole = BigInt(last) - BigInt(first) === BigInt(count - 1)
  const content: SealedEvents = {
    ...{ canonical, day, first, last, count, latest },
    positions: hashOf(places),
    leaves,
    ...(round !== undefined && { round }),
  }
  return {
    content: { kind: 'events', ...content },
    positions: isWhole ? undefined : positionsIn(places),
    marks,
    salts,
  }
}

/** Link by link, each with what the chain is after it: its salts are sent as bytes, and a page has a single link as a rule. */
async function append(tx: Tx, state: ChainState, keys: LogKeys, sealed: readonly Sealed[]): Promise<void> {
  const contents = sealed.map(({ content }) => content)
  const links = sealed.length === 0 ? [] : extend(state, contents, { keys, at: state.at })
  const announced = links.length - sealed.length
  let end: ChainState = { ...state, key: keys[0].id }
  for (const [i, link] of links.entries()) {
    end = stateAfter(end, link)
    await tx.any(rawQuery(appendSql, [...linkValues(link, sealed[i - announced]), ...stateValues(end)]))
  }
}

function stateAfter(state: ChainState, { number, hash, content }: SealLink): ChainState {
  const next = { ...state, number, hash }
  switch (content.kind) {
    case 'events':
      return content.round === undefined ? next : { ...next, ...content.round, position: content.last }
    case 'sweep':
      return { ...next, from: content.snapshot, upTo: content.snapshot, sweep: content.snapshot }
    case 'swept':
      return { ...next, sweep: null }
    case 'floor':
      return { ...next, floor: content.before }
    case 'key':
      return next
  }
}

function linkValues({ number, content, statement, signature }: SealLink, sealed: Sealed | undefined) {
  const isEvents = content.kind === 'events'
  return [
    ...[number, content.kind, statement, signature],
    ...(isEvents ? [content.day, `[${content.first},${content.last}]`] : [null, null]),
    ...[sealed?.positions ?? null, sealed?.marks ?? null, sealed?.salts ?? null],
  ]
}

const stateValues = ({ hash, key, from, upTo, sweep, floor, position }: ChainState) => [
  ...[hash, key, from, upTo],
  ...[sweep, floor, position],
]

const appendSql = `with link as (
    insert into ${logSchema}.seal (number, kind, statement, signature, day, range, positions, marks, salts)
    values ($1, $2, $3, $4, $5::date, $6::int8range, $7::bigint[], $8, $9))
  update ${logSchema}.seal_state set number = $1, hash = $10, key = $11, "from" = $12::pg_snapshot,
    "upTo" = $13::pg_snapshot, sweep = $14::pg_snapshot, floor = $15::date, position = $16`

const prunedAtOnce = 500

/** Links that name keys stay: a verifier learns from them which keys signed older links. */
const pruneSql = `with floor as (
    select (statement::json->>'first')::bigint as first from ${logSchema}.seal where kind = 'floor' order by number desc limit 1
  ), gone as (
    delete from ${logSchema}.seal where number in (
      select s.number from ${logSchema}.seal s, floor where s.number < floor.first and s.kind <> 'key'
      order by s.number limit $1)
    returning number, range
  ), forgotten as (
    delete from ${logSchema}.erased_part k using gone where gone.range @> k.position
  )
  select number from gone`
