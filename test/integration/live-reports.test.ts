import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { pullAll } from '../support/changes.ts'
import { administrator } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { connect, type TestSocket } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let address: string
let token: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  await api.admin('POST', '/schemas', { collectionName: 'shop', schema: { fields: { name: { type: 'String' } } } })
  await api.admin('POST', '/schemas', {
    collectionName: 'sale',
    schema: {
      fields: {
        amount: { type: 'Integer' },
        owner: { type: 'String' },
        shop: { relType: 'BelongsTo', target: 'shop', foreignKey: 'shop_Id' },
      },
    },
  })
  await api.admin('POST', '/schemas', { collectionName: 'noise', schema: { fields: { n: { type: 'Integer' } } } })
})

const total = { collection: 'sale', aggregate: { sum: { function: 'sum', field: 'amount' } } }
const create = async (collection: string, row: object): Promise<string> =>
  (await api.admin('POST', `/items/${collection}`, row)).body.data.id
const sumIn = ({ data }: { data: any[] }) => Number(data[0]?.sum ?? 0)
const pushes = ({ notices }: TestSocket, id: string) =>
  notices.filter(({ name }) => name === `report:${id}`).map(({ body }) => body)
const pushed = (client: TestSocket, id: string, passes: (body: any) => boolean) =>
  waitFor(() => pushes(client, id).find(passes), { what: 'a pushed report' })
const login = async (email: string) =>
  (await api.anonymous('POST', '/auth/login', { email, password: 'password of a user' })).body.token

/** Waits until everything written before has been handed to the subscribers. */
async function untilHeard(client: TestSocket): Promise<void> {
  await client.subscribe('noise')
  const id = await create('noise', { n: 1 })
  await client.frame(({ data }) => data.id === id)
}

describe('a live report', () => {
  it('is answered at once, and again whenever a commit has changed it', async () => {
    const client = await connect(address, token)
    const first = await client.emit('report:subscribe', total)
    expect(first).toEqual({ status: 'success', id: expect.any(String), data: expect.any(Array), totalCount: 1 })
    const before = sumIn(first)
    await create('sale', { amount: 5 })
    const next = await pushed(client, first.id, (body) => sumIn(body) === before + 5)
    expect(next).toEqual({
      id: first.id,
      data: expect.any(Array),
      totalCount: 1,
      timestamp: expect.stringMatching(/^\d{4}-.*Z$/),
    })
    await api.sql('update sale set amount = amount + 1 where amount = 5')
    await pushed(client, first.id, (body) => sumIn(body) === before + 6)
    expect(await client.emit('report:unsubscribe', { id: first.id })).toEqual({ status: 'success' })
    await create('sale', { amount: 1 })
    const other = await client.emit('report:subscribe', total)
    expect(sumIn(other)).toBe(before + 7)
    await untilHeard(client)
    expect(pushes(client, first.id)).toHaveLength(2)
  })

  it('is not sent for what it does not read, nor when its result is the same', async () => {
    const client = await connect(address, token)
    const { id } = await client.emit('report:subscribe', { ...total, filter: { amount: { gt: 1000 } } })
    await create('noise', { n: 2 })
    await create('shop', { name: 'unread' })
    await create('sale', { amount: 2 })
    await create('sale', { amount: 2000 })
    await pushed(client, id, (body) => sumIn(body) === 2000)
    expect(pushes(client, id)).toHaveLength(1)
    await api.sql('delete from sale where amount = 2000')
  })

  it('follows the related collections that it reads', async () => {
    const shop = await create('shop', { name: 'before' })
    await create('sale', { amount: 1, shop_Id: shop })
    const client = await connect(address, token)
    const query = { collection: 'sale', fields: ['amount', 'shop.name'], filter: { shop_Id: shop } }
    const first = await client.emit('report:subscribe', query)
    expect(first.data).toEqual([expect.objectContaining({ shop: expect.objectContaining({ name: 'before' }) })])
    await api.admin('PATCH', `/items/shop/${shop}`, { name: 'after' })
    await pushed(client, first.id, ({ data }) => data[0].shop.name === 'after')
  })

  it('is sent at most four times a second, and ends with the last state', async () => {
    const client = await connect(address, token)
    const first = await client.emit('report:subscribe', total)
    let expected = sumIn(first)
    await waitFor(async () => {
      await api.sql('insert into sale (amount) values (1)')
      expected += 1
      return pushes(client, first.id).length >= 4
    })
    await pushed(client, first.id, (body) => sumIn(body) === expected)
    // By the server's clock, so that no delay on the way brings two of them together.
    const times = pushes(client, first.id).map(({ timestamp }) => Date.parse(timestamp))
    for (const [i, time] of times.slice(1).entries()) expect(time - times[i]!).toBeGreaterThanOrEqual(245)
  })

  it('shows each reader only what it may read, and ends when that is nothing any more', async () => {
    const user = await api.user([
      { collection: 'sale', action: 'read', fields: 'amount', conditions: { owner: '$CURRENT_USER' } },
    ])
    const client = await connect(address, await login(user.email))
    const first = await client.emit('report:subscribe', total)
    expect(sumIn(first)).toBe(0)
    await create('sale', { amount: 900, owner: 'somebody else' })
    await create('sale', { amount: 3, owner: user.id })
    await pushed(client, first.id, (body) => sumIn(body) === 3)
    expect(pushes(client, first.id).map(sumIn)).toEqual([3])
    await api.sql('update "svc_Permission" set conditions = \'{"amount":900}\' where "role_Id" = $1', [user.roleId])
    await api.admin('POST', '/permissions/reload')
    await pushed(client, first.id, (body) => sumIn(body) === 900)
    await api.sql('delete from "svc_Permission" where "role_Id" = $1', [user.roleId])
    await api.admin('POST', '/permissions/reload')
    const ended = await waitFor(() => client.notices.find(({ name }) => name === 'report:ended'))
    expect(ended.body).toEqual({ id: first.id, message: 'Insufficient permissions' })
    const sent = pushes(client, first.id).length
    await create('sale', { amount: 900, owner: user.id })
    const other = await connect(address, token)
    await untilHeard(other)
    expect(pushes(client, first.id)).toHaveLength(sent)
  })

  it('follows changes of its collection’s definition', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'shaped', schema: { fields: { n: { type: 'Integer' } } } })
    await create('shaped', { n: 1 })
    const client = await connect(address, token)
    const { id } = await client.emit('report:subscribe', { collection: 'shaped' })
    await api.admin('PATCH', '/schemas/shaped', {
      collectionName: 'shaped',
      schema: { fields: { n: { type: 'Integer' }, more: { type: 'Integer', defaultValue: 7 } } },
    })
    await pushed(client, id, ({ data }) => data[0].more === 7)
    await api.admin('DELETE', '/schemas/shaped')
    const ended = await waitFor(() => client.notices.find(({ name }) => name === 'report:ended'))
    expect(ended.body).toEqual({ id, message: 'Model shaped not found' })
  })

  it('says that the database was away where that ended it', async () => {
    const client = await connect(address, token)
    const { id } = await client.emit('report:subscribe', total)
    const ended = await withClient(api.database.url, async (blocker) => {
      await blocker.query('begin; lock table sale in access exclusive mode')
      await api.admin('POST', '/schemas', { collectionName: 'touch', schema: { fields: { n: { type: 'Integer' } } } })
      return waitFor(async () => {
        await api.sql(
          `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        )
        return client.notices.find(({ name }) => name === 'report:ended')
      })
    })
    expect(ended.body).toEqual({ id, message: 'Service temporarily unavailable' })
  })
})

describe('asking for a live report', () => {
  it.each([
    [undefined, 'BAD_REQUEST', 'collection is required'],
    [{ collection: 3 }, 'BAD_REQUEST', 'collection is required'],
    [{ collection: 'nowhere' }, 'UNKNOWN_COLLECTION', 'Model nowhere not found'],
    [{ collection: 'sale', nonsense: 1 }, 'BAD_QUERY', expect.stringMatching(/^Invalid query parameters: .*nonsense/)],
    [
      { collection: 'sale', fields: ['nothing'] },
      'BAD_QUERY',
      expect.stringMatching(/^Invalid query parameters: .*nothing/),
    ],
    [
      { collection: 'sale', aggregate: { n: { function: 'bogus', field: '*' } } },
      'BAD_QUERY',
      expect.stringMatching(/^Invalid query parameters: aggregate: .*bogus/),
    ],
    [{ collection: 'svc_AuditLog', limit: 1 }, 'BAD_REQUEST', 'Changes of svc_AuditLog are not recorded'],
  ])('%j is refused', async (request, code, message) => {
    const client = await connect(address, token)
    expect(await client.emit('report:subscribe', request)).toEqual({ status: 'error', code, message })
  })

  it('is refused where the result is too long, where there is no permission, and after twenty', async () => {
    await api.sql('insert into noise (n) select * from generate_series(1, 1001)')
    const client = await connect(address, token)
    expect(await client.emit('report:subscribe', { collection: 'noise' })).toMatchObject({
      message: 'The report is too long to be followed: set a limit',
    })
    const user = await api.user([])
    const nobody = await connect(address, await login(user.email))
    expect(await nobody.emit('report:subscribe', total)).toEqual({
      status: 'error',
      code: 'FORBIDDEN',
      message: 'Insufficient permissions',
    })
    const many = await Promise.all(Array.from({ length: 21 }, () => client.emit('report:subscribe', total)))
    expect(many.filter(({ status }) => status === 'success')).toHaveLength(20)
    expect(many.at(-1)).toEqual({
      status: 'error',
      code: 'BAD_REQUEST',
      message: 'Too many live reports on one connection',
    })
  })

  it('ends with the session', async () => {
    const own = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    const client = await connect(address, own)
    const { id } = await client.emit('report:subscribe', total)
    await api.as(own)('GET', '/auth/logout')
    await waitFor(() => !client.socket.connected)
    await create('sale', { amount: 1 })
    expect(pushes(client, id)).toEqual([])
  })
})

describe('a change on the socket', () => {
  it('has a cursor from which GET /changes goes on', async () => {
    const client = await connect(address, token)
    await client.subscribe('shop')
    const ids = [await create('shop', { name: '1' }), await create('shop', { name: '2' })]
    const frame = await client.frame(({ data }) => data.id === ids[0])
    const { data } = await pullAll(api.admin, frame.cursor, { collections: 'shop' })
    expect(data.map(({ id, action }) => [id, action])).toEqual([[ids[1], 'create']])
  })
})
