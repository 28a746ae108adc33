import pino from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { buildServer } from '../../src/api/server.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { createAccount, password } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { sendMail } from '../support/mails.ts'
import { testConfig } from '../support/prepare.ts'
import { type ReceivedMail, type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'

/** Every mail of signing in, from the request to the opened link: real HTTP, a real worker, a real SMTP server. */

const link = 'https://app.example.com'
let api: Api
let smtp: SmtpDouble
let web: Runtime
let server: Awaited<ReturnType<typeof buildServer>>
let address: string
let worker: QueueRun
let mailer: ReturnType<typeof openMailer>
let logged: string[] = []

beforeAll(async () => {
  smtp = await startSmtp()
  api = await startApi({ AUTH_APP_URL: link, ...smtp.env })
  const config = testConfig(api.database.url, { AUTH_APP_URL: link, ...smtp.env })
  const log = pino({ level: 'trace' }, { write: (line: string) => logged.push(line) })
  web = await openRuntime({ config, log, name: 'web', worker: false })
  server = await buildServer(web)
  address = await server.listen({ host: '127.0.0.1', port: 0 })
  mailer = openMailer()
  worker = runQueue(web, {
    queue: 'mail',
    concurrency: 2,
    pollMs: 30,
    handler: (_deps, { emailLogId }, job) => sendMail(web, mailer, emailLogId, job),
  })
})

afterAll(async () => {
  await worker.stop(10_000)
  mailer.close()
  await server.close()
  await web.close()
})

beforeEach(() => {
  smtp.forget()
  logged = []
})

/** Headers by which a client could pretend that the API has another address. */
const forged = {
  'x-forwarded-host': 'evil.test',
  'x-forwarded-proto': 'gopher',
  forwarded: 'host=evil.test;proto=https',
}

async function call(method: string, path: string, body?: object): Promise<{ status: number; body: any }> {
  const response = await fetch(`${address}${path}`, {
    method,
    headers: { ...forged, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: await response.json() }
}

async function nextMail(): Promise<ReceivedMail> {
  return waitFor(() => smtp.accepted[0], { what: 'the mail' })
}

/** Nothing that a database administrator or a reader of logs sees may open the account. */
async function expectNowhere(secret: string): Promise<void> {
  for (const table of ['"svc_EmailLog"', '"svc_AuditLog"', '"svc_Verification"', '"svc_CodeTry"', 'pgboss.job'])
    expect(JSON.stringify(await api.sql(`select * from ${table}`)), table).not.toContain(secret)
  expect(logged.join('')).toContain('"path":"/auth/')
  expect(logged.join('')).not.toContain(secret)
}

const mails = [
  {
    what: 'a magic link',
    ask: ['/auth/magiclink', { link }],
    subject: 'Sign in to Daybook',
    secret: /https:\/\/app\.example\.com\/auth\/magiclink\/([0-9a-f]{64})\n/,
    open: (secret: string) => call('GET', `/auth/magiclink/${secret}`),
  },
  {
    what: 'a code to sign in',
    ask: ['/auth/magiclink', { mode: 'code' }],
    subject: 'Sign in to Daybook',
    secret: /^([2-9A-HJKMNP-TV-Z]{8})$/m,
    open: (secret: string, email: string) => call('GET', `/auth/magiclink/${secret.toLowerCase()}?email=${email}`),
  },
  {
    what: 'a link to reset the password',
    ask: ['/auth/password/reset', { link: `${link}/` }],
    subject: 'Set a new password for Daybook',
    secret: /https:\/\/app\.example\.com\/auth\/reset-password\/([0-9a-f]{64})\n/,
    open: (secret: string) => call('POST', `/auth/password/reset/${secret}`, { password: 'the new password' }),
  },
  {
    what: 'a code to reset the password',
    ask: ['/auth/password/reset', { mode: 'code' }],
    subject: 'Set a new password for Daybook',
    secret: /^([2-9A-HJKMNP-TV-Z]{8})$/m,
    open: (secret: string) => call('POST', `/auth/password/reset/${secret}`, { password: 'the new password' }),
  },
  {
    what: 'a verification link',
    ask: ['/auth/email/verify/resend', { link }],
    subject: 'Confirm your e-mail address for Daybook',
    secret: /https:\/\/app\.example\.com\/auth\/verify-email\/([0-9a-f]{64})\n/,
    open: (secret: string) => call('GET', `/auth/email/verify/${secret}`),
  },
] as const

describe.each(mails)('$what', ({ ask: [path, body], subject, secret: pattern, open }) => {
  it('arrives, opens what it says, once, and is written down nowhere', async () => {
    const { email, id } = await createAccount(api, { emailVerified: false })
    expect((await call('POST', path, { email, ...body })).status).toBe(200)
    const mail = await nextMail()
    expect(mail).toMatchObject({ recipients: [email], subject })
    expect(mail.raw).not.toContain('evil.test')
    const [, secret] = pattern.exec(mail.text ?? '') ?? []
    expect(secret, mail.text).toBeDefined()
    expect(mail.html).toContain(secret)
    expect((await fetch(`${address}/auth/magiclink/${secret}`, { method: 'HEAD' })).status).toBe(404)
    expect((await open(secret!, email)).status).toBe(200)
    expect((await open(secret!, email)).status).toBe(400)
    await waitFor(
      async () => (await api.sql('select status from "svc_EmailLog" where email = $1', [email]))[0].status === 'sent',
    )
    await expectNowhere(secret!)
    expect((await api.sql('select "emailVerified" from "svc_User" where id = $1', [id]))[0].emailVerified).toBe(true)
    expect(smtp.received).toHaveLength(1)
  })
})

it('a newer mail makes the older one worthless, be it a link or a code', async () => {
  const { email } = await createAccount(api)
  await call('POST', '/auth/magiclink', { email, link })
  const older = mails[0].secret.exec((await nextMail()).text ?? '')?.[1] ?? ''
  smtp.forget()
  await call('POST', '/auth/magiclink', { email, mode: 'code' })
  const newer = mails[1].secret.exec((await nextMail()).text ?? '')?.[1] ?? ''
  expect((await call('GET', `/auth/magiclink/${older}`)).status).toBe(400)
  expect((await call('GET', `/auth/magiclink/${newer}`)).status).toBe(200)
})

it('lives as long as the mail says', async () => {
  const { email } = await createAccount(api)
  const minutes = async () => {
    await nextMail()
    const [row] = await api.sql(
      `select round(extract(epoch from "expiresAt" - "createdAt") / 60) as minutes from "svc_Verification" where identifier = $1`,
      [`magic-link:${email}`],
    )
    return Number(row.minutes)
  }
  await call('POST', '/auth/magiclink', { email, link })
  expect(await minutes()).toBe(60)
  smtp.forget()
  await call('POST', '/auth/magiclink', { email, mode: 'code' })
  expect(await minutes()).toBe(15)
  expect(smtp.accepted[0]?.text).toContain('for 15 minutes')
})

it('the password is what a stranger registered only until the address is proved', async () => {
  const { email } = await createAccount(api, { emailVerified: false })
  await call('POST', '/auth/magiclink', { email, link })
  const secret = mails[0].secret.exec((await nextMail()).text ?? '')?.[1] ?? ''
  expect((await call('POST', '/auth/login', { email, password })).status).toBe(200)
  expect((await call('GET', `/auth/magiclink/${secret}`)).body.user.email).toBe(email)
  expect((await call('POST', '/auth/login', { email, password })).status).toBe(400)
})
