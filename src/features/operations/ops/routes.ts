import type { Static } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, type UnloggedWrites } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import {
  consumerStates,
  forgetSetAside,
  knownConsumer,
  moveTo,
  retrySetAside,
  setAsideEvents,
  skipEvent,
} from '../../../events/consumer.ts'
import { bossSchema } from '../../../events/jobs.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { type Declaration, route } from '../../../http/route.ts'
import {
  Count,
  closed,
  Filled,
  Id,
  IdParams,
  Moment,
  NullableId,
  NullableMoment,
  NullableText,
  OneOf,
  Said,
  Text,
} from '../../../http/shapes.ts'
import { cancel, effectsOf, hurry, jobOr404, MailCorrection, queueRows, redrive, redriveQueue } from './ops.ts'
import { allQueues, type JobFilter, jobStates, jobsPage } from './queries.ts'

/** The workers' waiting and failed jobs, for administrators. Emits: job.* and row changes. */
export function opsRoutes(app: App, deps: Reads & Writes & UnloggedWrites): void {
  followerRoutes(app, deps)
  app.get('/log/requests/:id/effects', effectsRoute, async ({ params }) => ({
    data: await effectsOf(deps.db, params.id),
  }))
  app.get('/ops/jobs', listRoute, (request) => jobsPage(deps.db, filterOf(request.query)))
  app.get('/ops/jobs/:id', readRoute, async ({ params }) => ({ data: await jobOr404(deps, params.id) }))
  app.post('/ops/jobs/:id/retry', retryRoute, async (request) => {
    await hurry(deps, actorOf(request), request.params.id)
    return { message: 'The job runs next' }
  })
  app.post('/ops/jobs/:id/redrive', redriveRoute, async (request) => {
    await redrive(deps, actorOf(request), request.params.id, request.body)
    return { message: 'The job is queued again' }
  })
  app.post('/ops/jobs/:id/cancel', cancelRoute, async (request) => {
    await cancel(deps, actorOf(request), request.params.id)
    return { message: 'The job is cancelled' }
  })
  app.get('/ops/queues', queuesRoute, async () => ({ data: await queueRows(deps) }))
  app.post('/ops/queues/:queue/redrive', redriveQueueRoute, async (request) => {
    const outcome = await redriveQueue(deps, actorOf(request), request.params.queue)
    return { message: `${outcome.redriven} jobs are queued again`, ...outcome }
  })
}

const Filter = Type.Object({
  queue: Type.Optional(OneOf(allQueues)),
  state: Type.Optional(OneOf(jobStates)),
  since: Type.Optional(Moment({ description: 'Created from then on.' })),
  until: Type.Optional(Moment({ description: 'Created before then.' })),
  about: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      description: 'Something that its data holds: the id of a mail, the type of a task.',
      examples: ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'],
    }),
  ),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 25, examples: [25] })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000, default: 1, examples: [1] })),
})

function filterOf({ queue, state, since, until, about, limit = 25, page = 1 }: Static<typeof Filter>): JobFilter {
  return { queue, state, since, until, about, limit, page }
}

const JobShape = Type.Object({
  id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'A UUID; of a task its number.' }),
  queue: Text('mail'),
  state: OneOf(jobStates),
  data: Type.Record(Type.String(), Type.Unknown(), {
    examples: [{ emailLogId: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44' }],
  }),
  retries: Count(2, { description: 'Attempts after the first.' }),
  retryLimit: Count(5),
  createdAt: Moment(),
  startAfter: Moment({ description: 'Not before this.' }),
  startedAt: NullableMoment(),
  completedAt: NullableMoment(),
  reason: NullableText('Connection refused', { description: 'Why the last attempt failed.' }),
  cause: Type.Union(
    [
      Type.Object({
        position: Text('4711'),
        type: Text('mail'),
        action: Text('queued'),
        createdAt: Text('2026-03-14T09:26:53.589Z'),
        requestId: NullableText('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'),
        userId: NullableId(),
      }),
      Type.Null(),
    ],
    { description: 'The event that the job came from.' },
  ),
})

const declared = <const D extends Omit<Declaration, 'tag' | 'scope'>>(declaration: D) =>
  route({ tag: 'Operations', scope: 'admin', ...declaration })

const listRoute = declared({
  summary: 'List jobs',
  description: 'The newest first.',
  query: Filter,
  response: { 200: Type.Object({ data: Type.Array(JobShape), totalCount: Count(1) }) },
})
const readRoute = declared({
  summary: 'Read a job',
  params: IdParams,
  response: { 200: Type.Object({ data: JobShape }) },
})
const retryRoute = declared({
  summary: 'Have a waiting job run next',
  params: IdParams,
  response: { 200: Said('The job runs next') },
})
const redriveRoute = declared({
  summary: 'Queue a job again that was given up',
  params: IdParams,
  body: MailCorrection,
  response: { 200: Said('The job is queued again') },
  // Each kind of job takes members of its own, and which one it is is looked up first.
  readElsewhere: 'all',
})
const cancelRoute = declared({
  summary: 'Cancel a job',
  params: IdParams,
  response: { 200: Said('The job is cancelled') },
})
const queuesRoute = declared({
  summary: 'List the queues and what is in them',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          queue: Text('mail'),
          waiting: Count(3),
          active: Count(1),
          dead: Count(0, { description: 'Given up: they wait for an operator.' }),
          overdueSeconds: Count(0, { description: 'Of the job that has been due the longest.' }),
        }),
      ),
    }),
  },
})
const redriveQueueRoute = declared({
  summary: 'Queue all jobs of a queue again that were given up',
  params: Type.Object({ queue: Text('mail') }),
  response: {
    200: Type.Object({
      message: Text('2 jobs are queued again'),
      redriven: Count(2),
      refused: Type.Array(
        Type.Object({ id: Text('4711'), reason: Text('The mail is sent; only one that has failed is sent again') }),
      ),
      more: Type.Boolean({ description: 'There were more than one request takes.' }),
    }),
  },
})

const of = { id: Id(), request: NullableId({ description: 'Which of the requests led to it.' }) }
const effectsRoute = route({
  tag: 'Log',
  scope: 'admin',
  summary: 'Read what became of a request: jobs, mails, webhooks',
  description: 'Of the request and of those that it led to; at most 200 of each kind.',
  params: IdParams,
  response: {
    200: Type.Object({
      data: Type.Object({
        requests: Type.Array(Id()),
        mails: Type.Array(
          Type.Object({
            ...of,
            template: NullableText('welcome'),
            email: Text('ada@example.com'),
            subject: Text('Welcome'),
            status: Text('sent'),
            createdAt: Moment(),
            sentAt: NullableMoment(),
            error: NullableText('no such mailbox'),
          }),
        ),
        jobs: Type.Array(
          Type.Object({
            ...of,
            queue: Text('mail'),
            state: Text('completed'),
            mail: NullableId({ description: 'The mail that it is about.' }),
            retries: Count(0),
            createdAt: Moment(),
            completedAt: NullableMoment(),
            reason: NullableText('the server refused the connection'),
          }),
        ),
        deliveries: Type.Array(
          Type.Object({
            ...of,
            webhook: Id(),
            url: Text('https://example.com/hook'),
            collection: NullableText('invoice'),
            item: NullableText('7'),
            action: Text('create'),
            status: Text('delivered'),
            attempts: Count(1),
            responseStatus: Type.Unsafe<number | null>({ type: ['integer', 'null'], examples: [200] }),
            createdAt: Moment(),
            error: NullableText('timeout'),
          }),
        ),
      }),
    }),
  },
  sendsText: true,
})

const mostShown = 1000

/** Consumers of the log with their places, and schedules. The log records neither. */
function followerRoutes(app: App, deps: Reads & UnloggedWrites): void {
  app.get('/ops/consumers', consumersRoute, async () => {
    const [consumers, setAside] = await Promise.all([consumerStates(deps.db), setAsideEvents(deps.db, mostShown)])
    return {
      data: consumers.map(({ advancedAt, ...one }) => ({ ...one, advancedAt: advancedAt.toISOString() })),
      setAside: setAside.map(({ failedAt, ...one }) => ({ ...one, failedAt: failedAt.toISOString() })),
    }
  })
  app.post('/ops/consumers/:name/reset', resetRoute, async ({ params, body }) => {
    await moveTo(deps, params.name, body.to)
    return { message: `${params.name} goes on at ${body.to}` }
  })
  app.post('/ops/consumers/:name/skip', skipRoute, async ({ params }) => {
    await knownConsumer(deps.db, params.name)
    const skipped = await skipEvent(deps, params.name)
    if (skipped === undefined) throw new AppError(409, `${params.name} is not halted before an event`)
    return { message: `${params.name} goes on after position ${skipped}, which is set aside` }
  })
  app.post('/ops/consumers/:name/retry', retryEventRoute, async ({ params, body }) => {
    await knownConsumer(deps.db, params.name)
    const count = await retrySetAside(deps, params.name, body.position === undefined ? undefined : [body.position])
    return { message: `${count} events are tried again`, events: count }
  })
  app.post('/ops/consumers/:name/forget', forgetRoute, async ({ params, body }) => {
    await knownConsumer(deps.db, params.name)
    const count = await forgetSetAside(deps, params.name, body.position === undefined ? undefined : [body.position])
    return { message: `${count} events are not handled`, events: count }
  })
  app.get('/ops/schedules', schedulesRoute, async () => ({ data: await schedules(deps) }))
}

type ListedSchedule = {
  readonly kind: 'platform' | 'extension' | 'workflow'
  readonly name: string
  readonly title: string
  readonly cron: string
  readonly timezone: string
  readonly nextAt: string | null
}

/** Of the platform as its workers have them, of extensions, and of workflows that are on. */
function schedules({ db }: Reads): Promise<readonly ListedSchedule[]> {
  return db.any<ListedSchedule>(
    rawQuery(`
      select 'platform' as kind, name, name as title, cron, coalesce(timezone, 'UTC') as timezone, null as "nextAt"
        from ${bossSchema}.schedule
      union all
      select 'extension', id, id, cron, 'UTC', to_char("nextAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        from "svc_TaskSchedule"
      union all
      select 'workflow', id, name, trigger_cron, coalesce(nullif(options->>'timezone', ''), 'UTC'), null from "svc_Workflow"
        where status = 'active' and trigger_type = 'schedule' and trigger_cron is not null and "deletedAt" is null
      order by kind, name`),
  )
}

const NameParams = Type.Object({ name: Text('cache-invalidation') })
const Place = Type.Object({
  to: Filled('beginning', { description: '`now`, `beginning`, a moment, or a cursor of `GET /changes`.' }),
})
const OnePosition = Type.Object(
  {
    position: Type.Optional(
      Type.String({ pattern: '^\\d{1,18}$', description: 'Of one event; all unless given.', examples: ['4711'] }),
    ),
  },
  closed,
)
const Counted = (message: string) => Type.Object({ message: Text(message), events: Count(1) })

const consumersRoute = declared({
  summary: 'List the consumers of the log, with the events that they have set aside',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          name: Text('cache-invalidation'),
          state: OneOf(['running', 'paused', 'halted', 'stopped']),
          reason: NullableText('the endpoint answered 500', { description: 'Why it does not run.' }),
          failedPosition: NullableText('4711', { description: 'The event that it halts at.' }),
          held: Type.Boolean({ description: 'Some process works for it.' }),
          lagSeconds: Type.Number({ examples: [0.4] }),
          setAside: Count(0),
          advancedAt: Moment(),
        }),
      ),
      setAside: Type.Array(
        Type.Object({
          consumer: Text('cache-invalidation'),
          position: Text('4711'),
          entity: NullableText('order'),
          action: NullableText('update'),
          reason: Text('column "rank" does not exist'),
          attempts: Count(1),
          failedAt: Moment(),
        }),
        { description: 'The newest 1000.' },
      ),
    }),
  },
})
const resetRoute = declared({
  summary: 'Have a consumer go on at another place of the log',
  description: 'Events after the place are handled again.',
  params: NameParams,
  body: Place,
  response: { 200: Said('cache-invalidation goes on at beginning') },
})
const skipRoute = declared({
  summary: 'Have a halted consumer go on after the event that it halts at',
  description: 'The event is set aside. 409 for one that is not halted.',
  params: NameParams,
  response: { 200: Said('cache-invalidation goes on after position 4711, which is set aside') },
})
const retryEventRoute = declared({
  summary: 'Have events handled again that were set aside',
  params: NameParams,
  body: OnePosition,
  response: { 200: Counted('1 events are tried again') },
})
const forgetRoute = declared({
  summary: 'Forget events that were set aside',
  description: 'They are never handled.',
  params: NameParams,
  body: OnePosition,
  response: { 200: Counted('1 events are not handled') },
})
const schedulesRoute = declared({
  summary: 'List what runs at set times',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          kind: OneOf(['platform', 'extension', 'workflow']),
          name: Text('log-partitions', { description: 'Of a workflow its id.' }),
          title: Text('log-partitions'),
          cron: Text('17 2 * * *'),
          timezone: Text('UTC'),
          nextAt: NullableMoment({ description: 'Where it is known.' }),
        }),
      ),
    }),
  },
})
