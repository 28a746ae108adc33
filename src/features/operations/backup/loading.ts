/** Taking rows and contents of a part of an installation out of a backup, into tables of a transaction and the storage services. */
import type { Catalog } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { quoteName, type Reader, rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import { holdContent } from '../../../db/unlogged/files.ts'
import { AppError } from '../../../errors.ts'
import { isProtected, type LoadedRows, type LoadedState, type RestorablePart } from '../../data/undo/undo.ts'
import { keyOf, type StorageServices } from '../../files/storage/storage.ts'
import { type BackedUpContent, writeContent } from './contents.ts'
import { openReader, type Pieces } from './format.ts'
import type { BackupHeader } from './header.ts'

type PartWrites = UnloggedWrites & StorageServices & CurrentCatalog

type LoadOptions = {
  /** Without it content is looked for in the backup, and stays there. */
  readonly writesContent: boolean
}

/**
 * Reads a backup from its beginning to its end. Rows of the part go into tables that live as long as the transaction; content
 * that they name and that is gone is put where they name it, and is removed again unless a row names it soon.
 *
 * @throws {AppError} 422 for a backup that is not whole
 */
export async function loadPart(
  deps: PartWrites,
  tx: Tx,
  source: Pieces,
  part: RestorablePart,
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

type Statements = { readonly tables: readonly { readonly name: string; readonly copyIn: string }[] }

async function wantedTables(
  { collections }: Catalog,
  tx: Tx,
  part: RestorablePart,
  { tables }: Statements,
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
  }: { readonly index: number; readonly collection: string; readonly table: Statements['tables'][number] },
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
function columnsOf({ name, copyIn }: Statements['tables'][number]): readonly string[] {
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
async function writeHeld(deps: PartWrites, stored: BackedUpContent, content: Pieces): Promise<void> {
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
