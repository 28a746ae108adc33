import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { buffer } from 'node:stream/consumers'
import type { MultipartFile } from '@fastify/multipart'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyRequest,
  FastifySchemaCompiler,
  FastifySerializerCompiler,
  RawServerDefault,
} from 'fastify'
import { clientGone } from '../admission/asker.ts'
import { AppError, errors } from '../errors.ts'
import { onFirstUse } from '../language/once.ts'

/** The server as route files see it: schemas are TypeBox, handlers get typed requests. */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>

/** The hooks of one kind, or the methods, of a route, which may have a single one. */
export function hooksOf<Hook>(hooks: Hook | Hook[] | undefined): Hook[] {
  return hooks === undefined ? [] : Array.isArray(hooks) ? hooks : [hooks]
}

type SerializerBuilder = (shared: unknown, options?: object) => FastifySerializerCompiler<unknown>
type ValidatorBuilder = (shared: unknown, options?: object) => FastifySchemaCompiler<unknown>

const serializers = onFirstUse<() => SerializerBuilder>('@fastify/fast-json-stringify-compiler', 'fastify')
const validators = onFirstUse<() => ValidatorBuilder>('@fastify/ajv-compiler', 'fastify')

/** Serialisers as Fastify makes them by itself. */
const buildSerializer: SerializerBuilder = (shared, options) => serializers()()(shared, options)
const buildValidator: ValidatorBuilder = (shared, options) => validators()()(shared, options)

/**
 * What Fastify compiles the shapes of routes by that bring nothing of their own, as those of extensions do. Left to itself it
 * loads Ajv at once, a hundred files. Where there are `foreign` routes it is: it reads the names of headers in any case only by
 * validators that nobody has given it.
 */
export function compilersFactory({ foreign }: { readonly foreign: boolean }) {
  return { buildSerializer, ...(!foreign && { buildValidator }) } as never
}

/** The same, compiled when the first answer is written by it: all of them together took longer than a start should. */
export const serializerOf: FastifySerializerCompiler<unknown> = (route) => {
  let write: ((data: unknown) => string) | undefined
  return (data) => {
    write ??= buildSerializer({})(route)
    return write(data)
  }
}

// Workers know the routes of files by their slice, and serve none.
const multipart = onFirstUse<typeof import('@fastify/multipart')>('@fastify/multipart')

type FormLimits = {
  /** Of the file, and of all files together that nobody asked for. Bytes. */
  readonly fileSize: number
  /** Bytes; 1 MB unless given. */
  readonly fieldSize?: number
  /** 10 unless given. */
  readonly fields?: number
  /** The refusal of a larger file. */
  readonly tooLarge?: () => AppError
}

/** Files in a form that nobody asked for. */
const mostForeign = 10

const usualLimits = {
  fieldSize: 1_048_576,
  fields: 10,
  tooLarge: () => new AppError(413, 'Request body is too large'),
}

declare module 'fastify' {
  interface FastifyRequest {
    readonly formLimits: Required<FormLimits>
  }
}

/** Lets the routes of this scope take multipart bodies of one file and a few fields, which `formParts` reads. */
export function acceptMultipart(app: App, given: FormLimits): void {
  if (app.hasContentTypeParser('multipart/form-data')) return
  const limits = { ...usualLimits, ...given }
  app.register(multipart().default, {
    // The parser would decode fields by itself, with U+FFFD for what is no UTF-8. The bytes of files it leaves alone.
    isPartAFile: () => true,
    limits: { fileSize: Number.POSITIVE_INFINITY, parts: mostParts(limits) },
  })
  app.decorateRequest('formLimits', { getter: () => limits })
}

const mostParts = ({ fields }: Required<FormLimits>): number => fields + 1 + mostForeign

/** A field, or the file that was asked for: its content comes once, and is skipped where it is not read. */
type FormPart =
  | { readonly type: 'field'; readonly name: string; readonly value: string; readonly mimetype: string }
  | FormFile
export type FormFile = {
  readonly type: 'file'
  readonly name: string
  /** Empty where its sender chose no file. */
  readonly filename: string
  readonly mimetype: string
  readonly content: AsyncIterable<Uint8Array>
}

/**
 * The parts of a form as they come, without files under other names than `wanted`. 400 for bytes that are no form or, where
 * text is expected, no UTF-8, for a second file and for too many fields or parts; 413 for one that is too large.
 */
export async function* formParts(request: FastifyRequest, wanted: string): AsyncGenerator<FormPart> {
  const { formLimits: limits } = request
  const { fieldSize, fileSize, tooLarge } = limits
  let fields = 0
  let files = 0
  let skipped = 0
  for await (const part of blaming(request, request.parts())) {
    const { fieldname, file, filename, mimetype } = part as MultipartFile
    const name = requireName(fieldname ?? '', 'The name of a part')
    const content = (most: number, refusal: () => AppError) => bounded(blaming(request, file), most, refusal)
    if (isText(part as MultipartFile)) {
      fields += 1
      if (fields > limits.fields) throw errors.badBody(`A form may have at most ${limits.fields} fields`)
      const bytes = await buffer(content(fieldSize, fieldTooLarge))
      yield { type: 'field', name, value: textOf(bytes, name), mimetype }
      continue
    }
    const isWanted = name === wanted
    if (isWanted && filename) files += 1
    if (files > 1) throw errors.badBody(`A form may have one file: send each with a request of its own`)
    const rest = content(isWanted ? fileSize : fileSize - skipped, tooLarge)
    if (isWanted)
      yield {
        type: 'file',
        name,
        filename: requireName(filename ?? '', 'The name of the file'),
        mimetype,
        content: rest,
      }
    for await (const piece of rest) if (!isWanted) skipped += piece.length
  }
}

const isText = ({ filename, mimetype }: MultipartFile): boolean =>
  filename === undefined && mimetype !== 'application/octet-stream'

const fieldTooLarge = () => new AppError(413, 'A field of the form is too large')

/** The parser has decoded it already, so a U+FFFD of its sender is taken for one of the parser. */
function requireName(name: string, what: string): string {
  if (name.includes('\ufffd')) throw errors.invalidUtf8(what)
  return name
}

function textOf(bytes: Buffer, name: string): string {
  if (!isUtf8(bytes)) throw errors.invalidUtf8(`The field '${name.slice(0, 40)}'`)
  return bytes.toString('utf8')
}

async function* bounded(
  pieces: AsyncIterable<Uint8Array>,
  most: number,
  refusal: () => AppError,
): AsyncGenerator<Uint8Array> {
  let size = 0
  for await (const piece of pieces) {
    size += piece.length
    if (size > most) throw refusal()
    yield piece
  }
}

/** Errors of reading a form concern the form or its sender. */
async function* blaming<Piece>(request: FastifyRequest, pieces: AsyncIterable<Piece>): AsyncGenerator<Piece> {
  try {
    yield* pieces
  } catch (error) {
    // A request that has been read to its end is destroyed too.
    if (request.raw.readableAborted) throw clientGone(error)
    throw Object.assign(errors.badBody(complaintOf(request, error)), { cause: error })
  }
}

function complaintOf({ formLimits }: FastifyRequest, error: unknown): string {
  const isLimit = (error as { code?: unknown }).code === 'FST_PARTS_LIMIT'
  return isLimit ? `A form may have at most ${mostParts(formLimits)} parts` : 'The upload cannot be read'
}
