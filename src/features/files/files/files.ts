/* The public face of this folder. */
import { randomUUID } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { formParts } from '../../../adapters/fastify.ts'
import type { Collection, Field } from '../../../catalog/catalog.ts'
import { withFreshCatalog } from '../../../catalog/store.ts'
import { exactValue, type ValueType } from '../../../catalog/values.ts'
import type { Tx } from '../../../db/sql.ts'
import { releaseContent } from '../../../db/unlogged/files.ts'
import { AppError, errors } from '../../../errors.ts'
import { identifyBody } from '../../../http/http.ts'
import { keepable } from '../../../http/json-values.ts'
import { aloneOrValue } from '../../../language/exact-json.ts'
import { isUuid } from '../../../language/text.ts'
import {
  anotherVersion,
  changeItems,
  inTransaction,
  openWrite,
  type Requester,
  readPayload,
  requesterOf,
  type Versions,
  versionsOf,
} from '../../data/items/items.ts'
import {
  type ContentLocation,
  contentOf,
  discardContent,
  type FileWrites,
  type Incoming,
  moveContent,
  type StoredContent,
  storeContent,
  tookTooLong,
  tooLarge,
} from './content.ts'
import { metadataAfter } from './metadata.ts'
import { type FileOwner, folderOf } from './move.ts'
import { nameOfReplacement, newName, shownName } from './names.ts'
import { changeableFile, type FileRow, isReadableFile, lockedFile, usedBytes } from './queries.ts'
import { quotaExceeded, requireQuota } from './rules.ts'

export { type ContentWrites, discardKey, type FileWrites, type Incoming } from './content.ts'
export { countMovable, type Moved, moveFiles, toFolders, toService } from './move.ts'
export { contentConsumer, fileRules, removeDueContent, removeOrphans } from './rules.ts'
export { verifyFiles } from './verify.ts'

const collection = 'svc_File'

/** A new file from a form; its id. 400 without a file in it. */
export async function uploadFile(deps: FileWrites, request: FastifyRequest): Promise<string> {
  const requester = requesterOf(request)
  if (!request.isMultipart()) throw noFile()
  await requireRoom(deps, requester, declaredSize(request))
  const upload = newUpload(deps, requester)
  try {
    const { fields, stored } = await readForm(request, upload.store)
    if (stored === undefined) throw noFile()
    identifyBody(request, JSON.stringify([stored.hash, ...fields]))
    // An Idempotency-Key stands for the file too, so the actor is made anew.
    return await upload.finish(requesterOf(request), fields)
  } catch (error) {
    await upload.discard()
    throw error
  }
}

/** The decisions about a new file before its content comes. */
type FileCreation = {
  readonly id?: string
  /** In the transaction that makes its row. */
  readonly during?: (tx: Tx) => Promise<void>
}

/** A new file of content that comes from elsewhere than a form; its id. */
export async function saveFile(
  deps: FileWrites,
  requester: Requester,
  incoming: Incoming,
  fields: Fields = new Map(),
  given: FileCreation = {},
): Promise<string> {
  return finished(requester, newUpload(deps, requester, given), incoming, fields)
}

/**
 * Refuses fields that the row of a new file would be refused for, before its content comes: values of another kind (400), and
 * what the caller may not say of a file (403). Whether other rows allow it is known with the row only.
 */
export async function checkFields(deps: FileWrites, requester: Requester, fields: Fields): Promise<void> {
  await withFreshCatalog(deps.catalog, async () => {
    const payload = payloadFrom(deps, fields)
    const platform = {
      collection,
      values: { id: randomUUID(), ...columnsOf(unknownContent) },
      defaults: named(payload, unknownContent),
    }
    const context = openWrite(deps, { ...requester, platform }, collection, 'create')
    readPayload(context, payload)
  })
}

/** Stands for facts that follow from the content. */
const unknownContent: StoredContent = {
  ...{ storage: '', folder: null, filename: '', originalFilename: '', size: 0, hash: '', type: '', typeProven: false },
  ...{ width: undefined, height: undefined, metadata: undefined },
}

async function finished(requester: Requester, upload: Upload, incoming: Incoming, fields: Fields): Promise<string> {
  try {
    await upload.store(incoming, fields)
    return await upload.finish(requester, fields)
  } catch (error) {
    // In an open transaction the transaction's hold keeps the content; it is removed when the hold is over.
    if (requester.scope === undefined) await upload.discard()
    throw error
  }
}

/** Gives a file other content that comes from elsewhere than a form. 403 for a file that the writer may read and not change, 404 for any other one. */
export async function replaceFile(
  deps: FileWrites,
  requester: Requester,
  id: string,
  incoming: Incoming,
  fields: Fields = new Map(),
): Promise<void> {
  await finished(requester, replacement(deps, await fileToChange(deps, requester, id)), incoming, fields)
}

/**
 * Changes what is said of a file, and its content where a form holds one. 403 for a file that the caller may read and not
 * change, 404 for any other one, 412 for one that has none of the versions of `If-Match`.
 */
export async function changeFile(deps: FileWrites, request: FastifyRequest, id: string): Promise<string> {
  const requester = requesterOf(request)
  const row = await fileToChange(deps, requester, id)
  const ifMatch = versionsOf(request.headers['if-match'])
  if (!request.isMultipart()) return update(deps, requester, row, request.body, ifMatch)
  // A request that is repeated has changed the row itself: its Idempotency-Key is looked up when its body is known.
  if (request.repeatable === undefined && ifMatch?.includes(row.version) === false) throw anotherVersion()
  await requireRoom(deps, requester, declaredSize(request))
  const upload = replacement(deps, row, ifMatch)
  try {
    const { fields, stored } = await readForm(request, upload.store)
    identifyBody(request, JSON.stringify([stored?.hash, ...fields]))
    if (stored !== undefined) return await upload.finish(requesterOf(request), fields)
    fields.delete('storage')
    return await update(
      deps,
      requesterOf(request),
      row,
      payloadOf(deps.catalog.current().collections.get(collection)!, fields),
      ifMatch,
    )
  } catch (error) {
    await upload.discard()
    throw error
  }
}

/** Only who may read a file learns that it is there. */
async function fileToChange(deps: FileWrites, requester: Requester, id: string): Promise<FileRow> {
  const context = openWrite(deps, requester, collection, 'update')
  const db = requester.scope?.tx ?? deps.db
  const row = isUuid(id) ? await changeableFile(db, context, id) : undefined
  if (row !== undefined) return row
  if (isUuid(id) && (await isReadableFile(db, context, id))) throw errors.itemDenied('update')
  throw new AppError(404, 'File not found')
}

/** Deletes the row; its content follows by the log. 412 as above. */
export async function deleteFile(deps: FileWrites, request: FastifyRequest, id: string): Promise<void> {
  const ifMatch = versionsOf(request.headers['if-match'])
  await changeItems(deps, requesterOf(request), collection, { action: 'delete', ids: [id], ifMatch })
}

async function update(
  deps: FileWrites,
  requester: Requester,
  { id }: FileRow,
  payload: unknown,
  ifMatch: Versions | undefined,
): Promise<string> {
  await withFreshCatalog(deps.catalog, () =>
    changeItems(deps, requester, collection, { action: 'update', changes: [{ id, payload }], ifMatch }),
  )
  return id
}

/** Content on its way to a row. */
type Upload = {
  /** Stores it where the fields that are known already say. */
  store(incoming: Incoming, fields: Fields): Promise<StoredContent>
  /** Moves it to where all fields say, and commits the row that names it; the row's id. */
  finish(requester: Requester, fields: Fields): Promise<string>
  /** Nothing of it stays, unless a row names it. */
  discard(): Promise<void>
}

type UploadTarget = {
  readonly placeOf: (originalFilename: string, fields: Fields) => ContentLocation
  readonly commit: (requester: Requester, stored: StoredContent, fields: Fields) => Promise<string>
}

function openUpload(deps: FileWrites, { placeOf, commit }: UploadTarget): Upload {
  let stored: StoredContent | undefined
  return {
    store: async (incoming, fields) => {
      const place = placeOf(shownName(incoming.name), fields)
      stored = await storeContent(deps, place, incoming, deps.config.files.maxUploadFileSize)
      return stored
    },
    finish: async (requester, fields) => {
      const { originalFilename, filename } = stored!
      // A service that is not there is refused before anything is moved.
      const { storage, folder } = placeOf(originalFilename, fields)
      stored = await moveContent(deps, stored!, { storage, folder, filename })
      const work = () => commit(requester, stored!, fields)
      // Within a transaction a retry must run all of the transaction again.
      return requester.scope === undefined ? withFreshCatalog(deps.catalog, work) : work()
    },
    discard: async () => {
      if (stored !== undefined) await discardContent(deps, stored)
    },
  }
}

function newUpload(deps: FileWrites, requester: Requester, { id: given, during }: FileCreation = {}): Upload {
  let named: { readonly id: string; readonly filename: string } | undefined
  const upload = openUpload(deps, {
    placeOf: (originalFilename, fields) => {
      // An upload that goes on after a break may be finished twice at a time, of which one counts: each has its own content.
      named ??=
        given === undefined
          ? newName(originalFilename)
          : { id: given, filename: nameOfReplacement(given, originalFilename) }
      return { ...serviceFor(deps, fields, ownerOf(deps, requester, fields)), filename: named.filename }
    },
    commit: (by, stored, fields) => commitNew(deps, by, { id: named!.id, during }, stored, fields),
  })
  return {
    ...upload,
    finish: async (by, fields) => {
      const id = await upload.finish(by, fields)
      // The same request was done before, with content of its own.
      if (id !== named!.id) await upload.discard()
      return id
    },
  }
}

function replacement(deps: FileWrites, row: FileRow, ifMatch?: Versions): Upload {
  let filename: string | undefined
  return openUpload(deps, {
    placeOf: (originalFilename, fields) => {
      filename ??= nameOfReplacement(row.id, originalFilename)
      const owner = { tenantId: row.tenant_Id ?? undefined, userId: row.userCreated_Id ?? undefined }
      const chosen = fields.get('storage') ? fields : new Map(fields).set('storage', row.storage)
      return { ...serviceFor(deps, chosen, owner), filename }
    },
    commit: (by, stored, fields) => commitReplacement(deps, by, { id: row.id, ifMatch }, stored, fields),
  })
}

async function commitNew(
  deps: FileWrites,
  requester: Requester,
  { id, during }: { readonly id: string; readonly during: FileCreation['during'] },
  stored: StoredContent,
  fields: Fields,
): Promise<string> {
  const payload = payloadFrom(deps, fields)
  const values = { id, ...columnsOf(stored) }
  const { storage, key } = contentOf(stored)
  // From this statement on the row names the content.
  const condition = { name: 'svc_take_content', args: [storage, key] }
  const platform = { collection, values, defaults: named(payload, stored), condition }
  const change = { action: 'create', payloads: [payload] } as const
  if (during === undefined && deps.config.storage.quotaTenant === undefined) {
    const { ids } = await changeItems(deps, { ...requester, platform }, collection, change)
    // The row of an earlier request, where this one repeats it.
    return JSON.parse(ids[0]!) as string
  }
  return inTransaction(deps, requester, async ({ tx, scope }) => {
    await during?.(tx)
    await changeItems(deps, { ...requester, platform, scope }, collection, change)
    await requireQuota(deps, tx, id)
    return id
  })
}

async function commitReplacement(
  deps: FileWrites,
  requester: Requester,
  { id, ifMatch }: { readonly id: string; readonly ifMatch: Versions | undefined },
  stored: StoredContent,
  fields: Fields,
): Promise<string> {
  const payload = payloadFrom(deps, fields)
  const { originalFilename, metadata } = stored
  const values = columnsOf(stored)
  const name = nameUnlessSaid(payload, originalFilename)
  return inTransaction(deps, requester, async ({ tx, scope }) => {
    await release(tx, stored)
    const before = await lockedFile(tx, id)
    const isKept = before === undefined || payload.metadata !== undefined
    const defaults = { ...name, ...(!isKept && { metadata: metadataAfter(before, metadata) }) }
    const platform = { collection, values, defaults }
    const change = { action: 'update', changes: [{ id, payload }], ifMatch } as const
    await changeItems(deps, { ...requester, platform, scope }, collection, change)
    if (before !== undefined && stored.size > Number(before.size)) await requireQuota(deps, tx, id)
    return id
  })
}

/** From here on the row names the content. */
async function release(tx: Tx, stored: StoredContent): Promise<void> {
  if (!(await releaseContent(tx, contentOf(stored)))) throw tookTooLong()
}

function payloadFrom({ catalog }: FileWrites, fields: Fields): Record<string, unknown> {
  const { id: _id, storage: _storage, ...payload } = payloadOf(catalog.current().collections.get(collection)!, fields)
  if (payload.originalFilename === '') delete payload.originalFilename
  return payload
}

/** The default name of a file, and the known facts about its content, unless its sender says otherwise. */
function named(payload: Readonly<Record<string, unknown>>, { originalFilename, metadata }: StoredContent) {
  return {
    ...(payload.metadata === undefined && metadata !== undefined && { metadata }),
    ...(payload.title === undefined && { title: originalFilename }),
    ...nameUnlessSaid(payload, originalFilename),
  }
}

const nameUnlessSaid = (payload: Readonly<Record<string, unknown>>, originalFilename: string) =>
  payload.originalFilename === undefined ? { originalFilename } : {}

const columnsOf = ({ filename, storage, folder, size, type, typeProven, hash, width, height }: StoredContent) => ({
  filename,
  storage,
  storage_folder: folder,
  size,
  type,
  typeProven,
  hash,
  // Never those of the content before.
  width: width ?? null,
  height: height ?? null,
})

function serviceFor(
  { storages, config }: FileWrites,
  fields: Fields,
  owner: FileOwner,
): Omit<ContentLocation, 'filename'> {
  const wanted = fields.get('storage')
  const service = typeof wanted === 'string' && wanted !== '' ? storages.named(wanted) : storages.usual()
  return { storage: service.name, folder: config.storage.folderStructure ? folderOf(owner) : null }
}

/** Whether the caller may say so is decided with the row. */
function ownerOf({ config }: FileWrites, { access }: Requester, fields: Fields): FileOwner {
  const said = (name: string, own: string | undefined) => {
    const value = fields.get(name)
    return isUuid(value) ? value.toLowerCase() : own
  }
  return {
    tenantId: said('tenant_Id', config.tenancy.enabled ? access.tenantId : undefined),
    userId: said('userCreated_Id', access.userId),
  }
}

/** Parts of a form that are not the file. Bytes. */
const roomForFields = 2 * 1024 * 1024

/** The size of the file, if not less; undefined where the request does not say. */
function declaredSize({ headers }: FastifyRequest): number | undefined {
  const length = Number(headers['content-length'])
  return Number.isSafeInteger(length) ? Math.max(0, length - roomForFields) : undefined
}

/** Refuses before the body is read what the end would refuse. `begunBefore`: unfinished uploads that count too. */
export async function requireRoom(deps: FileWrites, { access }: Requester, size = 0, begunBefore = 0): Promise<void> {
  if (size > deps.config.files.maxUploadFileSize) throw tooLarge()
  const { quotaTenant } = deps.config.storage
  if (quotaTenant === undefined || access.tenantId === undefined || !deps.config.tenancy.enabled) return
  if ((await usedBytes(deps, access.tenantId)) + begunBefore + size >= quotaTenant) throw quotaExceeded()
}

const noFile = () => errors.badBody(`No file uploaded. Please provide a file with the field name '${filePart}'.`)

/** The name of the part that holds the file. */
const filePart = 'file'

/** Values of fields, text unless a part said that it is JSON. */
export type Fields = Map<string, unknown>

/**
 * Reads a form to its end. The file is given to `store` while it comes, with the fields that came before it; others may
 * follow. A problem of the form is 400 or 413; an error of `store` is rethrown.
 */
async function readForm<Stored>(
  request: FastifyRequest,
  store: (file: Incoming, fields: Fields) => Promise<Stored>,
): Promise<{ readonly fields: Fields; readonly stored: Stored | undefined }> {
  const fields: Fields = new Map()
  let stored: Stored | undefined
  for await (const part of formParts(request, filePart)) {
    if (part.type === 'field')
      fields.set(part.name, isJson(part) ? aloneOrValue(part.value, jsonOf(part.name, part.value)) : part.value)
    else if (part.filename !== '')
      stored = await store({ content: part.content, name: part.filename, declared: part.mimetype }, fields)
  }
  return { fields, stored }
}

const isJson = ({ mimetype }: { readonly mimetype: string }): boolean => mimetype.startsWith('application/json')

/**
 * The payload that a form's fields mean: text becomes a value of its column's kind; what names no column is dropped, and so is
 * an input that was left empty where its column takes no null.
 */
function payloadOf(collection: Collection, fields: ReadonlyMap<string, unknown>): Record<string, unknown> {
  const payload: Record<string, unknown> = {}
  for (const [name, value] of fields) {
    const field = collection.fields.get(name)
    if (field === undefined) continue
    const meant = typeof value === 'string' ? cellValue(field, value) : exactValue(value, field as ValueType)
    if (meant !== null || field.nullable) payload[name] = meant
  }
  return payload
}

const texts: ReadonlySet<string> = new Set(['text', 'enum'])

function cellValue(field: Field, text: string): unknown {
  const { name, kind } = field
  if (texts.has(kind)) return text
  if (text === '') return null
  if (kind === 'boolean') return booleans.get(text.toLowerCase()) ?? text
  if (kind === 'json' || kind === 'array') return exactValue(jsonOf(name, text), field as ValueType)
  if ((kind === 'integer' || kind === 'float') && text.trim() !== '' && Number.isFinite(Number(text)))
    return Number(text)
  return text
}

const booleans = new Map([
  ...['true', '1', 'on', 'yes'].map((word) => [word, true] as const),
  ...['false', '0', 'off', 'no'].map((word) => [word, false] as const),
])

function jsonOf(name: string, text: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw errors.validation([{ field: name, message: 'is not valid JSON', rule: 'type' }])
  }
  return keepable(text, value, `The field '${name}'`)
}
