import { createHmac, generateKeyPairSync } from 'node:crypto'
import jwt from 'jsonwebtoken'
import { describe, expect, it } from 'vitest'
import {
  deriveKey,
  hashSecret,
  newSecret,
  signToken,
  type TokenClaims,
  verifyToken,
} from '../../src/adapters/tokens.ts'
import { parseConfig } from '../../src/config/config.ts'

const key = 'a key of thirty-two characters or more'
const config = parseConfig({ NODE_ENV: 'test', SECRET_KEY: key, PROJECT_NAME: 'Test', ACCESS_TOKEN_EXPIRES_IN: '600' })
const now = new Date('2026-03-01T12:00:00.400Z')
const later = (seconds: number) => new Date(now.getTime() + seconds * 1000)
const claims = { userId: 'u1', roleId: 'r1', tenantId: undefined, sessionToken: newSecret() }
const signed: TokenClaims = { ...claims, userRoleId: undefined }
const issuedAt = Math.floor(now.getTime() / 1000)
/** The claims as they come back: with the token's end. */
const verified = { ...claims, expiresAt: new Date((issuedAt + 600) * 1000) }
const payload = {
  id: 'u1',
  role_Id: 'r1',
  tenant_Id: null,
  userRole_Id: null,
  sessionToken: claims.sessionToken,
  iss: 'Test',
  exp: issuedAt + 600,
}
const without = (member: keyof typeof payload) =>
  Object.fromEntries(Object.entries(payload).filter(([name]) => name !== member))

describe('access tokens', () => {
  it('carry the documented claims', () => {
    const token = signToken(config, { ...claims, tenantId: 't1', userRoleId: 'ur1' }, now)
    expect(jwt.decode(token, { complete: true })).toMatchObject({ header: { alg: 'HS256', typ: 'JWT' } })
    expect(jwt.decode(token)).toEqual({
      ...payload,
      tenant_Id: 't1',
      userRole_Id: 'ur1',
      iat: issuedAt,
      exp: issuedAt + 600,
    })
    expect(verifyToken(config, token, now)).toEqual({ ...verified, tenantId: 't1' })
  })

  it('end after ACCESS_TOKEN_EXPIRES_IN seconds', () => {
    const token = signToken(config, signed, now)
    expect(verifyToken(config, token, later(599))).toEqual(verified)
    expect(verifyToken(config, token, later(601))).toBeUndefined()
  })

  it('stay valid while their key is SECRET_KEY_PREVIOUS, and not after', () => {
    const old = signToken(config, signed, now)
    const rotated = { NODE_ENV: 'test', PROJECT_NAME: 'Test', SECRET_KEY: 'another key of the same length or so' }
    const during = parseConfig({ ...rotated, SECRET_KEY_PREVIOUS: key })
    expect(verifyToken(during, old, now)).toEqual(verified)
    expect(verifyToken(config, signToken(during, signed, now), now)).toBeUndefined()
    expect(verifyToken(parseConfig(rotated), old, now)).toBeUndefined()
  })

  it('of another issuer open nothing', () => {
    expect(verifyToken(config, jwt.sign({ ...payload, iss: 'Other' }, key), now)).toBeUndefined()
    expect(verifyToken(config, jwt.sign(without('iss'), key), now)).toBeUndefined()
  })

  it('need SECRET_KEY', () => {
    const unset = parseConfig({ NODE_ENV: 'test' }, { allowMissingSecret: true })
    expect(() => signToken(unset, signed, now)).toThrow('SECRET_KEY is missing')
    expect(() => deriveKey(unset, 'mail')).toThrow('SECRET_KEY is missing')
  })

  const signedText = (text: string) => {
    const signing = `${encoded({ alg: 'HS256', typ: 'JWT' })}.${Buffer.from(text).toString('base64url')}`
    return `${signing}.${createHmac('sha256', key).update(signing).digest('base64url')}`
  }
  const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const unsigned = (alg: string) => `${encoded({ alg, typ: 'JWT' })}.${encoded(payload)}.`
  const good = signToken(config, signed, now)
  const [header, body, signature] = good.split('.') as [string, string, string]
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const withHeader = (more: object, secret = 'attacker') =>
    jwt.sign(payload, secret, { header: { alg: 'HS256', ...more } })
  const signedByHand = (head: object, secret: string) => {
    const text = `${encoded(head)}.${encoded(payload)}`
    return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`
  }

  it('made by hand with the right key are good, so what follows fails for the reason it names', () => {
    expect(verifyToken(config, jwt.sign(payload, key), now)).toEqual(verified)
    expect(verifyToken(config, signedByHand({ alg: 'HS256' }, key), now)).toEqual(verified)
    expect(verifyToken(config, withHeader({ kid: 'x', jku: 'http://127.0.0.1:1/' }, key), now)).toEqual(verified)
  })

  it.each<readonly [string, string]>([
    ['nothing', ''],
    ['garbage', 'garbage'],
    ['three dots', '...'],
    ['a header that is no JSON', `bm90IGpzb24.${body}.${signature}`],
    ['a header that is null', `${Buffer.from('null').toString('base64url')}.${body}.${signature}`],
    ['a payload that is no JSON', signedByHand({ alg: 'HS256' }, 'x').replace(/\.[^.]+\./, '.bm90IGpzb24.')],
    ['alg none', unsigned('none')],
    ['alg None', unsigned('None')],
    ['alg nOnE', unsigned('nOnE')],
    ['alg none with the good signature', `${unsigned('none')}${signature}`],
    ['no signature', `${header}.${body}.`],
    ['no signature and no dot', `${header}.${body}`],
    ['a changed payload', `${header}.${encoded({ ...payload, id: 'u2' })}.${signature}`],
    ['an empty key', signedByHand({ alg: 'HS256' }, '')],
    ['the key "secret"', withHeader({}, 'secret')],
    ['the issuer as key', withHeader({}, 'Test')],
    ['the key "undefined"', withHeader({}, 'undefined')],
    ['HS384 with the right key', jwt.sign(payload, key, { algorithm: 'HS384' })],
    ['HS512 with the right key', jwt.sign(payload, key, { algorithm: 'HS512' })],
    ['RS256 with another key', jwt.sign(payload, privateKey, { algorithm: 'RS256' })],
    ['HS256 with a public key in the header', withHeader({ jwk: publicKey.export({ format: 'jwk' }) })],
    ['kid naming a file', withHeader({ kid: '../../dev/null' }, '\0')],
    ['kid with SQL', withHeader({ kid: "x' union select 'attacker' --" })],
    ['kid with a URL', withHeader({ kid: 'http://127.0.0.1:1/key' })],
    ['jku', withHeader({ jku: 'http://127.0.0.1:1/jwks' })],
    ['x5u', withHeader({ x5u: 'http://127.0.0.1:1/cert' })],
    ['a derived key', jwt.sign(payload, deriveKey(config, 'mail'))],
    ['a text as payload', jwt.sign('text', key)],
    ...['null', 'true', '5', '[]', '"text"'].map((text) => [`the payload ${text}`, signedText(text)] as const),
    ...[1e20, 1e15, 8.64e12 + 1, 1e300].map((exp) => [`an end at ${exp}`, jwt.sign({ ...payload, exp }, key)] as const),
    ['an end beyond all numbers', signedText(JSON.stringify({ ...payload, exp: 0 }).replace('"exp":0', '"exp":1e999'))],
    ['an end that is a text', signedText(JSON.stringify({ ...payload, exp: String(payload.exp) }))],
    ['no expiry', jwt.sign(without('exp'), key)],
    ['no session', jwt.sign(without('sessionToken'), key)],
    ['a session that is no token', jwt.sign({ ...payload, sessionToken: 'x' }, key)],
    ['claims of other types', jwt.sign({ ...payload, id: { eq: 'u1' }, role_Id: ['r1'] }, key)],
  ])('with %s open nothing', (_what, token) => {
    // Twice, because the first time may leave something in memory.
    expect(verifyToken(config, token, now)).toBeUndefined()
    expect(verifyToken(config, token, now)).toBeUndefined()
  })
})

describe('secrets', () => {
  it('are 64 hex digits, known by their SHA-256', () => {
    expect(newSecret()).toMatch(/^[0-9a-f]{64}$/)
    expect(newSecret()).not.toBe(newSecret())
    expect(hashSecret('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
  })

  it('of different purposes come from different keys', () => {
    const hex = (purpose: string) => deriveKey(config, purpose).export().toString('hex')
    expect(hex('mail')).toBe(hex('mail'))
    expect(new Set([hex('mail'), hex('challenge'), Buffer.from(key).toString('hex')]).size).toBe(3)
  })
})
