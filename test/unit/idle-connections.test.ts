import { describe, expect, it } from 'vitest'
import { longestIdleMs } from '../../src/api/http-connections.ts'
import { parseConfig } from '../../src/config/config.ts'

const longest = (env: Readonly<Record<string, string>> = {}) =>
  longestIdleMs(parseConfig({ SECRET_KEY: 'x'.repeat(40), ...env }))

describe('a connection on which nothing moves', () => {
  it.each(['60000', '600000'])(
    'stays as long as a statement may wait and take, at TRANSACTION_TIMEOUT_MS=%s',
    (most) => {
      expect(longest({ TRANSACTION_TIMEOUT_MS: most })).toBeGreaterThan(30_000 + Number(most))
      expect(longest({ TRANSACTION_TIMEOUT_MS: most, DATABASE_POOL_ACQUIRE: '90000' })).toBeGreaterThan(
        90_000 + Number(most),
      )
    },
  )

  it('stays a minute at least, and no longer than a timer can count', () => {
    expect(longest({ TRANSACTION_TIMEOUT_MS: '1', DATABASE_POOL_ACQUIRE: '1' })).toBe(60_000)
    expect(longest({ TRANSACTION_TIMEOUT_MS: '2147483647' })).toBe(2_147_483_647)
  })
})
