import { AppError } from '../errors.ts'
import type { App } from '../http/http.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route reads what its bodies are encoded with by itself; extensions may. */
    decodesBodies?: boolean
  }
}

/**
 * Bodies are taken as they are: one that says it is compressed is refused with 415 before it is read, and
 * `Accept-Encoding` says what is accepted (RFC 9110, 15.5.16). What little gzip saves on a request would be paid for
 * with bodies that grow a thousandfold here.
 */
export function refuseEncodedBodies(app: App): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const encoding = request.headers['content-encoding']
    const isPlain = encoding === undefined || /^\s*(?:identity)?\s*$/i.test(encoding)
    if (isPlain || request.routeOptions.config.decodesBodies === true) done(null, payload)
    else done(refusal(encoding))
  })
}

function refusal(encoding: string): AppError {
  const shown = encoding.length > 40 ? `${encoding.slice(0, 40)}…` : encoding
  return new AppError(415, `Content-Encoding ${JSON.stringify(shown)} is not supported: send the body uncompressed`, {
    code: 'UNSUPPORTED_CONTENT_ENCODING',
    headers: { 'accept-encoding': 'identity' },
  })
}
