import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { waitFor } from '../support/processes.ts'
import { type TaskBed, taskBed } from '../support/tasks.ts'

const handler = (type: string, body: string) =>
  `export default { type: '${type}', async handler(task, { db, ItemsService }) { ${body} } }`

/** Stops where a test can see it, until the test lets go on. */
const point = (name: string) => `
  await new ItemsService('point').createOne({ name: '${name}', attempt: task.retry_count })
  while ((await db.query('select from point where name = $1', ['go on'])).length === 0) await new Promise((r) => setTimeout(r, 20))`

const effect = `new ItemsService('effect').createOne({ task: task.id, attempt: task.retry_count })`

let bed: TaskBed

beforeAll(async () => {
  bed = await taskBed({
    'svc-task-quick/index.js': handler('quick', `await task.finish(() => ${effect})`),
    'svc-task-slow/index.js': handler('slow', `${point('before')}; await task.finish(() => ${effect})`),
    'svc-task-plain/index.js': handler('plain', `${point('before')}; await ${effect}; return 'done'`),
    'svc-task-after/index.js': handler('after', `await task.finish(() => ${effect}); await new Promise(() => {})`),
    'svc-task-within/index.js': handler(
      'within',
      `await task.finish(async () => { await ${effect}; process.exit(1) })`,
    ),
    'svc-schedule-tick/index.js': `export default { id: 'tick', schedule: '* * * * * *', async handler({ db, ItemsService }) {
      await new ItemsService('point').createOne({ name: 'tick' })
    } }`,
    'svc-schedule-own/index.js': `export default (schedule, { tasksService, ItemsService }) =>
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
  })
  const api = await startApi({}, { url: bed.url, name: '', drop: async () => undefined })
  const collection = (collectionName: string, fields: object) =>
    api.admin('POST', '/schemas', { collectionName, schema: { fields } })
  await collection('effect', { task: { type: 'Integer' }, attempt: { type: 'Integer' } })
  await collection('point', { name: { type: 'String' }, attempt: { type: 'Integer' } })
})

afterEach(async () => {
  await bed.stopAll()
  await bed.sql('delete from "svc_Tasks"')
  await bed.sql('delete from effect')
  await bed.sql('delete from point')
})

const reached = (name: string, times = 1) =>
  waitFor(async () => (await bed.sql('select from point where name = $1', [name])).length >= times, { timeout: 30_000 })
const goOn = () => bed.sql(`insert into point (name) values ('go on')`)
const becomes = (id: number, status: string) =>
  waitFor(async () => (await bed.row(id)).task_status === status, { timeout: 30_000 })
const effects = () => bed.sql('select task, attempt from effect order by id')
const seemStalled = () =>
  bed.sql(`update "svc_Tasks" set heartbeat_at = now() - interval '1 hour', started_at = now() - interval '1 hour'`)

describe('a worker that is killed', () => {
  it.each(['slow', 'after'])('in a task of type %s: its effects happen once', async (type) => {
    const killed = await bed.start()
    const id = await bed.add(type, { max_retries: 1 })
    if (type === 'slow') await reached('before')
    else await becomes(id, 'Completed')
    await killed.kill('SIGKILL')
    await goOn()
    if (type === 'slow') await seemStalled()
    await bed.start()
    await becomes(id, 'Completed')
    expect(await effects()).toEqual([{ task: id, attempt: type === 'slow' ? 1 : 0 }])
  })
})

describe('an attempt that dies inside finish', () => {
  it('leaves no effect, and the task fails when its retries are used up', async () => {
    await bed.start()
    const id = await bed.add('within', { max_retries: 1 })
    await becomes(id, 'Error')
    expect(await effects()).toEqual([])
    expect(await bed.row(id)).toMatchObject({
      retry_count: 1,
      error_data: { message: expect.stringContaining('exit code 1') },
    })
  })
})

describe('a zombie', () => {
  it.each(['slow', 'plain'])('of a %s task writes nothing when it wakes', async (type) => {
    const zombie = await bed.start()
    const id = await bed.add(type, { max_retries: 1 })
    await reached('before')
    await zombie.kill('SIGSTOP')
    await seemStalled()
    const healthy = await bed.start()
    await reached('before', 2)
    await goOn()
    await becomes(id, 'Completed')
    const row = await bed.row(id)
    await zombie.kill('SIGCONT')
    await zombie.waitForLine(({ outcome, taskId }) => taskId === id && outcome === 'lost')
    expect(await bed.row(id)).toEqual(row)
    expect(await effects()).toEqual([{ task: id, attempt: 1 }])
    expect(healthy.lines.some(({ outcome }) => outcome === 'completed' || outcome === 'settled')).toBe(true)
  })
})

describe('schedules', () => {
  it('run in one of two workers at each time, and may run tasks themselves', async () => {
    const id = await bed.add('by schedule')
    const workers = [await bed.start(), await bed.start()]
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
})
