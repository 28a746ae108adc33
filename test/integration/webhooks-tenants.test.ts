import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { openWebhooks } from '../../src/workers/webhooks.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let service: Awaited<ReturnType<typeof openWebhooks>>
let to: Receiver
let [A, B, owner, viewer]: string[] = []

const webhookRights = ['create', 'read', 'update', 'delete'].map((action) => ({
  collection: 'svc_Webhook',
  action,
  fields: ['*'],
}))
const readsEntries = { collection: 'entry', action: 'read', fields: ['*'] }

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true', SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' })
  await api.admin('POST', '/schemas', { collectionName: 'entry', schema: { fields: { name: { type: 'String' } } } })
  ;[A, B] = [await createTenant(api, 'A'), await createTenant(api, 'B')]
  ;[owner, viewer] = [await createRole(api), await createRole(api)]
  await grant(api, owner, ...webhookRights, readsEntries)
  await grant(api, viewer, readsEntries)
  service = await openWebhooks(api.runtime)
  to = await startReceiver()
})

afterEach(() => api.sql('delete from "svc_Webhook"; delete from svc_log.consumer'))
afterAll(async () => {
  await service?.stop(5000)
  await to?.close()
})

/** Owner of webhooks at B, and a viewer (or what is said) at A; signed in at each. */
async function somebody(atA: string = viewer!) {
  const user = await createUser(api, owner!, B!)
  await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [user.id, atA, A])
  const at = async (tenant_Id: string): Promise<Call> => {
    const { email } = user
    const { body } = await api.anonymous('POST', '/auth/login', { email, password: 'password of a user', tenant_Id })
    return api.as(body.token)
  }
  return { ...user, atA: await at(A!), atB: await at(B!) }
}

const wanted = (more: object = {}) => ({ name: 'w', url: to.url, collections: ['entry'], ...more })
const notFound = { status: 404, body: { error: { message: 'Webhook not found' } } }
const mayNot = {
  status: 403,
  body: { error: { message: 'You may not have a webhook see with this role at this tenant' } },
}
const story = async (after: bigint) => (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)

it('a webhook is made at the tenant of the session, by the rights that its role gives there', async () => {
  const user = await somebody()
  const before = await api.position()
  expect((await user.atA('POST', '/webhooks', wanted())).status).toBe(403)
  expect(await user.atB('POST', '/webhooks', wanted({ tenant_Id: A, role_Id: viewer }))).toMatchObject(mayNot)
  expect(await user.atB('POST', '/webhooks', wanted({ tenant_Id: null }))).toMatchObject(mayNot)
  expect(await story(before)).toEqual([])
  expect(await api.sql('select from svc_log.consumer')).toEqual([])
  const made = await user.atB('POST', '/webhooks', wanted())
  expect(made.status).toBe(201)
  const { id } = made.body.data
  expect((await user.atB('GET', `/webhooks/${id}`)).body.data).toMatchObject({ tenant_Id: B, role_Id: owner })
  expect(await user.atB('PATCH', `/webhooks/${id}`, { tenant_Id: A, role_Id: viewer })).toMatchObject(mayNot)
})

it('a webhook at another tenant is not there for a session, whoever owns it; an administrator reaches all', async () => {
  const user = await somebody(owner)
  const { id } = (await user.atA('POST', '/webhooks', wanted())).body.data
  const other = (await user.atB('POST', '/webhooks', wanted())).body.data
  await api.admin('POST', `/webhooks/${id}/test`)
  const [delivery] = await waitFor(async () => {
    const { data } = (await api.admin('GET', `/webhooks/${id}/deliveries`)).body
    return data[0]?.status === 'delivered' && data
  })
  const before = await api.position()
  const requests: [string, string, object?][] = [
    ['GET', ''],
    ['PATCH', '', { name: 'x' }],
    ['DELETE', ''],
    ['POST', '/rotate'],
    ['POST', '/test'],
    ['POST', '/replay', { since: 'beginning' }],
    ['GET', '/deliveries'],
    ['GET', `/deliveries/${delivery.id}`],
    ['POST', `/deliveries/${delivery.id}/redeliver`],
  ]
  for (const [method, path, body] of requests)
    expect([method, path, await user.atB(method, `/webhooks/${id}${path}`, body)]).toMatchObject([
      method,
      path,
      notFound,
    ])
  expect(await story(before)).toEqual([])
  const idsIn = async (call: Call) => (await call('GET', '/webhooks')).body.data.map((one: any) => one.id).sort()
  expect(await idsIn(user.atA)).toEqual([id])
  expect(await idsIn(user.atB)).toEqual([other.id])
  expect(await idsIn(api.admin)).toEqual([id, other.id].sort())
  expect((await api.admin('PATCH', `/webhooks/${id}`, { name: 'x' })).status).toBe(200)
  expect((await user.atA('DELETE', `/webhooks/${id}`)).status).toBe(204)
})

it('a webhook whose owner has no rights to webhooks at its tenant any more is paused, and sends nothing', async () => {
  const user = await somebody(owner)
  const { id } = (await user.atA('POST', '/webhooks', wanted())).body.data
  await waitFor(async () => (await api.sql('select token from svc_log.consumer'))[0]?.token)
  const received = to.received.length
  await api.sql('update "svc_UserRole" set "role_Id" = $3 where "user_Id" = $1 and "tenant_Id" = $2', [
    user.id,
    A,
    viewer,
  ])
  // Its role still reads the entries: what the owner may assign is not what the owner has lost.
  await api.sql('update "svc_Webhook" set "role_Id" = $2 where id = $1', [id, viewer])
  await api.admin('POST', '/items/entry', { name: 'of A', tenant_Id: A })
  const paused = await waitFor(async () => {
    const { data } = (await api.admin('GET', `/webhooks/${id}`)).body
    return data.status === 'paused' && data
  })
  expect(paused.reason).toBe('its owner has no rights to webhooks any more')
  expect(to.received).toHaveLength(received)
  expect(await api.sql(`select type from "svc_Notification" where "userId" = $1`, [user.id])).toEqual([
    { type: 'webhook' },
  ])
  expect(await api.jobs('mail')).toHaveLength(1)
  expect(await api.admin('PATCH', `/webhooks/${id}`, { status: 'active' })).toMatchObject(mayNot)
})
