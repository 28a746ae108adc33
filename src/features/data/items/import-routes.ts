import { createHash, type Hash, randomUUID } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { acceptMultipart, type FormFile, formParts } from '../../../adapters/fastify.ts'
import { admitted } from '../../../admission/lane.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { withFreshCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import { clientError, keyColumnsOf } from '../../../db/errors.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError, errors, type FieldProblem } from '../../../errors.ts'
import { type ProgressNotices, toldOf } from '../../../events/progress.ts'
import { type App, actorOf, identifyBody, turnOf } from '../../../http/http.ts'
import { makeDirectory } from '../../../language/directories.ts'
import { isUuid } from '../../../language/text.ts'
import { readBoolean, readString } from '../../../query/parse.ts'
import { ident } from '../../../query/sql.ts'
import { isTooManyForHooks, openHooks } from '../hooks/hooks.ts'
import { createTrees } from './apply.ts'
import { type ItemReads, type ItemWrites, keyCell, type Requester, type Run, withCells } from './context.ts'
import { importCsvRoute, importJsonRoute } from './declarations.ts'
import { inNotation, type Notation, type NotationGiven, notationNames, readNotation } from './file-notation.ts'
import { type ImportFormat, type ImportRow, noRows, readEncoding, readRows } from './file-rows.ts'
import { goesOneByOne, inTransaction, meetsHooks } from './hooking.ts'
import { exactPayload } from './long-numbers.ts'
import { checkTenant, isTenanted, ownTenant } from './payload.ts'
import { type JsonObject, openWrite, planTree, type Tree } from './plan.ts'
import { queryOf, requesterOf } from './routes.ts'
import { canonicalKey } from './statements.ts'

/** Files as items, all or none. Callers need a session. */
export function itemImportRoutes(app: App, deps: ItemWrites & ProgressNotices): void {
  acceptMultipart(app, { fileSize: deps.config.files.maxUploadFileSize })
  app.post('/items/:collection/import-csv', importCsvRoute, (request, reply) =>
    imported(deps, request, reply, request.params.collection, 'CSV'),
  )
  app.post('/items/:collection/import-json', importJsonRoute, (request, reply) =>
    imported(deps, request, reply, request.params.collection, 'JSON'),
  )
}

/** Content that was sent before, and not with the request. */
type SentBefore = {
  readonly name: string
  readonly type: string
  readonly format: ImportFormat | undefined
  /** Its name; without one it is told by the content. */
  readonly encoding: string | undefined
  readonly notation: NotationGiven
  /** Of the rows, for callers that no tenant is stamped for. */
  readonly tenant: string | undefined
  readonly dryRun: boolean
  readonly content: () => Promise<AsyncIterable<Uint8Array>>
}

/** The result of an import. */
type Imported = {
  readonly success: boolean
  readonly message: string
  readonly results: { readonly imported: number; readonly failed: number; readonly errors: readonly unknown[] }
}

/** The result of a dry run. */
type Tried = {
  readonly success: boolean
  readonly dryRun: true
  readonly message: string
  readonly results: Omit<TriedImport, 'errors' | 'isComplete'> & {
    readonly complete: boolean
    readonly wouldCreate: number
    readonly wouldUpdate: number
    readonly failed: number
    readonly errors: readonly BrokenRow[]
  }
}

/** The same of a file that is stored already. 400 for one of another kind. */
export async function importContent(
  deps: ItemWrites & ProgressNotices,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  collection: string,
  { name, type, format: given, encoding: named, notation: written, tenant, dryRun, content }: SentBefore,
): Promise<Imported | Tried> {
  await withFreshCatalog(deps.catalog, async () => checkImport(deps, requesterOf(request), collection))
  const format = given ?? (['CSV', 'JSON'] as const).find((one) => isOfKind({ name, type }, one))
  if (format === undefined) throw errors.badBody('The file must be a CSV or a JSON file')
  const encoding = readEncoding(named)
  const notation = readNotation(written)
  const entering = enteringOf(collection)
  await deps.admission.turnAway(entering, turnOf(request))
  const handle = await openNameless(deps.config.storage.tempPath)
  try {
    await handle.writeFile(await content())
    const file = { format, read: readerOf(handle), encoding, notation, tenant }
    return await (dryRun ? triedRows : writeRows)(deps, { request, reply }, collection, file)
  } finally {
    await handle.close()
  }
}

const enteringOf = (collection: string) => ({ shape: `import ${collection}`, presumed: 'heavy' }) as const

async function imported(
  deps: ItemWrites & ProgressNotices,
  request: FastifyRequest,
  reply: FastifyReply,
  collection: string,
  format: ImportFormat,
): Promise<Imported | Tried> {
  await withFreshCatalog(deps.catalog, async () => checkImport(deps, requesterOf(request), collection))
  await deps.admission.turnAway(enteringOf(collection), turnOf(request))
  return withUpload<Imported | Tried>(deps, request, parts[format], ({ file, fields }) => {
    const { read } = requireFile(file, format)
    const said = (name: SaidName) => saidOf(request, fields, name)
    const encoding = readEncoding(said('encoding'))
    const notation = readNotation(Object.fromEntries(notationNames.map((name) => [name, said(name)])))
    const rows: ImportFile = { format, read, encoding, notation, tenant: said('tenant') }
    return (isTried(request, fields) ? triedRows : writeRows)(deps, { request, reply }, collection, rows)
  })
}

async function writeRows(
  deps: ItemWrites & ProgressNotices,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  collection: string,
  file: ImportFile,
): Promise<Imported> {
  keepWaiting(reply)
  const actor = actorOf(request)
  const progress = deps.progress(actor, { type: 'import', title: `Import into ${collection}` })
  // By its own id a client knows which import it is told of.
  const about = { collection, request: actor.requestId }
  const tell = (rows: number) => progress.at(`${rows} items have been read`, { ...about, rows })
  const work = () =>
    admitted(deps.admission, enteringOf(collection), () =>
      // The writer carries what the Idempotency-Key stands for, and the file is part of that.
      withFreshCatalog(deps.catalog, () => importItems(deps, requesterOf(request), collection, file, tell)),
    )
  const count = await toldOf(progress, work, (rows) => ({
    message: `${rows} items have been imported`,
    data: { ...about, rows },
  }))
  return {
    success: true,
    message: `Successfully imported ${count} items`,
    results: { imported: count, failed: 0, errors: [] },
  }
}

/** Sends no progress: a notification would be a change. */
async function triedRows(
  deps: ItemWrites,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  collection: string,
  file: ImportFile,
): Promise<Tried> {
  keepWaiting(reply)
  const { isComplete, ...found } = await admitted(deps.admission, enteringOf(collection), () =>
    withFreshCatalog(deps.catalog, () => tryImport(deps, requesterOf(request), collection, file)),
  )
  const sum = (action: 'create' | 'update') => found.changes.reduce((total, one) => total + one[action], 0)
  const failed = found.errors.length
  return {
    success: failed === 0,
    dryRun: true,
    message: failed === 0 ? `${found.rows} items can be imported` : `${failed} of ${found.rows} items have errors`,
    results: { ...found, complete: isComplete, wouldCreate: sum('create'), wouldUpdate: sum('update'), failed },
  }
}

/**
 * Nothing is sent or received while rows are written, and the server cuts silent connections after a minute. How long it
 * may take is the transaction's limit, so the answer is waited for: a handler of the timeout prevents the cut.
 */
function keepWaiting({ raw }: FastifyReply): void {
  raw.on('timeout', () => {})
}

const parts = { CSV: 'csvFile', JSON: 'jsonFile' } as const

/** By name or by type: browsers and systems disagree about the types of CSV files. */
const kinds = {
  CSV: { name: /\.csv$/i, type: /^text\/csv\b/i },
  JSON: { name: /\.json$/i, type: /^application\/json\b/i },
} as const

function requireFile(file: UploadedFile | undefined, format: ImportFormat): UploadedFile {
  if (file === undefined)
    throw errors.badBody(`No ${format} file provided`, `send it as the part ${parts[format]} of multipart/form-data`)
  if (!isOfKind(file, format)) throw errors.badBody(`File must be a ${format} file`)
  return file
}

const isOfKind = (file: Pick<UploadedFile, 'name' | 'type'>, format: ImportFormat): boolean =>
  kinds[format].name.test(file.name) || kinds[format].type.test(file.type)

type SaidName = 'encoding' | 'tenant' | (typeof notationNames)[number]

function saidOf(request: FastifyRequest, fields: ImportUpload['fields'], name: SaidName): string | undefined {
  return fields.get(name) ?? readString(name, queryOf(request)[name])
}

/** Either place is enough, so that nothing is written for somebody who asked for a dry run. */
function isTried(request: FastifyRequest, fields: ImportUpload['fields']): boolean {
  return [fields.get('dryRun'), queryOf(request).dryRun].map((given) => readBoolean('dryRun', given)).includes(true)
}

/** A form: the values of its fields, and the file of the part that was asked for. */
type ImportUpload = {
  readonly fields: ReadonlyMap<string, string>
  readonly file: UploadedFile | undefined
}

type UploadedFile = {
  readonly name: string
  readonly type: string
  /** The content from its start, as often as it is called. */
  readonly read: () => AsyncIterable<Uint8Array>
}

/**
 * Receives a form and gives it to `work`. The file goes to the disk first, so that no transaction waits for the client
 * and one that is run again can read it again. It has no name there, so nothing is left of it however the process ends.
 * 400 for a body that is no form, 413 for a file that is too large.
 */
async function withUpload<Result>(
  deps: Configuration,
  request: FastifyRequest,
  part: string,
  work: (upload: ImportUpload) => Promise<Result>,
): Promise<Result> {
  if (!request.isMultipart()) return work({ fields: new Map(), file: undefined })
  const handle = await openNameless(deps.config.storage.tempPath)
  try {
    return await work(await receive(request, part, handle))
  } finally {
    await handle.close()
  }
}

async function openNameless(directory = tmpdir()): Promise<FileHandle> {
  await makeDirectory(directory)
  const path = join(directory, `daybook-upload-${randomUUID()}`)
  const handle = await open(path, 'wx+', 0o600)
  await unlink(path)
  return handle
}

async function receive(request: FastifyRequest, wanted: string, handle: FileHandle): Promise<ImportUpload> {
  const fields = new Map<string, string>()
  const digest = createHash('sha256')
  let file: UploadedFile | undefined
  for await (const part of formParts(request, wanted)) {
    if (part.type === 'field') fields.set(part.name, part.value)
    else file = await store(part, handle, digest)
  }
  identifyBody(request, digest.update(JSON.stringify([...fields])).digest('base64url'))
  return { fields, file }
}

async function store({ content, filename, mimetype }: FormFile, handle: FileHandle, digest: Hash) {
  await handle.writeFile(hashed(content, digest))
  return {
    name: filename,
    type: mimetype,
    read: readerOf(handle),
  }
}

const readerOf = (handle: FileHandle) => (): AsyncIterable<Uint8Array> =>
  handle.createReadStream({ start: 0, autoClose: false })

async function* hashed(chunks: AsyncIterable<Uint8Array>, digest: Hash): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    digest.update(chunk)
    yield chunk
  }
}

type ImportFile = {
  readonly format: ImportFormat
  /** The content from its start, as often as it is called. */
  readonly read: () => AsyncIterable<Uint8Array>
  readonly encoding: string | undefined
  readonly notation: Notation
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
function checkImport(deps: ItemReads, requester: Requester, collection: string): void {
  openWrite(deps, requester, collection, 'create')
}

/**
 * Creates every row of a file or none, each as if it came in a body of its own; answers how many.
 * The file is read as it is written, so memory does not grow with it. 400 with every broken row and what is wrong with
 * it, rows that the caller may not create among them.
 */
async function importItems(
  deps: ItemWrites,
  requester: Requester,
  name: string,
  file: ImportFile,
  tell: (rows: number) => void,
): Promise<number> {
  // Columns that are no fields are left out: one that was just added must not be.
  await deps.catalog.reloadIfStale()
  return inTransaction(deps, requester, async (run) => {
    const importing = await begin(run, name, file, tell)
    const rows = await importRows(importing, file)
    const { failures, context } = importing
    if (failures.length > 0) throw importFailed(file.format, failures, context)
    return rows
  })
}

/** The effects that an import would have. */
type TriedImport = {
  /** That were read; fewer than the file has where `isComplete` is false. */
  readonly rows: number
  readonly isComplete: boolean
  readonly changes: readonly PlannedChanges[]
  /** Whether code that may refuse or change rows was left out. */
  readonly skipsHooks: boolean
  readonly errors: readonly BrokenRow[]
}

type PlannedChanges = { readonly collection: string; readonly create: number; readonly update: number }

/**
 * Writes the rows of a file as {@link importItems} does and takes all of it back, so that nothing remains and nothing follows.
 * Hooks of extensions and workflows are not called: what they do outside of the database could not be taken back. The same errors, but
 * broken rows are answered.
 */
async function tryImport(deps: ItemWrites, requester: Requester, name: string, file: ImportFile): Promise<TriedImport> {
  await deps.catalog.reloadIfStale()
  try {
    return await inTransaction(deps, requester, async (own): Promise<never> => {
      const run: Run = { ...own, deps: Object.create(own.deps, { hooks: { value: openHooks(deps.log) } }) as ItemReads }
      const importing = await begin(run, name, file, () => {})
      const rows = await importRows(importing, file)
      const { failures, context } = importing
      const late = await orFailure(() => undone(run, () => run.tx.any(rawQuery('set constraints all immediate'))))
      const changes = await run.tx.any<PlannedChanges>(rawQuery(plannedSql))
      const isHooked = ({ collection }: PlannedChanges) => hookedBy.some((event) => deps.hooks.has(collection, event))
      throw new TakenBack({
        rows,
        isComplete: failures.length < mostFailures,
        changes,
        skipsHooks: [...changes, { collection: name, create: 0, update: 0 }].some(isHooked),
        errors: [
          ...failureList(file.format, failures, context),
          ...(late instanceof AppError ? [{ error: told(late), fields: problemsOf(late, context) }] : []),
        ],
      })
    })
  } catch (error) {
    if (error instanceof TakenBack) return error.found
    throw error
  }
}

const hookedBy = ['items.create', 'items.update'] as const

/** Ends the transaction of a try. */
class TakenBack extends Error {
  readonly found: TriedImport
  constructor(found: TriedImport) {
    super('what was tried is taken back')
    this.found = found
  }
}

/** The triggers have written what happened into the log, within the transaction. */
const plannedSql = `select entity as collection, count(*) filter (where action = 'create')::int as create,
    count(*) filter (where action = 'update')::int as update
  from "${logTable}" where xid = pg_current_xact_id() and type = 'data' group by entity order by entity`

async function begin(run: Run, name: string, file: ImportFile, tell: ImportState['tell']): Promise<ImportState> {
  const { deps, requester } = run
  const context = openWrite(deps, requester, name, 'create')
  return {
    run,
    context,
    notation: file.notation,
    tenant: await tenantOfRows(run, context, file.tenant),
    deadline: performance.now() + deps.config.database.transactionTimeoutMs,
    failures: [],
    tell,
  }
}

type ImportState = {
  readonly run: Run
  readonly context: Tree['context']
  readonly notation: Notation
  /** Of every row; undefined where the caller's own is stamped, or rows have none. */
  readonly tenant: string | undefined
  /** On the clock of `performance`: the commit would refuse what ends later. */
  readonly deadline: number
  readonly failures: FailedRow[]
  /** Called now and then with how many rows have been read. */
  readonly tell: (rows: number) => void
}

type FailedRow = { readonly place: number; readonly row: ImportRow; readonly error: AppError }

/** A row that may be written. `place` counts from 1. */
type PlannedImportRow = { readonly place: number; readonly row: ImportRow; readonly tree: Tree }

async function importRows(importing: ImportState, { format, read, encoding }: ImportFile): Promise<number> {
  const { run, context, failures } = importing
  const { deps, requester } = run
  const { bodySizeLimit: largestRow } = deps.config.server
  const rows = readRows(format, read(), context.collection, { largestRow, encoding })
  const isOneByOne = goesOneByOne(deps, context)
  let place = 0
  let planned: PlannedImportRow[] = []
  let size = 0
  for await (const row of rows) {
    place += 1
    const tree = await orFailure(() => planRow(importing, row))
    if (tree instanceof AppError) failures.push({ place, row, error: tree })
    else planned.push({ place, row, tree })
    size += row.size
    if (planned.length >= (isOneByOne ? 1 : batch.rows) || size >= batch.size) {
      await writeBatch(importing, planned)
      planned = []
      size = 0
      if (!isOneByOne || place % batch.rows === 0) importing.tell(place)
    }
    if (place % rowsPerReport === 0)
      deps.log.info(
        { collection: context.collection.name, rows: place, requestId: requester.actor.requestId },
        'importing',
      )
    if (failures.length >= mostFailures) break
  }
  await writeBatch(importing, planned)
  if (place === 0) throw noRows(format)
  return place
}

/** Reads and permits a row as the body of a request. */
async function planRow({ run, context, notation, tenant }: ImportState, row: ImportRow): Promise<Tree> {
  // Before the texts of long numbers, which are written as JSON writes numbers.
  const payload = exactPayload(context, inNotation(context, row.payload(), notation)) as JsonObject
  const plan = (given: typeof payload) => {
    const planned = async () => planTree(run.deps, run.requester, context, given, { run })
    // A statement of a hook that fails must not end the transaction, which other rows are still tried in.
    return meetsHooks(run.deps, context, [given]) ? undone(run, planned) : planned()
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
    failures.push({ place: first!.place, row: first!.row, error })
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
    if (known === undefined || known.status >= 500 || isTooManyForHooks(known)) throw error
    return known
  }
}

/** Callers that no tenant is stamped for must name one, where rows have tenants; 400 without, 403 for another than the own. */
async function tenantOfRows(
  { deps }: Run,
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
  if (!isUuid(named)) throw errors.badBody('tenant: expected the id of a tenant, a UUID')
  const [tenants] = [...rules].find(([, { holdsTenants }]) => holdsTenants)!
  const id = canonicalKey(catalog.collections.get(tenants)!, named)
  const found = await deps.db.maybeOne(rawQuery(`select 1 from ${ident(tenants)} where id = $1`, [id]))
  if (found === undefined) throw errors.badBody('There is no such tenant')
  return id
}

function importFailed(format: ImportFormat, failures: readonly FailedRow[], context: Tree['context']): AppError {
  const list = failureList(format, failures, context)
  const units = format === 'CSV' ? 'rows' : 'items'
  return errors.badBody(`Import failed. ${list.length} ${units} had errors. Transaction rolled back.`, {
    results: { imported: 0, failed: list.length, errors: list },
  })
}

/** The broken rows in the order of the file: where each is, what it holds, and what is wrong with which of its fields. */
function failureList(
  format: ImportFormat,
  failures: readonly FailedRow[],
  context: Tree['context'],
): readonly BrokenRow[] {
  const unit = format === 'CSV' ? 'row' : 'item'
  return failures
    .slice(0, mostFailures)
    .toSorted((one, other) => one.place - other.place)
    .map(({ place, row, error }) => ({
      [unit]: place,
      line: row.line,
      data: shown(row.data, context.collection),
      error: told(error),
      fields: problemsOf(error, context),
    }))
}

/** A row that cannot be imported, as it is shown. */
type BrokenRow = {
  readonly row?: number
  readonly item?: number
  readonly line?: number
  readonly data?: Readonly<Record<string, unknown>>
  readonly error: string
  readonly fields: readonly ShownProblem[]
}

type ShownProblem = { readonly field: string; readonly message: string }

/** By field, where an error is about fields that the caller sees. */
function problemsOf({ code, message, details, cause }: AppError, { collection }: Tree['context']): ShownProblem[] {
  const listed = Array.isArray(details) ? details : Object(details).errors
  if (Array.isArray(listed))
    return (listed as FieldProblem[]).map(({ field, message: own }) => ({ field, message: own }))
  if (code === 'REQUIRED_FIELD_MISSING' && typeof details === 'string') return [{ field: details, message }]
  return keyColumnsOf(cause)
    .filter((name) => collection.fields.get(name)?.hidden === false)
    .map((field) => ({ field, message }))
}

/** The message, with the field where that is beside it. */
const told = ({ message, code, details }: AppError): string =>
  code === 'REQUIRED_FIELD_MISSING' && typeof details === 'string' ? `${message}: ${details}` : message

/** Enough of a row to find it, without what is secret in it. */
function shown(data: ImportRow['data'], { fields }: Tree['context']['collection']): Readonly<Record<string, unknown>> {
  const members = Object.entries(data).filter(([name]) => fields.get(name)?.hidden !== true)
  return Object.fromEntries(members.map(([name, value]) => [name, shortened(value)]))
}

function shortened(value: unknown): unknown {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
  return text.length > 200 ? `${text.slice(0, 200)}…` : value
}
