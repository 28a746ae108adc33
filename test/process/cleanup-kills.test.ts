import { beforeAll, expect, it } from 'vitest'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { waitFor } from '../support/wait.ts'

/** Quality F-41: the cleanup is killed in the middle. ROWS=10000000 for the whole of it. */

const rows = Number(process.env.ROWS ?? 24_000)
/** At which share of what there was to delete it is killed: all kinds have got at least so far. */
const kills = rows > 100_000 ? [0.95, 0.9, 0.85] : [0.999]
const patience = { timeout: 45_000 + rows }
let cluster: Cluster

beforeAll(async () => {
  cluster = await startCluster({
    env: { AUDIT_LOG_CLEANUP_ENABLED: 'true', EMAIL_LOG_CLEANUP_ENABLED: 'true', LOG_LEVEL: 'info' },
    workers: ['log-cleanup'],
  })
  await cluster.web[0]!.call('POST', '/schemas', {
    collectionName: 'note',
    schema: { fields: { text: { type: 'String' } } },
  })
}, 120_000)

/** What a schedule does, without waiting for it. */
const ask = (queue: string) =>
  cluster.sql(
    `with job as (insert into pgboss.job (name, retry_limit, expire_seconds, keep_until, policy)
       select $1, 0, 3600, now() + interval '1 day', 'standard' returning id)
     select pg_notify('svc_jobs', $1) from job`,
    [queue],
  )

type Kind = { readonly queue: string; readonly fill: string; readonly count: string }

const kinds: readonly Kind[] = [
  {
    queue: 'audit-log-cleanup',
    fill: `insert into "svc_AuditLog" (entity, action, changes, "createdAt")
      select 'bulk', 'create', jsonb_build_object('after', jsonb_build_object('n', i)), now() - interval '91 days' - i * interval '1 millisecond'
      from generate_series(1, $1::int) i union all
      select 'bulk', 'create', null, now() - interval '89 days' + i * interval '1 second' from generate_series(1, 1000) i`,
    count: `select count(*) filter (where "createdAt" < now() - interval '90 days')::int as old,
      count(*) filter (where "createdAt" >= now() - interval '90 days')::int as young from "svc_AuditLog" where entity = 'bulk'`,
  },
  {
    queue: 'session-cleanup',
    fill: `insert into "svc_Sessions" (token, "user_Id", "expiresAt")
      select gen_random_uuid()::text, (select id from "svc_User"), now() - i * interval '1 millisecond' from generate_series(1, $1::int) i union all
      select gen_random_uuid()::text, (select id from "svc_User"), now() + interval '1 day' from generate_series(1, 999)`,
    count: `select count(*) filter (where "expiresAt" <= now())::int as old,
      count(*) filter (where "expiresAt" > now())::int as young from "svc_Sessions"`,
  },
  {
    queue: 'email-log-cleanup',
    fill: `insert into "svc_EmailLog" (email, subject, status, "createdAt", "updatedAt")
      select 'a@mail.example', 'x', (array['sent', 'failed'])[1 + i % 2], now() - interval '31 days', now() - interval '31 days' from generate_series(1, $1::int / 4) i union all
      select 'a@mail.example', 'x', (array['sent', 'failed', 'queued', 'sending'])[1 + i % 4], t, t
      from generate_series(1, 1000) i, lateral (select case when i % 4 < 2 then now() - interval '29 days' else now() - interval '99 days' end as t) ages`,
    count: `select count(*) filter (where status in ('sent', 'failed') and "createdAt" < now() - interval '30 days')::int as old,
      count(*) filter (where status in ('queued', 'sending') or "createdAt" >= now() - interval '30 days')::int as young from "svc_EmailLog"`,
  },
]

it(
  'a cleanup killed in the middle goes on where it was; nothing young is lost and nobody waits',
  async () => {
    const [worker] = cluster.workers
    for (const { fill } of kinds) await cluster.sql(fill, [rows])
    const start = await states()
    expect(start.map(({ old, young }) => [old, young])).toEqual([
      [rows, 1000],
      [rows, 1000],
      [rows / 4, 1000],
    ])
    const writer = writeMeanwhile()
    const startedAt = performance.now()
    for (const share of kills) {
      for (const { queue } of kinds) await ask(queue)
      await waitFor(async () => (await states()).every(({ old }, i) => old < start[i]!.old * share), patience)
      await worker!.kill('SIGKILL')
      const left = (await states()).map(({ old }) => old)
      expect(left.some((old) => old > 0)).toBe(true)
      process.stdout.write(`killed with ${left.join(', ')} rows left of the log, the sessions and the mails\n`)
      await worker!.restart()
    }
    for (const { queue } of kinds) await ask(queue)
    await waitFor(async () => (await states()).every(({ old }) => old === 0), patience)
    const { slowestMs, writes } = await writer.stop()
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    process.stdout.write(
      `clean after ${seconds} s; ${writes} writes meanwhile, the slowest ${slowestMs.toFixed(0)} ms\n`,
    )
    expect((await states()).map(({ young }) => young)).toEqual([1000, 1000, 1000])
  },
  60_000 + 10 * rows,
)

async function states(): Promise<{ old: number; young: number }[]> {
  const found = []
  for (const { count } of kinds) found.push((await cluster.sql(count))[0])
  return found
}

/** Somebody who changes rows by the API all the time, and how long that took at worst. */
function writeMeanwhile() {
  let stopped = false
  let slowestMs = 0
  let writes = 0
  const done = (async () => {
    while (!stopped) {
      const startedAt = performance.now()
      const { status } = await cluster.web[0]!.call('POST', '/items/note', { text: 'meanwhile' })
      expect(status).toBe(201)
      writes += 1
      slowestMs = Math.max(slowestMs, performance.now() - startedAt)
    }
  })()
  return {
    stop: async () => {
      stopped = true
      await done
      return { slowestMs, writes }
    },
  }
}
