/** Bringing one collection or one tenant back, beside everything else that goes on: from the log, or from a backup. */
import type { IdSource } from '../../../adapters/ids.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { clientError } from '../../../db/errors.ts'
import { quoteName, type Reader, rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import { holdContent } from '../../../db/unlogged/files.ts'
import { AppError } from '../../../errors.ts'
import { systemActor } from '../../../events/types.ts'
import { isUuid } from '../../../language/text.ts'
import { systemAccess } from '../../../query/access.ts'
import {
  isProtected,
  type LoadedRows,
  type LoadedState,
  type PastState,
  type RestorablePart,
  type RestoreChoices,
  type RestoredPart,
  restoreState,
  type StateReport,
  type TenantRows,
  type UndoWrites,
} from '../../data/undo/undo.ts'
import { keyOf, type StorageServices } from '../../files/storage/storage.ts'
import { type BackedUpContent, writeContent } from './contents.ts'
import { type BackupHeader, openReader, type Pieces } from './format.ts'
import { readPlace } from './place.ts'

type PartWrites = UndoWrites & UnloggedWrites & StorageServices & IdSource

/** A moment (a time or a cursor) that the log reaches back to, or the place of a backup. */
export type RestoredFrom = { readonly at: string } | { readonly file: string }

export type PartReport = StateReport & {
  /** The log's id of what was written, by which it can be undone. */
  readonly requestId: string
}

/** @throws {AppError} 404 where it is not there or was not then, 409 where it is never brought back by itself, 410 where the log does not reach back */
export function restoreCollection(
  deps: PartWrites,
  collection: string,
  from: RestoredFrom,
  choices: RestoreChoices,
): Promise<PartReport> {
  return restore(
    deps,
    { what: 'collection', name: collection, called: collection, collections: [collection] },
    from,
    choices,
  )
}

/**
 * All rows of a tenant (by its id or name), its members and files, and the tenant itself.
 *
 * @throws {AppError} 404 where it was not there then
 */
export async function restoreTenant(
  deps: PartWrites,
  tenant: string,
  from: RestoredFrom,
  choices: RestoreChoices,
): Promise<PartReport> {
  if (!deps.config.tenancy.enabled) throw new AppError(400, 'There are no tenants: MULTI_TENANT is off')
  const id = await tenantOf(deps.db, tenant)
  const part = partOfTenant(deps.catalog.current(), id)
  return restore(deps, { what: 'tenant', name: id, called: tenant, ...part }, from, choices)
}

async function restore(
  deps: PartWrites,
  part: RestoredPart,
  from: RestoredFrom,
  choices: RestoreChoices,
): Promise<PartReport> {
  const requestId = deps.newId()
  const actor = { ...systemActor, userAgent: 'daybook restore', requestId, logRequestId: requestId }
  const state: PastState =
    'at' in from
      ? { by: 'log', at: from.at }
      : {
          by: 'backup',
          load: async (tx) => {
            const source = await readPlace(deps, from.file)
            try {
              return await loadPart(deps, tx, source, part, { writesContent: !choices.dryRun })
            } finally {
              source.destroy()
            }
          },
        }
  try {
    return { ...(await restoreState(deps, { actor, access: systemAccess }, part, state, choices)), requestId }
  } catch (error) {
    throw clientError(error) ?? error
  }
}

export const home = 'svc_Tenant'
export const tenantColumn = 'tenant_Id'

/** Tasks that waited then have run since, and would run again. */
const neverAgain = new Set(['svc_Tasks'])

/** Which rows are a tenant's: those of collections with a column that says so, and what is a part of them. */
function partOfTenant({ collections }: Catalog, id: string): RestorablePart & { readonly tenant: TenantRows } {
  const all = [...collections.values()].filter(({ name, logged }) => logged && !neverAgain.has(name))
  const owned = all.filter(({ fields }) => fields.has(tenantColumn))
  const names = new Set(owned.map(({ name }) => name))
  const parts = all.flatMap((collection) => partsIn(collection, names))
  const others = parts.map(({ collection }) => collection)
  return { collections: [home, ...names, ...others], tenant: { id, home, parts } }
}

/** By the relation whose rows take this one with them. */
export function partsIn(collection: Collection, owned: ReadonlySet<string>): TenantRows['parts'] {
  const { name, fields, relations } = collection
  if (name === home || fields.has(tenantColumn) || isProtected(name)) return []
  const whole = [...relations.values()].find(
    ({ kind, target, foreignKey, onDelete }) =>
      kind === 'belongsTo' && onDelete === 'CASCADE' && owned.has(target) && fields.get(foreignKey)?.nullable === false,
  )
  return whole === undefined ? [] : [{ collection: name, column: whole.foreignKey, of: whole.target }]
}

/** Also of a tenant that is gone. */
export async function tenantOf(db: Reader, tenant: string): Promise<string> {
  if (isUuid(tenant)) return tenant.toLowerCase()
  const row = await db.maybeOne<{ id: string }>(
    rawQuery(
      `select id::text, 0 as gone, 0::bigint as position from "${home}" where name = $1
       union all select "entityId", 1, -position from "${logTable}"
       where type = 'data' and entity = '${home}' and action = 'delete' and changes->'before'->>'name' = $1
       order by gone, position limit 1`,
      [tenant],
    ),
  )
  if (row === null || row === undefined)
    throw new AppError(404, `There is no tenant ${tenant}, and the log knows of none`)
  return row.id
}

/* Taking rows and contents of a part out of a backup, into tables of a transaction and the storage services. */

type LoadWrites = UnloggedWrites & StorageServices & CurrentCatalog

type LoadOptions = {
  /** Without it content is looked for in the backup, and stays there. */
  readonly writesContent: boolean
}

/**
 * Reads a backup from its beginning to its end. Rows of the part go into tables that live as long as the transaction; content
 * that they name and that is gone is put where they name it, and is removed again unless a row names it soon.
 *
 * @throws {AppError} 422 for a backup that is not whole, 404 for one without the part
 */
async function loadPart(
  deps: LoadWrites,
  tx: Tx,
  source: Pieces,
  part: RestoredPart,
  { writesContent }: LoadOptions,
): Promise<LoadedState> {
  const { header, parts } = await openReader(source)
  const loading = new Map<string, Loading>()
  let wanted: ReadonlySet<string> | undefined
  const found = new Set<string>()
  for await (const { about, content } of parts()) {
    if (about.kind === 'schema') {
      for (const one of await wantedTables(deps.catalog.current(), tx, part, JSON.parse(await textOf(content))))
        loading.set(one.name, one)
    } else if (about.kind === 'table' && loading.has(about.name)) {
      await loadRows(tx, loading.get(about.name)!, content, part)
    } else if (about.kind === 'file') {
      wanted ??= await contentNamed(tx, [...loading.values()])
      const stored = about as unknown as BackedUpContent
      const places = stored.places.filter(({ storage, key }) => wanted!.has(`${storage} ${key}`))
      for (const { storage, key } of places) found.add(`${storage} ${key}`)
      if (writesContent && places.length > 0) await writeHeld(deps, { ...stored, places }, content)
    }
  }
  await requireTenant(tx, loading, part)
  await removeOthers(tx, [...loading.values()], part)
  return {
    at: (header as unknown as BackupHeader).createdAt,
    tables: [...loading.values()],
    hasContent: ({ storage, storage_folder: folder, filename }) =>
      found.has(`${storage} ${keyOf((folder as string | null) ?? null, String(filename))}`),
  }
}

type Loading = LoadedRows & {
  /** Of the table in the backup. */
  readonly name: string
  /** Where the columns stand in a line of the backup; types are those of today. */
  readonly at: readonly { readonly index: number; readonly column: string; readonly type: string }[]
  /** Where the column stands by which rows are chosen. */
  readonly chosenBy: number | undefined
}

type PartStatements = { readonly tables: readonly { readonly name: string; readonly copyIn: string }[] }

async function wantedTables(
  { collections }: Catalog,
  tx: Tx,
  part: RestorablePart,
  { tables }: PartStatements,
): Promise<readonly Loading[]> {
  const byName = new Map(tables.map((table) => [namesIn(table.name).join('.'), table]))
  const wanted: Loading[] = []
  for (const [index, collection] of part.collections.entries()) {
    const table = byName.get(`public.${collection}`)
    if (collections.get(collection) === undefined || isProtected(collection)) continue
    if (table === undefined) {
      // A tenant may have rows today that it did not have then.
      if (part.tenant !== undefined) continue
      throw new AppError(404, `The backup has no collection ${collection}`)
    }
    wanted.push(await makeTable(tx, part, { index, collection, table }))
  }
  return wanted
}

async function makeTable(
  tx: Tx,
  { tenant }: RestorablePart,
  {
    index,
    collection,
    table,
  }: { readonly index: number; readonly collection: string; readonly table: PartStatements['tables'][number] },
): Promise<Loading> {
  const own = `pg_temp.${quoteName(`daybook_then_${index}`)}`
  await tx.any(rawQuery(`drop table if exists ${own}`))
  await tx.any(
    rawQuery(
      `create temporary table ${quoteName(`daybook_then_${index}`)} on commit drop as select * from public.${quoteName(collection)} where false`,
    ),
  )
  const types = await tx.any<{ name: string; type: string }>(
    rawQuery(
      `select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
       where attrelid = $1::regclass and attnum > 0 and not attisdropped`,
      [own],
    ),
  )
  const typeOf = new Map(types.map(({ name, type }) => [name, type]))
  const names = columnsOf(table)
  const at = names.flatMap((column, place) => {
    const type = typeOf.get(column)
    return type === undefined ? [] : [{ index: place, column, type }]
  })
  const column = tenant === undefined ? undefined : collection === tenant.home ? 'id' : 'tenant_Id'
  const isPart = tenant?.parts.some((one) => one.collection === collection) === true
  const chosenBy = column === undefined || isPart ? undefined : names.indexOf(column)
  return { collection, table: own, name: table.name, columns: new Set(at.map((one) => one.column)), at, chosenBy }
}

/** `copy public.book (id, "Weird name") from stdin …` */
function columnsOf({ name, copyIn }: PartStatements['tables'][number]): readonly string[] {
  const list = copyIn.slice(`copy ${name} (`.length, copyIn.lastIndexOf(') from stdin'))
  return copyIn.startsWith(`copy ${name} (`) ? namesIn(list) : []
}

/** Names in SQL, quoted or not, between commas or dots. */
const namesIn = (text: string): string[] =>
  [...text.matchAll(/"((?:[^"]|"")*)"|([^",.\s]+)/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!,
  )

const rowsAtOnce = 1000

async function loadRows(tx: Tx, loading: Loading, content: Pieces, { tenant }: RestorablePart): Promise<void> {
  const { table, at, chosenBy } = loading
  const columns = at.map(({ column }) => quoteName(column))
  const values = at.map(({ type }, index) => `v.c${index}::${type}`)
  const lists = at.map((_, index) => `$${index + 1}::text[]`)
  const insert = `insert into ${table} (${columns}) select ${values} from unnest(${lists}) v(${at.map((_, index) => `c${index}`)})`
  let rows: (readonly (string | null)[])[] = []
  const flush = async () => {
    if (rows.length > 0)
      await tx.any(
        rawQuery(
          insert,
          at.map(({ index }) => rows.map((row) => row[index] ?? null)),
        ),
      )
    rows = []
  }
  for await (const line of linesOf(content)) {
    const row = line.split('\t').map(decoded)
    if (chosenBy !== undefined && row[chosenBy]?.toLowerCase() !== tenant!.id) continue
    rows.push(row)
    if (rows.length === rowsAtOnce) await flush()
  }
  await flush()
}

/** COPY writes a line break within a value as `\n`. */
async function* linesOf(content: Pieces): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let rest = ''
  for await (const piece of content) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n')
    rest = lines.pop()!
    yield* lines
  }
}

const escapes: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }

/** A value in COPY's text form. */
function decoded(text: string): string | null {
  if (text === '\\N') return null
  return text.includes('\\') ? text.replaceAll(/\\(.)/gs, (_, letter: string) => escapes[letter] ?? letter) : text
}

/** All rows of a tenant that the backup does not know would have to go. */
async function requireTenant(tx: Tx, loaded: ReadonlyMap<string, Loading>, part: RestoredPart): Promise<void> {
  const { tenant, called } = part
  if (tenant === undefined) return
  const tenants = [...loaded.values()].find(({ collection }) => collection === tenant.home)
  const rows = tenants === undefined ? [] : await tx.any(rawQuery(`select 1 from ${tenants.table}`))
  if (rows.length === 0) throw new AppError(404, `The backup has no tenant ${called}`)
}

/** Parts of rows that are not the tenant's came along, because they say by another row whose they are. */
async function removeOthers(tx: Tx, loaded: readonly Loading[], { tenant }: RestorablePart): Promise<void> {
  for (const { collection, column, of } of tenant?.parts ?? []) {
    const [own, owner] = [collection, of].map((name) => loaded.find((one) => one.collection === name))
    if (own !== undefined)
      await tx.any(
        rawQuery(
          owner === undefined
            ? `delete from ${own.table}`
            : `delete from ${own.table} p where not exists (select from ${owner.table} o where o.id = p.${quoteName(column)})`,
        ),
      )
  }
}

/** The places that rows of files name. */
async function contentNamed(db: Reader, loaded: readonly Loading[]): Promise<ReadonlySet<string>> {
  const files = loaded.find(({ collection }) => collection === 'svc_File')
  if (files === undefined) return new Set()
  const rows = await db.any<{ storage: string; folder: string | null; filename: string }>(
    rawQuery(`select storage, storage_folder as folder, filename from ${files.table}`),
  )
  return new Set(rows.map(({ storage, folder, filename }) => `${storage} ${keyOf(folder, filename)}`))
}

/** So long content may be without its row. */
const holdSeconds = 3600

/** Content that is there is left alone: a row may name it. */
async function writeHeld(deps: LoadWrites, stored: BackedUpContent, content: Pieces): Promise<void> {
  const missing: BackedUpContent['places'][number][] = []
  for (const place of stored.places)
    if ((await deps.storages.holding(place.storage).stat(place.key)) === undefined) missing.push(place)
  if (missing.length === 0) return
  for (const { storage, key } of missing)
    if (!(await holdContent(deps, { storage, key }, holdSeconds)))
      throw new AppError(503, `The content of ${storage} ${key} is just being removed: try again`)
  await writeContent(deps, { ...stored, places: missing }, content)
}

async function textOf(content: Pieces): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of content) pieces.push(piece)
  return Buffer.concat(pieces).toString('utf8')
}
