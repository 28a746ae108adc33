import pino from 'pino'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { seededRandom } from '../support/ledger.ts'
import { ageMailClaims, lookForLapsedJobs } from '../support/mail-worker.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'
import { settled } from './settled.ts'

export type Size = { readonly kills: number }

/** As many as a worker sends at the same time. */
const atOnce = 5
const patience = { timeout: 60_000 }

/**
 * F-24: the mail worker is killed when the SMTP server has accepted its mails and before that is recorded, again and
 * again. Every mail arrives, each time with the same Message-ID, and once more for each kill that came between.
 */
export async function runF24(seed: number, { kills }: Size): Promise<Result> {
  const random = seededRandom('F-24', seed)
  const [database, smtp] = await Promise.all([createDatabase(), startSmtp()])
  const { url } = database
  const cluster = await startCluster({ database, web: 0, env: smtp.env, workers: ['mail'] })
  const runtime = await openRuntime({
    config: testConfig(url),
    log: pino({ level: 'silent' }),
    name: 'test',
    worker: false,
  })
  await (await runtime.boss()).updateQueue('mail', { retryDelay: 0, retryBackoff: false })
  const hits = new Map<string, number>()
  try {
    for (let kill = 0; kill < kills; kill += 1) {
      const mails = 1 + Math.floor(random() * atOnce)
      const addresses = Array.from({ length: mails }, (_, i) => `kill${kill}-${i}@mail.example`)
      for (const to of addresses) hits.set(to, 0)
      for (const hit of await killBetween(url, { cluster, smtp, runtime, addresses })) hits.set(hit, hits.get(hit)! + 1)
      // Else those that were hit can be hit again.
      if (random() < 0.5 || kill === kills - 1) await allSent(cluster, runtime)
    }
  } finally {
    await runtime.close()
  }
  const copies = Map.groupBy(smtp.accepted, ({ recipients }) => recipients.join())
  const faults = [...hits].flatMap(([to, killed]) => mailFaults(to, killed, copies.get(to) ?? []))
  const repeated = smtp.accepted.length - copies.size
  return { faults, figures: { kills, mails: hits.size, accepted: smtp.accepted.length, repeated } }
}

type Stage = { cluster: Cluster; smtp: SmtpDouble; runtime: Runtime; addresses: readonly string[] }

/**
 * Queues mails and kills the worker when as many, these or earlier ones, have been accepted and none can be recorded.
 * Answers which were hit.
 */
async function killBetween(url: string, { cluster, smtp, runtime, addresses }: Stage): Promise<string[]> {
  const [worker] = cluster.workers
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const before = smtp.accepted.length
  smtp.answer(...addresses.map(() => ({ hold: released })))
  for (const to of addresses) await queue(runtime, to)
  await waitFor(() => smtp.received.length - smtp.accepted.length === addresses.length, patience)
  const lock = await cluster.connect()
  await lock.query('begin; lock table "svc_EmailLog" in share mode')
  release()
  const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  await waitFor(
    async () => smtp.accepted.length === smtp.received.length && (await cluster.sql(waiting)).length > 0,
    patience,
  )
  await worker!.kill('SIGKILL')
  await lock.query('commit')
  await lock.end()
  await settled(url)
  const accepted = new Set(smtp.accepted.slice(before).flatMap(({ recipients }) => recipients))
  const unsent = await cluster.sql(`select email from "svc_EmailLog" where status <> 'sent'`)
  const hit = unsent.map(({ email }) => email).filter((email) => accepted.has(email))
  await ageMailClaims(cluster.sql)
  await worker!.restart()
  await lookForLapsedJobs(cluster.sql, runtime)
  return hit
}

function allSent(cluster: Cluster, runtime: Runtime): Promise<boolean> {
  return waitFor(async () => {
    await lookForLapsedJobs(cluster.sql, runtime)
    return (await cluster.sql(`select from "svc_EmailLog" where status <> 'sent'`)).length === 0
  }, patience)
}

function queue(runtime: Runtime, to: string): Promise<void> {
  return commit(runtime, systemActor, async (tx) => {
    const { event } = await queueMail(tx, { type: 'verification', to, context: { link: 'https://app.example' } })
    return { result: undefined, events: [event] }
  })
}

function mailFaults(to: string, kills: number, copies: SmtpDouble['accepted']): string[] {
  const ids = new Set(copies.map(({ messageId, text }) => `${messageId} ${text}`))
  if (copies.length === 0) return [`lost: ${to}`]
  if (copies.length > 1 + kills) return [`${copies.length} copies of ${to} after ${kills} kills`]
  return ids.size === 1 ? [] : [`copies of ${to} differ`]
}
