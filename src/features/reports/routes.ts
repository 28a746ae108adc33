import type { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queryOf } from '../items/routes.ts'
import { failure, parseReport, parseReportParameters, readReport, reportError } from './reports.ts'
import { readStats } from './stats.ts'
import { parseStats, parseStatsParameters } from './stats-request.ts'

type OfCollection = { Params: { collection: string } }

/** `/reports/{collection}` and `/reports/stats`, by POST with a body or by GET with parameters (spec: Reports). */
export function reportRoutes(app: App, rt: Runtime): void {
  const config = { failureMessage: failure }
  // What is thrown here goes on to the server's own handler, which knows how errors look.
  app.setErrorHandler((error) => {
    throw reportError(error)
  })
  app.post('/reports/stats', { config }, async (request, reply) =>
    json(reply, await readStats(rt, request.caller.access, parseStats(request.body))),
  )
  app.get('/reports/stats', { config }, async (request, reply) =>
    json(reply, await readStats(rt, request.caller.access, parseStatsParameters(queryOf(request)))),
  )
  app.post<OfCollection>('/reports/:collection', { config }, async (request, reply) => {
    const { access } = request.caller
    return json(reply, await readReport(rt, access, request.params.collection, parseReport(request.body)))
  })
  app.get<OfCollection>('/reports/:collection', { config }, async (request, reply) => {
    const { access } = request.caller
    return json(reply, await readReport(rt, access, request.params.collection, parseReportParameters(queryOf(request))))
  })
}

const json = (reply: FastifyReply, body: string | Readable): FastifyReply =>
  reply.type('application/json; charset=utf-8').send(body)
