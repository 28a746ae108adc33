import { beforeAll, describe, expect, it } from 'vitest'
import { hashSecret } from '../../src/adapters/tokens.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { untilAdmitted } from '../support/wait.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

const person = { firstName: 'Ada', lastName: 'Lovelace', password: 'correct horse' }
let count = 0
const newEmail = () => `person${++count}@example.com`
const register = (body: unknown, on: Api = api) => on.anonymous('POST', '/auth/register', body)
const facts = async (after: bigint, on: Api = api) =>
  (await on.log(after)).map(({ entity, action }) => `${entity} ${action}`)
const account = async (email: string, on: Api = api) =>
  (await on.sql('select * from "svc_User" where email = $1', [email]))[0]
const state = (on: Api = api) =>
  on.sql(`select (select count(*) from "svc_User") as users, (select count(*) from "svc_UserRole") as roles,
    (select count(*) from "svc_Sessions") as sessions, (select count(*) from "svc_EmailLog") as mails`)

describe('POST /auth/register', () => {
  it('creates an account with the default role and signs it in', async () => {
    const email = newEmail()
    const before = await api.position()
    const answer = await register({ ...person, email, phone: ' +43 1 234 567 ', authType: 'web' })
    expect(answer).toMatchObject({
      status: 200,
      body: {
        message: 'User registered successfully',
        authMode: 'jwt',
        user: { email, firstName: 'Ada', lastName: 'Lovelace' },
        role: { name: 'user', isTenantSpecific: true },
        permissions: [],
        tenant: null,
      },
    })
    expect(Object.keys(answer.body).sort()).toEqual([
      'authMode',
      'message',
      'permissions',
      'role',
      'tenant',
      'token',
      'user',
    ])
    expect(Object.keys(answer.body.user).sort()).toEqual(['email', 'firstName', 'id', 'lastName'])
    expect(answer.headers['cache-control']).toBe('no-store')
    expect(answer.headers['set-cookie']).toBeUndefined()
    expect(await facts(before)).toEqual([
      'svc_User create',
      'svc_UserRole create',
      'svc_User register',
      'svc_User login',
    ])
    expect((await api.log(before)).every(({ userId }) => userId === answer.body.user.id)).toBe(true)
    expect(await api.jobs('mail')).toEqual([])
    expect(await account(email)).toMatchObject({
      phone: '+43 1 234 567',
      emailVerified: false,
      status: 'active',
      session_limits: null,
    })
    expect((await api.as(answer.body.token)('GET', '/auth/check')).body).toEqual({
      valid: true,
      user: { id: answer.body.user.id },
    })
  })

  it('keeps neither the password nor the session token anywhere', async () => {
    const email = newEmail()
    const password = 'canary password 1'
    const { body } = await register({ ...person, email, password })
    const sessionToken = JSON.parse(Buffer.from(body.token.split('.')[1], 'base64url').toString()).sessionToken
    const stored = JSON.stringify(
      await api.sql(
        `select to_jsonb(u) from "svc_User" u union all select to_jsonb(s) from "svc_Sessions" s union all select to_jsonb(l) from "svc_AuditLog" l`,
      ),
    )
    expect(stored).not.toContain(password)
    expect(stored).not.toContain(sessionToken)
    expect(stored).toContain(hashSecret(sessionToken))
    const { password: hash } = await account(email)
    expect(hash).toMatch(/^b1:\$2/)
    expect(JSON.stringify(await api.log())).not.toContain(hash)
  })

  it.each([
    ['no body', undefined, 'Email, password, and firstName are required'],
    ['an array', [], 'Email, password, and firstName are required'],
    ['no email', { ...person }, 'Email, password, and firstName are required'],
    ['an array as email', { ...person, email: ['a@example.com'] }, 'Email, password, and firstName are required'],
    [
      'an object as email',
      { ...person, email: { address: 'a@example.com' } },
      'Email, password, and firstName are required',
    ],
    [
      'no password',
      { ...person, email: 'a@example.com', password: undefined },
      'Email, password, and firstName are required',
    ],
    [
      'a number as password',
      { ...person, email: 'a@example.com', password: 12345678 },
      'Email, password, and firstName are required',
    ],
    [
      'blanks as first name',
      { ...person, email: 'a@example.com', firstName: '  ' },
      'Email, password, and firstName are required',
    ],
    ['no last name', { ...person, email: 'a@example.com', lastName: undefined }, 'lastName is required'],
    [
      '7 characters',
      { ...person, email: 'a@example.com', password: '1234567' },
      'Password must be 8 to 128 characters long',
    ],
    [
      '7 emoji',
      { ...person, email: 'a@example.com', password: '😀'.repeat(7) },
      'Password must be 8 to 128 characters long',
    ],
    [
      '129 characters',
      { ...person, email: 'a@example.com', password: 'x'.repeat(129) },
      'Password must be 8 to 128 characters long',
    ],
    [
      'a lone surrogate',
      { ...person, email: 'a@example.com', password: 'password\ud800' },
      'The request body has text that is not valid Unicode',
    ],
    ['an invalid phone', { ...person, email: 'a@example.com', phone: '<script>' }, 'Invalid phone number'],
    [
      'an unknown authMode',
      { ...person, email: 'a@example.com', authMode: 'query' },
      "Invalid authMode. Must be 'jwt' or 'cookie'",
    ],
    [
      'a first name of 256 characters',
      { ...person, email: 'a@example.com', firstName: 'x'.repeat(256) },
      'Names must be at most 255 characters long',
    ],
    [
      'a null byte in a name',
      { ...person, email: 'a@example.com', firstName: 'a\0b' },
      'Names must be at most 255 characters long',
    ],
    [
      'an invitation that was not sent',
      { ...person, email: 'a@example.com', inviteToken: 'x' },
      'Invalid or expired invitation',
    ],
  ])('refuses %s and writes nothing', async (_what, body, message) => {
    const before = await state()
    const position = await api.position()
    expect(await register(body)).toMatchObject({ status: 400, body: { message } })
    expect(await state()).toEqual(before)
    expect(await facts(position)).toEqual([])
  })

  it('refuses an unknown session type', async () => {
    expect(await register({ ...person, email: newEmail(), authType: 'x' })).toMatchObject({
      status: 403,
      body: { message: "Invalid session type. Must be 'mobile' or 'web'" },
    })
  })

  it.each([
    ['a quoted local part', '"a@evil.test x"@corp.test'],
    ['a list', 'a@evil.test,b@corp.test'],
    ['a header', 'a@x.com\r\nBcc: e@evil.test'],
    ['300 characters', `${'a'.repeat(300)}@example.com`],
    ['a dotless i', 'vıctim@x.com'],
    ['a full-width at', 'victim＠x.com'],
    ['a ligature', 'ﬀ@x.com'],
    ['a Kelvin sign', '\u212Aate@x.com'],
    ['a dot at the end', 'victim@x.com.'],
    ['10 KB of nested groups', 'a:(<"'.repeat(2000)],
  ])('refuses %s as address', async (_what, email) => {
    expect(await register({ ...person, email })).toMatchObject({
      status: 400,
      body: { message: 'Invalid email address' },
    })
  })

  it('knows one account by every accepted spelling of its address', async () => {
    const email = newEmail()
    await register({ ...person, email: ` ${email.toUpperCase()} ` })
    expect(await account(email)).toBeDefined()
    const before = await state()
    const position = await api.position()
    for (const other of [email, email.toUpperCase(), ` ${email}`])
      expect(await register({ ...person, email: other })).toMatchObject({
        status: 400,
        body: { message: 'User already exists' },
      })
    expect(await state()).toEqual(before)
    expect(await facts(position)).toEqual([])
  })

  it('refuses a phone number that is another account’s by its own words, after the address', async () => {
    const [first, second] = [newEmail(), newEmail()]
    const phone = '+43 1 999 001'
    expect((await register({ ...person, email: first, phone })).status).toBe(200)
    const before = await state()
    const position = await api.position()
    expect(await register({ ...person, email: second, phone })).toMatchObject({
      status: 400,
      body: { message: 'The phone number belongs to another account', code: 'PHONE_TAKEN', field: 'phone' },
    })
    expect(await register({ ...person, email: first, phone })).toMatchObject({
      status: 400,
      body: { message: 'User already exists' },
    })
    expect(await state()).toEqual(before)
    expect(await facts(position)).toEqual([])
    expect((await register({ ...person, email: second, phone: '+43 1 999 002' })).status).toBe(200)
  })

  it('creates one account of 12 at the same time', async () => {
    const email = newEmail()
    const answers = await Promise.all(
      Array.from({ length: 12 }, () => untilAdmitted(() => register({ ...person, email }))),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ body }) => body.message === 'User already exists')).toHaveLength(11)
    expect(await api.sql('select count(*)::int as n from "svc_User" where email = $1', [email])).toEqual([{ n: 1 }])
  })

  it('ignores members that would choose role, tenant or state', async () => {
    const [admin] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    const email = newEmail()
    const id = '11111111-1111-4111-8111-111111111111'
    const answer = await register({
      ...person,
      email,
      id,
      role_Id: admin.id,
      roleName: 'administrator',
      role: { id: admin.id },
      tenant_Id: id,
      emailVerified: true,
      status: 'suspended',
      session_limits: { web: -1 },
      isAdmin: true,
      createdAt: '2001-01-01T00:00:00Z',
      userRoles: [{ role_Id: admin.id }],
      customFields: { role_Id: admin.id },
      constructor: { prototype: { isAdmin: true } },
    })
    expect(answer.status).toBe(200)
    expect(answer.body.role.name).toBe('user')
    const stored = await account(email)
    expect(stored).toMatchObject({ emailVerified: false, status: 'active', session_limits: null })
    expect(stored.id).not.toBe(id)
    expect(stored.createdAt.getFullYear()).toBeGreaterThan(2020)
    expect(
      await api.sql(
        'select r.name, ur."tenant_Id" from "svc_UserRole" ur join "svc_Role" r on r.id = ur."role_Id" where ur."user_Id" = $1',
        [stored.id],
      ),
    ).toEqual([{ name: 'user', tenant_Id: null }])
  })

  it('refuses __proto__', async () => {
    const response = await api.app.inject({
      method: 'POST',
      url: '/auth/register',
      headers: { 'content-type': 'application/json' },
      payload: `{"email":"${newEmail()}","password":"12345678","firstName":"A","lastName":"B","__proto__":{"isAdmin":true}}`,
    })
    expect(response.statusCode).toBe(400)
  })

  it.each([
    ['text', 'text/plain', JSON.stringify(person), 415],
    ['a form', 'application/x-www-form-urlencoded', 'email=a%40b.c', 415],
    ['JSON that is none', 'application/json', '{"email":', 400],
    ['17 KB', 'application/json', JSON.stringify({ ...person, email: 'x'.repeat(17_000) }), 413],
  ])('refuses %s as body', async (_what, type, payload, status) => {
    const response = await api.app.inject({
      method: 'POST',
      url: '/auth/register',
      headers: { 'content-type': type },
      payload,
    })
    expect(response.statusCode).toBe(status)
    expect(Object.keys(response.json())).toEqual(['message', 'code'])
  })
})

describe('POST /auth/register, configured', () => {
  const closed = { status: 403, body: { message: 'Public registration is disabled', code: 'REGISTRATION_DISABLED' } }

  it.each([
    ['closed registration', { PUBLIC_REGISTRATION: 'false' }, closed],
    [
      'local sign-in switched off',
      { AUTH_SERVICES_ENABLED: 'GITHUB', GITHUB_CLIENT_ID: 'x', GITHUB_CLIENT_SECRET: 'x', BASE_URL: 'http://x.test' },
      undefined,
    ],
  ])('refuses with %s', async (_what, env, expected) => {
    const app = await configured(api.database, env)
    const response = await app.inject({
      method: 'POST',
      url: '/auth/register',
      payload: { ...person, email: newEmail() },
    })
    expect({ status: response.statusCode, body: response.json() }).toEqual(
      expected ?? { status: 403, body: { message: 'Local authentication is disabled', code: 'FORBIDDEN' } },
    )
  })

  it.each([{}, [], { email: 'x' }, { inviteToken: '' }])(
    'says that it is closed, whatever it is sent: %j',
    async (payload) => {
      const app = await configured(api.database, { PUBLIC_REGISTRATION: 'false' })
      const response = await app.inject({ method: 'POST', url: '/auth/register', payload })
      expect({ status: response.statusCode, body: response.json() }).toEqual(closed)
    },
  )

  it('refuses an invitation that was not sent while registration is closed', async () => {
    const app = await configured(api.database, { PUBLIC_REGISTRATION: 'false' })
    const response = await app.inject({
      method: 'POST',
      url: '/auth/register',
      payload: { ...person, email: newEmail(), inviteToken: 'x' },
    })
    expect(response.statusCode).toBe(400)
    expect(response.json()).toEqual({ message: 'Invalid or expired invitation', code: 'BAD_REQUEST' })
  })

  it('gives the role DEFAULT_ROLE_REGISTERED with its permissions, and 503 where there is no such role', async () => {
    const { body } = await api.admin('POST', '/items/svc_Role', { name: 'reader' })
    await api.admin('POST', '/permissions', {
      role_Id: body.data.id,
      collection: 'svc_User',
      action: 'read',
      fields: ['firstName'],
    })
    const reader = await configured(api.database, { DEFAULT_ROLE_REGISTERED: 'reader' })
    const answer = await reader.inject({
      method: 'POST',
      url: '/auth/register',
      payload: { ...person, email: newEmail() },
    })
    expect(answer.json()).toMatchObject({
      role: { id: body.data.id, name: 'reader' },
      permissions: [
        {
          role_Id: body.data.id,
          collection: 'svc_User',
          action: 'read',
          fields: ['firstName'],
          conditions: null,
          createdAt: expect.stringMatching(/Z$/),
        },
      ],
    })
    const nobody = await configured(api.database, { DEFAULT_ROLE_REGISTERED: 'nobody' })
    const position = await api.position()
    const refused = await nobody.inject({
      method: 'POST',
      url: '/auth/register',
      payload: { ...person, email: newEmail() },
    })
    expect([refused.statusCode, refused.json()]).toEqual([
      503,
      { message: 'Registration is not set up on this server', code: 'REGISTRATION_ROLE_MISSING' },
    ])
    expect(await api.log(position)).toEqual([])
  })

  it('answers alike for known and new addresses with AUTH_GENERIC_RESPONSES', async () => {
    const app = await configured(api.database, { AUTH_GENERIC_RESPONSES: 'true' })
    const email = newEmail()
    const once = await app.inject({ method: 'POST', url: '/auth/register', payload: { ...person, email } })
    const again = await app.inject({
      method: 'POST',
      url: '/auth/register',
      payload: { ...person, email, password: 'another password' },
    })
    expect(once.statusCode).toBe(200)
    expect(again.statusCode).toBe(200)
    expect(again.json()).toEqual(once.json())
    expect(once.json()).toEqual({
      message: 'If this email was not registered yet, an account was created. Please sign in.',
    })
    const login = (password: string) => app.inject({ method: 'POST', url: '/auth/login', payload: { email, password } })
    expect((await login(person.password)).statusCode).toBe(200)
    expect((await login('another password')).statusCode).toBe(400)
  })

  it('makes an account without a number that is another account’s, with AUTH_GENERIC_RESPONSES', async () => {
    const app = await configured(api.database, { AUTH_GENERIC_RESPONSES: 'true' })
    const phone = '+43 1 999 003'
    const [first, second] = [newEmail(), newEmail()]
    const answers = []
    for (const email of [first, second]) {
      const answer = await app.inject({ method: 'POST', url: '/auth/register', payload: { ...person, email, phone } })
      answers.push([answer.statusCode, answer.json()])
    }
    expect(answers[1]).toEqual(answers[0])
    expect([(await account(first)).phone, (await account(second)).phone]).toEqual([phone, null])
    const login = { email: second, password: person.password }
    expect((await app.inject({ method: 'POST', url: '/auth/login', payload: login })).statusCode).toBe(200)
  })
})
