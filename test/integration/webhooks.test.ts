import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { seal } from '../../src/adapters/sealing.ts'
import { aheadOf, retryAfterOf, verdictOn } from '../../src/features/messaging/webhooks/sending.ts'
import { deliverTo, sealedForWebhook, tellOfStopped } from '../../src/features/messaging/webhooks/webhooks.ts'
import { openWebhooks } from '../../src/workers/webhooks.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { inTurn } from '../support/in-turn.ts'
import { testConfig } from '../support/prepare.ts'
import { type Receiver, startReceiver, verified } from '../support/receiver.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let service: Awaited<ReturnType<typeof openWebhooks>>
const receivers: Receiver[] = []

beforeAll(async () => {
  api = await startApi({ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' })
  const fields = {
    id: { type: 'Integer', primaryKey: true },
    state: { type: 'String', allowNull: true },
    secret: { type: 'String', allowNull: true },
  }
  for (const collectionName of ['order', 'other'])
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
  service = await openWebhooks(api.runtime)
})

afterEach(async () => {
  await api.sql('delete from "svc_Webhook"; delete from svc_log.consumer; delete from "order"; delete from other')
  await Promise.all(receivers.splice(0).map((one) => one.close()))
})

afterAll(() => service?.stop(5000))

const receiver = async () => {
  const one = await startReceiver()
  receivers.push(one)
  return one
}

const make = async (to: Pick<Receiver, 'url'>, more: object = {}, as: Call = api.admin) => {
  const { status, body, text } = await as('POST', '/webhooks', {
    name: 'w',
    url: to.url,
    collections: ['order'],
    ...more,
  })
  expect(status, text).toBe(201)
  expect(body.data).toEqual({ id: expect.any(String), secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/=]{40,}$/) })
  // The worker has taken it.
  await waitFor(async () => (await placeOf(body.data.id)).token !== null)
  return body.data as { id: string; secret: string }
}
const placeOf = async (id: string) =>
  (await api.sql(`select state, token, reason from svc_log.consumer where name = 'webhook:' || $1::uuid`, [id]))[0]
/** As it was stored under a SECRET_KEY that is gone. */
const sealedByLostKey = (id: string, secret: string) =>
  seal(
    testConfig(api.database.url, { SECRET_KEY: 'another key, which nobody has kept at all' }),
    sealedForWebhook(id),
    secret,
  )
const deliveries = async (id: string) => (await api.admin('GET', `/webhooks/${id}/deliveries`)).body.data as any[]
const brief = ({ accepted }: Receiver) =>
  accepted.map(({ body }) => [body.action ?? body.type, body.id, body.data?.state])

describe('a-webhook', () => {
  it('is told of each change once, signed, as its role sees it', async () => {
    const to = await receiver()
    const { id, secret } = await make(to, { fields: ['id', 'state'] })
    await api.admin('POST', '/items/order', { id: 1, state: 'new', secret: 'x' })
    await api.sql(`update "order" set state = 'paid' where id = 1`)
    await api.sql('delete from "order" where id = 1')
    await api.admin('POST', '/items/other', { id: 1 })
    await waitFor(() => to.accepted.length === 3)
    expect(brief(to)).toEqual([
      ['create', 1, 'new'],
      ['update', 1, 'paid'],
      ['delete', 1, undefined],
    ])
    for (const one of to.accepted) verified(one, secret)
    expect(() => verified(to.accepted[0]!, `whsec_${Buffer.alloc(32).toString('base64')}`)).toThrow()
    expect(to.accepted[0]!.body).toEqual({
      ...{ type: 'change', collection: 'order', action: 'create', id: 1, data: { id: 1, state: 'new' } },
      ...{ timestamp: expect.any(String), position: expect.stringMatching(/^\d+$/), cursor: expect.any(String) },
    })
    // Its cursor is one of /changes.
    const since = to.accepted[0]!.body.cursor
    const later: string[] = []
    for (let next = since; next !== undefined; ) {
      const { body } = await api.admin('GET', `/changes?since=${next}&collections=order`)
      later.push(...body.data.map(({ action }: any) => action))
      next = body.hasMore ? body.cursor : undefined
    }
    expect(later).toEqual(['update', 'delete'])
    await waitFor(async () => (await deliveries(id)).every(({ status }) => status === 'delivered'))
    expect(await deliveries(id)).toMatchObject(Array(3).fill({ attempts: 1, responseStatus: 204, error: null }))
  })

  it('gets what passes its filter, also when a change brings a row into it or takes it out', async () => {
    const to = await receiver()
    await make(to, { filter: { state: { eq: 'paid' } } })
    await api.sql(`insert into "order" (id, state) values (1, 'new'), (2, 'paid')`)
    await api.sql(`update "order" set state = 'paid' where id = 1`)
    await api.sql(`update "order" set state = 'sent' where id = 2`)
    await waitFor(() => to.accepted.length === 3)
    expect(brief(to)).toEqual(
      expect.arrayContaining([
        ['create', 2, 'paid'],
        ['create', 1, 'paid'],
        ['remove', 2, undefined],
      ]),
    )
  })

  it('of all collections gets those that its role may read, also one that is made later', async () => {
    const to = await receiver()
    const user = await api.user([
      { collection: 'order', action: 'read', fields: ['id'] },
      { collection: 'later', action: 'read', fields: ['id'] },
      { collection: 'mine', action: 'read', conditions: { id: { eq: '$CURRENT_USER.firstName' } } },
      ...['create', 'read'].map((action) => ({ collection: 'svc_Webhook', action })),
    ])
    await make(to, { collections: ['*'] }, user.call)
    const fields = { id: { type: 'Integer', primaryKey: true } }
    for (const collectionName of ['later', 'mine'])
      expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
    await api.sql(
      'insert into other (id) values (1); insert into mine (id) values (1); insert into later (id) values (2)',
    )
    await api.sql('insert into "order" (id) values (3)')
    const told = () =>
      to.accepted.filter(({ body }) => body.type === 'change').map(({ body }) => [body.collection, body.id])
    await waitFor(() => told().length === 2)
    expect(told().sort()).toEqual([
      ['later', 2],
      ['order', 3],
    ])
    for (const more of [{ fields: ['id'] }, { filter: { id: { eq: 1 } } }])
      expect(
        await api.admin('POST', '/webhooks', { name: 'w', url: to.url, collections: ['*'], ...more }),
      ).toMatchObject({
        status: 400,
        body: { error: { message: expect.stringContaining('filter and fields need collections by name') } },
      })
    await api.admin('DELETE', '/schemas/later')
    await api.admin('DELETE', '/schemas/mine')
  })

  it('whose place retention has taken tells its owner once, and goes on by a replay', async () => {
    const to = await receiver()
    const { id } = await make(to, { name: 'left behind' })
    await api.sql('select svc_log.stop_unread(pg_current_xact_id())')
    for (const _ of [1, 2]) await tellOfStopped(api.runtime)
    const reason = expect.stringContaining('longer than the log is kept')
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({ status: 'active', reason })
    const told = await api.sql(`select title, message, data from "svc_Notification" where title like '%left behind%'`)
    expect(told).toEqual([
      { title: 'The webhook left behind has stopped', message: expect.stringContaining('replay'), data: { id } },
    ])
    const mails = await api.sql(`select id from "svc_EmailLog" where context::text like '%left behind has stopped%'`)
    expect(mails).toHaveLength(1)
    expect((await api.jobs('mail')).map(({ data }) => data)).toContainEqual({ emailLogId: mails[0].id })
    expect((await api.admin('POST', `/webhooks/${id}/replay`, { since: 'now' })).status).toBe(202)
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({ status: 'active', reason: null })
    await waitFor(async () => (await placeOf(id)).token !== null)
    await api.sql('insert into "order" (id) values (77)')
    await waitFor(() => to.accepted.some(({ body }) => body.id === 77))
    await api.sql('delete from "svc_Notification"; delete from pgboss.job')
  })

  it('never shows its secret again: not in answers, items, the log or exports', async () => {
    const to = await receiver()
    const { id, secret } = await make(to)
    const shown = [
      (await api.admin('GET', `/webhooks/${id}`)).text,
      (await api.admin('GET', '/webhooks')).text,
      (await api.admin('GET', `/items/svc_Webhook/${id}`)).text,
      (await api.admin('GET', '/items/svc_Webhook?export=csv')).text,
      JSON.stringify(await api.sql('select to_jsonb(l) from "svc_AuditLog" l')),
      JSON.stringify(await api.sql('select to_jsonb(w) from "svc_Webhook" w')),
    ].join('\n')
    expect(shown).toContain(id)
    expect(shown).not.toContain(secret.slice('whsec_'.length))
    for (const [method, path] of [
      ['POST', '/items/svc_Webhook'],
      ['PATCH', `/items/svc_Webhook/${id}`],
      ['DELETE', `/items/svc_Webhook/${id}`],
      ['POST', '/items/svc_WebhookDelivery'],
    ] as const)
      expect([path, (await api.admin(method, path, { url: 'http://evil.example' })).status]).toEqual([path, 403])
  })

  it('is signed with both secrets for a day after a rotation', async () => {
    const to = await receiver()
    const { id, secret: former } = await make(to)
    const { body } = await api.admin('POST', `/webhooks/${id}/rotate`)
    expect((await api.admin('POST', `/webhooks/${id}/test`)).status).toBe(202)
    await waitFor(() => to.accepted.length === 1)
    for (const secret of [former, body.data.secret]) verified(to.accepted[0]!, secret)
    expect(to.accepted[0]!.body.type).toBe('test')
    await api.sql(`update "svc_Webhook" set "formerUntil" = now() - interval '1 s'`)
    await api.admin('POST', `/webhooks/${id}/test`)
    await waitFor(() => to.accepted.length === 2)
    verified(to.accepted[1]!, body.data.secret)
    expect(() => verified(to.accepted[1]!, former)).toThrow()
  })

  it('whose former secret does not open any more is signed with the present one alone', async () => {
    const to = await receiver()
    const { id, secret: former } = await make(to)
    const { body } = await api.admin('POST', `/webhooks/${id}/rotate`)
    await api.sql('update "svc_Webhook" set "formerSecret" = $1', [sealedByLostKey(id, former)])
    expect((await api.admin('POST', `/webhooks/${id}/test`)).status).toBe(202)
    await waitFor(() => to.accepted.length === 1)
    verified(to.accepted[0]!, body.data.secret)
    expect(to.accepted[0]!.headers['webhook-signature']!.split(' ')).toHaveLength(1)
  })

  it('whose secret does not open any more is signed again from a rotation on', async () => {
    const to = await receiver()
    const { id, secret: former } = await make(to)
    await api.sql('update "svc_Webhook" set secret = $1', [sealedByLostKey(id, former)])
    const { body } = await api.admin('POST', `/webhooks/${id}/rotate`)
    expect(await api.sql('select "formerSecret" from "svc_Webhook"')).toEqual([{ formerSecret: null }])
    await api.sql('insert into "order" (id) values (1)')
    await waitFor(() => to.accepted.length === 1)
    verified(to.accepted[0]!, body.data.secret)
  })

  it('whose secret does not open any more is paused, says what to do, and delivers all of it later', async () => {
    const [to, healthy] = [await receiver(), await receiver()]
    const { id, secret: former } = await make(to, { name: 'of a lost key' })
    await make(healthy)
    await api.sql('update "svc_Webhook" set secret = $2 where id = $1', [id, sealedByLostKey(id, former)])
    const refused = {
      status: 409,
      body: {
        error: {
          code: 'WEBHOOK_SECRET_LOST',
          message: expect.stringContaining('rotate the secret, or set SECRET_KEY_PREVIOUS'),
        },
      },
    }
    expect(await api.admin('POST', `/webhooks/${id}/test`)).toMatchObject(refused)
    await api.sql('insert into "order" (id) values (1), (2)')
    await waitFor(() => healthy.accepted.length === 2)
    await waitFor(async () => (await placeOf(id)).state === 'paused')
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({
      status: 'paused',
      reason: expect.stringContaining('rotate the secret, or set SECRET_KEY_PREVIOUS'),
    })
    const waiting = Array(2).fill({ status: 'pending', attempts: 0, error: null })
    await waitFor(async () => (await deliveries(id)).every(({ attempts }) => attempts === 0))
    expect(await deliveries(id)).toMatchObject(waiting)
    const told = await api.sql(`select title, message from "svc_Notification" where type = 'webhook'`)
    expect(told).toEqual([
      { title: 'The webhook of a lost key is paused', message: expect.stringContaining('SECRET_KEY_PREVIOUS') },
    ])
    expect(await api.jobs('mail')).toHaveLength(1)
    expect(await api.admin('PATCH', `/webhooks/${id}`, { status: 'active' })).toMatchObject(refused)
    expect(await api.admin('POST', `/webhooks/${id}/test`)).toMatchObject(refused)
    expect(await api.jobs('mail')).toHaveLength(1)
    const { body } = await api.admin('POST', `/webhooks/${id}/rotate`)
    expect((await api.admin('PATCH', `/webhooks/${id}`, { status: 'active' })).body.data).toMatchObject({
      reason: null,
    })
    await waitFor(() => to.accepted.length === 2)
    for (const one of to.received) verified(one, body.data.secret)
    await waitFor(async () => (await deliveries(id)).every(({ status }) => status === 'delivered'))
    expect(await deliveries(id)).toMatchObject(Array(2).fill({ attempts: 1 }))
    await api.sql('delete from "svc_Notification"; delete from pgboss.job')
  })

  it('keeps its place while it is paused, and is told all of it when it goes on', async () => {
    const to = await receiver()
    const { id } = await make(to)
    expect((await api.admin('PATCH', `/webhooks/${id}`, { status: 'paused' })).body.data).toMatchObject({
      ...{ status: 'paused', reason: 'by request' },
    })
    await api.sql('insert into "order" (id) select generate_series(1, 700)')
    expect((await api.admin('POST', `/webhooks/${id}/replay`, { since: 'now' })).status).toBe(409)
    expect(await deliveries(id)).toEqual([])
    expect((await api.admin('PATCH', `/webhooks/${id}`, { status: 'active' })).status).toBe(200)
    await waitFor(() => to.accepted.length === 700)
    expect(new Set(to.accepted.map(({ id: one }) => one)).size).toBe(700)
  })

  it('is told again since a moment, under the ids of then, and one again by its id', async () => {
    const to = await receiver()
    const { id } = await make(to)
    await api.sql(`insert into "order" (id) values (1)`)
    await waitFor(() => to.accepted.length === 1)
    const moment = (await api.sql('select clock_timestamp() as now'))[0].now as Date
    await api.sql(`insert into "order" (id) values (2)`)
    await waitFor(() => to.accepted.length === 2)
    await waitFor(async () => (await deliveries(id)).every(({ status }) => status === 'delivered'))
    expect((await api.admin('POST', `/webhooks/${id}/replay`, { since: moment.toISOString() })).status).toBe(202)
    const ofSecond = () => to.accepted.filter(({ body }) => body.id === 2)
    await waitFor(() => ofSecond().length === 2)
    expect(ofSecond()[0]!.id).toBe(ofSecond()[1]!.id)
    const first = to.accepted[0]!
    const before = to.accepted.filter((one) => one.id === first.id).length
    await waitFor(async () => (await deliveries(id)).every(({ status }) => status === 'delivered'))
    expect((await api.admin('POST', `/webhooks/${id}/deliveries/${first.id}/redeliver`)).status).toBe(202)
    await waitFor(() => to.accepted.filter((one) => one.id === first.id).length === before + 1)
    expect((await api.admin('POST', `/webhooks/${id}/replay`, { since: 'whenever' })).status).toBe(400)
    expect((await api.admin('GET', `/webhooks/${id}/deliveries/${crypto.randomUUID()}`)).status).toBe(404)
  })

  it('learns that an event was erased, and of no other than that', async () => {
    const to = await receiver()
    const { id } = await make(to)
    await api.admin('PATCH', `/webhooks/${id}`, { status: 'paused' })
    await api.sql(`insert into "order" (id, secret) values (5, 'to be forgotten')`)
    expect((await api.admin('DELETE', '/items/order/5/history')).status).toBe(200)
    await api.admin('PATCH', `/webhooks/${id}`, { status: 'active' })
    const erased = await waitFor(() => to.accepted.find(({ body }) => body.erased))
    expect(erased.body).toMatchObject({ collection: 'order', action: 'create', id: '5', erased: true })
    expect(to.received.map(({ text }) => text).join()).not.toContain('to be forgotten')
  })

  it('must read anew where a right of its role changes', async () => {
    const to = await receiver()
    const { roleId } = await api.user([{ collection: 'order', action: 'read', fields: ['id', 'state'] }])
    await make(to, { role_Id: roleId })
    const [{ id }] = await api.sql(`select id from "svc_Permission" where "role_Id" = $1`, [roleId])
    expect((await api.admin('PATCH', `/permissions/${id}`, { conditions: { state: { eq: 'paid' } } })).status).toBe(200)
    await waitFor(() => to.accepted.some(({ body }) => body.type === 'resync' && body.collection === 'order'))
    await api.sql(`insert into "order" (id, state, secret) values (1, 'new', 'x'), (2, 'paid', 'x')`)
    await waitFor(() => to.accepted.some(({ body }) => body.id === 2))
    const changes = to.accepted.filter(({ body }) => body.type === 'change')
    expect(changes.map(({ body }) => body.data)).toEqual([{ id: 2, state: 'paid' }])
  })
})

describe('a collection that changes', () => {
  const fields = {
    id: { type: 'Integer', primaryKey: true },
    title: { type: 'String', allowNull: true },
    n: { type: 'Integer', allowNull: true },
  }
  const made = async (...names: string[]) => {
    for (const collectionName of names)
      expect(
        (await api.admin('POST', '/schemas', { collectionName, schema: { timestamps: false, fields } })).status,
      ).toBe(201)
  }
  const dropped = async (...names: string[]) => {
    for (const name of names) expect((await api.admin('DELETE', `/schemas/${name}`)).status).toBe(200)
  }
  const told = ({ accepted }: Receiver) =>
    accepted.flatMap(({ body }) => (body.type === 'change' ? [[body.collection, body.id, body.data]] : []))

  it('and is dropped has its webhook go on with the others', async () => {
    await made('kept', 'gone')
    const to = await receiver()
    const { id } = await make(to, { collections: ['kept', 'gone'], fields: ['id', 'title'] })
    await dropped('gone')
    await api.admin('POST', '/items/kept', { id: 1, title: 'after the drop', n: 1 })
    await waitFor(() => told(to).length === 1)
    expect(told(to)).toEqual([['kept', 1, { id: 1, title: 'after the drop' }]])
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({ status: 'active', reason: null })
    // Under the same name again it is followed again, from then on.
    await made('gone')
    await api.admin('POST', '/items/gone', { id: 2, title: 'made again' })
    await waitFor(() => told(to).length === 2)
    expect(told(to).at(-1)).toEqual(['gone', 2, { id: 2, title: 'made again' }])
    await dropped('kept', 'gone')
  })

  it('and may not be read any more has its webhook go on with the others', async () => {
    await made('open', 'closed')
    const to = await receiver()
    const { roleId } = await api.user(
      ['open', 'closed'].map((collection) => ({ collection, action: 'read', fields: '*' })),
    )
    await make(to, { collections: ['open', 'closed'], role_Id: roleId })
    await api.sql(`delete from "svc_Permission" where "role_Id" = $1 and collection = 'closed'`, [roleId])
    await api.runtime.access.reload()
    await api.sql('insert into closed (id) values (1); insert into open (id) values (2)')
    await waitFor(() => told(to).length === 1)
    expect(told(to)).toEqual([['open', 2, { id: 2, title: null, n: null }]])
    await dropped('open', 'closed')
  })

  const asked: Record<string, { more: object; repair: object; sent: unknown }> = {
    'its fields': { more: { fields: ['id', 'n'] }, repair: { fields: ['id'] }, sent: { id: 1 } },
    'its filter': { more: { filter: { n: { eq: 5 } } }, repair: { filter: null }, sent: { id: 1, title: 'kept' } },
  }
  for (const [what, { more, repair, sent }] of Object.entries(asked))
    it(`so that ${what} no longer fit pauses its webhook, and nothing is lost`, async () => {
      await made('part')
      const to = await receiver()
      const { id } = await make(to, { collections: ['part'], name: 'of n', ...more })
      expect((await api.admin('DELETE', '/schemas/part/fields/n')).status).toBe(200)
      await api.admin('POST', '/items/part', { id: 1, title: 'kept' })
      await waitFor(async () => (await placeOf(id)).state === 'paused')
      expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({
        status: 'paused',
        reason: expect.stringMatching(/^it cannot see what it follows any more: .*\bn\b/),
      })
      expect(await api.sql(`select title from "svc_Notification" where type = 'webhook'`)).toEqual([
        { title: 'The webhook of n is paused' },
      ])
      expect(await api.jobs('mail')).toHaveLength(1)
      expect((await api.admin('PATCH', `/webhooks/${id}`, { status: 'active' })).status).toBe(400)
      expect((await api.admin('PATCH', `/webhooks/${id}`, { ...repair, status: 'active' })).status).toBe(200)
      await waitFor(() => told(to).length === 1)
      expect(told(to)).toEqual([['part', 1, sent]])
      await api.sql('delete from "svc_Notification"; delete from pgboss.job')
      await dropped('part')
    })

  it('after its change was noted has the delivery wait as well', async () => {
    await made('late')
    const to = await receiver()
    const { id } = await make(to, { collections: ['late'], fields: ['id', 'n'] })
    to.answer = (_request, response) => response.writeHead(503, { 'retry-after': '3600' }).end()
    await api.admin('POST', '/items/late', { id: 1, n: 5 })
    await waitFor(async () => (await deliveries(id)).find(({ responseStatus }) => responseStatus === 503))
    // By another process: only the delivery itself can notice.
    await service.stop(5000)
    expect((await api.admin('DELETE', '/schemas/late/fields/n')).status).toBe(200)
    await api.sql(`update "svc_WebhookDelivery" set "nextAt" = now() where status = 'pending'`)
    const none = new AbortController().signal
    await deliverTo(api.runtime, id, { stopping: none, ending: none })
    expect((await placeOf(id)).state).toBe('paused')
    expect(await deliveries(id)).toMatchObject([{ status: 'pending' }])
    to.answer = (_request, response) => response.writeHead(204).end()
    service = await openWebhooks(api.runtime)
    await api.admin('PATCH', `/webhooks/${id}`, { fields: ['id'], status: 'active' })
    await waitFor(() => told(to).length === 1)
    expect(told(to)).toEqual([['late', 1, { id: 1 }]])
    await api.sql('delete from "svc_Notification"; delete from pgboss.job')
    await dropped('late')
  })
})

describe('an endpoint', () => {
  it('that fails is tried again, with the order per record kept and others not held back', async () => {
    const to = await receiver()
    const { id, secret } = await make(to)
    let isDown = true
    to.answer = ({ body }, response) =>
      isDown && body.id === 1 ? response.writeHead(500).end(`no: ${secret}`) : response.writeHead(200).end('ok')
    await api.sql(`insert into "order" (id, state) values (1, 'a')`)
    await api.sql(`update "order" set state = 'b' where id = 1`)
    await api.sql(`insert into "order" (id, state) values (2, 'c')`)
    await waitFor(() => to.accepted.length === 1)
    const failed = await waitFor(async () =>
      (await deliveries(id)).find(({ responseStatus }) => responseStatus === 500),
    )
    expect(failed).toMatchObject({
      status: 'pending',
      attempts: 1,
      response: 'no: ********',
      error: 'the endpoint answered 500',
    })
    expect(Date.parse(failed.nextAt) - Date.now()).toBeGreaterThan(1000)
    expect(to.received.filter(({ body }) => body.id === 1)).toHaveLength(1)
    isDown = false
    await api.sql(`update "svc_WebhookDelivery" set "nextAt" = now()`)
    await waitFor(() => to.accepted.length === 3)
    expect(brief(to)).toEqual([
      ['create', 2, 'c'],
      ['create', 1, 'a'],
      ['update', 1, 'b'],
    ])
    expect(await api.sql('select * from "svc_WebhookFailing"')).toEqual([])
  })

  it('that hangs delays no other: 1,000 changes arrive elsewhere meanwhile, each once', async () => {
    const [hanging, quick] = [await receiver(), await receiver()]
    hanging.answer = () => undefined
    await make(hanging)
    await make(quick)
    await api.sql(`insert into "order" (id) select generate_series(1, 1000)`)
    await waitFor(() => quick.accepted.length === 1000)
    expect(new Set(quick.accepted.map(({ id }) => id)).size).toBe(1000)
    expect(hanging.accepted).toEqual([])
    expect(hanging.received.length).toBeGreaterThan(0)
  })

  it('that is gone, or was not reached for a day, pauses its webhook and tells the owner', async () => {
    const to = await receiver()
    const { id } = await make(to, { name: 'to nowhere' })
    to.answer = (_request, response) => response.writeHead(500).end()
    await api.sql(`insert into "svc_WebhookFailing" values ($1, now() - interval '25 hours')`, [id])
    await api.admin('POST', `/webhooks/${id}/test`)
    await waitFor(async () => (await placeOf(id)).state === 'paused')
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({
      ...{ status: 'paused', reason: 'nothing has reached the endpoint for a day' },
    })
    expect(await api.sql(`select title from "svc_Notification" where type = 'webhook'`)).toEqual([
      { title: 'The webhook to nowhere is paused' },
    ])
    expect(await api.jobs('mail')).toHaveLength(1)
    await api.sql('delete from "svc_Notification"')
  })

  it('that sends us elsewhere is not followed', async () => {
    const [to, elsewhere] = [await receiver(), await receiver()]
    const { id } = await make(to)
    to.answer = (_request, response) => response.writeHead(307, { location: elsewhere.url }).end()
    await api.admin('POST', `/webhooks/${id}/test`)
    await waitFor(async () => (await deliveries(id))[0]?.responseStatus === 307)
    expect(elsewhere.received).toEqual([])
  })
})

describe('an answer of 2xx is a delivery', () => {
  const bodies: [string, Receiver['answer'], string | null][] = [
    ['that never ends', (_request, response) => response.writeHead(200).write('the beginning'), 'the beginning'],
    ['that never begins', (_request, response) => response.writeHead(200).flushHeaders(), ''],
    [
      'that breaks off',
      (_request, response) =>
        response.writeHead(200, { 'content-length': '100' }).write('the beginning', () => response.destroy()),
      'the beginning',
    ],
    [
      'without an end that is large',
      (_request, response) => response.writeHead(200).write('x'.repeat(100_000)),
      'x'.repeat(8192),
    ],
  ]
  it.each(bodies)('with a body %s', async (_what, answer, response) => {
    const to = await receiver()
    const { id } = await make(to)
    to.answer = answer
    await api.admin('POST', `/webhooks/${id}/test`)
    const [one, ...more] = await waitFor(async () => {
      const all = await deliveries(id)
      return all[0]?.attempts === 1 && all[0].durationMs !== null && all
    })
    expect(one).toMatchObject({ status: 'delivered', responseStatus: 200, response, error: null, attempts: 1 })
    expect(more).toEqual([])
    expect(to.received).toHaveLength(1)
  })
})

describe('simultaneous changes', () => {
  it('of different members are all kept', async () => {
    const to = await receiver()
    const { id } = await make(to)
    const before = await api.position()
    const change = (members: object) => () => api.admin('PATCH', `/webhooks/${id}`, members)
    const answers = await inTurn(api, { table: 'svc_Webhook', id }, [
      change({ name: 'another' }),
      change({ actions: ['create'] }),
      change({ fields: ['id'] }),
    ])
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
    const changed = { name: 'another', actions: ['create'], fields: ['id'], url: to.url }
    expect(answers.map(({ body }) => body.data)).toContainEqual(expect.objectContaining(changed))
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject(changed)
    const facts = (await api.log(before)).map(({ entity, action }) => `${entity} ${action}`)
    expect(facts).toEqual(Array(3).fill('svc_Webhook update'))
  })

  it('of which the first ends the webhook leave none', async () => {
    const { id } = await make(await receiver())
    const answers = await inTurn(api, { table: 'svc_Webhook', id }, [
      () => api.admin('DELETE', `/webhooks/${id}`),
      () => api.admin('PATCH', `/webhooks/${id}`, { name: 'another' }),
    ])
    expect(answers.map(({ status }) => status)).toEqual([204, 404])
  })
})

describe('rights', () => {
  it('withdrawn between a change and its delivery withhold it', async () => {
    const to = await receiver()
    const { roleId } = await api.user([{ collection: 'order', action: 'read', fields: '*' }])
    const { id } = await make(to, { role_Id: roleId })
    to.answer = (_request, response) => response.writeHead(503, { 'retry-after': '3600' }).end()
    await api.sql(`insert into "order" (id, secret) values (1, 'x')`)
    const waiting = await waitFor(async () =>
      (await deliveries(id)).find(({ responseStatus }) => responseStatus === 503),
    )
    expect(Date.parse(waiting.nextAt) - Date.now()).toBeGreaterThan(3_000_000)
    const asked = to.received.length
    await api.sql(`delete from "svc_Permission" where "role_Id" = $1`, [roleId])
    await api.runtime.access.reload()
    await api.sql(`update "svc_WebhookDelivery" set "nextAt" = now() where status = 'pending'`)
    await waitFor(async () => (await deliveries(id)).some(({ status }) => status === 'withheld'))
    expect(to.received.slice(asked).filter(({ body }) => body.type === 'change')).toEqual([])
  })

  it('to webhooks are those to svc_Webhook: a role has its own, with itself', async () => {
    const to = await receiver()
    const all = ['create', 'read', 'update', 'delete'].map((action) => ({
      collection: 'svc_Webhook',
      action,
      fields: '*',
    }))
    const read = { collection: 'order', action: 'read', fields: ['id'] }
    const [owner, other, stranger] = [
      await api.user([...all, read]),
      await api.user([...all, read]),
      await api.user([read]),
    ]
    const { id } = await make(to, {}, owner.call)
    await api.sql(`insert into "order" (id, secret) values (1, 'x')`)
    await waitFor(() => to.accepted.length === 1)
    expect(to.accepted[0]!.body.data).toEqual({ id: 1 })
    expect((await other.call('GET', `/webhooks/${id}`)).status).toBe(404)
    expect((await other.call('GET', '/webhooks')).body.data).toEqual([])
    expect((await stranger.call('GET', '/webhooks')).status).toBe(403)
    expect((await api.anonymous('GET', '/webhooks')).status).toBe(401)
    const { body: roles } = await api.admin('GET', '/items/svc_Role?filter={"name":"administrator"}')
    const wanted = { name: 'w', url: to.url, collections: ['order'], role_Id: roles.data[0].id }
    expect((await owner.call('POST', '/webhooks', wanted)).status).toBe(403)
    // Its owner loses the role: nothing is sent any more.
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [owner.id])
    await api.sql(`insert into "order" (id) values (2)`)
    await waitFor(async () => (await placeOf(id)).state === 'paused')
    expect(to.accepted).toHaveLength(1)
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data.reason).toMatch(/may not assign its role/)
    await waitFor(async () => (await deliveries(id))[0]?.attempts === 0)
  })

  it('are needed for a secret that is repeated under an Idempotency-Key, and it is not kept in clear', async () => {
    const to = await receiver()
    const wanted = { name: 'w', url: to.url, collections: ['order'] }
    const create = () => api.admin('POST', '/webhooks', wanted, { 'idempotency-key': 'a-webhook' })
    const made = await create()
    const { id, secret } = made.body.data
    const rotate = () => api.admin('POST', `/webhooks/${id}/rotate`, undefined, { 'idempotency-key': 'a-rotation' })
    const rotated = await rotate()
    const stored = await api.sql('select * from "svc_IdempotencyKey" order by key')
    expect(stored).toMatchObject([
      {
        key: 'a-rotation',
        status: 200,
        result: expect.stringMatching(/^sealed:/),
        body: expect.stringMatching(/^sealed:/),
      },
      {
        key: 'a-webhook',
        status: 201,
        result: expect.stringMatching(/^sealed:/),
        body: expect.stringMatching(/^sealed:/),
      },
    ])
    for (const one of [secret, rotated.body.data.secret]) expect(JSON.stringify(stored)).not.toContain(one)
    const before = await api.position()
    expect(await create()).toMatchObject({ status: 201, text: made.text, headers: { 'idempotent-replayed': 'true' } })
    expect(await rotate()).toMatchObject({ status: 200, text: rotated.text })
    // As after a crash between the commit and the storing of the answer: the answer is made of the result.
    await api.sql(`update "svc_IdempotencyKey" set status = null, body = null`)
    expect(await create()).toMatchObject({ status: 201, text: made.text })
    const reused = await api.admin('POST', '/webhooks', { ...wanted, name: 'x' }, { 'idempotency-key': 'a-webhook' })
    expect(reused).toMatchObject({ status: 409, body: { error: { code: 'IDEMPOTENCY_KEY_REUSED' } } })
    expect(await api.log(before)).toEqual([])
    await api.sql(`update "svc_IdempotencyKey" set body = result where key = 'a-rotation'; update "svc_IdempotencyKey" k
      set status = 201, body = (select result from "svc_IdempotencyKey" where key = 'a-rotation') where key = 'a-webhook'`)
    expect(await create()).toMatchObject({ status: 409, body: { error: { code: 'IDEMPOTENCY_ANSWER_LOST' } } })
    await api.sql('delete from "svc_IdempotencyKey"')
  })

  it.each([
    [{ collections: ['nothing'] }, 404],
    [{ collections: [] }, 400],
    [{ collections: ['svc_Sessions'] }, 400],
    [{ filter: { nothing: { eq: 1 } } }, 400],
    [{ fields: ['nothing'] }, 400],
    [{ filter: { id: { eq: '$CURRENT_USER' } } }, 400],
    [{ actions: ['steal'] }, 400],
    [{ url: 'file:///etc/passwd' }, 400],
    [{ url: 'https://user:pass@example.com' }, 400],
    [{ url: 'no url' }, 400],
    [{ url: 'http://example.com:0/' }, 400],
    [{ secret: 'whsec_chosen' }, 400],
    [{ role_Id: crypto.randomUUID() }, 403],
  ])('are no help to %j', async (wrong, expected) => {
    const position = await api.position()
    const { status, text } = await api.admin('POST', '/webhooks', {
      ...{ name: 'w', url: 'https://example.com/', collections: ['order'] },
      ...wrong,
    })
    expect(status, text).toBe(expected)
    expect(await api.position()).toBe(position)
    expect(await api.sql('select name from svc_log.consumer')).toEqual([])
  })
})

it('refuses requests that name no webhook, no delivery and no place, and nothing moves', async () => {
  const to = await receiver()
  const { id } = await make(to)
  const none = crypto.randomUUID()
  const statuses = async (...asked: [string, string, object?][]) =>
    Promise.all(asked.map(async ([method, path, body]) => (await api.admin(method, `/webhooks/${path}`, body)).status))
  expect(
    await statuses(
      ['GET', 'x'],
      ['GET', none],
      ['POST', 'x/test', {}],
      ['GET', `${id}/deliveries/x`],
      ['POST', `${id}/deliveries/x/redeliver`, {}],
      ['POST', `${id}/deliveries/${none}/redeliver`, {}],
    ),
  ).toEqual(Array(6).fill(404))
  expect(
    await statuses(
      ['PATCH', id, { secret: 'x' }],
      ['POST', `${id}/replay`, {}],
      ['POST', `${id}/replay`, { since: 'x' }],
      ['POST', `${id}/replay`, { since: '2926-03-14T09:26:53Z' }],
    ),
  ).toEqual(Array(4).fill(400))
  await api.sql(`insert into "order" (id) values (1)`)
  await waitFor(() => to.accepted.length === 1)
})

it('a loop of webhooks comes to an end', async () => {
  const to = await receiver()
  await make(to)
  // A receiver that writes what it is told of, and passes the cause on.
  to.answer = async ({ body, headers }, response) => {
    const cause = { 'daybook-cause': headers['daybook-cause']! }
    const { status } = await api.admin('PATCH', `/items/order/${body.id}`, { state: `${Math.random()}` }, cause)
    statuses.push(status)
    response.writeHead(200).end()
  }
  const statuses: number[] = []
  await api.admin('POST', '/items/order', { id: 1, state: 'a' })
  await waitFor(() => statuses.includes(409))
  expect(statuses).toEqual([...Array(8).fill(200), 409])
  const [{ cause }] = await api.sql('select cause from "svc_AuditLog" order by position desc limit 1')
  expect(cause).toMatchObject({ depth: 8, by: 'webhook' })
  expect((await api.admin('GET', '/items/order', undefined, { 'daybook-cause': 'x' })).status).toBe(400)
})

describe('verdicts on an answer', () => {
  const outcome = (status: number | undefined, attempts: number, more: object = {}) =>
    verdictOn({ status, retryAfterMs: undefined, ...more }, { attempts, ageMs: 0, chance: 0.5, ...more })

  it('is the end, or another attempt, ever later, for three days', () => {
    expect(outcome(204, 1)).toEqual({ status: 'delivered', inMs: 0 })
    expect([1, 2, 3, 4].map((n) => outcome(500, n).inMs)).toEqual([5000, 20_000, 80_000, 320_000])
    expect(outcome(undefined, 20).inMs).toBe(6 * 3_600_000)
    expect([0, 1].map((chance) => outcome(500, 1, { chance }).inMs)).toEqual([3750, 6250])
    expect(outcome(500, 20, { ageMs: 3 * 86_400_000 })).toEqual({ status: 'dead', inMs: 0 })
    expect(outcome(302, 1).status).toBe('pending')
  })

  it('is how many are claimed ahead: what is sent within half a second', () => {
    expect([0.1, 5, 100, 400, 10_000].map(aheadOf)).toEqual([128, 128, 40, 10, 8])
  })

  it('waits as long as it is asked to, a day at most', () => {
    expect(outcome(503, 1, { retryAfterMs: 60_000 }).inMs).toBe(60_000)
    expect(outcome(429, 1, { retryAfterMs: 1e12 }).inMs).toBe(86_400_000)
    expect(retryAfterOf('120', 0)).toBe(120_000)
    expect(retryAfterOf('Thu, 01 Jan 1970 00:01:00 GMT', 0)).toBe(60_000)
    expect(retryAfterOf('soon', 0)).toBeUndefined()
  })
})

describe('addresses of our own network', () => {
  it('are refused when a webhook is made, and when something is sent', async () => {
    const to = await receiver()
    const strict = await startApi()
    await strict.admin('POST', '/schemas', {
      ...{ collectionName: 'order', schema: { fields: { id: { type: 'Integer', primaryKey: true } } } },
    })
    for (const url of [
      to.url,
      'http://localhost/',
      'http://[::1]/',
      'http://169.254.169.254/latest',
      'http://10.0.0.1/',
    ])
      expect([
        url,
        (await strict.admin('POST', '/webhooks', { name: 'w', url, collections: ['order'] })).status,
      ]).toEqual([...[url, 400]])
    const { body } = await strict.admin('POST', '/webhooks', {
      ...{ name: 'w', url: 'http://harmless.example/', collections: ['order'] },
    })
    const own = await openWebhooks(strict.runtime)
    try {
      // A name that leads here by now.
      const port = new URL(to.url).port
      await strict.sql('update "svc_Webhook" set url = $1', [`http://localhost:${port}/`])
      await strict.admin('POST', `/webhooks/${body.data.id}/test`)
      const refused = await waitFor(async () => {
        const { body: list } = await strict.admin('GET', `/webhooks/${body.data.id}/deliveries`)
        return list.data.find(({ error }: any) => error !== null)
      })
      expect(refused).toMatchObject({ status: 'pending', error: 'The URL leads to an address that is not allowed' })
      expect(to.received).toEqual([])
    } finally {
      await own.stop(5000)
    }
  })
})

describe('the limit of webhooks', () => {
  it('holds for those that one user makes at the same moment', async () => {
    const to = await receiver()
    const post = (name: string) => api.admin('POST', '/webhooks', { name, url: to.url, collections: ['order'] })
    expect((await post('first')).status).toBe(201)
    await api.sql(`
      insert into "svc_Webhook" (id, name, url, collections, "role_Id", "user_Id", secret)
      select gen_random_uuid(), 'w', url, collections, "role_Id", "user_Id", secret from "svc_Webhook", generate_series(1, 47)`)
    const answers = await Promise.all(['a', 'b', 'c', 'd', 'e'].map(post))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([201, 201, 400, 400, 400])
    expect(answers.find(({ status }) => status === 400)!.text).toContain('At most 50 webhooks')
    expect(await api.sql('select count(*)::int as count from "svc_Webhook"')).toEqual([{ count: 50 }])
  })
})
