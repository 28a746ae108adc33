import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { signToken, verifyToken } from '../../src/adapters/tokens.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'

const tenMinutes = 600_000
let api: Api

beforeAll(async () => {
  api = await startApi({ ACCESS_TOKEN_EXPIRES_IN: '300' })
})

afterEach(() => {
  vi.useRealTimers()
})

describe.each([
  ['ahead', tenMinutes],
  ['behind', -tenMinutes],
])('a process whose clock is ten minutes %s', (_how, shift) => {
  it('knows by the database’s which tokens have expired, also when it leaps while it runs', async () => {
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const started = new Date()
    const claims = verifyToken(api.runtime.config, token, started)!
    const expired = signToken(
      api.runtime.config,
      { ...claims, userRoleId: undefined },
      new Date(started.getTime() - 301_000),
    )

    vi.useFakeTimers({ toFake: ['Date'], now: started.getTime() + shift })
    const beside = await startApi({ ACCESS_TOKEN_EXPIRES_IN: '300' }, api.database)
    for (const one of [api, beside]) {
      // The time of schedules and of rules about the time.
      expect(Math.abs(one.runtime.clock().getTime() - started.getTime())).toBeLessThan(tenMinutes / 2)
      expect((await one.as(token)('GET', '/auth/me')).status).toBe(200)
      expect((await one.as(expired)('GET', '/auth/me')).status).toBe(401)
    }
    const own = (await beside.anonymous('POST', '/auth/login', administrator)).body.token
    vi.useRealTimers()
    expect(verifyToken(api.runtime.config, own, new Date())).toBeDefined()
    expect(verifyToken(api.runtime.config, own, new Date(Date.now() + 301_000))).toBeUndefined()
  })
})
