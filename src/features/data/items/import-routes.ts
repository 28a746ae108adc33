import { createHash, type Hash, randomUUID } from 'node:crypto'
import { type FileHandle, mkdir, open, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { acceptMultipart, type MultipartFile } from '../../../adapters/multipart.ts'
import { admitted } from '../../../admission/lane.ts'
import { withFreshCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import { AppError, errors } from '../../../errors.ts'
import { type ProgressNotices, toldOf } from '../../../events/progress.ts'
import { type App, actorOf, identifyBody, turnOf } from '../../../http/http.ts'
import { readBoolean, readString } from '../../../query/parse.ts'
import type { ItemWrites } from './context.ts'
import { importCsvRoute, importJsonRoute } from './declarations.ts'
import type { ImportFile } from './import.ts'
import { checkImport, importItems, type TriedImport, tryImport } from './import.ts'
import type { ImportFormat } from './import-rows.ts'
import { queryOf, requesterOf } from './routes.ts'

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
  /** Of the rows, for callers that no tenant is stamped for. */
  readonly tenant: string | undefined
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
    readonly errors: readonly object[]
  }
}

/** The same of a file that is stored already. 400 for one of another kind. */
export async function importContent(
  deps: ItemWrites & ProgressNotices,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  collection: string,
  { name, type, format: given, tenant, content }: SentBefore,
): Promise<Imported> {
  await withFreshCatalog(deps.catalog, async () => checkImport(deps, requesterOf(request), collection))
  const format = given ?? (['CSV', 'JSON'] as const).find((one) => isOfKind({ name, type }, one))
  if (format === undefined) throw errors.badBody('The file must be a CSV or a JSON file')
  const entering = enteringOf(collection)
  await deps.admission.turnAway(entering, turnOf(request))
  const handle = await openNameless(deps.config.storage.tempPath)
  try {
    await handle.writeFile(await content())
    return await writeRows(deps, { request, reply }, collection, { format, read: readerOf(handle), tenant })
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
    const rows: ImportFile = { format, read, tenant: tenantOf(request, fields) }
    const isTried = readBoolean('dryRun', queryOf(request).dryRun) === true
    return isTried
      ? triedRows(deps, { request, reply }, collection, rows)
      : writeRows(deps, { request, reply }, collection, rows)
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

/** Nobody is told how far it is: a notification would be a change. */
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
 * may take is the transaction's limit, so the answer is waited for: somebody who handles a timeout prevents the cut.
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

function tenantOf(request: FastifyRequest, fields: Upload['fields']): string | undefined {
  return fields.get('tenant') ?? readString('tenant', queryOf(request).tenant)
}

/** A form: the values of its fields, and the file of the part that was asked for. */
type Upload = {
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
  work: (upload: Upload) => Promise<Result>,
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
  await mkdir(directory, { recursive: true })
  const path = join(directory, `daybook-upload-${randomUUID()}`)
  const handle = await open(path, 'wx+', 0o600)
  await unlink(path)
  return handle
}

/** Every part is read to its end, or the connection would wait for it. */
async function receive(request: FastifyRequest, wanted: string, handle: FileHandle): Promise<Upload> {
  const fields = new Map<string, string>()
  const digest = createHash('sha256')
  let file: UploadedFile | undefined
  try {
    for await (const part of request.parts()) {
      if (part.type === 'field') fields.set(part.fieldname, String(part.value))
      else if (part.fieldname === wanted) file = await store(part, handle, digest)
      else part.file.resume()
    }
  } catch (error) {
    throw isOurs(error) ? error : Object.assign(errors.badBody('The upload cannot be read'), { cause: error })
  }
  identifyBody(request, digest.update(JSON.stringify([...fields])).digest('base64url'))
  return { fields, file }
}

/** Limits have a status, the disk's errors a system call; every other error is about bytes that are no form. */
function isOurs(error: unknown): boolean {
  const { statusCode, syscall } = error as { statusCode?: unknown; syscall?: unknown }
  return error instanceof AppError || statusCode !== undefined || syscall !== undefined
}

async function store({ file, filename, mimetype }: MultipartFile, handle: FileHandle, digest: Hash) {
  await handle.writeFile(hashed(file, digest))
  if (file.truncated) throw new AppError(413, 'Request body is too large')
  return {
    name: filename,
    type: mimetype,
    read: readerOf(handle),
  }
}

const readerOf = (handle: FileHandle) => (): AsyncIterable<Uint8Array> =>
  handle.createReadStream({ start: 0, autoClose: false })

async function* hashed(chunks: AsyncIterable<Buffer>, digest: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    digest.update(chunk)
    yield chunk
  }
}
