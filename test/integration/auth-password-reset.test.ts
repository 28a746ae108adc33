import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { newSecret } from '../../src/adapters/tokens.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { createAccount, factsSince, password, plant, sessionOf } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { connect } from '../support/socket.ts'
import { untilAdmitted, waitFor } from '../support/wait.ts'

const link = 'https://app.example.com'
const next = 'another password'
let api: Api
/** A second web process on the same database. */
let other: Api
beforeAll(async () => {
  api = await startApi({ AUTH_APP_URL: link, SOCKET_ENABLED: 'true' })
  other = await startApi({}, api.database)
})
beforeEach(async () => {
  await afterwardsDone(api.runtime)
  await Promise.all([api.sql('delete from pgboss.job'), api.sql('delete from "svc_CodeTry"')])
})

const ask = (body: unknown) => api.anonymous('POST', '/auth/password/reset', body)
const reset = (secret: string, body: unknown) =>
  api.anonymous('POST', `/auth/password/reset/${encodeURIComponent(secret)}`, body)
const mails = (email: string) => api.sql('select * from "svc_EmailLog" where email = $1', [email])
const login = async (email: string, given: string) =>
  (await api.anonymous('POST', '/auth/login', { email, password: given })).status
const isLive = async (token: string, by = api) => (await by.as(token)('GET', '/auth/check')).status === 200
const secretsOf = (email: string) =>
  api.sql(`select from "svc_Verification" where split_part(identifier, ':', 2) = $1`, [email])
const done = { status: 200, body: { message: 'Password reset successfully' } }
const invalid = { status: 400, body: { message: 'Invalid or expired reset token' } }
const unfit = { status: 400, body: { message: 'Password must be 8 to 128 characters long' } }

describe('POST /auth/password/reset', () => {
  it.each([
    ['link', { link }, { mode: 'link', link }],
    ['code', { mode: 'code' }, { mode: 'code' }],
  ])('queues a %s beside the answer, which is the same for everybody', async (mode, body, context) => {
    const [active, suspended] = [await createAccount(api), await createAccount(api, { status: 'suspended' })]
    const before = await api.position()
    const answers = []
    for (const email of [active.email.toUpperCase(), suspended.email, 'nobody@example.com'])
      answers.push(await ask({ email, ...body }))
    for (const { status, text } of answers)
      expect({ status, text }).toEqual({
        status: 200,
        text: JSON.stringify({ message: `If an account exists, a reset ${mode} will be sent` }),
      })
    expect(await factsSince(api, before)).toEqual([
      'svc_EmailLog create',
      'svc_User password_reset_requested',
      'svc_EmailLog queued',
    ])
    const [mail] = await mails(active.email)
    expect(mail).toMatchObject({ templateName: 'password_reset', status: 'queued', user_Id: active.id, context })
    expect(await api.jobs('mail')).toEqual([{ data: { emailLogId: mail.id } }])
    expect([...(await mails(suspended.email)), ...(await mails('nobody@example.com'))]).toEqual([])
  })

  it('mails a new user a link in the name of an administrator, who need not name the frontend', async () => {
    const email = 'new@example.com'
    const [role] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    const person = { firstName: 'New', lastName: 'User', email, userRoles: [{ role_Id: role.id }] }
    expect((await api.admin('POST', '/items/svc_User', person)).status).toBe(201)
    const user = await api.user([])
    expect((await user.call('POST', '/auth/password/reset', { email })).status).toBe(400)
    expect((await ask({ email })).status).toBe(400)
    const before = await api.position()
    const answer = await api.admin('POST', '/auth/password/reset', { email })
    expect(answer).toMatchObject({ status: 200, body: { message: 'If an account exists, a reset link will be sent' } })
    await afterwardsDone(api.runtime)
    expect(await factsSince(api, before)).toEqual([
      'svc_EmailLog create',
      'svc_User password_reset_requested',
      'svc_EmailLog queued',
    ])
    const [mail] = await mails(email)
    expect(mail).toMatchObject({ templateName: 'password_reset', context: { mode: 'link', link } })
    expect(await api.jobs('mail')).toEqual([{ data: { emailLogId: mail.id } }])
    const secret = await plant(api, 'password-reset', email)
    expect(await reset(secret, { password: next })).toMatchObject(done)
    expect(await login(email, next)).toBe(200)
    expect(await api.sql('select "emailVerified" as proven from "svc_User" where email = $1', [email])).toEqual([
      { proven: true },
    ])
  })

  it('does not wait for the mail: no time to measure tells of an account', async () => {
    const { email } = await createAccount(api)
    await api.sql('alter table "svc_EmailLog" rename to away')
    try {
      expect((await ask({ email, link })).status).toBe(200)
    } finally {
      await api.sql('alter table away rename to "svc_EmailLog"')
    }
  })

  it.each([
    ['no email', { link }, 'Email is required'],
    ['another mode', { email: 'a@example.com', link, mode: 'fax' }, "Invalid mode. Must be 'link' or 'code'"],
  ])('refuses %s', async (_what, body, message) => {
    expect(await ask(body)).toMatchObject({ status: 400, body: { message } })
  })

  it('says what to do about a link that is not trusted, and where none is, and names no address', async () => {
    const body = { email: 'a@example.com', link: 'http://localhost:3000' }
    const hints = ['Must be the address of a frontend in AUTH_APP_URL', 'trusts no frontend yet']
    const answers = [await ask(body), await other.anonymous('POST', '/auth/password/reset', body)]
    for (const [i, answer] of answers.entries()) {
      expect(answer).toMatchObject({ status: 400, body: { message: 'Invalid link' } })
      expect(answer.body.details).toContain(hints[i])
      expect(answer.text).not.toContain(new URL(link).host)
      expect(answer.body.details).not.toContain('missing')
    }
  })

  it('says that the link is missing where none was sent', async () => {
    for (const mode of [{}, { mode: 'link' }]) {
      const answer = await ask({ email: 'a@example.com', ...mode })
      expect(answer).toMatchObject({ status: 400, body: { message: 'Invalid link' } })
      expect(answer.body.details).toMatch(/^link is missing\. Must be the address of a frontend/)
    }
  })
})

describe('POST /auth/password/reset/{token}', () => {
  it.each(['token', 'code'] as const)('sets the password once by a %s', async (form) => {
    const { email, id } = await createAccount(api)
    const secret = await plant(api, 'password-reset', email, { form })
    const before = await api.position()
    expect(await reset(secret, { password: next })).toMatchObject(done)
    expect(await factsSince(api, before)).toEqual(['svc_User update', 'svc_User password_reset'])
    expect((await api.log(before))[1]).toMatchObject({ type: 'auth', entityId: id, changes: null })
    expect(await reset(secret, { password: 'a third password' })).toMatchObject(invalid)
    expect(await login(email, next)).toBe(200)
    expect(await login(email, password)).toBe(400)
  })

  it('ends every session and socket, and everything mailed', async () => {
    const account = await createAccount(api)
    const tokens = [await sessionOf(api, account), await sessionOf(api, account)]
    const link = await plant(api, 'magic-link', account.email)
    const secret = await plant(api, 'password-reset', account.email)
    const address = await api.app.listen({ host: '127.0.0.1', port: 0 })
    const { socket } = await connect(address, tokens[0])
    await waitFor(() => socket.connected)
    expect(await reset(secret, { password: next })).toMatchObject(done)
    for (const token of tokens) expect(await isLive(token)).toBe(false)
    await waitFor(async () => !(await isLive(tokens[0]!, other)))
    await waitFor(() => !socket.connected)
    expect((await api.anonymous('GET', `/auth/magiclink/${link}`)).status).toBe(400)
    expect(await secretsOf(account.email)).toEqual([])
    expect(await api.sql('select from "svc_Sessions" where "user_Id" = $1', [account.id])).toEqual([])
  })

  it('takes one of 50 at the same time, with its password', async () => {
    const { email } = await createAccount(api)
    const secret = await plant(api, 'password-reset', email)
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        untilAdmitted(() =>
          (n % 2 === 0 ? api : other).anonymous('POST', `/auth/password/reset/${secret}`, {
            password: `password ${n}`,
          }),
        ),
      ),
    )
    const winner = answers.findIndex(({ status }) => status === 200)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ body }) => body.message === invalid.body.message)).toHaveLength(49)
    expect(await login(email, `password ${winner}`)).toBe(200)
  })

  it('leaves no session of a link that is followed at the same time', async () => {
    for (let round = 0; round < 6; round += 1) {
      const { email } = await createAccount(api, { emailVerified: round % 2 === 0 })
      const mailed = await plant(api, 'magic-link', email)
      const verification = await plant(api, 'email-verification', email)
      const secret = await plant(api, 'password-reset', email)
      const [answer, opened, verified] = await Promise.all([
        reset(secret, { password: next }),
        other.anonymous('GET', `/auth/magiclink/${mailed}`),
        api.anonymous('GET', `/auth/email/verify/${verification}`),
      ])
      for (const { status } of [answer, opened, verified]) expect([200, 400]).toContain(status)
      if (opened.status === 200 && answer.status === 200) expect(await isLive(opened.body.token)).toBe(false)
    }
  })

  it('proves the address of an account that a stranger may have set up', async () => {
    const account = await createAccount(api, { emailVerified: false })
    const stranger = await sessionOf(api, account)
    const before = await api.position()
    expect(await reset(await plant(api, 'password-reset', account.email), { password: next })).toMatchObject(done)
    expect(await factsSince(api, before)).toEqual([
      'svc_User update',
      'svc_User update',
      'svc_User email_verified',
      'svc_User unverified_credentials_dropped',
      'svc_User password_reset',
    ])
    expect(await isLive(stranger)).toBe(false)
    expect(await login(account.email, next)).toBe(200)
    expect(await login(account.email, password)).toBe(400)
  })

  it('gives an account without a password its first one', async () => {
    const { email } = await createAccount(api, { password: null })
    expect(await reset(await plant(api, 'password-reset', email), { password: next })).toMatchObject(done)
    expect(await login(email, next)).toBe(200)
  })

  it.each([
    ['no body', undefined, 'Password is required'],
    ['no password', {}, 'Password is required'],
    ['a number', { password: 12345678 }, 'Password is required'],
    ['7 characters', { password: '1234567' }, unfit.body.message],
    ['129 characters', { password: 'x'.repeat(129) }, unfit.body.message],
    ['half a character', { password: `1234567${'\ud800'}` }, 'The request body has text that is not valid Unicode'],
  ])('refuses %s without using the token up', async (_what, body, message) => {
    const { email } = await createAccount(api)
    const secret = await plant(api, 'password-reset', email)
    expect(await reset(secret, body)).toMatchObject({ status: 400, body: { message } })
    expect(await secretsOf(email)).toHaveLength(1)
  })

  it.each([
    ['72 letters and one more', `${'a'.repeat(72)}X`, [`${'a'.repeat(72)}Y`, 'a'.repeat(72)]],
    ['a NUL', 'before\0after', ['before\0other', 'before']],
    ['64 emoji', '\u{1f600}'.repeat(64), ['\u{1f600}'.repeat(63)]],
    ['blanks around it', '  blanks count  ', ['blanks count']],
  ])('takes %s as they are', async (_what, wanted, others) => {
    const { email } = await createAccount(api)
    expect(await reset(await plant(api, 'password-reset', email), { password: wanted })).toMatchObject(done)
    for (const wrong of others) expect(await login(email, wrong)).toBe(400)
    expect(await login(email, wanted)).toBe(200)
  })

  it('refuses a megabyte at once', async () => {
    expect((await reset(newSecret(), { password: 'x'.repeat(1_000_000) })).status).toBe(413)
  })

  it.each([
    ['unknown', async () => newSecret()],
    ['expired', (email: string) => plant(api, 'password-reset', email, { expires: '-1 second' })],
    ['of another purpose', (email: string) => plant(api, 'magic-link', email)],
    [
      'replaced by a newer one',
      async (email: string) => {
        const older = await plant(api, 'password-reset', email)
        await plant(api, 'password-reset', email)
        return older
      },
    ],
    [
      'of an address that the account no longer has',
      async (email: string) => {
        await api.sql('update "svc_User" set email = $2 where email = $1', [email, `new.${email}`])
        return plant(api, 'password-reset', email)
      },
    ],
    [
      'of a suspended account',
      async (email: string) => {
        await api.sql(`update "svc_User" set status = 'suspended' where email = $1`, [email])
        return plant(api, 'password-reset', email)
      },
    ],
    [
      'of a deleted account',
      async (email: string) => {
        await api.sql('delete from "svc_User" where email = $1', [email])
        return plant(api, 'password-reset', email)
      },
    ],
    ['an access token', (email: string) => sessionOf(api, { id: '', email })],
  ])('refuses a token that is %s, and the log says so', async (_what, make) => {
    const { email } = await createAccount(api)
    const secret = await make(email)
    const before = await api.position()
    expect(await reset(secret, { password: next })).toMatchObject(invalid)
    expect(await factsSince(api, before)).toEqual(['svc_User password_reset_failed'])
  })
})
