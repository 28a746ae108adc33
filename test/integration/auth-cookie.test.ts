import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'

const origin = 'https://app.example.com'
let api: Api
beforeAll(async () => {
  api = await startApi({ AUTH_APP_URL: origin })
})

const person = { firstName: 'Ada', lastName: 'Lovelace', password: 'correct horse' }
const signIn = (headers: Record<string, string> = {}) =>
  api.anonymous('POST', '/auth/login', { ...administrator, authMode: 'cookie' }, headers)
const cookieOf = (setCookie: unknown) => String(setCookie).split(';')[0]!

async function session(): Promise<string> {
  return cookieOf((await signIn()).headers['set-cookie'])
}

describe('cookie mode', () => {
  it('hands the token over in the cookie only (A-26)', async () => {
    const login = await signIn({ origin })
    expect(login).toMatchObject({
      status: 200,
      body: { message: 'Authentication successful', authMode: 'cookie', user: { email: administrator.email } },
    })
    expect(login.body).not.toHaveProperty('token')
    expect(login.headers['set-cookie']).toMatch(
      /^token=[\w-]+\.[\w-]+\.[\w-]+; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax$/,
    )
    expect(login.text).not.toContain(cookieOf(login.headers['set-cookie']).slice('token='.length))
    const register = await api.anonymous('POST', '/auth/register', {
      ...person,
      email: 'cookie@example.com',
      authMode: 'cookie',
    })
    expect(register.body).toMatchObject({ message: 'User registered successfully', authMode: 'cookie' })
    expect(register.body).not.toHaveProperty('token')
    expect(register.headers['set-cookie']).toMatch(/^token=/)
  })

  it('is taken where no bearer token is sent', async () => {
    const cookie = await session()
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie: `a=b; ${cookie}` })).status).toBe(200)
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie: `__Host-${cookie}` })).status).toBe(200)
    expect(
      (await api.anonymous('GET', '/auth/check', undefined, { cookie, authorization: 'Bearer garbage' })).status,
    ).toBe(401)
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie, authorization: 'Basic eDp5' })).status).toBe(
      200,
    )
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie: 'token=garbage' })).status).toBe(401)
  })

  it('is renewed by refresh', async () => {
    const cookie = await session()
    const answer = await api.anonymous('POST', '/auth/refresh', { authMode: 'cookie' }, { cookie, origin })
    expect(answer.body).toEqual({ message: 'Authentication successful', authMode: 'cookie', expiresIn: 604_800 })
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie })).status).toBe(401)
    expect(
      (await api.anonymous('GET', '/auth/check', undefined, { cookie: cookieOf(answer.headers['set-cookie']) })).status,
    ).toBe(200)
  })

  it('is cleared by logout, and worth nothing after it (A-14)', async () => {
    const cookie = await session()
    const answer = await api.anonymous('POST', '/auth/logout', undefined, { cookie, origin })
    expect(answer).toMatchObject({
      status: 200,
      headers: { 'set-cookie': 'token=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax' },
    })
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie })).status).toBe(401)
  })

  it('has its safest form in production', async () => {
    const production = { NODE_ENV: 'production', ADMIN_PASSWORD: 'a password that nobody knows well' }
    const app = await configured(api.database, production)
    const response = await app.inject({
      method: 'POST',
      url: '/auth/login',
      payload: { ...administrator, authMode: 'cookie' },
    })
    expect(response.headers['set-cookie']).toMatch(
      /^__Host-token=[^;]+; Path=\/; Max-Age=604800; HttpOnly; Secure; SameSite=Strict$/,
    )
  })
})

describe('a write with the cookie (A-27)', () => {
  const refused = { status: 403, body: { message: 'Cross-site request refused' } }
  const refresh = (cookie: string, headers: Record<string, string>, body: unknown = {}) =>
    api.anonymous('POST', '/auth/refresh', body, { cookie, ...headers })

  it.each([
    ['no origin', {}],
    ['another origin', { origin: 'https://evil.test' }],
    ['a look-alike origin', { origin: 'https://app.example.com.evil.test' }],
    ['the opaque origin', { origin: 'null' }],
    ['another site’s page by Fetch Metadata', { 'sec-fetch-site': 'cross-site' }],
    ['a sibling site’s page', { 'sec-fetch-site': 'same-site', origin: 'https://sibling.example.com' }],
    ['a form', { origin, 'content-type': 'application/x-www-form-urlencoded' }],
    ['text', { origin, 'content-type': 'text/plain' }],
    ['multipart', { origin, 'content-type': 'multipart/form-data; boundary=x' }],
    ['a type that only begins like JSON', { origin, 'content-type': 'application/jsonp' }],
  ])('from %s is refused', async (_what, headers) => {
    const cookie = await session()
    const body = 'content-type' in headers ? 'a=b' : {}
    expect(await refresh(cookie, headers, body)).toMatchObject(refused)
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie })).status).toBe(200)
  })

  it.each([
    ['a trusted origin', { origin }],
    ['its own origin', { origin: 'http://localhost:80', host: 'localhost:80' }],
    ['its own page by Fetch Metadata', { 'sec-fetch-site': 'same-origin' }],
  ])('from %s is done', async (_what, headers) => {
    expect((await refresh(await session(), headers)).status).toBe(200)
  })

  it('is refused on every route', async () => {
    const cookie = await session()
    for (const [method, path, style] of [
      ['POST', '/items/svc_Role', 'general'],
      ['PATCH', '/items/svc_Role/x', 'general'],
      ['DELETE', '/items/svc_Role/x', 'general'],
      ['POST', '/permissions', 'general'],
      ['POST', '/auth/logout', 'auth'],
    ] as const) {
      const { status, body } = await api.anonymous(method, path, undefined, { cookie, origin: 'https://evil.test' })
      expect(status, path).toBe(403)
      expect(style === 'auth' ? body.message : body.error.message).toBe('Cross-site request refused')
    }
  })

  it('does not concern bearer tokens', async () => {
    const { token } = await api.user()
    expect((await api.as(token)('POST', '/auth/refresh', {}, { origin: 'https://evil.test' })).status).toBe(200)
  })

  it('of nobody is nobody’s: a stale cookie is the public role', async () => {
    expect((await api.anonymous('POST', '/auth/login', administrator, { cookie: 'token=garbage' })).status).toBe(200)
  })

  it('signs nobody in from another site', async () => {
    expect(await signIn({ origin: 'https://evil.test' })).toMatchObject(refused)
    const response = await api.app.inject({
      method: 'POST',
      url: '/auth/login',
      headers: { 'content-type': 'text/plain' },
      payload: JSON.stringify({ ...administrator, authMode: 'cookie' }),
    })
    expect(response.statusCode).toBe(415)
    expect(response.headers['set-cookie']).toBeUndefined()
  })
})
