import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { type TestProcess, waitFor } from '../support/processes.ts'
import { type TaskBed, taskBed } from '../support/tasks.ts'

const handler = (type: string, body: string) =>
  `export default { type: '${type}', async handler(task, { db, ItemsService }) { ${body} } }`

/** Stops where a test can see it, until the test lets go on. */
const point = (name: string) => `
  await new ItemsService('point').createOne({ name: '${name}', attempt: task.retry_count })
  while ((await db.query('select from point where name = $1', ['go on'])).length === 0) await new Promise((r) => setTimeout(r, 20))`

const effect = `new ItemsService('effect').createOne({ task: task.id, attempt: task.retry_count })`

let bed: TaskBed
let outside: Awaited<ReturnType<typeof openOutside>>

beforeAll(async () => {
  bed = await taskBed({
    'svc-task-quick/index.js': handler('quick', `await task.finish(() => ${effect})`),
    'svc-task-slow/index.js': handler('slow', `${point('before')}; await task.finish(() => ${effect})`),
    'svc-task-asking/index.js': handler(
      'asking',
      `await new ItemsService('point').createOne({ name: 'asks', attempt: task.retry_count })
       if ((await db.query('select from point where name = $1', ['asks'])).length === 1) await db.query('select pg_sleep(100)')
       await task.finish(() => ${effect})`,
    ),
    'svc-task-plain/index.js': handler('plain', `${point('before')}; await ${effect}; return 'done'`),
    'svc-task-inside/index.js': handler(
      'inside',
      `await task.finish(async () => { await ${effect}; await fetch(task.data.reached); await fetch(task.data.goOn) })`,
    ),
    'svc-task-keyed/index.js': handler(
      'keyed',
      `if ((await db.query('select from effect where task = $1', [task.id])).length === 0) await ${effect}
       ${point('before')}`,
    ),
    'svc-task-outside/index.js': handler(
      'outside',
      `await fetch(task.data.url, { method: 'POST', headers: { 'idempotency-key': task.idempotencyKey } })
       if (task.data.stops) { ${point('called')} }
       await task.finish(() => ${effect})`,
    ),
    'svc-task-after/index.js': handler('after', `await task.finish(() => ${effect}); await new Promise(() => {})`),
    'svc-task-within/index.js': handler(
      'within',
      `await task.finish(async () => { await ${effect}; process.exit(1) })`,
    ),
    'schedules/svc-schedule-tick/index.js': `export default { id: 'tick', schedule: '* * * * * *', async handler({ db, ItemsService }) {
      await new ItemsService('point').createOne({ name: 'tick' })
    } }`,
    'schedules/svc-schedule-own/index.js': `export default (schedule, { tasksService, ItemsService }) =>
      schedule.scheduleJob('own', '* * * * * *', async () => {
        for (const { id, type } of await tasksService.getNotStartedTasks()) {
          if (type !== 'by schedule' || !(await tasksService.tryAcquireLock())) continue
          const task = await tasksService.claimTask(id)
          const [again, stats] = [await tasksService.claimTask(id), await tasksService.getCacheStats()]
          await tasksService.completeTask(id, { claimed: task.id, again, stats, locks: [
            await tasksService.acquireJobLock('x'), await tasksService.acquireJobLock('x'), await tasksService.releaseJobLock('x')] })
          await tasksService.releaseLock()
        }
      })`,
    'long/svc-schedule-long/index.js': `export default { id: 'long', schedule: '* * * * * *', async handler({ ItemsService }) {
      await new ItemsService('point').createOne({ name: 'long' })
      await new Promise(() => {})
    } }`,
  })
  const api = await startApi({}, { url: bed.url, name: '', drop: async () => undefined })
  const collection = (collectionName: string, fields: object) =>
    api.admin('POST', '/schemas', { collectionName, schema: { fields } })
  await collection('effect', { task: { type: 'Integer' }, attempt: { type: 'Integer' } })
  await collection('point', { name: { type: 'String' }, attempt: { type: 'Integer' } })
})

beforeAll(async () => {
  outside = await openOutside()
})

afterAll(() => outside.close())

/** A worker with nothing to do that the next test may go on with: a start costs more than most of what is done with it. */
let spare: TestProcess | undefined

afterEach(async () => {
  await bed.stopAll(spare)
  outside.reset()
  await empty()
})

async function anyWorker(): Promise<TestProcess> {
  const worker = spare ?? (await bed.start())
  spare = undefined
  return worker
}

/** One with variables of its own, the only one. */
async function onlyWorker(env: Record<string, string>): Promise<TestProcess> {
  await bed.stopAll()
  spare = undefined
  return bed.start(env)
}

async function empty(): Promise<void> {
  await bed.sql('delete from "svc_Tasks"')
  await bed.sql('delete from effect')
  await bed.sql('delete from point')
  await bed.sql('delete from "svc_Tenant"')
  await bed.sql(`delete from "svc_User" where email = 't@example.com'`)
}

const reached = (name: string, times = 1) =>
  waitFor(async () => (await bed.sql('select from point where name = $1', [name])).length >= times)
const goOn = () => bed.sql(`insert into point (name) values ('go on')`)
const becomes = (id: number, status: string) => waitFor(async () => (await bed.row(id)).task_status === status)
const claims = `select from "svc_AuditLog" where entity = 'svc_Tasks' and "entityId" = $1
  and changes->'before'->>'task_status' = 'Not started'`
const effects = () => bed.sql('select task, attempt from effect order by id')
const seemStalled = () =>
  bed.sql(`update "svc_Tasks" set heartbeat_at = now() - interval '1 hour', started_at = now() - interval '1 hour'`)

/** They end by themselves when their worker has; until then they could go on. */
const runnersGone = () =>
  waitFor(async () => (await sessions(`application_name like 'daybook task runner%'`)).length === 0)
const sessions = (where: string) =>
  bed.sql(`select pid from pg_stat_activity where datname = current_database() and ${where}`)

/** Lets the handler end and its worker wait with the record of that; gives what cuts the worker's connection. */
async function holdOutcome(id: number): Promise<() => Promise<void>> {
  const end = await bed.begin('select from "svc_Tasks" where id = $1 for share', [id])
  await goOn()
  const [waiting] = await waitFor(async () => {
    const found = await sessions(`wait_event_type = 'Lock' and query like '%Completed%'`)
    return found.length > 0 && found
  })
  return async () => {
    await bed.sql('select pg_terminate_backend($1, 5000)', [waiting.pid])
    await end()
  }
}

/** What a worker can be killed after, and how many attempts there are then. */
const killPoints: Record<string, { type: string; until: (id: number) => Promise<unknown>; attempts: number }> = {
  'the claim': { type: 'slow', until: () => reached('before'), attempts: 2 },
  'the effect in finish, before its commit': { type: 'inside', until: () => outside.asked('/reached'), attempts: 2 },
  'an effect of its own, before its outcome is recorded': {
    type: 'keyed',
    until: async (id) => {
      await reached('before')
      return holdOutcome(id)
    },
    attempts: 2,
  },
  'the outcome': { type: 'after', until: (id) => becomes(id, 'Completed'), attempts: 1 },
}

// Each starts a worker with two processes, the first one two.
describe('a worker that is killed after', () => {
  it.each(Object.keys(killPoints))('%s: the task ends, its effect happens once', async (name) => {
    const { type, until, attempts } = killPoints[name]!
    const killed = await anyWorker()
    const task_data = { reached: `${outside.address}/reached`, goOn: `${outside.address}/wait` }
    const id = await bed.add(type, { max_retries: 1, task_data })
    const cut = await until(id)
    await killed.kill('SIGKILL')
    if (typeof cut === 'function') await cut()
    await runnersGone()
    await goOn()
    outside.open()
    if (attempts > 1) await seemStalled()
    const successor = await bed.start()
    await becomes(id, 'Completed')
    expect((await effects()).map(({ task }) => task)).toEqual([id])
    expect(await bed.sql(claims, [String(id)])).toHaveLength(attempts)
    spare = successor
  })
})

describe('a call to another service', () => {
  it('whose answer was lost with its worker is repeated with the same key', async () => {
    const killed = await anyWorker()
    const task_data = { url: `${outside.address}/pay`, stops: true }
    const id = await bed.add('outside', { max_retries: 1, task_data })
    await reached('called')
    await killed.kill('SIGKILL')
    await runnersGone()
    await goOn()
    await seemStalled()
    const successor = await bed.start()
    await becomes(id, 'Completed')
    expect(new Set(outside.keys)).toEqual(new Set([expect.stringMatching(`^task-${id}-`)]))
    expect(outside.keys).toHaveLength(2)
    expect(await effects()).toEqual([{ task: id, attempt: 1 }])
    spare = successor
  })

  it('that died while it was called is an error, and has the same key when the task is run again', async () => {
    const worker = await anyWorker()
    const id = await bed.add('outside', { max_retries: 3, task_data: { url: `${outside.address}/die` } })
    await becomes(id, 'Error')
    expect(await bed.row(id)).toMatchObject({ retry_count: 0, error_data: { message: 'fetch failed' } })
    expect(outside.keys).toHaveLength(1)
    expect(await effects()).toEqual([])
    await bed.sql(`update "svc_Tasks" set task_status = 'Not started', task_data = $1`, [
      { url: `${outside.address}/pay` },
    ])
    await becomes(id, 'Completed')
    expect(outside.keys).toHaveLength(2)
    expect(new Set(outside.keys).size).toBe(1)
    spare = worker
  })
})

describe('a handler whose connection to the database is ended', () => {
  it('is called again, without a retry, and its effect happens once', async () => {
    const worker = await anyWorker()
    const id = await bed.add('asking', { max_retries: 0 })
    // A read is asked again on another connection, and fails where that one ends as well.
    await waitFor(async () => {
      await bed.sql(`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and state = 'active' and query like 'select pg_sleep(100)%'`)
      return (await bed.row(id)).task_status === 'Completed'
    })
    expect(await effects()).toEqual([{ task: id, attempt: 0 }])
    expect(await bed.row(id)).toMatchObject({ retry_count: 0, error_data: null })
    expect(await bed.sql(claims, [String(id)])).toHaveLength(2)
    spare = worker
  })
})

describe('an attempt that dies inside finish', () => {
  it('leaves no effect, and the task fails when its retries are used up', async () => {
    await anyWorker()
    const id = await bed.add('within', { max_retries: 1 })
    await becomes(id, 'Error')
    expect(await effects()).toEqual([])
    expect(await bed.row(id)).toMatchObject({
      retry_count: 1,
      error_data: { message: expect.stringContaining('exit code 1') },
    })
  })
})

describe('a task of a tenant', () => {
  const ends = [
    ['deleted', 'delete from "svc_Tenant"', 'lost'],
    ['left by its creator', 'delete from "svc_UserRole" where "tenant_Id" is not null', 'failed'],
  ] as const

  it('that is deleted, or left by its creator, while it runs writes nothing more', async () => {
    const worker = await onlyWorker({ MULTI_TENANT: 'true' })
    for (const [how, change, outcome] of ends) {
      const [{ tenant, user }] = await bed.sql(
        `with t as (insert into "svc_Tenant" (name) values ('T') returning id),
         u as (insert into "svc_User" (email, "firstName", "lastName") values ('t@example.com', 'T', 'U') returning id),
         r as (insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id")
               select u.id, r.id, t.id from t, u, "svc_Role" r where r.name = 'user')
         select t.id as tenant, u.id as user from t, u`,
      )
      const id = await bed.add('slow', { tenant_Id: tenant, userCreated_Id: user })
      await reached('before')
      await bed.sql(change)
      await goOn()
      await worker.waitForLine((line) => line.taskId === id && line.outcome === outcome)
      expect([how, await effects()]).toEqual([how, []])
      const refused = { task_status: 'Error', error_data: { message: expect.stringContaining('not in its tenant') } }
      expect(await bed.row(id)).toEqual(outcome === 'lost' ? undefined : expect.objectContaining(refused))
      await empty()
    }
  })
})

describe('a zombie', () => {
  it('of a slow and of a plain task writes nothing when it wakes', async () => {
    const zombie = await onlyWorker({ TASK_CONCURRENCY: '2' })
    const ids = [await bed.add('slow', { max_retries: 1 }), await bed.add('plain', { max_retries: 1 })]
    await reached('before', 2)
    await zombie.kill('SIGSTOP')
    await seemStalled()
    const healthy = await bed.start({ TASK_CONCURRENCY: '2' })
    await reached('before', 3)
    await goOn()
    for (const id of ids) await becomes(id, 'Completed')
    const rows = await Promise.all(ids.map((id) => bed.row(id)))
    await zombie.kill('SIGCONT')
    for (const id of ids) await zombie.waitForLine(({ outcome, taskId }) => taskId === id && outcome === 'lost')
    expect(await Promise.all(ids.map((id) => bed.row(id)))).toEqual(rows)
    expect((await effects()).toSorted((a, b) => a.task - b.task)).toEqual(ids.map((task) => ({ task, attempt: 1 })))
    expect(healthy.lines.some(({ outcome }) => outcome === 'completed' || outcome === 'settled')).toBe(true)
  })
})

describe('schedules', () => {
  it('run in one of two workers at each time, and may run tasks themselves', async () => {
    const id = await bed.add('by schedule')
    const env = { EXTENSIONS_DIR: join(bed.extensionsDir, 'schedules') }
    const workers = [await onlyWorker(env), await bed.start(env)]
    await reached('tick', 3)
    const ticks = await bed.sql(
      `select count(*)::int as ticks, count(distinct date_trunc('second', "createdAt"))::int as seconds from point where name = 'tick'`,
    )
    expect(ticks[0].ticks).toBeGreaterThanOrEqual(3)
    await becomes(id, 'Completed')
    expect((await bed.row(id)).result_data).toMatchObject({
      claimed: id,
      again: null,
      locks: [true, false, true],
      stats: { runningCount: 1, isAtCapacity: true, taskTimeWindow: '4 hours', concurrency: 1, distributedMode: false },
    })
    for (const worker of workers) expect(await worker.kill()).toEqual({ code: 0, signal: null })
    expect(await bed.sql('select name from "svc_TaskLock"')).toEqual([])
  })

  it('are held back for seconds by a worker that was killed while it ran one', async () => {
    const env = { EXTENSIONS_DIR: join(bed.extensionsDir, 'long') }
    const killed = await onlyWorker(env)
    await reached('long')
    await killed.kill('SIGKILL')
    const lock = `from "svc_TaskLock" where name = 'schedule long' and "expiresAt" <= now() + interval '30 s'`
    expect(await bed.sql(`select ${lock}`)).toHaveLength(1)
    await bed.sql(`delete ${lock}`)
    await bed.start(env)
    await reached('long', 2)
  })
})

/** A service that is no part of the platform. `/die` breaks the line, `/wait` answers when it is opened, others do at once. */
async function openOutside() {
  let keys: string[] = []
  let paths: string[] = []
  let gate = Promise.withResolvers<void>()
  const server = createServer(async ({ url = '', headers }, response) => {
    paths.push(url)
    const key = headers['idempotency-key']
    if (typeof key === 'string') keys.push(key)
    if (url === '/die') return void response.destroy()
    if (url === '/wait') await gate.promise
    response.end()
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  return {
    address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get keys() {
      return keys
    },
    asked: (path: string) => waitFor(() => paths.includes(path)),
    open: () => gate.resolve(),
    reset() {
      ;[keys, paths, gate] = [[], [], Promise.withResolvers()]
    },
    close: () => {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(resolve))
    },
  }
}
