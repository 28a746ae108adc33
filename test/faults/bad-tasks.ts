import { type TaskBed, taskBed } from '../support/tasks.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'

/** What a bad handler does, why its task fails, and whether its process has to be replaced. */
type Bad = { readonly body: string; readonly message: RegExp; readonly breaks: boolean }

const badTasks: Readonly<Record<string, Bad>> = {
  poison: { body: `throw new Error('the poison')`, message: /^the poison$/, breaks: false },
  odd: { body: 'const a = {}; a.a = a; throw a', message: /object Object/, breaks: false },
  // Half a second of a busy machine may be too short even for this.
  crash: { body: 'process.exit(1)', message: /exit code 1|longer/, breaks: true },
  endless: { body: 'for (;;) {}', message: /longer than 0.5 s/, breaks: true },
  never: { body: 'await new Promise(() => {})', message: /longer than 0.5 s/, breaks: true },
  memory: {
    body: 'const kept = []; for (;;) kept.push(Buffer.alloc(16 << 20, 1))',
    message: /signal|longer/,
    breaks: true,
  },
}

const retries = 1
const workerEnv = { TASK_CONCURRENCY: '4', TASK_MEMORY_LIMIT: '300' }
/** One of each kind for so many healthy tasks. */
const healthyPerRound = 400
/** What else the machine does changes: alone and beside take turns. */
const turns = 3

/**
 * F-05: healthy tasks of 50 ms, alone and with bad ones among them in turn, done by two workers with four places each.
 * Every task ends as it should, no worker dies, and the figures compare how many healthy ones were done in a second.
 */
export async function runF05(_seed: number, { healthy }: { readonly healthy: number }): Promise<Result> {
  const bed = await taskBed({
    'svc-task-healthy/index.js': `export default { type: 'healthy', handler: () => new Promise((r) => setTimeout(r, 50)) }`,
    ...Object.fromEntries(
      Object.entries(badTasks).map(([type, { body }]) => [
        `svc-task-${type}/index.js`,
        `export default { type: '${type}', timeoutSeconds: 0.5, async handler() { ${body} } }`,
      ]),
    ),
  })
  const workers = await Promise.all([1, 2].map(() => bed.start(workerEnv)))
  const rounds = Math.max(1, Math.round(healthy / healthyPerRound))
  // So that all processes have started before anything is measured.
  await perSecond(bed, healthyPerRound, 0)
  const faults: string[] = []
  const measured: { alone: number; beside: number }[] = []
  for (let turn = 0; turn < turns; turn += 1) {
    const alone = await perSecond(bed, healthy, 0)
    const beside = await perSecond(bed, healthy, rounds)
    measured.push({ alone, beside })
    faults.push(...(await wrongEnds(bed)))
  }
  const lines = workers.flatMap((worker) => worker.lines)
  if (lines.some(({ msg }) => msg === 'stopping')) faults.push('a worker has ended')
  await bed.stopAll()
  const [first, ...later] = measured.map(({ alone, beside }) => Math.round((100 * beside) / alone))
  return {
    faults,
    figures: {
      healthy: 2 * turns * healthy,
      bad: turns * rounds * Object.keys(badTasks).length,
      'processes ended': lines.filter(({ msg }) => msg === 'a process for tasks has ended').length,
      'alone, tasks/s': Math.round(measured.reduce((sum, { alone }) => sum + alone, 0) / turns),
      'beside, tasks/s': Math.round(measured.reduce((sum, { beside }) => sum + beside, 0) / turns),
      'first turn, %': first!,
      'later turns, %': Math.round(later.reduce((sum, one) => sum + one, 0) / later.length),
    },
  }
}

/** Healthy tasks that were done in a second, from the first claim to the last end, with rounds of bad ones among them. */
async function perSecond({ sql }: TaskBed, healthy: number, rounds: number): Promise<number> {
  await sql('delete from "svc_Tasks"')
  await sql(
    `insert into "svc_Tasks" (type, max_retries, scheduled_time)
     select type, $3, now() - make_interval(secs => $1 - place) from (
       select 'healthy' as type, n::float8 as place from generate_series(1, $1::int) n union all
       select unnest($4::text[]), (n - 0.5) * $1 / greatest($2, 1) from generate_series(1, $2::int) n) all_of_them`,
    [healthy, rounds, retries, Object.keys(badTasks)],
  )
  const open = `select from "svc_Tasks" where task_status in ('Not started', 'Running') limit 1`
  await waitFor(async () => (await sql(open)).length === 0, { timeout: 120_000 + healthy * 100, what: 'all tasks' })
  const [{ seconds }] = await sql(
    `select extract(epoch from max(l."createdAt") - min(l."createdAt"))::float8 as seconds
     from "svc_AuditLog" l join "svc_Tasks" t on t.id::text = l."entityId"
     where l.entity = 'svc_Tasks' and l.action = 'update' and t.type = 'healthy'`,
  )
  return healthy / seconds
}

async function wrongEnds({ sql }: TaskBed): Promise<string[]> {
  const rows = await sql('select id, type, task_status, retry_count, error_data from "svc_Tasks"')
  return rows.flatMap(({ id, type, task_status, retry_count, error_data }) => {
    const bad = badTasks[type]
    const isRight =
      bad === undefined
        ? task_status === 'Completed' && retry_count === 0
        : task_status === 'Error' && retry_count === (bad.breaks ? retries : 0) && bad.message.test(error_data?.message)
    return isRight
      ? []
      : [
          `task ${id} of type ${type} ended as ${task_status} after ${retry_count} retries: ${JSON.stringify(error_data)}`,
        ]
  })
}
