import { beforeAll, describe, expect, it } from 'vitest'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { figuresQuery } from '../../src/features/operations/metrics/metrics.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { samplesOf } from '../support/exposition.ts'
import { whileLocked } from '../support/failing.ts'
import { startPrivateServer } from '../support/postgres.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

const token = 'only-those-who-watch-know-it'
const env = { METRICS_TOKEN: token }
const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` })
let api: Api

beforeAll(async () => {
  api = await startApi({ ...env, SOCKET_ENABLED: 'true' })
})

const get = (secret?: string) => api.anonymous('GET', '/metrics', undefined, secret === undefined ? {} : bearer(secret))
const scrape = async () => samplesOf((await get(token)).text)

describe('permission to read the metrics', () => {
  it('administrators and the holder of METRICS_TOKEN, no one else', async () => {
    const user = await api.user()
    const key = await api.admin('POST', '/auth/keys', { name: 'watcher' })
    expect(key.status).toBe(200)
    const refused = { error: { message: expect.any(String) } }
    expect(await get()).toMatchObject({ status: 401, body: refused })
    expect(await get(`${token}x`)).toMatchObject({ status: 401, body: refused })
    expect(await get(token.toUpperCase())).toMatchObject({ status: 401, body: refused })
    expect(await user.call('GET', '/metrics')).toMatchObject({ status: 403, body: refused })
    expect((await api.admin('GET', '/metrics')).status).toBe(200)
    expect((await get(key.body.key)).status).toBe(200)
    expect(await get(token)).toMatchObject({
      status: 200,
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8', 'cache-control': 'no-store' },
    })
  })

  it('counts everybody but the holder of the token', async () => {
    const app = await configured(api.database, { ...env, RATE_LIMIT_DISABLED: 'false', RATE_LIMIT: '3' })
    const statuses = async (secret: string) => {
      const answers = []
      for (let i = 0; i < 5; i += 1) answers.push(await app.inject({ url: '/metrics', headers: bearer(secret) }))
      return answers.map(({ statusCode }) => statusCode)
    }
    expect(await statuses(token)).toEqual([200, 200, 200, 200, 200])
    expect(await statuses('guess-after-guess')).toEqual([401, 401, 401, 429, 429])
  })
})

describe('figures of the metrics', () => {
  it('times requests by the pattern of their route, never by what was asked for', async () => {
    await api.admin('GET', '/items/svc_Role?search=canary')
    await api.admin('GET', '/canary/of/nobody')
    const { text } = await get(token)
    const samples = samplesOf(text)
    const count = (labels: string) => samples.get(`http_request_duration_seconds_count{${labels}}`)
    expect(count('method="GET",route="/items/:collection",status="200"')).toBeGreaterThanOrEqual(1)
    expect(count('method="GET",route="unmatched",status="404"')).toBe(1)
    expect(count('method="POST",route="/auth/login",status="200"')).toBeGreaterThanOrEqual(1)
    expect(text).not.toMatch(/canary|svc_Role/)
  })

  it('knows pools, the process and its event loop', async () => {
    await get(token)
    const samples = await scrape()
    for (const pool of ['read', 'reserved', 'write', 'hot']) {
      expect(samples.get(`daybook_pool_connections_max{pool="${pool}"}`), pool).toBeGreaterThanOrEqual(1)
      expect(samples.get(`daybook_pool_waiting{pool="${pool}"}`), pool).toBe(0)
    }
    expect(samples.get('daybook_pool_connections{pool="read"}')).toBeGreaterThanOrEqual(1)
    // On a busy machine its proof may be over a second old for a moment.
    await waitFor(async () => (await scrape()).get('daybook_notifications_live') === 1)
    expect(samples.get('nodejs_eventloop_lag_p99_seconds')).toBeGreaterThan(0)
    expect(samples.get('process_resident_memory_bytes')).toBeGreaterThan(1e6)
  })

  it('tells how often the data cache had the answer', async () => {
    const hits = async () => (await scrape()).get('daybook_cache_lookups_total{outcome="hits"}')
    const before = await hits()
    await waitFor(async () => (await api.admin('GET', '/items/svc_Tenant?cache=true')).headers['x-cache'] === 'HIT')
    expect(await hits()).toBe(before! + 1)
    const samples = await scrape()
    expect(samples.get('daybook_cache_entries')).toBeGreaterThanOrEqual(1)
    expect(samples.get('daybook_cache_bytes')).toBeGreaterThan(0)
  })

  it('counts sockets and what they follow, and tells how far behind the feed is', async () => {
    const address = await api.app.listen({ host: '127.0.0.1', port: 0 })
    await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
    const { token: own } = await api.user([{ collection: 'note', action: 'read', fields: '*' }])
    const client = await connect(address, own)
    expect(await client.subscribe('note')).toMatchObject({ status: 'success' })
    const samples = await scrape()
    expect(samples.get('daybook_socket_connections')).toBe(1)
    expect(samples.get('daybook_socket_subscriptions')).toBe(1)
    expect(samples.get('daybook_socket_reports')).toBe(0)
    expect(samples.get('daybook_feed_lag_seconds')).toBeGreaterThanOrEqual(0)
    const sources = ['wal', 'poll', 'starting'].map((source) => samples.get(`daybook_feed_source{source="${source}"}`))
    expect(sources.toSorted()).toEqual([0, 0, 1])
    client.close()
    await waitFor(async () => (await scrape()).get('daybook_socket_connections') === 0)
    expect((await scrape()).get('daybook_socket_subscriptions')).toBe(0)
  })

  it('tells how old a backup may be where backups are scheduled, and nothing elsewhere', async () => {
    const schedule = { BACKUP_SCHEDULE: '0 2 * * *', BACKUP_STORAGE: 'local', BACKUP_MAX_AGE_HOURS: '24' }
    const app = await configured(api.database, { ...env, ...schedule })
    const { body } = await app.inject({ url: '/metrics', headers: bearer(token) })
    expect(samplesOf(body).get('daybook_backup_max_age_seconds')).toBe(86_400)
    expect((await scrape()).has('daybook_backup_max_age_seconds')).toBe(false)
  })

  it('counts jobs, dead letters, tasks and mails', async () => {
    const mail = () =>
      commit(api.runtime, systemActor, async (tx) => {
        const { event } = await queueMail(tx, { type: 'welcome', to: 'user@mail.example', context: {} })
        return { result: null, events: [event] }
      })
    await mail()
    await mail()
    await mail()
    await api.sql(`update "svc_EmailLog" set status = 'failed' where id = (select id from "svc_EmailLog" limit 1)`)
    await api.sql(`update pgboss.job set start_after = now() - interval '1 hour' where name = 'mail'`)
    await api.sql(`insert into pgboss.job (name, source_name, keep_until, policy)
      values ('mail-dead', 'mail', now() + interval '1 day', 'standard')`)
    await api.sql(`insert into "svc_Tasks" (type, task_status, scheduled_time) values
      ('report', 'Running', now()), ('report', 'Error', now()), ('report', 'Not started', now() - interval '10 minutes')`)
    await api.sql(`insert into "svc_Workflow" (id, name) values ('counted', 'counted')`)
    await api.sql(`insert into "svc_WorkflowExecution" ("workflow_Id", status, due_at, claim_token) values
      ('counted', 'queued', now() - interval '1 minute', null), ('counted', 'running', now() + interval '1 day', null),
      ('counted', 'running', null, null), ('counted', 'running', null, gen_random_uuid()), ('counted', 'completed', null, null)`)
    await api.sql(`insert into svc_log.consumer (name, snapshot, state) values ('lagging', '3:3:', 'halted')`)
    await api.sql(`insert into svc_log.set_aside values ('lagging', 1, 'why'), ('lagging', 2, 'why')`)
    const samples = await waitFor(async () => {
      const now = await scrape()
      return now.get('daybook_queue_jobs{queue="mail",state="dead"}') === 1 && now
    })
    expect(samples.get('daybook_queue_jobs{queue="mail",state="waiting"}')).toBe(3)
    expect(samples.get('daybook_queue_oldest_job_seconds{queue="mail"}')).toBeGreaterThanOrEqual(3600)
    expect(samples.get('daybook_queue_jobs{queue="log-partitions",state="waiting"}')).toBe(0)
    expect(samples.get('daybook_tasks{state="failed"}')).toBe(1)
    expect(samples.get('daybook_tasks_running')).toBe(1)
    expect(samples.get('daybook_tasks_oldest_due_seconds')).toBeGreaterThanOrEqual(600)
    const executions = ['due', 'claimed', 'waiting'].map((state) =>
      samples.get(`daybook_workflow_executions{state="${state}"}`),
    )
    expect(executions).toEqual([1, 1, 2])
    expect(samples.get('daybook_workflow_oldest_due_seconds')).toBeGreaterThanOrEqual(60)
    expect(samples.get('daybook_mails{state="queued"}')).toBe(2)
    expect(samples.get('daybook_mails{state="failed"}')).toBe(1)
    expect(samples.get('daybook_consumer_running{consumer="lagging"}')).toBe(0)
    expect(samples.get('daybook_consumer_lag_seconds{consumer="lagging"}')).toBeGreaterThan(0)
    expect(samples.get('daybook_consumer_events_set_aside{consumer="lagging"}')).toBe(2)
    expect(samples.get('daybook_log_partitions')).toBeGreaterThanOrEqual(1)
    expect(samples.get('daybook_log_size_bytes')).toBeGreaterThan(0)
  })

  it('leaves finished jobs unread', async () => {
    await api.sql(`insert into pgboss.job (name, state, keep_until, completed_on, policy)
      select 'mail', 'completed', now() + interval '1 day', now(), 'standard' from generate_series(1, 20000)`)
    await api.sql('analyze pgboss.job')
    const { text, values } = figuresQuery()
    const plan = await api.sql(`explain ${text}`, [...values])
    expect(plan.map((row) => row['QUERY PLAN']).join('\n')).not.toMatch(/Seq Scan on job/)
  })
})

describe('a database in trouble', () => {
  it('that is slow costs the figures, not the scrape', async () => {
    await whileLocked(api, 'svc_Tasks', async () => {
      const samples = await waitFor(async () => {
        const now = await scrape()
        return now.get('daybook_database_figures_up') === 0 && now
      })
      expect(samples.get('daybook_database_up')).toBe(1)
      expect([...samples.keys()].filter((name) => name.startsWith('daybook_queue'))).toEqual([])
    })
    await waitFor(async () => (await scrape()).get('daybook_database_figures_up') === 1)
  })

  it('that is away leaves what the process knows', async () => {
    const server = await startPrivateServer()
    const app = await configured(server, { ...env, DATABASE_POOL_ACQUIRE: '1000' })
    const read = async () => {
      const { statusCode, body } = await app.inject({ url: '/metrics', headers: bearer(token) })
      expect(statusCode).toBe(200)
      return samplesOf(body)
    }
    expect((await read()).get('daybook_database_up')).toBe(1)
    await server.stop('immediate')
    // Each of the two is asked at most once a second, so one may know it a scrape before the other.
    const samples = await waitFor(async () => {
      const now = await read()
      return now.get('daybook_database_up') === 0 && now.get('daybook_database_figures_up') === 0 && now
    })
    expect(samples.get('process_start_time_seconds')).toBeGreaterThan(0)
    expect(samples.has('daybook_mails{state="failed"}')).toBe(false)
    await server.start()
    await waitFor(async () => (await read()).get('daybook_database_up') === 1)
  })
})
