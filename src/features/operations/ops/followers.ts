import { Type } from '../../../adapters/typebox.ts'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, type UnloggedWrites } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import {
  consumerStates,
  forgetSetAside,
  knownConsumer,
  moveTo,
  retrySetAside,
  setAsideEvents,
  skipEvent,
} from '../../../events/consumer-state.ts'
import { bossSchema } from '../../../events/jobs.ts'
import type { App } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import { Count, Filled, Moment, NullableMoment, NullableText, OneOf, Said, Text } from '../../../http/shapes.ts'

const mostShown = 1000

/** Consumers of the log with their places, and schedules. The log records neither. */
export function followerRoutes(app: App, deps: Reads & UnloggedWrites): void {
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
  app.post('/ops/consumers/:name/retry', retryRoute, async ({ params, body }) => {
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

type Schedule = {
  readonly kind: 'platform' | 'extension' | 'workflow'
  readonly name: string
  readonly title: string
  readonly cron: string
  readonly timezone: string
  readonly nextAt: string | null
}

/** Of the platform as its workers have them, of extensions, and of workflows that are on. */
function schedules({ db }: Reads): Promise<readonly Schedule[]> {
  return db.any<Schedule>(
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

const declared = routesOf('Operations')
const NameParams = Type.Object({ name: Text('cache-invalidation') })
const Place = Type.Object({
  to: Filled('beginning', { description: '`now`, `beginning`, a moment, or a cursor of `GET /changes`.' }),
})
const OnePosition = Type.Object({
  position: Type.Optional(
    Type.String({ pattern: '^\\d{1,18}$', description: 'Of one event; all unless given.', examples: ['4711'] }),
  ),
})
const Counted = (message: string) => Type.Object({ message: Text(message), events: Count(1) })

const consumersRoute = declared({
  summary: 'List the consumers of the log, with the events that they have set aside',
  scope: 'admin',
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
  scope: 'admin',
  description: 'Events after the place are handled again.',
  params: NameParams,
  body: Place,
  response: { 200: Said('cache-invalidation goes on at beginning') },
})
const skipRoute = declared({
  summary: 'Have a halted consumer go on after the event that it halts at',
  scope: 'admin',
  description: 'The event is set aside. 409 for one that is not halted.',
  params: NameParams,
  response: { 200: Said('cache-invalidation goes on after position 4711, which is set aside') },
})
const retryRoute = declared({
  summary: 'Have events handled again that were set aside',
  scope: 'admin',
  params: NameParams,
  body: OnePosition,
  response: { 200: Counted('1 events are tried again') },
})
const forgetRoute = declared({
  summary: 'Forget events that were set aside',
  scope: 'admin',
  description: 'They are never handled.',
  params: NameParams,
  body: OnePosition,
  response: { 200: Counted('1 events are not handled') },
})
const schedulesRoute = declared({
  summary: 'List what runs at set times',
  scope: 'admin',
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
