import { createHash, type Hash } from 'node:crypto'
import type { FastifyRequest } from 'fastify'

/** The fingerprint that tells two requests with the same Idempotency-Key apart: SHA-256 over method, address and the body as JSON. */
export function fingerprintOf(request: FastifyRequest): string {
  return (
    ofLists.get(request) ??
    begun(request)
      .update(JSON.stringify(request.body ?? null))
      .digest('base64url')
  )
}

type ListFingerprint = { add(element: unknown): void; end(): void }

/** The same of a body that is a list, made while it comes in; undefined where nobody will ask for it. */
export function fingerprintList(request: FastifyRequest): ListFingerprint | undefined {
  if (request.headers['idempotency-key'] === undefined) return undefined
  const hash = begun(request).update('[')
  let separator = ''
  return {
    add: (element) => {
      hash.update(separator).update(JSON.stringify(element))
      separator = ','
    },
    end: () => void ofLists.set(request, hash.update(']').digest('base64url')),
  }
}

const ofLists = new WeakMap<FastifyRequest, string>()

const begun = ({ method, url }: FastifyRequest): Hash => createHash('sha256').update(`${method} ${url}\n`)
