import { type Static, Type } from 'typebox'
import { type QueueName, queues } from '../../events/jobs.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { cancel, hurry, jobOr404, redrive } from './ops.ts'
import { type JobFilter, jobStates, jobsPage } from './queries.ts'

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
}

const filterSchema = Type.Object(
  {
    queue: Type.Optional(Type.Union(Object.keys(queues).map((name) => Type.Literal(name as QueueName)))),
    state: Type.Optional(Type.Union(jobStates.map((state) => Type.Literal(state)))),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
    page: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000 })),
  },
  { additionalProperties: false },
)

function filterOf({ queue, state, limit = 25, page = 1 }: Static<typeof filterSchema>): JobFilter {
  return { queue, state, limit, page }
}
