import { setTimeout as delay } from 'node:timers/promises'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { seededRandom } from '../support/ledger.ts'
import type { Result } from './scenario.ts'

type Kind = {
  readonly queue: string
  /** Puts $1 old rows into the table, and a thousand that must stay. */
  readonly fill: string
  /** How many `old` and `young` rows there are. */
  readonly count: string
}

const young = 1000
const kinds: readonly Kind[] = [
  {
    queue: 'audit-log-cleanup',
    fill: `insert into "svc_AuditLog" (entity, action, changes, "createdAt")
      select 'bulk', 'create', jsonb_build_object('after', jsonb_build_object('n', i)), now() - interval '91 days' - i * interval '1 millisecond'
      from generate_series(1, $1::int) i union all
      select 'bulk', 'create', null, now() - interval '89 days' + i * interval '1 second' from generate_series(1, ${young}) i`,
    count: `select count(*) filter (where "createdAt" < now() - interval '90 days')::int as old,
      count(*) filter (where "createdAt" >= now() - interval '90 days')::int as young from "svc_AuditLog" where entity = 'bulk'`,
  },
  {
    queue: 'session-cleanup',
    fill: `insert into "svc_Sessions" (token, "user_Id", "expiresAt")
      select gen_random_uuid()::text, (select id from "svc_User"), now() - i * interval '1 millisecond' from generate_series(1, $1::int) i union all
      select gen_random_uuid()::text, (select id from "svc_User"), now() + interval '1 day' from generate_series(1, ${young})`,
    count: `select count(*) filter (where "expiresAt" <= now())::int as old,
      count(*) filter (where "expiresAt" > now())::int - 1 as young from "svc_Sessions"`,
  },
  {
    queue: 'email-log-cleanup',
    fill: `insert into "svc_EmailLog" (email, subject, status, "createdAt", "updatedAt")
      select 'a@mail.example', 'x', (array['sent', 'failed'])[1 + i % 2], t, t
      from generate_series(1, $1::int) i, lateral (select now() - interval '31 days' - i * interval '1 millisecond' as t) ages union all
      select 'a@mail.example', 'x', (array['sent', 'failed', 'queued', 'sending'])[1 + i % 4], t, t
      from generate_series(1, ${young}) i, lateral (select case when i % 4 < 2 then now() - interval '29 days' else now() - interval '99 days' end as t) ages`,
    count: `select count(*) filter (where status in ('sent', 'failed') and "createdAt" < now() - interval '30 days')::int as old,
      count(*) filter (where status in ('queued', 'sending') or "createdAt" >= now() - interval '30 days')::int as young from "svc_EmailLog"`,
  },
]

/**
 * F-41: the cleanups of the log, of the sessions and of the mails run at once over `rows` old rows each (a quarter of that
 * for the mails, whose deletion is an event each), are killed at random and started again. In the end what is old is
 * gone and nothing else, and the figures tell how long anything took, held or was kept waiting meanwhile.
 */
export async function runF41(seed: number, { rows, kills }: { rows: number; kills: number }): Promise<Result> {
  const cluster = await startCluster({
    env: { AUDIT_LOG_CLEANUP_ENABLED: 'true', EMAIL_LOG_CLEANUP_ENABLED: 'true', LOG_LEVEL: 'info' },
    workers: ['log-cleanup'],
  })
  const [web, worker] = [cluster.web[0]!, cluster.workers[0]!]
  const fields = { text: { type: 'String' } }
  const made = await web.call('POST', '/schemas', { collectionName: 'note', schema: { fields } })
  if (made.status !== 201) throw new Error(made.text)
  // It cleans by itself soon after its start, which is not to be missed.
  await worker.kill('SIGKILL')
  for (const { queue, fill } of kinds)
    await cluster.sql(fill, [queue === 'email-log-cleanup' ? Math.ceil(rows / 4) : rows])
  const before = await states(cluster)
  const total = sumOf(before)
  const random = seededRandom('F-41', seed)
  const shares = Array.from({ length: kills }, () => random()).sort()
  const writer = writeMeanwhile(cluster)
  const watch = await watchCleanup(cluster)
  const startedAt = performance.now()
  await worker.restart()
  let killedInTheMiddle = 0
  for (const share of shares) {
    await ask(cluster)
    const left = await leftUnder(cluster, total * (1 - share))
    await worker.kill('SIGKILL')
    if (left > 0) killedInTheMiddle += 1
    await worker.restart()
  }
  await ask(cluster)
  await leftUnder(cluster, 1)
  const seconds = (performance.now() - startedAt) / 1000
  const [written, watched, after] = [await writer.stop(), await watch.stop(), await states(cluster)]
  await Promise.all([web.kill(), worker.kill()])
  const faults = [...written.faults]
  for (const [i, { queue }] of kinds.entries())
    if (before[i]!.young !== young || after[i]!.young !== young)
      faults.push(`${queue}: of ${young} rows to be kept there are ${after[i]!.young}, were ${before[i]!.young}`)
  return {
    faults,
    figures: {
      rows: total,
      'killed in the middle': killedInTheMiddle,
      seconds: Math.round(seconds),
      'rows/s': Math.round(total / seconds),
      'longest statement, ms': watched.statement,
      'longest transaction, ms': watched.transaction,
      'longest wait for a lock of it, ms': watched.blocked,
      writes: written.writes,
      'slowest write, ms': Math.round(written.slowestMs),
    },
  }
}

type State = { readonly old: number; readonly young: number }

async function states(cluster: Cluster): Promise<State[]> {
  const found: State[] = []
  for (const { count } of kinds) found.push((await cluster.sql(count))[0])
  return found
}

const sumOf = (all: readonly State[]) => all.reduce((sum, { old }) => sum + old, 0)

/** Waits until fewer old rows than that are left, and gives how many. Counting is work, so it is done at times. */
async function leftUnder(cluster: Cluster, limit: number): Promise<number> {
  for (;;) {
    const left = sumOf(await states(cluster))
    if (left < limit) return left
    await delay(Math.min(left / 1000, 5000))
  }
}

/** What the schedules do, without waiting for them. */
async function ask(cluster: Cluster): Promise<void> {
  for (const { queue } of kinds)
    await cluster.sql(
      `with job as (insert into pgboss.job (name, retry_limit, expire_seconds, keep_until, policy)
         select $1, 0, 3600, now() + interval '1 day', 'standard' returning id)
       select pg_notify('svc_jobs', $1) from job`,
      [queue],
    )
}

/** A client that changes rows by the API all the time, and how long that took at worst. */
function writeMeanwhile(cluster: Cluster) {
  const faults: string[] = []
  let stopped = false
  let slowestMs = 0
  let writes = 0
  const done = (async () => {
    while (!stopped) {
      const startedAt = performance.now()
      const { status } = await cluster.web[0]!.call('POST', '/items/note', { text: 'meanwhile' })
      if (status !== 201) faults.push(`a write was answered ${status}`)
      writes += 1
      slowestMs = Math.max(slowestMs, performance.now() - startedAt)
      await delay(5)
    }
  })()
  return {
    stop: async () => {
      stopped = true
      await done
      return { slowestMs, writes, faults }
    },
  }
}

const lookMs = 20

/** Looks again and again at what the cleanup's connections do, and at who waits for them. Milliseconds. */
async function watchCleanup(cluster: Cluster) {
  const client = await cluster.connect()
  const longest = { statement: 0, transaction: 0, blocked: 0 }
  let stopped = false
  const look = async () => {
    const { rows } = await client.query(
      `with ours as (
         select pid, state, query_start, xact_start from pg_stat_activity
         where datname = current_database() and application_name like 'daybook log-cleanup%' and state <> 'idle'),
       waiting as (
         select clock_timestamp() - l.waitstart as since from pg_locks l
         where not l.granted and pg_blocking_pids(l.pid) && array(select pid from ours))
       select 1000 * extract(epoch from max(clock_timestamp() - query_start) filter (where state = 'active'))::float8 as statement,
         1000 * extract(epoch from max(clock_timestamp() - xact_start))::float8 as transaction,
         (select 1000 * extract(epoch from max(since))::float8 from waiting) as blocked from ours`,
    )
    for (const what of ['statement', 'transaction', 'blocked'] as const)
      longest[what] = Math.max(longest[what], Math.round(rows[0][what] ?? 0))
  }
  const done = (async () => {
    while (!stopped) {
      await look()
      await delay(lookMs)
    }
  })()
  return {
    stop: async () => {
      stopped = true
      await done
      return longest
    },
  }
}
