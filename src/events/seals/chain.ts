/**
 * The chain of seals, as values: pure. A *link* is a statement about events (or about the chain), which names the link
 * before it by its hash and is signed. A holder of a *head*, the newest link at some moment, can verify that everything
 * stored before it is unchanged (ADR 42).
 */
import { createHash } from 'node:crypto'
import { isSignedBy, type LogKey, type PublicLogKey, publicLogKey } from '../../adapters/log-key.ts'
import { logSchema } from '../../catalog/log-triggers.ts'
import { type Reader, rawQuery } from '../../db/sql.ts'
import { isVisible, parseSnapshot, type Round, type Snapshot } from '../cursor.ts'
import { bytesOfPositions } from '../log.ts'

/**
 * The statement of a link. All events of one link were written on one day of UTC, so that retention removes whole
 * links.
 */
export type LinkContent =
  | (SealedEvents & { readonly kind: 'events' })
  /**
   * From here on links are signed with this key; the first link of a chain is one of these. `vouchesFor` is the key of the
   * links before, where the signer knows it for its own: a chain that another key has signed is not taken over in silence.
   */
  | { readonly kind: 'key'; readonly publicKey: string; readonly vouchesFor: string | null }
  /** Events that are visible in the snapshot and in no link yet are sealed next, out of their turn. */
  | { readonly kind: 'sweep'; readonly snapshot: string }
  /** All of them have been. */
  | { readonly kind: 'swept' }
  /** Events of days before `before` may be gone, and so may be the links before `first`, the last of which has this hash. */
  | { readonly kind: 'floor'; readonly before: string; readonly first: number; readonly follows: string | null }

export type SealedEvents = {
  /** Which columns the leaves were made of, and how: see `leaves.ts`. */
  readonly canonical: number
  /** YYYY-MM-DD. */
  readonly day: string
  /** Positions; bigint as text. */
  readonly first: string
  readonly last: string
  readonly count: number
  /** The time of the youngest event: ISO 8601 in UTC with microseconds. */
  readonly latest: string
  /** SHA-256, hex: of the positions in order, 8 bytes each, and of the leaves in the same order. */
  readonly positions: string
  readonly leaves: string
  /** The round that they were read in: none for events that were sealed out of their turn. */
  readonly round?: Round
}

type LinkStatement = LinkContent & {
  /** Of the form of statements. */
  readonly seal: 1
  /** From 1. */
  readonly number: number
  /** The hash of the link before; null in the first. */
  readonly previous: string | null
  /** By the database's clock. */
  readonly at: string
  /** The id of the key that has signed. */
  readonly key: string
}

export type SealLink = {
  readonly number: number
  readonly content: LinkContent
  /** The text that was signed, a {@link LinkStatement} as JSON; its hash is the link's. */
  readonly statement: string
  readonly signature: Buffer
  readonly hash: string
}

/** Where a chain ends. `key` is the id of the key that has signed last. */
type ChainEnd = { readonly number: number; readonly hash: string | null; readonly key: string | null }

/** A link that is kept elsewhere, to compare with: everything before it can be proven. */
export type Head = {
  readonly number: number
  readonly hash: string
  readonly at: string
  readonly statement: string
  /** base64url. */
  readonly signature: string
  readonly key: string
  readonly publicKey: string
}

/** Keys of the installation, the one that signs first, and the time. */
type Signing = { readonly keys: readonly [LogKey, ...LogKey[]]; readonly at: string }

/** The links that come after `end`, one for each content; before them one that names the key, where it is another now. */
export function extend(end: ChainEnd, contents: readonly LinkContent[], { keys, at }: Signing): readonly SealLink[] {
  const [key] = keys
  const vouchesFor = keys.find(({ id }) => id === end.key)?.publicKey ?? null
  const announced: LinkContent[] = end.key === key.id ? [] : [{ kind: 'key', publicKey: key.publicKey, vouchesFor }]
  const links: SealLink[] = []
  let { number, hash } = end
  for (const content of [...announced, ...contents]) {
    number += 1
    const statement = JSON.stringify({
      seal: 1,
      number,
      previous: hash,
      at,
      key: key.id,
      ...content,
    } satisfies LinkStatement)
    hash = hashOf(statement)
    links.push({ number, content, statement, signature: key.sign(statement), hash })
  }
  return links
}

/** The hash by which a link names the positions of its events, and their leaves in the same order. */
export function hashOfPositions(positions: readonly string[]): string {
  return hashOf(bytesOfPositions(positions))
}

export const hashOfLeaves = (leaves: readonly Buffer[]): string => hashOf(Buffer.concat(leaves))

/** SHA-256 of a text or of bytes, hex. */
export const hashOf = (content: string | Buffer): string => createHash('sha256').update(content).digest('hex')

/** A link as a head that can be kept. */
export function headOf({ statement, signature }: Pick<SealLink, 'statement' | 'signature'>, publicKey: string): Head {
  const { number, at, key } = readStatement(statement)
  return {
    number,
    hash: hashOf(statement),
    at,
    statement,
    signature: signature.toString('base64url'),
    key,
    publicKey,
  }
}

/**
 * The heads in a file: one JSON object, or one a line. `cutOff` has the numbers of lines, from 1, that a crash or a full disk has ended
 * early: whoever appends writes such a head again. Throws with the number of a line that is anything else, and where there is no head.
 */
export function readHeads(text: string): { readonly heads: readonly Head[]; readonly cutOff: readonly number[] } {
  const whole = headIn(text)
  if (whole !== undefined) return { heads: [whole], cutOff: [] }
  const heads: Head[] = []
  const cutOff: number[] = []
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue
    const head = headIn(line)
    if (head !== undefined) heads.push(head)
    else if (isBeginningOfJson(line)) cutOff.push(i + 1)
    else throw new Error(`line ${i + 1} of the file is no head of the log`)
  }
  if (heads.length === 0) throw new Error('there is no head in the file')
  return { heads, cutOff }
}

function isBeginningOfJson(text: string): boolean {
  try {
    JSON.parse(text)
    return false
  } catch {
    return text.startsWith('{')
  }
}

/** The last whole head in the end of a file of heads, whose first line may be cut off. */
export function lastHeadIn(text: string): Head | undefined {
  for (const line of text.split('\n').toReversed()) {
    const head = headIn(line)
    if (head !== undefined) return head
  }
  return undefined
}

/** Whether a head is what it says: its hash is that of its statement, and the statement is signed by its key. */
function isWhole({ number, hash, statement, signature, publicKey, key }: Head): boolean {
  const named = readStatement(statement)
  const signer = publicLogKey(publicKey)
  return (
    named.number === number &&
    named.key === key &&
    signer.id === key &&
    hashOf(statement) === hash &&
    isSignedBy(signer, statement, Buffer.from(signature, 'base64url'))
  )
}

/** The statement in a text; throws where it is none. */
export function readStatement(text: string): LinkStatement {
  const statement = JSON.parse(text) as Partial<LinkStatement> | null
  if (statement?.seal !== 1 || !Number.isSafeInteger(statement.number) || !kinds.has(statement.kind!))
    throw new Error('this is no statement of a seal that this version knows')
  return statement as LinkStatement
}

const kinds: ReadonlySet<string> = new Set(['events', 'key', 'sweep', 'swept', 'floor'])

function headIn(text: string): Head | undefined {
  try {
    const value = JSON.parse(text) as { data?: Head } & Head
    const head = value.data ?? value
    readStatement(head.statement)
    return typeof head.hash === 'string' && typeof head.signature === 'string' ? head : undefined
  } catch {
    return undefined
  }
}

/** Following the chain of seals from its first link to its end, and what of it is to be believed. */

export type SealProblem = {
  /**
   * An event is `changed`, `removed`, `inserted` or `reordered`; what the database says of a `link` is not what was sealed;
   * or a kept `head` is not in the chain.
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
  /** Heads that were kept elsewhere. */
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
 * The newest floor, and the trusted keys: the known ones, those of kept heads, and from the newest to
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
