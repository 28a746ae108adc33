import { createServer, type Server } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { seal } from '../../src/adapters/sealing.ts'
import { mailGroup, readMailGroup } from '../../src/events/jobs.ts'
import { contextFor } from '../../src/extensions/context.ts'
import { senderOf } from '../../src/features/messaging/mail/senders.ts'
import { sealedForSettings } from '../../src/features/settings/settings.ts'
import { workers } from '../../src/workers/workers.ts'
import { type Api, startApi } from '../support/api.ts'
import { sendMail } from '../support/mails.ts'
import { testConfig } from '../support/prepare.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let guarded: Api
let smtp: SmtpDouble
let tenant: string

beforeAll(async () => {
  smtp = await startSmtp()
  api = await startApi({ ...smtp.env, SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', AUTH_RATE_LIMIT: '1000' })
  guarded = await startApi({ MAIL_SENDERS_ENABLED: '', AUTH_RATE_LIMIT: '1000' }, api.database)
  tenant = (await api.admin('POST', '/items/svc_Tenant', { name: 'Tenant' })).body.data.id
})

beforeEach(async () => {
  smtp.forget()
  await api.admin('DELETE', `/settings/tenant?tenant_id=${tenant}`)
  await set({ smtp_enabled: false, smtp_host: null, smtp_user: null, smtp_pass: null, smtp_from_address: null })
})

const complete = () => ({
  smtp_enabled: true,
  smtp_host: '127.0.0.1',
  smtp_port: smtp.port,
  smtp_user: 'nobody',
  smtp_pass: 'of the installation',
  smtp_from_address: 'Installation <post@installation.example>',
})

async function set(values: object, query = ''): Promise<void> {
  const { status, text } = await api.admin('PATCH', `/settings${query}`, values)
  expect(status, text).toBe(200)
}

const ofTenant = () => `?tenant_id=${tenant}`
const testMail = (body: unknown, query = '', call = api.admin) => call('POST', `/settings/test-email${query}`, body)
const mails = () => api.sql('select * from "svc_EmailLog" order by "createdAt"')

describe('the sender of a mail', () => {
  const names = () => [senderOf(api.runtime, tenant)?.name, senderOf(api.runtime, undefined)?.name]

  it('is the default one of the environment while the settings name none', () => {
    expect(names()).toEqual(['test', 'test'])
  })

  it("is the installation's SMTP once it is switched on and complete", async () => {
    const { smtp_pass: pass, ...others } = complete()
    await set({ ...others, smtp_enabled: false, smtp_pass: pass })
    expect(names()).toEqual(['test', 'test'])
    await set({ smtp_enabled: true })
    expect(names()).toEqual(['settings', 'settings'])
    await set({ smtp_pass: null })
    expect(names()).toEqual(['test', 'test'])
  })

  it("is a tenant's own SMTP for its mails alone", async () => {
    await set(complete())
    await set({ ...complete(), smtp_host: 'localhost', smtp_pass: 'of the tenant' }, ofTenant())
    expect(names()).toEqual([`settings of tenant ${tenant}`, 'settings'])
    expect(senderOf(api.runtime, tenant)).toMatchObject({ host: 'localhost', pass: 'of the tenant' })
  })

  it("never takes the installation's password to a server that a tenant has named", async () => {
    await set(complete())
    await set(
      { smtp_enabled: true, smtp_host: 'evil.example', smtp_user: 'x', smtp_from_address: 'x@evil.example' },
      ofTenant(),
    )
    expect(senderOf(api.runtime, tenant)).toMatchObject({ name: 'settings', host: '127.0.0.1' })
  })

  it('is the one that the mail names by its address, while there is one', async () => {
    await set(complete())
    const named = (from: string) => senderOf(api.runtime, tenant, from)?.name
    expect(['noreply@daybook.example', 'post@installation.example', 'gone@x.example'].map(named)).toEqual([
      ...['test', 'settings', 'settings'],
    ])
    const { mailService } = contextFor(api.runtime, 'test')
    const mail = { to: 'ada@example.com', type: 'welcome' }
    const id = await mailService.sendMail({ ...mail, from: 'noreply@daybook.example' })
    await mailService.sendMail({ ...mail, from: 'Installation <post@installation.example>' })
    await expect(mailService.sendMail({ ...mail, from: 'ceo@example.com' })).rejects.toThrow(
      expect.objectContaining({ status: 400, message: 'from is not the address of a configured sender' }),
    )
    const mailer = openMailer()
    await sendMail(api.runtime, mailer, id, { retryCount: 0, retryLimit: 0, signal: new AbortController().signal })
    await mailer.close()
    expect(smtp.accepted.map(({ from }) => from)).toMatchObject([{ address: 'noreply@daybook.example' }])
    expect((await mails()).map(({ sender }) => sender)).toEqual(['test', null])
    const jobs = await api.sql(`select group_id as "group" from pgboss.job where name = 'mail' order by created_on`)
    expect(jobs.map(({ group }) => readMailGroup(group))).toEqual(
      ['noreply@daybook.example', 'post@installation.example'].map((from) => ({ tenantId: undefined, from })),
    )
    await api.sql(`delete from "svc_EmailLog"`)
    await api.sql(`delete from pgboss.job where name = 'mail'`)
  })

  it('follows the settings in every process', async () => {
    await set(complete())
    await waitFor(() => senderOf(guarded.runtime, undefined)?.name === 'settings')
    await set({ smtp_from_address: 'other@installation.example' })
    await waitFor(() => senderOf(guarded.runtime, undefined)?.from === 'other@installation.example')
  })
})

describe('POST /settings/test-email', () => {
  it('sends at once, by the settings, and says so', async () => {
    await set(complete())
    const answer = await testMail({ to: 'admin@example.com' })
    expect(answer).toMatchObject({ status: 200, body: { success: true, message: 'Test email sent successfully' } })
    expect(smtp.accepted).toHaveLength(1)
    expect(smtp.accepted[0]).toMatchObject({
      from: { name: 'Installation', address: 'post@installation.example' },
      recipients: ['admin@example.com'],
      subject: 'Test mail from Daybook',
    })
    expect((await mails()).at(-1)).toMatchObject({
      status: 'sent',
      templateName: 'test',
      sender: 'settings',
      attempts: 1,
    })
    expect(await api.jobs('mail')).toEqual([])
  })

  it('tries the SMTP of the tenant that is named, and knows the older name of its member', async () => {
    await set({ ...complete(), smtp_from_address: 'post@tenant.example' }, ofTenant())
    expect(await testMail({ email: 'admin@example.com' }, ofTenant())).toMatchObject({ status: 200 })
    expect(smtp.accepted[0]!.from).toMatchObject({ address: 'post@tenant.example' })
    expect((await mails()).at(-1)).toMatchObject({ sender: `settings of tenant ${tenant}`, tenant_Id: tenant })
  })

  it.each<[string, unknown, string]>([
    ['nothing', {}, 'Email address is required'],
    ['no object', [], 'Email address is required'],
    ['a list', { to: ['a@example.com', 'b@example.com'] }, 'Invalid email address'],
    ['two addresses', { to: 'a@example.com,b@example.com' }, 'Invalid email address'],
    ['a header', { to: 'a@example.com\r\nBcc: e@evil.test' }, 'Invalid email address'],
    ['an encoded word', { to: '=?utf-8?q?a=0d=0aBcc:e@evil.test?= <a@example.com>' }, 'Invalid email address'],
  ])('refuses %s', async (_what, body, message) => {
    const before = (await mails()).length
    expect(await testMail(body)).toMatchObject({ status: 400, body: { error: { message } } })
    expect(await mails()).toHaveLength(before)
    expect(smtp.received).toEqual([])
  })

  it('is for administrators, and for tenants that there are', async () => {
    const body = { to: 'admin@example.com' }
    expect((await testMail(body, '', api.anonymous)).status).toBe(401)
    expect((await testMail(body, '', (await api.user()).call)).status).toBe(403)
    expect((await testMail(body, '?tenant_id=00000000-0000-4000-8000-000000000000')).status).toBe(404)
    expect((await testMail(body, '?tenant_id=x')).status).toBe(404)
  })

  it.each([
    [{ code: 550, at: 'rcpt' }, 'The server refused the message'],
    [{ code: 421, at: 'data' }, 'The server refused the message'],
    ['reset', 'The connection to the server failed'],
  ] as const)('says what is wrong, in words of its own (%j)', async (answer, reason) => {
    await set(complete())
    smtp.answer(answer)
    const { status, body, text } = await testMail({ to: 'admin@example.com' })
    expect({ status, body }).toMatchObject({ status: 500, body: { error: { details: { reason } } } })
    expect(text).not.toContain('as the script says')
    expect((await mails()).at(-1)).toMatchObject({ status: 'failed', errorMessage: expect.any(String) })
  })
})

describe('a server that the settings name', () => {
  let canary: Server
  let connections = 0

  beforeAll(async () => {
    canary = createServer((socket) => {
      connections += 1
      socket.end('220 the banner of an inner service\r\n')
    })
    await new Promise<void>((resolve) => canary.listen(0, '127.0.0.1', resolve))
  })
  afterAll(() => void canary.close())

  it.each(['127.0.0.1', '::1', '169.254.169.254', '10.1.2.3', '::ffff:127.0.0.1', 'fd00:ec2::254'])(
    'cannot be %s, outside the public internet',
    async (smtp_host) => {
      const { status, body } = await guarded.admin('PATCH', '/settings', { smtp_host })
      expect({ status, body }).toMatchObject({ status: 400, body: { error: { message: 'Invalid settings data' } } })
    },
  )

  it.each(['127.0.0.1:5432', 'mail.example.com:25', 'a b', '-x', 'x..y'])('cannot be written %j', async (smtp_host) => {
    expect((await api.admin('PATCH', '/settings', { smtp_host })).status).toBe(400)
  })

  // Stored while it was allowed, or as a name: found out when the connection is made.
  it.each([
    ['an address of this machine', '127.0.0.1', undefined],
    ['a name that leads to this machine', 'localhost', 587],
    ['a port of another service', 'mail.example.com', 5432],
  ])('is not connected to where it is %s', async (_what, smtp_host, port) => {
    const smtp_port = port ?? (canary.address() as { port: number }).port
    await set({ ...complete(), smtp_host, smtp_port })
    await waitFor(() => senderOf(guarded.runtime, undefined)?.host === smtp_host)
    const { status, body, text } = await testMail({ to: 'admin@example.com' }, '', guarded.admin)
    const reason = 'The server must not be reached: it is not a mail port of the public internet'
    expect({ status, body }).toMatchObject({ status: 500, body: { error: { details: { reason } } } })
    expect(text).not.toContain('banner')
    expect(connections).toBe(0)
    expect((await mails()).at(-1)).toMatchObject({ status: 'failed' })
  })

  it('whose banner is none is not quoted', async () => {
    await set({ ...complete(), smtp_port: (canary.address() as { port: number }).port })
    const { status, text } = await testMail({ to: 'admin@example.com' })
    expect(status).toBe(500)
    expect(text).not.toContain('banner')
  })
})

describe('a sender whose password no key opens', () => {
  const lost =
    'The SMTP password cannot be read with the present SECRET_KEY: set it again, or set SECRET_KEY_PREVIOUS to the former key'

  const lose = async (tenantId: string | null) => {
    const config = testConfig(api.database.url, { SECRET_KEY: 'another key, which nobody has kept at all' })
    await api.sql('update "svc_Settings" set smtp_pass = $1 where "tenant_Id" is not distinct from $2::uuid', [
      seal(config, sealedForSettings, 'of a lost key'),
      tenantId,
    ])
    await api.runtime.settings.reload()
  }

  it('stays the sender, so that none of its mails goes out by another one, until the password is set again', async () => {
    await set(complete())
    await lose(null)
    expect(senderOf(api.runtime, undefined)).toMatchObject({ name: 'settings', pass: '', isPasswordLost: true })
    expect(senderOf(api.runtime, tenant, 'post@installation.example')?.name).toBe('settings')
    expect(senderOf(api.runtime, tenant, 'noreply@daybook.example')?.name).toBe('test')
    for (const method of ['GET', 'POST'])
      expect(await api.anonymous(method, '/')).toMatchObject({ status: 200, body: { data: { auth: {} } } })
    await set({ smtp_pass: 'of the installation' })
    expect(await testMail({ to: 'admin@example.com' })).toMatchObject({ status: 200 })
    expect(smtp.accepted).toHaveLength(1)
  })

  it('fails a test mail with the reason', async () => {
    await set(complete())
    await lose(null)
    const { status, body } = await testMail({ to: 'admin@example.com' })
    expect({ status, body }).toMatchObject({ status: 500, body: { error: { details: { reason: lost } } } })
    expect((await mails()).at(-1)).toMatchObject({ status: 'failed', errorMessage: lost })
    expect(smtp.received).toEqual([])
  })

  it('lets the worker start, whose mails of it wait with the reason and those of others are sent', async () => {
    await set({ ...complete(), smtp_from_address: 'post@tenant.example' }, ofTenant())
    await set(complete())
    await lose(null)
    await lose(tenant)
    const { handler, admission, close } = workers.mail[0]!.open(api.runtime)
    const { mailService } = contextFor(api.runtime, 'test')
    const group = async (from?: string) => {
      const mail = { to: 'ada@example.com', type: 'welcome', ...(from && { from }) }
      const id = await mailService.sendMail(mail)
      const [job] = await api.sql(`select group_id as "group" from pgboss.job where data->>'emailLogId' = $1`, [id])
      return { id, group: job.group as string }
    }
    const send = async ({ id, group }: { id: string; group: string }) => {
      expect(admission!.enter(id, group)).toBe(true)
      const job = { id, group, retryCount: 0, retryLimit: 9, signal: new AbortController().signal }
      await handler(api.runtime, { emailLogId: id }, job as never)
    }
    const [waiting, other] = [await group(), await group('noreply@daybook.example')]
    await expect(send(waiting)).rejects.toThrow(lost)
    await send(other)
    expect(admission!.enter('of the tenant', mailGroup(tenant))).toBe(true)
    close()
    const rows = await mails()
    expect(rows.find(({ id }) => id === waiting.id)).toMatchObject({ status: 'queued', errorMessage: lost })
    expect(rows.find(({ id }) => id === other.id)).toMatchObject({ status: 'sent', sender: 'test' })
    expect(smtp.accepted.map(({ from }) => from)).toMatchObject([{ address: 'noreply@daybook.example' }])
    await api.sql(`delete from "svc_EmailLog"`)
    await api.sql(`delete from pgboss.job where name = 'mail'`)
  })
})
