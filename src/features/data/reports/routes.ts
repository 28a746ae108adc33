import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from '../../../adapters/typebox.ts'
import type { ResultCache } from '../../../cache/data-cache.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { type App, sendJson, turnOf } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Count, GeneralError, Row, Text } from '../../../http/shapes.ts'
import {
  CollectionParams,
  type DependencyRecorder,
  queryOf,
  ReportBody,
  ReportQuery,
  readCached,
  type ServedAnswer,
} from '../items/items.ts'
import {
  failure,
  parseReportParameters,
  parseStats,
  parseStatsParameters,
  questionOf,
  type ReportQuestion,
  type ReportReads,
  readReport,
  readStats,
  reportError,
  type Stat,
} from './reports.ts'

/** `/reports/{collection}` and `/reports/stats`, by POST with a body or by GET with parameters. */
export function reportRoutes(app: App, deps: ReportReads): void {
  // The server's own handler renders the error that is thrown here.
  app.setErrorHandler((error) => {
    throw reportError(error)
  })
  // An answer from the cache costs nothing, however heavy it was to make.
  if (!deps.config.dataCache.enabled)
    app.addHook('onRequest', async (request) => {
      await deps.admission.turnAway({ shape: 'a report', presumed: 'heavy', isHeavy: true }, turnOf(request))
    })
  const answerStats = async (request: FastifyRequest, reply: FastifyReply, stats: readonly Stat[]) => {
    const collections = stats.map(({ collection }) => collection)
    const read = (recorder?: DependencyRecorder) => readStats(deps, request.caller.access, stats, recorder)
    return sendJson(reply, await cached(deps, request, reply, collections, read))
  }
  const answerReport = async (
    request: FastifyRequest,
    reply: FastifyReply,
    collection: string,
    question: ReportQuestion,
  ) => {
    const read = (recorder?: DependencyRecorder) =>
      readReport(deps, request.caller.access, collection, question, recorder)
    return sendJson(reply, await cached(deps, request, reply, [collection], read))
  }
  app.post('/reports/stats', postStatsRoute, async (request, reply) =>
    answerStats(request, reply, parseStats(request.body)),
  )
  app.get('/reports/stats', getStatsRoute, async (request, reply) =>
    answerStats(request, reply, parseStatsParameters(queryOf(request))),
  )
  app.post('/reports/:collection', postReportRoute, async (request, reply) =>
    answerReport(request, reply, request.params.collection, questionOf(request.body)),
  )
  app.get('/reports/:collection', getReportRoute, async (request, reply) =>
    answerReport(request, reply, request.params.collection, { query: parseReportParameters(queryOf(request)) }),
  )
}

async function cached(
  deps: Configuration & CurrentCatalog & ResultCache & Clock,
  request: FastifyRequest,
  reply: FastifyReply,
  collections: readonly string[],
  read: (recorder: DependencyRecorder | undefined) => Promise<string | Readable>,
): Promise<ServedAnswer['body']> {
  const { body } = await readCached(deps, request, reply, {
    collections,
    isPlain: true,
    read: async (recorder) => ({ body: await read(recorder) }),
    tagOf: () => '',
  })
  return body
}

const ReportShape = Type.Object({ data: Type.Array(Row), totalCount: Type.Optional(Count(3)) })
const StatsShape = Type.Object({
  data: Type.Record(Type.String(), Type.Unknown(), {
    examples: [{ revenue: { data: [{ total: 310.5 }], totalCount: 1 } }],
  }),
})
const StatsBody = Type.Object({
  stats: Type.Array(Type.Object({ name: Text('revenue'), collection: Text('orders'), query: ReportBody }), {
    minItems: 1,
    maxItems: 50,
    description: 'Reports by names that differ, each with its collection and its query.',
  }),
})
const StatsQuery = Type.Object({
  stats: Type.Optional(
    Text('[{"name":"orders","collection":"orders","query":{}}]', {
      contentMediaType: 'application/json',
      contentSchema: StatsBody.properties.stats,
    }),
  ),
})

/** The query parser reads them; a body holds at most fifty reports in full. */
const treatment = { tag: 'Reports', scope: 'read', readElsewhere: 'all', sendsText: true } as const
const options = { config: { failureMessage: failure }, bodyLimit: 1_048_576 }

const postStatsRoute = route(
  {
    ...treatment,
    summary: 'Make several reports at once',
    body: StatsBody,
    response: { 200: StatsShape, 404: GeneralError },
  },
  options,
)
const getStatsRoute = route(
  {
    ...treatment,
    summary: 'Make several reports at once',
    query: StatsQuery,
    response: { 200: StatsShape, 404: GeneralError },
  },
  options,
)
const postReportRoute = route(
  {
    ...treatment,
    summary: 'Make a report',
    params: CollectionParams,
    body: ReportBody,
    response: { 200: ReportShape },
  },
  options,
)
const getReportRoute = route(
  {
    ...treatment,
    summary: 'Make a report',
    params: CollectionParams,
    query: ReportQuery,
    response: { 200: ReportShape },
  },
  options,
)
