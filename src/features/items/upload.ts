import { createHash, type Hash, randomUUID } from 'node:crypto'
import { type FileHandle, mkdir, open, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyRequest } from 'fastify'
import type { MultipartFile } from '../../adapters/multipart.ts'
import { AppError, errors } from '../../errors.ts'
import { identifyBody } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'

/** What came with a form: the values of its fields, and the file of the part that was asked for. */
export type Upload = {
  readonly fields: ReadonlyMap<string, string>
  readonly file: UploadedFile | undefined
}

export type UploadedFile = {
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
export async function withUpload<Result>(
  rt: Runtime,
  request: FastifyRequest,
  part: string,
  work: (upload: Upload) => Promise<Result>,
): Promise<Result> {
  if (!request.isMultipart()) return work({ fields: new Map(), file: undefined })
  const handle = await openNameless(rt.config.storage.tempPath)
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

/** Limits have a status, the disk's errors a system call; what else is thrown is about bytes that are no form. */
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
    read: () => handle.createReadStream({ start: 0, autoClose: false }) as AsyncIterable<Uint8Array>,
  }
}

async function* hashed(chunks: AsyncIterable<Buffer>, digest: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    digest.update(chunk)
    yield chunk
  }
}
