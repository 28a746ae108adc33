import { beforeAll, describe, expect, it } from 'vitest'
import { cookieNames, cookieNamesOf } from '../../src/features/accounts/auth/browser.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

const origin = 'https://app.example.com'
let api: Api
beforeAll(async () => {
  api = await startApi({ AUTH_APP_URL: origin })
})

const person = { firstName: 'Ada', lastName: 'Lovelace', password: 'correct horse' }
const signIn = (headers: Record<string, string> = {}) =>
  api.anonymous('POST', '/auth/login', { ...administrator, authMode: 'cookie' }, headers)
const cookieOf = (setCookie: unknown) => String(setCookie).split(';')[0]!
const check = async (cookie: string, headers: Record<string, string> = {}) =>
  (await api.anonymous('GET', '/auth/check', undefined, { cookie, ...headers })).status
/** What makes a browser drop its cookie. */
const dropped = () => `${cookieNamesOf(api.runtime).plain}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax`

async function session(): Promise<string> {
  return cookieOf((await signIn()).headers['set-cookie'])
}

async function deadCookie(): Promise<string> {
  const cookie = await session()
  expect((await api.anonymous('POST', '/auth/logout', undefined, { cookie, origin })).status).toBe(200)
  return cookie
}

describe('cookie mode', () => {
  it('hands the token over in the cookie only', async () => {
    const login = await signIn({ origin })
    expect(login).toMatchObject({
      status: 200,
      body: { message: 'Authentication successful', authMode: 'cookie', user: { email: administrator.email } },
    })
    expect(login.body).not.toHaveProperty('token')
    expect(login.headers['set-cookie']).toMatch(
      /^token_[0-9a-f]{8}=[\w-]+\.[\w-]+\.[\w-]+; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax$/,
    )
    expect(login.text).not.toContain(cookieOf(login.headers['set-cookie']).split('=')[1])
    const register = await api.anonymous('POST', '/auth/register', {
      ...person,
      email: 'cookie@example.com',
      authMode: 'cookie',
    })
    expect(register.body).toMatchObject({ message: 'User registered successfully', authMode: 'cookie' })
    expect(register.body).not.toHaveProperty('token')
    expect(register.headers['set-cookie']).toMatch(/^token_[0-9a-f]{8}=/)
  })

  it('is taken where no Authorization header is sent', async () => {
    const cookie = await session()
    expect(await check(`a=b; ${cookie}`)).toBe(200)
    expect(await check(`__Host-${cookie}`)).toBe(200)
    expect(await check(cookie, { authorization: 'Bearer garbage' })).toBe(401)
    expect(await check(cookie, { authorization: 'Basic eDp5' })).toBe(401)
    expect(await check(`${cookieNamesOf(api.runtime).plain}=garbage`)).toBe(401)
  })

  it('goes by a name of the installation: cookies of its neighbours are neither read nor dropped', async () => {
    const [, token] = (await session()).split('=') as [string, string]
    const neighbour = cookieNames('another installation')
    for (const name of [neighbour.plain, neighbour.host, 'token', '__Host-token']) {
      const { status, headers } = await api.anonymous('GET', '/auth/check', undefined, { cookie: `${name}=${token}` })
      expect([status, headers['set-cookie']]).toEqual([401, undefined])
    }
    // Every process of the installation calls it so.
    const beside = await configured(api.database, { AUTH_APP_URL: origin, PROJECT_NAME: 'Renamed', PORT: '4444' })
    const payload = { ...administrator, authMode: 'cookie' }
    const login = await beside.inject({ method: 'POST', url: '/auth/login', payload })
    expect(cookieOf(login.headers['set-cookie']).split('=')[0]).toBe(cookieNamesOf(api.runtime).plain)
  })

  it('is renewed by refresh', async () => {
    const cookie = await session()
    const answer = await api.anonymous('POST', '/auth/refresh', { authMode: 'cookie' }, { cookie, origin })
    expect(answer.body).toEqual({ message: 'Authentication successful', authMode: 'cookie', expiresIn: 604_800 })
    expect(await check(cookie)).toBe(401)
    const again = await api.anonymous('POST', '/auth/refresh', { authMode: 'jwt' }, { cookie, origin })
    expect(again).toMatchObject({ status: 200, body: answer.body })
    const foreign = await api.anonymous('POST', '/auth/refresh', {}, { cookie, origin: 'https://evil.test' })
    expect([foreign.status, foreign.body.code]).toEqual([403, 'CROSS_SITE_REQUEST'])
    expect(await check(cookieOf(again.headers['set-cookie']))).toBe(200)
    expect(await check(cookieOf(answer.headers['set-cookie']))).toBe(200)
    const late = await api.anonymous('POST', '/auth/refresh', { authMode: 'cookie' }, { cookie, origin })
    expect([late.status, late.headers['set-cookie']]).toEqual([401, dropped()])
  })

  it('is cleared by logout, and worth nothing after it', async () => {
    const cookie = await session()
    const answer = await api.anonymous('POST', '/auth/logout', undefined, { cookie, origin })
    expect(answer).toMatchObject({ status: 200, headers: { 'set-cookie': dropped() } })
    expect(await check(cookie)).toBe(401)
  })

  it('has its safest form in production', async () => {
    const production = { NODE_ENV: 'production', ADMIN_PASSWORD: 'a password that nobody knows well' }
    const app = await configured(api.database, production)
    const payload = { ...administrator, authMode: 'cookie' }
    const response = await app.inject({ method: 'POST', url: '/auth/login', payload })
    expect(response.headers['set-cookie']).toMatch(
      /^__Host-token_[0-9a-f]{8}=[^;]+; Path=\/; Max-Age=604800; HttpOnly; Secure; SameSite=Strict$/,
    )
  })
})

describe('a caller that came with the cookie', () => {
  const modes = [undefined, 'jwt', 'cookie'] as const

  it.each(modes)('gets no token from refresh, with authMode %s: the next one is the cookie', async (authMode) => {
    const cookie = await session()
    const before = await api.position()
    const answer = await api.anonymous('POST', '/auth/refresh', { authMode }, { cookie, origin })
    expect(answer.body).toEqual({ message: 'Authentication successful', authMode: 'cookie', expiresIn: 604_800 })
    const next = cookieOf(answer.headers['set-cookie'])
    expect(await check(next)).toBe(200)
    expect(await check(cookie)).toBe(401)
    expect((await api.log(before)).map(({ type, action }) => `${type} ${action}`)).toEqual(['auth refresh'])
  })

  it.each(modes)('gets none from login and registration either, with authMode %s', async (authMode) => {
    const cookie = await session()
    const email = `with.cookie.${authMode}@example.com`
    for (const [path, body] of [
      ['/auth/login', administrator],
      ['/auth/register', { ...person, email }],
    ] as const) {
      const answer = await api.anonymous('POST', path, { ...body, authMode }, { cookie, origin })
      expect(answer).toMatchObject({ status: 200, body: { authMode: 'cookie', user: { email: body.email } } })
      const token = cookieOf(answer.headers['set-cookie']).split('=')[1]!
      expect(token).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
      expect(answer.text).not.toContain(token)
      expect(answer.body).not.toHaveProperty('token')
    }
  })

  it('and an Authorization header is who the header says, and gets what that caller gets', async () => {
    const [cookie, { token, id }] = [await session(), await api.user()]
    const answer = await api.as(token)('POST', '/auth/refresh', {}, { cookie })
    expect(answer).toMatchObject({ status: 200, body: { token: expect.any(String), authMode: 'jwt' } })
    expect((await api.as(answer.body.token)('GET', '/auth/check')).body.user.id).toBe(id)
    expect(await check(cookie)).toBe(200)
  })
})

describe('a cookie of a session that has ended', () => {
  it('is dropped wherever it comes, and its caller is the public role', async () => {
    const cookie = await deadCookie()
    for (const [method, path, status] of [
      ['GET', '/', 200],
      ['GET', '/settings', 200],
      ['GET', '/items/svc_Role', 403],
      ['GET', '/auth/me', 401],
      ['GET', '/auth/check', 401],
      ['POST', '/auth/refresh', 401],
    ] as const) {
      const answer = await api.anonymous(method, path, method === 'POST' ? {} : undefined, { cookie })
      expect([path, answer.status, answer.headers['set-cookie']]).toEqual([path, status, dropped()])
    }
  })

  it.each([
    ['GET', {}],
    ['POST', {}],
    ['POST', { origin: 'https://evil.test' }],
  ] as const)('is dropped by logout (%s), which ends nothing', async (method, headers) => {
    const cookie = await deadCookie()
    const before = await api.position()
    const answer = await api.anonymous(method, '/auth/logout', undefined, { cookie, ...headers })
    expect(answer).toMatchObject({ status: 200, headers: { 'set-cookie': dropped() } })
    expect(await api.log(before)).toEqual([])
    expect((await api.anonymous(method, '/auth/logout')).status).toBe(401)
  })

  it('is as good as none for a sign-in, which answers as it was asked to', async () => {
    const cookie = await deadCookie()
    const byToken = await api.anonymous('POST', '/auth/login', administrator, { cookie })
    expect(byToken).toMatchObject({ status: 200, body: { token: expect.any(String), authMode: 'jwt' } })
    expect(byToken.headers['set-cookie']).toBe(dropped())
    const byCookie = await signIn({ cookie, origin })
    expect(byCookie.status).toBe(200)
    // One cookie, and not what dropped the old one.
    expect(await check(cookieOf(byCookie.headers['set-cookie']))).toBe(200)
    expect([byCookie.headers['set-cookie']].flat()).toHaveLength(1)
  })

  it('is dropped under the one name that it came by, in production', async () => {
    const app = await configured(api.database, { NODE_ENV: 'production', ADMIN_PASSWORD: 'a password of nobody' })
    const { host } = cookieNamesOf(api.runtime)
    const { headers } = await app.inject({ url: '/', headers: { cookie: `${host}=x` } })
    expect(headers['set-cookie']).toBe(`${host}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict`)
  })

  it('is dropped under both names that it may have come by', async () => {
    const { plain, host } = cookieNamesOf(api.runtime)
    const answer = await api.anonymous('GET', '/', undefined, { cookie: `${host}=x; ${plain}=y` })
    expect(answer.headers['set-cookie']).toEqual([
      `${host}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax`,
      dropped(),
    ])
  })
})

/** What browsers and other clients say of where a request comes from; whether a write and a GET that changes may. */
const places: readonly (readonly [string, Record<string, string>, { write: boolean; visit: boolean }])[] = [
  ['nothing', {}, { write: false, visit: true }],
  ['an address that was typed', { 'sec-fetch-site': 'none' }, { write: false, visit: true }],
  ['its own page', { 'sec-fetch-site': 'same-origin' }, { write: true, visit: true }],
  ['its own origin', { origin: 'http://localhost:80', host: 'localhost:80' }, { write: true, visit: true }],
  [
    'its own page behind a proxy',
    { 'sec-fetch-site': 'same-origin', origin: 'https://x.test' },
    { write: true, visit: true },
  ],
  ['a sibling site', { 'sec-fetch-site': 'same-site' }, { write: false, visit: false }],
  [
    'a sibling site that is not trusted',
    { 'sec-fetch-site': 'same-site', origin: 'https://sibling.example.com' },
    { write: false, visit: false },
  ],
  ['a trusted sibling site', { 'sec-fetch-site': 'same-site', origin }, { write: true, visit: true }],
  ['another site', { 'sec-fetch-site': 'cross-site' }, { write: false, visit: false }],
  [
    'another site’s page',
    { 'sec-fetch-site': 'cross-site', origin: 'https://evil.test' },
    { write: false, visit: false },
  ],
  ['a trusted page of another site', { 'sec-fetch-site': 'cross-site', origin }, { write: true, visit: true }],
  ['a trusted origin', { origin }, { write: true, visit: true }],
  ['another origin', { origin: 'https://evil.test' }, { write: false, visit: false }],
  ['a look-alike origin', { origin: 'https://app.example.com.evil.test' }, { write: false, visit: false }],
  ['the opaque origin', { origin: 'null' }, { write: false, visit: false }],
  ['another site, of an older browser', { referer: 'https://evil.test/page' }, { write: false, visit: false }],
  ['a trusted page, of an older browser', { referer: `${origin}/page` }, { write: false, visit: true }],
  ['a page without an address', { referer: 'about:blank' }, { write: false, visit: false }],
]

describe('where a request comes from', () => {
  const refused = { status: 403, body: { message: 'Cross-site request refused', code: 'CROSS_SITE_REQUEST' } }

  it.each(places)('%s: a write with the cookie', async (_place, headers, { write }) => {
    const cookie = await session()
    const before = await api.position()
    const answer = await api.anonymous('POST', '/auth/refresh', {}, { cookie, ...headers })
    expect(answer).toMatchObject(write ? { status: 200 } : refused)
    expect(await check(cookie)).toBe(write ? 401 : 200)
    expect((await api.log(before)).map(({ action }) => action)).toEqual(write ? ['refresh'] : [])
  })

  it.each(places)('%s: logout by GET with the cookie', async (_place, headers, { visit }) => {
    const cookie = await session()
    const before = await api.position()
    const answer = await api.anonymous('GET', '/auth/logout', undefined, { cookie, ...headers })
    expect(answer).toMatchObject(visit ? { status: 200 } : refused)
    expect(await check(cookie)).toBe(visit ? 401 : 200)
    expect((await api.log(before)).map(({ action }) => action)).toEqual(visit ? ['logout'] : [])
  })

  it.each(places)(
    '%s: nothing is refused to a bearer token or to a caller without credentials',
    async (_place, headers) => {
      const { token } = await api.user()
      expect((await api.as(token)('GET', '/auth/check', undefined, headers)).status).toBe(200)
      expect((await api.as(token)('POST', '/auth/refresh', {}, headers)).status).toBe(200)
      expect((await api.anonymous('POST', '/auth/login', administrator, headers)).status).toBe(200)
    },
  )

  it('is asked on every route', async () => {
    const cookie = await session()
    for (const [method, path, style] of [
      ['POST', '/items/svc_Role', 'general'],
      ['PATCH', '/items/svc_Role/x', 'general'],
      ['PUT', '/items/svc_Role', 'general'],
      ['DELETE', '/items/svc_Role/x', 'general'],
      ['POST', '/permissions', 'general'],
      ['POST', '/auth/logout', 'auth'],
      ['DELETE', '/auth/sessions/x', 'auth'],
    ] as const) {
      const { status, body } = await api.anonymous(method, path, undefined, { cookie, origin: 'https://evil.test' })
      expect(status, path).toBe(403)
      expect((style === 'auth' ? body : body.error).code).toBe('CROSS_SITE_REQUEST')
    }
  })

  it('decides, not what a body looks like: files and CSV come by the cookie too', async () => {
    const cookie = await session()
    const schema = {
      collectionName: 'color',
      schema: {
        name: 'color',
        fields: {
          id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
          name: { type: 'String' },
        },
      },
    }
    expect((await api.admin('POST', '/schemas', schema)).status).toBe(201)
    const file = { name: 'csvFile', filename: 'colors.csv', type: 'text/csv', content: 'name\nred\nblue' }
    const from = (headers: Record<string, string>) =>
      upload(api, undefined, '/items/color/import-csv', [file], { cookie, ...headers })
    for (const [, headers, { write }] of places) if (!write) expect((await from(headers)).status).toBe(403)
    expect((await api.sql('select count(*)::int as n from color'))[0].n).toBe(0)
    expect((await from({ 'sec-fetch-site': 'same-origin' })).status).toBeLessThan(300)
    expect((await from({ origin })).status).toBeLessThan(300)
    expect((await api.sql('select name from color order by id')).map(({ name }) => name)).toEqual([
      'red',
      'blue',
      'red',
      'blue',
    ])
  })

  it('does not open what a route takes no such body for', async () => {
    const cookie = await session()
    for (const type of [
      'application/x-www-form-urlencoded',
      'text/plain',
      'application/jsonp',
      'multipart/form-data',
    ]) {
      const headers = { cookie, origin, 'content-type': type }
      expect((await api.anonymous('POST', '/auth/refresh', 'a=b', headers)).status).toBe(415)
      expect((await api.anonymous('POST', '/auth/refresh', 'a=b', { ...headers, origin: 'null' })).status).toBe(403)
    }
    expect(await check(cookie)).toBe(200)
  })

  it('refuses to sign in from another site', async () => {
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

  it('signs a caller with a cookie in by no link of another site, also where it asks for a token', async () => {
    const cookie = await session()
    const answer = await api.anonymous('GET', '/auth/magiclink/x', undefined, {
      cookie,
      'sec-fetch-site': 'cross-site',
    })
    expect(answer).toMatchObject(refused)
  })
})

describe('Cache-Control', () => {
  it('lets no shared cache keep an answer, for any caller and any outcome', async () => {
    const { call, roleId } = await api.user()
    const role = `/items/svc_Role/${roleId}`
    const kept = await api.admin('GET', role)
    const tag = String(kept.headers.etag)
    for (const [answer, status] of [
      [kept, 200],
      [await api.admin('GET', role, undefined, { 'if-none-match': tag }), 304],
      [await api.admin('GET', '/items/svc_Role'), 200],
      [await api.admin('GET', '/schemas'), 200],
      [await api.admin('GET', '/permissions'), 200],
      [await api.admin('GET', '/reports/svc_Role'), undefined],
      [await call('GET', role), 403],
      [await api.anonymous('GET', '/settings'), 200],
      [await api.anonymous('GET', '/'), 200],
      [await api.anonymous('GET', '/nowhere'), 404],
      [await api.as('garbage')('GET', '/'), 401],
    ] as const) {
      if (status !== undefined) expect(answer.status).toBe(status)
      expect(answer.headers['cache-control']).toBe('private, no-cache')
    }
    expect((await api.admin('GET', '/auth/me')).headers['cache-control']).toBe('no-store')
    expect((await api.anonymous('GET', '/auth/me')).headers['cache-control']).toBe('no-store')
  })
})
