import { beforeAll, describe, expect, it } from 'vitest'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

const password = 'correct horse'
let count = 0

/** An account as registration leaves it, changed by hand. */
async function account(change = ''): Promise<{ email: string; id: string }> {
  const email = `login${++count}@example.com`
  const { body } = await api.anonymous('POST', '/auth/register', { email, password, firstName: 'A', lastName: 'B' })
  await api.sql('delete from "svc_Sessions" where "user_Id" = $1', [body.user.id])
  if (change !== '') await api.sql(`update "svc_User" set ${change} where id = $1`, [body.user.id])
  return { email, id: body.user.id }
}

const login = (body: unknown) => api.anonymous('POST', '/auth/login', body)
/** The log's end, after everything that is written beside the answers. */
const position = async () => {
  await afterwardsDone(api.runtime)
  return api.position()
}
const facts = async (after: bigint) => {
  await afterwardsDone(api.runtime)
  return (await api.log(after)).map(({ entityId, action, userId }) => ({ entityId, action, userId }))
}
const sessionsOf = (id: string) => api.sql('select * from "svc_Sessions" where "user_Id" = $1', [id])

describe('POST /auth/login', () => {
  it('opens a session and answers who it is', async () => {
    const { email, id } = await account()
    const before = await position()
    const answer = await login({ email: email.toUpperCase(), password })
    expect(answer).toMatchObject({
      status: 200,
      body: {
        authMode: 'jwt',
        user: { id, email, firstName: 'A', lastName: 'B' },
        role: { name: 'user' },
        permissions: [],
        tenant: null,
      },
    })
    expect(Object.keys(answer.body).sort()).toEqual(['authMode', 'permissions', 'role', 'tenant', 'token', 'user'])
    expect(await facts(before)).toEqual([{ entityId: id, action: 'login', userId: id }])
    expect(await api.jobs('mail')).toEqual([])
    const claims = JSON.parse(Buffer.from(answer.body.token.split('.')[1], 'base64url').toString())
    const [assignment] = await api.sql('select id from "svc_UserRole" where "user_Id" = $1', [id])
    expect(claims).toEqual({
      id,
      role_Id: answer.body.role.id,
      tenant_Id: null,
      userRole_Id: assignment.id,
      sessionToken: expect.stringMatching(/^[0-9a-f]{64}$/),
      iss: api.runtime.config.project.name,
      iat: expect.any(Number),
      exp: claims.iat + 604_800,
    })
  })

  it.each([
    [undefined, 'default'],
    ['web', 'web'],
    ['mobile', 'mobile'],
  ])('with authType %j keeps a session of type %s for ACCESS_TOKEN_EXPIRES_IN', async (authType, type) => {
    const { email, id } = await account()
    const { body } = await api.anonymous(
      'POST',
      '/auth/login',
      { email, password, authType },
      { 'user-agent': 'x'.repeat(600) },
    )
    const [session] = await sessionsOf(id)
    expect(session).toMatchObject({
      type,
      role_Id: body.role.id,
      tenant_Id: null,
      ipAddress: '127.0.0.1',
      userAgent: 'x'.repeat(512),
    })
    expect((session.expiresAt - session.createdAt) / 1000).toBe(604_800)
  })

  it('names the administrator role to the administrator', async () => {
    expect((await login(administrator)).body).toMatchObject({
      role: { name: 'administrator', isTenantSpecific: false },
      permissions: [],
    })
  })

  it.each([
    ['no body', undefined],
    ['no password', { email: 'a@example.com' }],
    ['no email', { password }],
    ['an empty password', { email: 'a@example.com', password: '' }],
    ['an array as email', { email: ['a@example.com'], password }],
    ['an operator as email', { email: { ne: '' }, password }],
    ['an object as password', { email: 'a@example.com', password: { ne: '' } }],
  ])('refuses %s', async (_what, body) => {
    const before = await position()
    expect(await login(body)).toMatchObject({ status: 400, body: { message: 'Email and password are required' } })
    expect(await facts(before)).toEqual([])
  })

  it('refuses what is no address without asking the database', async () => {
    expect(await login({ email: 'a:('.repeat(3000), password })).toMatchObject({
      status: 400,
      body: { message: 'Invalid email address' },
    })
  })

  it('refuses an unknown session type', async () => {
    const { email } = await account()
    for (const authType of ['x', 7, ['web']])
      expect(await login({ email, password, authType })).toMatchObject({
        status: 403,
        body: { message: "Invalid session type. Must be 'mobile' or 'web'" },
      })
  })

  it('answers alike to a wrong password, an unknown address and an account without password', async () => {
    const known = await account()
    const social = await account('password = null')
    const before = await position()
    const answers = [
      await login({ email: known.email, password: 'wrong password' }),
      await login({ email: 'nobody@example.com', password: 'wrong password' }),
      await login({ email: social.email, password: 'wrong password' }),
    ]
    for (const { status, text } of answers)
      expect({ status, text }).toEqual({ status: 400, text: '{"message":"Incorrect password.","code":"BAD_REQUEST"}' })
    const headers = answers.map((answer) => Object.keys(answer.headers).sort())
    expect(headers[1]).toEqual(headers[0])
    expect(headers[2]).toEqual(headers[0])
    // Appended beside the answer, in any order, without an actor.
    expect(new Set((await facts(before)).map((fact) => JSON.stringify(fact)))).toEqual(
      new Set(
        [known.id, social.id].map((entityId) => JSON.stringify({ entityId, action: 'login_failed', userId: null })),
      ),
    )
  })

  it.each(['inactive', 'deleted', 'suspended', 'pending'])(
    'tells the state %s only to who knows the password',
    async (status) => {
      const { email, id } = await account(`status = '${status}'`)
      expect(await login({ email, password: 'wrong password' })).toMatchObject({
        status: 400,
        body: { message: 'Incorrect password.' },
      })
      const before = await position()
      expect(await login({ email, password })).toMatchObject({ status: 403, body: { message: `Account is ${status}` } })
      expect(await sessionsOf(id)).toEqual([])
      expect(await facts(before)).toEqual([])
    },
  )

  it('refuses an account without a role', async () => {
    const { email, id } = await account()
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [id])
    expect(await login({ email, password })).toMatchObject({
      status: 403,
      body: { message: 'No role is assigned to this account' },
    })
  })

  it.each([
    [
      '72 equal bytes and another one',
      `${'a'.repeat(72)}X`,
      [`${'a'.repeat(72)}Y`, 'a'.repeat(72), `${'a'.repeat(72)}x`],
    ],
    ['a null byte', 'before\0after', ['before', 'before\0', 'before\0other']],
    ['64 emoji', '😀'.repeat(64), ['😀'.repeat(63), '😁'.repeat(64)]],
    ['blanks around it', '  password  ', ['password', ' password ']],
    ['two forms of é', 'pass\u00e9word', ['passe\u0301word']],
    ['128 characters', 'x'.repeat(128), ['x'.repeat(127), 'x'.repeat(129)]],
  ])('takes exactly the password with %s', async (_what, right, wrong) => {
    const email = `exact${++count}@example.com`
    const registered = await api.anonymous('POST', '/auth/register', {
      email,
      password: right,
      firstName: 'A',
      lastName: 'B',
    })
    expect(registered.status).toBe(200)
    expect((await login({ email, password: right })).status).toBe(200)
    for (const other of wrong)
      expect((await login({ email, password: other })).text).toBe(
        '{"message":"Incorrect password.","code":"BAD_REQUEST"}',
      )
  })

  it('answers 413 to a password of 1 MB', async () => {
    expect((await login({ email: 'a@example.com', password: 'x'.repeat(1_000_000) })).status).toBe(413)
  })
})

describe('POST /auth/login, configured', () => {
  it('refuses where local sign-in is switched off', async () => {
    const env = {
      AUTH_SERVICES_ENABLED: 'GITHUB',
      GITHUB_CLIENT_ID: 'x',
      GITHUB_CLIENT_SECRET: 'x',
      BASE_URL: 'http://x.test',
    }
    const app = await configured(api.database, env)
    const response = await app.inject({ method: 'POST', url: '/auth/login', payload: administrator })
    expect({ status: response.statusCode, body: response.json() }).toEqual({
      status: 403,
      body: { message: 'Local authentication is disabled', code: 'FORBIDDEN' },
    })
  })

  it('refuses an unverified address where verification is required, to who knows the password', async () => {
    const app = await configured(api.database, { REQUIRE_EMAIL_VERIFICATION: 'true' })
    const { email, id } = await account()
    const call = async (secret: string) => {
      const response = await app.inject({ method: 'POST', url: '/auth/login', payload: { email, password: secret } })
      return { status: response.statusCode, body: response.json() }
    }
    expect(await call('wrong password')).toEqual({
      status: 400,
      body: { message: 'Incorrect password.', code: 'BAD_REQUEST' },
    })
    expect(await call(password)).toEqual({
      status: 403,
      body: {
        message: 'Email not verified. Please verify your email before logging in.',
        code: 'FORBIDDEN',
        requiresEmailVerification: true,
      },
    })
    expect(await sessionsOf(id)).toEqual([])
    await api.sql('update "svc_User" set "emailVerified" = true where id = $1', [id])
    expect((await call(password)).status).toBe(200)
  })

  it('selects the role at a tenant in multi-tenant mode', async () => {
    const app = await configured(api.database, { MULTI_TENANT: 'true' })
    const { email, id } = await account()
    const [first, second, other] = await api.sql(
      `insert into "svc_Tenant" (name) values ('first'), ('second'), ('other') returning id`,
    )
    const [role] = await api.sql(`insert into "svc_Role" (name) values ('member') returning id`)
    await api.sql('update "svc_UserRole" set "tenant_Id" = $2 where "user_Id" = $1', [id, first.id])
    await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
      id,
      role.id,
      second.id,
    ])
    const call = async (tenant_Id?: unknown) => {
      const response = await app.inject({ method: 'POST', url: '/auth/login', payload: { email, password, tenant_Id } })
      return { status: response.statusCode, body: response.json() }
    }
    expect(await call()).toMatchObject({
      status: 200,
      body: { tenant: { id: first.id, name: 'first' }, role: { name: 'user' } },
    })
    const before = await position()
    const inSecond = await call(second.id.toUpperCase())
    expect(inSecond).toMatchObject({
      status: 200,
      body: { tenant: { id: second.id, name: 'second' }, role: { name: 'member' } },
    })
    expect(await api.sql('select "tenant_Id" from "svc_AuditLog" where position > $1', [String(before)])).toEqual([
      { tenant_Id: second.id },
    ])
    for (const tenant of [other.id, 'no uuid', "' or 1=1"])
      expect(await call(tenant)).toEqual({
        status: 403,
        body: { message: 'Access denied for specified tenant', code: 'FORBIDDEN' },
      })
    const me = await app.inject({ url: '/auth/me', headers: { authorization: `Bearer ${inSecond.body.token}` } })
    expect(me.statusCode).toBe(403)
    await api.sql(
      `insert into "svc_Permission" ("role_Id", collection, action, fields) values ($1, 'svc_User', 'read', '["*"]')`,
      [role.id],
    )
    await expect
      .poll(async () =>
        (await app.inject({ url: '/auth/me', headers: { authorization: `Bearer ${inSecond.body.token}` } })).json(),
      )
      .toMatchObject({ tenant: second.id, role: { name: 'member' } })
  })
})
