/**
 * Proof that the log is what was sealed: reads the whole chain and the whole log, in one snapshot, and names what differs.
 * Nothing that the database says of the chain is believed: only signatures of keys and heads that the caller brings.
 */
import { logKeys } from '../../adapters/log-key.ts'
import { logSchema, logTable } from '../../catalog/log-triggers.ts'
import type { Config } from '../../config/config.ts'
import { requireSetUp } from '../../db/needs.ts'
import { type PgClient, readerOn } from '../../db/pools.ts'
import { onSoleConnection } from '../../db/sole-connection.ts'
import { type Reader, rawQuery } from '../../db/sql.ts'
import { isVisible, parseSnapshot } from '../cursor.ts'
import {
  type Chain,
  hashOfLeaves,
  hashOfPositions,
  isPassed,
  linkProblem,
  pagesOf,
  type Report,
  readChain,
  readStatement,
  type SealedEvents,
  type SealProblem,
  type SealTrust,
} from './chain.ts'
import { markBytes, type SealedLeaf, saltsBytes, sealedLeaves } from './leaves.ts'

export type SealVerification = {
  /** In the order of the log; the first ten. Empty where everything is as it was sealed. */
  readonly problems: readonly SealProblem[]
  /** How many there are. */
  readonly found: number
  /** Links that were checked, and the newest of them. */
  readonly links: number
  readonly head: { readonly number: number; readonly hash: string; readonly at: string } | undefined
  /** Events that are what was sealed. */
  readonly verified: number
  /** Of these, those of which a part was erased. */
  readonly erased: number
  /** Events that are not sealed yet, which proves nothing about them. */
  readonly unsealed: number
  /** Retention may have removed events of days before this one. */
  readonly floor: string | undefined
  /** Heads that were compared, and of them those that are older than what retention has left. */
  readonly heads: { readonly compared: number; readonly tooOld: number }
}

/** {@link verifySeals} of an installation, which also trusts the keys of its own secrets. */
export const verifySealsOf = (config: Config, { keys, heads }: SealTrust): Promise<SealVerification> =>
  onSoleConnection(config, 'log verify', async (client) => {
    await requireSetUp(readerOn(client))
    return verifySeals(client, { keys: [...keys, ...(logKeys(config).keys ?? [])], heads })
  })

/** Verifies in one read-only snapshot. Needs one connection, not a pool, without an open transaction. */
export async function verifySeals(client: PgClient, trust: SealTrust): Promise<SealVerification> {
  await client.query('begin isolation level repeatable read read only')
  try {
    // A plan that fits one page of events fits all.
    await client.query('set local jit = off')
    return await verifyAll(readerOn(client), trust)
  } finally {
    await client.query('rollback')
  }
}

type Verifying = {
  readonly db: Reader
  readonly report: Report
  /** Positions that are sealed and were not seen in the log yet. */
  readonly sealed: Positions
  readonly timeline: ReturnType<typeof openTimeline>
  readonly erasures: ReadonlySet<string>
  readonly floor: string | undefined
  /** Positions that are reported already. */
  readonly reported: Set<string>
  verified: number
  erased: number
}

async function verifyAll(db: Reader, trust: SealTrust): Promise<SealVerification> {
  const problems: SealProblem[] = []
  const report = (problem: SealProblem) => void problems.push(problem)
  const chain = await readChain(db, trust, report)
  const { start, floor, end } = chain
  const state: Verifying = {
    ...{ db, report, floor, erasures: await readErasures(db) },
    ...{ sealed: openPositions(), timeline: openTimeline(), reported: new Set<string>() },
    ...{ verified: 0, erased: 0 },
  }
  for await (const links of linksFrom(db, start)) await verifyLinks(state, links, report)
  const unsealed = end === undefined ? 0 : await verifyRest(state, chain)
  problems.sort((a, b) => Number(BigInt(a.position ?? unplaced) - BigInt(b.position ?? unplaced)))
  const { verified, erased } = state
  const { links, heads } = chain
  return {
    problems: problems.slice(0, 10),
    found: problems.length,
    links,
    head: end,
    verified,
    erased,
    unsealed,
    floor,
    heads,
  }
}

/** Faults of the chain itself come last: they say which links can't be believed, not what was changed. */
const unplaced = String(2n ** 62n)

type EventLink = SealedEvents & {
  readonly number: number
  readonly ordered: readonly string[]
  readonly marks: Buffer
  readonly salts: Buffer
}
type SealedLinkRow = {
  readonly number: number
  readonly statement: string
  readonly positions: readonly string[] | null
  readonly marks: Buffer | null
  readonly salts: Buffer | null
}

const eventLinkSql = `select number::float8 as number, statement, positions::text[] as positions, marks, salts
  from ${logSchema}.seal s where number >= $1 and kind = 'events' order by s.number limit 80`

/** Links about events, several of one day and form together, so that small ones don't cost a statement each. */
async function* linksFrom(db: Reader, start: number): AsyncGenerator<readonly SealedLinkRow[]> {
  for await (const rows of pagesOf<SealedLinkRow>(db, eventLinkSql, start)) {
    let group: SealedLinkRow[] = []
    let weight = 0
    for (const row of rows) {
      group.push(row)
      weight += (row.salts?.length ?? 0) / saltsBytes
      if (weight >= eventsAtOnce) {
        yield group
        group = []
        weight = 0
      }
    }
    if (group.length > 0) yield group
  }
}

const eventsAtOnce = 2000

async function verifyLinks(state: Verifying, rows: readonly SealedLinkRow[], report: Report): Promise<void> {
  const links = rows.flatMap((row) => readEventLink(row, report))
  const kept = links.filter(({ day }) => state.floor === undefined || day >= state.floor)
  for (const link of links) for (const position of link.ordered) noteSealed(state, link, position)
  const groups = Map.groupBy(kept, ({ day, canonical }) => `${day} ${canonical}`)
  const leaves: SealedLeaf[] = []
  for (const group of groups.values()) {
    const { day, canonical } = group[0]!
    const positions = group.flatMap(({ ordered }) => ordered)
    const salts = Buffer.concat(group.map((link) => link.salts))
    leaves.push(...(await sealedLeaves(state.db, { positions, salts, canonical, day })))
  }
  const byPosition = Map.groupBy(leaves, ({ position }) => position)
  for (const link of links) {
    if (kept.includes(link)) await verifyEvents(state, link, byPosition)
    state.timeline.passed(link)
  }
}

function noteSealed(state: Verifying, link: EventLink, position: string): void {
  if (state.sealed.add(position)) return
  report(state, { kind: 'inserted', position, link: link.number, says: 'was sealed a second time: it was read as new' })
}

/** A link whose own record is not what its statement says can't name its events. */
function readEventLink(row: SealedLinkRow, report: Report): EventLink[] {
  const { number } = row
  const statement = readStatement(row.statement)
  if (statement.kind !== 'events') {
    report({ kind: 'link', link: number, says: 'is not what its table says it is' })
    return []
  }
  const { first, last, count } = statement
  const ordered = row.positions ?? consecutive(first, count)
  const { marks, salts } = row
  const isWhole =
    marks?.length === count * markBytes &&
    salts?.length === count * saltsBytes &&
    ordered.length === count &&
    ordered.at(-1) === last &&
    hashOfPositions(ordered) === statement.positions
  if (isWhole) return [{ ...statement, number, ordered, marks, salts }]
  report(linkProblem(number, statement, 'the record of its events was changed'))
  return []
}

function consecutive(first: string, count: number): string[] {
  const begin = BigInt(first)
  return Array.from({ length: count }, (_, i) => String(begin + BigInt(i)))
}

async function verifyEvents(
  state: Verifying,
  link: EventLink,
  byPosition: ReadonlyMap<string, readonly SealedLeaf[]>,
): Promise<void> {
  const leaves: Buffer[] = []
  for (const [i, position] of link.ordered.entries()) {
    const rows = byPosition.get(position) ?? []
    const mark = link.marks.subarray(i * markBytes, (i + 1) * markBytes)
    const isSealed = ({ leaf, found }: SealedLeaf) => found === position && leaf.subarray(0, markBytes).equals(mark)
    const row = rows.find(isSealed)
    if (row !== undefined && !row.isContradictory) {
      leaves.push(row.leaf)
      judgeErasure(state, link, row)
      judgeTime(state, link, row)
    } else if (rows.length > 0) report(state, await difference(state, link, i))
    else report(state, { kind: 'removed', position, link: link.number, says: await whereabouts(state, link, i) })
  }
  if (leaves.length === link.count && hashOfLeaves(leaves) !== link.leaves)
    report(state, linkProblem(link.number, link, 'the events that it is about are not those that were sealed'))
  else state.verified += leaves.length
}

/** Explains the event at a place: whether it is elsewhere, or in the place of another. */
async function difference(state: Verifying, link: EventLink, i: number): Promise<SealProblem> {
  const position = link.ordered[i]!
  const elsewhere = await placeOf(state, link, i)
  const place = { position, link: link.number }
  if (elsewhere === undefined) return { ...place, kind: 'changed', says: 'is not what was sealed' }
  return { ...place, kind: 'reordered', says: `what was sealed as it is now at ${elsewhere}` }
}

async function whereabouts(state: Verifying, link: EventLink, i: number): Promise<string> {
  const elsewhere = await placeOf(state, link, i)
  return elsewhere === undefined ? 'is not in the log' : `is now at ${elsewhere}`
}

/** Looked for among its neighbours, and a few times only: it is for the reader's convenience. */
async function placeOf(state: Verifying, link: EventLink, i: number): Promise<string | undefined> {
  if (state.reported.size >= lookedForElsewhere) return undefined
  const { ordered, marks, salts, canonical } = link
  const position = ordered[i]!
  const begin = BigInt(position) - neighbourhood
  const others = Array.from({ length: Number(2n * neighbourhood) }, (_, n) => String(begin + BigInt(n)))
  const own = salts.subarray(i * saltsBytes, (i + 1) * saltsBytes)
  const mark = marks.subarray(i * markBytes, (i + 1) * markBytes)
  const looked = await sealedLeaves(
    state.db,
    {
      positions: others.map(() => position),
      salts: Buffer.concat(others.map(() => own)),
      canonical,
      day: undefined,
    },
    others,
  )
  return looked.find(({ leaf, found }) => found !== position && leaf.subarray(0, markBytes).equals(mark))?.found
}

const lookedForElsewhere = 20
const neighbourhood = 500n

/** An erased part must be named by an erasure. */
function judgeErasure(state: Verifying, link: EventLink, row: SealedLeaf): void {
  if (!row.imagesErased && !row.originErased) return
  const users = [row.userId, row.entity === 'svc_User' ? row.entityId : null]
  const isNamed =
    (!row.imagesErased || state.erasures.has(erasureOf(row.entity, row.entityId))) &&
    (!row.originErased || users.some((user) => user !== null && state.erasures.has(erasureOf('svc_User', user))))
  if (isNamed) state.erased += 1
  else
    report(state, {
      kind: 'changed',
      position: row.position,
      link: link.number,
      says: 'was erased, and no history.erased in the log names it',
    })
}

const erasureOf = (collection: string, item: string | null): string => JSON.stringify([collection, item])

async function readErasures(db: Reader): Promise<ReadonlySet<string>> {
  const rows = await db.any<{ collection: string; item: string }>(
    rawQuery(`select distinct changes->>'collection' as collection, changes->>'item' as item from "${logTable}"
      where entity = '${logTable}' and type = 'history' and action = 'erased'`),
  )
  return new Set(rows.map(({ collection, item }) => erasureOf(collection, item)))
}

/** Sealed late, though it says that it was written before something that was sealed without it. */
function judgeTime(
  state: Verifying,
  link: EventLink | undefined,
  row: { position: string; xid: string; createdAt: string },
) {
  const says = state.timeline.contradictionOf(row)
  if (says !== undefined)
    report(state, { kind: 'inserted', position: row.position, ...(link && { link: link.number }), says })
}

function report(state: Verifying, problem: SealProblem): void {
  if (problem.position !== undefined && state.reported.has(problem.position)) return
  if (problem.position !== undefined) state.reported.add(problem.position)
  state.report(problem)
}

const restSql = `select position::text as position, id::text as id, xid::text as xid,
    to_char("createdAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "createdAt"
  from "${logTable}" where id > $1::uuid order by id limit 20000`

type RestRow = { readonly position: string; readonly id: string; readonly xid: string; readonly createdAt: string }

/** Events of the log that no link names: those that wait to be sealed, and those that should not be there. */
async function verifyRest(state: Verifying, { reached, sweep, floor }: Chain): Promise<number> {
  let unsealed = 0
  for (let after = '00000000-0000-0000-0000-000000000000'; ; ) {
    const rows = await state.db.any<RestRow>(rawQuery(restSql, [after]))
    if (rows.length === 0) return unsealed
    after = rows.at(-1)!.id
    for (const row of rows) {
      if (state.sealed.take(row.position) || (floor !== undefined && row.createdAt < floor)) continue
      const xid = BigInt(row.xid)
      if (sweep !== undefined && isVisible(xid, sweep)) unsealed += 1
      else if (reached !== undefined && isPassed(reached, { xid, position: BigInt(row.position) }))
        report(state, { kind: 'inserted', position: row.position, says: 'was never sealed, though later events are' })
      else {
        unsealed += 1
        judgeTime(state, undefined, row)
      }
    }
  }
}

/**
 * The chain's bounds on time, for events that were sealed after others: a transaction that had not begun when a link
 * was made cannot have written before the events of that link, and positions are given out in the order of time. So
 * an event that is inserted now cannot be dated back.
 */
type Timeline = {
  /** Links in the order of the chain; what is asked is held against those that have passed. */
  passed(link: SealedEvents): void
  /** Why an event cannot be what it says; undefined where it can. */
  contradictionOf(event: {
    readonly position: string
    readonly xid: string
    readonly createdAt: string
  }): string | undefined
}

/** How far a clock may be set back, and a process be stopped between two of its steps. */
const toleranceMs = 60_000

type Passed = {
  /** Transactions from this one on had not begun; undefined where the link does not say. */
  readonly xmax: bigint | undefined
  /** Of all links until here. */
  readonly latestMs: number
  readonly position: bigint
}

function openTimeline(): Timeline {
  const links: Passed[] = []
  /** By transaction: events of one come together. */
  let asked: { xid: string; links: number; latestMs: number | undefined } | undefined

  const latestBefore = (xid: string): number | undefined => {
    if (asked?.xid === xid && asked.links === links.length) return asked.latestMs
    const number = BigInt(xid)
    const found = links.findLast(({ xmax }) => xmax !== undefined && xmax <= number)
    asked = { xid, links: links.length, latestMs: found?.latestMs }
    return found?.latestMs
  }

  return {
    passed: ({ round, latest, last }) => {
      const before = links.at(-1)
      const position = BigInt(last)
      links.push({
        xmax: round === undefined ? undefined : parseSnapshot(round.upTo)!.xmax,
        latestMs: Math.max(before?.latestMs ?? 0, Date.parse(latest)),
        position: before !== undefined && before.position > position ? before.position : position,
      })
    },
    contradictionOf: ({ position, xid, createdAt }) => {
      const writtenMs = Date.parse(createdAt)
      const begunAfterMs = latestBefore(xid)
      if (begunAfterMs !== undefined && writtenMs < begunAfterMs - toleranceMs)
        return `says it was written at ${createdAt}, but its transaction began after ${iso(begunAfterMs)}`
      const earlier = lastBefore(links, writtenMs - toleranceMs)
      if (earlier !== undefined && earlier.position > BigInt(position))
        return `says it was written at ${createdAt}, when its position was long given out`
      return undefined
    },
  }
}

/** The newest of the links all of whose events, and those before, are older than a time. */
function lastBefore(links: readonly Passed[], ms: number): Passed | undefined {
  let [low, high] = [0, links.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (links[middle]!.latestMs < ms) low = middle + 1
    else high = middle
  }
  return links[low - 1]
}

const iso = (ms: number): string => new Date(ms).toISOString()

/** A set of positions for whole logs: a bit for each, in blocks that are made when needed. */
type Positions = {
  /** False where it is in the set already. */
  add(position: string): boolean
  /** Takes it out; false where it is not in the set. */
  take(position: string): boolean
}

const bitsPerBlock = 2n ** 16n

function openPositions(): Positions {
  const blocks = new Map<bigint, Uint8Array>()
  const placeOf = (position: string) => {
    const number = BigInt(position)
    const block = number / bitsPerBlock
    const bit = Number(number % bitsPerBlock)
    return { block, byte: bit >> 3, mask: 1 << (bit & 7) }
  }
  return {
    add: (position) => {
      const { block, byte, mask } = placeOf(position)
      const bytes = blocks.get(block) ?? new Uint8Array(Number(bitsPerBlock / 8n))
      blocks.set(block, bytes)
      if ((bytes[byte]! & mask) !== 0) return false
      bytes[byte]! |= mask
      return true
    },
    take: (position) => {
      const { block, byte, mask } = placeOf(position)
      const bytes = blocks.get(block)
      if (bytes === undefined || (bytes[byte]! & mask) === 0) return false
      bytes[byte]! &= ~mask
      return true
    },
  }
}
