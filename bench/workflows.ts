import { setTimeout as delay } from 'node:timers/promises'
import pino from 'pino'
import { parseConfig } from '../src/config/config.ts'
import { rawQuery } from '../src/db/sql.ts'
import { systemActor } from '../src/events/actor.ts'
import { commit } from '../src/events/commit.ts'
import { insertExecutions } from '../src/features/work/workflows/workflows.ts'
import { openRuntime, type Runtime } from '../src/process/runtime.ts'
import { openWorkflows } from '../src/workers/workflows.ts'
import type { Prepared } from './daybook.ts'
import type { Figure } from './figures.ts'
import { meterOf } from './meter.ts'
import { type Contest, median, quantile } from './rounds.ts'
import { createIn } from './writes.ts'

type Sizes = {
  readonly executions: number
  readonly perCommit: number
  readonly waiting: number
  /** Executions that one of them starts. */
  readonly fanOut: number
  /** Creates of each round, and rounds. */
  readonly creates: number
  readonly rounds: number
}

const whole: Sizes = { executions: 10_000, perCommit: 100, waiting: 10_000, fanOut: 10_000, creates: 300, rounds: 5 }
const quick: Sizes = { ...whole, executions: 1000, waiting: 1000, fanOut: 500, creates: 50, rounds: 2 }

/**
 * W16: executions of a small workflow (trigger, condition, create) from the commit that queues them to the one that completes
 * them, in one worker; what a worker takes of the processor while executions only wait; and what workflows before a change
 * add to it.
 *
 * @throws {Error} when one did not complete, or its row is not there once
 */
export async function measureWorkflows(
  contest: Contest,
  { env }: Prepared,
  isQuick: boolean,
): Promise<readonly Figure[]> {
  const sizes = isQuick ? quick : whole
  const log = pino({ level: 'warn' }, pino.destination(2))
  const runtime = await openRuntime({ config: parseConfig(env), log, name: 'workflows', worker: true })
  try {
    const userId = await prepare(runtime)
    const worker = await openWorkflows(runtime)
    const database = meterOf(contest.databasePid, 'with its children')
    await run(runtime, userId, database, { ...sizes, executions: sizes.executions / 10 })
    const small = await run(runtime, userId, database, sizes)
    const idle = await measureIdle(runtime, userId, 0)
    const waiting = await measureIdle(runtime, userId, sizes.waiting)
    const fanOut = await measureFanOut(runtime, userId, sizes)
    await worker.stop(10_000)
    return [
      figure('executions of a small workflow, queued to completed', 'executions/s', small.perSecond),
      figure('an execution of a small workflow, worker', 'CPU µs', small.own),
      figure('an execution of a small workflow, PostgreSQL', 'CPU µs', small.database),
      figure('processor time of a worker without executions', 'ms/s', idle),
      figure(`processor time of a worker while ${sizes.waiting} executions wait`, 'ms/s', waiting),
      figure(`executions that one execution starts (${sizes.fanOut}), begun to completed`, 'executions/s', fanOut),
      ...(await measureBefore(runtime, contest, sizes)),
    ]
  } finally {
    await runtime.close()
  }
}

const figure = (title: string, unit: string, daybook: number): Figure => ({ id: 'W16', title, unit, daybook })

const small = {
  nodes: [
    { id: 'start', type: 'trigger', data: {} },
    { id: 'if', type: 'condition', data: { conditions: [{ field: 'trigger.n', operator: '>=', value: 0 }] } },
    {
      id: 'make',
      type: 'service',
      data: { operation: 'create', collection: 'svc_Page', data: { name: 'bench', slug: 'bench-{{trigger.key}}' } },
    },
  ],
  edges: [
    { id: '1', source: 'start', target: 'if' },
    { id: '2', source: 'if', target: 'make', sourceHandle: 'true' },
  ],
}
const waiting = {
  nodes: [small.nodes[0], { id: 'wait', type: 'delay', data: { delay: 86_400_000 } }],
  edges: [{ id: '1', source: 'start', target: 'wait' }],
}

const leaf = {
  nodes: [small.nodes[0], { id: 'v', type: 'variable', data: { variables: { n: '{{trigger.n}}' } } }],
  edges: [{ id: '1', source: 'start', target: 'v' }],
}
const fanning = {
  nodes: [
    small.nodes[0],
    { id: 'each', type: 'loop', data: { loopType: 'count', endIndex: '{{trigger.count}}', maxIterations: 10_000 } },
    {
      id: 'call',
      type: 'workflow',
      data: { workflowId: 'bench-leaf', dataMapping: { n: 'loop.index' }, waitForCompletion: false },
    },
  ],
  edges: [
    { id: '1', source: 'start', target: 'each' },
    { id: '2', source: 'each', target: 'call', sourceHandle: 'loop' },
  ],
}

/** Two nodes that decide about each row and complete it. */
const completing = {
  nodes: [
    small.nodes[0],
    { id: 'if', type: 'condition', data: { conditions: [{ field: 'trigger.data.stock', operator: '>=', value: 0 }] } },
    {
      id: 'fill',
      type: 'transform',
      data: { transformType: 'mapping', mapping: { data: 'trigger.data', 'data.stock': '7' } },
    },
  ],
  edges: [small.edges[0], { id: '2', source: 'if', target: 'fill', sourceHandle: 'true' }],
}
const scripted = {
  nodes: [
    small.nodes[0],
    {
      id: 'fill',
      type: 'script',
      data: { script: 'return { data: { ...trigger.data, stock: trigger.data.stock + 1 } }' },
    },
  ],
  edges: [{ id: '1', source: 'start', target: 'fill' }],
}

async function prepare(runtime: Runtime): Promise<string> {
  return commit(runtime, systemActor, async (tx) => {
    const { id } = await tx.one<{ id: string }>(
      rawQuery(`select u.id from "svc_User" u join "svc_UserRole" ur on ur."user_Id" = u.id join "svc_Role" r on r.id = ur."role_Id"
        where r.name = 'administrator' and u.status = 'active' order by u."createdAt" limit 1`),
    )
    const before = { type: 'hook', collection: 'article', action: 'items.create', status: 'inactive' }
    const manual = { type: 'manual', collection: null, action: null, status: 'active' }
    for (const [name, flow, trigger] of [
      ['bench-small', small, manual],
      ['bench-waiting', waiting, manual],
      ['bench-leaf', leaf, manual],
      ['bench-fanning', fanning, manual],
      ['bench-completing', completing, before],
      ['bench-scripted', scripted, before],
    ] as const)
      await tx.any(
        rawQuery(
          `insert into "svc_Workflow" (id, name, status, flow_data, trigger_type, trigger_hook_collection, trigger_hook_action, "authority_Id")
           values ($1::text, $1::text, $2, $3::jsonb, $4, $5, $6, $7::uuid) on conflict (id) do nothing`,
          [name, trigger.status, JSON.stringify(flow), trigger.type, trigger.collection, trigger.action, id],
        ),
      )
    return { result: id }
  })
}

async function queue(
  runtime: Runtime,
  userId: string,
  workflow_Id: string,
  count: number,
  perCommit: number,
): Promise<void> {
  const who = { triggered_by_Id: userId, caller_Id: userId, tenant_Id: null }
  for (let done = 0; done < count; done += perCommit)
    await commit(runtime, systemActor, async (tx) => {
      const executions = Array.from({ length: perCommit }, (_, i) => {
        const id = runtime.newId()
        const start = { id, workflow_Id, version: 1, trigger: 'manual', cause: null } as const
        return { ...start, trigger_data: { n: done + i, key: id }, ...who }
      })
      return { result: await insertExecutions(tx, executions) }
    })
}

type Ran = { readonly perSecond: number; readonly own: number; readonly database: number }

async function run(
  runtime: Runtime,
  userId: string,
  database: () => number | undefined,
  { executions, perCommit }: Sizes,
): Promise<Ran> {
  const began = performance.now()
  const own = process.cpuUsage()
  const ofDatabase = database() ?? 0
  await queue(runtime, userId, 'bench-small', executions, perCommit)
  await untilNone(runtime, `"workflow_Id" = 'bench-small' and status in ('queued', 'running')`)
  const seconds = (performance.now() - began) / 1000
  const { user, system } = process.cpuUsage(own)
  const spent = ((database() ?? 0) - ofDatabase) * 1e6
  const { completed, made } = await runtime.db.one<{ completed: number; made: number }>(
    rawQuery(`select (select count(*)::int from "svc_WorkflowExecution" where "workflow_Id" = 'bench-small' and status = 'completed') as completed,
      (select count(*)::int from "svc_Page" where name = 'bench') as made`),
  )
  if (completed !== executions || made !== executions)
    throw new Error(`${completed} of ${executions} completed, ${made} rows`)
  await forget(runtime)
  return { perSecond: executions / seconds, own: (user + system) / executions, database: spent / executions }
}

const idleMs = 5000

/** Milliseconds of the processor in a second, of this process, with nothing else to do. */
async function measureIdle(runtime: Runtime, userId: string, count: number): Promise<number> {
  await queue(runtime, userId, 'bench-waiting', count, 100)
  await untilNone(runtime, `"workflow_Id" = 'bench-waiting' and (status = 'queued' or claim_token is not null)`)
  const before = process.cpuUsage()
  await delay(idleMs)
  const { user, system } = process.cpuUsage(before)
  await forget(runtime)
  return (user + system) / 1000 / (idleMs / 1000)
}

async function measureFanOut(runtime: Runtime, userId: string, { fanOut }: Sizes): Promise<number> {
  const began = performance.now()
  const start = {
    id: runtime.newId(),
    workflow_Id: 'bench-fanning',
    version: 1,
    trigger: 'manual',
    cause: null,
  } as const
  const who = { triggered_by_Id: userId, caller_Id: userId, tenant_Id: null }
  await commit(runtime, systemActor, async (tx) => ({
    result: await insertExecutions(tx, [{ ...start, ...who, trigger_data: { count: fanOut } }]),
  }))
  await untilNone(runtime, `"workflow_Id" = 'bench-fanning' and status in ('queued', 'running')`)
  await untilNone(runtime, `"workflow_Id" = 'bench-leaf' and status in ('queued', 'running')`)
  const seconds = (performance.now() - began) / 1000
  const { completed } = await runtime.db.one<{ completed: number }>(
    rawQuery(
      `select count(*)::int as completed from "svc_WorkflowExecution" where "workflow_Id" = 'bench-leaf' and status = 'completed'`,
    ),
  )
  if (completed !== fanOut) throw new Error(`${completed} of ${fanOut} completed`)
  await forget(runtime)
  return fanOut / seconds
}

/** The cost that workflows add to a create over HTTP, one at a time: rounds with and without them take turns. */
async function measureBefore(runtime: Runtime, contest: Contest, sizes: Sizes): Promise<readonly Figure[]> {
  const without: number[][] = []
  const completing: number[][] = []
  const scripted: number[][] = []
  for (let round = 0; round <= sizes.rounds; round += 1) {
    const took = [
      await timesOf(contest, sizes.creates),
      await hooked(runtime, 'bench-completing', () => timesOf(contest, sizes.creates)),
      await hooked(runtime, 'bench-scripted', () => timesOf(contest, sizes.creates)),
    ] as const
    // In the first one V8 compiles, and the process of the scripts is started.
    if (round > 0) for (const [i, all] of [without, completing, scripted].entries()) all.push(took[i]!)
  }
  const middle = (rounds: number[][], at: number) =>
    median(rounds.map((took) => quantile(Float64Array.from(took).sort(), at)))
  const plain = middle(without, 0.5)
  return [
    figure('a create, p50', 'ms', plain),
    figure('a workflow of two nodes before a create, adds at p50', 'ms', middle(completing, 0.5) - plain),
    figure('a workflow of one script before a create, adds at p50', 'ms', middle(scripted, 0.5) - plain),
    figure('a create with a script before it, p95', 'ms', middle(scripted, 0.95)),
    figure('a create, p95', 'ms', middle(without, 0.95)),
  ]
}

/** Milliseconds of creates, one after the other. */
async function timesOf({ servers, accounts }: Contest, count: number): Promise<number[]> {
  const { request, status } = createIn('article')
  const took: number[] = []
  for (let n = 0; n < count; n += 1) {
    const { path, body } = request({ n, as: accounts.admin, role: 'admin', kind: 'daybook' })
    const began = performance.now()
    const answer = await fetch(`${servers.daybook!.url}${path}`, {
      ...{ method: 'POST', body: body! },
      headers: { authorization: `Bearer ${accounts.admin.token}`, 'content-type': 'application/json' },
    })
    const text = await answer.text()
    took.push(performance.now() - began)
    if (answer.status !== status) throw new Error(`${answer.status} ${text}`)
  }
  return took
}

/** How long other processes may take to hear of a workflow that was changed. */
const heardMs = 500

async function hooked<Result>(runtime: Runtime, id: string, work: () => Promise<Result>): Promise<Result> {
  const set = (status: string) =>
    commit(runtime, systemActor, async (tx) => {
      await tx.any(rawQuery('update "svc_Workflow" set status = $1 where id = $2', [status, id]))
      return { result: null }
    })
  await set('active')
  await delay(heardMs)
  try {
    return await work()
  } finally {
    await set('inactive')
    await delay(heardMs)
  }
}

/** Until there is no such execution. */
async function untilNone(runtime: Runtime, where: string): Promise<void> {
  for (;;) {
    const { is } = await runtime.db.one<{ is: boolean }>(
      rawQuery(`select exists (select from "svc_WorkflowExecution" where ${where}) as is`),
    )
    if (!is) return
    await delay(20)
  }
}

async function forget(runtime: Runtime): Promise<void> {
  await commit(runtime, systemActor, async (tx) => {
    await tx.any(rawQuery(`delete from "svc_WorkflowExecution" where "workflow_Id" like 'bench-%'`))
    await tx.any(rawQuery(`delete from "svc_Page" where name = 'bench'`))
    return { result: null }
  })
}
