import pino from 'pino'
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import {
  dropLock,
  registerSchedule,
  scheduleSlots,
  storeProgress,
  takeLock,
  takeSlot,
  touchTasks,
} from '../../src/db/unlogged/work.ts'
import { commit } from '../../src/events/commit.ts'
import {
  claimById,
  claimDue,
  comingTasks,
  holdClaim,
  nextDueMs,
  record,
  recoverTasks,
  tasksActor,
} from '../../src/features/work/tasks/tasks.ts'
import { openInstanceLock } from '../../src/workers/tasks/instance-lock.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'
import { withClient } from '../support/server.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

let api: Api

const wanted = (type: string) => ({ types: [type], isolatedTypes: [], isolatedAtMost: 9 })

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
})

beforeEach(() => api.sql('delete from "svc_Tasks"'))

async function create(task: object): Promise<number> {
  const { status, body } = await api.admin('POST', '/items/svc_Tasks', { type: 'x', ...task })
  expect(status).toBe(201)
  return body.data.id
}

const row = async (id: number) => (await api.sql('select * from "svc_Tasks" where id = $1', [id]))[0]
const at = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString()

describe('claims', () => {
  it('are refused with a negative number of retries', async () => {
    const position = await api.position()
    const made = await api.admin('POST', '/items/svc_Tasks', { type: 'none', max_retries: -1 })
    expect([made.status, made.body.error.message]).toEqual([400, 'max_retries must be 0 or more'])
    expect(await api.log(position)).toEqual([])
  })

  it('go to one of many, in the order of time, only for due tasks of known types', async () => {
    const [later, first] = [await create({ scheduled_time: at(-10) }), await create({ scheduled_time: at(-20) })]
    await create({ scheduled_time: at(60) })
    await create({ type: 'unknown', scheduled_time: at(-30) })
    await create({ status: 'archived', scheduled_time: at(-30) })
    expect(await nextDueMs(api.runtime.db, wanted('x'))).toBe(0)
    const claims = await Promise.all([1, 2, 3].map(() => claimDue(api.runtime, wanted('x'), 1)))
    expect(
      claims
        .flat()
        .map(({ id }) => id)
        .sort(),
    ).toEqual([later, first].sort())
    await api.sql(`update "svc_Tasks" set task_status = 'Not started' where type = 'x' and status <> 'archived'`)
    expect((await claimDue(api.runtime, wanted('x'), 5)).map(({ id }) => id)).toEqual([first, later])
    expect(await nextDueMs(api.runtime.db, wanted('x'))).toBeGreaterThan(30_000)
    expect(await nextDueMs(api.runtime.db, wanted('none'))).toBeUndefined()
  })

  it('are claimed in their order, of isolated ones no more than are asked for', async () => {
    const [first, isolated, second, later] = [
      await create({ scheduled_time: at(-50) }),
      await create({ type: 'y', scheduled_time: at(-40) }),
      await create({ type: 'y', scheduled_time: at(-30) }),
      await create({ scheduled_time: at(-20) }),
    ]
    const again = await create({ scheduled_time: at(-10) })
    await api.sql('update "svc_Tasks" set retry_count = 1 where id = $1', [again])
    const claim = async (isolatedAtMost: number) =>
      (await claimDue(api.runtime, { types: ['x', 'y'], isolatedTypes: ['y'], isolatedAtMost }, 3)).map(({ id }) => id)
    expect(await claim(1)).toEqual([first, isolated])
    expect(await claim(0)).toEqual([later])
    const left = { types: ['x', 'y'], isolatedTypes: ['y'] }
    expect(await nextDueMs(api.runtime.db, { ...left, isolatedAtMost: 0 })).toBeUndefined()
    expect(await nextDueMs(api.runtime.db, { ...left, isolatedAtMost: 1 })).toBe(0)
    expect(await claim(3)).toEqual([second, again])
  })

  it('list the coming four hours, the earliest first', async () => {
    const [b, a] = [await create({ scheduled_time: at(3.9 * 3600) }), await create({ type: 'y' })]
    await create({ scheduled_time: at(4.1 * 3600) })
    const tasks = await comingTasks(api.runtime.db)
    expect(tasks.map(({ id }) => id)).toEqual([a, b])
    expect(tasks[0]).not.toHaveProperty('attempt_token')
  })

  it('are what an outcome needs: of two attempts only the newer one can end the task', async () => {
    const id = await create({ max_retries: 1 })
    const old = (await claimById(api.runtime, id))!
    expect(await claimById(api.runtime, id)).toBeUndefined()
    expect(await touchTasks(api.runtime, [old])).toEqual(new Set([id]))
    await api.sql(`update "svc_Tasks" set heartbeat_at = now() - interval '301 s'`)
    await recoverTasks(api.runtime)
    expect(await row(id)).toMatchObject({
      task_status: 'Not started',
      retry_count: 1,
      started_at: null,
      error_data: { message: 'Task stalled: no sign of life for 300 s', stalled_at: expect.any(String) },
    })
    expect(await claimById(api.runtime, id)).toBeUndefined()
    await api.sql('update "svc_Tasks" set retry_at = now()')
    const now = (await claimById(api.runtime, id))!
    expect(now).toMatchObject({ retry_count: 1, idempotencyKey: old.idempotencyKey })
    expect(await touchTasks(api.runtime, [old, now])).toEqual(new Set([id]))
    const before = await row(id)
    for (const state of ['completed', 'failed', 'broken', 'given back'] as const)
      expect(await record(api.runtime, old, { state, result: '1', message: 'old' } as never)).toBe(false)
    expect(await storeProgress(api.runtime, old, { share: 1, message: null })).toBe(false)
    expect(await row(id)).toEqual(before)
    expect(await record(api.runtime, now, { state: 'completed', result: '{"a":1}' })).toBe(true)
    expect(await row(id)).toMatchObject({ task_status: 'Completed', result_data: { a: 1 }, error_data: null })
    expect(await record(api.runtime, now, { state: 'failed', message: 'twice' })).toBe(false)
  })

  it('lapse into Error when no retry is left, also without any sign of life', async () => {
    const id = await create({})
    await api.sql(`update "svc_Tasks" set task_status = 'Running'`)
    await recoverTasks(api.runtime)
    expect(await row(id)).toMatchObject({ task_status: 'Error', retry_count: 0, attempt_token: null })
  })

  it('are kept while the attempt writes, and are then not refreshed nor recovered', async () => {
    const id = await create({})
    const claim = (await claimById(api.runtime, id))!
    await api.sql(`update "svc_Tasks" set heartbeat_at = now() - interval '1 hour'`)
    const actor = { ...tasksActor, guard: async (tx: never) => void (await holdClaim(tx, claim)) }
    await commit(api.runtime, actor as never, async () => {
      await recoverTasks(api.runtime)
      expect(await touchTasks(api.runtime, [claim])).toEqual(new Set([id]))
      expect(await storeProgress(api.runtime, claim, { share: 0.5, message: null })).toBe(false)
      return { result: undefined }
    })
    expect(await row(id)).toMatchObject({ task_status: 'Running', progress: null })
  })

  it('tell when the creator has left the tenant', async () => {
    const [{ id: tenant }] = await api.sql(`insert into "svc_Tenant" (name) values ('T') returning id`)
    const { id: user, roleId } = await api.user()
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [user])
    const add = `insert into "svc_Tasks" (type, "tenant_Id", "userCreated_Id") values ('x', $1, $2) returning id`
    await api.sql(add, [tenant, user])
    expect(await claimDue(api.runtime, wanted('x'), 1)).toMatchObject([{ creatorLeft: true, tenant_Id: tenant }])
    await api.sql(`insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)`, [
      user,
      roleId,
      tenant,
    ])
    await api.sql(add, [tenant, user])
    expect(await claimDue(api.runtime, wanted('x'), 1)).toMatchObject([{ creatorLeft: false }])
    await api.sql('delete from "svc_Tenant" where id = $1', [tenant])
    expect(await api.sql('select from "svc_Tasks"')).toEqual([])
  })
})

describe('a status that is set by hand', () => {
  it('takes the task from its attempt, says since when it runs, and brings a failed one back', async () => {
    const id = await create({})
    const claim = (await claimById(api.runtime, id))!
    expect((await api.admin('PATCH', `/items/svc_Tasks/${id}`, { task_status: 'Error' })).status).toBe(200)
    expect(await row(id)).toMatchObject({ task_status: 'Error', started_at: null, attempt_token: null })
    expect(await record(api.runtime, claim, { state: 'completed', result: null })).toBe(false)
    expect((await api.admin('PATCH', `/items/svc_Tasks/${id}`, { task_status: 'Not started' })).status).toBe(200)
    expect((await claimDue(api.runtime, wanted('x'), 1)).map((task) => task.id)).toEqual([id])
    expect((await api.admin('PATCH', `/items/svc_Tasks/${id}`, { task_status: 'Running' })).status).toBe(200)
    expect(await row(id)).toMatchObject({ started_at: expect.any(Date), attempt_token: null })
    expect((await api.admin('PATCH', `/items/svc_Tasks/${id}`, { type: 'z' })).status).toBe(200)
    expect(await row(id)).toMatchObject({ task_status: 'Running', started_at: expect.any(Date) })
    const { body } = await api.admin('GET', `/items/svc_Tasks/${id}`)
    expect(body.data).not.toHaveProperty('attempt_token')
  })
})

describe('progress', () => {
  it('comes to sockets that have joined the task and may read it, and leaves no event', async () => {
    const address = await api.app.listen({ host: '127.0.0.1', port: 0 })
    const id = await create({})
    const other = await create({ type: 'other' })
    const claim = (await claimById(api.runtime, id))!
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const mayRead = await api.user([
      { collection: 'svc_Tasks', action: 'read', fields: ['id', 'progress'], conditions: { type: { eq: 'x' } } },
    ])
    const admin = await connect(address, token)
    const reader = await connect(address, mayRead.token)
    const stranger = await connect(address, (await api.user()).token)
    expect(await admin.emit('task:join', { taskId: id })).toMatchObject({
      status: 'success',
      task: { id, progress: null },
    })
    expect(await reader.emit('task:join', { taskId: id })).toMatchObject({ status: 'success' })
    for (const taskId of [other, 'x', null])
      expect(await reader.emit('task:join', { taskId })).toMatchObject({ status: 'error' })
    expect(await stranger.emit('task:join', { taskId: id })).toMatchObject({ status: 'error' })
    const before = await api.position()
    expect(await storeProgress(api.runtime, claim, { share: 0.25, message: 'a quarter' })).toBe(true)
    const told = (who: typeof admin, name: string) =>
      waitFor(() => who.notices.find((notice) => notice.name === name)?.body)
    expect(await told(admin, 'task:progress')).toMatchObject({ id, progress: 0.25, progress_message: 'a quarter' })
    expect(await told(reader, 'task:progress')).toEqual({ id, progress: 0.25, timestamp: expect.any(String) })
    expect(await api.position()).toBe(before)
    await api.sql(`update "svc_Tasks" set type = 'other' where id = $1`, [id])
    await storeProgress(api.runtime, claim, { share: 0.5, message: null })
    expect(await told(reader, 'task:left')).toEqual({ taskId: String(id) })
    expect(stranger.notices.filter(({ name }) => name.startsWith('task:'))).toEqual([])
  })

  it('is told in the order in which it is read, and again after the connection that hears of it was lost', async () => {
    const own = await startApi({ SOCKET_ENABLED: 'true' }, api.database)
    const address = await own.app.listen({ host: '127.0.0.1', port: 0 })
    const id = await create({})
    const claim = (await claimById(api.runtime, id))!
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const client = await connect(address, token)
    expect(await client.emit('task:join', { taskId: id })).toMatchObject({ status: 'success' })
    const told = () => client.notices.filter(({ name }) => name === 'task:progress').map(({ body }) => body.progress)
    const { db } = own.runtime
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const { promise: held, resolve: hold } = Promise.withResolvers<void>()
    const { runQuick } = db
    // The first answer is there, and handed out late.
    Object.assign(db, {
      runQuick: async (...statement: Parameters<typeof runQuick>) => {
        if (!statement[0].includes('svc_Tasks')) return runQuick(...statement)
        Object.assign(db, { runQuick })
        const rows = await runQuick(...statement)
        hold()
        await released
        return rows
      },
    })
    await storeProgress(api.runtime, claim, { share: 0.25, message: null })
    await held
    await storeProgress(api.runtime, claim, { share: 0.5, message: null })
    await storeProgress(api.runtime, claim, { share: 0.75, message: null })
    release()
    await waitFor(() => told().includes(0.75))
    expect(told()).toEqual([...told()].sort())
    await api.sql('update "svc_Tasks" set progress = 1 where id = $1', [id])
    // Past the connections that it ends, which the other one asks whether they have heard of it.
    await withClient(api.database.url, (other) =>
      other.query(`select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'daybook listen' and datname = current_database()`),
    )
    await waitFor(() => told().at(-1) === 1)
    expect(client.notices.filter(({ name }) => name === 'task:left')).toEqual([])
    await waitFor(() => own.runtime.listener.isLive() && api.runtime.listener.isLive())
  })
})

describe('schedules and locks', () => {
  it('give each time to one of many', async () => {
    const past = new Date(Date.now() - 1000)
    await registerSchedule(api.runtime, 's', '* * * * *', past)
    await registerSchedule(api.runtime, 's', '* * * * *', new Date())
    const [slot] = await scheduleSlots(api.runtime, ['s'])
    expect(slot!.nextAt).toEqual(past)
    const next = new Date(Date.now() + 60_000)
    const taken = await Promise.all([1, 2, 3].map(() => takeSlot(api.runtime, slot!, next)))
    expect(taken.filter(Boolean)).toHaveLength(1)
    await registerSchedule(api.runtime, 's', '1 * * * *', past)
    expect((await scheduleSlots(api.runtime, ['s']))[0]!.nextAt).toEqual(past)
  })

  it('belong to one holder until it lets go or its time is over', async () => {
    expect(await takeLock(api.runtime, 'l', 'a', 60)).toBe(true)
    expect(await takeLock(api.runtime, 'l', 'b', 60)).toBe(false)
    expect(await takeLock(api.runtime, 'l', 'a', 0)).toBe(true)
    expect(await takeLock(api.runtime, 'l', 'b', 60)).toBe(true)
    expect(await dropLock(api.runtime, 'l', 'a')).toBe(false)
    expect(await dropLock(api.runtime, 'l', 'b')).toBe(true)
  })
})

describeWithRedis('TASK_REDIS_ENABLED', () => {
  it('lets one process run tasks at a time, and everybody while Redis is away', async () => {
    const redis = await startRedis()
    const config = testConfig(api.database.url, { TASK_REDIS_ENABLED: 'true', TASK_REDIS_URL: redis.url })
    const runtime = { ...api.runtime, config, log: pino({ level: 'silent' }) }
    const [a, b] = [openInstanceLock(runtime, 'a'), openInstanceLock(runtime, 'b')]
    onTestFinished(async () => {
      await Promise.all([a.release(), b.release()])
    })
    expect([await a.mayRun(), await b.mayRun(), a.isHeld(), b.isHeld()]).toEqual([true, false, true, false])
    await a.release()
    expect(await b.mayRun()).toBe(true)
    await redis.stop()
    const c = openInstanceLock(runtime, 'c')
    onTestFinished(c.release)
    expect([await c.mayRun(), c.isHeld()]).toEqual([true, false])
  })
})
