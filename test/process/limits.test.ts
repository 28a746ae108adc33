import { expect, it } from 'vitest'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { administrator } from '../support/prepare.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'

const limited = { AUTH_RATE_LIMIT_DISABLED: 'false', RATE_LIMIT_DISABLED: 'false' }

/** How many guesses at a mailed token, sent to the web processes in turn and all at once, are evaluated and refused. */
async function guesses({ web }: Cluster, n: number): Promise<{ evaluated: number; refused: number }> {
  const path = '/auth/email/verify/guess'
  const answers = Array.from({ length: n }, (_, i) => web[i % web.length]!.call('GET', path, undefined, null))
  const found = (await Promise.all(answers)).map(({ status }) => status)
  const count = (status: number) => found.filter((one) => one === status).length
  return { evaluated: count(400), refused: count(429) }
}

it('two web processes evaluate ten attempts together, and starting them again gives no more', async () => {
  const cluster = await startCluster({ web: 2, env: limited })
  expect(await guesses(cluster, 20)).toEqual({ evaluated: 10, refused: 10 })
  await Promise.all(cluster.web.map((web) => web.kill('SIGKILL').then(() => web.restart())))
  expect(await guesses(cluster, 4)).toEqual({ evaluated: 0, refused: 4 })
  expect((await cluster.web[0]!.call('POST', '/auth/login', administrator, null)).status).toBe(200)
})

describeWithRedis('with Redis', () => {
  it('two web processes outlive its death; attempts stay counted, sessions and permissions go on', async () => {
    const redis = await startRedis()
    const cluster = await startCluster({ web: 2, env: { ...limited, RATE_LIMIT_REDIS_URL: redis.url } })
    // One after the other, so that the last that each of them has heard from Redis is at least 5.
    for (const web of [...cluster.web, ...cluster.web, ...cluster.web])
      expect(await guesses({ ...cluster, web: [web] }, 1)).toEqual({ evaluated: 1, refused: 0 })
    await redis.stop()
    const { evaluated, refused } = await guesses(cluster, 20)
    expect(evaluated).toBeLessThanOrEqual(5)
    expect(refused).toBe(20 - evaluated)
    for (const web of cluster.web) {
      expect((await web.call('GET', '/items/svc_User')).status).toBe(200)
      expect((await web.call('POST', '/auth/login', administrator, null)).status).toBe(200)
      expect(web.lines.some(({ msg }) => /PostgreSQL does/.test(String(msg)))).toBe(true)
    }
    await redis.start()
    expect(await guesses(cluster, 2)).toEqual({ evaluated: 0, refused: 2 })
  })
})
