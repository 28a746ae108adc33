import { beforeAll, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { causesOf } from '../../src/events/consumer.ts'
import { actorOfJob } from '../../src/events/jobs.ts'
import { systemActor } from '../../src/events/types.ts'
import { contextFor, type ExtensionContext } from '../../src/extensions/context.ts'
import { causeOfTask, claimDue, record } from '../../src/features/work/tasks/tasks.ts'
import { runQueue } from '../../src/workers/loop.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { sendMail } from '../support/mails.ts'
import { waitFor } from '../support/wait.ts'

/** What the log says of requests: their own ids, the agents that made them, and what they led to. */

let api: Api
let extension: ExtensionContext

beforeAll(async () => {
  api = await startApi()
  extension = contextFor(api.runtime, 'svc-hook-test')
  for (const collectionName of ['cause', 'inside', 'after', 'byservice', 'bysql'])
    await api.admin('POST', '/schemas', { collectionName, schema: { fields: { name: { type: 'String' } } } })
})

type Event = { entity: string; requestId: string | null; logRequestId: string | null; agent: any; cause: any }

const events = (entity: string): Promise<Event[]> =>
  api.sql(
    `select entity, "requestId", "logRequestId", agent, cause from "svc_AuditLog"
     where entity = $1 and type = 'data' order by position`,
    [entity],
  )
const create = (headers: Record<string, string> = {}, name = 'x'): Promise<Answer> =>
  api.admin('POST', '/items/cause', { name }, headers)
const refused = { outcome: 'refused', reason: 'no such mailbox', problem: 'refused message' } as const
const last = async (entity: string) => (await events(entity)).at(-1)!

describe('the log has an id of each request', () => {
  it('which is that of the answer, where the server made it', async () => {
    const { headers } = await create()
    const { requestId, logRequestId } = await last('cause')
    expect([requestId, logRequestId]).toEqual([headers['x-request-id'], headers['x-request-id']])
    expect(headers['x-log-request-id']).toBeUndefined()
  })

  it('and its own beside one that the client chose, which two requests may share', async () => {
    const [first, second] = [await create({ 'x-request-id': 'same' }), await create({ 'x-request-id': 'same' })]
    const [one, two] = (await events('cause')).slice(-2)
    expect([one!.requestId, two!.requestId, first.headers['x-request-id']]).toEqual(['same', 'same', 'same'])
    expect([one!.logRequestId, two!.logRequestId]).toEqual([
      first.headers['x-log-request-id'],
      second.headers['x-log-request-id'],
    ])
    expect(one!.logRequestId! < two!.logRequestId!).toBe(true)
  })

  it('also with domain events', async () => {
    const { headers } = await api.admin('PATCH', '/settings', { title: 'A title' })
    const [event] = await api.sql(
      `select "logRequestId" as id from "svc_AuditLog" where type = 'system' and action = 'settings'`,
    )
    expect(event.id).toBe(headers['x-request-id'])
  })
})

describe('x-svc-agent names the program that acts', () => {
  it.each([
    ['claude-desktop', { name: 'claude-desktop' }],
    ['My script 1.2; tool=items.update', { name: 'My script 1.2', tool: 'items.update' }],
  ])('%s', async (header, agent) => {
    expect((await create({ 'x-svc-agent': header })).status).toBe(201)
    expect((await last('cause')).agent).toEqual(agent)
  })

  it.each(['', 'a'.repeat(101), 'a; b=c', 'a"b', 'a; tool='])('and is refused as %j', async (header) => {
    const before = (await events('cause')).length
    const { status, body } = await create({ 'x-svc-agent': header })
    expect([status, body.error.message]).toEqual([400, expect.stringContaining('x-svc-agent must be')])
    expect(await events('cause')).toHaveLength(before)
  })
})

describe('consequences of a request name it as their cause', () => {
  it('in hooks before and after, of any writer, and what follows of the request itself does not', async () => {
    const on = (event: string, run: (context: any) => unknown) =>
      api.runtime.hooks.register('svc-hook-test', 'cause', event, run)
    const { ItemsService } = extension
    on('items.create', async ({ data, accountability, db }) => {
      if (data.name !== 'hooked') return
      await new ItemsService('inside', { accountability }).createOne({ name: 'as the caller' })
      await db.query(`insert into bysql (name) values ('by SQL')`)
      await new ItemsService('byservice').createOne({ name: 'as the platform' })
    })
    on('items.create.after', async ({ document }) => {
      if (document.name === 'hooked') await new ItemsService('after').createOne({ name: 'later' })
    })
    api.runtime.hooks.register('svc-hook-test', 'inside', 'items.create', async () => {
      await new ItemsService('byservice').createOne({ name: 'further' })
    })
    const { headers, status } = await api.admin('POST', '/items/cause/bulk', [{ name: 'hooked' }, { name: 'hooked' }], {
      'x-svc-agent': 'robot',
    })
    expect(status).toBe(201)
    const request = headers['x-request-id']
    const own = (await events('cause')).slice(-2)
    expect(own.map(({ logRequestId, cause }) => [logRequestId, cause])).toEqual([
      [request, null],
      [request, null],
    ])
    const byHook = { request, depth: 1, by: 'hook' }
    const [inside, sql, after] = [await events('inside'), await events('bysql'), await events('after')]
    for (const found of [inside, sql, after]) expect(found.map(({ cause }) => cause)).toEqual([byHook, byHook])
    expect(inside[0]!.requestId).toBe(request)
    expect(inside[0]!.agent).toEqual({ name: 'robot' })
    const hook = inside[0]!.logRequestId
    // All that hooks do for the request is one request to the log.
    expect(new Set([...inside, ...sql].map(({ logRequestId }) => logRequestId))).toEqual(new Set([hook]))
    expect(hook).not.toBe(request)
    const services = await events('byservice')
    expect(services.map(({ cause }) => cause)).toEqual([
      { request: hook, depth: 2, by: 'hook' },
      byHook,
      { request: hook, depth: 2, by: 'hook' },
      byHook,
    ])
  })

  it('in tasks, which are asked for by the row that the request made', async () => {
    const { headers, body } = await api.admin('POST', '/items/svc_Tasks', {
      type: 'work',
      scheduled_time: '2030-01-01',
    })
    const cause = await causeOfTask(api.runtime.db, { id: body.data.id })
    expect(cause).toEqual({ request: headers['x-request-id'], depth: 1, by: 'task' })
    await new (contextFor(api.runtime, 'svc-task-test', { cause }).ItemsService)('after').createOne({
      name: 'by a task',
    })
    const [first, second] = [await last('after'), cause]
    expect(first.cause).toEqual(second)
    expect(first.logRequestId).not.toBe(headers['x-request-id'])
    const [{ id }] = await api.sql(`insert into "svc_Tasks" (type) values ('by SQL') returning id`)
    expect(await causeOfTask(api.runtime.db, { id })).toBeUndefined()
    const [claim] = await claimDue(api.runtime, { types: ['work'], isolatedTypes: [], isolatedAtMost: 0 }, 1)
    expect(claim).toBeUndefined()
    await api.sql('update "svc_Tasks" set scheduled_time = now() where id = $1', [body.data.id])
    const [due] = await claimDue(api.runtime, { types: ['work'], isolatedTypes: [], isolatedAtMost: 0 }, 1)
    expect(await record(api.runtime, due!, { state: 'completed', result: null, cause })).toBe(true)
    const ended = await last('svc_Tasks')
    expect(ended.cause).toEqual(cause)
    expect(ended.logRequestId).not.toBe(headers['x-request-id'])
  })
})

describe('work that is done later keeps its cause', () => {
  /** A request whose hook has a mail sent: what its job was given, and what the log says of the hook. */
  async function hookedMail(to: string) {
    const { headers, status } = await create({}, `mail ${to}`)
    expect(status).toBe(201)
    const [mail] = await api.sql('select id from "svc_EmailLog" where email = $1', [to])
    const job = () =>
      api.sql(`select id, data from pgboss.job where data->>'emailLogId' = $1 and state < 'completed'`, [mail.id])
    const [queued] = await api.sql(
      `select "logRequestId", agent, cause from "svc_AuditLog" where type = 'mail' and "entityId" = $1`,
      [mail.id],
    )
    return { request: headers['x-request-id'], mail: mail.id, job, queued }
  }
  beforeAll(() => {
    api.runtime.hooks.register('svc-hook-test', 'cause', 'items.create', async ({ data }: any) => {
      const [, to] = /^mail (.*)$/.exec(data.name) ?? []
      if (to !== undefined)
        await extension.mailService.sendMail({ to, type: 'verification', context: { link: 'http://localhost' } })
    })
  })

  it('a job names the hook that asked for it, its worker writes with that cause, and the request shows the chain', async () => {
    const { request, mail, job, queued } = await hookedMail('chain@example.com')
    expect(queued.cause).toEqual({ request, depth: 1, by: 'hook' })
    const [{ data }] = await job()
    const cause = { request: queued.logRequestId, depth: 2, by: 'job' }
    expect(data).toEqual({ emailLogId: mail, cause })
    const run = runQueue(api.runtime, {
      ...{ queue: 'mail', concurrency: 1, pollMs: 20 },
      handler: (_deps, { emailLogId }, attempt) =>
        sendMail(api.runtime, openMailer(), emailLogId, { ...attempt, known: refused }),
    })
    const state = async () => (await api.sql('select status from "svc_EmailLog" where id = $1', [mail]))[0].status
    await waitFor(async () => (await state()) === 'failed', { what: 'the mail is refused' })
    await run.stop(5000)
    const [created, ...worked] = (await api.admin('GET', `/items/svc_EmailLog/${mail}/history`)).body.data.reverse()
    expect(created.cause).toEqual(queued.cause)
    expect(worked.length).toBeGreaterThan(0)
    for (const event of worked) expect(event).toMatchObject({ cause, userId: null, requestId: worked[0].requestId })
    const { data: tree } = (await api.admin('GET', `/log/requests/${request}`)).body
    const [byHook] = tree.caused
    expect(byHook).toMatchObject({ requestId: queued.logRequestId, cause: { by: 'hook' } })
    expect(byHook.caused).toMatchObject([{ requestId: worked[0].requestId, cause }])
    const { data: attempted } = (await api.admin('GET', `/log/requests/${worked[0].requestId}`)).body
    expect(attempted.chain.map((one: any) => one.requestId)).toEqual([request, queued.logRequestId])
    const listed = (await api.admin('GET', `/log/requests?cause=${queued.logRequestId}`)).body.data
    expect(listed).toMatchObject([{ requestId: worked[0].requestId, cause }])
  })

  it('a job that is done again keeps it, and one without an actor has none', async () => {
    const { job } = await hookedMail('again@example.com')
    const [{ id, data }] = await job()
    expect((await api.admin('POST', `/ops/jobs/${id}/cancel`)).status).toBe(200)
    expect((await api.admin('POST', `/ops/jobs/${id}/redrive`)).status).toBe(200)
    expect((await job()).map((one: any) => one.data)).toEqual([data])
    expect(actorOfJob(data)).toMatchObject({ cause: data.cause, logRequestId: expect.any(String) })
    for (const none of [null, {}, { cause: 'me' }, { cause: { request: 'x', depth: 1, by: 'hook' } }])
      expect(actorOfJob(none)).toEqual(systemActor)
  })

  it('a consumer of the log finds the causes that its events are', async () => {
    const { headers } = await create()
    await api.sql(`insert into cause (name) values ('by SQL')`)
    const positions = (
      await api.sql(`select position::text from "svc_AuditLog" where entity = 'cause' order by id desc limit 2`)
    ).map(({ position }) => position)
    const causes = await causesOf(api.runtime.db, positions, 'workflow')
    expect([...causes]).toEqual([[positions[1], { request: headers['x-request-id'], depth: 1, by: 'workflow' }]])
  })
})
