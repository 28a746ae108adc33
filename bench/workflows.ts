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

const whole = { executions: 10_000, perCommit: 100, waiting: 10_000 }
const quick = { executions: 1000, perCommit: 100, waiting: 1000 }

/**
 * W16: executions of a small workflow (trigger, condition, create) from the commit that queues them to the one that completes
 * them, in one worker; and what a worker takes of the processor while executions only wait.
 *
 * @throws {Error} when one did not complete, or its row is not there once
 */
export async function measureWorkflows({ env }: Prepared, isQuick: boolean): Promise<readonly Figure[]> {
  const sizes = isQuick ? quick : whole
  const log = pino({ level: 'warn' }, pino.destination(2))
  const rt = await openRuntime({ config: parseConfig(env), log, name: 'bench workflows', worker: true })
  try {
    const userId = await prepare(rt)
    const worker = await openWorkflows(rt)
    await run(rt, userId, { ...sizes, executions: sizes.executions / 10 })
    const perSecond = await run(rt, userId, sizes)
    const idle = await measureIdle(rt, userId, sizes.waiting)
    await worker.stop(10_000)
    return [
      {
        id: 'W16',
        title: 'executions of a small workflow, queued to completed',
        unit: 'executions/s',
        daybook: perSecond,
      },
      { id: 'W16', title: 'processor time of a worker while executions wait', unit: 'ms/s', daybook: idle },
    ]
  } finally {
    await rt.close()
  }
}

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

async function prepare(rt: Runtime): Promise<string> {
  return commit(rt, systemActor, async (tx) => {
    const { id } = await tx.one<{ id: string }>(
      rawQuery(`select u.id from "svc_User" u join "svc_UserRole" ur on ur."user_Id" = u.id join "svc_Role" r on r.id = ur."role_Id"
        where r.name = 'administrator' and u.status = 'active' order by u."createdAt" limit 1`),
    )
    for (const [name, flow] of Object.entries({ 'bench-small': small, 'bench-waiting': waiting }))
      await tx.any(
        rawQuery(
          `insert into "svc_Workflow" (id, name, status, flow_data, "authority_Id") values ($1::text, $1::text, 'active', $2::jsonb, $3::uuid)
           on conflict (id) do nothing`,
          [name, JSON.stringify(flow), id],
        ),
      )
    return { result: id }
  })
}

async function queue(
  rt: Runtime,
  userId: string,
  workflow_Id: string,
  count: number,
  perCommit: number,
): Promise<void> {
  for (let done = 0; done < count; done += perCommit)
    await commit(rt, systemActor, async (tx) => {
      const executions = Array.from({ length: perCommit }, (_, i) => {
        const id = rt.newId()
        const who = { triggered_by_Id: userId, caller_Id: userId, tenant_Id: null }
        return {
          id,
          workflow_Id,
          version: 1,
          trigger: 'manual' as const,
          trigger_data: { n: done + i, key: id },
          cause: null,
          ...who,
        }
      })
      return { result: await insertExecutions(tx, executions) }
    })
}

async function run(rt: Runtime, userId: string, { executions, perCommit }: typeof whole): Promise<number> {
  const began = performance.now()
  await queue(rt, userId, 'bench-small', executions, perCommit)
  await until(rt, `"workflow_Id" = 'bench-small' and status in ('queued', 'running')`, 0)
  const seconds = (performance.now() - began) / 1000
  const { completed, made } = await rt.db.one<{ completed: number; made: number }>(
    rawQuery(`select (select count(*)::int from "svc_WorkflowExecution" where "workflow_Id" = 'bench-small' and status = 'completed') as completed,
      (select count(*)::int from "svc_Page" where name = 'bench') as made`),
  )
  if (completed !== executions || made !== executions)
    throw new Error(`${completed} of ${executions} completed, ${made} rows`)
  await forget(rt)
  return executions / seconds
}

const idleMs = 5000

/** Milliseconds of the processor in a second, of this process, with nothing else to do. */
async function measureIdle(rt: Runtime, userId: string, count: number): Promise<number> {
  await queue(rt, userId, 'bench-waiting', count, 100)
  await until(rt, `"workflow_Id" = 'bench-waiting' and (status = 'queued' or claim_token is not null)`, 0)
  const before = process.cpuUsage()
  await delay(idleMs)
  const { user, system } = process.cpuUsage(before)
  await forget(rt)
  return (user + system) / 1000 / (idleMs / 1000)
}

async function until(rt: Runtime, where: string, wanted: number): Promise<void> {
  for (;;) {
    const { n } = await rt.db.one<{ n: number }>(
      rawQuery(`select count(*)::int as n from (select 1 from "svc_WorkflowExecution" where ${where} limit 10000) w`),
    )
    if (n === wanted) return
    await delay(20)
  }
}

async function forget(rt: Runtime): Promise<void> {
  await commit(rt, systemActor, async (tx) => {
    await tx.any(rawQuery(`delete from "svc_WorkflowExecution" where "workflow_Id" like 'bench-%'`))
    await tx.any(rawQuery(`delete from "svc_Page" where name = 'bench'`))
    return { result: null }
  })
}
