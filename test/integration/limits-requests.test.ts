import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { App } from '../../src/http/http.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

const limited = { RATE_LIMIT_DISABLED: 'false', RATE_LIMIT_INTERVAL: '600000' }
const tooMany = {
  message: 'Too many requests, please try again later.',
  code: 'TOO_MANY_REQUESTS',
  details: null,
  statusCode: 429,
}

async function get(app: App, url: string, ip: string, headers: Record<string, string> = {}) {
  return app.inject({ url, remoteAddress: ip, headers })
}

async function statuses(app: App, n: number, url: string, ip: string, headers?: (i: number) => Record<string, string>) {
  const answers = await Promise.all(Array.from({ length: n }, (_, i) => get(app, url, ip, headers?.(i))))
  return answers.map(({ statusCode }) => statusCode).sort()
}

const most = (n: number, status: number, rest: number) => [...Array.from({ length: n }, () => status), rest].sort()

describe('the limit of requests', () => {
  let api: Api
  beforeAll(async () => {
    api = await startApi()
  })

  it('lets 100 of 101 through, and says when to come back', async () => {
    const app = await configured(api.database, limited)
    const ip = '192.0.2.1'
    expect(await statuses(app, 101, '/', ip)).toEqual(most(100, 200, 429))
    const { statusCode, headers, json } = await get(app, '/items/svc_User', ip)
    expect(statusCode).toBe(429)
    expect(json()).toEqual({ error: tooMany })
    expect(headers).toMatchObject({ 'ratelimit-limit': '100', 'ratelimit-remaining': '0' })
    expect(headers['retry-after']).toBe(headers['ratelimit-reset'])
    expect(Number(headers['retry-after'])).toBeGreaterThan(0)
    expect(Number(headers['retry-after'])).toBeLessThanOrEqual(600)
    expect((await get(app, '/auth/check', ip)).json()).toEqual({ message: tooMany.message, code: tooMany.code })
    expect((await get(app, '/', '192.0.2.2')).headers).toMatchObject({ 'ratelimit-remaining': '99' })
  })

  it('counts paths that do not exist, ignores forwarded headers, and leaves health alone', async () => {
    const app = await configured(api.database, { ...limited, RATE_LIMIT: '5' })
    const forwarded = (i: number) => ({ 'x-forwarded-for': `198.51.100.${i}` })
    expect(await statuses(app, 6, '/nowhere', '192.0.2.3', forwarded)).toEqual(most(5, 404, 429))
    expect(await statuses(app, 20, '/health', '192.0.2.3')).toEqual(Array.from({ length: 20 }, () => 200))
    expect((await get(app, '/ready', '192.0.2.3')).headers).not.toHaveProperty('ratelimit-limit')
  })

  it('by user counts all sessions of a user together, wherever they are; everybody else by address', async () => {
    const app = await configured(api.database, { ...limited, RATE_LIMIT: '6', RATE_LIMIT_BY_USER: 'true' })
    const tokens = await Promise.all(
      [0, 1].map(async () => (await api.anonymous('POST', '/auth/login', administrator)).body.token),
    )
    const from = (i: number) =>
      get(app, '/auth/check', `192.0.2.${10 + i}`, { authorization: `Bearer ${tokens[i % 2]}` })
    const answers = []
    for (let i = 0; i < 7; i += 1) answers.push((await from(i)).statusCode)
    expect(answers).toEqual([200, 200, 200, 200, 200, 200, 429])
    const { token } = await api.user()
    expect((await get(app, '/auth/check', '192.0.2.10', { authorization: `Bearer ${token}` })).statusCode).toBe(200)
    const invented = (i: number) => ({ authorization: `Bearer invented${i}` })
    expect(await statuses(app, 7, '/auth/check', '192.0.2.30', invented)).toEqual(most(6, 401, 429))
    expect(await statuses(app, 7, '/nowhere', '192.0.2.31')).toEqual(most(6, 404, 429))
  })

  it('is shared: what one process has let through, another one knows soon', async () => {
    const env = { ...limited, RATE_LIMIT: '20' }
    const [one, two] = [await configured(api.database, env), await configured(api.database, env)]
    const ip = '192.0.2.40'
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => get(i % 2 ? one : two, '/', ip)))
    expect(answers.map(({ statusCode }) => statusCode)).toEqual(Array.from({ length: 20 }, () => 200))
    await waitFor(async () => (await get(one, '/', ip)).statusCode === 429)
    await waitFor(async () => (await get(two, '/', ip)).statusCode === 429)
  })

  it('few requests never reach the database', async () => {
    const app = await configured(api.database, { ...limited, RATE_LIMIT: '1000' })
    const counters = async (ip: string) =>
      api.sql(`select count from "svc_RateLimit" where key = $1`, [`requests of ${ip}`])
    await statuses(app, 99, '/', '192.0.2.50')
    await statuses(app, 100, '/', '192.0.2.51')
    await waitFor(async () => (await counters('192.0.2.51'))[0]?.count === '100')
    expect(await counters('192.0.2.50')).toEqual([])
  })
})

describe('CONNECTION_LIMIT', () => {
  it('cuts the connections of an address beyond it; an ended one makes room', async () => {
    const api = await startApi()
    const app = await configured(api.database, { CONNECTION_LIMIT: '3' })
    await app.listen({ host: '127.0.0.1', port: 0 })
    const { port } = app.server.address() as { port: number }
    const open = async (): Promise<Socket> => {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => undefined)
      onTestFinished(() => void socket.destroy())
      await once(socket, 'connect')
      return socket
    }
    const kept = await Promise.all([open(), open(), open()])
    const cut = await open()
    await waitFor(() => cut.closed || cut.destroyed)
    expect(kept.map((socket) => socket.destroyed)).toEqual([false, false, false])
    kept[0]!.destroy()
    await waitFor(async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/health`, { headers: { connection: 'close' } })
      return answer.status === 200
    })
  })
})
