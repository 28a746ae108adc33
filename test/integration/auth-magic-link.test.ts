import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { hashSecret, newSecret } from '../../src/adapters/tokens.ts'
import { createAccount, factsSince, password, plant, sessionOf } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'

const link = 'https://app.example.com'
let api: Api
beforeAll(async () => {
  api = await startApi({ AUTH_APP_URL: link })
})
beforeEach(() => Promise.all([api.sql('delete from pgboss.job'), api.sql('delete from "svc_CodeTry"')]))

const ask = (body: unknown) => api.anonymous('POST', '/auth/magiclink', body)
const open = (secret: string, query = '') =>
  api.anonymous('GET', `/auth/magiclink/${encodeURIComponent(secret)}${query}`)
const mails = (email: string) => api.sql('select * from "svc_EmailLog" where email = $1', [email])
const sessions = (id: string) => api.sql('select id, type from "svc_Sessions" where "user_Id" = $1', [id])
const userRow = async (id: string) => (await api.sql('select * from "svc_User" where id = $1', [id]))[0]
const invalid = { status: 400, body: { message: 'Invalid or expired magic link' } }
const sent = (what: string) => ({
  status: 200,
  body: { message: `If an account exists for this email, a sign-in ${what} has been sent.` },
})

describe('POST /auth/magiclink', () => {
  it.each([
    ['link', { link: `${link}/` }, { mode: 'link', link }],
    ['link', { mode: 'link', link }, { mode: 'link', link }],
    ['code', { mode: 'code' }, { mode: 'code' }],
    ['code', { mode: 'code', link: 'https://evil.test' }, { mode: 'code' }],
  ])('queues a %s to the stored address, with its events and its job', async (mode, body, context) => {
    const { email, id } = await createAccount(api)
    const before = await api.position()
    expect(await ask({ email: ` ${email.toUpperCase()} `, ...body })).toMatchObject(sent(mode))
    expect(await factsSince(api, before)).toEqual([
      'svc_EmailLog create',
      'svc_User magic_link_requested',
      'svc_EmailLog queued',
    ])
    const [mail, ...more] = await mails(email)
    expect(more).toEqual([])
    expect(mail).toMatchObject({ templateName: 'magic_link', status: 'queued', user_Id: id, context })
    expect(await api.jobs('mail')).toEqual([{ data: { emailLogId: mail.id } }])
    expect(await api.sql('select from "svc_Verification" where identifier = $1', [`magic-link:${email}`])).toEqual([])
  })

  it.each([
    ['no body', undefined, 400, 'Email is required'],
    ['no email', { link }, 400, 'Email is required'],
    ['an array as email', { email: ['a@example.com'], link }, 400, 'Email is required'],
    ['an object as email', { email: { eq: 'a@example.com' }, link }, 400, 'Email is required'],
    ['another mode', { email: 'a@example.com', link, mode: 'sms' }, 400, "Invalid mode. Must be 'link' or 'code'"],
    ['an unknown address', { email: 'nobody@example.com', link }, 404, 'User not found'],
    ['an unknown address for a code', { email: 'nobody@example.com', mode: 'code' }, 404, 'User not found'],
  ])('answers %s', async (_what, body, status, message) => {
    const before = await api.position()
    expect(await ask(body)).toMatchObject({ status, body: { message } })
    expect(await factsSince(api, before)).toEqual([])
  })

  it('says that the link is missing where none was sent', async () => {
    const details = expect.stringMatching(/^link is missing\. /)
    expect(await ask({ email: 'a@example.com' })).toMatchObject({
      status: 400,
      body: { message: 'Invalid link', details },
    })
  })

  it('sends nothing to an account that is not active, and does not say so', async () => {
    const { email } = await createAccount(api, { status: 'suspended' })
    expect(await ask({ email, link })).toMatchObject(sent('link'))
    expect(await mails(email)).toEqual([])
  })

  it('with AUTH_GENERIC_RESPONSES does not tell accounts from strangers', async () => {
    const { email } = await createAccount(api)
    const app = await configured(api.database, { AUTH_GENERIC_RESPONSES: 'true', AUTH_APP_URL: link })
    const answers = []
    for (const payload of [
      { email, link },
      { email: 'nobody@example.com', link },
    ])
      answers.push((await app.inject({ method: 'POST', url: '/auth/magiclink', payload })).body)
    expect(answers).toEqual([JSON.stringify(sent('link').body), JSON.stringify(sent('link').body)])
    await expect.poll(async () => (await mails(email)).length).toBe(1)
    expect(await mails('nobody@example.com')).toEqual([])
  })
})

describe.each(['/auth/magiclink', '/auth/password/reset'])('POST %s', (path) => {
  const evil = [
    '"a@evil.test x"@corp.test',
    'a@evil.test,b@corp.test',
    'a@x.com\r\nBcc: e@evil.test',
    `${'a'.repeat(300)}@x.com`,
    'v\u0131ctim@x.com',
    'a\uff20x.com',
    'o\ufb00ice@x.com',
    '\u212aelvin@x.com',
    'cafe\u0301@x.com',
    'caf\u00e9@x.com',
    'a@x.com.',
    'a:(<"'.repeat(2000),
  ]

  it.each(evil)('refuses %.40j as email', async (email) => {
    const before = await api.position()
    expect(await api.anonymous('POST', path, { email, link })).toMatchObject({
      status: 400,
      body: { message: 'Invalid email address' },
    })
    expect(await factsSince(api, before)).toEqual([])
  })

  it('refuses an untrusted link before it looks for an account', async () => {
    const { email } = await createAccount(api)
    await api.sql('alter table "svc_User" rename to hidden')
    try {
      expect(await api.anonymous('POST', path, { email, link: 'https://evil.test' })).toMatchObject({
        status: 400,
        body: { message: 'Invalid link' },
      })
    } finally {
      await api.sql('alter table hidden rename to "svc_User"')
    }
  })
})

describe.each(['token', 'code'] as const)('GET /auth/magiclink/{%s}', (form) => {
  it('signs in once, and verifies the address', async () => {
    const { email, id } = await createAccount(api)
    const secret = await plant(api, 'magic-link', email, { form })
    const before = await api.position()
    const answer = await open(secret)
    expect(answer.status).toBe(200)
    expect(answer.headers['cache-control']).toBe('no-store')
    expect(answer.body).toEqual({
      token: expect.any(String),
      authMode: 'jwt',
      user: { id, email, firstName: 'Ada', lastName: 'Lovelace' },
      role: expect.objectContaining({ name: 'user' }),
      permissions: [],
      tenant: null,
    })
    expect(await factsSince(api, before)).toEqual(['svc_User login'])
    expect((await api.log(before))[0]).toMatchObject({ type: 'auth', entityId: id, userId: id, changes: null })
    expect((await api.as(answer.body.token)('GET', '/auth/check')).body).toEqual({ valid: true, user: { id } })
    expect(await open(secret)).toMatchObject(invalid)
    expect(await sessions(id)).toHaveLength(1)
  })

  it('opens one session for 20 uses at the same time', async () => {
    const { email, id } = await createAccount(api)
    const secret = await plant(api, 'magic-link', email, { form })
    const answers = await Promise.all(Array.from({ length: 20 }, () => open(secret, `?email=${email}`)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(await sessions(id)).toHaveLength(1)
  })

  it('is not used up by HEAD and OPTIONS, nor by a wrong authMode or authType', async () => {
    const { email } = await createAccount(api)
    const secret = await plant(api, 'magic-link', email, { form })
    const path = `/auth/magiclink/${secret}`
    expect((await api.anonymous('HEAD', path)).status).toBe(404)
    expect((await api.anonymous('OPTIONS', path)).status).toBe(404)
    const preflight = { origin: link, 'access-control-request-method': 'GET' }
    expect((await api.anonymous('OPTIONS', path, undefined, preflight)).status).toBe(204)
    expect((await open(secret, '?authMode=smoke')).status).toBe(400)
    expect(await open(secret, '?authType=fridge')).toMatchObject({
      status: 403,
      body: { message: "Invalid session type. Must be 'mobile' or 'web'" },
    })
    expect((await open(secret)).status).toBe(200)
  })

  it('is bound to the email where one is given', async () => {
    const [own, other] = [await createAccount(api), await createAccount(api)]
    const secret = await plant(api, 'magic-link', own.email, { form })
    expect(await open(secret, `?email=${other.email}`)).toMatchObject(invalid)
    expect(await open(secret, '?email=a@b,c@d')).toMatchObject({
      status: 400,
      body: { message: 'Invalid email address' },
    })
    expect(await open(secret, `?email=${own.email}&email=${other.email}`)).toMatchObject({ status: 400 })
    expect((await open(secret, `?email=${own.email.toUpperCase()}&authType=web`)).status).toBe(200)
    expect(await sessions(own.id)).toMatchObject([{ type: 'web' }])
  })

  it.each([
    ['an expired one', (email: string) => plant(api, 'magic-link', email, { form, expires: '-1 second' })],
    ['one of another purpose', (email: string) => plant(api, 'password-reset', email, { form })],
    [
      'one that a newer one replaced',
      async (email: string) => {
        const older = await plant(api, 'magic-link', email, { form })
        await plant(api, 'magic-link', email)
        return older
      },
    ],
    [
      'one of a suspended account',
      async (email: string) => {
        await api.sql(`update "svc_User" set status = 'suspended' where email = $1`, [email])
        return plant(api, 'magic-link', email, { form })
      },
    ],
    [
      'one of a deleted account',
      async (email: string) => {
        await api.sql('delete from "svc_User" where email = $1', [email])
        return plant(api, 'magic-link', email, { form })
      },
    ],
    ['the stored hash', async (email: string) => hashSecret(await plant(api, 'magic-link', email))],
    ['an unknown one', async () => (form === 'token' ? newSecret() : 'ABCD2345')],
    ['SQL', async () => "' or 1=1 --"],
    ['a null byte', async () => '\u0000'],
  ])('refuses %s, and the log says so', async (_what, make) => {
    const { email, id } = await createAccount(api)
    const secret = await make(email)
    const before = await api.position()
    expect(await open(secret)).toMatchObject(invalid)
    expect(await factsSince(api, before)).toEqual(['svc_User magic_link_failed'])
    expect(await sessions(id)).toEqual([])
  })

  it('drops what was set up before the address was first proved', async () => {
    const account = await createAccount(api, { emailVerified: false })
    await api.sql('insert into "svc_Account" ("user_Id", "accountId", "providerId") values ($1, $2, $3)', [
      account.id,
      'x',
      'github',
    ])
    const stranger = await sessionOf(api, account)
    const reset = await plant(api, 'password-reset', account.email)
    const secret = await plant(api, 'magic-link', account.email, { form })
    const before = await api.position()
    const { status, body } = await open(secret)
    expect(status).toBe(200)
    expect(await factsSince(api, before)).toEqual([
      'svc_User update',
      'svc_Account delete',
      'svc_User email_verified',
      'svc_User unverified_credentials_dropped',
      'svc_User login',
    ])
    expect(await userRow(account.id)).toMatchObject({ emailVerified: true, password: null })
    expect((await api.as(stranger)('GET', '/auth/check')).status).toBe(401)
    expect((await api.as(body.token)('GET', '/auth/check')).status).toBe(200)
    expect((await api.anonymous('POST', '/auth/login', { email: account.email, password })).status).toBe(400)
    const again = await api.anonymous('POST', `/auth/password/reset/${reset}`, { password: 'of the stranger' })
    expect(again.status).toBe(400)
  })
})

describe('GET /auth/magiclink in cookie mode', () => {
  const visit = async (headers: Record<string, string>) => {
    const { email } = await createAccount(api)
    const secret = await plant(api, 'magic-link', email)
    return api.anonymous('GET', `/auth/magiclink/${secret}?authMode=cookie`, undefined, headers)
  }

  it('sets the cookie and keeps the token out of the body', async () => {
    const answer = await visit({ origin: link })
    expect(answer).toMatchObject({ status: 200, body: { authMode: 'cookie', message: 'Authentication successful' } })
    expect(answer.body).not.toHaveProperty('token')
    expect(answer.headers['set-cookie']).toMatch(/^token_\w{8}=.*HttpOnly/)
  })

  it.each([
    [{ origin: 'https://evil.test' }, 403],
    [{ 'sec-fetch-site': 'cross-site' }, 403],
    [{ 'sec-fetch-site': 'none' }, 403],
    [{ 'sec-fetch-site': 'same-origin' }, 200],
    [{}, 200],
  ])('answers %j with %i: no page or mail of others may sign somebody in', async (headers, status) => {
    expect((await visit(headers as Record<string, string>)).status).toBe(status)
  })
})

it('where LOCAL is off, nothing of it is served', async () => {
  const app = await configured(api.database, {
    AUTH_SERVICES_ENABLED: 'PASSKEY',
    PASSKEY_RP_ID: 'example.com',
    PASSKEY_RP_NAME: 'Example',
    PASSKEY_ORIGIN: link,
  })
  const email = 'a@example.com'
  for (const [method, url, payload] of [
    ['POST', '/auth/login', { email, password }],
    ['POST', '/auth/register', { email, password, firstName: 'A', lastName: 'B' }],
    ['POST', '/auth/magiclink', { email, link }],
    ['GET', '/auth/magiclink/ABCD2345', undefined],
    ['POST', '/auth/password/reset', { email, link }],
    ['POST', '/auth/password/reset/ABCD2345', { password }],
  ] as const) {
    const response = await app.inject({ method, url, ...(payload && { payload }) })
    expect({ url, status: response.statusCode, body: response.json() }).toEqual({
      url,
      status: 403,
      body: { message: 'Local authentication is disabled', code: 'FORBIDDEN' },
    })
  }
})
