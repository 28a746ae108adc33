import { describe, expect, it } from 'vitest'
import { parseConfig } from '../../src/config/config.ts'
import {
  clearedSessionCookie,
  cookieNames,
  isTrustedOrigin,
  sessionCookie,
  tokenOfCookies,
} from '../../src/features/accounts/auth/browser.ts'

const names = cookieNames('an installation')
/** As the cookie is called here. */
const named = (text: string) => text.replaceAll(/(?<!\w)token=/g, `${names.plain}=`)

const configOf = (env: Record<string, string>) =>
  parseConfig({
    NODE_ENV: 'test',
    SECRET_KEY: 'a key of thirty-two characters or more',
    ACCESS_TOKEN_EXPIRES_IN: '600',
    ...env,
  })

describe('the session cookie', () => {
  it.each([
    ['development', {}, 'token=T; Path=/; Max-Age=600; HttpOnly; SameSite=Lax'],
    [
      'production',
      { NODE_ENV: 'production' },
      '__Host-token=T; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Strict',
    ],
    [
      'a secure cookie',
      { AUTH_COOKIE_SECURE: 'true' },
      '__Host-token=T; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax',
    ],
    [
      'a domain',
      { AUTH_COOKIE_SECURE: 'true', AUTH_COOKIE_DOMAIN: 'example.com' },
      'token=T; Path=/; Max-Age=600; Domain=example.com; HttpOnly; Secure; SameSite=Lax',
    ],
    [
      'a path',
      { AUTH_COOKIE_SECURE: 'true', AUTH_COOKIE_PATH: '/api' },
      'token=T; Path=/api; Max-Age=600; HttpOnly; Secure; SameSite=Lax',
    ],
    [
      'SameSite none and scripts allowed',
      { AUTH_COOKIE_SECURE: 'true', AUTH_COOKIE_SAME_SITE: 'none', AUTH_COOKIE_HTTP_ONLY: 'false' },
      '__Host-token=T; Path=/; Max-Age=600; Secure; SameSite=None',
    ],
  ])('with %s', (_what, env, text) => {
    expect(sessionCookie(configOf(env), names, 'T')).toBe(named(text))
  })

  it('is cleared under the same name, path and domain', () => {
    const config = configOf({ AUTH_COOKIE_DOMAIN: 'example.com', AUTH_COOKIE_PATH: '/api' })
    expect(clearedSessionCookie(config, names)).toBe(
      named('token=; Path=/api; Max-Age=0; Domain=example.com; HttpOnly; SameSite=Lax'),
    )
  })

  it.each([
    [undefined, undefined],
    ['', undefined],
    ['token=T', 'T'],
    ['a=b; token=T; c=d', 'T'],
    ['__Host-token=H', 'H'],
    ['token=T; __Host-token=H', 'H'],
    ['xtoken=T', undefined],
    ['token=', undefined],
    ['token', undefined],
    ['other="token=T"', undefined],
  ])('is read from %j as %j', (header, token) => {
    expect(tokenOfCookies(names, header && named(header))).toBe(token)
  })

  it('is called otherwise by each installation, and by other programs', () => {
    const others = cookieNames('another installation')
    expect(names.plain).toMatch(/^token_[0-9a-f]{8}$/)
    expect(others.plain).not.toBe(names.plain)
    for (const name of [others.plain, others.host, 'token', '__Host-token', `${names.plain}x`])
      expect(tokenOfCookies(names, `${name}=T`)).toBeUndefined()
  })
})

describe('isTrustedOrigin', () => {
  const env = { AUTH_APP_URL: 'https://app.example.com/start', AUTH_CORS_ALLOWED_ORIGINS: 'http://localhost:3000' }
  it.each([
    ['https://app.example.com', true, true],
    ['http://localhost:3000', true, true],
    ['http://localhost:4000', true, false],
    ['https://app.example.com:8443', true, false],
    ['http://app.example.com', false, false],
    ['https://app.example.com.evil.test', false, false],
    ['https://evil.test', false, false],
    ['https://app.example.com/', false, false],
    ['https://user@app.example.com', false, false],
    ['null', false, false],
    ['', false, false],
  ])('%j: %s with any port, %s with the exact one', (origin, anyPort, exactPort) => {
    expect(isTrustedOrigin(configOf(env), origin)).toBe(anyPort)
    expect(isTrustedOrigin(configOf({ ...env, AUTH_CORS_ALLOW_ANY_PORT: 'false' }), origin)).toBe(exactPort)
  })
})
