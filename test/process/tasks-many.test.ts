import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { type TaskBed, taskBed } from '../support/tasks.ts'
import { waitFor } from '../support/wait.ts'

/*
 * A backlog and several workers (quality F-05, F-06). TASKS says how many tasks; 10,000 take about a minute on two
 * processors.
 */

const tasks = Number(process.env.TASKS ?? 200)
const worker = '{ worker: process.ppid }'

/** What a bad handler does, why its task fails, and whether the process has to be replaced. */
const bad: Record<string, { body: string; message: RegExp; breaks: boolean }> = {
  poison: { body: `throw new Error('the poison')`, message: /^the poison$/, breaks: false },
  odd: { body: `const a = {}; a.a = a; throw a`, message: /object Object/, breaks: false },
  crash: { body: 'process.exit(1)', message: /exit code 1/, breaks: true },
  endless: { body: 'for (;;) {}', message: /longer than 0.5 s/, breaks: true },
  never: { body: 'await new Promise(() => {})', message: /longer than 0.5 s/, breaks: true },
  memory: {
    body: 'const kept = []; for (;;) kept.push(Buffer.alloc(16 << 20, 1))',
    message: /signal|longer/,
    breaks: true,
  },
}

let bed: TaskBed

afterEach(async () => {
  await bed.stopAll()
  await bed.sql('delete from "svc_Tasks"')
})

beforeAll(async () => {
  bed = await taskBed({
    'svc-task-empty/index.js': `export default { type: 'empty', handler: () => (${worker}) }`,
    'svc-task-healthy/index.js': `export default { type: 'healthy', handler: () => new Promise((r) => setTimeout(r, 50)) }`,
    ...Object.fromEntries(
      Object.entries(bad).map(([type, { body }]) => [
        `svc-task-${type}/index.js`,
        `export default { type: '${type}', timeoutSeconds: 0.5, async handler() { ${body} } }`,
      ]),
    ),
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
      await waitFor(async () => (await bed.sql(open)).length === 0, { timeout: 40_000 + tasks * 25 })
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

describe('healthy tasks beside bad ones', () => {
  const healthy = Math.max(400, tasks / 5)
  const rounds = Math.floor(healthy / 400)
  const retries = 1
  const schedule = 'now() - make_interval(secs => $1 - n)'

  /** Seconds from the first claim to the last outcome of a healthy task. */
  const seconds = async () => {
    const [{ took }] = await bed.sql(
      `select extract(epoch from max(l."createdAt") - min(l."createdAt"))::float8 as took
       from "svc_AuditLog" l join "svc_Tasks" t on t.id::text = l."entityId"
       where l.entity = 'svc_Tasks' and l.action = 'update' and t.type = 'healthy'`,
    )
    return took as number
  }
  const addHealthy = () =>
    bed.sql(
      `insert into "svc_Tasks" (type, scheduled_time) select 'healthy', ${schedule} from generate_series(1, $1::int) n`,
      [healthy],
    )
  const allEnded = () =>
    waitFor(
      async () =>
        (await bed.sql(`select from "svc_Tasks" where task_status in ('Not started', 'Running') limit 1`)).length === 0,
      { timeout: 60_000 + healthy * 100 },
    )

  it(
    'are done about as quickly; the bad ones are retried, end in Error and bring no worker down',
    async () => {
      const workers = [1, 2].map(() => bed.start({ TASK_CONCURRENCY: '4', TASK_MEMORY_LIMIT: '300' }))
      await Promise.all(workers)
      await addHealthy()
      await allEnded()
      const alone = await seconds()
      await bed.sql('delete from "svc_Tasks"')
      await bed.sql(
        `insert into "svc_Tasks" (type, max_retries, scheduled_time)
         select unnest($2::text[]), $3, ${schedule} from generate_series(1, $1::int, 400) n`,
        [healthy, Object.keys(bad), retries],
      )
      await addHealthy()
      await allEnded()
      const beside = await seconds()
      const rows = await bed.sql('select type, task_status, retry_count, error_data from "svc_Tasks"')
      for (const { type, ...row } of rows) {
        const { message, breaks } = bad[type] ?? {}
        expect(row).toMatchObject(
          message === undefined
            ? { task_status: 'Completed', retry_count: 0, error_data: null }
            : {
                task_status: 'Error',
                retry_count: breaks ? retries : 0,
                error_data: { message: expect.stringMatching(message) },
              },
        )
      }
      const broken = rounds * Object.values(bad).filter(({ breaks }) => breaks).length * (1 + retries)
      const lines = (await Promise.all(workers)).flatMap((worker) => worker.lines)
      expect(lines.filter(({ msg }) => msg === 'a process for tasks has ended').length).toBeLessThanOrEqual(broken)
      expect(lines.filter(({ msg }) => msg === 'stopping')).toEqual([])
      process.stdout.write(
        `${healthy} healthy tasks: ${alone.toFixed(1)} s alone, ${beside.toFixed(1)} s beside ` +
          `${rounds * Object.keys(bad).length} bad ones: ${((100 * alone) / beside).toFixed(0)} % of the throughput\n`,
      )
    },
    120_000 + healthy * 200,
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
