import type { FastifyRequest } from 'fastify'
import type { MultipartFile } from '../../../adapters/fastify.ts'
import { clientGone } from '../../../admission/asker.ts'
import type { Collection, Field } from '../../../catalog/catalog.ts'
import { AppError, errors } from '../../../errors.ts'

/** The name of the part that holds the file. */
export const filePart = 'file'

/** Values of fields, text unless a part said that it is JSON. */
export type Fields = Map<string, unknown>

/**
 * Reads a form to its end. The file is given to `store` while it comes, with the fields that came before it; others may
 * follow. A problem of the form is 400 or 413; an error of `store` is rethrown.
 */
export async function readForm<Stored>(
  request: FastifyRequest,
  store: (file: MultipartFile, fields: Fields) => Promise<Stored>,
): Promise<{ readonly fields: Fields; readonly stored: Stored | undefined }> {
  const fields: Fields = new Map()
  let stored: Stored | undefined
  for await (const part of partsOf(request)) {
    if (part.type === 'field') {
      if (part.valueTruncated || part.fieldnameTruncated) throw new AppError(413, 'A field of the form is too large')
      fields.set(part.fieldname, part.value)
    } else if (part.fieldname !== filePart || (await isEmptyPart(part))) part.file.resume()
    else stored = await store({ ...part, file: blaming(request, part.file) as never }, fields)
  }
  return { fields, stored }
}

/** A browser sends such a part where nothing was chosen. */
const isEmptyPart = async ({ filename }: MultipartFile): Promise<boolean> => (filename ?? '') === ''

const partsOf = (request: FastifyRequest) => blaming(request, request.parts())

/** Errors of reading a form concern the form or its sender, except the limits, which have a status. */
async function* blaming<Piece>(request: FastifyRequest, pieces: AsyncIterable<Piece>): AsyncGenerator<Piece> {
  try {
    yield* pieces
  } catch (error) {
    if (error instanceof AppError || (error as { statusCode?: number }).statusCode !== undefined) throw error
    // A request that has been read to its end is destroyed too.
    if (request.raw.readableAborted) throw clientGone(error)
    throw Object.assign(errors.badBody('The upload cannot be read'), { cause: error })
  }
}

/**
 * The payload that a form's fields mean: text becomes a value of its column's kind; what names no column is dropped, and so is
 * an input that was left empty where its column takes no null.
 */
export function payloadOf(collection: Collection, fields: ReadonlyMap<string, unknown>): Record<string, unknown> {
  const payload: Record<string, unknown> = {}
  for (const [name, value] of fields) {
    const field = collection.fields.get(name)
    if (field === undefined) continue
    const meant = typeof value === 'string' ? cellValue(field, value) : value
    if (meant !== null || field.nullable) payload[name] = meant
  }
  return payload
}

const texts: ReadonlySet<string> = new Set(['text', 'enum'])

function cellValue({ name, kind }: Field, text: string): unknown {
  if (texts.has(kind)) return text
  if (text === '') return null
  if (kind === 'boolean') return booleans.get(text.toLowerCase()) ?? text
  if (kind === 'json' || kind === 'array') return jsonOf(name, text)
  if ((kind === 'integer' || kind === 'float') && text.trim() !== '' && Number.isFinite(Number(text)))
    return Number(text)
  return text
}

const booleans = new Map([
  ...['true', '1', 'on', 'yes'].map((word) => [word, true] as const),
  ...['false', '0', 'off', 'no'].map((word) => [word, false] as const),
])

function jsonOf(name: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw errors.validation([{ field: name, message: 'is not valid JSON', rule: 'type' }])
  }
}
