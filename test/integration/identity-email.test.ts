import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { hashSecret } from '../../src/adapters/tokens.ts'
import { attemptMail } from '../../src/features/messaging/mail/jobs.ts'
import { createAccount, factsSince, password, plant, sessionOf, type TestAccount } from '../support/accounts.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'

/** The owner of an account gives it another address. */

const link = 'https://app.example.com'
const mailer = openMailer()
let smtp: SmtpDouble
let api: Api
let account: TestAccount
let token: string
let call: Call

beforeAll(async () => {
  smtp = await startSmtp()
  api = await startApi({ AUTH_APP_URL: link, AUTH_RATE_LIMIT_DISABLED: 'true', ...smtp.env })
  return () => mailer.close()
})
beforeEach(async () => {
  await api.sql('delete from pgboss.job')
  smtp.forget()
  account = await createAccount(api)
  token = await sessionOf(api, account)
  call = api.as(token)
})

let count = 0
const newEmail = () => `new${++count}@example.com`
const ask = (email: string, more: object = {}, by = call) =>
  by('POST', '/auth/email/change', { email, currentPassword: password, ...more })
/** As if the account's last request, and mails to the address, were more than a minute ago. */
async function aMinuteLater(email = account.email): Promise<void> {
  const ago = (column: string) => `"${column}" = "${column}" - interval '61 seconds'`
  await api.sql(`update "svc_EmailLog" set ${ago('createdAt')} where email = $1`, [email])
  await api.sql(`update "svc_Challenge" set ${ago('expiresAt')} where identifier like 'email-change:%'`)
}
const confirm = (secret: string) => api.anonymous('GET', `/auth/email/verify/${secret}`)
const attempt = { retryCount: 0, retryLimit: 1, signal: new AbortController().signal }
const mails = (email: string) =>
  api.sql(
    'select id, "templateName", status, "errorMessage" from "svc_EmailLog" where email = $1 order by "createdAt"',
    [email],
  )
const emailOf = async (id: string) =>
  (await api.sql('select email, "emailVerified" from "svc_User" where id = $1', [id]))[0]

/** Sends what waits for the address, and gives the text of the last mail there. */
async function sent(email: string): Promise<string> {
  for (const { id, status } of await mails(email))
    if (status === 'queued') await attemptMail(api.runtime, mailer, id, attempt)
  return smtp.accepted.findLast(({ recipients }) => recipients.includes(email))?.text ?? ''
}

const secretIn = (text: string) => /\/auth\/verify-email\/([0-9a-f]{64})/.exec(text)?.[1]

/** The link that the new address was mailed. */
async function asked(email: string): Promise<string> {
  const answer = await ask(email)
  expect(answer.status, answer.text).toBe(200)
  return secretIn(await sent(email))!
}

describe('POST /auth/email/change', () => {
  it('mails the new address a link and tells the old one, in one commit; nothing has changed yet', async () => {
    const email = newEmail()
    const before = await api.position()
    const answer = await ask(email.toUpperCase(), { link: `${link}/` })
    expect([answer.status, answer.body]).toEqual([
      200,
      { message: 'A mail to confirm the new address has been sent to it.' },
    ])
    expect(await factsSince(api, before)).toEqual([
      'svc_EmailLog create',
      'svc_EmailLog create',
      'svc_User email_change_requested',
      'svc_EmailLog queued',
      'svc_EmailLog queued',
    ])
    const [[wanted], [notice]] = [await mails(email), await mails(account.email)]
    expect([wanted.templateName, notice.templateName]).toEqual(['email_change', 'email_change_notice'])
    const queued = (await api.jobs('mail')).map(({ data }) => data.emailLogId)
    expect(queued.sort()).toEqual([wanted.id, notice.id].sort())
    expect(await emailOf(account.id)).toEqual({ email: account.email, emailVerified: true })
    const [there, here] = [await sent(email), await sent(account.email)]
    expect(there).toContain(account.email)
    expect(secretIn(there)).toBeDefined()
    expect(here).toContain(email)
    expect(secretIn(here)).toBeUndefined()
  })

  it('tells the old address even when the change was faster', async () => {
    const email = newEmail()
    expect((await confirm(await asked(email))).status).toBe(200)
    expect(await sent(account.email)).toContain(email)
  })

  it.each<[string, object, string]>([
    ['no address', { email: undefined }, 'Email is required'],
    ['what is no address', { email: 'nobody' }, 'Invalid email address'],
    ['no password', { currentPassword: undefined }, 'Current password is required'],
    ['an untrusted link', { link: 'https://evil.example' }, 'Invalid link'],
  ])('refuses %s', async (_what, more, message) => {
    const before = await api.position()
    expect(await ask(newEmail(), more)).toMatchObject({ status: 400, body: { message } })
    expect(await factsSince(api, before)).toEqual([])
    expect(await api.jobs('mail')).toEqual([])
  })

  it('refuses the address that the account has, and another account’s', async () => {
    const { email } = await createAccount(api)
    expect(await ask(account.email)).toMatchObject({ status: 400 })
    expect(await ask(email)).toMatchObject({ status: 400, body: { message: 'User already exists' } })
    expect(await api.jobs('mail')).toEqual([])
  })

  it('does not tell that an address is taken where answers are generic', async () => {
    const app = await configured(api.database, { AUTH_GENERIC_RESPONSES: 'true', AUTH_APP_URL: link })
    const { email } = await createAccount(api)
    const post = async (wanted: string, by = token) => {
      const response = await app.inject({
        method: 'POST',
        url: '/auth/email/change',
        headers: { authorization: `Bearer ${by}` },
        payload: { email: wanted, currentPassword: password },
      })
      return [response.statusCode, response.json()]
    }
    const free = newEmail()
    const others = [await createAccount(api), await createAccount(api)]
    const answers = []
    for (const wanted of [email, free]) {
      const answer = [await post(wanted), await post(wanted)]
      await aMinuteLater(account.email)
      // Nor by what another account is answered at once after that.
      const other = await sessionOf(api, others.pop()!)
      answers.push([...answer, await post(wanted, other)])
    }
    expect(answers[0]).toEqual(answers[1])
    expect(answers[0]!.map(([status]) => status)).toEqual([200, 429, 200])
    expect(await mails(email)).toEqual([])
    expect(await mails(free)).toHaveLength(1)
  })

  it('notes a wrong password', async () => {
    const before = await api.position()
    const answer = await ask(newEmail(), { currentPassword: 'not the password' })
    expect(answer).toMatchObject({ status: 400, body: { message: 'Current password is incorrect' } })
    expect(await factsSince(api, before)).toEqual(['svc_User email_change_failed'])
  })

  it('needs a session, and a password on the account', async () => {
    expect((await ask(newEmail(), {}, api.anonymous)).status).toBe(401)
    await api.sql('update "svc_User" set password = null where id = $1', [account.id])
    expect(await ask(newEmail())).toMatchObject({ status: 400, body: { code: 'EMAIL_CHANGE_REQUIRES_PASSWORD' } })
  })

  it('mails an address once a minute', async () => {
    const email = newEmail()
    expect((await ask(email)).status).toBe(200)
    expect((await ask(email)).status).toBe(429)
    expect(await mails(email)).toHaveLength(1)
  })

  it('tells the old address once a minute, whatever the new ones are', async () => {
    expect((await ask(newEmail())).status).toBe(200)
    const more = [newEmail(), newEmail()]
    expect((await Promise.all(more.map((email) => ask(email)))).map(({ status }) => status)).toEqual([429, 429])
    expect(await mails(account.email)).toHaveLength(1)
    for (const email of more) expect(await mails(email)).toEqual([])
    await aMinuteLater()
    expect((await ask(more[0]!)).status).toBe(200)
    expect(await mails(account.email)).toHaveLength(2)
  })
})

describe('the link', () => {
  it('gives the account the address, once, and ends links and codes of both', async () => {
    const email = newEmail()
    const secret = await asked(email)
    const old = [await plant(api, 'magic-link', account.email), await plant(api, 'password-reset', account.email)]
    const foreign = await plant(api, 'magic-link', email)
    const before = await api.position()
    expect(await confirm(secret)).toMatchObject({ status: 200, body: { message: 'Email verified successfully' } })
    expect(await factsSince(api, before)).toEqual([
      'svc_User update',
      'svc_User email_changed',
      'svc_User email_verified',
    ])
    expect(await emailOf(account.id)).toEqual({ email, emailVerified: true })
    for (const one of [...old, foreign]) expect((await api.anonymous('GET', `/auth/magiclink/${one}`)).status).toBe(400)
    expect((await confirm(secret)).status).toBe(400)
    expect((await call('GET', '/auth/check')).status).toBe(200)
    const login = (typed: string) => api.anonymous('POST', '/auth/login', { email: typed, password })
    expect([(await login(email)).status, (await login(account.email)).status]).toEqual([200, 400])
  })

  it('is used once by any number at the same time', async () => {
    const secret = await asked(newEmail())
    const answers = await Promise.all([1, 2, 3, 4, 5].map(() => confirm(secret)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400, 400, 400])
  })

  it.each<[string, () => Promise<unknown>]>([
    [
      'a newer request',
      async () => {
        await aMinuteLater()
        expect((await ask(newEmail())).status).toBe(200)
      },
    ],
    [
      'a new password',
      () => call('POST', '/auth/password/change', { currentPassword: password, newPassword: 'another password' }),
    ],
    [
      'a reset of the password',
      async () =>
        api.anonymous('POST', `/auth/password/reset/${await plant(api, 'password-reset', account.email)}`, {
          password: 'another password',
        }),
    ],
    ['suspension', () => api.admin('PATCH', `/items/svc_User/${account.id}`, { status: 'suspended' })],
    [
      'suspension and reactivation',
      async () => {
        await api.admin('PATCH', `/items/svc_User/${account.id}`, { status: 'suspended' })
        return api.admin('PATCH', `/items/svc_User/${account.id}`, { status: 'active' })
      },
    ],
    [
      'another address set by an administrator',
      () => api.admin('PATCH', `/items/svc_User/${account.id}`, { email: newEmail() }),
    ],
    ['deletion', () => api.admin('DELETE', `/items/svc_User/${account.id}`)],
    ['time', () => api.sql(`update "svc_Verification" set "expiresAt" = now() where identifier like 'email-change:%'`)],
  ])('ends with %s', async (_what, end) => {
    const email = newEmail()
    const secret = await asked(email)
    await end()
    expect(await confirm(secret)).toMatchObject({
      status: 400,
      body: { message: 'Invalid or expired verification token' },
    })
    expect((await emailOf(account.id))?.email).not.toBe(email)
  })

  it('is not mailed any more when the change has ended meanwhile', async () => {
    const email = newEmail()
    expect((await ask(email)).status).toBe(200)
    await call('POST', '/auth/password/change', { currentPassword: password, newPassword: 'another password' })
    expect(await sent(email)).toBe('')
    expect(await mails(email)).toMatchObject([{ status: 'failed' }])
  })

  it('of two accounts for one address works for the first that follows it', async () => {
    const email = newEmail()
    const first = await asked(email)
    await aMinuteLater(email)
    const other = await createAccount(api)
    const otherCall = api.as(await sessionOf(api, other))
    expect((await ask(email, {}, otherCall)).status).toBe(200)
    const second = secretIn(await sent(email))!
    expect(second).not.toBe(first)
    expect((await confirm(first)).status).toBe(200)
    expect(await confirm(second)).toMatchObject({ status: 409, body: { code: 'EMAIL_TAKEN' } })
    expect([(await emailOf(account.id)).email, (await emailOf(other.id)).email]).toEqual([email, other.email])
  })

  it('is known to the database by its hash', async () => {
    const email = newEmail()
    const secret = await asked(email)
    expect(await api.sql('select identifier from "svc_Verification" where value = $1', [hashSecret(secret)])).toEqual([
      { identifier: `email-change:${account.id} ${email}` },
    ])
    expect(JSON.stringify(await api.log())).not.toContain(secret)
  })
})
