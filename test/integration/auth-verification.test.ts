import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { hashSecret, newSecret } from '../../src/adapters/tokens.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'

const link = 'https://app.example.com'
let api: Api
beforeAll(async () => {
  api = await startApi({ REQUIRE_EMAIL_VERIFICATION: 'true', AUTH_APP_URL: `${link},https://other.example.com/start` })
})
beforeEach(() => api.sql('delete from pgboss.job'))

const person = { firstName: 'Ada', lastName: 'Lovelace', password: 'correct horse' }
let count = 0
const newEmail = () => `verify${++count}@example.com`
const register = (body: object) => api.anonymous('POST', '/auth/register', { ...person, ...body })
const mails = (email: string) => api.sql('select * from "svc_EmailLog" where email = $1 order by "createdAt"', [email])
const facts = async (after: bigint) => {
  await afterwardsDone(api.runtime)
  return (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
}
const agedMails = (email: string) =>
  api.sql(`update "svc_EmailLog" set "createdAt" = "createdAt" - interval '61 seconds' where email = $1`, [email])

/** An account that has not verified its address, and its mail. */
async function unverified() {
  const email = newEmail()
  const { body } = await register({ email })
  return { email, id: body.user.id as string }
}

/** What the mail worker stores when it sends the mail. */
async function token(email: string, { purpose = 'email-verification', expires = '1 day' } = {}) {
  const secret = newSecret()
  await api.sql(
    `insert into "svc_Verification" (identifier, value, "expiresAt", "createdAt") values ($1, $2, now() + $3::interval, clock_timestamp())`,
    [`${purpose}:${email}`, hashSecret(secret), expires],
  )
  return secret
}

const isVerified = async (id: string) =>
  (await api.sql('select "emailVerified" from "svc_User" where id = $1', [id]))[0].emailVerified

/** A session of an account that login would refuse. */
async function sessionOf(email: string) {
  const app = await configured(api.database, { REQUIRE_EMAIL_VERIFICATION: 'false' })
  const { token: bearer } = (
    await app.inject({ method: 'POST', url: '/auth/login', payload: { email, password: person.password } })
  ).json()
  return api.as(bearer)
}

describe('POST /auth/register with REQUIRE_EMAIL_VERIFICATION', () => {
  it('gives no session and queues the mail with account and events in one commit', async () => {
    const email = newEmail()
    const before = await api.position()
    const answer = await register({ email: email.toUpperCase(), link: `${link}/` })
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({
      message: 'User registered successfully. Please verify your email to login.',
      requiresEmailVerification: true,
      user: { email, firstName: 'Ada', lastName: 'Lovelace' },
      role: { name: 'user' },
      permissions: [],
      tenant: null,
    })
    expect(Object.keys(answer.body).sort()).toEqual([
      'message',
      'permissions',
      'requiresEmailVerification',
      'role',
      'tenant',
      'user',
    ])
    expect(await facts(before)).toEqual([
      'svc_User create',
      'svc_UserRole create',
      'svc_EmailLog create',
      'svc_User register',
      'svc_EmailLog queued',
    ])
    const [mail, ...more] = await mails(email)
    expect(more).toEqual([])
    expect(mail).toMatchObject({
      email,
      templateName: 'verification',
      status: 'queued',
      user_Id: answer.body.user.id,
      context: { link },
    })
    expect(await api.jobs('mail')).toEqual([{ data: { emailLogId: mail.id } }])
    expect(await api.sql('select * from "svc_Sessions" where "user_Id" = $1', [answer.body.user.id])).toEqual([])
    expect((await api.anonymous('POST', '/auth/login', { email, password: person.password })).status).toBe(403)
  })

  it.each([
    ['the first AUTH_APP_URL without one', undefined, link],
    ['another listed address', 'https://other.example.com/start', 'https://other.example.com/start'],
    ['the origin of a listed address', 'https://other.example.com/', 'https://other.example.com'],
    ['a path at a trusted origin', 'https://app.example.com/team/sign-in', 'https://app.example.com/team/sign-in'],
    ['a path with a slash at its end', 'https://app.example.com/de/', 'https://app.example.com/de'],
    ['a path beside the listed one', 'https://other.example.com/a/b', 'https://other.example.com/a/b'],
    [
      'a path of many characters',
      "https://app.example.com/~a.b/(x)'!$&*+,;=:@",
      "https://app.example.com/~a.b/(x)'!$&*+,;=:@",
    ],
    ['a path with letters of other scripts', 'https://app.example.com/caf%C3%A9', 'https://app.example.com/caf%C3%A9'],
  ])('mails a link to %s', async (_what, given, mailed) => {
    const email = newEmail()
    expect((await register({ email, link: given })).status).toBe(200)
    expect((await mails(email))[0].context).toMatchObject({ link: mailed })
  })

  it('does not tell what the role may before the address is verified', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    const permission = { role_Id: id, collection: 'svc_File', action: 'read', fields: ['*'] }
    const made = await api.admin('POST', '/permissions', permission)
    expect((await register({ email: newEmail() })).body).toMatchObject({ role: { id }, permissions: [] })
    const app = await configured(api.database, { REQUIRE_EMAIL_VERIFICATION: 'false' })
    const payload = { ...person, email: newEmail() }
    const verified = (await app.inject({ method: 'POST', url: '/auth/register', payload })).json()
    expect(verified.permissions).toMatchObject([{ collection: 'svc_File' }])
    await api.admin('DELETE', `/permissions/${made.body.id}`)
  })

  it('writes nothing for an address that has an account', async () => {
    const { email } = await unverified()
    const before = await api.position()
    expect(await register({ email })).toMatchObject({ status: 400, body: { message: 'User already exists' } })
    expect(await facts(before)).toEqual([])
    expect(await mails(email)).toHaveLength(1)
  })

  it('refuses where no frontend is known', async () => {
    const app = await configured(api.database, { REQUIRE_EMAIL_VERIFICATION: 'true' })
    const response = await app.inject({
      method: 'POST',
      url: '/auth/register',
      payload: { ...person, email: newEmail() },
    })
    expect({ status: response.statusCode, body: response.json() }).toEqual({
      status: 400,
      body: { message: 'Invalid link', code: 'BAD_REQUEST', details: expect.stringContaining('AUTH_APP_URL') },
    })
  })

  it('trusts the addresses of the settings, if they are any', async () => {
    await api.sql(
      `update "svc_Settings" set app_url = 'https://settings.example.com/', project_url = 'javascript:alert(1)'`,
    )
    await expect.poll(() => api.runtime.settings.current().app_url).toBe('https://settings.example.com/')
    const email = newEmail()
    expect((await register({ email, link: 'https://settings.example.com' })).status).toBe(200)
    expect((await register({ email: newEmail(), link: 'javascript:alert(1)' })).status).toBe(400)
    await api.sql(`update "svc_Settings" set app_url = 'https://user@evil.test'`)
    await expect.poll(() => api.runtime.settings.current().app_url).toBe('https://user@evil.test')
    for (const evil of ['https://user@evil.test', 'https://evil.test'])
      expect((await register({ email: newEmail(), link: evil })).status).toBe(400)
  })
})

describe('an untrusted link', () => {
  const links = [
    'https://app.example.com@evil.test',
    '//evil.test',
    '//app.example.com',
    'https://app.example.com.evil.test',
    'https://app.example.com\\.evil.test',
    'https://APP.example.com/%2e%2e/',
    'https://app.example.com/%2e%2e/',
    'https://app.example.com/path?next=//evil.test',
    'https://app.example.com/path#evil',
    'https://app.example.com/path\\evil.test',
    'https://app.example.com\\path',
    'https://app.example.com//evil.test',
    'https://app.example.com/a//b',
    'https://app.example.com/a/../b',
    'https://app.example.com/a/./b',
    'https://app.example.com/a/..',
    'https://app.example.com/..;/b',
    'https://app.example.com/a/%2E%2e/b',
    'https://app.example.com/a%2f..%2fb',
    'https://app.example.com/a%5cb',
    'https://app.example.com/a%252eb',
    'https://app.example.com/a%0d%0aBcc:%20e@evil.test',
    'https://app.example.com/a b',
    'https://app.example.com/a\tb',
    'https://app.example.com/"onclick="x',
    'https://app.example.com/<b>',
    'https://app.example.com/über',
    'https://app.example.com/a%zz',
    'https://user@app.example.com/path',
    'https://APP.example.com/path',
    'HTTPS://app.example.com/path',
    'https:/app.example.com/path',
    'https://app.example.com:443/path',
    'https://evil.test/https://app.example.com/path',
    'https://app.example.com?next=//evil.test',
    'https://app.example.com#evil',
    'https://user:password@app.example.com',
    'http://app.example.com',
    'https://app.example.com:8443',
    'https://app.example.com\r\nBcc: e@evil.test',
    ' https://app.example.com',
    'javascript:alert(1)',
    'data:text/html,x',
    'app.example.com',
    '',
    `https://app.example.com/${'a'.repeat(5000)}`,
    [link],
    { href: link },
    7,
    true,
  ]

  it.each(links.map((given) => [JSON.stringify(given).slice(0, 60), given] as const))(
    '%s is refused everywhere, and nothing is mailed',
    async (_what, given) => {
      const before = await api.position()
      const refused = { status: 400, body: { message: 'Invalid link' } }
      expect(await register({ email: newEmail(), link: given })).toMatchObject(refused)
      expect(
        await api.anonymous('POST', '/auth/email/verify/resend', { email: newEmail(), link: given }),
      ).toMatchObject(refused)
      expect(await api.admin('POST', '/auth/email/verify/resend', { link: given })).toMatchObject(refused)
      expect(await api.admin('POST', '/auth/email/verify', { link: given })).toMatchObject(refused)
      for (const path of ['/auth/magiclink', '/auth/password/reset'])
        expect(await api.anonymous('POST', path, { email: 'admin@example.com', link: given })).toMatchObject(refused)
      expect(await facts(before)).toEqual([])
    },
  )
})

describe('POST /auth/email/verify/resend without a session', () => {
  const generic = {
    status: 200,
    body: { message: 'If an account exists for this email, a verification email has been sent.' },
  }
  const resend = (body: unknown) => api.anonymous('POST', '/auth/email/verify/resend', body)

  it('answers alike whatever there is to the address', async () => {
    const fresh = await unverified()
    const waiting = await unverified()
    const done = await unverified()
    const suspended = await unverified()
    await api.sql('update "svc_User" set "emailVerified" = true where id = $1', [done.id])
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [suspended.id])
    for (const { email } of [fresh, done, suspended]) await agedMails(email)
    const before = await api.position()
    await api.sql('delete from pgboss.job')
    const cases = {
      fresh: fresh.email.toUpperCase(),
      waiting: waiting.email,
      done: done.email,
      suspended: suspended.email,
      unknown: 'nobody@example.com',
    }
    for (const [name, email] of Object.entries(cases)) {
      const answer = await resend({ email, link })
      expect(answer, name).toMatchObject(generic)
      expect(Object.keys(answer.body)).toEqual(['message'])
    }
    expect(await facts(before)).toEqual(['svc_EmailLog create', 'svc_EmailLog queued'])
    const [, again] = await mails(fresh.email)
    expect(again).toMatchObject({
      templateName: 'verification',
      status: 'queued',
      user_Id: fresh.id,
      context: { link },
    })
    expect(await api.jobs('mail')).toEqual([{ data: { emailLogId: again.id } }])
  })

  it('sends one mail for 20 requests at the same time', async () => {
    const { email } = await unverified()
    await agedMails(email)
    await Promise.all(Array.from({ length: 20 }, () => resend({ email, link })))
    await afterwardsDone(api.runtime)
    expect(await mails(email)).toHaveLength(2)
  })

  it.each([
    ['no email', { link }, 'Email is required'],
    ['an array as email', { link, email: ['a@example.com'] }, 'Email is required'],
    ['a list as email', { link, email: 'a@evil.test,b@corp.test' }, 'Invalid email address'],
    ['a header in the email', { link, email: 'a@x.com\r\nBcc: e@evil.test' }, 'Invalid email address'],
    ['10 KB of nested groups as email', { link, email: 'a:(<"'.repeat(2000) }, 'Invalid email address'],
  ])('refuses %s', async (_what, body, message) => {
    expect(await resend(body)).toMatchObject({ status: 400, body: { message } })
  })

  it('says that the link is missing where none was sent', async () => {
    const details = expect.stringMatching(/^link is missing\. /)
    const refused = { status: 400, body: { message: 'Invalid link', details } }
    expect(await resend({ email: 'a@example.com' })).toMatchObject(refused)
  })

  it('has no cooldown at 0 seconds', async () => {
    const app = await configured(api.database, { EMAIL_VERIFICATION_RESEND_COOLDOWN: '0', AUTH_APP_URL: link })
    const { email } = await unverified()
    for (let i = 0; i < 2; i += 1)
      await app.inject({ method: 'POST', url: '/auth/email/verify/resend', payload: { email, link } })
    await expect.poll(async () => (await mails(email)).length).toBe(3)
  })
})

describe.each(['/auth/email/verify/resend', '/auth/email/verify'])('POST %s with a session', (path) => {
  it('tells what became of it', async () => {
    const { email, id } = await unverified()
    const call = await sessionOf(email)
    const recently = {
      status: 429,
      body: { message: 'A verification email was sent recently. Please wait before requesting another.' },
    }
    expect(await call('POST', path, { link })).toMatchObject(recently)
    await agedMails(email)
    const before = await api.position()
    // The session decides, not the body.
    expect(await call('POST', path, { link, email: 'other@example.com' })).toMatchObject({
      status: 200,
      body: { message: 'Verification email sent' },
    })
    expect(await facts(before)).toEqual(['svc_EmailLog create', 'svc_EmailLog queued'])
    expect(await mails(email)).toHaveLength(2)
    expect(await mails('other@example.com')).toEqual([])
    expect(await call('POST', path, { link })).toMatchObject(recently)
    await api.sql('update "svc_User" set "emailVerified" = true where id = $1', [id])
    expect(await call('POST', path, { link })).toMatchObject({
      status: 200,
      body: { message: 'Email already verified' },
    })
    await api.sql('update "svc_User" set email = null, "emailVerified" = false where id = $1', [id])
    expect(await call('POST', path, { link })).toMatchObject({
      status: 400,
      body: { message: 'User not found or no email set' },
    })
  })
})

describe('GET /auth/email/verify/{token}', () => {
  const verify = (secret: string) => api.anonymous('GET', `/auth/email/verify/${secret}`)
  const invalid = { status: 400, body: { message: 'Invalid or expired verification token' } }

  it('verifies the address once', async () => {
    const { email, id } = await unverified()
    const secret = await token(email)
    const before = await api.position()
    expect(await verify(secret)).toMatchObject({ status: 200, body: { message: 'Email verified successfully' } })
    expect(await facts(before)).toEqual(['svc_User update', 'svc_User email_verified'])
    expect(await isVerified(id)).toBe(true)
    expect(await verify(secret)).toMatchObject(invalid)
    expect((await api.anonymous('POST', '/auth/login', { email, password: person.password })).status).toBe(200)
  })

  it('verifies once of 20 at the same time', async () => {
    const { email } = await unverified()
    const secret = await token(email)
    const before = await api.position()
    const answers = await Promise.all(Array.from({ length: 20 }, () => verify(secret)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(await facts(before)).toEqual(['svc_User update', 'svc_User email_verified'])
  })

  it('is not used up by HEAD', async () => {
    const { email, id } = await unverified()
    const secret = await token(email)
    expect((await api.anonymous('HEAD', `/auth/email/verify/${secret}`)).status).toBe(404)
    expect(await isVerified(id)).toBe(false)
    expect((await verify(secret)).status).toBe(200)
  })

  it.each([
    ['an unknown one', async () => newSecret()],
    ['the stored hash itself', async (email: string) => hashSecret(await token(email))],
    ['an expired one', (email: string) => token(email, { expires: '-1 second' })],
    ['one of another purpose', (email: string) => token(email, { purpose: 'password-reset' })],
    [
      'one that a newer one replaced',
      async (email: string) => {
        const older = await token(email)
        await token(email)
        return older
      },
    ],
    [
      'one sent to an address the account no longer has',
      async (email: string) => {
        const secret = await token(email)
        await api.sql('update "svc_User" set email = $2 where email = $1', [email, `new.${email}`])
        return secret
      },
    ],
    ['SQL', async () => encodeURIComponent("' or 1=1 --")],
    ['a null byte', async () => '%00'],
    ['400 characters', async () => 'a'.repeat(400)],
  ])('refuses %s', async (_what, make) => {
    const { email, id } = await unverified()
    const secret = await make(email)
    const before = await api.position()
    expect(await verify(secret)).toMatchObject(invalid)
    expect(await isVerified(id)).toBe(false)
    expect(await facts(before)).toEqual([])
  })
})
