import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ConfigError } from '../config.ts'
import { registerProcessGauges } from '../features/metrics/process.ts'
import { holdsMetricsToken } from '../features/metrics/token.ts'
import type { Runtime } from '../runtime.ts'
import { type WorkerName, workerNames } from './names.ts'

/**
 * `GET /metrics` of a worker process, for the holder of METRICS_TOKEN: at METRICS_PORT for the first worker of the list,
 * one port further for each after it, so that all of them can run on one machine. Undefined when it is not set. What the
 * database knows is told by the web processes.
 */
export async function showMetrics(rt: Runtime, worker: WorkerName): Promise<{ close(): Promise<void> } | undefined> {
  const { metricsPort } = rt.config.observability
  if (metricsPort === undefined) return undefined
  registerProcessGauges(rt)
  const server = createServer({ requestTimeout: 5000, headersTimeout: 5000 }, (request, response) => {
    answer(rt, request, response).catch((error: unknown) => {
      rt.log.error({ err: error }, 'the metrics could not be shown')
      response.destroy()
    })
  })
  const port = metricsPort === 0 ? 0 : metricsPort + workerNames.indexOf(worker)
  server.listen(port, rt.config.server.host)
  await once(server, 'listening').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError(`METRICS_PORT: ${rt.config.server.host}:${port} cannot be listened at: ${error.message}`)
  })
  rt.log.info({ port: (server.address() as AddressInfo).port }, 'metrics are shown')
  return {
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

async function answer(rt: Runtime, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const refuse = (status: number, message: string) =>
    response
      .writeHead(status, { 'content-type': 'application/json; charset=utf-8' })
      .end(JSON.stringify({ error: { message } }))
  if (request.url?.split('?', 1)[0] !== '/metrics') return void refuse(404, 'Not found')
  if (request.method !== 'GET') return void refuse(405, 'Only GET is answered here')
  if (!holdsMetricsToken(rt.config, request.headers.authorization)) return void refuse(401, 'Authentication required')
  const { contentType, text } = await rt.instruments.metrics.scrape()
  response.writeHead(200, { 'content-type': contentType, 'cache-control': 'no-store' }).end(text)
}
