import { once } from 'node:events'
import { get } from 'node:http'
import { json } from 'node:stream/consumers'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let address: string
let token: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  await api.admin('POST', '/schemas', {
    collectionName: 'note',
    schema: {
      fields: {
        text: { type: 'String' },
        price: { type: 'Decimal' },
        at: { type: 'DateTime' },
        secret: { type: 'String', hidden: true },
      },
    },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'silent',
    schema: { realtime: false, fields: { text: { type: 'String' } } },
  })
})

const login = async (email: string) =>
  (await api.anonymous('POST', '/auth/login', { email, password: 'password of a user' })).body.token

describe('the path', () => {
  it('serves sockets and REST side by side', async () => {
    const rest = await fetch(`${address}/realtime/nothing`)
    expect(rest.status).toBe(404)
    expect(await rest.json()).toMatchObject({ error: { message: 'Not found' } })
    const polling = await connect(address, token, { transports: ['polling'] })
    expect(polling.socket.connected).toBe(true)
    const upgraded = await connect(address, token)
    expect(upgraded.notices[0]).toMatchObject({ name: 'connected', body: { userId: expect.any(String), tenant: null } })
  })
})

it('tells clients how long a dead connection goes unnoticed: 45 seconds', async () => {
  const opened = await (await fetch(`${address}/realtime/?EIO=4&transport=polling`)).text()
  expect(JSON.parse(opened.slice(1))).toMatchObject({ pingInterval: 25_000, pingTimeout: 20_000 })
})

describe('a request that offers to upgrade', () => {
  it.each(['h2c', 'websocket'])('to %s elsewhere than to the channel is answered as any other', async (protocol) => {
    const headers = { connection: 'upgrade', upgrade: protocol }
    const [response] = await once(get(`${address}/health`, { headers, agent: false }), 'response')
    expect([response.statusCode, await json(response)]).toEqual([200, { status: 'ok' }])
  })
})

describe('connecting', () => {
  it.each([
    ['no token', undefined, 'No authentication token provided'],
    ['an empty token', '', 'No authentication token provided'],
    ['garbage', 'abc', 'Invalid or expired token'],
    [
      'an unsigned token',
      `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from('{"id":"x"}').toString('base64url')}.`,
      'Invalid or expired token',
    ],
  ])('is refused with %s', async (_what, given, message) => {
    await expect(connect(address, given)).rejects.toThrow(message)
  })

  it.each<[string, (call: Call, id: string) => Promise<unknown>]>([
    ['logged out', (call) => call('GET', '/auth/logout')],
    ['refreshed', (call) => call('POST', '/auth/refresh')],
    ['expired', (_call, id) => api.sql(`update "svc_Sessions" set "expiresAt" = now() where "user_Id" = $1`, [id])],
    ['suspended', (_call, id) => api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [id])],
    [
      'given another password',
      (_call, userId) => api.admin('POST', '/auth/admin/password/change', { userId, newPassword: 'another password' }),
    ],
  ])('is refused to who was %s meanwhile', async (_what, end) => {
    const user = await api.user()
    const socket = await connect(address, user.token)
    await end(user.call, user.id)
    await expect(connect(address, user.token)).rejects.toThrow('Invalid or expired token')
    await waitFor(() => !socket.socket.connected)
  })

  it('says by a code what was wrong, and takes nothing else instead', async () => {
    const user = await api.user()
    const signedIn = await api.anonymous('POST', '/auth/login', { ...administrator, authMode: 'cookie' })
    const cookie = String(signedIn.headers['set-cookie']).split(';')[0]!
    const refusalOf = async (given: string | undefined, extraHeaders: Record<string, string> = {}) => {
      const refused = await connect(address, given, { extraHeaders }).catch((error: unknown) => error)
      return [(refused as Error).message, (refused as { data?: { code: string } }).data?.code]
    }
    const ended = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    await api.as(ended)('POST', '/auth/logout')
    const words = 'Invalid or expired token'
    const key = `dbk_${'0'.repeat(72)}`
    expect(await refusalOf('garbage', { cookie })).toEqual([words, 'INVALID_TOKEN'])
    expect(await refusalOf(ended, { cookie })).toEqual([words, 'SESSION_ENDED'])
    expect(await refusalOf(key, { cookie })).toEqual([words, 'INVALID_API_KEY'])
    expect(await refusalOf(ended, { authorization: `Bearer ${token}` })).toEqual([words, 'SESSION_ENDED'])
    expect(await refusalOf(undefined, { cookie, authorization: 'Bearer garbage' })).toEqual([words, 'INVALID_TOKEN'])
    expect(await refusalOf(undefined, { cookie, authorization: 'Basic eDp5' })).toEqual([words, 'INVALID_TOKEN'])
    expect(await refusalOf(undefined, { cookie, authorization: `Bearer ${ended}` })).toEqual([words, 'SESSION_ENDED'])
    expect(await refusalOf(undefined, { cookie: `${cookie.split('=')[0]}=${ended}` })).toEqual([words, 'SESSION_ENDED'])
    expect(await refusalOf(undefined, { cookie: `token=${token}` })).toEqual([
      'No authentication token provided',
      undefined,
    ])
    for (const extraHeaders of [
      { authorization: `Bearer ${user.token}`, cookie },
      { authorization: '', cookie },
    ]) {
      const { notices } = await connect(address, '', { extraHeaders })
      expect(notices[0]!.body.userId === user.id).toBe(extraHeaders.authorization !== '')
    }
  })

  it('is open to the pages that may call the API, and to those that may only connect', async () => {
    const app = await configured(api.database, {
      SOCKET_ENABLED: 'true',
      AUTH_APP_URL: 'https://app.example.com/start',
      AUTH_CORS_ALLOWED_ORIGINS: 'http://localhost:3000',
      SOCKET_CORS_ENABLED_ORIGINS: 'https://board.example.com',
    })
    const own = await app.listen({ host: '127.0.0.1', port: 0 })
    const ask = async (origin: string) => {
      const answer = await fetch(`${own}/realtime/?EIO=4&transport=polling`, { headers: { origin } })
      await answer.text()
      return [answer.status, answer.headers.get('access-control-allow-origin')]
    }
    const rest = async (origin: string) =>
      (await app.inject({ url: '/', headers: { origin } })).headers['access-control-allow-origin'] === origin
    for (const [origin, may] of [
      ['https://app.example.com', 'call'],
      ['http://localhost:3000', 'call'],
      ['http://localhost:4000', 'call'],
      ['https://board.example.com', 'connect'],
      ['https://board.example.com:8443', 'nothing'],
      ['http://app.example.com', 'nothing'],
      ['https://app.example.com.evil.test', 'nothing'],
      ['null', 'nothing'],
    ]) {
      expect([origin, await rest(origin!)]).toEqual([origin, may === 'call'])
      expect([origin, ...(await ask(origin!))]).toEqual([origin, ...(may === 'nothing' ? [403, null] : [200, origin])])
      const socket = connect(own, token, { extraHeaders: { origin } })
      if (may === 'nothing') await expect(socket).rejects.toThrow()
      else expect((await socket).socket.connected).toBe(true)
    }
    const preflight = await fetch(`${own}/realtime/?EIO=4&transport=polling`, {
      method: 'OPTIONS',
      headers: { origin: 'https://app.example.com', 'access-control-request-method': 'POST' },
    })
    expect(preflight.headers.get('access-control-allow-credentials')).toBe('true')
  })

  it('does not look at tokens in the query', async () => {
    await expect(connect(address, undefined, { query: { token } })).rejects.toThrow('No authentication token provided')
  })

  it('is refused from a foreign origin', async () => {
    await expect(connect(address, token, { extraHeaders: { origin: 'https://evil.test' } })).rejects.toThrow()
    await expect(
      connect(address, token, { transports: ['polling'], extraHeaders: { origin: 'https://evil.test' } }),
    ).rejects.toThrow()
  })

  it('is refused to the tags of a foreign page, which have no origin, whatever cookie comes with them', async () => {
    const signedIn = await api.anonymous('POST', '/auth/login', { ...administrator, authMode: 'cookie' })
    const cookie = String(signedIn.headers['set-cookie']).split(';')[0]!
    const ask = async (query: string, site: Record<string, string>) =>
      (await fetch(`${address}/realtime/?EIO=4&transport=polling${query}`, { headers: { cookie, ...site } })).status
    expect(await ask('', { 'sec-fetch-site': 'same-origin' })).toBe(200)
    expect(await ask('', { 'sec-fetch-site': 'cross-site' })).toBe(403)
    expect(await ask('', { 'sec-fetch-site': 'same-site' })).toBe(403)
    for (const jsonp of ['&j=0', '&%6a=0', '&j=0&j=1']) expect([jsonp, await ask(jsonp, {})]).toEqual([jsonp, 403])
  })

  it('ends with the session, at once', async () => {
    const own = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    const other = await connect(address, token)
    const socket = await connect(address, own)
    await api.as(own)('GET', '/auth/logout')
    await waitFor(() => !socket.socket.connected)
    expect(other.socket.connected).toBe(true)
  })
})

describe('subscribing', () => {
  it('delivers creates, updates and deletes of any writer in wire form, with a cursor', async () => {
    const client = await connect(address, token)
    expect(await client.subscribe('note')).toEqual({ status: 'success', cursor: expect.any(String) })
    const { id } = (
      await api.admin('POST', '/items/note', { text: 'a', price: '1.10', at: '2024-01-01T00:00:00Z', secret: 'canary' })
    ).body.data
    await api.admin('PATCH', `/items/note/${id}`, { text: 'b' })
    await api.sql('update note set text = $1 where id = $2', ['by hand', id])
    await api.admin('DELETE', `/items/note/${id}`)
    await client.frame((frame) => frame.action === 'delete')
    expect(client.frames.map(({ name, data }) => [name, data.text])).toEqual([
      ['note:create', 'a'],
      ['note:update', 'b'],
      ['note:update', 'by hand'],
      ['note:delete', 'by hand'],
    ])
    expect(client.frames[0]).toMatchObject({
      action: 'create',
      collection: 'note',
      data: { id, price: '1.10', at: '2024-01-01T00:00:00.000Z' },
      timestamp: expect.any(String),
      cursor: expect.any(String),
    })
    expect(JSON.stringify(client.frames)).not.toContain('canary')
  })

  it('delivers nothing of a rolled-back transaction, and nothing after unsubscribe', async () => {
    const client = await connect(address, token)
    await client.subscribe('note')
    await api.admin('POST', '/items/note/bulk', [{ text: 'x' }, { text: { not: 'text' } }])
    await api.admin('POST', '/items/note', { text: 'marker' })
    await client.frame((frame) => frame.data.text === 'marker')
    expect(client.frames).toHaveLength(1)
    expect(await client.emit('unsubscribe', { collection: 'note' })).toEqual({ status: 'success' })
    const second = await connect(address, token)
    await second.subscribe('note')
    await api.admin('POST', '/items/note', { text: 'after' })
    await second.frame((frame) => frame.data.text === 'after')
    expect(client.frames).toHaveLength(1)
  })

  it.each([
    ...['nowhere', 'silent', 'svc_User', 'svc_AuditLog', '*', '__proto__', 'NOTE', 'public.note', 'pgboss.job'],
    ...['collection:note', 'collection:note:tenant:T2', 'user:00000000-0000-4000-8000-000000000000', 'execution:1'],
  ])('to %s is refused', async (name) => {
    const client = await connect(address, token)
    expect(await client.subscribe(name)).toEqual({
      status: 'error',
      code: 'FORBIDDEN',
      message: 'No permission to subscribe to this collection',
    })
  })

  it.each([
    undefined,
    null,
    3,
    {},
    { collection: 3 },
    { collection: 'note', since: 'garbage' },
    { collection: 'note', since: {} },
  ])('with %j is an error, not a crash', async (request) => {
    const client = await connect(address, token)
    expect(await client.emit('subscribe', request)).toMatchObject({ status: 'error', message: expect.any(String) })
    expect((await fetch(`${address}/health`)).status).toBe(200)
  })

  it.each([
    [{ filters: { text: 'a' } }, '"filters": did you mean filter?'],
    [{ where: {} }, '"where": did you mean filter?'],
    [{ text: 'a' }, '"text": did you mean filter={"text": …}?'],
    [{ limit: 5 }, '"limit"'],
    [{ 'filter[text]': 'a' }, '"filter[text]": did you mean filter?'],
  ])('with %j is refused as REST would: it would follow every row', async (more, words) => {
    const client = await connect(address, token)
    expect(await client.emit('subscribe', { collection: 'note', ...more })).toMatchObject({
      status: 'error',
      message: expect.stringMatching(/^Invalid query parameters: unknown member /),
    })
    const { message } = await client.emit('subscribe', { collection: 'note', ...more })
    expect(message).toContain(`unknown member ${words}`)
    expect(await client.emit('subscribe', { collection: 'note', tenant: 'x', _own: 1 })).toMatchObject({
      status: 'success',
    })
  })

  it('shows granted fields only, and ends when the permission does', async () => {
    const user = await api.user([{ collection: 'note', action: 'read', fields: 'text' }])
    const client = await connect(address, await login(user.email))
    await client.subscribe('note')
    await api.admin('POST', '/items/note', { text: 'seen', price: 5 })
    const frame = await client.frame(({ data }) => data.text === 'seen')
    expect(Object.keys(frame.data).sort()).toEqual(['id', 'text'])
    const [permission] = (await api.admin('GET', `/permissions?filter=${JSON.stringify({ role_Id: user.roleId })}`))
      .body.data
    await api.admin('DELETE', `/permissions/${permission.id}`)
    await waitFor(() => client.notices.some(({ name }) => name === 'unsubscribed'))
    expect(await client.subscribe('note')).toMatchObject({ status: 'error' })
  })

  it.each(['default', 'full'])(
    'shows a large value that an update did not touch, with replica identity %s, to who may read it',
    async (identity) => {
      const fields = { count: { type: 'Integer' }, large: { type: 'Text' }, secret: { type: 'Text', hidden: true } }
      const name = `toasted_${identity}`
      await api.admin('POST', '/schemas', { collectionName: name, schema: { fields } })
      await api.sql(`alter table ${name} replica identity ${identity}`)
      const reader = await api.user([{ collection: name, action: 'read', fields: 'count' }])
      const [all, some] = [await connect(address, token), await connect(address, reader.token)]
      for (const client of [all, some]) expect((await client.subscribe(name)).status).toBe('success')
      // Not compressible, so it is kept apart from its row.
      await api.sql(`insert into ${name} (count, large, secret)
        select 1, string_agg(md5(i::text), ''), 'canary' from generate_series(1, 3200) i`)
      await api.sql(`update ${name} set count = 2`)
      const [row] = await api.sql(`select id, large from ${name}`)
      const isUpdate = ({ action }: { action: string }) => action === 'update'
      const { data } = await all.frame(isUpdate)
      expect(data).toMatchObject({ count: 2, large: row.large })
      expect(data).not.toHaveProperty('secret')
      expect((await some.frame(isUpdate)).data).toEqual({ id: row.id, count: 2 })
    },
  )

  it('says in /ready what is off', async () => {
    await api.user([{ collection: 'note', action: 'read', fields: '*', conditions: { text: 'mine' } }])
    const ready = await waitFor(async () => {
      const { body } = await api.anonymous('GET', '/ready')
      return body.realtime.warning === undefined ? undefined : body
    })
    expect(ready).toMatchObject({ status: 'ready', realtime: { enabled: true, unscoped: ['note'] } })
  })
})

describe('resuming', () => {
  it('gets what was missed, in order, then live', async () => {
    const first = await connect(address, token)
    const { cursor } = await first.subscribe('note')
    first.close()
    for (const text of ['m1', 'm2', 'm3']) await api.admin('POST', '/items/note', { text })
    const second = await connect(address, token)
    expect((await second.subscribe('note', cursor)).status).toBe('success')
    await api.admin('POST', '/items/note', { text: 'm4' })
    await second.frame(({ data }) => data.text === 'm4')
    expect(second.frames.map(({ data }) => data.text)).toEqual(['m1', 'm2', 'm3', 'm4'])
    const third = await connect(address, token)
    await third.subscribe('note', second.frames[1]!.cursor)
    await third.frame(({ data }) => data.text === 'm4')
    expect(third.frames.map(({ data }) => data.text)).toEqual(['m3', 'm4'])
  })

  it('from the middle of a round of GET /changes gets its rest and what came after it', async () => {
    const first = await connect(address, token)
    await first.subscribe('note')
    const start = (await api.admin('GET', '/changes')).body.cursor
    for (const text of ['r1', 'r2']) await api.admin('POST', '/items/note', { text })
    const page = (await api.admin('GET', `/changes?since=${start}&limit=1`)).body
    expect(page).toMatchObject({ data: [{ data: { text: 'r1' } }], hasMore: true })
    await api.admin('POST', '/items/note', { text: 'r3' })
    const { cursor } = await first.frame(({ data }) => data.text === 'r3')
    const second = await connect(address, token)
    await second.subscribe('note', page.cursor)
    expect(second.frames.map(({ data }) => data.text)).toEqual(['r2', 'r3'])
    expect((await api.admin('GET', `/changes?since=${first.frames[0]!.cursor}`)).body).toMatchObject({ hasMore: true })
    expect((await api.admin('GET', `/changes?since=${cursor}`)).body.data).toEqual([])
  })

  it('loses nothing and inverts nothing while many write', async () => {
    const watcher = await connect(address, token)
    const { cursor } = await watcher.subscribe('note')
    watcher.close()
    const ids = (
      await api.admin(
        'POST',
        '/items/note/bulk',
        Array.from({ length: 5 }, (_, i) => ({ text: `w${i}` })),
      )
    ).body.data as string[]
    const write = async (writer: number) => {
      for (let i = 0; i < 20; i += 1)
        await api.admin('PATCH', `/items/note/${ids[(writer + i) % ids.length]}`, { text: `${writer}/${i}` })
    }
    const writing = Promise.all([0, 1, 2, 3, 4, 5].map(write))
    const joiner = await connect(address, token)
    await joiner.subscribe('note', cursor)
    await writing
    const expected = await api.sql(
      `select position::text as at, "entityId" as id from "svc_AuditLog" where entity = 'note' and "entityId" = any($1) order by "svc_AuditLog".position`,
      [ids],
    )
    await waitFor(() => joiner.frames.filter(({ data }) => ids.includes(data.id)).length >= expected.length)
    const received = joiner.frames.filter(({ data }) => ids.includes(data.id))
    expect(new Set(received.map(({ position }) => position)).size).toBe(received.length)
    for (const id of ids)
      expect(received.filter(({ data }) => data.id === id).map(({ position }) => position)).toEqual(
        expected.filter((row) => row.id === id).map((row) => row.at),
      )
  })
})

describe('REALTIME_ROW_LEVEL_SCOPING', () => {
  it('delivers a row while it is in scope, its id when it leaves, and no deletion of what was never seen', async () => {
    const scoped = await startApi({ SOCKET_ENABLED: 'true', REALTIME_ROW_LEVEL_SCOPING: 'true' }, api.database)
    const scopedAddress = await scoped.app.listen({ host: '127.0.0.1', port: 0 })
    const user = await api.user([
      {
        collection: 'note',
        action: 'read',
        fields: '*',
        conditions: { OR: [{ text: 'nobody’s' }, { text: { startsWith: 'mine' } }] },
      },
    ])
    const client = await connect(scopedAddress, await login(user.email))
    expect((await client.subscribe('note')).status).toBe('success')
    const mine = (await api.admin('POST', '/items/note', { text: 'mine 1' })).body.data.id
    const other = (await api.admin('POST', '/items/note', { text: 'other' })).body.data.id
    await api.admin('PATCH', `/items/note/${mine}`, { text: 'no longer' })
    await api.admin('PATCH', `/items/note/${other}`, { text: 'mine 2' })
    await api.admin('DELETE', `/items/note/${mine}`)
    await api.admin('DELETE', `/items/note/${other}`)
    await client.frame(({ action }) => action === 'delete')
    expect(client.frames.map(({ name, data }) => [name, data])).toEqual([
      ['note:create', expect.objectContaining({ id: mine, text: 'mine 1' })],
      ['note:remove', { id: mine }],
      ['note:update', expect.objectContaining({ id: other, text: 'mine 2' })],
      ['note:delete', expect.objectContaining({ id: other, text: 'mine 2' })],
    ])
  })

  it('says resync when a related row, or a permission, decides otherwise from now on', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'folder', schema: { fields: { name: { type: 'String' } } } })
    await api.admin('POST', '/schemas', {
      collectionName: 'page',
      schema: { fields: { folder: { relType: 'BelongsTo', target: 'folder', foreignKey: 'folder_Id' } } },
    })
    const scoped = await startApi({ SOCKET_ENABLED: 'true', REALTIME_ROW_LEVEL_SCOPING: 'true' }, api.database)
    const scopedAddress = await scoped.app.listen({ host: '127.0.0.1', port: 0 })
    const user = await api.user([{ collection: 'page', action: 'read', conditions: { 'folder.name': 'open' } }])
    const own = await login(user.email)
    const [client, admin] = [await connect(scopedAddress, own), await connect(scopedAddress, token)]
    const resyncs = () => client.notices.filter(({ name }) => name === 'resync').map(({ body }) => body)
    const { cursor } = await client.subscribe('page')
    await admin.subscribe('page')
    const folder = (await api.admin('POST', '/items/folder', { name: 'open' })).body.data.id
    await waitFor(() => resyncs().length === 1)
    await client.subscribe('page')
    const page = (await api.admin('POST', '/items/page', { folder_Id: folder })).body.data.id
    await client.frame(({ data }) => data.id === page)
    await scoped.sql('update "svc_Permission" set conditions = null where "role_Id" = $1', [user.roleId])
    await scoped.admin('POST', '/permissions/reload')
    await waitFor(() => resyncs().length === 2)
    expect(resyncs()).toEqual([{ collection: 'page' }, { collection: 'page' }])
    const later = await connect(scopedAddress, own)
    expect((await later.subscribe('page', cursor)).status).toBe('success')
    await waitFor(() => later.notices.some(({ name }) => name === 'resync'))
    expect(admin.notices.map(({ name }) => name)).toEqual(['connected'])
  })
})
