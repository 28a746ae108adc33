import type { IncomingMessage, ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyBaseLogger, FastifyInstance, FastifySerializerCompiler, RawServerDefault } from 'fastify'
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

/** Serialisers as Fastify makes them by itself, of the package that it brings. */
export const buildSerializers: SerializerBuilder = (shared, options) => {
  selector ??= createRequire(import.meta.resolve('fastify'))(
    '@fastify/fast-json-stringify-compiler',
  ) as () => SerializerBuilder
  return selector()(shared, options)
}

let selector: (() => SerializerBuilder) | undefined

/** The same, compiled when the first answer is written by it: all of them together took longer than a start should. */
export const serializerOf: FastifySerializerCompiler<unknown> = (route) => {
  let write: ((data: unknown) => string) | undefined
  return (data) => {
    write ??= buildSerializers({})(route)
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
