/**
 * Cursors: opaque resume points in the log (ADR 26). Positions are taken in another order than transactions commit,
 * so "everything after position n" loses events; a cursor says which transactions its holder has seen.
 */
import { AppError } from '../errors.ts'

/**
 * Everything visible in `snapshot` has been read; with `upTo`, the holder is in the middle of the round that ends there
 * and has read it up to `position`. `event`: carried by an event of that round (ADR 26); its holder will not come back
 * for the end of the round, but for everything until then.
 */
export type Cursor = SnapshotCursor | EventCursor
type SnapshotCursor = InLineage & {
  readonly kind: 'snapshot'
  readonly snapshot: string
  readonly upTo: string | undefined
  readonly position: string
}
type EventCursor = InLineage & {
  readonly kind: 'event'
  readonly snapshot: string
  readonly upTo: string
  readonly position: string
}

/**
 * In which history of the database the numbers of the snapshots were given out (ADR 63); empty for a cursor from before there
 * were lineages. Undefined where the database itself keeps the place, which then is of its own history.
 */
type InLineage = { readonly lineage?: string | undefined }

/** SQL of this moment, for {@link cursorAt}: the snapshot of the statement and the lineage of the database. */
export const momentSql = `pg_current_snapshot()::text || '@' || svc_log."$lineage"()`

/** The events that became visible after `from` until `upTo`, both `pg_snapshot` texts. */
export type Round = { readonly from: string; readonly upTo: string }

/** A parsed `pg_snapshot`: transactions from `xmax` on and those in `running` are not visible in it. */
export type Snapshot = {
  readonly xmin: bigint
  readonly xmax: bigint
  /** Ascending, from xmin to below xmax. */
  readonly running: readonly bigint[]
}

/** The cursor of a reader that has seen everything at a moment: a `pg_snapshot` as text, with its lineage as {@link momentSql} gives it. */
export function cursorAt(moment: string): SnapshotCursor {
  const [snapshot = '', lineage] = moment.split('@')
  return { kind: 'snapshot', snapshot, upTo: undefined, position: '0', ...(lineage !== undefined && { lineage }) }
}

/** The encoded cursors of the events of one round, by their positions. */
export function eventCursors(snapshot: string, upTo: string, lineage = ''): (position: string) => string {
  const round = `e/${pack(snapshot)}/${pack(upTo)}/`
  return (position) => encode(`${round}${position}/${lineage}`)
}

/** The cursor of a reader that has got an event and, before it, everything that is visible in `seen`. */
export function afterSeen(encoded: string, seen: Snapshot): string {
  const { upTo, position, lineage } = parseCursor(encoded) as EventCursor
  return eventCursors(`${seen.xmin}:${seen.xmax}:${seen.running}`, upTo, lineage)(position)
}

/** The text handed to clients: base64url, to be treated as opaque. */
export function encodeCursor({ kind, snapshot, upTo, position, lineage = '' }: Cursor): string {
  return encode(`${kind[0]}/${pack(snapshot)}/${upTo === undefined ? '' : pack(upTo)}/${position}/${lineage}`)
}

/** Reads what `encodeCursor` wrote. Throws AppError 400 `Invalid cursor` for anything else. */
export function parseCursor(encoded: unknown): Cursor {
  const cursor = typeof encoded === 'string' && encoded.length <= longestCursor ? decode(encoded) : undefined
  if (cursor === undefined) throw new AppError(400, 'Invalid cursor', { code: 'INVALID_CURSOR' })
  return cursor
}

/** Parses the text form of a `pg_snapshot`; undefined when PostgreSQL would refuse it. */
export function parseSnapshot(text: string): Snapshot | undefined {
  const match = /^(\d{1,20}):(\d{1,20}):((?:\d{1,20},)*\d{1,20})?$/.exec(text)
  if (match === null) return undefined
  const xmin = BigInt(match[1]!)
  const xmax = BigInt(match[2]!)
  const running = match[3]?.split(',').map(BigInt) ?? []
  const ordered = running.every((xid, i) => xid >= (running[i - 1] ?? xmin) && xid < xmax)
  return isTransactionId(xmin) && isTransactionId(xmax) && xmin <= xmax && ordered ? { xmin, xmax, running } : undefined
}

/** Whether a transaction that has committed was visible in the snapshot. */
export function isVisible(xid: bigint, snapshot: Snapshot): boolean {
  return xid < snapshot.xmin || (xid < snapshot.xmax && !snapshot.running.includes(xid))
}

/** Whether everything that is visible in `earlier` is visible in `later`. */
export function includesSnapshot(later: Snapshot, earlier: Snapshot): boolean {
  return later.xmax >= earlier.xmax && later.running.every((xid) => !isVisible(xid, earlier))
}

/** The 64-bit transaction id whose lower half is `xid`, next to `near`: the protocol of replication sends only that half. */
export function widenXid(xid: number, near: bigint): bigint {
  const guess = near - (near % epoch) + BigInt(xid)
  if (guess > near + epoch / 2n && guess >= epoch) return guess - epoch
  return guess < near - epoch / 2n ? guess + epoch : guess
}

const epoch = 2n ** 32n
const encode = (text: string) => Buffer.from(text, 'latin1').toString('base64url')

/** The running transactions by their distances, in base 36: every change on a socket carries two snapshots. */
function pack(snapshot: string): string {
  const { xmin, xmax, running } = parseSnapshot(snapshot)!
  const steps = running.map((xid, i) => (xid - (running[i - 1] ?? xmin)).toString(36))
  return `${xmin}:${xmax}:${steps}`
}

function unpack(packed: string): string | undefined {
  const match = /^(\d{1,20}):(\d{1,20}):((?:[\da-z]{1,10},)*[\da-z]{1,10})?$/.exec(packed)
  if (match === null) return undefined
  let xid = BigInt(match[1]!)
  const running = match[3]?.split(',').map((step) => {
    xid += BigInt(Number.parseInt(step, 36))
    return xid
  })
  const snapshot = `${match[1]}:${match[2]}:${running ?? ''}`
  return parseSnapshot(snapshot) && snapshot
}

/** A snapshot lists the running transactions, some hundreds at most. */
const longestCursor = 64_000
const longestPosition = 2n ** 63n

function decode(encoded: string): Cursor | undefined {
  if (!/^[\w-]+$/.test(encoded)) return undefined
  const parts = Buffer.from(encoded, 'base64url').toString('latin1').split('/')
  // Those from before there were lineages have four.
  if (parts.length !== 4 && parts.length !== 5) return undefined
  const [kind, from, end, position, lineage = ''] = parts as [string, string, string, string, string?]
  const [snapshot, upTo] = [unpack(from), unpack(end)]
  if (snapshot === undefined || !isPosition(position) || !/^([\da-f]{8}\.[\dA-F]{0,8})?$/.test(lineage))
    return undefined
  if (kind === 'e' && upTo !== undefined) return { kind: 'event', snapshot, upTo, position, lineage }
  const isSnapshot = kind === 's' && (upTo !== undefined || end === '')
  return isSnapshot ? { kind: 'snapshot', snapshot, upTo, position, lineage } : undefined
}

function isPosition(text: string): boolean {
  return /^\d{1,19}$/.test(text) && BigInt(text) < longestPosition
}

/** 64 bits, of which the lower 32 are the transaction id proper and never zero. */
function isTransactionId(xid: bigint): boolean {
  return xid < 2n ** 64n && (xid & 0xffffffffn) !== 0n
}
