import pino from 'pino'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig, testEnv } from '../support/prepare.ts'
import { startProcess, type TestProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'

const script = 'src/workers/main.ts'

describe('a worker process', () => {
  it('that is unknown names those there are', async () => {
    const worker = startProcess(script, ['mial'])
    expect(await worker.exited).toMatchObject({ code: 2 })
    expect(worker.lines.map(({ text }) => text)).toEqual([
      'There is no worker "mial"; there are: mail, tasks, log-cleanup, cache-invalidation, webhooks, workflows',
    ])
  })

  it('without a database says which variable is missing', async () => {
    const worker = startProcess(script, ['mail'], { SECRET_KEY: 'of no worth' })
    expect(await worker.exited).toMatchObject({ code: 1 })
    const said = worker.lines.map(({ text }) => text).join('\n')
    expect(said).toContain('DATABASE_URL')
    expect(said).not.toContain('    at ')
  })
})

describe('the mail worker', () => {
  let runtime: Runtime
  let url: string
  let smtp: SmtpDouble

  beforeAll(async () => {
    ;({ url } = await createDatabase())
    smtp = await startSmtp()
    runtime = await openRuntime({
      config: testConfig(url),
      log: pino({ level: 'silent' }),
      name: 'test',
      worker: false,
    })
  })

  beforeEach(async () => (await runtime.boss()).updateQueue('mail', { retryDelay: 0, retryBackoff: false }))

  afterEach(async () => {
    await query('delete from pgboss.job')
    await query('delete from "svc_EmailLog"')
    smtp.forget()
  })

  afterAll(() => runtime.close())

  it('sends what was queued before and after its start, and ends with 0 on SIGTERM', async () => {
    const before = await queue('before@mail.example')
    const worker = await startWorker()
    await waitForSent(before)
    await waitForSent(await queue('after@mail.example'))
    expect(await worker.kill('SIGTERM')).toEqual({ code: 0, signal: null })
    expect(smtp.received).toHaveLength(2)
  })

  it('says at its start which variables of a sender are missing', async () => {
    const worker = startProcess(script, ['mail'], { ...testEnv(url), ...smtp.env, TEST_SMTP_USER: '' })
    const { level } = await worker.waitForLine(({ msg }) => String(msg).includes('TEST_SMTP_USER is missing'))
    expect(level).toBe('warn')
    await worker.kill()
  })

  it('finishes the mail it is sending when it is asked to stop', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    smtp.answer({ hold: released })
    const worker = await startWorker()
    const id = await queue('user@mail.example')
    await waitFor(() => smtp.received.length === 1)
    const ended = worker.kill('SIGTERM')
    await worker.waitForLine(({ msg }) => msg === 'stopping')
    release()
    expect(await ended).toEqual({ code: 0, signal: null })
    expect(await statusOf(id)).toBe('sent')
    expect(smtp.received).toHaveLength(1)
  })

  it('ends at once on a second signal', async () => {
    smtp.answer('hang')
    const worker = await startWorker()
    await queue('user@mail.example')
    await waitFor(() => smtp.received.length === 1)
    const ended = worker.kill('SIGINT')
    await worker.waitForLine(({ msg }) => msg === 'stopping')
    await worker.kill('SIGINT')
    expect(await ended).toEqual({ code: 130, signal: null })
  })

  it('killed before it could record the answer: another one repeats the same message', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    smtp.answer({ hold: released })
    const killed = await startWorker()
    const id = await queue('user@mail.example')
    await waitFor(() => smtp.received.length === 1)
    await killed.kill('SIGKILL')
    release()
    await waitFor(() => smtp.accepted.length === 1)
    expect(await statusOf(id)).toBe('sending')
    // A minute later.
    await query(`update "svc_EmailLog" set "claimedAt" = "claimedAt" - interval '61 seconds'`)
    await query(`update pgboss.job set heartbeat_on = heartbeat_on - interval '31 seconds'`)
    await startWorker()
    await waitFor(async () => {
      await lookForLapsedJobs()
      return (await statusOf(id)) === 'sent'
    })
    expect(smtp.accepted).toHaveLength(2)
    expect(new Set(smtp.received.map(({ messageId }) => messageId)).size).toBe(1)
    expect(new Set(smtp.received.map(({ text }) => text)).size).toBe(1)
  })

  it('runs twice beside the other worker, and every schedule exists once', async () => {
    const started = [startWorker(), startWorker(), startWorker('log-cleanup')]
    const all = await Promise.all(started)
    const schedules = (await (await runtime.boss()).getSchedules()).map(({ name, cron, timezone }) => ({
      name,
      cron,
      timezone,
    }))
    expect(schedules).toEqual([
      { name: 'audit-log-cleanup', cron: '23 3 * * *', timezone: 'UTC' },
      { name: 'backup-watch', cron: '11 * * * *', timezone: 'UTC' },
      { name: 'email-log-cleanup', cron: '53 3 * * *', timezone: 'UTC' },
      { name: 'expired-cleanup', cron: '29 * * * *', timezone: 'UTC' },
      { name: 'file-removal', cron: '* * * * *', timezone: 'UTC' },
      { name: 'log-partitions', cron: '17 2 * * *', timezone: 'UTC' },
      { name: 'mail-sweep', cron: '7 * * * *', timezone: 'UTC' },
      { name: 'session-cleanup', cron: '41 * * * *', timezone: 'UTC' },
    ])
    await (await runtime.boss()).insert('log-partitions', [{ data: {} }])
    await waitFor(async () =>
      (await (await runtime.boss()).findJobs('log-partitions')).some(({ state }) => state === 'completed'),
    )
    for (const worker of all) expect(await worker.kill()).toEqual({ code: 0, signal: null })
  })

  async function startWorker(name = 'mail'): Promise<TestProcess> {
    const worker = startProcess(script, [name], { ...testEnv(url), ...smtp.env })
    await worker.waitForLine(({ msg }) => msg === 'ready')
    return worker
  }

  function queue(to: string): Promise<string> {
    return commit(runtime, systemActor, async (tx) => {
      const context = { link: 'https://app.example' }
      const { emailLogId, event } = await queueMail(tx, { type: 'verification', to, context })
      return { result: emailLogId, events: [event] }
    })
  }

  async function statusOf(id: string): Promise<string | undefined> {
    return (await query(`select status from "svc_EmailLog" where id = '${id}'`))[0]?.status
  }

  /** What workers do once a minute. */
  async function lookForLapsedJobs(): Promise<void> {
    await query(`update pgboss.queue set monitor_claim_on = null, monitor_on = null`)
    await (await runtime.boss()).supervise('mail')
  }

  function waitForSent(id: string): Promise<boolean> {
    return waitFor(async () => (await statusOf(id)) === 'sent')
  }

  function query(text: string): Promise<{ status?: string }[]> {
    return withClient(url, async (client) => (await client.query(text)).rows)
  }
})
