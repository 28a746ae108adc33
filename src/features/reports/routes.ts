import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type App, turnOf } from '../../http.ts'
import type { ListQuery } from '../../query/parse.ts'
import type { Runtime } from '../../runtime.ts'
import { readCached, type Served } from '../items/cached-reads.ts'
import type { Trace } from '../items/reads.ts'
import { queryOf } from '../items/routes.ts'
import { failure, parseReport, parseReportParameters, readReport, reportError } from './reports.ts'
import { readStats } from './stats.ts'
import { parseStats, parseStatsParameters, type Stat } from './stats-request.ts'

type OfCollection = { Params: { collection: string } }

/** `/reports/{collection}` and `/reports/stats`, by POST with a body or by GET with parameters (spec: Reports). */
export function reportRoutes(app: App, rt: Runtime): void {
  const config = { failureMessage: failure }
  /** Fifty reports in full. */
  const bodyLimit = 1_048_576
  // What is thrown here goes on to the server's own handler, which knows how errors look.
  app.setErrorHandler((error) => {
    throw reportError(error)
  })
  // An answer from the cache costs nothing, however heavy it was to make.
  if (!rt.config.dataCache.enabled)
    app.addHook('onRequest', async (request) => {
      await rt.admission.turnAway({ shape: 'a report', presumed: 'heavy', isHeavy: true }, turnOf(request))
    })
  const answerStats = async (request: FastifyRequest, reply: FastifyReply, stats: readonly Stat[]) => {
    const collections = stats.map(({ collection }) => collection)
    const read = (trace?: Trace) => readStats(rt, request.caller.access, stats, trace)
    return json(reply, await cached(rt, request, reply, collections, read))
  }
  const answerReport = async (request: FastifyRequest, reply: FastifyReply, collection: string, query: ListQuery) => {
    const read = (trace?: Trace) => readReport(rt, request.caller.access, collection, query, trace)
    return json(reply, await cached(rt, request, reply, [collection], read))
  }
  app.post('/reports/stats', { config, bodyLimit }, async (request, reply) =>
    answerStats(request, reply, parseStats(request.body)),
  )
  app.get('/reports/stats', { config }, async (request, reply) =>
    answerStats(request, reply, parseStatsParameters(queryOf(request))),
  )
  app.post<OfCollection>('/reports/:collection', { config, bodyLimit }, async (request, reply) =>
    answerReport(request, reply, request.params.collection, parseReport(request.body)),
  )
  app.get<OfCollection>('/reports/:collection', { config }, async (request, reply) =>
    answerReport(request, reply, request.params.collection, parseReportParameters(queryOf(request))),
  )
}

async function cached(
  rt: Runtime,
  request: FastifyRequest,
  reply: FastifyReply,
  collections: readonly string[],
  read: (trace: Trace | undefined) => Promise<string | Readable>,
): Promise<Served['body']> {
  const { body } = await readCached(rt, request, reply, {
    collections,
    isPlain: true,
    read: async (trace) => ({ body: await read(trace) }),
    tagOf: () => '',
  })
  return body
}

const json = (reply: FastifyReply, body: Served['body']): FastifyReply =>
  reply.type('application/json; charset=utf-8').send(body)
