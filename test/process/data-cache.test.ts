import { setTimeout as delay } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { beforeAll, expect, it } from 'vitest'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { mulberry } from '../support/random.ts'
import { describeWithRedis, startRedis, type TestRedis } from '../support/redis.ts'
import { untilAdmitted, waitFor } from '../support/wait.ts'

/**
 * Random reads and writes over two processes that share their answers: no answer is ever older than
 * the last write that was acknowledged before the question. Each counter only grows, so an answer tells
 * how old it is.
 */

const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
const counters = 4
let cluster: Cluster
let redis: TestRedis
const ids: string[] = []
/** The greatest value that a writer was told of. */
const acknowledged: number[] = []

describeWithRedis('two processes with one Redis', () => {
  beforeAll(async () => {
    redis = await startRedis()
    const env = { DATA_CACHE_STRATEGY: 'all', DATA_CACHE_ADAPTER: 'redis', DATA_CACHE_REDIS_URL: redis.url }
    cluster = await startCluster({ web: 2, workers: ['cache-invalidation'], env })
    const [first] = cluster.web as [Web]
    const number = { type: 'Integer' }
    const fields = { value: number, place: number }
    await first.call('POST', '/schemas', { collectionName: 'counter', schema: { fields } })
    for (let place = 0; place < counters; place += 1) {
      const { body } = await first.call('POST', '/items/counter', { value: 0, place })
      ids.push(body.data.id)
      acknowledged.push(0)
    }
  })

  /** What a caller sees of a counter, and whether it came from the cache; four ways to ask. */
  async function read(web: Web, place: number, way: number) {
    const sum = { aggregate: { top: { function: 'max', field: 'value' } }, groupBy: ['place'] }
    const ways = [
      () => web.call('GET', '/items/counter?sort=place'),
      () => web.call('GET', `/items/counter/${ids[place]}`),
      () => web.call('POST', '/reports/counter', { ...sum, sort: ['place'] }),
      () => web.call('GET', `/items/counter?filter={"place":${place}}&fields=value`),
    ]
    const answer = await untilAdmitted(ways[way]!)
    expect(answer.status, answer.text).toBe(200)
    const { data } = answer.body
    const value = [() => data[place].value, () => data.value, () => data[place].top, () => data[0].value][way]!()
    return { value: Number(value), state: answer.headers.get('x-cache')! }
  }

  async function run(rounds: number, random: () => number): Promise<Record<string, number>> {
    const seen: Record<string, number> = { reads: 0, writes: 0, HIT: 0, MISS: 0, BYPASS: 0, old: 0 }
    const pick = (n: number) => Math.floor(random() * n)
    const caller = async (own: number) => {
      for (let i = 0; i < rounds; i += 1) {
        const web = cluster.web[pick(2)]!
        // A counter has one writer, whose numbers therefore grow.
        if (random() < 0.1) {
          const value = acknowledged[own]! + 1
          const { status, text } = await untilAdmitted(() => web.call('PATCH', `/items/counter/${ids[own]}`, { value }))
          expect(status, text).toBe(200)
          acknowledged[own] = value
          seen.writes! += 1
        } else {
          const place = pick(counters)
          const least = acknowledged[place]!
          const { value, state } = await read(web, place, pick(4))
          seen.reads! += 1
          seen[state]! += 1
          if (value < least) seen.old! += 1
        }
      }
    }
    await Promise.all(Array.from({ length: counters }, (_, own) => caller(own)))
    return seen
  }

  it('answer nothing older than what was acknowledged, whatever Redis does', async () => {
    const random = mulberry(seed)
    const calm = await run(150, random)
    let over = false
    const trouble = (async () => {
      for (let i = 0; !over; i += 1) {
        if (i % 3 === 0) {
          await redis.stop()
          await delay(300)
          await redis.start()
        } else if (i % 3 === 1) {
          redis.freeze()
          await delay(500)
          redis.thaw()
        } else await flush()
        await delay(300)
      }
    })()
    const troubled = await run(300, random).finally(() => {
      over = true
    })
    await trouble
    const after = await run(100, random)
    process.stdout.write(
      `data cache, seed ${seed}: calm ${JSON.stringify(calm)}, with Redis killed, frozen and flushed ${JSON.stringify(troubled)}, after ${JSON.stringify(after)}\n`,
    )
    expect([calm.old, troubled.old, after.old]).toEqual([0, 0, 0])
    expect(calm.HIT).toBeGreaterThan(0)
    expect(after.HIT).toBeGreaterThan(0)
    for (const web of cluster.web) expect((await web.call('GET', '/health')).status).toBe(200)
    await waitFor(
      async () =>
        (
          await cluster.sql(
            `select 1 from pgboss.job where name = 'cache-invalidation' and state in ('created', 'active', 'retry')`,
          )
        ).length === 0,
      { what: 'the worker to have done its jobs' },
    )
  })
})

async function flush(): Promise<void> {
  const client = new Redis(redis.url)
  client.on('error', () => undefined)
  await client.flushall()
  client.disconnect()
}
