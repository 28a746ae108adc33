import { describe, expect, it } from 'vitest'
import { keyedHashes, seal, unseal } from '../../src/adapters/sealing.ts'
import { testConfig } from '../support/prepare.ts'

const first = 'the first key, for tests only, of no worth'
const second = 'the second key, for tests only, of no worth'
const config = (env: Record<string, string>) => testConfig('postgres://127.0.0.1/none', env)
const before = config({ SECRET_KEY: first })
const during = config({ SECRET_KEY: second, SECRET_KEY_PREVIOUS: first })
const after = config({ SECRET_KEY: second })
const mine = { purpose: 'test', owner: 'me' }

describe('a sealed text', () => {
  const sealed = seal(before, mine, 'näh')

  it('opens with its key, and is another one each time', () => {
    expect(unseal(before, mine, sealed)).toEqual({ text: 'näh', outdated: false })
    expect(seal(before, mine, 'näh')).not.toBe(sealed)
    expect(Buffer.from(sealed, 'base64url').toString()).not.toContain('näh')
  })

  it('is outdated while the key is the previous one, and closed afterwards', () => {
    expect(unseal(during, mine, sealed)).toEqual({ text: 'näh', outdated: true })
    expect(unseal(after, mine, sealed)).toBeUndefined()
  })

  it.each([
    ['another owner', { ...mine, owner: 'you' }, sealed],
    ['another purpose', { ...mine, purpose: 'other' }, sealed],
    ['a cut text', mine, sealed.slice(0, -4)],
    ['another character', mine, (sealed[0] === 'A' ? 'B' : 'A') + sealed.slice(1)],
    ['nothing', mine, ''],
  ])('does not open for %s', (_what, sealedFor, text) => expect(unseal(before, sealedFor, text)).toBeUndefined())
})

describe('a keyed hash', () => {
  it('depends on key, purpose and owner, and knows the previous key', () => {
    const [hash] = keyedHashes(before, mine, 'x')
    expect(keyedHashes(before, mine, 'x')).toEqual([hash])
    expect(keyedHashes(during, mine, 'x')).toEqual([...keyedHashes(after, mine, 'x'), hash])
    const others = [
      { ...mine, owner: 'you' },
      { ...mine, purpose: 'other' },
    ].map((one) => keyedHashes(before, one, 'x')[0])
    expect(new Set([hash, ...others]).size).toBe(3)
  })
})
