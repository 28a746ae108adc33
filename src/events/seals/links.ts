/**
 * The chain of seals, as values: pure. A *link* is a statement about events (or about the chain), which names the link
 * before it by its hash and is signed. A holder of a *head*, the newest link at some moment, can verify that everything
 * stored before it is unchanged (ADR 42).
 */

import { createHash } from 'node:crypto'
import { isSignedBy, type LogKey, publicLogKey } from '../../adapters/log-key.ts'
import type { Round } from '../cursor.ts'
import { bytesOfPositions } from '../log.ts'

/**
 * The statement of a link. All events of one link were written on one day of UTC, so that retention removes whole
 * links.
 */
export type LinkContent =
  | (SealedEvents & { readonly kind: 'events' })
  /**
   * From here on links are signed with this key; the first link of a chain is one of these. `vouchesFor` is the key of the
   * links before, where the signer knows it for its own: a chain that somebody else has signed is not taken over in silence.
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

export type LinkStatement = LinkContent & {
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

/** A link that somebody keeps elsewhere, to compare with: everything before it can be proven. */
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

/** A link as the head that somebody may keep. */
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

/** The heads in a file: one JSON object, or one a line. Throws with the number of the line that is none. */
export function readHeads(text: string): readonly Head[] {
  const whole = headIn(text)
  if (whole !== undefined) return [whole]
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  if (lines.length === 0) throw new Error('there is no head in the file')
  return lines.map((line, i) => {
    const head = headIn(line)
    if (head === undefined) throw new Error(`line ${i + 1} of the file is no head of the log`)
    return head
  })
}

/** Whether a head is what it says: its hash is that of its statement, and the statement is signed by its key. */
export function isWhole({ number, hash, statement, signature, publicKey, key }: Head): boolean {
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
