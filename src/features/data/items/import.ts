import { type CsvCell, readCsv } from '../../../adapters/csv.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { clientError } from '../../../db/errors.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { isObject } from '../../../query/guards.ts'
import { ident } from '../../../query/sql.ts'
import { createTrees } from './apply.ts'
import type { ItemReads, ItemWrites } from './context.ts'
import { keyCell, type Requester, type Run, withCells } from './context.ts'
import { type CsvColumn, cellValue, jsonFileValue } from './csv-cells.ts'
import { inTransaction, meetsHooks } from './hooking.ts'
import { NoArrayError, readJsonArray } from './json-array.ts'
import { checkTenant, isTenanted, ownTenant } from './payload.ts'
import { openWrite, planTree, type Tree } from './plan.ts'
import { canonicalKey } from './statements.ts'

export type ImportFile = {
  readonly format: ImportFormat
  /** The content from its start, as often as it is called. */
  readonly read: () => AsyncIterable<Uint8Array>
  /** The tenant of the rows, for callers that no tenant is stamped for. */
  readonly tenant: string | undefined
}

/** Rows and characters that one statement writes at most (a single row may be larger). */
const batch = { rows: 500, size: 1_000_000 }

/** Broken rows after which an import gives up: enough to see what is wrong with a file. */
const mostFailures = 1000

/** Rows between two lines of the log that say how far an import is. */
const rowsPerReport = 10_000

/** 404 and 403 as for a create, before a file is received. */
export function checkImport(rt: ItemReads, requester: Requester, collection: string): void {
  openWrite(rt, requester, collection, 'create')
}

/**
 * Creates every row of a file or none, each as if it came in a body of its own; answers how many.
 * The file is read as it is written, so memory does not grow with it. 400 with every broken row and what is wrong with
 * it, rows that the caller may not create among them.
 */
export async function importItems(
  rt: ItemWrites,
  requester: Requester,
  name: string,
  file: ImportFile,
  tell: (rows: number) => void,
): Promise<number> {
  // Columns that are no fields are left out: one that was just added must not be.
  await rt.catalog.reloadIfStale()
  return inTransaction(rt, requester, async (run) => {
    const context = openWrite(rt, requester, name, 'create')
    const importing: ImportState = {
      run,
      context,
      tenant: await tenantOfRows(run, context, file.tenant),
      deadline: performance.now() + rt.config.database.transactionTimeoutMs,
      failures: [],
      tell,
    }
    return importRows(importing, file)
  })
}

type ImportState = {
  readonly run: Run
  readonly context: Tree['context']
  /** Of every row; undefined where the caller's own is stamped, or rows have none. */
  readonly tenant: string | undefined
  /** On the clock of `performance`: the commit would refuse what ends later. */
  readonly deadline: number
  readonly failures: Failure[]
  /** Called now and then with how many rows have been read. */
  readonly tell: (rows: number) => void
}

type Failure = { readonly place: number; readonly data: ImportRow['data']; readonly error: AppError }

/** A row that may be written. `place` counts from 1. */
type PlannedImportRow = { readonly place: number; readonly row: ImportRow; readonly tree: Tree }

async function importRows(importing: ImportState, { format, read }: ImportFile): Promise<number> {
  const { run, context, failures } = importing
  const { rt, requester } = run
  const rows = readRows(format, read(), context.collection, { largestRow: rt.config.server.bodySizeLimit })
  let place = 0
  let planned: PlannedImportRow[] = []
  let size = 0
  for await (const row of rows) {
    place += 1
    const tree = await orFailure(() => planRow(importing, row))
    if (tree instanceof AppError) failures.push({ place, data: row.data, error: tree })
    else planned.push({ place, row, tree })
    size += row.size
    if (planned.length >= batch.rows || size >= batch.size) {
      await writeBatch(importing, planned)
      planned = []
      size = 0
      importing.tell(place)
    }
    if (place % rowsPerReport === 0)
      rt.log.info(
        { collection: context.collection.name, rows: place, requestId: requester.actor.requestId },
        'importing',
      )
    if (failures.length >= mostFailures) break
  }
  await writeBatch(importing, planned)
  if (place === 0) throw errors.badBody(`${format} file is empty or has no valid data`)
  if (failures.length > 0) throw importFailed(format, failures.slice(0, mostFailures), context)
  return place
}

/** Reads and permits a row as the body of a request. */
async function planRow({ run, context, tenant }: ImportState, row: ImportRow): Promise<Tree> {
  const payload = row.payload()
  const plan = (given: typeof payload) => {
    const planned = () => planTree(run.rt, run.requester, context, given, { run })
    // A statement of a hook that fails must not end the transaction, which other rows are still tried in.
    return meetsHooks(run.rt, context, [given]) ? undone(run, planned) : planned()
  }
  if (tenant === undefined) return plan(payload)
  const { tenant_Id: own, ...rest } = payload
  checkTenant(context, { id: tenant }, own ?? tenant)
  const tree = await plan(rest)
  const cell = keyCell(context.collection.fields.get('tenant_Id')!, tenant)
  return { ...tree, cells: withCells(tree.cells, [cell]) }
}

/** Writes rows in as few statements as they allow. Where that fails, halves are tried until the broken rows are found. */
async function writeBatch(importing: ImportState, planned: readonly PlannedImportRow[]): Promise<void> {
  const { run, failures, deadline } = importing
  if (planned.length === 0 || failures.length >= mostFailures) return
  if (performance.now() > deadline) throw errors.unavailable('The transaction took too long')
  const trees = planned.map(({ tree }) => tree)
  const error = await orFailure(() => undone(run, () => createTrees(run, trees)))
  if (!(error instanceof AppError)) return
  const [first] = planned
  if (planned.length === 1) {
    failures.push({ place: first!.place, data: first!.row.data, error })
    return
  }
  const middle = planned.length >> 1
  await writeBatch(importing, planned.slice(0, middle))
  await writeBatch(importing, planned.slice(middle))
}

/** Takes back what `work` wrote when it fails, and only that. */
async function undone<Result>({ tx }: Run, work: () => Promise<Result>): Promise<Result> {
  await tx.any(rawQuery('savepoint svc_import'))
  try {
    return await work()
  } catch (error) {
    await tx.any(rawQuery('rollback to savepoint svc_import'))
    throw error
  } finally {
    await tx.any(rawQuery('release savepoint svc_import'))
  }
}

/** An error of a row becomes a value; an error of the server or its connection ends the import. */
async function orFailure<Result>(work: () => Promise<Result>): Promise<Result | AppError> {
  try {
    return await work()
  } catch (error) {
    const known = clientError(error)
    if (known === undefined || known.status >= 500) throw error
    return known
  }
}

/** Callers that no tenant is stamped for must name one, where rows have tenants; 400 without, 403 for another than the own. */
async function tenantOfRows(
  { rt }: Run,
  context: Tree['context'],
  named: string | undefined,
): Promise<string | undefined> {
  const { collection, config, catalog, rules } = context
  if (!isTenanted(collection, config)) return undefined
  const own = ownTenant(context)
  if (own !== undefined) {
    if (named !== undefined) checkTenant(context, own, named)
    return undefined
  }
  if (named === undefined) throw errors.badBody('Name the tenant to import into: `tenant` in the query or the form')
  const [tenants] = [...rules].find(([, { holdsTenants }]) => holdsTenants)!
  const id = canonicalKey(catalog.collections.get(tenants)!, named)
  const found = await rt.db.maybeOne(rawQuery(`select 1 from ${ident(tenants)} where id = $1`, [id]))
  if (found === undefined) throw errors.badBody('There is no such tenant')
  return id
}

function importFailed(format: ImportFormat, failures: readonly Failure[], { collection }: Tree['context']): AppError {
  const [unit, units] = format === 'CSV' ? (['row', 'rows'] as const) : (['item', 'items'] as const)
  const list = [...failures]
    .sort((one, other) => one.place - other.place)
    .map(({ place, data, error }) => ({ [unit]: place, data: shown(data, collection), error: told(error) }))
  return errors.badBody(`Import failed. ${list.length} ${units} had errors. Transaction rolled back.`, {
    results: { imported: 0, failed: list.length, errors: list },
  })
}

/** The message, with the field where that is beside it. */
const told = ({ message, code, details }: AppError): string =>
  code === 'REQUIRED_FIELD_MISSING' && typeof details === 'string' ? `${message}: ${details}` : message

/** Enough of a row to find it, without what is secret in it. */
function shown(data: ImportRow['data'], { fields }: Tree['context']['collection']): object {
  const members = Object.entries(data).filter(([name]) => fields.get(name)?.hidden !== true)
  return Object.fromEntries(members.map(([name, value]) => [name, shortened(value)]))
}

function shortened(value: unknown): unknown {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
  return text.length > 200 ? `${text.slice(0, 200)}…` : value
}

export type ImportFormat = 'CSV' | 'JSON'

type JsonObject = Readonly<Record<string, unknown>>

/** A row of an imported file. */
type ImportRow = {
  /** As it stands in the file, for telling what was wrong with it. */
  readonly data: JsonObject
  /** How much text it was, in characters. */
  readonly size: number
  /** As the body of a request that would create it; 400 for a cell that cannot be read. */
  readonly payload: () => JsonObject
}

type RowLimits = {
  /** Bytes; as large as the body of a request that would create the row. */
  readonly largestRow: number
}

/**
 * The rows of a file, as they are read; a file without any ends at once. 400 `Invalid {format} format: …` for a file that
 * cannot be read to its end.
 */
async function* readRows(
  format: ImportFormat,
  bytes: AsyncIterable<Uint8Array>,
  collection: Collection,
  limits: RowLimits,
): AsyncGenerator<ImportRow> {
  try {
    const rows = format === 'CSV' ? csvRows : jsonRows
    yield* rows(textOf(bytes), collection, limits)
  } catch (error) {
    if (error instanceof NoArrayError) throw errors.badBody('JSON file must contain an array of objects')
    if (!(error instanceof SyntaxError)) throw error
    throw Object.assign(errors.badBody(`Invalid ${format} format: ${error.message}`), { cause: error })
  }
}

/** UTF-8 with or without a byte order mark; other encodings would be stored as garbage. */
async function* textOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  try {
    for await (const chunk of bytes) yield decoder.decode(chunk, { stream: true })
    yield decoder.decode()
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error
    throw new SyntaxError('the file is not UTF-8', { cause: error })
  }
}

async function* jsonRows(
  text: AsyncIterable<string>,
  { fields, relations }: Collection,
  { largestRow }: RowLimits,
): AsyncGenerator<ImportRow> {
  const readValue = (name: string, value: unknown) =>
    jsonFileValue(value, { field: fields.get(name), relation: relations.get(name) })
  for await (const { value, length } of readJsonArray(text, { largestElement: largestRow })) {
    if (!isObject(value)) throw new NoArrayError('an item is no object')
    const payload = () => Object.fromEntries(Object.entries(value).map(([name, one]) => [name, readValue(name, one)]))
    yield { data: value, size: length, payload }
  }
}

/** The first record names the columns. A file that names none of the collection's has no rows for it. */
async function* csvRows(
  text: AsyncIterable<string>,
  collection: Collection,
  { largestRow }: RowLimits,
): AsyncGenerator<ImportRow> {
  let columns: readonly NamedColumn[] | undefined
  for await (const cells of readCsv(text, { largestRecord: largestRow })) {
    if (columns !== undefined) yield csvRow(columns, cells)
    else columns = columnsOf(cells, collection)
    if (columns.length === 0) return
  }
}

type NamedColumn = CsvColumn & { readonly name: string; readonly index: number }

function columnsOf(header: readonly CsvCell[], { fields, relations }: Collection): readonly NamedColumn[] {
  const names = header.filter((name) => name !== null && name !== '')
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) throw new SyntaxError(`column ${JSON.stringify(repeated)} appears twice`)
  return header.flatMap((name, index): NamedColumn[] => {
    const field = fields.get(name ?? '')
    const relation = field === undefined ? relations.get(name ?? '') : undefined
    return field === undefined && relation === undefined ? [] : [{ name: name!, index, field, relation }]
  })
}

function csvRow(columns: readonly NamedColumn[], cells: readonly CsvCell[]): ImportRow {
  const members = (value: (column: NamedColumn) => unknown) =>
    Object.fromEntries(columns.map((column) => [column.name, value(column)]))
  return {
    data: members(({ index }) => cells[index]),
    size: cells.reduce((sum, cell) => sum + (cell?.length ?? 0), 0),
    payload: () => members((column) => cellValue(cells[column.index]!, column)),
  }
}
