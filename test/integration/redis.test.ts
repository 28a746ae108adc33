import pino from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { openRedis } from '../../src/adapters/redis.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'
import { waitFor } from '../support/wait.ts'

const silent = pino({ level: 'silent' })

function open(url: string) {
  const redis = openRedis(url, silent)
  onTestFinished(() => redis.close())
  return redis
}

describeWithRedis('a Redis', () => {
  it('runs commands and scripts; what it answers with an error pauses nothing', async () => {
    const { url } = await startRedis()
    const redis = open(url)
    const first = await Promise.all([redis.call('set', 'a', 1), redis.call('set', 'b', 'x', 'px', 60_000)])
    expect(first).toEqual(['OK', 'OK'])
    expect(await redis.run(`return { redis.call('get', KEYS[1]), ARGV[1] }`, ['a'], [2])).toEqual(['1', '2'])
    await expect(redis.call('incr', 'b')).rejects.toThrow(/not an integer/)
    expect(await redis.call('get', 'a')).toBe('1')
  })

  it('rejects while it is away or hangs, and is used again when it is back', async () => {
    const server = await startRedis()
    const redis = open(server.url)
    await redis.call('set', 'a', 1)

    await server.stop()
    for (let i = 0; i < 5; i += 1) await expect(redis.call('get', 'a')).rejects.toThrow()
    await server.start()
    await waitFor(async () => (await redis.call('set', 'a', 2)) === 'OK')

    server.freeze()
    await expect(redis.call('get', 'a')).rejects.toThrow(/timed out/)
    // Not asked: it would have to wait again.
    await expect(redis.call('get', 'a')).rejects.toThrow(/a moment ago/)
    server.thaw()
    await waitFor(async () => (await redis.call('get', 'a')) === '2')
  })

  it('that never was there is found when it comes', async () => {
    const server = await startRedis()
    await server.stop()
    const redis = open(server.url)
    await expect(redis.call('get', 'a')).rejects.toThrow()
    await server.start()
    await waitFor(async () => (await redis.call('set', 'a', 1)) === 'OK')
  })
})
