import { beforeAll, expect, it, onTestFinished } from 'vitest'
import type { App } from '../../src/http.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { describeWithRedis, startRedis, type TestRedis } from '../support/redis.ts'
import { waitFor } from '../support/wait.ts'

const limited = { AUTH_RATE_LIMIT_DISABLED: 'false' }

describeWithRedis('attempts counted in Redis', () => {
  let api: Api
  let redis: TestRedis
  beforeAll(async () => {
    redis = await startRedis()
    api = await startApi()
  })

  const start = () => configured(api.database, { ...limited, RATE_LIMIT_REDIS_URL: redis.url })
  const guess = async (app: App, ip: string) =>
    (await app.inject({ url: '/auth/email/verify/guess', remoteAddress: ip })).statusCode
  const guesses = async (n: number, apps: readonly App[], ip: string) => {
    const found = await Promise.all(Array.from({ length: n }, (_, i) => guess(apps[i % apps.length]!, ip)))
    return [400, 429].map((status) => found.filter((one) => one === status).length)
  }
  const inPostgres = async () => (await api.sql('select key from "svc_RateLimit"')).length

  it('are 10 over all processes, and cost PostgreSQL nothing', async () => {
    expect(await guesses(20, [await start(), await start()], '192.0.2.1')).toEqual([10, 10])
    expect(await guesses(1, [await start()], '192.0.2.1')).toEqual([0, 1])
    expect(await inPostgres()).toBe(0)
  })

  it('stay 10 when Redis is killed in between, and when it comes back empty (A-39, F-21)', async () => {
    const app = await start()
    expect(await guesses(7, [app], '192.0.2.2')).toEqual([7, 0])
    await redis.stop()
    onTestFinished(() => redis.start())
    expect(await guesses(2, [app], '192.0.2.2')).toEqual([2, 0])
    expect(await inPostgres()).toBe(1)
    await redis.stop()
    await redis.start()
    await waitFor(async () => {
      // Another client's guesses, until Redis counts again.
      const before = await inPostgres()
      await guess(app, `198.51.100.${Math.floor(performance.now() / 50) % 250}`)
      return (await inPostgres()) === before
    })
    expect(await guesses(5, [app], '192.0.2.2')).toEqual([1, 4])
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
