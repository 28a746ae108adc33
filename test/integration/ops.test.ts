import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { sweepMails } from '../../src/features/messaging/mail/jobs.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { type Api, startApi } from '../support/api.ts'
import { sendMail } from '../support/mails.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'

const nobody = '00000000-0000-4000-8000-000000000000'
let api: Api
let smtp: SmtpDouble
let run: QueueRun | undefined

beforeAll(async () => {
  smtp = await startSmtp()
  api = await startApi({ ...smtp.env, AUTH_APP_URL: 'https://app.example' })
})
beforeEach(async () => {
  await (await api.runtime.boss()).updateQueue('mail', { retryLimit: 1, retryDelay: 0, retryBackoff: false })
})
afterEach(async () => {
  await run?.stop(10_000)
  run = undefined
  smtp.forget()
  await api.sql('delete from pgboss.job')
  await api.sql('delete from "svc_EmailLog"')
})

const list = async (query = '') => (await api.admin('GET', `/ops/jobs${query}`)).body
const act = (id: string, action: string, body?: unknown) => api.admin('POST', `/ops/jobs/${id}/${action}`, body)
const mail = async (id: string) => (await api.sql('select * from "svc_EmailLog" where id = $1', [id]))[0]
const becomes = (id: string, status: string) =>
  waitFor(async () => (await mail(id)).status === status, { what: status })

/** The mail worker's work, in this process. */
function work(): void {
  const mailer = openMailer({ connect: 2000, greeting: 2000, silence: 2000 })
  run = runQueue(api.runtime, {
    queue: 'mail',
    concurrency: 2,
    pollMs: 30,
    handler: (_deps, { emailLogId }, job) => sendMail(api.runtime, mailer, emailLogId, job),
  })
}

/** Asks for a mail by a request, so that there is a cause to be found. */
async function queueTest(to = 'user@mail.example'): Promise<string> {
  const actor = { ...systemActor, requestId: 'the request' }
  return commit(api.runtime, actor, async (tx) => {
    const { emailLogId, event } = await queueMail(tx, { type: 'welcome', to, context: {} })
    return { result: emailLogId, events: [event] }
  })
}

/** A mail whose attempts have all failed, and its dead letter. */
async function deadMail(): Promise<{ id: string; job: string }> {
  smtp.answer({ code: 450, at: 'data' }, { code: 450, at: 'data' })
  work()
  const id = await queueTest()
  await becomes(id, 'failed')
  const job = await waitFor(async () => (await list('?state=dead')).data[0]?.id)
  return { id, job }
}

describe('GET /ops/jobs', () => {
  it('tells what waits, why it failed and which request it came from', async () => {
    const { id, job } = await deadMail()
    const { data, totalCount } = await list('?queue=mail&state=dead')
    expect(totalCount).toBe(1)
    expect(data).toEqual([
      {
        id: job,
        queue: 'mail',
        state: 'dead',
        data: { emailLogId: id },
        retries: 1,
        retryLimit: expect.any(Number),
        createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.+\.\d{3}Z$/),
        startAfter: expect.any(String),
        startedAt: null,
        completedAt: null,
        reason: expect.stringContaining('450 as the script says'),
        cause: {
          position: expect.stringMatching(/^\d+$/),
          type: 'mail',
          action: 'queued',
          createdAt: expect.any(String),
          requestId: 'the request',
          userId: null,
        },
      },
    ])
    expect((await api.admin('GET', `/ops/jobs/${job}`)).body).toEqual({ data: data[0] })
  })

  it('answers page by page', async () => {
    for (const n of [1, 2, 3]) await queueTest(`user${n}@mail.example`)
    const pages = [await list('?limit=2'), await list('?limit=2&page=2')]
    expect(pages.map(({ totalCount }) => totalCount)).toEqual([3, 3])
    expect(new Set(pages.flatMap(({ data }) => data.map((job: { id: string }) => job.id))).size).toBe(3)
    expect((await list('?queue=mail-sweep')).totalCount).toBe(0)
  })

  it.each([
    '?queue=no',
    '?state=no',
    '?limit=0',
    '?limit=101',
    '?page=x',
    '?queue=mail&queue=mail',
    '?since=today',
    '?about=',
  ])('refuses %s', async (query) => {
    expect((await api.admin('GET', `/ops/jobs${query}`)).status).toBe(400)
  })

  it('is for administrators, as is all the rest', async () => {
    const { call } = await api.user([{ collection: 'svc_EmailLog', action: 'read', fields: ['*'] }])
    for (const [method, path] of [
      ['GET', ''],
      ['GET', `/${nobody}`],
      ['POST', `/${nobody}/retry`],
      ['POST', `/${nobody}/redrive`],
      ['POST', `/${nobody}/cancel`],
      ['GET', '/2147483647'],
      ['POST', '/2147483647/retry'],
      ['POST', '/2147483647/redrive'],
      ['POST', '/2147483647/cancel'],
    ] as const) {
      expect((await call(method, `/ops/jobs${path}`)).status, path).toBe(403)
      expect((await api.anonymous(method, `/ops/jobs${path}`)).status, path).toBe(401)
      if (path !== '') expect((await api.admin(method, `/ops/jobs${path}`)).status, path).toBe(404)
    }
    for (const id of ["x'", '99999999999', '-1', '1e3'])
      expect((await api.admin('GET', `/ops/jobs/${encodeURIComponent(id)}`)).status, id).toBe(404)
    for (const [method, path] of [
      ['GET', '/ops/queues'],
      ['POST', '/ops/queues/mail/redrive'],
    ] as const) {
      expect((await call(method, path)).status, path).toBe(403)
      expect((await api.anonymous(method, path)).status, path).toBe(401)
    }
  })
})

describe('POST /ops/jobs/:id/redrive', () => {
  it('sends a dead mail again, and the log says who had it done', async () => {
    const { id, job } = await deadMail()
    const before = await api.position()
    expect(await act(job, 'redrive')).toMatchObject({ status: 200, body: { message: 'The job is queued again' } })
    await becomes(id, 'sent')
    expect(smtp.accepted.map(({ messageId }) => messageId)).toEqual([`<${id}@daybook.example>`])
    expect((await list('?state=dead')).totalCount).toBe(0)
    const event = (await api.log(before)).find(({ type }) => type === 'job')
    expect(event).toMatchObject({
      entity: 'job',
      entityId: job,
      action: 'redriven',
      changes: { job: { queue: 'mail', data: { emailLogId: id } } },
      userId: expect.any(String),
    })
    expect((await act(job, 'redrive')).status).toBe(404)
  })

  it('corrects the address of a mail that was refused', async () => {
    smtp.answer({ code: 550, at: 'rcpt' })
    work()
    const id = await queueTest('wrogn@mail.example')
    await becomes(id, 'failed')
    const { data } = await waitFor(async () => {
      const found = await list('?state=completed')
      return found.totalCount === 1 && found
    })
    expect((await act(data[0].id, 'redrive', { to: 'a@x.example, b@x.example' })).status).toBe(400)
    expect((await act(data[0].id, 'redrive', { cc: 'a@x.example' })).status).toBe(400)
    expect((await act(data[0].id, 'redrive', { to: 'Wrong@mail.example' })).status).toBe(200)
    await becomes(id, 'sent')
    expect(smtp.accepted.map(({ recipients }) => recipients)).toEqual([['wrong@mail.example']])
  })

  it('does it once, however many ask at the same time', async () => {
    const { id, job } = await deadMail()
    const answers = await Promise.all([1, 2, 3, 4].map(() => act(job, 'redrive')))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404, 404])
    await becomes(id, 'sent')
    expect(smtp.accepted).toHaveLength(1)
  })

  it('leaves a mail alone that was sent, and a job that waits', async () => {
    const waiting = await queueTest()
    const [{ id: job }] = (await list('?state=created')).data
    expect(await act(job, 'redrive')).toMatchObject({ status: 409, body: { error: { message: 'The job is created' } } })
    work()
    await becomes(waiting, 'sent')
    await waitFor(async () => (await list('?state=completed')).totalCount === 1)
    expect(await act(job, 'redrive')).toMatchObject({
      status: 409,
      body: { error: { message: 'The mail is sent; only one that has failed is sent again' } },
    })
    expect(smtp.received).toHaveLength(1)
  })
})

it('POST /ops/jobs/:id/retry does not wait for the next attempt', async () => {
  await (await api.runtime.boss()).updateQueue('mail', { retryLimit: 3, retryDelay: 3600 })
  smtp.answer({ code: 421, at: 'data' })
  work()
  const id = await queueTest()
  const { data } = await waitFor(async () => {
    const found = await list('?state=retry')
    return found.totalCount === 1 && found
  })
  expect((await mail(id)).status).toBe('queued')
  expect((await act(data[0].id, 'retry')).status).toBe(200)
  await becomes(id, 'sent')
  await waitFor(async () => (await list('?state=completed')).totalCount === 1)
  expect((await act(data[0].id, 'retry')).status).toBe(409)
})

it('POST /ops/jobs/:id/cancel ends a mail that waits, until it is redriven', async () => {
  const id = await queueTest()
  const [{ id: job }] = (await list()).data
  expect((await act(job, 'cancel')).status).toBe(200)
  expect(await mail(id)).toMatchObject({ status: 'failed', errorMessage: 'cancelled by an administrator' })
  work()
  await sweepMails(api.runtime)
  expect((await act(job, 'cancel')).status).toBe(409)
  expect(smtp.received).toEqual([])
  expect((await act(job, 'redrive')).status).toBe(200)
  await becomes(id, 'sent')
})

it('GET /ops/jobs finds by time and by what a job is about', async () => {
  const [first] = [await queueTest('a@mail.example'), await queueTest('b@mail.example')]
  await api.sql(`update pgboss.job set created_on = now() - interval '1 day' where data->>'emailLogId' = $1`, [first])
  const yesterday = new Date(Date.now() - 3_600_000).toISOString()
  expect((await list(`?until=${yesterday}`)).data.map(({ data }: any) => data.emailLogId)).toEqual([first])
  expect((await list(`?since=${yesterday}`)).totalCount).toBe(1)
  expect((await list(`?about=${first}`)).data.map(({ data }: any) => data.emailLogId)).toEqual([first])
  expect((await list('?about=nothing')).totalCount).toBe(0)
})

describe('queues', () => {
  const queue = async (name: string) =>
    (await api.admin('GET', '/ops/queues')).body.data.find((row: { queue: string }) => row.queue === name)

  it('are counted, the empty ones too', async () => {
    await queueTest()
    expect(await queue('mail')).toEqual({
      queue: 'mail',
      waiting: 1,
      active: 0,
      dead: 0,
      overdueSeconds: expect.any(Number),
    })
    expect(await queue('audit-log-cleanup')).toEqual({
      queue: 'audit-log-cleanup',
      waiting: 0,
      active: 0,
      dead: 0,
      overdueSeconds: 0,
    })
    expect(await queue('tasks')).toMatchObject({ waiting: 0 })
  })

  it('are redriven whole: each job by an event of its own; what cannot be done again is named', async () => {
    smtp.answer(...Array.from({ length: 4 }, () => ({ code: 450, at: 'data' }) as const))
    work()
    const ids = [await queueTest('a@mail.example'), await queueTest('b@mail.example')]
    await waitFor(async () => (await queue('mail')).dead === 2)
    await run?.stop(10_000)
    await api.sql(`insert into pgboss.job (name, retry_limit, expire_seconds, keep_until, policy, data, source_name) values
      ('mail-dead', 0, 60, now() + interval '1 day', 'standard', '{"emailLogId": 7}', 'mail')`)
    const [broken] = await api.sql(`select id from pgboss.job where data->>'emailLogId' = '7'`)
    const before = await api.position()
    const { status, body } = await api.admin('POST', '/ops/queues/mail/redrive')
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        message: '2 jobs are queued again',
        redriven: 2,
        refused: [{ id: broken.id, reason: 'The job names no mail' }],
        more: false,
      },
    })
    const events = await api.log(before)
    const redriven = events.filter(({ type, action }) => type === 'job' && action === 'redriven')
    expect(redriven.map(({ changes }) => changes.job.data.emailLogId).sort()).toEqual(ids.toSorted())
    expect(events.every(({ userId }) => userId !== null)).toBe(true)
    expect((await api.jobs('mail')).map(({ data }) => data.emailLogId).sort()).toEqual(ids.toSorted())
    work()
    for (const id of ids) await becomes(id, 'sent')
    expect(await queue('mail')).toMatchObject({ waiting: 0, dead: 1 })
    expect((await act(broken.id, 'cancel')).status).toBe(409)
    expect((await api.admin('POST', '/ops/queues/no/redrive')).status).toBe(404)
  })

  it('of another version are shown and left alone', async () => {
    await (await api.runtime.boss()).createQueue('of-tomorrow')
    const id = await (await api.runtime.boss()).send('of-tomorrow', { some: 'thing' })
    expect(await queue('of-tomorrow')).toMatchObject({ waiting: 1 })
    expect((await list(`?about=thing`)).data).toMatchObject([{ id, queue: 'of-tomorrow', data: { some: 'thing' } }])
    expect(await act(id!, 'cancel')).toMatchObject({
      status: 409,
      body: { error: { message: 'No worker of this version serves the queue of-tomorrow' } },
    })
  })
})

describe('tasks among the jobs', () => {
  const task = async (state: string, more = '') => {
    const [{ id }] = await api.sql(
      `insert into "svc_Tasks" (type, task_status, scheduled_time, retry_count, max_retries, error_data ${more && ', attempt_token'})
       values ('report', $1, now() + interval '1 hour', 1, 3, '{"message": "it broke"}' ${more && ', gen_random_uuid()'}) returning id`,
      [state],
    )
    return String(id)
  }
  const row = async (id: string) =>
    (await api.sql('select *, scheduled_time <= now() as due from "svc_Tasks" where id = $1', [id]))[0]
  const eventsAfter = async (before: bigint) =>
    (await api.log(before)).map(({ type, entity, entityId, action }) => [type, entity, entityId, action])
  afterEach(() => api.sql('delete from "svc_Tasks"'))

  it('are listed with their states', async () => {
    const failed = await task('Error')
    const running = await task('Running', 'claimed')
    const waiting = await task('Not started')
    const { data, totalCount } = await list('?queue=tasks')
    expect(totalCount).toBe(3)
    expect(Object.fromEntries(data.map((job: any) => [job.id, job.state]))).toEqual({
      [failed]: 'failed',
      [running]: 'active',
      [waiting]: 'retry',
    })
    expect((await list('?queue=tasks&state=failed')).data).toEqual([
      {
        id: failed,
        queue: 'tasks',
        state: 'failed',
        data: { taskId: Number(failed), type: 'report' },
        retries: 1,
        retryLimit: 3,
        createdAt: expect.stringMatching(/^\d{4}-.+\.\d{3}Z$/),
        startAfter: expect.stringMatching(/Z$/),
        startedAt: null,
        completedAt: expect.stringMatching(/Z$/),
        reason: 'it broke',
        cause: expect.objectContaining({ type: 'data', action: 'create' }),
      },
    ])
    expect((await api.admin('GET', `/ops/jobs/${failed}`)).body.data).toMatchObject({ id: failed, reason: 'it broke' })
  })

  it('are made due at once, which is on the record', async () => {
    const id = await task('Not started')
    const before = await api.position()
    expect(await act(id, 'retry')).toMatchObject({ status: 200 })
    expect(await row(id)).toMatchObject({ task_status: 'Not started', due: true, retry_at: null })
    expect(await eventsAfter(before)).toEqual([
      ['data', 'svc_Tasks', id, 'update'],
      ['task', 'svc_Tasks', id, 'hurried'],
    ])
    expect((await api.log(before)).every(({ userId }) => userId !== null)).toBe(true)
  })

  it('are done again with all their attempts, when they are over', async () => {
    const id = await task('Error')
    const before = await api.position()
    expect((await act(id, 'redrive', { to: 'x' })).status).toBe(400)
    expect((await act(id, 'cancel')).status).toBe(409)
    expect((await act(id, 'retry')).status).toBe(409)
    expect(await eventsAfter(before)).toEqual([])
    expect((await act(id, 'redrive')).status).toBe(200)
    expect(await row(id)).toMatchObject({ task_status: 'Not started', due: true, retry_count: 0, error_data: null })
    expect((await eventsAfter(before)).at(-1)).toEqual(['task', 'svc_Tasks', id, 'redriven'])
    expect(await act(id, 'redrive')).toMatchObject({ status: 409, body: { error: { message: 'The task is created' } } })
  })

  it('are cancelled; a running attempt loses its claim', async () => {
    const id = await task('Running', 'claimed')
    const before = await api.position()
    expect((await act(id, 'redrive')).status).toBe(409)
    expect((await act(id, 'cancel')).status).toBe(200)
    expect(await row(id)).toMatchObject({
      task_status: 'Error',
      attempt_token: null,
      error_data: { message: 'cancelled by an administrator' },
    })
    expect((await eventsAfter(before)).at(-1)).toEqual(['task', 'svc_Tasks', id, 'cancelled'])
    const { body } = await api.admin('POST', '/ops/queues/tasks/redrive')
    expect(body).toMatchObject({ redriven: 1, refused: [] })
    expect((await row(id)).task_status).toBe('Not started')
  })
})

describe('GET /ops/doctor and /ops/schedules', () => {
  it('say what the installation lacks, and what runs when, and change nothing', async () => {
    const before = await api.position()
    const [first, second] = await Promise.all([api.admin('GET', '/ops/doctor'), api.admin('GET', '/ops/doctor')])
    expect(first.status, first.text).toBe(200)
    expect(second.body).toEqual(first.body)
    expect(first.body.data).toContainEqual({
      check: 'database',
      status: 'ok',
      says: expect.stringContaining('answers'),
    })
    expect(first.body.data).toContainEqual({
      check: 'workers',
      status: 'warning',
      says: expect.stringContaining('not running: '),
      remedy: expect.stringContaining('npx daybook worker mail'),
    })
    expect(first.text).not.toContain('a key for tests only')

    await (await api.runtime.boss()).schedule('mail-sweep', '7 * * * *', {}, { tz: 'UTC' })
    await api.sql(
      `insert into "svc_TaskSchedule" (id, cron, "nextAt") values ('nightly', '0 3 * * *', '2026-03-14T03:00:00Z')`,
    )
    const { body } = await api.admin('GET', '/ops/schedules')
    expect(body.data).toEqual([
      {
        ...{ kind: 'extension', name: 'nightly', title: 'nightly', cron: '0 3 * * *', timezone: 'UTC' },
        nextAt: '2026-03-14T03:00:00.000Z',
      },
      {
        ...{ kind: 'platform', name: 'mail-sweep', title: 'mail-sweep', cron: '7 * * * *', timezone: 'UTC' },
        nextAt: null,
      },
    ])
    const { call } = await api.user()
    for (const path of ['/ops/doctor', '/ops/schedules', '/ops/consumers'])
      expect((await call('GET', path)).status).toBe(403)
    expect((await api.anonymous('GET', '/ops/doctor')).status).toBe(401)
    expect((await api.log(before)).map(({ entity }) => entity)).not.toContain('svc_TaskSchedule')
  })
})
