import pino from 'pino'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { openMailer, type SmtpSender } from '../../src/adapters/mailer.ts'
import { hashSecret } from '../../src/adapters/tokens.ts'
import { sql } from '../../src/db/sql.ts'
import { renewMailClaim } from '../../src/db/unlogged/messages.ts'
import { commit } from '../../src/events/commit.ts'
import { installationGroup } from '../../src/events/jobs.ts'
import { systemActor } from '../../src/events/types.ts'
import { sendMailInLane, sweepMails } from '../../src/features/messaging/mail/jobs.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { openLanes } from '../../src/features/messaging/mail/senders.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { sendMail } from '../support/mails.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { type ReceivedMail, type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'

const link = 'https://app.example/start/'
const retryLimit = 6

let runtime: Runtime
let url: string
let smtp: SmtpDouble
let logged: string[] = []
const runs: QueueRun[] = []
const mailers: ReturnType<typeof openMailer>[] = []

beforeAll(async () => {
  ;({ url } = await createDatabase())
  smtp = await startSmtp()
  runtime = await openWorker(smtp.env)
  await (await runtime.boss()).updateQueue('mail', { retryDelay: 0, retryBackoff: false, retryLimit })
})

afterEach(async () => {
  await Promise.all(runs.splice(0).map((run) => run.stop(10_000)))
  for (const mailer of mailers.splice(0)) mailer.close()
  await smtp.stop()
  await smtp.start()
  await query('delete from pgboss.job')
  await query('delete from "svc_EmailLog"')
  await query('delete from "svc_Verification"')
  smtp.forget()
  logged = []
})

afterAll(() => runtime.close())

describe('an accepted mail', () => {
  it('reaches its recipient once, and the log tells how', async () => {
    await serveMails()
    const user = await createUser('Ada')
    const id = await queue(user.email, { user })
    await waitForStatus(id, 'sent')
    expect(smtp.received).toHaveLength(1)
    const [mail] = smtp.accepted as [ReceivedMail]
    expect(mail.recipients).toEqual([user.email])
    expect(mail).toMatchObject({
      from: { name: 'Daybook', address: 'noreply@daybook.example' },
      subject: 'Confirm your e-mail address for Daybook',
      messageId: `<${id}@daybook.example>`,
    })
    expect(mail.text).toContain('Hello Ada,')
    expect(mail.text).toContain(`https://app.example/start/auth/verify-email/${tokenIn(mail)}`)
    expect(mail.html).toContain(`href="https://app.example/start/auth/verify-email/${tokenIn(mail)}"`)
    expect(mail.raw).toMatch(/Content-Type: multipart\/related.*Content-ID: <logo>/s)
    expect(mail.html).toContain('src="cid:logo"')
    expect(await mailRow(id)).toMatchObject({
      email: user.email,
      subject: mail.subject,
      templateName: 'verification',
      sender: 'test',
      messageId: `<${id}@daybook.example>`,
      errorMessage: null,
      attempts: 1,
      claimToken: null,
      sentAt: expect.any(Date),
    })
    expect(await eventsOf(id)).toEqual([
      { action: 'create', status: 'queued' },
      { action: 'queued', status: null },
      { action: 'update', status: 'sending' },
      { action: 'update', status: 'sent' },
    ])
    await waitFor(async () => (await jobStates()).join() === 'completed')
  })

  it('is not sent when its transaction is rolled back', async () => {
    await serveMails()
    const rolledBack = commit(runtime, systemActor, async (tx) => {
      const { event } = await queueMail(tx, { type: 'verification', to: 'never@mail.example', context: { link } })
      await tx.any(sql`select 1 / 0`)
      return { result: undefined, events: [event] }
    })
    await expect(rolledBack).rejects.toThrow()
    await waitForStatus(await queue('ever@mail.example'), 'sent')
    expect(smtp.received.map(({ recipients }) => recipients)).toEqual([['ever@mail.example']])
    expect(await query('select email from "svc_EmailLog"')).toEqual([{ email: 'ever@mail.example' }])
  })

  it('is sent once when two workers serve the queue', async () => {
    const other = await openWorker(smtp.env)
    try {
      const first = await serveMails()
      const second = await serveMails(other)
      const ids = await Promise.all(Array.from({ length: 40 }, (_, n) => queue(`user${n}@mail.example`)))
      for (const id of ids) await waitForStatus(id, 'sent')
      await Promise.all([first.stop(10_000), second.stop(10_000)])
      expect(smtp.received).toHaveLength(40)
      expect(new Set(smtp.received.map(({ messageId }) => messageId)).size).toBe(40)
    } finally {
      await other.close()
    }
  })

  it('has exactly one of each header, whatever the settings say', async () => {
    const evil = 'Evil\r\nBcc: evil@evil.test\u2028X-Evil: yes'
    await setSettings({ project_name: evil, from_email_name: `${evil}"<evil@evil.test>` })
    await serveMails()
    await waitForStatus(await queue('user@mail.example'), 'sent')
    const [mail] = smtp.accepted as [ReceivedMail]
    const head = mail.raw.slice(0, mail.raw.indexOf('\r\n\r\n')).toLowerCase()
    for (const header of ['from', 'to', 'subject', 'message-id', 'date'])
      expect(head.match(new RegExp(`^${header}:`, 'gm')), header).toHaveLength(1)
    expect(head).not.toMatch(/^(bcc|x-evil):/m)
    expect(mail.recipients).toEqual(['user@mail.example'])
    expect(mail.from?.address).toBe('noreply@daybook.example')
    await setSettings({ project_name: 'Daybook', from_email_name: null })
  })

  it('shows what people call themselves as text, in its headers too', async () => {
    await serveMails()
    const name = '<img src=x onerror=alert(1)>{{ 7 | times: 7 }}{% raw %}'
    const user = await createUser(`${name}\r\nBcc: evil@evil.test\u2028X-Evil: yes\u202e`)
    const [before] = await query(`select subject from "svc_Template" where type = 'verification'`)
    await query(`update "svc_Template" set subject = '{{ user.firstName }}' where type = 'verification'`)
    await waitForStatus(await queue(user.email, { user }), 'sent')
    await query(`update "svc_Template" set subject = '${before!.subject}' where type = 'verification'`)
    const [mail] = smtp.accepted as [ReceivedMail]
    expect(mail.html).toContain('&lt;img src=x onerror=alert(1)&gt;{{ 7 | times: 7 }}{% raw %}')
    expect(mail.html).not.toContain('<img src=x')
    expect(mail.subject).toMatch(
      /^<img src=x onerror=alert\(1\)>\{\{ 7 \| times: 7 \}\}\{% raw %\} +Bcc: evil@evil\.test /,
    )
    expect(mail.headers.map(({ key }) => key)).not.toEqual(expect.arrayContaining([expect.stringMatching(/bcc|evil/)]))
    expect(mail.recipients).toEqual([user.email])
  })
})

describe('queueMail', () => {
  it.each([
    ['two addresses', 'a@evil.test,b@corp.test'],
    ['a header', 'a@x.example\r\nBcc: e@evil.test'],
    ['a display name', 'A <a@x.example>'],
    ['a quoted local part', '"a@evil.test x"@corp.test'],
    ['blanks', ' a@x.example'],
    ['a long address', `${'a'.repeat(64)}@${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(63)}.example`],
    ['nothing', ''],
  ])('refuses %s', async (_what, to) => {
    await expect(queue(to)).rejects.toMatchObject({ status: 400 })
    expect(await query('select id from "svc_EmailLog"')).toEqual([])
  })
})

describe('the secret of a mail', () => {
  it('is known to the recipient only', async () => {
    smtp.answer({ code: 450, at: 'data', quoting: /verify-email.*/ }, 'reset')
    await serveMails()
    const user = await createUser('Ada')
    const id = await queue(user.email, { user, subject: 'Open {{ verificationLink }}' })
    await waitForStatus(id, 'sent')
    const token = tokenIn(smtp.accepted[0]!)
    expect(smtp.accepted[0]!.subject).toContain(token)
    expect(await mailRow(id)).toMatchObject({ subject: 'Open https://app.example/start/auth/verify-email/•••' })
    expect(token).toMatch(/^[0-9a-f]{64}$/)
    for (const table of ['"svc_EmailLog"', '"svc_AuditLog"', '"svc_Verification"', 'pgboss.job', '"svc_Settings"'])
      expect(JSON.stringify(await query(`select * from ${table}`)), table).not.toContain(token)
    expect(logged.join('')).not.toContain(token)
    expect(logged.join('')).toContain('mail attempted')
  })

  it('is stored as a hash that lives for a day by the clock of the database', async () => {
    await serveMails()
    await waitForStatus(await queue('user@mail.example'), 'sent')
    const rows = await query(
      `select identifier, value, "expiresAt" - now() between interval '23:59' and interval '24:00' as "oneDay" from "svc_Verification"`,
    )
    const value = hashSecret(tokenIn(smtp.accepted[0]!))
    expect(rows).toEqual([{ identifier: 'email-verification:user@mail.example', value, oneDay: true }])
  })

  it('is replaced by that of a newer mail, and an older mail that waits is not sent any more', async () => {
    await smtp.stop()
    const older = await queue('user@mail.example')
    const newer = await queue('user@mail.example')
    await smtp.start()
    await serveMails()
    await waitForStatus(newer, 'sent')
    await waitForStatus(older, 'failed')
    expect((await mailRow(older)).errorMessage).toBe('superseded by a newer mail')
    expect(smtp.received.map(({ messageId }) => messageId)).toEqual([`<${newer}@daybook.example>`])
    expect(await query('select value from "svc_Verification"')).toEqual([
      { value: hashSecret(tokenIn(smtp.accepted[0]!)) },
    ])
  })

  it('stays alone when mails are asked for one after the other', async () => {
    await serveMails()
    await waitForStatus(await queue('user@mail.example'), 'sent')
    await waitForStatus(await queue('user@mail.example'), 'sent')
    expect(await query('select value from "svc_Verification"')).toEqual([
      { value: hashSecret(tokenIn(smtp.accepted[1]!)) },
    ])
  })

  it('is not brought back by a retry after it was used', async () => {
    smtp.answer('reset')
    const id = await queue('user@mail.example')
    const mailer = openTestMailer()
    await expect(sendMail(runtime, mailer, id, attempt(0))).rejects.toThrow()
    await query('delete from "svc_Verification"')
    await sendMail(runtime, mailer, id, attempt(1))
    expect(await mailRow(id)).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining('used or expired'),
    })
    expect(await query('select * from "svc_Verification"')).toEqual([])
    expect(smtp.received).toHaveLength(1)
  })
})

describe('a waiting mail of a tenant', () => {
  let tenants: Runtime

  beforeAll(async () => {
    tenants = await openWorker({ ...smtp.env, MULTI_TENANT: 'true' })
  })

  afterAll(() => tenants.close())

  /** What became of a mail of a tenant to a member of it, after something has happened. */
  const outcomeAfter = async (happens: string) => {
    const user = await createUser('Ada')
    const [tenant] = await query<{ id: string }>(
      `insert into "svc_Tenant" (name) values ('${runtime.newId()}') returning id`,
    )
    const join = `insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") select '${user.id}', id,`
    await query(`${join} '${tenant!.id}' from "svc_Role" where name = 'user'`)
    const id = await queue(user.email, { user, tenantId: tenant!.id })
    await query(happens.replaceAll('$user', user.id).replaceAll('$tenant', tenant!.id))
    await sendMail(tenants, openTestMailer(), id, attempt(0))
    const { status, errorMessage } = await mailRow(id)
    return { status, errorMessage }
  }
  const sent = { status: 'sent', errorMessage: null }

  it.each([
    ['nothing has happened', 'select'],
    [
      'its user has a role in all tenants instead',
      `update "svc_UserRole" set "tenant_Id" = null where "user_Id" = '$user'`,
    ],
  ])('is sent when %s', async (_what, happens) => {
    expect(await outcomeAfter(happens)).toEqual(sent)
    expect(smtp.accepted).toHaveLength(1)
  })

  it.each([
    ['the tenant is deleted', `delete from "svc_Tenant" where id = '$tenant'`, 'the tenant is gone'],
    ['its user leaves', `delete from "svc_UserRole" where "user_Id" = '$user'`, 'the account left the tenant'],
    [
      'its user moves',
      `with other as (insert into "svc_Tenant" (name) values ('other than $tenant') returning id)
       update "svc_UserRole" set "tenant_Id" = other.id from other where "user_Id" = '$user'`,
      'the account left the tenant',
    ],
  ])('is refused when %s, and the log says why', async (_what, happens, errorMessage) => {
    expect(await outcomeAfter(happens)).toEqual({ status: 'failed', errorMessage })
    expect(smtp.received).toEqual([])
    expect(await query('select * from "svc_Verification"')).toEqual([])
    expect(logged.join('')).toContain(`"reason":"${errorMessage}"`)
  })

  it('reaches who is invited, who is no member yet', async () => {
    const user = await createUser('Eve')
    const [tenant] = await query<{ id: string }>(`insert into "svc_Tenant" (name) values ('Inviting') returning id`)
    const [invite] = await query<{ id: string }>(
      `insert into "svc_Invite" (email, token, "role_Id", "tenant_Id", "invitedBy_Id", "expiresAt")
       select '${user.email}', 'x', r.id, '${tenant!.id}', u.id, now() + interval '1 day'
       from "svc_Role" r, "svc_User" u where r.name = 'user' and u.email = '${user.email}' returning id`,
    )
    const id = await commit(runtime, systemActor, async (tx) => {
      const context = { link, inviteId: invite!.id }
      const mail = { type: 'inviteExistingUser', to: user.email, user, tenantId: tenant!.id, context } as const
      const { emailLogId, event } = await queueMail(tx, mail)
      return { result: emailLogId, events: [event] }
    })
    const body = '{{ inviterName }}|{{ tenant }}|{{ tenant.name }}|{{ expirationDate }}'
    const [template] = await query<{ id: string }>(
      `insert into "svc_Template" (type, subject, body) values ('inviteExistingUser', 'Join {{ tenant }}', '${body}') returning id`,
    )
    await sendMail(tenants, openTestMailer(), id, attempt(0))
    await query(`delete from "svc_Template" where id = '${template!.id}'`)
    expect((await mailRow(id)).status).toBe('sent')
    expect(smtp.received[0]).toMatchObject({
      ...{
        subject: 'Join Inviting',
        text: expect.stringMatching(/^Eve[^|]*\|Inviting\|Inviting\|\d{4}-\d\d-\d\d\s*$/),
      },
    })
  })
})

describe('when the mail server', () => {
  it('is down, the mail waits and arrives later', async () => {
    await (await runtime.boss()).updateQueue('mail', { retryLimit: 1000 })
    await smtp.stop()
    await serveMails()
    const id = await queue('user@mail.example')
    await waitFor(async () => (await mailRow(id)).attempts > 2)
    expect((await mailRow(id)).errorMessage).toContain('ECONNREFUSED')
    expect((await eventsOf(id)).map(({ status }) => status)).toContain('queued')
    await smtp.start()
    await waitForStatus(id, 'sent')
    expect(smtp.received).toHaveLength(1)
    expect((await mailRow(id)).errorMessage).toBeNull()
    await (await runtime.boss()).updateQueue('mail', { retryLimit })
  })

  it.each([
    { code: 450, at: 'rcpt' },
    { code: 421, at: 'data' },
    { code: 451, at: 'data' },
  ] as const)('delays with $code at $at, the same mail is tried again', async (answer) => {
    smtp.answer(answer, answer)
    await serveMails()
    const id = await queue('user@mail.example')
    await waitForStatus(id, 'sent')
    expect(smtp.accepted).toHaveLength(1)
    expect((await mailRow(id)).attempts).toBe(3)
    expect((await eventsOf(id)).map(({ status }) => status)).toEqual([
      ...['queued', null, 'sending', 'queued', 'sending', 'queued', 'sending', 'sent'],
    ])
    expectOneMessage(id)
  })

  it.each([
    { code: 550, at: 'rcpt' },
    { code: 554, at: 'data' },
  ] as const)('refuses with $code at $at, the mail has failed and is not tried again', async (answer) => {
    smtp.answer(answer)
    await serveMails()
    const id = await queue('user@mail.example')
    await waitForStatus(id, 'failed')
    await waitFor(async () => (await jobStates()).join() === 'completed')
    expect(await mailRow(id)).toMatchObject({
      attempts: 1,
      errorMessage: expect.stringContaining(`${answer.code} as the script says`),
    })
    expect(smtp.accepted).toEqual([])
    expect(await (await runtime.boss()).findJobs('mail-dead')).toEqual([])
  })

  it.each(['reset', 'hang'] as const)(
    'does not answer (%s), the mail is repeated with the same Message-ID and link',
    async (answer) => {
      smtp.answer(answer)
      await serveMails(runtime, answer === 'hang' ? { silence: 2000 } : {})
      const id = await queue('user@mail.example')
      await waitForStatus(id, 'sent')
      expect(smtp.received).toHaveLength(2)
      expectOneMessage(id)
      expect((await eventsOf(id)).map(({ status }) => status)).not.toContain('failed')
      expect(await query('select value from "svc_Verification"')).toEqual([
        { value: hashSecret(tokenIn(smtp.received[0]!)) },
      ])
    },
  )

  it('never takes it, the mail has failed with the last reason and its job is a dead letter', async () => {
    smtp.answer(...Array.from({ length: retryLimit + 1 }, () => ({ code: 450, at: 'data' }) as const))
    await serveMails()
    const id = await queue('user@mail.example')
    await waitForStatus(id, 'failed')
    expect(await mailRow(id)).toMatchObject({
      attempts: retryLimit + 1,
      errorMessage: expect.stringContaining('450 as the script says'),
    })
    const dead = await waitFor(async () => (await (await runtime.boss()).findJobs('mail-dead'))[0])
    expect(dead).toMatchObject({ data: { emailLogId: id }, sourceOutput: { message: expect.stringContaining('450') } })
  })

  it('is not configured in production, the mail waits and the log names the variable', async () => {
    const unable = await openWorker({ NODE_ENV: 'production' })
    try {
      const id = await queue('user@mail.example')
      await expect(sendMail(unable, openTestMailer(), id, attempt(0))).rejects.toThrow('MAIL_SENDERS_ENABLED')
      expect(await mailRow(id)).toMatchObject({
        status: 'queued',
        errorMessage: expect.stringContaining('MAIL_SENDERS_ENABLED'),
      })
      expect(logged.join('')).toContain('MAIL_SENDERS_ENABLED')
      await serveMails()
      await waitForStatus(id, 'sent')
    } finally {
      await unable.close()
    }
  })
})

describe('while the server of its sender fails, a mail', () => {
  const problem = { outcome: 'delayed', reason: 'no greeting', problem: 'no answer' } as const

  function closedLanes() {
    const lanes = openLanes(() => ({ name: 'test' }) as SmtpSender)
    for (const id of ['1', '2']) {
      lanes.enter(id, installationGroup)
      lanes.leave(id, problem)
    }
    return lanes
  }
  const job = (retryCount: number) => ({ ...attempt(retryCount), retryLimit: 3, id: '3', group: installationGroup })

  it('goes back to its queue untouched', async () => {
    const id = await queue('user@mail.example')
    const before = [await mailRow(id), await eventsOf(id)]
    await expect(sendMailInLane(runtime, openTestMailer(), closedLanes(), id, job(2))).rejects.toThrow('no greeting')
    expect([await mailRow(id), await eventsOf(id)]).toEqual(before)
    expect(smtp.received).toEqual([])
  })

  it('ends after its last attempt, with the reason', async () => {
    const id = await queue('user@mail.example')
    await expect(sendMailInLane(runtime, openTestMailer(), closedLanes(), id, job(3))).rejects.toThrow('no greeting')
    expect(await mailRow(id)).toMatchObject({ status: 'failed', errorMessage: 'no greeting' })
    expect(smtp.received).toEqual([])
  })

  it('of another sender is sent', async () => {
    const id = await queue('user@mail.example')
    await sendMailInLane(
      runtime,
      openTestMailer(),
      openLanes(() => undefined),
      id,
      job(0),
    )
    expect((await mailRow(id)).status).toBe('sent')
  })
})

it('groups the job of a mail by its tenant, or as one of the installation', async () => {
  const [tenant] = await query<{ id: string }>(`insert into "svc_Tenant" (name) values ('Grouped') returning id`)
  const ids = [await queue('user@mail.example'), await queue('user@mail.example', { tenantId: tenant!.id })]
  const groups = await query(
    `select data->>'emailLogId' as mail, group_id as "group" from pgboss.job
     where data->>'emailLogId' in ('${ids.join("','")}') order by created_on, group_id = 'installation' desc`,
  )
  expect(groups).toEqual([
    { mail: ids[0], group: installationGroup },
    { mail: ids[1], group: tenant!.id },
  ])
})

describe('a worker', () => {
  it('that lost its claim does not record what became of its attempt', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    smtp.answer({ hold: released }, 'accept')
    const id = await queue('user@mail.example')
    const zombie = sendMail(runtime, openTestMailer(), id, attempt(0))
    await waitFor(() => smtp.received.length === 1)
    await expect(sendMail(runtime, openTestMailer(), id, attempt(1))).rejects.toThrow('another worker holds the mail')
    await query(`update "svc_EmailLog" set "claimedAt" = now() - interval '1 hour'`)
    await sendMail(runtime, openTestMailer(), id, attempt(1))
    const recorded = await mailRow(id)
    expect(recorded).toMatchObject({ status: 'sent', attempts: 2 })
    release()
    await zombie
    expect(await mailRow(id)).toEqual(recorded)
    expect(logged.join('')).toContain('the claim of a mail was lost')
    expect(smtp.received).toHaveLength(2)
    expectOneMessage(id)
  })

  it('renews the claim that it holds, without a trace, and no other one', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    smtp.answer({ hold: released })
    const id = await queue('user@mail.example')
    const sending = sendMail(runtime, openTestMailer(), id, attempt(0))
    await waitFor(() => smtp.received.length === 1)
    await query(`update "svc_EmailLog" set "claimedAt" = now() - interval '59 seconds'`)
    const before = await eventsOf(id)
    const { claimToken } = (await mailRow(id)) as MailRow & { claimToken: string }
    expect(await renewMailClaim(runtime, id, runtime.newId())).toBe(false)
    expect(await renewMailClaim(runtime, id, claimToken)).toBe(true)
    expect(await query(`select "claimedAt" > now() - interval '10 seconds' as young from "svc_EmailLog"`)).toEqual([
      { young: true },
    ])
    expect(await eventsOf(id)).toEqual(before)
    release()
    await sending
    expect((await mailRow(id)).status).toBe('sent')
  })

  it('does not send a mail that is sent', async () => {
    const id = await queue('user@mail.example')
    await sendMail(runtime, openTestMailer(), id, attempt(0))
    await sendMail(runtime, openTestMailer(), id, attempt(1))
    expect(smtp.received).toHaveLength(1)
  })

  it('does not send to an account that is gone or has another address now', async () => {
    const [gone, moved] = [await createUser('Gone'), await createUser('Moved')]
    const ids = [await queue(gone.email, { user: gone }), await queue(moved.email, { user: moved })]
    await query(`delete from "svc_User" where id = '${gone.id}'`)
    await query(`update "svc_User" set email = 'elsewhere@mail.example' where id = '${moved.id}'`)
    await serveMails()
    for (const id of ids) {
      await waitForStatus(id, 'failed')
      expect((await mailRow(id)).errorMessage).toBe('the account is gone or has another address now')
    }
    expect(smtp.received).toEqual([])
  })

  it('remembers an accepted mail until the database can record it', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    smtp.answer({ hold: released })
    await serveMails()
    const id = await queue('user@mail.example')
    await waitFor(() => smtp.received.length === 1)
    await query('alter table "svc_EmailLog" rename to gone')
    release()
    await waitFor(() => logged.join('').includes('could not be recorded yet'))
    await query('alter table gone rename to "svc_EmailLog"')
    await waitForStatus(id, 'sent')
    await waitFor(async () => (await jobStates()).join() === 'completed')
    expect(smtp.received).toHaveLength(1)
  })

  it('fails a mail whose template is broken, once', async () => {
    await serveMails()
    const id = await queue('user@mail.example', { subject: 'Dear {% if %}' })
    await waitForStatus(id, 'failed')
    expect(await mailRow(id)).toMatchObject({
      attempts: 1,
      errorMessage: expect.stringContaining('the mail could not be composed: invalid value expression'),
    })
    await waitFor(async () => (await jobStates()).join() === 'completed')
    expect(smtp.received).toEqual([])
  })

  it('hands a mail back when it has to stop', async () => {
    smtp.answer('hang')
    const run = await serveMails()
    const id = await queue('user@mail.example')
    await waitFor(() => smtp.received.length === 1)
    await run.stop(0)
    expect(await mailRow(id)).toMatchObject({ status: 'sending', claimToken: null })
    await serveMails()
    await waitForStatus(id, 'sent')
    expectOneMessage(id)
  })
})

describe('sweepMails', () => {
  it('fails mails that no job will send any more, and leaves the others alone', async () => {
    const [waiting, abandoned, young] = [
      await queue('a@mail.example'),
      await queue('b@mail.example'),
      await queue('c@mail.example'),
    ]
    await query(`delete from pgboss.job where data->>'emailLogId' in ('${abandoned}', '${young}')`)
    await query(`update "svc_EmailLog" set "updatedAt" = now() - interval '1 hour' where id <> '${young}'`)
    await sweepMails(runtime)
    expect(await mailRow(abandoned)).toMatchObject({ status: 'failed', errorMessage: 'given up: no attempt is left' })
    expect((await mailRow(waiting)).status).toBe('queued')
    expect((await mailRow(young)).status).toBe('queued')
  })
})

type MailRow = { status: string; errorMessage: string | null; attempts: number }

function openWorker(env: Readonly<Record<string, string>>): Promise<Runtime> {
  const log = pino({ level: 'debug' }, { write: (line: string) => logged.push(line) })
  return openRuntime({ config: testConfig(url, env), log, name: 'mail test', worker: false })
}

/** Serves the queue as the mail worker does. */
async function serveMails(own = runtime, timeouts = {}): Promise<QueueRun> {
  const mailer = openTestMailer(timeouts)
  const run = runQueue(own, {
    queue: 'mail',
    concurrency: 5,
    pollMs: 30,
    handler: (_deps, { emailLogId }, job) => sendMail(own, mailer, emailLogId, job),
  })
  runs.push(run)
  return run
}

function openTestMailer(timeouts: { silence?: number } = {}) {
  // Patient, unless the server shall be silent: on a busy machine its answer may take a second, and a mail whose answer
  // came too late is sent again.
  const mailer = openMailer({ connect: 20_000, greeting: 20_000, silence: 20_000, ...timeouts })
  mailers.push(mailer)
  return mailer
}

function attempt(retryCount: number) {
  return { retryCount, retryLimit, signal: new AbortController().signal }
}

function queue(to: string, more: { user?: { id: string }; tenantId?: string; subject?: string } = {}): Promise<string> {
  return commit(runtime, systemActor, async (tx) => {
    const { emailLogId, event } = await queueMail(tx, { type: 'verification', to, context: { link }, ...more })
    return { result: emailLogId, events: [event] }
  })
}

function createUser(firstName: string): Promise<{ id: string; email: string }> {
  const email = `${runtime.newId()}@mail.example`
  return commit(runtime, systemActor, async (tx) => ({
    result: await tx.one(
      sql`insert into "svc_User" ("firstName", email) values (${firstName}, ${email}) returning id, email`,
    ),
  }))
}

async function setSettings(values: { project_name: string; from_email_name: string | null }): Promise<void> {
  await commit(runtime, systemActor, async (tx) => {
    await tx.any(sql`
      update "svc_Settings" set project_name = ${values.project_name}, from_email_name = ${values.from_email_name}`)
    return { result: undefined }
  })
  await runtime.settings.reload()
}

function query<Row = Record<string, unknown>>(text: string): Promise<Row[]> {
  return withClient(url, async (client) => (await client.query(text)).rows as Row[])
}

async function mailRow(id: string): Promise<MailRow> {
  const [row] = await query<MailRow>(`select * from "svc_EmailLog" where id = '${id}'`)
  return row!
}

async function waitForStatus(id: string, status: string): Promise<void> {
  await waitFor(async () => (await mailRow(id)).status === status, { what: `mail ${status}` })
}

/** Actions and, for changes of the row, the status that they led to; in the order of the log. */
function eventsOf(id: string): Promise<{ action: string; status: string | null }[]> {
  return query(
    `select action, changes->'after'->>'status' as status from "svc_AuditLog" where "entityId" = '${id}' order by position`,
  )
}

async function jobStates(): Promise<string[]> {
  return (await (await runtime.boss()).findJobs('mail')).map(({ state }) => state)
}

function tokenIn(mail: ReceivedMail): string {
  return /verify-email\/([0-9a-f]+)/.exec(mail.text ?? '')?.[1] ?? ''
}

/** Every arrival was one and the same message. */
function expectOneMessage(id: string): void {
  expect(new Set(smtp.received.map(({ messageId }) => messageId))).toEqual(new Set([`<${id}@daybook.example>`]))
  expect(new Set(smtp.received.map(tokenIn)).size).toBe(1)
}
