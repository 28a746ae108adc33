import bcrypt from 'bcrypt'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { hashPassword, isPasswordHash, isReplaceable, takesOver, verifyPassword } from '../../src/adapters/passwords.ts'

const password = 'correct horse'
const cost = 7
const bcryptHash = (letter: string, rounds = cost, text = password) =>
  bcrypt.hashSync(text, rounds).replace('$2b$', `$2${letter}$`)

afterEach(() => vi.restoreAllMocks())

describe('verifyPassword', () => {
  it.each(['a', 'b', 'y'])('knows a hash of bcrypt of the kind 2%s', async (letter) => {
    const stored = bcryptHash(letter)
    expect(await verifyPassword(password, stored, cost)).toBe(true)
    expect(await verifyPassword('another', stored, cost)).toBe(false)
    expect(await verifyPassword(stored, stored, cost)).toBe(false)
  })

  it('takes no text that is no hash, and no hash that would take for ever', async () => {
    const endless = `$2b$31$${bcryptHash('b').slice(7)}`
    for (const stored of [null, undefined, '', password, endless, bcryptHash('x')])
      expect(await verifyPassword(password, stored, cost), String(stored)).toBe(false)
  })

  it.each([
    ['no account', () => undefined],
    ['an account without a password', () => null],
    ['a hash of its own', () => hashPassword(password, cost)],
    ['a cheaper hash of its own', () => hashPassword(password, 5)],
    ['a hash of bcrypt', () => bcryptHash('y')],
    ['a cheaper hash of bcrypt', () => bcryptHash('a', 4)],
  ])('does the same work for %s', async (_what, stored) => {
    const hash = await stored()
    await verifyPassword('wrong', hash, cost)
    const compare = vi.spyOn(bcrypt, 'compare')
    await verifyPassword('wrong', hash, cost)
    const rounds = compare.mock.calls.map(([, compared]) => 2 ** bcrypt.getRounds(String(compared)))
    expect(rounds.reduce((sum, each) => sum + each, 0)).toBe(2 ** cost)
  })
})

it('tells what is a hash, which of them can be taken over, and which are replaced at a sign-in', async () => {
  const own = await hashPassword(password, 4)
  const cases: [string, boolean, boolean, boolean][] = [
    [own, true, true, false],
    [bcryptHash('a'), true, true, true],
    [bcryptHash('y', 4), true, true, true],
    [`$2b$14$${bcryptHash('b').slice(7)}`, true, true, true],
    [`$2b$15$${bcryptHash('b').slice(7)}`, true, false, false],
    [`$2b$03$${bcryptHash('b').slice(7)}`, true, false, false],
    [bcryptHash('x'), true, false, false],
    [bcryptHash('b').slice(0, -1), true, false, false],
    ['$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b27Zg', true, false, false],
    ['$6$rounds=5000$saltsalt$yVYkJdHlT1Bp9mVd0ZsXvK', true, false, false],
    ['$P$BRjZ1Hb8r8b8zq2TzQ1r9mZp0j9mZp0', true, false, false],
    ['pbkdf2_sha256$600000$c2FsdA$R2Vub3VnaFRleHQ=', true, false, false],
    ['{SSHA}0c0blFTXXNuAMHECS4uxrj3ZieMoWImr', true, false, false],
    ['correct horse battery', false, false, false],
    ['$ecret$tuff$', false, false, false],
    ['$2 bills and a lot of change, please', false, false, false],
  ]
  for (const [text, isHash, isKnown, isForeign] of cases)
    expect([isPasswordHash(text), takesOver(text), isReplaceable(text)], text).toEqual([isHash, isKnown, isForeign])
})
