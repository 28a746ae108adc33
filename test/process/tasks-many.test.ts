import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { type TaskBed, taskBed } from '../support/tasks.ts'
import { longestWaitMs, waitFor } from '../support/wait.ts'

/*
 * A backlog and several workers. TASKS says how many tasks; 10,000 take about a minute on two
 * processors.
 */

const tasks = Number(process.env.TASKS ?? 200)
const worker = '{ worker: process.ppid }'

let bed: TaskBed

afterEach(async () => {
  await bed.stopAll()
  await bed.sql('delete from "svc_Tasks"')
})

beforeAll(async () => {
  bed = await taskBed({
    'svc-task-empty/index.js': `export default { type: 'empty', handler: () => (${worker}) }`,
    'svc-task-effect/index.js': `export default { type: 'effect', async handler(task, { ItemsService }) {
      await task.finish(async () => {
        await new ItemsService('effect').createOne({ task: task.id })
        return ${worker}
      })
    } }`,
  })
  const api = await startApi({}, { url: bed.url, name: '', drop: async () => undefined })
  await api.admin('POST', '/schemas', {
    collectionName: 'effect',
    schema: { fields: { task: { type: 'Integer' } } },
  })
})

/** One step of a task as the log has it, in the order in which they were written. */
type Step = {
  readonly id: number
  readonly worker: number
  readonly status: string
  readonly due: number
  /** When the transaction of the step began, by the clock of the database. */
  readonly began: number
}

async function steps(): Promise<Step[]> {
  const epoch = (name: string) => `extract(epoch from (changes->'after'->>'${name}')::timestamptz)::float8`
  return bed.sql(
    `select t.id, (t.result_data->>'worker')::int as worker, changes->'after'->>'task_status' as status,
       ${epoch('scheduled_time')} as due,
       coalesce(${epoch('started_at')}, ${epoch('updatedAt')}) as began
     from "svc_AuditLog" l join "svc_Tasks" t on t.id::text = l."entityId"
     where l.entity = 'svc_Tasks' and l.action = 'update' order by l.position`,
  )
}

describe('four workers with a backlog', () => {
  it(
    'claim each task once, run one at a time each, in the order of schedule',
    async () => {
      await bed.sql(
        `insert into "svc_Tasks" (type, scheduled_time)
         select case when n % 2 = 0 then 'effect' else 'empty' end, now() - make_interval(secs => 100 + (n * 7919) % $1 / 5)
         from generate_series(1, $1::int) n`,
        [tasks],
      )
      await bed.sql('analyze "svc_Tasks"')
      const workers = await Promise.all([1, 2, 3, 4].map(() => bed.start()))
      const open = `select from "svc_Tasks" where task_status in ('Not started', 'Running') limit 1`
      await waitFor(async () => (await bed.sql(open)).length === 0, { timeout: longestWaitMs + tasks * 25 })
      const done = await steps()
      const claims = done.filter(({ status }) => status === 'Running')
      expect(done.filter(({ status }) => status === 'Completed')).toHaveLength(tasks)
      expect(claims).toHaveLength(tasks)
      expect(new Set(claims.map(({ id }) => id)).size).toBe(tasks)
      const effects = await bed.sql('select count(*)::int as all, count(distinct task)::int as tasks from effect')
      expect(effects).toEqual([{ all: tasks / 2, tasks: tasks / 2 }])
      for (const { pid } of workers) expect(mostAtOnce(done, pid)).toBe(1)
      expect(claims.filter(({ worker }) => workers.every(({ pid }) => pid !== worker))).toEqual([])
      const { overtaken, compared } = orderOf(done)
      expect(overtaken).toEqual([])
      const seconds = done.at(-1)!.began - done[0]!.began
      process.stdout.write(
        `${tasks} tasks by 4 workers: ${seconds.toFixed(1)} s, ${(tasks / seconds).toFixed(0)}/s; ` +
          `shares ${workers.map(({ pid }) => claims.filter((claim) => claim.worker === pid).length).join(', ')}; ` +
          `order compared for ${compared} claims\n`,
      )
    },
    90_000 + tasks * 30,
  )
})

/** How many tasks a worker ran at the same time at most. */
function mostAtOnce(all: readonly Step[], worker: number): number {
  let running = 0
  let most = 0
  for (const step of all) {
    if (step.worker !== worker) continue
    running += step.status === 'Running' ? 1 : -1
    most = Math.max(most, running)
  }
  return most
}

/**
 * Claims that came before an earlier task. Of two workers the later one may commit first, so a claim is compared only
 * with the tasks that had ended when it began: none of them may have been due after it.
 */
function orderOf(all: readonly Step[]) {
  const ends = all.filter(({ status }) => status === 'Completed').sort((a, b) => a.began - b.began)
  const claims = all.filter(({ status }) => status === 'Running').sort((a, b) => a.began - b.began)
  const overtaken: Step[] = []
  let latest = Number.NEGATIVE_INFINITY
  let compared = 0
  for (const claim of claims) {
    while (ends[compared] !== undefined && ends[compared]!.began <= claim.began) {
      latest = Math.max(latest, ends[compared]!.due)
      compared += 1
    }
    if (latest > claim.due) overtaken.push(claim)
  }
  return { overtaken, compared }
}
