import { createHash, createPublicKey, createSecretKey, sign, verify } from 'node:crypto'
import { expect, it } from 'vitest'
import { rsaKey } from '../../src/adapters/id-tokens.ts'

const keyOf = (byte: number) => rsaKey(createSecretKey(Buffer.alloc(32, byte)))

it('an RSA key follows from its secret, on every machine and in every version', async () => {
  const [key, again, other] = await Promise.all([keyOf(1), keyOf(1), keyOf(2)])
  const { n, e, ...more } = createPublicKey(key).export({ format: 'jwk' })
  expect([e, more, Buffer.from(n!, 'base64url').length]).toEqual(['AQAB', { kty: 'RSA' }, 256])
  expect(createHash('sha256').update(n!).digest('hex')).toBe(
    'c00021d7d0139564182581563abfe155fe2c2c38afb68a3a5532abded2b37366',
  )
  expect(again.equals(key)).toBe(true)
  expect(other.equals(key)).toBe(false)
  const text = Buffer.from('what is signed')
  const signature = sign('RSA-SHA256', text, key)
  expect(verify('RSA-SHA256', text, createPublicKey(key), signature)).toBe(true)
  expect(verify('RSA-SHA256', text, createPublicKey(other), signature)).toBe(false)
})
