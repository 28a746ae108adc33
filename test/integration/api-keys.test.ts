import { beforeAll, describe, expect, it } from 'vitest'
import { hashSecret } from '../../src/adapters/tokens.ts'
import { cookieNamesOf } from '../../src/features/accounts/auth/browser.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { connect } from '../support/socket.ts'
import { storeFile } from '../support/stored-files.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let address: string
beforeAll(async () => {
  api = await startApi({
    SOCKET_ENABLED: 'true',
    AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY',
    PASSKEY_RP_ID: 'example.com',
    PASSKEY_RP_NAME: 'Example',
    PASSKEY_ORIGIN: 'https://example.com',
  })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
})

const notAccepted = { status: 403, body: { code: 'API_KEY_NOT_ACCEPTED' } }
const readsNotes = { collection: 'note', action: 'read', fields: ['*'] }
const make = async (call: Api['admin'], more: object = {}) => {
  const answer = await call('POST', '/auth/keys', { name: 'script', ...more })
  expect(answer.status).toBe(200)
  return { key: answer.body.key as string, id: answer.body.apiKey.id as string }
}
const check = async (key: string) => (await api.as(key)('GET', '/auth/check')).status
const story = async (after: bigint) =>
  (await api.log(after)).map(({ entity, action, changes }) => ({ what: `${entity} ${action}`, key: changes?.key }))

describe('making a key', () => {
  it('shows it once and keeps its hash', async () => {
    const user = await api.user()
    const before = await api.position()
    const answer = await user.call('POST', '/auth/keys', {
      name: ' nightly import ',
      expiresAt: '2999-01-31T12:00:00+01:00',
    })
    expect(answer).toMatchObject({ status: 200, headers: { 'cache-control': 'no-store' } })
    const { key, apiKey } = answer.body
    expect(key).toMatch(/^dbk_[0-9a-f]{72}$/)
    expect(apiKey).toEqual({
      id: expect.any(String),
      name: 'nightly import',
      hint: key.slice(0, 10),
      role_Id: null,
      tenant_Id: null,
      expiresAt: '2999-01-31T11:00:00.000Z',
      lastUsedAt: null,
      createdAt: expect.stringMatching(/Z$/),
    })
    expect(await story(before)).toEqual([
      { what: 'svc_ApiKey create', key: undefined },
      { what: 'svc_User key_created', key: apiKey.id },
    ])
    expect(await api.jobs('mail')).toEqual([])
    expect((await user.call('GET', '/auth/keys')).body).toEqual({ keys: [apiKey] })
    const [row] = await api.sql('select to_json(k)::text as text from "svc_ApiKey" k where id = $1', [apiKey.id])
    const shown = await api.admin('GET', `/items/svc_ApiKey/${apiKey.id}`)
    expect(shown.body.data).not.toHaveProperty('hash')
    for (const text of [row.text, shown.text, JSON.stringify(await api.log(before))]) expect(text).not.toContain(key)
    expect(JSON.stringify(await api.log(before))).not.toContain(hashSecret(key))
  })

  it('refuses what is incomplete or not the caller’s to give', async () => {
    const user = await api.user()
    const end = 'expiresAt must be a time to come, e.g. 2030-01-31T12:00:00Z'
    const admins = api.runtime.access.current().roles
    const administrator = [...admins.values()].find(({ name }) => name === 'administrator')!.id
    const cases: [object, number, string][] = [
      [{}, 400, 'name is required'],
      [{ name: ' ' }, 400, 'name is required'],
      [{ name: ['x'] }, 400, 'name is required'],
      [{ name: 'x'.repeat(101) }, 400, 'name must be at most 100 characters long'],
      ...['tomorrow', '2999-01-31', 7, '2020-01-01T00:00:00Z', '2999-13-01T00:00:00Z', '0001-01-01T00:00:00Z'].map(
        (expiresAt): [object, number, string] => [{ name: 'x', expiresAt }, 400, end],
      ),
      [{ name: 'x', role_Id: administrator }, 403, 'You do not have this role'],
      [{ name: 'x', role_Id: "' or 1=1" }, 403, 'You do not have this role'],
      [{ name: 'x', role_Id: 7 }, 400, 'role_Id must be the id of a role'],
      ...['scope', 'scopes', 'expires'].map((name): [object, number, string] => [
        { name: 'x', [name]: 'read' },
        400,
        `Request body has no member "${name}": a key acts with the whole present role of its user`,
      ]),
    ]
    for (const [body, status, message] of cases) {
      const answer = await user.call('POST', '/auth/keys', body)
      expect([body, answer.status, answer.body.message]).toEqual([body, status, message])
    }
    expect((await user.call('GET', '/auth/keys')).body).toEqual({ keys: [] })
    for (const [method, path] of [
      ['POST', '/auth/keys'],
      ['GET', '/auth/keys'],
      ['DELETE', '/auth/keys/x'],
    ] as const)
      expect(await api.anonymous(method, path)).toMatchObject({ status: 401, body: { message: 'Unauthorized' } })
  })

  it('stops at fifty, also when many are made at once', async () => {
    const user = await api.user()
    await api.sql(
      `insert into "svc_ApiKey" (name, "user_Id", hash, hint) select 'x', $1, 'hash ' || $2 || n, 'x' from generate_series(1, 48) n`,
      [user.id, user.email],
    )
    const answers = await Promise.all([1, 2, 3, 4].map(() => user.call('POST', '/auth/keys', { name: 'x' })))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 400, 400])
  })
})

describe('a key', () => {
  it('stands in for its user wherever a session does', async () => {
    const user = await api.user([readsNotes, { collection: 'svc_User', action: 'read', fields: ['*'] }])
    const { key } = await make(user.call)
    const call = api.as(key)
    expect((await call('GET', '/auth/me')).body).toMatchObject({ user: { id: user.id }, role: { id: user.roleId } })
    expect((await call('GET', '/auth/check')).body).toEqual({ valid: true, user: { id: user.id } })
    expect((await call('GET', '/items/note')).status).toBe(200)
    expect((await call('POST', '/items/note', { text: 'x' })).status).toBe(403)
    const admins = api.as((await make(api.admin)).key)
    const before = await api.position()
    expect((await admins('POST', '/items/note', { text: 'by key' })).status).toBe(201)
    const { id } = (await admins('GET', '/auth/check')).body.user
    expect((await api.log(before)).map(({ action, userId }) => ({ action, userId }))).toEqual([
      { action: 'create', userId: id },
    ])
    expect((await admins('GET', '/permissions')).status).toBe(200)
  })

  it('changes no password or factor and manages no key, passkey or session', async () => {
    const { key, id } = await make(api.admin)
    const call = api.as(key)
    const refused: [string, string, unknown?][] = [
      ['GET', '/auth/keys'],
      ['POST', '/auth/keys', { name: 'x' }],
      ['DELETE', `/auth/keys/${id}`],
      ['POST', '/auth/refresh'],
      ['GET', '/auth/logout'],
      ['POST', '/auth/logout'],
      ['POST', '/auth/email/verify', { link: 'https://example.com' }],
      ['POST', '/auth/2fa/enable'],
      ['POST', '/auth/2fa/verify-setup', { code: '123456' }],
      ['POST', '/auth/2fa/disable', { password: 'x' }],
      ['POST', '/auth/passkey/register/options'],
      ['POST', '/auth/passkey/register/verify', { response: {} }],
      ['GET', '/auth/passkey'],
      ['DELETE', '/auth/passkey/x'],
    ]
    const before = await api.position()
    for (const [method, path, body] of refused)
      expect([path, await call(method, path, body)]).toMatchObject([path, notAccepted])
    const user = await api.user()
    const after = await api.position()
    const changed: Answer[] = [
      await call('PATCH', `/items/svc_User/${user.id}`, { password: 'another password' }),
      await call('POST', '/items/svc_User', { firstName: 'X', email: 'x@example.com', password: 'another password' }),
    ]
    for (const answer of changed)
      expect(answer).toMatchObject({ status: 403, body: { error: { code: 'API_KEY_NOT_ACCEPTED' } } })
    expect(await api.log(after)).toEqual([])
    expect((await call('PATCH', `/items/svc_User/${user.id}`, { firstName: 'New' })).status).toBe(200)
    expect((await api.log(before)).filter(({ type }) => type === 'auth').map(({ action }) => action)).toEqual(['login'])
  })

  it('counts in the Authorization header only, and whole', async () => {
    const { key } = await make((await api.user()).call)
    expect(await check(key)).toBe(200)
    for (const name of Object.values(cookieNamesOf(api.runtime)))
      expect((await api.anonymous('GET', '/auth/check', undefined, { cookie: `${name}=${key}` })).status).toBe(401)
    expect((await api.anonymous('GET', `/auth/check?access_token=${key}`)).status).toBe(401)
    const file = await storeFile(api, { content: 'x', type: 'text/plain', isPublic: true })
    expect((await api.as(key)('GET', `/assets/${file.id}`)).status).toBe(200)
    for (const text of [key, key.slice(0, -1)])
      expect(await api.anonymous('GET', `/assets/${file.id}?access_token=${text}`)).toMatchObject({
        status: 401,
        body: { error: { code: 'HEADER_ONLY' } },
        headers: { 'www-authenticate': expect.stringContaining('invalid_token') },
      })
    for (const other of [key.slice(0, -1), key.toUpperCase(), key.slice(4), hashSecret(key)])
      expect(await check(other)).toBe(401)
  })

  it('with a typo is refused without asking the database', async () => {
    const user = await api.user()
    const { key, id } = await make(user.call)
    const typo = key.slice(0, -1) + (key.endsWith('0') ? '1' : '0')
    await api.sql('update "svc_ApiKey" set hash = $2 where id = $1', [id, hashSecret(typo)])
    expect(await check(typo)).toBe(401)
  })

  it('is no session, and a session is no key', async () => {
    const user = await api.user()
    const { key, id } = await make(user.call)
    const { sessionToken } = JSON.parse(atob(user.token.split('.')[1]!))
    await api.sql('update "svc_ApiKey" set hash = $2 where id = $1', [id, hashSecret(sessionToken)])
    expect(await check(sessionToken)).toBe(401)
    expect(await check(key)).toBe(401)
  })

  it('notes its last use, at most every five minutes', async () => {
    const user = await api.user()
    const { key, id } = await make(user.call)
    const lastUse = async () => (await api.sql('select "lastUsedAt" as at from "svc_ApiKey" where id = $1', [id]))[0].at
    const before = await api.position()
    const used = async () => {
      expect(await check(key)).toBe(200)
      await afterwardsDone(api.runtime)
    }
    await used()
    const first = await lastUse()
    expect(first).toBeInstanceOf(Date)
    await used()
    expect(await lastUse()).toEqual(first)
    await api.sql(`update "svc_ApiKey" set "lastUsedAt" = now() - interval '6 minutes' where id = $1`, [id])
    await used()
    expect((await lastUse()) > first).toBe(true)
    expect(await api.log(before)).toEqual([])
  })
})

describe('a key ends', () => {
  it('when it is revoked, by its owner only, at once and with its sockets', async () => {
    const [user, other] = [await api.user([readsNotes]), await api.user()]
    const { key, id } = await make(user.call)
    const { key: kept } = await make(user.call)
    const [socket, stays] = [await connect(address, key), await connect(address, kept)]
    expect(await socket.subscribe('note')).toMatchObject({ status: 'success' })
    for (const [call, wrong] of [
      [other.call, id],
      [user.call, 'none'],
      [user.call, crypto.randomUUID()],
    ] as const)
      expect(await call('DELETE', `/auth/keys/${wrong}`)).toMatchObject({
        status: 404,
        body: { message: 'API key not found' },
      })
    expect(await check(key)).toBe(200)
    const before = await api.position()
    expect(await user.call('DELETE', `/auth/keys/${id.toUpperCase()}`)).toMatchObject({
      status: 200,
      body: { deleted: true },
    })
    expect(await check(key)).toBe(401)
    expect(await check(kept)).toBe(200)
    expect(await story(before)).toEqual([
      { what: 'svc_ApiKey delete', key: undefined },
      { what: 'svc_User key_revoked', key: id },
    ])
    await waitFor(() => socket.socket.disconnected, { what: 'the socket to be closed' })
    expect(stays.socket.connected).toBe(true)
    await expect(connect(address, key)).rejects.toThrow('Invalid or expired token')
  })

  it('in another process too', async () => {
    const user = await api.user()
    const { key, id } = await make(user.call)
    const elsewhere = await configured(api.database, {})
    const status = async () =>
      (await elsewhere.inject({ url: '/auth/check', headers: { authorization: `Bearer ${key}` } })).statusCode
    expect(await status()).toBe(200)
    await user.call('DELETE', `/auth/keys/${id}`)
    await waitFor(async () => (await status()) === 401)
  })

  it('when its time has come', async () => {
    const { key, id } = await make((await api.user()).call, { expiresAt: '2999-01-01T00:00:00Z' })
    expect(await check(key)).toBe(200)
    await api.sql('update "svc_ApiKey" set "expiresAt" = now() where id = $1', [id])
    await waitFor(async () => (await check(key)) === 401)
  })

  it.each([
    ['is suspended', `update "svc_User" set status = 'suspended' where id = $1`],
    ['loses the role', `delete from "svc_UserRole" where "user_Id" = $1`],
    ['is deleted', `delete from "svc_User" where id = $1`],
  ])('when its user %s', async (_what, change) => {
    const user = await api.user([readsNotes])
    const { key } = await make(user.call)
    const socket = await connect(address, key)
    expect(await check(key)).toBe(200)
    await api.sql(change, [user.id])
    await waitFor(async () => (await check(key)) === 401)
    await waitFor(() => socket.socket.disconnected, { what: 'the socket to be closed' })
  })

  it('with the role that it was narrowed to; otherwise it follows its user', async () => {
    const user = await api.user([readsNotes])
    const follows = api.as((await make(user.call)).key)
    const { key: narrowed } = await make(user.call, { role_Id: user.roleId.toUpperCase() })
    expect((await api.as(narrowed)('GET', '/items/note')).status).toBe(200)
    const roleId = await createRole(api)
    await api.sql('update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1', [user.id, roleId])
    await waitFor(async () => (await check(narrowed)) === 401)
    await waitFor(async () => (await follows('GET', '/items/note')).status === 403)
    expect((await follows('GET', '/auth/check')).status).toBe(200)
  })
})

describe('in multi-tenant mode', () => {
  it('a key is for the caller’s tenant, or the one where the role is held', async () => {
    const app = await configured(api.database, { MULTI_TENANT: 'true' })
    const [here, there] = [await createTenant(api, 'here'), await createTenant(api, 'there')]
    const [role, other] = [await createRole(api), await createRole(api)]
    for (const one of [role, other]) await grant(api, one, { collection: 'svc_User', action: 'read', fields: ['*'] })
    const user = await createUser(api, role, here)
    await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
      user.id,
      other,
      there,
    ])
    const call = async (token: string, url: string, payload?: object) => {
      const method = payload === undefined ? 'GET' : 'POST'
      const headers = { authorization: `Bearer ${token}` }
      return (await app.inject({ method, url, headers, ...(payload && { payload }) })).json()
    }
    const payload = { email: user.email, password: 'password of a user', tenant_Id: here }
    const { token } = (await app.inject({ method: 'POST', url: '/auth/login', payload })).json()
    const tenantOf = async (body: object) => {
      const { key } = await call(token, '/auth/keys', { name: 'x', ...body })
      return (await call(key, '/auth/me')).tenant
    }
    expect([await tenantOf({}), await tenantOf({ role_Id: role }), await tenantOf({ role_Id: other })]).toEqual([
      here,
      here,
      there,
    ])
  })
})
