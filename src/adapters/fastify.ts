import type { IncomingMessage, ServerResponse } from 'node:http'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifySchemaCompiler,
  FastifySerializerCompiler,
  RawServerDefault,
} from 'fastify'
import { onFirstUse } from '../language/once.ts'

/** The server as route files see it: schemas are TypeBox, handlers get typed requests. */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>

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

export type { MultipartFile } from '@fastify/multipart'

// Workers know the routes of files by their slice, and serve none.
const multipart = onFirstUse<typeof import('@fastify/multipart')>('@fastify/multipart')

/** Largest parts in bytes; a field's default is 1 MB. At most 10 fields unless it says otherwise. */
type PartLimits = { readonly fileSize: number; readonly fieldSize?: number; readonly fields?: number }

/** Lets the routes of this scope take multipart bodies of one file and a few fields. */
export function acceptMultipart(app: App, limits: PartLimits): void {
  if (app.hasContentTypeParser('multipart/form-data')) return
  const { fields = 10 } = limits
  app.register(multipart().default, { limits: { ...limits, files: 1, fields, parts: fields + 1 } })
}
