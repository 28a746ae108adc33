import type { FastifyRequest } from 'fastify'
import type { Span } from '../adapters/running-span.ts'
import type { Traces } from '../adapters/tracing.ts'
import type { App } from '../http/http.ts'

/**
 * One span per request, by the pattern of its route: neither path nor query, which hold ids and tokens. It continues the
 * trace of a caller who sends `traceparent`. To be called before any other hook is added.
 */
export function traceRequests(app: App, { tracing }: Traces): void {
  if (!tracing.isOn) return
  const spans = new WeakMap<FastifyRequest, Span>()
  app.addHook('onRequest', (request, _reply, done) => {
    const { method, headers, id } = request
    const { url: route } = request.routeOptions
    const attributes = { 'http.request.method': method, 'http.route': route, 'daybook.request_id': id }
    const name = route === undefined ? method : `${method} ${route}`
    const span = tracing.begin(name, { kind: 'server', attributes, parent: headers.traceparent })
    spans.set(request, span)
    span.within(done)
  })
  // Whatever is done after the body has arrived is called by its stream, outside of the span.
  app.addHook('preValidation', (request, _reply, done) => spans.get(request)!.within(done))
  app.addHook('onResponse', (request, reply, done) => {
    const span = spans.get(request)
    // The router has refused it before any hook.
    if (span === undefined) return done()
    const { statusCode } = reply
    span.set({ 'http.response.status_code': statusCode })
    span.end(statusCode >= 500 ? String(statusCode) : undefined)
    span.within(done)
  })
}
