import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

export type SentSpan = {
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly kind: number
  readonly attributes: Readonly<Record<string, unknown>>
  readonly resource: Readonly<Record<string, unknown>>
  /** 2 for one that failed. */
  readonly status: number | undefined
}

export type Receiver = {
  readonly url: string
  readonly spans: SentSpan[]
  /** Everything that was sent, as text. */
  readonly bodies: string[]
  readonly headers: IncomingHttpHeaders[]
}

/** A receiver of traces by OTLP over HTTP, in JSON; closed after the test file. */
export async function startReceiver(): Promise<Receiver> {
  const received: Omit<Receiver, 'url'> = { spans: [], bodies: [], headers: [] }
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    received.bodies.push(body)
    received.headers.push(request.headers)
    if (request.url === '/v1/traces') received.spans.push(...spansIn(JSON.parse(body)))
    response.setHeader('content-type', 'application/json').end('{}')
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })
  return { ...received, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

function spansIn(message: any): SentSpan[] {
  return message.resourceSpans.flatMap(({ resource, scopeSpans }: any) =>
    scopeSpans.flatMap(({ spans }: any) =>
      spans.map((span: any) => ({
        ...span,
        attributes: valuesOf(span.attributes),
        resource: valuesOf(resource.attributes),
        status: span.status?.code,
      })),
    ),
  )
}

function valuesOf(attributes: any[] = []): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))
}
