import { describe, expect, it } from 'vitest'
import { newTotpSecret, totpStep, totpUrl } from '../../src/adapters/totp.ts'

/** RFC 6238, appendix B: the secret `12345678901234567890`, SHA-1; six digits are the last ones of its eight. */
const secret = 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ'

describe('the step of a code', () => {
  it.each([
    [59, '287082'],
    [1_111_111_109, '081804'],
    [1_234_567_890, '005924'],
    [20_000_000_000, '353130'],
  ])('at %d s', (seconds, code) => {
    const step = Math.floor(seconds / 30)
    expect(totpStep(secret, code, seconds * 1000)).toBe(step)
    for (const beside of [-30, 30]) expect(totpStep(secret, code, (seconds + beside) * 1000)).toBe(step)
    for (const away of [-90, 90]) expect(totpStep(secret, code, (seconds + away) * 1000)).toBeUndefined()
  })

  it('is none for what is no code', () => {
    for (const code of ['', '28708', '2870822', 'abcdef']) expect(totpStep(secret, code, 59_000)).toBeUndefined()
  })
})

it('an enrolment names issuer, account and secret', () => {
  const made = newTotpSecret()
  const url = new URL(totpUrl(made, 'Day & Night', 'a+b@example.com'))
  expect(decodeURIComponent(url.pathname)).toBe('//totp/Day & Night:a+b@example.com'.slice(url.host === 'totp' ? 6 : 0))
  expect(Object.fromEntries(url.searchParams)).toMatchObject({
    issuer: 'Day & Night',
    secret: made,
    algorithm: 'SHA1',
    digits: '6',
    period: '30',
  })
})
