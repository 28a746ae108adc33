import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Asker, workFor } from '../admission/asker.ts'
import { type App, turnOf } from '../http/http.ts'

/**
 * Lets the work of every handler know for whom it is done (src/admission/asker.ts). What comes before handlers is shared by
 * requests, such as a session that several of them are read for, and does not end with one of them.
 */
export function knowAskers(app: App): void {
  app.addHook('preHandler', (request, reply, done) => workFor(new RequestAsker(request, reply), done))
}

/** Most requests never need the signal. */
class RequestAsker implements Asker {
  places = 0
  readonly #request: FastifyRequest
  readonly #reply: FastifyReply
  #leaving: AbortController | undefined

  constructor(request: FastifyRequest, reply: FastifyReply) {
    this.#request = request
    this.#reply = reply
  }

  get caller(): string {
    return turnOf(this.#request)
  }

  get gone(): AbortSignal | undefined {
    if (endsByItself(this.#request)) return undefined
    this.#leaving ??= untilClosed(this.#reply)
    return this.#leaving.signal
  }
}

/** A session must end although the page that asked for it is closed already. */
const endsByItself = ({ routeOptions: { url = '' } }: FastifyRequest): boolean => /^\/auth(\/|$)/.test(url)

/** The framework's own signal also aborts when the body of a request has arrived. */
function untilClosed({ raw }: FastifyReply): AbortController {
  const leaving = new AbortController()
  const onClose = () => {
    if (!raw.writableEnded) leaving.abort()
  }
  if (raw.closed || raw.destroyed) onClose()
  else raw.once('close', onClose)
  return leaving
}
