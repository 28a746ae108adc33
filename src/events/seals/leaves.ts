/**
 * The *leaf* of an event, computed by the database: a hash of everything that the event says. Its images and its origin
 * (address and user agent) are in it as commitments, each salted on its own, so that either can be erased while the
 * rest stays provable: what is left of an erased part is its commitment, and without the salt its content cannot be guessed.
 */
import { randomBytes } from 'node:crypto'
import { logSchema, logTable } from '../../catalog/log-triggers.ts'
import { type Reader, rawQuery, type Tx } from '../../db/sql.ts'
import { eventIdSql, timeSql } from '../log.ts'
import type { EventRun, Summary } from '../log-reader.ts'

/** The form of leaves that is written now. Older ones are still read: each link says which it has. */
export const canonical = 1

/** Bytes per event: of both salts, and of the beginning of the leaf that is kept beside the hash of all. */
const saltBytes = 16
export const saltsBytes = 2 * saltBytes
export const markBytes = 8

export const newSalts = (events: number): Buffer => randomBytes(events * saltsBytes)

/** Events by their positions in order, and both salts of each, one after the other. */
type Salted = {
  readonly positions: readonly string[]
  readonly salts: Buffer
  readonly canonical: number
  /** YYYY-MM-DD in UTC, which opens a single partition; undefined looks into all. */
  readonly day: string | undefined
}

/** The part of a link about the leaves of its events, and the stored parts of each leaf. */
export type FreshLeaves = {
  readonly count: number
  /** SHA-256, hex, of the leaves in order. */
  readonly leaves: string
  readonly marks: Buffer
  /** The time of the youngest event. */
  readonly latest: string
}

/**
 * The leaves of events that were never sealed, by position, put together in the database: what would be sent of each event
 * costs more than its hashes. An event that is not there, or not of that day, is not counted.
 */
export function freshLeaves(db: Reader, { positions, salts, canonical, day }: Salted): Promise<FreshLeaves> {
  return db.one(rawQuery(freshSql(canonical), [positions, positions, salts, day ?? null]))
}

/** Events, and where the salts of each are: those of the first are of the event at the position `from`. */
export type SaltWindow = { readonly from: string; readonly salts: Buffer }

/**
 * The same for the events of a brief page, made by the statement that finds them: an event has a leaf where its salts are in
 * the window. Its runs are {@link SummarizedLeaves}. What is true of their content when the chain is held is for the caller to find
 * out, see {@link chainVersionSql}.
 */
export const leavesSummary = ({ from, salts }: SaltWindow, runLength: number): Summary => ({
  each: ([salts, from, events]) => {
    const slot = `(e.position - ${from}::bigint)`
    const images = commitment(0, imagesSql, salts, slot)
    const origin = commitment(1, originSql, salts, slot)
    const leaf = leafSql(canonical, 'e.id', images, origin, 'e.position')
    return `case when ${slot} >= 0 and ${slot} < ${events}::int then ${leaf} end`
  },
  ofRun: {
    leaves: `encode(sha256(string_agg(value, '' order by position)), 'hex')`,
    marks: `string_agg(substr(value, 1, ${markBytes}), '' order by position)`,
  },
  once: `select ${chainVersionSql} from ${logSchema}.seal_state`,
  values: [salts, from, salts.length / saltsBytes],
  runLength,
})

/** Of events of the window by their positions, 8 bytes each. */
export function saltsOf({ from, salts }: SaltWindow, positions: Buffer): Buffer {
  const count = positions.length / 8
  const slotAt = (i: number) => Number(positions.readBigInt64BE(i * 8) - BigInt(from))
  const cut = (slot: number, slots: number) => salts.subarray(slot * saltsBytes, (slot + slots) * saltsBytes)
  const first = slotAt(0)
  if (slotAt(count - 1) - first === count - 1) return cut(first, count)
  return Buffer.concat(Array.from({ length: count }, (_, i) => cut(slotAt(i), 1)))
}

/** Null where no event of the run has a leaf. */
export type SummarizedLeaves = EventRun & { readonly leaves: string | null; readonly marks: Buffer | null }

/**
 * Of `svc_log.seal_state`: changes with each link, and where a part of an event is erased. As long as it is what a statement has
 * read, leaves of that statement are true.
 */
export const chainVersionSql = 'xmin::text'

/** An event as verification sees it. */
export type SealedLeaf = {
  readonly position: string
  readonly leaf: Buffer
  readonly createdAt: string
  /** Of the row that was found; another than it was looked for where one of the two was changed. */
  readonly found: string
  readonly xid: string
  readonly imagesErased: boolean
  readonly originErased: boolean
  /** That a part was erased is said, but what it was is still there, or something else. */
  readonly isContradictory: boolean
  readonly entity: string
  readonly entityId: string | null
  readonly userId: string | null
}

/**
 * The leaves of events that were sealed, with the commitments that are kept of erased parts. `contents` looks for what each
 * event says at other positions, to find out whether two have changed places.
 */
export async function sealedLeaves(
  db: Reader,
  { positions, salts, canonical, day }: Salted,
  contents = positions,
): Promise<readonly SealedLeaf[]> {
  return db.any<SealedLeaf>(rawQuery(sealedSql(canonical), [positions, contents, salts, day ?? null]))
}

const createdAtSql = timeSql('e."createdAt"')

/** The content of an event, in the binary form of PostgreSQL's protocol: no setting of a session changes it. */
const imagesSql = `coalesce(jsonb_send(e.changes), '')`
const originSql = `record_send(row(e.ipaddress::text, e."userAgent"::text))`

/** By form, the columns that every event keeps for ever, with their types. */
const lastingColumns: Readonly<Record<number, (id: string, position: string) => string>> = {
  1: (id, position) => `1::int2, ${position}, ${id}, e."createdAt", e.type::text, e.entity::text, e."entityId"::text,
    e.action::text, e."userId", e."roleId", e."tenant_Id", e."requestId"::text, e."logRequestId", e.agent, e.cause`,
}

/** Of a part, from the salts of events of which this is the one at `slot`, counted from 0. */
const salt = (salts: string, slot: string, part: 0 | 1): string =>
  `substr(${salts}::bytea, (${slot} * ${saltsBytes} + ${1 + part * saltBytes})::int, ${saltBytes})`
const commitment = (part: 0 | 1, content: string, salts = '$3', slot = '(p.n - 1)'): string =>
  `sha256(${salt(salts, slot, part)} || ${content})`

function leafSql(form: number, id: string, images: string, origin: string, position = 'p.position'): string {
  const columns = lastingColumns[form]?.(id, position)
  if (columns === undefined) throw new Error(`leaves of form ${form} are of a newer version`)
  return `sha256(record_send(row(${columns}, ${images}, ${origin})))`
}

const ofDay = `($4::text is null or e."createdAt" >= $4::timestamp at time zone 'UTC' and e."createdAt" < ($4::timestamp + interval '1 day') at time zone 'UTC')`

/** By the index on id; in the order of `$1`, whose events have what those of `$2` say. */
const wanted = `unnest($1::bigint[], $2::bigint[]) with ordinality as p (position, content, n)
  join "${logTable}" e on e.id = ${eventIdSql('p.content')} and ${ofDay}`

function freshSql(form: number): string {
  // A leaf that was found by the event's id has that id: it need not be computed from the position.
  const leaf = leafSql(form, 'e.id', commitment(0, imagesSql), commitment(1, originSql))
  return `select count(*)::int as count, encode(sha256(coalesce(string_agg(leaf, '' order by n), '')), 'hex') as leaves,
    coalesce(string_agg(substr(leaf, 1, ${markBytes}), '' order by n), '') as marks, coalesce(${timeSql('max("createdAt")')}, '') as latest
  from (select p.n, e."createdAt", ${leaf} as leaf from ${wanted} offset 0) fresh`
}

function sealedSql(form: number): string {
  const images = `coalesce(k.images, ${commitment(0, imagesSql)})`
  const origin = `coalesce(k.origin, ${commitment(1, originSql)})`
  return `select p.position::text as position, e.position::text as found, e.xid::text as xid, ${createdAtSql} as "createdAt",
    ${leafSql(form, eventIdSql('p.position'), images, origin)} as leaf,
    k.images is not null as "imagesErased", k.origin is not null as "originErased",
    (k.images is not null and e.changes is distinct from '{"erased": true}'
      or k.origin is not null and coalesce(e.ipaddress, e."userAgent") is not null) as "isContradictory",
    e.entity, e."entityId", e."userId"
  from ${wanted} left join ${logSchema}.erased_part k on k.position = p.position order by p.n`
}

/** Which part of which events is about to be erased: a condition on the log's columns, `e.`, with its values. */
type Erasure = {
  readonly part: 'images' | 'origin'
  readonly where: string
  readonly values: readonly unknown[]
}

/**
 * To be called before a part of events is erased, in the same transaction: keeps the commitments of those that are sealed and
 * forgets their salts. Nothing is sealed until the transaction ends, so that no leaf is made of what is just going.
 */
export async function keepCommitments(tx: Tx, { part, where, values }: Erasure): Promise<void> {
  // Written, so that leaves that were just made of what is going are made again.
  await tx.any(rawQuery(`update ${logSchema}.seal_state set number = number`))
  const [content, offset] = part === 'images' ? [imagesSql, 0] : [originSql, saltBytes]
  const saltAt = `substr(s.salts, ((n - 1) * ${saltsBytes} + ${1 + offset})::int, ${saltBytes})`
  const before = offset === 0 ? '' : `substr(s.salts, ((n - 1) * ${saltsBytes} + 1)::int, ${saltBytes}) || `
  const after =
    offset === 0 ? ` || substr(s.salts, ((n - 1) * ${saltsBytes} + ${1 + saltBytes})::int, ${saltBytes})` : ''
  await tx.any(
    rawQuery(
      `with slot as (
         select e.position, s.number, n, sha256(${saltAt} || ${content}) as kept
         from "${logTable}" e
         join ${logSchema}.seal s on s.range @> e.position and s.salts is not null
         cross join lateral (select case when s.positions is null then e.position - lower(s.range) + 1
           else array_position(s.positions, e.position) end as n) place
         where ${where} and n is not null
       ), kept as (
         insert into ${logSchema}.erased_part as k (position, ${part}) select position, kept from slot
         on conflict (position) do update set ${part} = coalesce(k.${part}, excluded.${part})
       ), holes as (
         select number, array_agg(n) as slots from slot group by number
       )
       update ${logSchema}.seal s set salts = (
         select string_agg(case when n = any(holes.slots) then ${before}'\\x${'00'.repeat(saltBytes)}'::bytea${after}
           else substr(s.salts, ((n - 1) * ${saltsBytes} + 1)::int, ${saltsBytes}) end, '' order by n)
         from generate_series(1, length(s.salts) / ${saltsBytes}) n)
       from holes where s.number = holes.number`,
      values,
    ),
  )
}

/**
 * The tables of seals, for a migration. Safe to run again.
 *
 * A link's `positions` are null where none is missing between its first and last. `marks` are the beginnings of its leaves,
 * by which a broken link names the event; `salts` are random, so compressing them is in vain.
 */
export function sealTablesSql(): string[] {
  return [
    `create table if not exists ${logSchema}.seal (
  number bigint primary key,
  kind text not null,
  statement text not null,
  signature bytea not null,
  day date,
  range int8range,
  positions bigint[],
  marks bytea,
  salts bytea
)`,
    `alter table ${logSchema}.seal alter column salts set storage external, alter column marks set storage external`,
    `create index if not exists seal_range_idx on ${logSchema}.seal using gist (range) where range is not null`,
    `create table if not exists ${logSchema}.seal_state (
  only_row boolean primary key default true check (only_row),
  number bigint not null default 0,
  hash text,
  key text,
  "from" pg_snapshot,
  "upTo" pg_snapshot,
  position bigint not null default 0,
  sweep pg_snapshot,
  floor date
) with (fillfactor = 50)`,
    `insert into ${logSchema}.seal_state default values on conflict do nothing`,
    `create table if not exists ${logSchema}.erased_part (
  position bigint primary key,
  images bytea,
  origin bytea
)`,
  ]
}
