import { once } from 'node:events'
import { createServer } from 'node:net'
import pino from 'pino'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { seededRandom } from '../support/ledger.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'

/** Mails of the installation, whose server is healthy, and of each tenant whose server is not. */
export type Size = { readonly healthy: number; readonly others: number }

/** What is wrong with the SMTP server of a tenant. */
const kinds = ['hangs', 'is slow', 'cuts lines'] as const
type Kind = (typeof kinds)[number]

const patience = { timeout: 600_000 }
const slowMs = 1000

/**
 * F-43: a tenant's SMTP server accepts connections and never greets, takes one mail a second, or cuts the line after the
 * message, while the installation's is healthy. Its mails arrive, once each, whatever else waits before, between and
 * after them; the figures say what share of their rate alone they keep.
 */
export async function runF43(seed: number, { healthy, others }: Size): Promise<Result> {
  const random = seededRandom('F-43', seed)
  const [database, smtp] = await Promise.all([createDatabase(), startSmtp()])
  const own = { MULTI_TENANT: 'true', SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', TASK_SHUTDOWN_WAIT_TIME: '1' }
  const env = { ...smtp.env, ...own }
  const cluster = await startCluster({ database, web: 1, env, workers: ['mail'] })
  const config = testConfig(database.url, env)
  const runtime = await openRuntime({ config, log: pino({ level: 'silent' }), name: 'test', worker: false })
  const stage = { cluster, runtime, smtp }
  try {
    const alone = await rateOf(stage, addresses('alone', healthy), [])
    const figures: Record<string, number> = { healthy, others, 'alone per second': Math.round(alone.rate) }
    const faults = [...alone.faults]
    for (const kind of kinds) {
      const tenant = await tenantWith(stage, kind, others)
      const mails = addresses(kind.replace(' ', '-'), healthy)
      // A third of them wait in front of all others.
      const at = Array.from({ length: others }, () => (random() < 1 / 3 ? 0 : Math.floor(random() * healthy)))
      const beside = await rateOf(stage, mails, at, tenant)
      figures[`% beside one that ${kind}`] = Math.round((100 * beside.rate) / alone.rate)
      faults.push(...beside.faults, ...(await waitingFaults(cluster, tenant, others)))
    }
    return { faults, figures }
  } finally {
    await runtime.close()
  }
}

type Stage = { readonly cluster: Cluster; readonly runtime: Runtime; readonly smtp: SmtpDouble }

function addresses(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}-${i}@mail.example`)
}

/** Queues the mails, with one of the tenant's before each index of `at`, has a worker send them, and times the healthy. */
async function rateOf(
  { cluster, runtime, smtp }: Stage,
  mails: readonly string[],
  at: readonly number[],
  tenant?: string,
) {
  const [worker] = cluster.workers
  await worker!.kill()
  smtp.forget()
  const before = Map.groupBy(at, (index) => index)
  for (let first = 0; first < mails.length; first += 100)
    await commit(runtime, systemActor, async (tx) => {
      const events = []
      for (let i = first; i < Math.min(first + 100, mails.length); i += 1) {
        for (const _ of before.get(i) ?? [])
          events.push((await queueMail(tx, mailTo(`of-tenant@mail.example`, tenant))).event)
        events.push((await queueMail(tx, mailTo(mails[i]!))).event)
      }
      return { result: undefined, events }
    })
  await worker!.restart()
  await waitFor(() => smtp.accepted.length > 0, patience)
  const startedAt = performance.now()
  await waitFor(() => smtp.accepted.length >= mails.length, patience)
  const seconds = (performance.now() - startedAt) / 1000
  const arrived = Map.groupBy(smtp.accepted, ({ recipients }) => recipients.join())
  const faults = mails
    .filter((to) => arrived.get(to)?.length !== 1)
    .map((to) => `${arrived.get(to)?.length ?? 0} × ${to}`)
  return { rate: mails.length / seconds, faults }
}

function mailTo(to: string, tenantId?: string) {
  return { type: 'custom', to, ...(tenantId && { tenantId }), context: { template: 'welcome', variables: {} } } as const
}

/** A tenant whose settings name a server of the kind. */
async function tenantWith({ cluster }: Stage, kind: Kind, mails: number): Promise<string> {
  const [web] = cluster.web
  const { body } = await web!.call('POST', '/items/svc_Tenant', { name: `Its server ${kind}` })
  const { id } = body.data
  const port = kind === 'hangs' ? await silentPort() : await scriptedPort(kind, mails)
  const answer = await web!.call('PATCH', `/settings?tenant_id=${id}`, {
    smtp_enabled: true,
    smtp_host: '127.0.0.1',
    smtp_port: port,
    smtp_user: 'nobody',
    smtp_pass: 'never asked for',
    smtp_from_address: 'tenant@daybook.example',
  })
  if (answer.status !== 200) throw new Error(`the tenant has no server: ${answer.text}`)
  return id
}

async function silentPort(): Promise<number> {
  const server = createServer(() => undefined).unref()
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return (server.address() as { port: number }).port
}

async function scriptedPort(kind: Kind, mails: number): Promise<number> {
  const smtp = await startSmtp()
  if (kind === 'cuts lines') smtp.answer(...Array.from({ length: mails * 10 }, () => 'reset' as const))
  else {
    let last = Promise.resolve()
    // One after the other, from when it has come in.
    const next = () => {
      last = last.then(() => new Promise((resolve) => setTimeout(resolve, slowMs).unref()))
      return last
    }
    smtp.answer(...Array.from({ length: mails }, () => ({ hold: next })))
  }
  return smtp.port
}

/** Of the tenant's mails none is lost: what has not been sent waits, with a job that will send it. */
async function waitingFaults({ sql }: Cluster, tenant: string, mails: number): Promise<string[]> {
  const rows = await sql(
    `select m.id, m.status, exists (select from pgboss.job j where j.name = 'mail'
       and j.state in ('created', 'retry', 'active') and j.data->>'emailLogId' = m.id::text) as "hasJob"
     from "svc_EmailLog" m where m."tenant_Id" = $1`,
    [tenant],
  )
  const lost = rows.filter(({ status, hasJob }) => status !== 'sent' && !hasJob)
  return [
    ...(rows.length === mails ? [] : [`${rows.length} of ${mails} mails of the tenant`]),
    ...lost.map(({ id, status }) => `${id} is ${status} and has no job`),
  ]
}
