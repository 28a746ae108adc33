import { describe, expect, it } from 'vitest'
import { hintOf, isApiKey, newApiKey, readsLikeApiKey } from '../../src/features/accounts/api-keys/api-keys.ts'

describe('API keys', () => {
  const key = newApiKey()

  it('are recognisable, unlike each other, and tell little by their hint', () => {
    expect(key).toMatch(/^dbk_[0-9a-f]{72}$/)
    expect(newApiKey()).not.toBe(key)
    expect(hintOf(key)).toBe(key.slice(0, 10))
    expect([readsLikeApiKey(key), isApiKey(key)]).toEqual([true, true])
  })

  it('with one wrong character anywhere are none', () => {
    for (let at = 4; at < key.length; at += 1) {
      const wrong = key[at] === '0' ? '1' : '0'
      expect(isApiKey(key.slice(0, at) + wrong + key.slice(at + 1))).toBe(false)
    }
  })

  it.each([
    ['cut', key.slice(0, -1)],
    ['too long', `${key}0`],
    ['in capitals', key.toUpperCase()],
    ['with a blank', `${key} `],
    ['empty', 'dbk_'],
  ])('%s are none', (_what, text) => expect(isApiKey(text)).toBe(false))

  it('are no access tokens', () => expect(readsLikeApiKey('eyJhbGciOiJIUzI1NiJ9.e30.x')).toBe(false))
})
