import type { IncomingMessage, ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyBaseLogger, FastifyInstance, FastifySerializerCompiler, RawServerDefault } from 'fastify'

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
