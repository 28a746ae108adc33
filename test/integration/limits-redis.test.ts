import pino from 'pino'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { openRedis, type Redis } from '../../src/adapters/redis.ts'
import type { App } from '../../src/http/http.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { describeWithRedis, startRedis, type TestRedis } from '../support/redis.ts'
import { waitFor } from '../support/wait.ts'

const limited = { AUTH_RATE_LIMIT_DISABLED: 'false' }

describeWithRedis('attempts counted in Redis', () => {
  let api: Api
  let redis: TestRedis
  let inspector: Redis
  beforeAll(async () => {
    redis = await startRedis()
    inspector = openRedis(redis.url, pino({ level: 'silent' }))
    api = await startApi()
  })
  afterAll(() => inspector.close())

  const start = () => configured(api.database, { ...limited, RATE_LIMIT_REDIS_URL: redis.url })
  const guess = async (app: App, ip: string) =>
    (await app.inject({ url: '/auth/email/verify/guess', remoteAddress: ip })).statusCode
  const guesses = async (n: number, apps: readonly App[], ip: string) => {
    const found = await Promise.all(Array.from({ length: n }, (_, i) => guess(apps[i % apps.length]!, ip)))
    return [400, 429].map((status) => found.filter((one) => one === status).length)
  }
  /** Another client's guesses, until Redis counts again. */
  const countsInRedis = (app: App) =>
    waitFor(async () => {
      const before = await inPostgres()
      await guess(app, `198.51.100.${Math.floor(performance.now() / 50) % 250}`)
      return (await inPostgres()) === before
    })
  const inPostgres = async () => (await api.sql('select key from "svc_RateLimit"')).length

  it('are 10 over all processes, and cost PostgreSQL nothing', async () => {
    expect(await guesses(20, [await start(), await start()], '192.0.2.1')).toEqual([10, 10])
    expect(await guesses(1, [await start()], '192.0.2.1')).toEqual([0, 1])
    expect(await inPostgres()).toBe(0)
  })

  it('stay 10 when Redis is killed in between, and when it comes back empty', async () => {
    const app = await start()
    expect(await guesses(7, [app], '192.0.2.2')).toEqual([7, 0])
    await redis.stop()
    onTestFinished(() => redis.start())
    expect(await guesses(2, [app], '192.0.2.2')).toEqual([2, 0])
    // The attempts, and those of them that were given back.
    expect(await inPostgres()).toBe(2)
    await redis.stop()
    await redis.start()
    await countsInRedis(app)
    expect(await guesses(5, [app], '192.0.2.2')).toEqual([1, 4])
  })

  it.each([1, 2, 3, 4])('stay 10 when the line to Redis breaks while they are counted, time %i', async (time) => {
    const app = await start()
    const ip = `192.0.2.${100 + time}`
    await guess(app, ip)
    const answers: Promise<number>[] = []
    for (let i = 0; i < 25; i += 1) {
      answers.push(guess(app, ip))
      if (i === 6 + time) void inspector.call('client', 'kill', 'type', 'normal', 'skipme', 'yes')
      await new Promise(setImmediate)
    }
    const made = (await Promise.all(answers)).filter((status) => status === 400).length
    await countsInRedis(app)
    const later = (await guesses(12, [app], ip))[0]!
    // Attempts that Redis counted without an answer are counted again.
    expect(1 + made + later).toBeLessThanOrEqual(10)
    expect(made).toBeGreaterThan(0)
  })

  it('and requests are not counted anew by PostgreSQL', async () => {
    const env = { RATE_LIMIT_DISABLED: 'false', RATE_LIMIT: '20', RATE_LIMIT_REDIS_URL: redis.url }
    const app = await configured(api.database, env)
    const key = 'requests of 192.0.2.5'
    const ask = async (n: number) => {
      const answers = Array.from({ length: n }, () => app.inject({ url: '/', remoteAddress: '192.0.2.5' }))
      return (await Promise.all(answers)).filter(({ statusCode }) => statusCode === 200).length
    }
    expect(await ask(12)).toBe(12)
    await waitFor(async () => (await inspector.call('get', `daybook:limit:${key}`)) === '12')
    await redis.stop()
    onTestFinished(() => redis.start())
    expect(await ask(4)).toBe(4)
    const counted = () => api.sql('select count from "svc_RateLimit" where key = $1', [key])
    await waitFor(async () => (await counted())[0]?.count === '16')
    expect(await ask(20)).toBe(4)
  })

  it('are bounded among processes while there is no Redis at all', async () => {
    await redis.stop()
    onTestFinished(() => redis.start())
    expect(await guesses(20, [await start(), await start()], '192.0.2.3')).toEqual([10, 10])
  })

  it('go on in PostgreSQL while Redis hangs', async () => {
    const app = await start()
    expect(await guesses(4, [app], '192.0.2.4')).toEqual([4, 0])
    redis.freeze()
    onTestFinished(() => redis.thaw())
    expect(await guesses(10, [app], '192.0.2.4')).toEqual([6, 4])
  })
})
