import { Transform } from 'node:stream'
import type { FastifyRequest } from 'fastify'
import { AppError } from '../errors.ts'
import type { App } from '../http/http.ts'

/** Enough for a form or a filter. Bytes. */
const anonymousBodyLimit = 1_048_576

/**
 * Bodies of callers of whom nothing is known are at most a megabyte: BODY_SIZE_LIMIT is what an account may send, and many
 * such bodies at a time would be all of a process's memory. 413 for more.
 */
export function limitAnonymousBodies(app: App): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    if (request.caller.userId !== undefined) done(null, payload)
    else if (Number(request.headers['content-length']) > anonymousBodyLimit) done(tooLarge())
    // A form is read past this stream.
    else if (isOfUnknownLength(request) && isForm(request)) done(new AppError(411, 'Content-Length is required'))
    else done(null, isOfUnknownLength(request) ? payload.pipe(atMost(anonymousBodyLimit)) : payload)
  })
}

/** A path that does not exist is answered before the body is read. */
export function refuseUnknownPaths(app: App): void {
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? new AppError(404, 'Not found') : undefined)
  })
}

const isForm = ({ headers }: FastifyRequest) => headers['content-type']?.startsWith('multipart/') === true
const isOfUnknownLength = ({ headers }: FastifyRequest) => headers['transfer-encoding'] !== undefined

function atMost(limit: number): Transform {
  let size = 0
  return new Transform({
    transform(chunk: Buffer, _encoding, next) {
      size += chunk.length
      if (size > limit) next(tooLarge())
      else next(null, chunk)
    },
  })
}

/** The framework reads `statusCode` of what a stream fails with. */
const tooLarge = () => Object.assign(new AppError(413, 'Request body is too large'), { statusCode: 413 })
