/** The contents of a backup: the rows, with the statements that copy them out and in, and the content of files. */
import { createHash } from 'node:crypto'
import { logSchema, logTable } from '../../../catalog/log-triggers.ts'
import type { PgClient } from '../../../db/pools.ts'
import { quoteText, type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { includesSnapshot, parseSnapshot } from '../../../events/cursor.ts'
import { keyOf, type Storage, type StorageServices } from '../../files/storage/storage.ts'
import type { Pieces } from './format.ts'
import type { DatabaseRelation, Objects, TableColumn } from './objects.ts'

/** A table whose rows are copied. */
type CopiedTable = {
  readonly name: string
  readonly copyOut: string
  readonly copyIn: string
  /** Its approximate size in the database; for the progress. */
  readonly bytes: number
}

/**
 * Rows that stand for something which is not in a backup: processes that run, counts of the last minutes, places in the WAL of
 * this server, content that is half written, to be removed or can be made again, and mails with secrets that work.
 */
const withoutRows = [
  ...['svc_Lease', 'svc_TaskLock', 'svc_WriteMark', 'svc_RateLimit', 'svc_DevelopmentMail', 'svc_Hold'],
  ...['svc_Upload', 'svc_FileRemoval', 'svc_FileVariant'],
]

/** Waiting work comes first: what was written last stands at the end of the log anyway. */
export async function copiedTables(db: Reader, { relations, columns }: Objects): Promise<readonly CopiedTable[]> {
  const columnsOf = Map.groupBy(columns, ({ relation }) => relation)
  const renumbering = renumberingOf(await snapshotsIn(db, relations))
  const log = relations.find(({ schema, name }) => schema === 'public' && name === logTable)
  return relations.flatMap((relation) => {
    const isPlatforms = relation.schema === 'public' && withoutRows.includes(relation.name)
    if (relation.kind !== 'r' || isPlatforms) return []
    const stored = (columnsOf.get(relation.oid) ?? []).filter(({ generated }) => generated === '')
    const isLog = log !== undefined && relation.parent === log.ident
    return [copied(relation, stored, valuesIn(relation, isLog, renumbering))]
  })
}

function copied(
  relation: DatabaseRelation,
  columns: readonly TableColumn[],
  values: Readonly<Record<string, string>>,
): CopiedTable {
  const { ident, bytes } = relation
  const names = columns.map(({ name }) => name).join(', ')
  const list = columns.length === 0 ? '' : ` (${names})`
  const selected = columns.map(({ name, plainName }) => values[plainName] ?? `t.${name}`).join(', ')
  const from = Object.keys(values).length === 0 ? `${ident}${list}` : `(select ${selected} from only ${ident} t)`
  return {
    name: ident,
    copyOut: `copy ${from} to stdout`,
    copyIn: `copy ${ident}${list} from stdin with (freeze)`,
    bytes,
  }
}

/** Expressions in the place of columns. */
function valuesIn(
  { schema, name }: DatabaseRelation,
  isLog: boolean,
  renumbering: Renumbering,
): Readonly<Record<string, string>> {
  if (isLog) return { xid: renumbering.event('t.xid'), horizon: `'${firstNumber}'::xid8` }
  if (schema !== logSchema) return {}
  const snapshots = (...columns: readonly string[]) =>
    Object.fromEntries(columns.map((column) => [column, renumbering.snapshot(`t."${column}"`)]))
  switch (name) {
    case 'consumer':
      return {
        ...snapshots('snapshot', 'upTo'),
        ...{ token: 'null::uuid', holder: 'null::text', leaseUntil: 'null::timestamptz' },
        // The log does not reach back to its place: what was removed is not numbered anew.
        state: `case when pg_snapshot_xmin(t.snapshot) <= (select removed from ${logSchema}.floor) then 'stopped' else t.state end`,
      }
    case 'seal_state':
      return snapshots('from', 'upTo', 'sweep')
    case 'floor':
      return { removed: `'0'::xid8` }
    default:
      return {}
  }
}

/** The number of the oldest transactions; no server gives out one so small. */
const firstNumber = 3

/**
 * Numbers of transactions are a server's own. Events get new ones, as few as say the same of every place that is kept: the
 * first for what all have seen, and one more for each place that had not. They are smaller than any that a server gives out,
 * so they are visible wherever the backup is restored, and each place goes on exactly where it was.
 */
type Renumbering = { event(xid: string): string; snapshot(expression: string): string }

function renumberingOf(snapshots: readonly string[]): Renumbering {
  const ordered = snapshots.toSorted((a, b) => {
    const [left, right] = [parseSnapshot(a)!, parseSnapshot(b)!]
    if (includesSnapshot(right, left) !== includesSnapshot(left, right)) return includesSnapshot(right, left) ? -1 : 1
    return left.xmax < right.xmax ? -1 : left.xmax > right.xmax ? 1 : 0
  })
  const literal = (snapshot: string) => `'${snapshot}'::pg_snapshot`
  // Where one does not hold all of the one before it, that one counts for less: its reader meets an event again, and misses none.
  const unseen = ordered
    .map((snapshot, i) => `when not pg_visible_in_snapshot(XID, ${literal(snapshot)}) then '${firstNumber + i + 1}'`)
    .toReversed()
  const numbers = ordered.map((snapshot, i) => {
    const next = firstNumber + i + 1
    return `when '${snapshot}' then '${next}:${next}:'`
  })
  return {
    event: (xid) =>
      unseen.length === 0
        ? `'${firstNumber}'::xid8`
        : `(case ${unseen.join(' ').replaceAll('XID', xid)} else '${firstNumber}' end)::xid8`,
    snapshot: (expression) =>
      numbers.length === 0 ? expression : `(case ${expression}::text ${numbers.join(' ')} end)::pg_snapshot`,
  }
}

const places = [
  ['consumer', 'snapshot'],
  ['consumer', 'upTo'],
  ['seal_state', 'from'],
  ['seal_state', 'upTo'],
  ['seal_state', 'sweep'],
] as const

async function snapshotsIn(db: Reader, relations: readonly DatabaseRelation[]): Promise<readonly string[]> {
  const tables = new Set(relations.flatMap(({ schema, name }) => (schema === logSchema ? [name] : [])))
  const parts = places
    .filter(([table]) => tables.has(table))
    .map(
      ([table, column]) =>
        `select "${column}"::text as snapshot from ${logSchema}."${table}" where "${column}" is not null`,
    )
  if (parts.length === 0) return []
  const rows = await db.any<{ snapshot: string }>(rawQuery(parts.join(' union ')))
  return rows.map(({ snapshot }) => snapshot)
}

/** Where a sequence is. Not bound to any snapshot: read after the rows, it is beyond all of them. */
export type SequencePlace = { readonly ident: string; readonly last: string; readonly called: boolean }

export async function sequencePlaces(db: Reader, { sequences }: Objects): Promise<readonly SequencePlace[]> {
  const found: SequencePlace[] = []
  for (const { ident } of sequences) {
    const { last, called } = await db.one<{ last: string; called: boolean }>(
      rawQuery(`select last_value::text as last, is_called as called from ${ident}`),
    )
    found.push({ ident, last, called })
  }
  return found
}

export const setSequenceSql = ({ ident, last, called }: SequencePlace): string =>
  `select setval(${quoteText(ident)}::regclass, ${BigInt(last)}, ${called})`

/* The content of files: by its hash, none twice, with the places that rows of svc_File name for it. */

type ContentPlace = { readonly storage: string; readonly key: string; readonly type: string }

/** Content and where it is. Rows from before contents had hashes are each a content of their own. */
export type BackedUpContent = {
  readonly hash: string | null
  readonly size: number
  readonly places: readonly ContentPlace[]
}

const placesSql = `declare contents no scroll cursor for
  select hash, coalesce(hash, id::text) as one, storage, storage_folder as folder, filename, type, size::float8 as size
  from "public"."svc_File" order by coalesce(hash, id::text), storage, storage_folder, filename`

type ContentRecord = {
  readonly hash: string | null
  readonly one: string
  readonly storage: string
  readonly folder: string | null
  readonly filename: string
  readonly type: string
  readonly size: number
}

/** All of them as the transaction of the client sees them. */
export async function* contentsIn(client: PgClient): AsyncGenerator<BackedUpContent> {
  await client.query(placesSql)
  let group: ContentRecord[] = []
  for (;;) {
    const { rows } = await client.query<ContentRecord>('fetch 1000 from contents')
    for (const row of rows) {
      if (group.length > 0 && group[0]!.one !== row.one) {
        yield contentOf(group)
        group = []
      }
      group.push(row)
    }
    if (rows.length > 0) continue
    if (group.length > 0) yield contentOf(group)
    return
  }
}

function contentOf(rows: readonly ContentRecord[]): BackedUpContent {
  const places = new Map<string, ContentPlace>()
  for (const { storage, folder, filename, type } of rows) {
    const key = keyOf(folder, filename)
    places.set(`${storage} ${key}`, { storage, key, type })
  }
  return { hash: rows[0]!.hash, size: rows[0]!.size, places: [...places.values()] }
}

/** The content from the first of its places that has it; undefined where none has. */
export async function readContent(
  { storages }: StorageServices,
  { places }: Pick<BackedUpContent, 'places'>,
): Promise<Pieces | undefined> {
  for (const { storage, key } of places) {
    const found = await storages.holding(storage).read(key).catch(nothingThere)
    if (found !== undefined) return found
  }
  return undefined
}

/** A row that was written by SQL may name what is no key: nothing can have been stored there. */
function nothingThere(error: unknown): undefined {
  if (!(error instanceof AppError) || error.code !== 'INVALID_PATH') throw error
}

/**
 * Puts content where rows name it. Equal content that exists already stays.
 *
 * @throws {AppError} 409 where something else is in its place
 */
export async function writeContent(
  { storages }: StorageServices,
  stored: BackedUpContent,
  content: Pieces,
): Promise<void> {
  const missing: ContentPlace[] = []
  for (const place of stored.places)
    if (!(await isThere(storages.holding(place.storage), place, stored))) missing.push(place)
  const [first, ...others] = missing
  // Not read: the reader of the backup passes over it.
  if (first === undefined) return
  await storages.holding(first.storage).write(first.key, content, { type: first.type })
  for (const other of others) {
    const service = storages.holding(other.storage)
    if (other.storage === first.storage) await service.copy(first.key, other.key)
    else await service.write(other.key, (await storages.holding(first.storage).read(first.key))!, { type: other.type })
  }
}

async function isThere(service: Storage, { key }: ContentPlace, { hash, size }: BackedUpContent): Promise<boolean> {
  const found = await service.stat(key)
  if (found === undefined) return false
  if (found.size === size && (hash === null || (await hashAt(service, key)) === hash)) return true
  throw new AppError(409, `There is other content at ${service.name} ${key}: the files go to an empty place`, {
    code: 'CONTENT_EXISTS',
  })
}

async function hashAt(service: Storage, key: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const piece of (await service.read(key)) ?? []) hash.update(piece)
  return hash.digest('hex')
}

/** Text compresses well. */
export const isText = ({ places }: BackedUpContent): boolean =>
  /^text\/|[/+](json|xml|javascript|csv)$|svg/.test(places[0]?.type ?? '')
