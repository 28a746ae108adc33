import { type Static, Type } from 'typebox'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { cancel, hurry, jobOr404, redrive } from './ops.ts'
import { allQueues, type JobFilter, jobStates, jobsPage } from './queries.ts'
import { queueRows, redriveQueue } from './queues.ts'

type OfJob = { Params: { id: string } }

/** What the workers have to do, and what they could not: for administrators. Emits: job.* and row changes. */
export function opsRoutes(app: App, rt: Runtime): void {
  app.get('/ops/jobs', { schema: { querystring: filterSchema } }, (request) => jobsPage(rt.db, filterOf(request.query)))
  app.get<OfJob>('/ops/jobs/:id', async ({ params }) => ({ data: await jobOr404(rt, params.id) }))
  app.post<OfJob>('/ops/jobs/:id/retry', async (request) => {
    await hurry(rt, actorOf(request), request.params.id)
    return { message: 'The job runs next' }
  })
  app.post<OfJob>('/ops/jobs/:id/redrive', async (request) => {
    await redrive(rt, actorOf(request), request.params.id, request.body)
    return { message: 'The job is queued again' }
  })
  app.post<OfJob>('/ops/jobs/:id/cancel', async (request) => {
    await cancel(rt, actorOf(request), request.params.id)
    return { message: 'The job is cancelled' }
  })
  app.get('/ops/queues', async () => ({ data: await queueRows(rt) }))
  app.post<{ Params: { queue: string } }>('/ops/queues/:queue/redrive', async (request) => {
    const outcome = await redriveQueue(rt, actorOf(request), request.params.queue)
    return { message: `${outcome.redriven} jobs are queued again`, ...outcome }
  })
}

const filterSchema = Type.Object(
  {
    queue: Type.Optional(Type.Union(allQueues.map((name) => Type.Literal(name)))),
    state: Type.Optional(Type.Union(jobStates.map((state) => Type.Literal(state)))),
    since: Type.Optional(Type.String({ format: 'date-time' })),
    until: Type.Optional(Type.String({ format: 'date-time' })),
    about: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
    page: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000 })),
  },
  { additionalProperties: false },
)

function filterOf({ limit = 25, page = 1, ...given }: Static<typeof filterSchema>): JobFilter {
  return { ...unfiltered, ...given, limit, page }
}

const unfiltered = { queue: undefined, state: undefined, since: undefined, until: undefined, about: undefined }
