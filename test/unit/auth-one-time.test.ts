import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { codeFrom, hashOneTime, newSecret, presentedSecret } from '../../src/adapters/tokens.ts'
import { parseConfig } from '../../src/config/config.ts'

const config = parseConfig({ NODE_ENV: 'test', SECRET_KEY: 'a key of thirty-two characters or more' })
const otherConfig = parseConfig({ NODE_ENV: 'test', SECRET_KEY: 'another key of thirty-two characters' })

describe('codeFrom', () => {
  it('gives 8 symbols of which no two look alike', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }), (random) => {
        expect(codeFrom(random.toString(16).padStart(64, '0'))).toMatch(/^[23456789ABCDEFGHJKMNPQRSTVWXYZ]{8}$/)
      }),
    )
  })

  it('uses all 30 symbols, and gives the same code for the same bytes', () => {
    const codes = Array.from({ length: 200 }, () => codeFrom(newSecret()))
    expect(new Set(codes.join('')).size).toBe(30)
    expect(new Set(codes).size).toBe(200)
    expect(codeFrom('ab'.repeat(32))).toBe(codeFrom('ab'.repeat(32)))
  })
})

describe('hashOneTime', () => {
  it.each(['ABCD2345', 'abcd2345', ' AbCd-2345 ', 'ABCD 2345'])('takes %j for the same code', (typed) => {
    expect(hashOneTime(config, 'magic-link', 'code', typed)).toBe(hashOneTime(config, 'magic-link', 'code', 'ABCD2345'))
  })

  it('binds a code to its purpose and to SECRET_KEY', () => {
    const hashes = [
      hashOneTime(config, 'magic-link', 'code', 'ABCD2345'),
      hashOneTime(config, 'password-reset', 'code', 'ABCD2345'),
      hashOneTime(otherConfig, 'magic-link', 'code', 'ABCD2345'),
    ]
    expect(new Set(hashes).size).toBe(3)
  })
})

describe('presentedSecret', () => {
  it.each([
    ['a'.repeat(64), 'token'],
    ['A'.repeat(64), 'code'],
    ['a'.repeat(63), 'code'],
    ['ABCD2345', 'code'],
    ['', 'code'],
    ['\u0000', 'code'],
  ])('takes %j for a %s', (typed, form) => expect(presentedSecret(config, 'magic-link', typed).form).toBe(form))
})
