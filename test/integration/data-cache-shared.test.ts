import pg from 'pg'
import pino from 'pino'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { openRedis, type Redis } from '../../src/adapters/redis.ts'
import type { App } from '../../src/http/http.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { runQueue } from '../../src/workers/loop.ts'
import { type QueueWorker, workers } from '../../src/workers/workers.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { testConfig } from '../support/prepare.ts'
import { describeWithRedis, startRedis, type TestRedis } from '../support/redis.ts'
import { startUpstash } from '../support/upstash.ts'
import { waitFor } from '../support/wait.ts'

const shared = (url: string) => ({
  DATA_CACHE_STRATEGY: 'all',
  DATA_CACHE_ADAPTER: 'redis',
  DATA_CACHE_REDIS_URL: url,
})
const path = '/items/note?sort=text'

/** Answers of two processes in one store. The store may lose, keep or bring back what it likes. */
describeWithRedis('answers in Redis', () => {
  let api: Api
  let redis: TestRedis
  let inspector: Redis
  let other: App
  let token: string
  let n = 0

  beforeAll(async () => {
    redis = await startRedis()
    inspector = openRedis(redis.url, pino({ level: 'silent' }))
    api = await startApi(shared(redis.url))
    const schema = { fields: { text: { type: 'String' } } }
    for (const collectionName of ['note', 'quiet']) await api.admin('POST', '/schemas', { collectionName, schema })
    const credentials = { email: 'admin@example.com', password: 'correct horse battery staple' }
    token = (await api.anonymous('POST', '/auth/login', credentials)).body.token
  })
  afterAll(() => inspector.close())

  const second = async (env: Record<string, string> = shared(redis.url)) => {
    other = await configured(api.database, env)
    return other
  }
  const readThere = async (url = path) => {
    const answer = await other.inject({ url, headers: { authorization: `Bearer ${token}` } })
    return {
      state: answer.headers['x-cache'],
      texts: answer.json().data.map((row: { text: string }) => row.text),
      etag: answer.headers.etag,
    }
  }
  const add = async (given?: string) => {
    n += 1
    const text = given ?? `note ${n}`
    const made = await api.admin('POST', '/items/note', { text })
    expect(made.status, made.text).toBe(201)
    return text
  }
  const readsItsWrite = async () => {
    const text = await add()
    expect((await readThere()).texts).toContain(text)
  }
  const entries = async () => ((await inspector.call('keys', '*:e:*')) as string[]).toSorted()
  /** Until what was put beside the answer has arrived. */
  const stored = async (url = path) => {
    const answer = await api.admin('GET', `${url}&cache=reload`)
    expect(answer.headers['x-cache']).toBe('MISS')
    await waitFor(async () => (await entries()).length > 0)
    return answer
  }

  it('are found by the other process, and never older than a write of the first', async () => {
    await second()
    await api.settled()
    const first = await api.admin('GET', path)
    await waitFor(async () => (await entries()).length === 1)
    const there = await readThere()
    expect([there.state, there.etag]).toEqual(['HIT', first.headers.etag])
    for (let i = 0; i < 5; i += 1) {
      const text = await add()
      expect((await readThere()).texts).toContain(text)
      await readThere()
    }
    const written = `by psql ${n}`
    await api.sql(`insert into note (id, text) values (gen_random_uuid(), $1)`, [written])
    expect((await readThere()).texts).toContain(written)
    expect((await api.admin('GET', path)).text).toContain(written)
  })

  it('are worth nothing when Redis brings back old ones', async () => {
    await second()
    await stored()
    const [key] = await entries()
    const old = (await inspector.call('get', key!)) as string
    const text = await add()
    await inspector.call('set', key!, old)
    expect((await readThere()).texts).toContain(text)
    await inspector.call('set', key!, 'rubbish')
    await inspector.call('set', key!, '{"tables":[],"snapshot":"1:1:"}\n{"data":[]}')
    await second()
    expect((await readThere()).texts).toContain(text)
  })

  it('are done without while Redis is gone, hangs or was emptied', async () => {
    await second()
    onTestFinished(() => redis.start())
    onTestFinished(() => redis.thaw())
    await redis.stop()
    for (let i = 0; i < 3; i += 1) await readsItsWrite()
    expect((await api.admin('GET', path)).headers['x-cache']).toBe('MISS')
    await redis.start()
    await waitFor(async () => {
      await add()
      await readThere()
      return (await entries()).length > 0
    })
    redis.freeze()
    for (let i = 0; i < 3; i += 1) await readsItsWrite()
    redis.thaw()
    await readsItsWrite()
    expect(api.runtime.dataCache.stats().errors).toBeGreaterThan(0)
  })

  it('are invalidated by one job for many writes, in their transactions', async () => {
    await api.sql(`delete from pgboss.job where name = 'cache-invalidation'`)
    const position = await api.position()
    await Promise.all(Array.from({ length: 20 }, () => add()))
    await api.admin('POST', '/items/note/bulk', [{ text: 'a' }, { text: 'b' }])
    const jobs = await api.jobs('cache-invalidation')
    // Writers that begin together may not see each other's job; each second has its own.
    expect(jobs.length).toBeGreaterThan(0)
    expect(jobs.length).toBeLessThan(20)
    expect(jobs.every(({ data }) => data.table === 'note')).toBe(true)
    expect((await api.log(position)).filter(({ type }) => type !== 'data')).toEqual([])
    await api.sql(`delete from pgboss.job where name = 'cache-invalidation'`)
    for (let i = 0; i < 5; i += 1) await add()
    expect((await api.jobs('cache-invalidation')).length).toBeLessThanOrEqual(2)
    await api.sql(`delete from pgboss.job where name = 'cache-invalidation'`)
    expect((await api.admin('POST', '/items/note', { text: 5, nope: 1, id: 'no' })).status).toBe(400)
    expect(await api.jobs('cache-invalidation')).toEqual([])
  })

  it('are deleted by the worker: those that a write made worthless, no others', async () => {
    await inspector.call('flushall')
    await api.sql(`delete from pgboss.job where name = 'cache-invalidation'`)
    await api.admin('GET', '/items/quiet?cache=reload')
    await stored()
    await waitFor(async () => (await entries()).length === 2)
    const before = await entries()
    await add()
    await api.admin('GET', '/items/note?sort=-text')
    await waitFor(async () => (await entries()).length === 3)
    const run = await startWorker()
    await waitFor(async () => (await api.jobs('cache-invalidation')).length === 0)
    const left = await entries()
    expect(left).toHaveLength(2)
    expect(left.filter((key) => before.includes(key))).toHaveLength(1)
    await run.stop(1000)
  })

  async function startWorker() {
    const config = testConfig(api.database.url, shared(redis.url))
    const runtime: Runtime = await openRuntime({ config, log: pino({ level: 'silent' }), name: 'cache', worker: true })
    onTestFinished(() => runtime.close())
    const [{ queue, concurrency, open }] = workers['cache-invalidation'] as [QueueWorker]
    return runQueue(runtime, { queue, concurrency, handler: open(runtime).handler, pollMs: 100 })
  }

  it('wait to be deleted until a transaction that writes has ended', async () => {
    await inspector.call('flushall')
    await api.sql(`delete from pgboss.job where name = 'cache-invalidation'`)
    await add()
    await stored()
    await waitFor(async () => (await api.jobs('cache-invalidation')).length === 1)
    await api.admin('POST', '/items/quiet', { text: 'another table' })
    const writer = new pg.Client({ connectionString: api.database.url })
    await writer.connect()
    await writer.query('begin')
    await writer.query(
      `select 1 from pgboss.job where name = 'cache-invalidation' and data->>'table' = 'note' for key share`,
    )
    const run = await startWorker()
    const tables = async () => (await api.jobs('cache-invalidation')).map(({ data }) => data.table)
    await waitFor(async () => !(await tables()).includes('quiet'))
    expect(await tables()).toEqual(['note'])
    expect(await entries()).toHaveLength(1)
    await writer.query('commit')
    await writer.end()
    await waitFor(async () => (await tables()).length === 0)
    await run.stop(1000)
  })

  it('live in Upstash, too', async () => {
    const upstash = await startUpstash(redis.url)
    const env = {
      DATA_CACHE_STRATEGY: 'all',
      DATA_CACHE_ADAPTER: 'upstash',
      UPSTASH_REDIS_REST_URL: upstash.url,
      UPSTASH_REDIS_REST_TOKEN: upstash.token,
    }
    await inspector.call('flushall')
    const maker = await second(env)
    await add('Grüße, 世界 🙂')
    await api.settled()
    const made = await readThere()
    expect(made.state).toBe('MISS')
    await waitFor(async () => (await entries()).length === 1)
    await second(env)
    expect(await readThere()).toEqual({ ...made, state: 'HIT' })
    expect(new Set(upstash.commands)).toEqual(new Set(['get', 'eval']))
    const text = await add()
    expect((await readThere()).texts).toContain(text)
    upstash.hanging = true
    const late = await add()
    expect((await readThere()).texts).toContain(late)
    expect(maker.server).toBeDefined()
  })
})
