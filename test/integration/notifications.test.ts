import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { connect } from '../support/socket.ts'
import { createRole, createTenant, createUser } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

type User = Awaited<ReturnType<Api['user']>>

let api: Api
let address: string
let anna: User
let bert: User

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  anna = await api.user()
  bert = await api.user()
})

const hello = { type: 'info', title: 'Hello', message: 'Something has happened' }

async function send(userIds: readonly string[], more: object = {}): Promise<string[]> {
  const sent = await api.admin('POST', '/notifications/send', { ...hello, userIds, ...more })
  expect(sent).toMatchObject({ status: 200, body: { message: 'Notifications sent successfully' } })
  return sent.body.notificationIds
}

const titles = async ({ call }: Pick<User, 'call'>, query = '') =>
  (await call('GET', `/notifications${query}`)).body.data.map(({ title }: { title: string }) => title)

const unread = async ({ call }: Pick<User, 'call'>) => (await call('GET', '/notifications/unread/count')).body

describe('sending', () => {
  it('creates one row per user, logged with its sender, and no job', async () => {
    const before = await api.position()
    const ids = await send([bert.id, anna.id.toUpperCase(), bert.id], { title: 'Both', data: { order: 7 } })
    expect(ids).toHaveLength(2)
    const rows = await api.sql('select * from "svc_Notification" where id = any($1) order by "userId" = $2', [
      ids,
      anna.id,
    ])
    expect(rows).toMatchObject([
      { id: ids[0], userId: bert.id, title: 'Both', seen: false, data: { order: 7 }, tenant_Id: null },
      { id: ids[1], userId: anna.id },
    ])
    const log = (await api.log(before)).filter(({ entity }) => entity === 'svc_Notification')
    expect(log.map(({ action, entityId }) => [action, entityId]).sort()).toEqual(ids.map((id) => ['create', id]).sort())
    expect(new Set(log.map(({ userId }) => userId)).size).toBe(1)
    expect(log[0]!.userId).not.toBeNull()
    expect((await api.log(before)).length).toBe(2)
    expect(await api.jobs('mail')).toEqual([])
  })

  it.each([
    ['no body', undefined, 'Request body must be an object'],
    ['a list', [], 'Request body must be an object'],
    ['no type', { type: '' }, 'type is required'],
    ['a title that is no text', { title: 7 }, 'title is required'],
    ['no message', { message: null }, 'message is required'],
    ['a long title', { title: 'x'.repeat(256) }, 'title must be at most 255 characters long'],
    ['a NUL', { title: 'a\0b' }, 'title must be valid Unicode text'],
    ['no users', { userIds: [] }, 'userIds is required and must be a non-empty array'],
    ['users that are no ids', { userIds: ['x'] }, 'userIds must be ids of users'],
    ['too many users', { userIds: Array.from({ length: 1001 }, () => randomUUID()) }, 'userIds must be at most 1000'],
    ['unknown users', { userIds: [randomUUID()] }, 'userIds: unknown users'],
    ['an unknown tenant', { tenant_Id: randomUUID() }, 'tenant_Id: unknown tenant'],
    ['a tenant that is no id', { tenant_Id: 'x' }, 'tenant_Id must be the id of a tenant'],
    ['large data', { data: 'x'.repeat(20_000) }, 'data must be at most 16384 characters of JSON'],
  ])('is refused with %s, and nothing is written', async (_what, changed, message) => {
    const before = await api.position()
    const body =
      Array.isArray(changed) || changed === undefined ? changed : { ...hello, userIds: [anna.id], ...changed }
    const refused = await api.admin('POST', '/notifications/send', body)
    expect(refused).toMatchObject({ status: 400, body: { error: { message } } })
    expect(await api.position()).toBe(before)
  })

  it('is for administrators', async () => {
    for (const path of ['/notifications/send', '/notifications/cleanup']) {
      expect((await anna.call('POST', path, { ...hello, userIds: [anna.id] })).status).toBe(403)
      expect((await api.anonymous('POST', path, {})).status).toBe(401)
    }
  })
})

describe('the own notifications', () => {
  it('are all that anybody lists and counts, administrators too, the newest first', async () => {
    const carl = await api.user()
    for (const title of ['first', 'second', 'third']) await send([carl.id], { title })
    expect(await titles(carl)).toEqual(['third', 'second', 'first'])
    expect(await titles(carl, '?sort=title&limit=2&fields=title')).toEqual(['first', 'second'])
    expect((await carl.call('GET', '/notifications?limit=1')).body).toMatchObject({ totalCount: 3 })
    expect(await titles(carl, `?filter=${JSON.stringify({ userId: anna.id })}`)).toEqual([])
    expect(await titles(carl, `?filter=${JSON.stringify({ OR: [{ userId: anna.id }, { title: 'first' }] })}`)).toEqual([
      'first',
    ])
    expect(await unread(carl)).toEqual({ count: 3 })
    expect((await api.admin('GET', '/notifications')).body).toEqual({ data: [], totalCount: 0 })
    expect(await unread({ call: api.admin })).toEqual({ count: 0 })
    expect((await carl.call('GET', '/notifications?filter=[')).status).toBe(400)
    expect((await api.anonymous('GET', '/notifications')).status).toBe(401)
  })

  it('stay everybody’s own when all ask the same again and again, of this route and of the collection', async () => {
    const role = await createRole(api, { isTenantSpecific: false })
    const [gina, hugo] = [await createUser(api, role, null), await createUser(api, role, null)]
    await send([gina.id], { title: 'for Gina' })
    await send([hugo.id], { title: 'for Hugo' })
    const query = '?sort=-createdAt&fields=title'
    const all = async () => (await api.admin('GET', `/items/svc_Notification${query}`)).body.data.length
    for (const _ of [1, 2, 3]) {
      expect(await titles(gina, query)).toEqual(['for Gina'])
      expect(await titles(hugo, query)).toEqual(['for Hugo'])
      expect(await titles({ call: api.admin }, query)).toEqual([])
      expect(await all()).toBeGreaterThan(1)
    }
  })

  it('are marked as seen by id, then all; others stay as they are', async () => {
    const dora = await api.user()
    const [one, two, three] = await Promise.all([1, 2, 3].map(async () => (await send([dora.id]))[0]!))
    const [foreign] = await send([anna.id])
    const before = await api.position()
    const mark = (body?: object) => dora.call('POST', '/notifications/mark-seen', body)
    expect((await mark({ notificationIds: [one, foreign, randomUUID()] })).body).toEqual({
      message: 'Notifications marked as seen',
      count: 1,
    })
    expect((await mark({ notificationIds: [one] })).body).toMatchObject({ count: 0 })
    expect((await mark({ notificationIds: [] })).body).toMatchObject({ count: 0 })
    expect(await unread(dora)).toEqual({ count: 2 })
    expect((await mark()).body).toMatchObject({ count: 2 })
    expect(await unread(dora)).toEqual({ count: 0 })
    expect((await api.sql('select seen from "svc_Notification" where id = $1', [foreign]))[0]).toEqual({ seen: false })
    const log = (await api.log(before)).filter(({ entity }) => entity === 'svc_Notification')
    expect(log.map(({ action, entityId, userId }) => [action, entityId, userId]).sort()).toEqual(
      [one, two, three].map((id) => ['update', id, dora.id]).sort(),
    )
    for (const notificationIds of ['x', ['x'], {}, [1]])
      expect((await mark({ notificationIds })).body).toMatchObject({
        error: { message: 'notificationIds must be an array of ids' },
      })
  })

  it('are deleted by ids in the body or the query, or all; malformed ids delete nothing', async () => {
    const emil = await api.user()
    const ids = await Promise.all([1, 2, 3, 4, 5].map(async () => (await send([emil.id]))[0]!))
    const [foreign] = await send([anna.id])
    const remove = (query = '', body?: object) => emil.call('DELETE', `/notifications${query}`, body)
    for (const query of ['?notificationIds=', '?notificationIds=[', '?notificationIds=x', '?notificationIds[a]=b'])
      expect((await remove(query)).status).toBe(400)
    expect((await remove('', { notificationIds: 'all' })).status).toBe(400)
    expect((await remove('', { notificationIds: [ids[0], foreign] })).body).toEqual({
      message: 'Notifications deleted',
      count: 1,
    })
    expect((await remove(`?notificationIds=["${ids[1]}"]`)).body).toMatchObject({ count: 1 })
    expect((await remove(`?notificationIds=${ids[2]}&notificationIds=${foreign}`)).body).toMatchObject({ count: 1 })
    expect((await remove(`?notificationIds[]=${ids[3]}`)).body).toMatchObject({ count: 1 })
    const before = await api.position()
    expect((await remove()).body).toMatchObject({ count: 1 })
    expect((await api.log(before)).map(({ action, entityId }) => [action, entityId])).toEqual([['delete', ids[4]]])
    expect(await api.sql('select id from "svc_Notification" where id = $1', [foreign])).toHaveLength(1)
  })

  it('are cleaned up when they are old, by an administrator', async () => {
    const [old] = await send([anna.id], { title: 'old' })
    const [young] = await send([anna.id], { title: 'young' })
    await api.sql(`update "svc_Notification" set "createdAt" = now() - interval '31 days' where id = $1`, [old])
    for (const days of [0, -1, 1.5, '30', 1e9])
      expect((await api.admin('POST', '/notifications/cleanup', { days })).status).toBe(400)
    expect((await api.admin('POST', '/notifications/cleanup', { days: 40 })).body).toMatchObject({ count: 0 })
    const done = await api.admin('POST', '/notifications/cleanup')
    expect(done.body).toEqual({ message: 'Old notifications cleaned up', count: 1 })
    expect((await api.sql('select id from "svc_Notification" where id = any($1)', [[old, young]])).length).toBe(1)
  })
})

describe('live', () => {
  it('arrive at their user alone, who needs no permission for the collection', async () => {
    const sockets = await Promise.all([anna, bert].map(({ token }) => connect(address, token)))
    for (const socket of sockets)
      expect(await socket.subscribe('svc_Notification')).toMatchObject({ status: 'success' })
    const [forAnna] = await send([anna.id], { title: 'for Anna', data: { a: [1] } })
    const [forBert] = await send([bert.id], { title: 'for Bert' })
    const [atAnna, atBert] = sockets as [(typeof sockets)[0], (typeof sockets)[0]]
    await atAnna.frame(({ data }) => data.id === forAnna)
    await atBert.frame(({ data }) => data.id === forBert)
    await anna.call('POST', '/notifications/mark-seen', { notificationIds: [forAnna] })
    await anna.call('DELETE', '/notifications', { notificationIds: [forAnna] })
    await atAnna.frame(({ action }) => action === 'delete')
    expect(atAnna.frames.map(({ name, data }) => [name, data.id])).toEqual([
      ['svc_Notification:create', forAnna],
      ['svc_Notification:update', forAnna],
      ['svc_Notification:delete', forAnna],
    ])
    expect(atAnna.frames[0]!.data).toMatchObject({ title: 'for Anna', data: { a: [1] }, seen: false })
    expect(atBert.frames.map(({ data }) => data.id)).toEqual([forBert])
  })

  it('arrive at those who may read only their own by a permission, without REALTIME_ROW_LEVEL_SCOPING', async () => {
    const conditions = { userId: { eq: '$CURRENT_USER' } }
    const fritz = await api.user([{ collection: 'svc_Notification', action: 'read', fields: '*', conditions }])
    const socket = await connect(address, fritz.token)
    await socket.subscribe('svc_Notification')
    await send([anna.id])
    const [own] = await send([fritz.id])
    await waitFor(() => socket.frames.length > 0)
    expect(socket.frames.map(({ data }) => data.id)).toEqual([own])
  })
})

describe('tenants', () => {
  it('keep notifications apart; those without a tenant are shown in all', async () => {
    const tenants = await startApi({ MULTI_TENANT: 'true' })
    const [here, there] = await Promise.all(['here', 'there'].map((name) => createTenant(tenants, name)))
    const user = await createUser(tenants, await createRole(tenants, { isTenantSpecific: true }), here!)
    for (const [title, tenant_Id] of [
      ['here', here],
      ['there', there],
      ['anywhere', null],
    ])
      expect(
        (await tenants.admin('POST', '/notifications/send', { ...hello, title, tenant_Id, userIds: [user.id] })).status,
      ).toBe(200)
    expect((await titles(user)).sort()).toEqual(['anywhere', 'here'])
    expect(await unread(user)).toEqual({ count: 2 })
    expect((await user.call('POST', '/notifications/mark-seen')).body).toMatchObject({ count: 2 })
    expect((await user.call('DELETE', '/notifications')).body).toMatchObject({ count: 2 })
    expect(await tenants.sql('select title, seen from "svc_Notification"')).toEqual([{ title: 'there', seen: false }])
  })
})
