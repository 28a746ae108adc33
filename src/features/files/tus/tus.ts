import { createHash, randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import {
  addUploadParts,
  claimUpload,
  endUpload,
  findUpload,
  holdContent,
  insertUpload,
  leaveUpload,
  openUploads,
  removeUpload,
  renewUploadClaim,
  type UploadKey,
  type UploadRow,
} from '../../../db/unlogged/files.ts'
import { AppError, errors } from '../../../errors.ts'
import { openWrite, type Requester } from '../../data/items/items.ts'
import { checkFields, discardKey, type Fields, type FileWrites, requireRoom, saveFile } from '../files/files.ts'
import type { Checksum, Metadata } from './protocol.ts'

/*
 * Resumable uploads by tus 1.0: what has come is stored part by part, so that a client which comes back, at whatever
 * process, goes on where the stored parts end. The last part makes the file, in the same commit as any other upload.
 */

/** Parts are stored when they have come to so much, so a process that is killed loses no more. Bytes. */
const partBytes = 8 * 1024 * 1024
/** Of one user, begun and not finished; what they hold is counted nowhere else. */
const mostOpen = 100
/** Each is an object of its own, and all are read when the last one is here. */
const mostParts = 10_000
/** A client that comes back to another process after its own was killed waits no longer: it tries again for some seconds. */
const claimSeconds = 6
const renewEveryMs = 2000

/** Begins an upload. Refuses at once what its end would refuse. */
export async function createUpload(
  deps: FileWrites,
  requester: Requester,
  { length, metadata }: { readonly length: number; readonly metadata: Metadata },
): Promise<UploadRow> {
  openWrite(deps, requester, 'svc_File', 'create')
  const key = keyOf(requester, randomUUID())
  const open = await openUploads(deps, key)
  if (open.ofUser >= mostOpen) throw tooManyOpen()
  await requireRoom(deps, requester, length, open.bytesOfTenant)
  await checkFields(deps, requester, fieldsOf(metadata))
  const service = metadata.storage ? deps.storages.named(metadata.storage) : deps.storages.usual()
  const upload = await insertUpload(deps, {
    ...key,
    length,
    metadata,
    storage: service.name,
    expiresInSeconds: deps.config.files.tusExpiryHours * 3600,
  })
  // Nothing would be sent any more.
  return length > 0 ? upload : addToUpload(deps, requester, upload.id, nothing)
}

/** 404 for another user's upload, and for one whose time is over. */
export async function readUpload(deps: FileWrites, requester: Requester, id: string): Promise<UploadRow> {
  const found = await findUpload(deps, keyOf(requester, id))
  if (found === undefined) throw noUpload()
  return found
}

/** The part that a request adds. */
export type UploadAddition = {
  readonly offset: number
  readonly content: AsyncIterable<Uint8Array>
  /** As declared; undefined where it is not. */
  readonly size: number | undefined
  readonly checksum: Checksum | undefined
}

const nothing: UploadAddition = { offset: 0, content: Readable.from([]), size: 0, checksum: undefined }

/**
 * Adds to an upload. A client that goes away leaves what has come, unless a checksum was to prove it. 409 at another place
 * than where the upload is, 423 while another request adds to it, 460 for content that is not that of the checksum, of
 * which nothing is kept.
 */
export async function addToUpload(
  deps: FileWrites,
  requester: Requester,
  id: string,
  addition: UploadAddition,
): Promise<UploadRow> {
  openWrite(deps, requester, 'svc_File', 'create')
  const key = keyOf(requester, id)
  const token = randomUUID()
  const { offset } = addition
  const before = await readUpload(deps, requester, id)
  if (before.fileId !== null) return finishedBefore(before, addition)
  const claimed = await claimUpload(deps, key, { offset, token, seconds: claimSeconds })
  if (claimed === undefined) throw await whyNot(deps, requester, id, offset)
  const renewal = setInterval(() => {
    renewUploadClaim(deps, id, token, claimSeconds).catch((error: unknown) =>
      deps.log.warn({ err: error, upload: id }, 'the claim of an upload could not be renewed'),
    )
  }, renewEveryMs)
  try {
    const remaining = claimed.length - offset
    if ((addition.size ?? 0) > remaining) throw tooMuch()
    if (claimed.parts.length >= mostParts) throw tooManyParts()
    await storeParts(deps, { upload: claimed, token, remaining }, addition)
    const now = await readUpload(deps, requester, id)
    if (now.offset < now.length) return now
    await finishUpload(deps, requester, now, token)
    return await readUpload(deps, requester, id)
  } finally {
    clearInterval(renewal)
    await leaveUpload(deps, id, token)
  }
}

/** Nothing can be added to it; a client that has lost the last answer asks in this way for the file. 409 and 413 as above. */
async function finishedBefore(upload: UploadRow, { offset, content, size = 0 }: UploadAddition): Promise<UploadRow> {
  if (offset !== upload.length) throw elsewhere(upload)
  if (size > 0) throw tooMuch()
  for await (const piece of content) if (piece.length > 0) throw tooMuch()
  return upload
}

/** Gives an upload up. 404 as above, 423 while a request adds to it. */
export async function endEarly(deps: FileWrites, requester: Requester, id: string): Promise<void> {
  const { storage } = await readUpload(deps, requester, id)
  const parts = await removeUpload(deps, keyOf(requester, id))
  if (parts === undefined) throw locked()
  for (const part of parts) await discardKey(deps, { storage, key: part })
}

function keyOf({ access }: Requester, id: string): UploadKey {
  if (access.userId === undefined) throw errors.unauthorized()
  return { id, userId: access.userId, tenantId: access.tenantId }
}

async function whyNot(deps: FileWrites, requester: Requester, id: string, offset: number): Promise<AppError> {
  const now = await readUpload(deps, requester, id)
  return now.offset === offset || now.isClaimed ? locked() : elsewhere(now)
}

const elsewhere = ({ offset }: UploadRow) => errors.conflict('Upload-Offset is not where the upload is', { offset })

const noUpload = () => new AppError(404, 'Upload not found')
const locked = () => new AppError(423, 'Another request adds to this upload', { headers: { 'retry-after': '1' } })
const tooMuch = () => new AppError(413, 'This is more than Upload-Length says')
const tooManyParts = () =>
  new AppError(413, `The upload has come in ${mostParts} parts: begin it anew with larger ones`)
const tooManyOpen = () =>
  new AppError(429, `At most ${mostOpen} uploads may be unfinished at a time`, { code: 'TOO_MANY_UPLOADS' })
const mismatch = () => new AppError(460, 'Checksum Mismatch', { code: 'CHECKSUM_MISMATCH' })

type Adding = { readonly upload: UploadRow; readonly token: string; readonly remaining: number }

/** With a checksum nothing is added before it is known to be right. */
async function storeParts(
  deps: FileWrites,
  { upload, token, remaining }: Adding,
  { content, checksum }: UploadAddition,
): Promise<void> {
  const digest = checksum && createHash(checksum.algorithm)
  const source = openSource(content, remaining, digest !== undefined, (piece) => digest?.update(piece))
  const waiting: { readonly key: string; readonly size: number }[] = []
  const add = async (parts: readonly { readonly key: string; readonly size: number }[]) => {
    const size = parts.reduce((sum, part) => sum + part.size, 0)
    const keys = parts.map(({ key }) => key)
    if (parts.length > 0 && !(await addUploadParts(deps, { id: upload.id, token, parts: keys, size }))) throw locked()
  }
  try {
    while (await source.hasMore()) {
      const part = { key: `${upload.id}-${randomUUID()}.part`, size: 0 }
      const until = upload.expiresAt.getTime() - Date.now()
      await holdContent(deps, { storage: upload.storage, key: part.key }, Math.max(60, until / 1000))
      waiting.push(part)
      await deps.storages.holding(upload.storage).write(part.key, source.next(partBytes, part))
      if (digest === undefined) await add(waiting.splice(0))
    }
    if (digest !== undefined && digest.digest('base64') !== checksum!.value) throw mismatch()
    await add(waiting.splice(0))
  } finally {
    for (const { key } of waiting) await discardKey(deps, { storage: upload.storage, key })
  }
}

/** The body, cut into parts. A broken line ends it, unless all of it is needed. */
function openSource(
  content: AsyncIterable<Uint8Array>,
  remaining: number,
  isWholeNeeded: boolean,
  seen: (piece: Uint8Array) => void,
) {
  const pieces = content[Symbol.asyncIterator]()
  let left = remaining
  let waiting: Uint8Array | undefined
  const pull = async () => {
    try {
      const { value, done } = await pieces.next()
      if (done === true) return undefined
      if (value.length > left) throw tooMuch()
      left -= value.length
      seen(value)
      return value
    } catch (error) {
      if (isWholeNeeded || error instanceof AppError) throw error
      return undefined
    }
  }
  const hasMore = async () => {
    while (waiting === undefined || waiting.length === 0) {
      waiting = await pull()
      if (waiting === undefined) return false
    }
    return true
  }
  async function* next(most: number, part: { size: number }): AsyncGenerator<Uint8Array> {
    while (part.size < most && (await hasMore())) {
      part.size += waiting!.length
      const piece = waiting!
      waiting = undefined
      yield piece
    }
  }
  return { hasMore, next: (most: number, part: { readonly key: string; size: number }) => next(most, part) }
}

/** All parts as one content make the file; its id is the upload's, so it is made once. */
async function finishUpload(deps: FileWrites, requester: Requester, upload: UploadRow, token: string): Promise<void> {
  const { id, parts, storage, metadata } = upload
  const service = deps.storages.holding(storage)
  async function* whole(): AsyncGenerator<Uint8Array> {
    for (const key of parts) {
      const part: Readable | undefined = await service.read(key)
      if (part === undefined) throw new AppError(410, 'The upload has expired')
      yield* part as AsyncIterable<Uint8Array>
    }
  }
  const { filename, name, filetype, type } = metadata
  await saveFile(
    deps,
    requester,
    { content: whole(), name: filename ?? name ?? 'file', declared: filetype ?? type },
    fieldsOf(metadata),
    {
      id,
      during: async (tx) => {
        if (!(await endUpload(tx, id, token))) throw locked()
      },
    },
  )
  for (const key of parts) await discardKey(deps, { storage, key })
}

/** Those members that a form would have as fields. */
function fieldsOf({ filename: _filename, name: _name, filetype: _filetype, type: _type, ...fields }: Metadata): Fields {
  return new Map(Object.entries(fields))
}
