/** Following the chain of seals from its first link to its end, and what of it is to be believed. */
import { isSignedBy, type PublicLogKey, publicLogKey } from '../../adapters/log-key.ts'
import { logSchema } from '../../catalog/log-triggers.ts'
import { type Reader, rawQuery } from '../../db/sql.ts'
import { isVisible, parseSnapshot, type Snapshot } from '../cursor.ts'
import { type Head, hashOf, isWhole, type LinkStatement, readStatement, type SealedEvents } from './links.ts'

export type SealProblem = {
  /**
   * An event is `changed`, `removed`, `inserted` or `reordered`; what the database says of a `link` is not what was sealed;
   * or a `head` that somebody holds is not in the chain.
   */
  readonly kind: 'changed' | 'removed' | 'inserted' | 'reordered' | 'link' | 'head'
  /** Of the event, or of the first that the link is about. */
  readonly position?: string
  /** Of the link. */
  readonly link?: number
  readonly says: string
}

export type SealTrust = {
  /** Public keys that are known to be the installation's. */
  readonly keys: readonly PublicLogKey[]
  /** Heads that somebody has kept. */
  readonly heads: readonly Head[]
}

export type Report = (problem: SealProblem) => void

export type Chain = {
  /** The first link that is kept. */
  readonly start: number
  readonly links: number
  readonly end: { readonly number: number; readonly hash: string; readonly at: string } | undefined
  readonly floor: string | undefined
  /** How far the log was read: what is visible in `from`, and of what is visible in `upTo` that until `position`. */
  readonly reached: Reached | undefined
  /** Events visible in it may have been passed over, and are being sealed. */
  readonly sweep: Snapshot | undefined
  /** How many were compared, and how many are older than what retention has left. */
  readonly heads: { readonly compared: number; readonly tooOld: number }
}

type Reached = { readonly from: Snapshot; readonly upTo: Snapshot; readonly position: bigint }

export const isPassed = (
  { from, upTo, position }: Reached,
  event: { readonly xid: bigint; readonly position: bigint },
): boolean => isVisible(event.xid, from) || (isVisible(event.xid, upTo) && event.position <= position)

type StoredLink = { readonly number: number; readonly statement: string; readonly signature: Buffer }

/** Follows the chain from its first link to its end: numbers, hashes, signatures, heads. */
export async function readChain(db: Reader, trust: SealTrust, report: Report): Promise<Chain> {
  const { floor, keys } = await readSpecialLinks(db, trust)
  const start = floor?.first ?? 1
  const walk = walkFrom({ keys, heads: Map.groupBy(trust.heads, ({ number }) => number), floor }, report)
  for await (const page of pagesOf<StoredLink>(db, linkSql, start)) for (const link of page) walk.pass(link)
  const { end, reached, sweep, compared } = walk.reached()
  for (const head of trust.heads) judgeHead(head, end?.number ?? 0, report)
  return {
    ...{ start, end, floor: floor?.before, links: (end?.number ?? start - 1) - start + 1 },
    reached,
    sweep: sweep === undefined ? undefined : parseSnapshot(sweep),
    heads: { compared, tooOld: trust.heads.filter(({ number }) => number < start).length },
  }
}

function judgeHead(head: Head, last: number, report: Report): void {
  const place = { kind: 'head', link: head.number } as const
  if (!isWhole(head)) report({ ...place, says: 'the head that you hold is not signed by its own key' })
  else if (head.number > last)
    report({ ...place, says: `the chain ends at ${last}, before the head of ${head.at}: what came after was removed` })
}

type Floor = Extract<LinkStatement, { kind: 'floor' }>
type Expectations = {
  readonly keys: ReadonlyMap<string, PublicLogKey>
  readonly heads: ReadonlyMap<number, readonly Head[]>
  readonly floor: Floor | undefined
}

/** One link after the other. */
function walkFrom({ keys, heads, floor }: Expectations, report: Report) {
  let previous = floor?.follows ?? null
  let expected = floor?.first ?? 1
  let end: Chain['end']
  let reached: Reached | undefined
  let sweep: string | undefined
  let compared = 0
  const unknown = new Set<string>()

  const faultOf = (link: StoredLink, statement: LinkStatement): string | undefined => {
    if (statement.number !== link.number || statement.previous !== previous)
      return 'does not follow on the link before it'
    const key = keys.get(statement.key)
    if (key !== undefined)
      return isSignedBy(key, link.statement, link.signature)
        ? undefined
        : `was rewritten: key ${key.id} has not signed it`
    if (unknown.has(statement.key)) return undefined
    unknown.add(statement.key)
    return `is signed by key ${statement.key}, which is none of yours; if it was yours once, name it`
  }
  const pass = (link: StoredLink) => {
    const statement = statementOf(link)
    const place = {
      kind: 'link',
      link: link.number,
      ...(statement?.kind === 'events' && { position: statement.first }),
    } as const
    if (link.number !== expected)
      report({ ...place, says: `links ${expected} to ${link.number - 1} before it are gone` })
    expected = link.number + 1
    previous = hashOf(link.statement)
    if (statement === undefined) return report({ ...place, says: 'its statement is none' })
    end = { number: link.number, hash: previous, at: statement.at }
    if (statement.kind === 'events' && statement.round !== undefined) {
      const { from, upTo } = statement.round
      reached = { from: parseSnapshot(from)!, upTo: parseSnapshot(upTo)!, position: BigInt(statement.last) }
    }
    if (statement.kind === 'sweep') {
      sweep = statement.snapshot
      // Later events are read from there on, even where numbers of transactions start over.
      const from = parseSnapshot(sweep)!
      reached = { from, upTo: from, position: 0n }
    }
    if (statement.kind === 'swept') sweep = undefined
    const held = heads.get(link.number) ?? []
    compared += held.length
    compareHeads(held, previous, (says) => report({ ...place, kind: 'head', says }))
  }
  return {
    pass: (link: StoredLink) => {
      const statement = statementOf(link)
      const fault = statement && faultOf(link, statement)
      if (fault !== undefined) report(linkProblem(link.number, statement!, fault))
      pass(link)
    },
    reached: () => ({ end, reached, sweep, compared }),
  }
}

function compareHeads(held: readonly Head[], hash: string, report: (says: string) => void): void {
  for (const head of held)
    if (head.hash !== hash) report(`is another than the head of ${head.at} says: the log was changed before it`)
}

export function linkProblem(link: number, statement: LinkStatement | SealedEvents, fault: string): SealProblem {
  if (!('first' in statement) || 'before' in statement) return { kind: 'link', link, says: fault }
  const { first, last } = statement
  return { kind: 'link', link, position: first, says: `${fault}; it is about the events ${first} to ${last}` }
}

const linkSql = `select number::float8 as number, statement, signature from ${logSchema}.seal s
  where number >= $1 order by s.number limit 1000`

/**
 * The newest floor, and the trusted keys: the known ones, those of heads that somebody holds, and from the newest to
 * the oldest those that a trusted key vouches for. Nothing else in the chain is trusted.
 */
async function readSpecialLinks(db: Reader, trust: SealTrust) {
  const rows = await db.any<StoredLink>(
    rawQuery(`select number::float8 as number, statement, signature from ${logSchema}.seal s
      where kind in ('floor', 'key') order by s.number desc`),
  )
  const keys = new Map(
    [...trust.heads.map(({ publicKey }) => publicLogKey(publicKey)), ...trust.keys].map((key) => [key.id, key]),
  )
  let floor: Floor | undefined
  for (const row of rows) {
    const statement = statementOf(row)
    if (statement?.kind === 'floor') floor ??= statement
    if (statement?.kind !== 'key' || statement.vouchesFor === null) continue
    const signer = keys.get(statement.key)
    if (signer === undefined || !isSignedBy(signer, row.statement, row.signature)) continue
    const vouched = publicLogKey(statement.vouchesFor)
    keys.set(vouched.id, vouched)
  }
  return { floor, keys }
}

function statementOf({ statement }: Pick<StoredLink, 'statement'>): LinkStatement | undefined {
  try {
    return readStatement(statement)
  } catch {
    return undefined
  }
}

/** Pages by number, beginning at `start`. */
export async function* pagesOf<Row extends { readonly number: number }>(db: Reader, text: string, start: number) {
  for (let next = start; ; ) {
    const rows = await db.any<Row>(rawQuery(text, [next]))
    if (rows.length === 0) return
    yield rows
    next = rows.at(-1)!.number + 1
  }
}
