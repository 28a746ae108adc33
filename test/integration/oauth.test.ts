import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer as createSecureServer } from 'node:https'
import { type AddressInfo, createServer } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { auth, type OAuthClientProvider } from '@modelcontextprotocol/client'
import { createLocalJWKSet, createRemoteJWKSet, decodeJwt, jwtVerify } from 'jose'
import * as openid from 'openid-client'
import type { Browser } from 'playwright-core'
import { io } from 'socket.io-client'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { issuerOf } from '../../src/config/issuer.ts'
import { cookieNamesOf } from '../../src/features/accounts/auth/browser.ts'
import { findClient } from '../../src/features/accounts/oauth/clients.ts'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { createAccount, password, plant, sessionOf } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { describeWithBrowser, startBrowser } from '../support/browser.ts'
import { chain, node } from '../support/flows.ts'
import { type OpenId, startOpenId, visit } from '../support/openid.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { storeFile } from '../support/stored-files.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { appCode } from '../support/totp.ts'
import { longestWaitMs, waitFor } from '../support/wait.ts'

let api: Api
let base: string
let elsewhere: OpenId
const elsewhereClient = { clientId: 'daybook', clientSecret: 'a secret of the client, for tests' }

beforeAll(async () => {
  const port = await freePort()
  base = `http://127.0.0.1:${port}`
  elsewhere = await startOpenId({ ...elsewhereClient, redirectUris: [`${base}/auth/callback/google`] })
  api = await startApi({
    BASE_URL: base,
    MCP_ENABLED: 'true',
    SOCKET_ENABLED: 'true',
    AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,GOOGLE',
    GOOGLE_CLIENT_ID: elsewhereClient.clientId,
    GOOGLE_CLIENT_SECRET: elsewhereClient.clientSecret,
    GOOGLE_ISSUER: elsewhere.issuer,
    AUTH_RATE_LIMIT_DISABLED: 'true',
    RATE_LIMIT_DISABLED: 'true',
    SSRF_ALLOW_PRIVATE_URL_FETCH: 'true',
  })
  await api.app.listen({ host: '127.0.0.1', port })
  const schema = { fields: { text: { type: 'String' } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'note', schema })).status).toBe(201)
})

/** Free just now. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  const { port } = server.address() as AddressInfo
  await new Promise((closed) => server.close(closed))
  return port
}

/* A client, written against the RFCs. */

const redirectUri = 'https://app.example.com/callback'

const pkce = () => {
  const verifier = randomBytes(32).toString('base64url')
  return { verifier, challenge: createHash('sha256').update(verifier).digest('base64url') }
}

let registrations = 0
const register = (metadata: object = {}, headers: Record<string, string> = {}): Promise<Answer> =>
  api.anonymous(
    'POST',
    '/oauth/register',
    { redirect_uris: [redirectUri], client_name: `App ${++registrations}`, ...metadata },
    headers,
  )
/** The id of a new program, which has come from a network of its own. */
async function registered(metadata: object = {}): Promise<string> {
  const { body } = await register({ grant_types: ['authorization_code', 'refresh_token'], ...metadata })
  await api.sql('update "svc_OAuthClient" set "registeredBy" = id where id = $1', [body.client_id])
  return body.client_id
}

const queryOf = (clientId: string, more: Record<string, string> = {}): string =>
  String(
    new URLSearchParams({
      ...{ response_type: 'code', client_id: clientId, redirect_uri: redirectUri, state: 'of the client' },
      ...{ code_challenge: pkce().challenge, code_challenge_method: 'S256', scope: 'read' },
      ...more,
    }),
  )

const form = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}): Promise<Answer> =>
  api.anonymous('POST', path, String(new URLSearchParams(fields)), {
    'content-type': 'application/x-www-form-urlencoded',
    ...headers,
  })
const token = (fields: Record<string, string>) => form('/oauth/token', fields)

/* A browser, which knows what a page is. */

const ofPage = { 'sec-fetch-site': 'same-origin' }
const cookieOf = (accessToken: string) => `${cookieNamesOf(api.runtime).plain}=${accessToken}`
const look = (query: string, cookie = '', headers: Record<string, string> = {}): Promise<Answer> =>
  api.anonymous('GET', `/oauth/authorize?${query}`, undefined, { ...ofPage, ...(cookie && { cookie }), ...headers })
const unescaped = (text = '') => text.replaceAll('&amp;', '&').replaceAll('&#39;', "'").replaceAll('&quot;', '"')
const ticketIn = ({ text }: Answer) => /name="ticket" value="([^"]+)"/.exec(text)?.[1] ?? ''
const decide = (
  query: string,
  page: Answer,
  cookie: string,
  more: Record<string, string> = {},
  headers: Record<string, string> = {},
) =>
  form(
    '/oauth/consent',
    { request: query, ticket: ticketIn(page), decision: 'allow', ...more },
    { ...ofPage, cookie, ...headers },
  )
/** The link of a page that says what is wrong. */
const goesBackTo = ({ text }: Answer): string => unescaped(/href="([^"]+)">Go back</.exec(text)?.[1])
/** Where a page sends the browser. */
const leavesFor = ({ text }: Answer): URL => new URL(unescaped(/url=([^"]+)"/.exec(text)?.[1]))

type Granted = { clientId: string; code: string; verifier: string; cookie: string; callback: URL }

/** The way through sign-in and consent. */
async function granted(
  accessToken: string,
  more: Record<string, string> = {},
  metadata: object = {},
): Promise<Granted> {
  const clientId = more.client_id ?? (await registered(metadata))
  const { verifier, challenge } = pkce()
  const query = queryOf(clientId, { code_challenge: challenge, ...more })
  const cookie = cookieOf(accessToken)
  const page = await look(query, cookie)
  expect(page).toMatchObject({ status: 200, text: expect.stringContaining('Allow access?') })
  const callback = leavesFor(await decide(query, page, cookie))
  return { clientId, verifier, cookie, callback, code: callback.searchParams.get('code')! }
}

const redeem = ({ clientId, code, verifier }: Granted, more: Record<string, string> = {}) =>
  token({
    grant_type: 'authorization_code',
    client_id: clientId,
    code,
    code_verifier: verifier,
    redirect_uri: redirectUri,
    ...more,
  })
const refresh = (clientId: string, refreshToken: string, more: Record<string, string> = {}) =>
  token({ grant_type: 'refresh_token', client_id: clientId, refresh_token: refreshToken, ...more })

/** A user's tokens for a program with these scopes. */
async function tokensOf(accessToken: string, more: Record<string, string> = {}) {
  const way = await granted(accessToken, more)
  const { status, body } = await redeem(way)
  expect(status).toBe(200)
  return { ...way, access: body.access_token as string, refresh: body.refresh_token as string, body }
}

const readNotes = [
  { collection: 'note', action: 'read', fields: '*' },
  { collection: 'note', action: 'create', fields: '*' },
]
const statusOf = async (accessToken: string, path = '/items/note') => (await api.as(accessToken)('GET', path)).status

describe('metadata', () => {
  it('name the issuer and the resources by the configuration, whatever a request says of the host', async () => {
    const evil = { host: 'evil.test', 'x-forwarded-host': 'evil.test', 'x-forwarded-proto': 'https' }
    for (const name of ['oauth-authorization-server', 'openid-configuration']) {
      const { body, headers } = await api.anonymous('GET', `/.well-known/${name}`, undefined, evil)
      expect(body).toMatchObject({
        issuer: base,
        authorization_endpoint: `${base}/oauth/authorize`,
        code_challenge_methods_supported: ['S256'],
        authorization_response_iss_parameter_supported: true,
        client_id_metadata_document_supported: true,
      })
      expect(headers['cache-control']).toBe('public, max-age=300')
    }
    for (const [path, resource] of [
      ['', base],
      ['/mcp', `${base}/mcp`],
    ])
      expect(
        (await api.anonymous('GET', `/.well-known/oauth-protected-resource${path}`, undefined, evil)).body,
      ).toMatchObject({
        resource,
        authorization_servers: [base],
        scopes_supported: ['read', 'write'],
      })
    expect((await api.anonymous('GET', '/.well-known/oauth-protected-resource/items')).status).toBe(404)
    expect((await api.anonymous('GET', '/.well-known/oauth-authorization-server/tenant')).status).toBe(404)
  })

  it('are nowhere where no address is safe for a token', async () => {
    const of = (env: Record<string, string>) => issuerOf(testConfig(api.database.url, env))?.issuer
    expect(of({ PORT: '8055' })).toBe('http://127.0.0.1:8055')
    expect(of({ HOST: '0.0.0.0' })).toBeUndefined()
    expect(of({ OAUTH_SERVER_ENABLED: 'false' })).toBeUndefined()
    expect(of({ BASE_URL: 'https://api.example.com/base/' })).toBe('https://api.example.com/base')
    const production = {
      NODE_ENV: 'production',
      PASSWORD_HASH_COST: '10',
      SECRET_KEY: randomBytes(32).toString('base64'),
      ADMIN_PASSWORD: 'Xk29-quiet-lantern',
    }
    expect(of(production)).toBeUndefined()
    expect(of({ ...production, BASE_URL: 'http://api.example.com' })).toBeUndefined()
    expect(of({ ...production, BASE_URL: 'https://api.example.com' })).toBe('https://api.example.com')
    const off = await startApi({ OAUTH_SERVER_ENABLED: 'false' }, api.database)
    for (const path of [
      '/.well-known/oauth-authorization-server',
      '/.well-known/oauth-protected-resource',
      '/oauth/authorize',
      '/oauth/jwks',
    ])
      expect((await off.anonymous('GET', path)).status).toBe(404)
    const { access } = await tokensOf((await api.user(readNotes)).token)
    expect(await off.as(access)('GET', '/items/note')).toMatchObject({
      status: 401,
      body: { error: { code: 'WRONG_AUDIENCE' } },
    })
  })
})

describe('a program that a user signs in to', () => {
  it('registers, gets a code by the pages, tokens for it, and gives them back', async () => {
    const user = await createAccount(api)
    const before = await api.position()
    const registration = await register({
      client_name: 'Reader <b>',
      grant_types: ['authorization_code', 'refresh_token'],
    })
    expect(registration).toMatchObject({
      status: 201,
      body: { token_endpoint_auth_method: 'none', redirect_uris: [redirectUri] },
    })
    const clientId = registration.body.client_id
    const { verifier, challenge } = pkce()
    const query = queryOf(clientId, {
      code_challenge: challenge,
      scope: 'openid profile email read nonsense',
      nonce: 'once',
    })

    const first = await look(query)
    expect(first.text).toContain('Reader &lt;b&gt;')
    const wrong = await form('/oauth/sign-in', { request: query, email: user.email, password: 'not it' }, ofPage)
    expect(wrong).toMatchObject({ status: 400, text: expect.stringContaining('Incorrect password.') })
    const signedIn = await form('/oauth/sign-in', { request: query, email: user.email, password }, ofPage)
    expect(signedIn).toMatchObject({ status: 303, headers: { location: `authorize?${query}` } })
    const cookie = String(signedIn.headers['set-cookie']).split(';')[0]!
    const page = await look(query, cookie)
    expect(page.text).toContain('calls itself <strong>Reader &lt;b&gt;</strong>')
    expect(page.text).toContain('app.example.com')
    expect(page.text).toContain(user.email)
    expect([...page.text.matchAll(/<li>([^<]+)/g)].map(([, said]) => said)).toEqual([
      'Read everything that you can read',
      'Know who you are',
      'See your name',
      'See your e-mail address',
    ])
    const answer = leavesFor(await decide(query, page, cookie))
    expect(answer.href).toContain(`${redirectUri}?`)
    expect(Object.fromEntries(answer.searchParams)).toEqual({
      code: expect.any(String),
      state: 'of the client',
      iss: base,
    })

    const way = { clientId, verifier, cookie, callback: answer, code: answer.searchParams.get('code')! }
    const { status, body, headers } = await redeem(way)
    expect(status).toBe(200)
    expect(headers['cache-control']).toBe('no-store')
    expect(body).toMatchObject({ token_type: 'Bearer', expires_in: 900, scope: 'read openid profile email' })
    expect(decodeJwt(body.access_token)).toMatchObject({ aud: [base, `${base}/mcp`], client_id: clientId })
    const keys = createLocalJWKSet((await api.anonymous('GET', '/oauth/jwks')).body)
    const { payload } = await jwtVerify(body.id_token, keys, { issuer: base, audience: clientId })
    expect(payload).toMatchObject({
      sub: user.id,
      nonce: 'once',
      email: user.email,
      email_verified: true,
      name: 'Ada Lovelace',
    })
    expect(payload.auth_time).toEqual(expect.any(Number))
    const info = {
      sub: user.id,
      name: 'Ada Lovelace',
      given_name: 'Ada',
      family_name: 'Lovelace',
      email: user.email,
      email_verified: true,
    }
    expect(await api.as(body.access_token)('GET', '/oauth/userinfo')).toMatchObject({ status: 200, body: info })
    const second = await refresh(clientId, body.refresh_token)
    expect(second).toMatchObject({ status: 200, body: { scope: body.scope } })
    expect(await form('/oauth/revoke', { token: second.body.refresh_token, client_id: clientId })).toMatchObject({
      status: 200,
    })
    for (const ended of [body.access_token, second.body.access_token])
      expect(await api.as(ended)('GET', '/auth/check')).toMatchObject({ status: 401, body: { code: 'SESSION_ENDED' } })
    expect(await refresh(clientId, second.body.refresh_token)).toMatchObject({
      status: 400,
      body: { error: 'invalid_grant' },
    })
    const facts = (await api.log(before)).filter(({ type, action }) => type === 'oauth' || action.startsWith('login'))
    expect(facts.map(({ action, userId }) => [action, userId])).toEqual([
      ['client_registered', null],
      ['login_failed', null],
      ['login', user.id],
      ...['authorized', 'signed_in', 'refreshed', 'revoked'].map((action) => [action, user.id]),
    ])
    const kept = JSON.stringify(await api.sql('select * from "svc_OAuthCode", "svc_OAuthGrant"'))
    for (const secret of [way.code, body.access_token, body.refresh_token]) expect(kept).not.toContain(secret)
  })

  it('is listed under the sessions of its user, and ends with that session', async () => {
    const user = await createAccount(api)
    const own = await sessionOf(api, user)
    const { access, refresh: next, clientId } = await tokensOf(own, { scope: 'read write' })
    const { sessions } = (await api.as(own)('GET', '/auth/sessions')).body
    const listed = sessions.find(({ client }: any) => client !== null)
    expect(listed).toMatchObject({
      current: false,
      client: { id: clientId, name: expect.stringMatching(/^App/), scopes: ['read', 'write'] },
    })
    expect(sessions.filter(({ client }: any) => client === null)).toHaveLength(1)
    expect(await statusOf(access, '/auth/check')).toBe(200)
    expect((await api.as(own)('DELETE', `/auth/sessions/${listed.id}`)).status).toBe(200)
    expect(await statusOf(access, '/auth/check')).toBe(401)
    expect(await refresh(clientId, next)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect(await api.sql('select 1 from "svc_OAuthGrant" where "clientId" = $1', [clientId])).toEqual([])
  })

  it('loses its access with a suspended user, and gets none for a code that the sign-out has overtaken', async () => {
    const user = await createAccount(api)
    const own = await sessionOf(api, user)
    const { access, refresh: next, clientId } = await tokensOf(own)
    const late = await granted(own)
    expect((await api.as(own)('POST', '/auth/logout')).status).toBe(200)
    expect(await redeem(late)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect(await statusOf(access, '/auth/check')).toBe(200)
    await api.admin('PATCH', `/items/svc_User/${user.id}`, { status: 'suspended' })
    expect(await statusOf(access, '/auth/check')).toBe(401)
    expect(await refresh(clientId, next)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
  })

  it('names itself in the log by what it does', async () => {
    const user = await api.user(readNotes)
    const { access } = await tokensOf(user.token, { scope: 'write' })
    const { body } = await api.as(access)('POST', '/items/note', { text: 'by a program' })
    const [row] = await api.sql(`select agent from "svc_AuditLog" where entity = 'note' and "entityId" = $1`, [
      body.data.id,
    ])
    expect(row.agent).toMatchObject({ name: expect.stringMatching(/^App \d+$/) })
  })
})

describe('a request', () => {
  it('whose program or address is not known is answered to the user alone', async () => {
    const clientId = await registered()
    const refused = [
      queryOf('dbc_unknown'),
      ...[
        'https://evil.test/callback',
        `${redirectUri}/more`,
        `${redirectUri}?a=1`,
        'https://app.example.com@evil.test/callback',
        'javascript:alert(1)',
        'https://APP.example.com/callback',
      ].map((uri) => queryOf(clientId, { redirect_uri: uri })),
      'response_type=code',
      'client_id=%00',
      `${queryOf(clientId)}&x=${'x'.repeat(5000)}`,
    ]
    for (const query of refused) {
      const answer = await look(query)
      expect(answer).toMatchObject({ status: 400, headers: { 'content-type': 'text/html; charset=utf-8' } })
      expect(answer.headers.location).toBeUndefined()
    }
  })

  it('may come from any port of this computer, and from schemes of programs', async () => {
    const uris = ['http://127.0.0.1/callback', 'http://localhost:1/x', 'cursor://anysphere.cursor/callback']
    const clientId = await registered({ redirect_uris: uris })
    for (const [uri, status] of [
      ['http://127.0.0.1:54321/callback', 200],
      ['http://localhost:9/x', 200],
      ['cursor://anysphere.cursor/callback', 200],
      ['http://127.0.0.1:54321/other', 400],
      ['http://localhost:54321/callback', 400],
      ['cursor://evil/callback', 400],
    ] as const)
      expect([uri, (await look(queryOf(clientId, { redirect_uri: uri }))).status]).toEqual([uri, status])
  })

  it.each([
    ['without PKCE', { code_challenge: '' }, 'invalid_request'],
    ['with a plain challenge', { code_challenge_method: 'plain' }, 'invalid_request'],
    ['for a token', { response_type: 'token' }, 'unsupported_response_type'],
    ['for a fragment', { response_mode: 'fragment' }, 'invalid_request'],
    ['for another resource', { resource: 'https://evil.test/' }, 'invalid_target'],
    ['for no known scope', { scope: 'everything' }, 'invalid_scope'],
    ['by an object', { request: 'eyJhbGciOiJub25lIn0.e30.' }, 'request_not_supported'],
    ['with bytes for a nonce', { nonce: '\0' }, 'invalid_request'],
    ['without a page', { prompt: 'none' }, 'login_required'],
  ])('%s is refused to the program', async (_what, more, error) => {
    const answer = await look(queryOf(await registered(), more))
    // No way to lead strangers anywhere by our address.
    expect(answer).toMatchObject({ status: 400, text: expect.stringContaining('app.example.com') })
    expect(answer.headers.location).toBeUndefined()
    const { searchParams } = new URL(goesBackTo(answer))
    expect(Object.fromEntries(searchParams)).toMatchObject({ error, state: 'of the client', iss: base })
    expect(searchParams.has('code')).toBe(false)
  })

  it('with a repeated parameter is refused, and a signed-in user is asked again where the program wants it', async () => {
    const clientId = await registered()
    const twice = await look(`${queryOf(clientId)}&scope=write`)
    expect(new URL(goesBackTo(twice)).searchParams.get('error')).toBe('invalid_request')
    const { cookie } = await tokensOf(await sessionOf(api, await createAccount(api)), { client_id: clientId })
    expect((await look(queryOf(clientId, { prompt: 'login' }), cookie)).text).toContain(
      'autocomplete="current-password"',
    )
    const quiet = await look(queryOf(clientId, { prompt: 'none' }), cookie)
    expect(new URL(String(quiet.headers.location)).searchParams.get('error')).toBe('consent_required')
    expect((await look(queryOf(clientId, { max_age: '3600' }), cookie)).text).toContain('Allow access?')
    await api.sql(`update "svc_Sessions" set "createdAt" = now() - interval '2 hours'`)
    expect((await look(queryOf(clientId, { max_age: '3600' }), cookie)).text).toContain(
      'autocomplete="current-password"',
    )
  })
})

describe('the pages', () => {
  it('cannot be framed, run no script, and post to themselves only', async () => {
    const cookie = cookieOf(await sessionOf(api, await createAccount(api)))
    const query = queryOf(await registered())
    for (const page of [await look(query), await look(query, cookie), await look('')]) {
      expect(page.headers).toMatchObject({
        'content-security-policy':
          "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
        'x-frame-options': 'DENY',
        'x-content-type-options': 'nosniff',
        'cache-control': 'no-store',
      })
      expect(page.text).not.toMatch(/<script|\sstyle=|\son\w+=/)
    }
    for (const name of ['page.css', 'passkey.js'])
      expect((await api.anonymous('GET', `/oauth/${name}`)).status).toBe(200)
  })

  it('take an answer once, from the page that asked, in the session that was asked', async () => {
    const cookie = cookieOf(await sessionOf(api, await createAccount(api)))
    const other = cookieOf(await sessionOf(api, await createAccount(api)))
    const query = queryOf(await registered())
    const page = await look(query, cookie)
    const refusals = [
      [await decide(query, page, cookie, {}, { 'sec-fetch-site': 'cross-site', origin: 'https://evil.test' }), 403],
      [await decide(query, page, cookie, {}, { 'sec-fetch-site': 'same-site', origin: 'null' }), 403],
      [await decide(query, page, other), 400],
      [await decide(query, page, ''), 401],
      [await decide(query, page, cookie, { ticket: 'a guess' }), 400],
      [await decide(queryOf(await registered()), page, cookie), 400],
    ] as const
    expect(refusals.map(([{ status }]) => status)).toEqual(refusals.map(([, status]) => status))
    const denied = leavesFor(await decide(query, page, cookie, { decision: 'deny' }))
    expect(Object.fromEntries(denied.searchParams)).toEqual({
      error: 'access_denied',
      state: 'of the client',
      iss: base,
    })
    expect((await decide(query, page, cookie)).status).toBe(400)
  })

  it('ask once more where another site has led the browser, so that strict cookies come along', async () => {
    const query = queryOf(await registered())
    const { text } = await look(query, '', { 'sec-fetch-site': 'cross-site' })
    expect(unescaped(/url=([^"]+)"/.exec(text)?.[1])).toBe(`authorize?${query}`)
  })

  it('sign in by mailed code, with a second factor, and as another user', async () => {
    const query = queryOf(await registered())
    const user = await createAccount(api)
    const mailed = await form('/oauth/sign-in-mail', { request: query, email: user.email }, ofPage)
    expect(mailed).toMatchObject({ status: 200, text: expect.stringContaining('has been sent a code') })
    expect(await api.jobs('mail')).not.toEqual([])
    const code = await plant(api, 'magic-link', user.email, { form: 'code' })
    const bad = await form('/oauth/sign-in-code', { request: query, email: user.email, code: 'wrong' }, ofPage)
    expect(bad).toMatchObject({ status: 400, text: expect.stringContaining('role="alert"') })
    const byCode = await form('/oauth/sign-in-code', { request: query, email: user.email, code }, ofPage)
    expect(byCode.status).toBe(303)

    const own = api.as(await sessionOf(api, user))
    const { secret } = (await own('POST', '/auth/2fa/enable')).body
    await own('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
    await api.sql('update "svc_TwoFactor" set "lastStep" = null where "user_Id" = $1', [user.id])
    const asked = await form('/oauth/sign-in', { request: query, email: user.email, password }, ofPage)
    expect(asked).toMatchObject({ status: 200, text: expect.stringContaining('Second factor') })
    expect(asked.headers['set-cookie']).toBeUndefined()
    const twoFactorToken = /name="twoFactorToken" value="([^"]+)"/.exec(asked.text)![1]!
    const step = (value: string) =>
      form('/oauth/sign-in-second-factor', { request: query, twoFactorToken, code: value }, ofPage)
    expect(await step('000000')).toMatchObject({ status: 401, text: expect.stringContaining('Second factor') })
    const entered = await step(appCode(secret))
    expect(entered.status).toBe(303)
    const cookie = String(entered.headers['set-cookie']).split(';')[0]!
    expect((await look(query, cookie)).text).toContain('Allow access?')

    const left = await form('/oauth/sign-out', { request: query }, { ...ofPage, cookie })
    expect(left).toMatchObject({ status: 200, text: expect.stringContaining('autocomplete="current-password"') })
    expect((await look(query, cookie)).text).toContain('autocomplete="current-password"')
  })

  it('sign in at a provider', async () => {
    elsewhere.accounts.set('grace', { email: 'grace@example.com', email_verified: true, name: 'Grace Hopper' })
    const query = queryOf(await registered())
    const page = await look(query)
    const link = unescaped(/href="(sign-in-social[^"]+)"/.exec(page.text)![1])
    const start = await api.anonymous('GET', `/oauth/${link}`, undefined, ofPage)
    expect(start.status).toBe(302)
    const state = String(start.headers['set-cookie']).split(';')[0]!
    const callback = await visit(String(start.headers.location), 'grace')
    const ended = await api.anonymous('GET', `${callback.pathname}${callback.search}`, undefined, { cookie: state })
    expect(ended.status).toBe(302)
    const back = new URL(String(ended.headers.location))
    expect(back.pathname).toBe('/oauth/sign-in')
    const again = await api.anonymous('GET', `${back.pathname}${back.search}`)
    expect(unescaped(/url=([^"]+)"/.exec(again.text)?.[1])).toBe(`authorize?${query}`)
    const cookie = [ended.headers['set-cookie']]
      .flat()
      .map(String)
      .find((one) => one.startsWith('token_'))!
      .split(';')[0]!
    expect((await look(query, cookie)).text).toContain('grace@example.com')
  })

  it('do not sign in from the page of another site', async () => {
    const user = await createAccount(api)
    const fields = { request: queryOf(await registered()), email: user.email, password }
    const forged = await form('/oauth/sign-in', fields, { origin: 'https://evil.test', 'sec-fetch-site': 'cross-site' })
    expect(forged.status).toBe(403)
    expect(forged.headers['set-cookie']).toBeUndefined()
  })

  it('take no request along that is none', async () => {
    const { email } = await createAccount(api)
    for (const request of ['', 'client_id=x\r\nset-cookie: a=b', `client_id=${'x'.repeat(5000)}`]) {
      expect((await form('/oauth/sign-in', { request, email, password }, ofPage)).status).toBe(400)
      expect((await api.anonymous('GET', `/oauth/sign-in?${new URLSearchParams({ request })}`)).status).toBe(400)
    }
  })
})

describe('a code', () => {
  it.each([
    ['with the wrong verifier', () => ({ code_verifier: pkce().verifier }), 'invalid_grant'],
    ['without a verifier', () => ({ code_verifier: '' }), 'invalid_grant'],
    ['with another address', () => ({ redirect_uri: `${redirectUri}/x` }), 'invalid_grant'],
    ['of another program', async () => ({ client_id: await registered() }), 'invalid_grant'],
    ['for a resource that was not allowed', () => ({ resource: `${base}/mcp` }), 'invalid_target'],
  ])('%s is worth nothing, and nothing afterwards', async (_what, lie, error) => {
    const way = await granted(await sessionOf(api, await createAccount(api)), { resource: base })
    expect(await redeem(way, await lie())).toMatchObject({ status: 400, body: { error } })
    expect(await redeem(way)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
  })

  it('works once; a second time ends what the first has opened', async () => {
    const user = await createAccount(api)
    const way = await granted(await sessionOf(api, user))
    const answers = await Promise.all([1, 2, 3].map(() => redeem(way)))
    const good = answers.filter(({ status }) => status === 200)
    expect(good).toHaveLength(1)
    expect(await statusOf(good[0]!.body.access_token, '/auth/check')).toBe(401)
    expect(await refresh(way.clientId, good[0]!.body.refresh_token)).toMatchObject({ status: 400 })
    const [event] = await api.sql(
      `select changes from "svc_AuditLog" where action = 'reuse_detected' and "userId" = $1`,
      [user.id],
    )
    expect(event).toBeDefined()
  })

  it('expires, and is not kept for ever', async () => {
    const way = await granted(await sessionOf(api, await createAccount(api)))
    await api.sql(`update "svc_OAuthCode" set "expiresAt" = now() - interval '1 second' where "usedAt" is null`)
    expect(await redeem(way)).toMatchObject({
      status: 400,
      body: { error: 'invalid_grant', error_description: 'The code has expired' },
    })
  })
})

describe('a refresh token', () => {
  it('works once; one that comes again ends the access', async () => {
    const user = await createAccount(api)
    const { clientId, refresh: first } = await tokensOf(await sessionOf(api, user))
    const second = await refresh(clientId, first)
    expect(second.status).toBe(200)
    expect(await statusOf(second.body.access_token, '/auth/check')).toBe(200)
    expect(await refresh(clientId, first)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect(await refresh(clientId, second.body.refresh_token)).toMatchObject({ status: 400 })
    expect(await statusOf(second.body.access_token, '/auth/check')).toBe(401)
  })

  it('is worth nothing to others, or changed, and cannot be had for more than was allowed', async () => {
    const { clientId, refresh: first } = await tokensOf(await sessionOf(api, await createAccount(api)), {
      scope: 'read',
      resource: base,
    })
    const later = first.replace(/\.0\./, '.1.')
    expect(await refresh(clientId, later)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect(await refresh(await registered(), first)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect(await refresh(clientId, first, { scope: 'read write' })).toMatchObject({
      status: 400,
      body: { error: 'invalid_scope' },
    })
    expect(await refresh(clientId, first, { resource: `${base}/mcp` })).toMatchObject({
      status: 400,
      body: { error: 'invalid_target' },
    })
    expect((await refresh(clientId, first)).status).toBe(200)
  })

  it('is for programs that ask for one', async () => {
    const own = await sessionOf(api, await createAccount(api))
    const plain = await granted(own, {}, { grant_types: ['authorization_code'] })
    expect((await redeem(plain)).body).not.toHaveProperty('refresh_token')
    const offline = await granted(own, { scope: 'read offline_access' }, { grant_types: ['authorization_code'] })
    expect((await redeem(offline)).body).toHaveProperty('refresh_token')
  })
})

describe('the token endpoint', () => {
  it.each([
    [{ grant_type: 'password', client_id: 'x' }, 400, 'unsupported_grant_type'],
    [{ grant_type: 'authorization_code', code: 'x' }, 401, 'invalid_client'],
    [{ client_id: 'x' }, 400, 'invalid_request'],
    [{ grant_type: 'refresh_token', client_id: 'x', refresh_token: 'dbr_x' }, 400, 'invalid_grant'],
    [{ grant_type: 'authorization_code', client_id: 'x', resource: 'https://evil.test' }, 400, 'invalid_target'],
  ])('refuses %j in the words of RFC 6749', async (fields, status, error) => {
    const answer = await token(fields as unknown as Record<string, string>)
    expect(answer).toMatchObject({ status, body: { error, error_description: expect.any(String) } })
    expect(Object.keys(answer.body)).toEqual(['error', 'error_description'])
  })
})

describe('programs in pages of any origin', () => {
  const origin = 'https://program.example'

  it.each([
    ['GET', '/.well-known/oauth-authorization-server', 200],
    ['GET', '/.well-known/openid-configuration', 200],
    ['GET', '/.well-known/oauth-protected-resource', 200],
    ['GET', '/.well-known/oauth-protected-resource/mcp', 200],
    ['GET', '/oauth/jwks', 200],
    ['GET', '/oauth/userinfo', 401],
    ['POST', '/oauth/token', 400],
    ['POST', '/oauth/register', 400],
    ['POST', '/oauth/revoke', 400],
  ])('may ask %s %s, without cookies, and read its refusals', async (method, path, status) => {
    const asked = await api.anonymous('OPTIONS', path, undefined, {
      origin,
      'access-control-request-method': method,
      'access-control-request-headers': 'mcp-protocol-version',
    })
    expect(asked.status).toBe(204)
    expect(asked.headers).toMatchObject({
      'access-control-allow-origin': '*',
      'access-control-allow-headers': 'mcp-protocol-version',
    })
    const answer = await api.anonymous(method, path, method === 'POST' ? {} : undefined, { origin })
    expect(answer.status).toBe(status)
    for (const { headers } of [asked, answer]) {
      expect(headers['access-control-allow-origin']).toBe('*')
      expect(headers).not.toHaveProperty('access-control-allow-credentials')
    }
  })

  it.each([
    ['GET', '/oauth/authorize'],
    ['POST', '/oauth/consent'],
    ['POST', '/oauth/sign-in'],
    ['POST', '/mcp'],
    ['GET', '/items/note'],
  ])('may not ask %s %s', async (method, path) => {
    const asked = await api.anonymous('OPTIONS', path, undefined, { origin, 'access-control-request-method': method })
    expect(asked.status).toBe(404)
    for (const { headers } of [asked, await api.anonymous(method, path, undefined, { origin })])
      expect(headers).not.toHaveProperty('access-control-allow-origin')
  })
})

describe('a token', () => {
  it('can do less than its user: what its scope says, at routes, rows of the system and sockets', async () => {
    const user = await api.user(readNotes)
    const [read, write] = [
      await tokensOf(user.token, { scope: 'read' }),
      await tokensOf(user.token, { scope: 'write' }),
    ]
    expect(await statusOf(read.access)).toBe(200)
    expect(
      (await api.as(read.access)('POST', '/reports/note', { aggregate: { n: { function: 'count', field: 'id' } } }))
        .status,
    ).toBe(200)
    expect(await api.as(read.access)('POST', '/items/note', { text: 'x' })).toMatchObject({
      status: 403,
      body: { error: { code: 'INSUFFICIENT_SCOPE' } },
      headers: { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' },
    })
    expect((await api.as(write.access)('POST', '/items/note', { text: 'x' })).status).toBe(201)
    expect((await api.as(write.access)('DELETE', '/items/note/bulk', { ids: ['x'] })).status).toBe(403)

    const login = await api.anonymous('POST', '/auth/login', administrator)
    const [writer, admin] = [
      await tokensOf(login.body.token, { scope: 'write' }),
      await tokensOf(login.body.token, { scope: 'admin' }),
    ]
    expect((await api.as(writer.access)('POST', '/items/note', { text: 'x' })).status).toBe(201)
    for (const [method, path, body] of [
      ['POST', '/items/svc_Role', { name: 'made by a program' }],
      ['POST', '/schemas', { collectionName: 'x', schema: { fields: {} } }],
      ['GET', '/ops/jobs', undefined],
    ] as const)
      expect(await api.as(writer.access)(method, path, body)).toMatchObject({
        status: 403,
        body: { error: { code: 'INSUFFICIENT_SCOPE' } },
      })
    expect((await api.as(admin.access)('POST', '/items/svc_Role', { name: 'made by a program' })).status).toBe(201)
    expect((await api.as(admin.access)('GET', '/ops/jobs')).status).toBe(200)
    const identity = await tokensOf(user.token, { scope: 'openid' })
    expect(await statusOf(identity.access)).toBe(403)
    expect((await api.as(identity.access)('GET', '/oauth/userinfo')).body).toEqual({ sub: user.id })
    expect(await api.as(read.access)('GET', '/oauth/userinfo')).toMatchObject({ status: 403 })

    const socket = io(base, {
      path: '/realtime',
      transports: ['websocket'],
      auth: { token: read.access },
      reconnection: false,
    })
    onTestFinished(() => void socket.close())
    await new Promise((connected) => socket.once('connected', connected))
    expect(await socket.emitWithAck('subscribe', { collection: 'note' })).toMatchObject({ status: 'success' })
    expect(await socket.emitWithAck('room:message', { room: 'r', event: 'e' })).toMatchObject({
      status: 'error',
      code: 'INSUFFICIENT_SCOPE',
    })
    const gone = new Promise((disconnected) => socket.once('disconnect', disconnected))
    await form('/oauth/revoke', { token: read.access, client_id: read.clientId })
    await gone
  })

  it('starts workflows that may do no more than its scope, however far that leads', async () => {
    const worker = await openWorkflows(api.runtime)
    onTestFinished(() => worker.stop(5000))
    const session = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    const tokenOf = async (scope: string) => (await tokensOf(session, { scope })).access
    const [read, write, admin] = [await tokenOf('read'), await tokenOf('write'), await tokenOf('admin')]
    // A page is an administrator's matter, and so is its creation for a program.
    const page = (name: string, more: object = {}) =>
      node('page', 'service', { operation: 'create', collection: 'svc_Page', data: { name, slug: name }, ...more })
    const paging = (more?: object) => chain(page('{{trigger.name}}', more))
    const save = async (id: string, flow_data: object, more: object = {}) => {
      const row = { id, name: id, status: 'active', flow_data, ...more }
      const { status, text } = await api.admin('POST', '/workflows', row)
      expect(status, text).toBe(201)
    }
    await save('paging', paging())
    await save('calling', chain(node('call', 'workflow', { workflowId: 'paging' })))
    await save('raised', paging({ bypassPermissions: true }))
    await save('waiting', chain(node('wait', 'delay', { delay: 3_600_000 }), page('{{trigger.name}}')))
    await save('by-get', paging(), {
      trigger_type: 'webhook',
      trigger_webhook_path: 'paging',
      trigger_webhook_method: 'GET',
    })
    const onNote = { trigger_type: 'hook', trigger_hook_collection: 'note', trigger_hook_action: 'items.create.after' }
    await save('on-note', chain(page('{{trigger.document.text}}')), onNote)
    const over = (id: string) =>
      waitFor(async () => {
        const [found] = await api.sql('select status, "errorMessage" from "svc_WorkflowExecution" where id = $1', [id])
        return ['completed', 'failed', 'cancelled'].includes(found.status)
          ? [found.status, found.errorMessage]
          : undefined
      })
    const execute = async (token: string, workflow: string, name: string) => {
      const { status, body, text } = await api.as(token)('POST', `/workflows/${workflow}/execute`, { name })
      expect(status, text).toBe(200)
      return over(body.execution.id)
    }
    const refused = ['failed', expect.stringContaining('scope')]
    expect(await execute(write, 'paging', 'by write')).toEqual(refused)
    expect(await execute(write, 'calling', 'called by write')).toEqual(refused)
    expect(await execute(admin, 'calling', 'called by admin')).toEqual(['completed', null])
    expect(await execute(session, 'paging', 'by session')).toEqual(['completed', null])
    // The rights that its author gives to every caller are not the caller's own.
    expect(await execute(write, 'raised', 'raised')).toEqual(['completed', null])
    expect((await api.as(read)('POST', '/workflows/paging/execute', {})).body.error.code).toBe('INSUFFICIENT_SCOPE')
    const called = await api.as(read)('GET', '/webhook/paging')
    expect(await over(called.body.execution.id)).toEqual(refused)

    // The executions that its changes trigger.
    const triggeredBy = async (token: string, text: string) => {
      expect((await api.as(token)('POST', '/items/note', { text })).status).toBe(201)
      const [{ id }] = await waitFor(async () => {
        const found = await api.sql(
          `select id from "svc_WorkflowExecution" where "workflow_Id" = 'on-note' and trigger_data->'document'->>'text' = $1`,
          [text],
        )
        return found.length > 0 ? found : undefined
      })
      return over(id)
    }
    expect(await triggeredBy(write, 'note by write')).toEqual(refused)
    expect(await triggeredBy(session, 'note by session')).toEqual(['completed', null])

    // Going on with another user's execution, and a node of which it makes up what came before.
    const { body: begun } = await api.as(session)('POST', '/workflows/waiting/execute', { name: 'retried' })
    await api.as(session)('POST', `/workflows/waiting/executions/${begun.execution.id}/cancel`)
    await api.sql(
      `insert into "svc_WorkflowExecutionLog" ("execution_Id", "nodeId", "nodeType", status, seq, step, "outputData")
       values ($1, 'start', 'trigger', 'success', 1, 'start', '{}'), ($1, 'wait', 'delay', 'success', 2, 'wait', '{}'), ($1, 'page', 'service', 'failed', 3, 'page', 'null') on conflict do nothing`,
      [begun.execution.id],
    )
    const retried = await api.as(write)('POST', `/workflows/waiting/executions/${begun.execution.id}/retry`)
    expect(await over(retried.body.execution.id)).toEqual(refused)
    const alone = await api.as(write)('POST', '/workflows/raised/nodes/page/execute', { inputData: { name: 'alone' } })
    expect(alone.status).toBe(403)

    // It would go on to act when the token has ended.
    const editor = await api.user(
      ['create', 'update'].map((action) => ({ collection: 'svc_Workflow', action, fields: ['*'] })),
    )
    const { access: byProgram } = await tokensOf(editor.token, { scope: 'write' })
    for (const path of ['/workflows', '/items/svc_Workflow'])
      expect((await api.as(byProgram)('POST', path, { name: 'lasting' })).body.error.code).toBe('INSUFFICIENT_SCOPE')
    expect((await api.as(byProgram)('PUT', '/items/svc_Workflow?key=id', { id: 'x', name: 'x' })).status).toBe(403)
    const pages = await api.sql('select name from "svc_Page" order by name')
    expect(pages.map(({ name }) => name)).toEqual(['by session', 'called by admin', 'note by session', 'raised'])
  })

  it('does not open what only a session does: no credential outlives what was allowed', async () => {
    const { access } = await tokensOf((await api.anonymous('POST', '/auth/login', administrator)).body.token, {
      scope: 'admin',
    })
    for (const [method, path] of [
      ['POST', '/auth/refresh'],
      ['POST', '/auth/keys'],
      ['POST', '/auth/password/change'],
      ['POST', '/auth/logout'],
      ['GET', '/auth/sessions'],
      ['POST', '/auth/2fa/enable'],
    ])
      expect(await api.as(access)(method!, path!, {})).toMatchObject({ status: 403, body: { code: 'SESSION_NEEDED' } })
    const asCookie = await api.anonymous('GET', '/auth/check', undefined, { cookie: cookieOf(access) })
    expect(asCookie.status).toBe(401)
  })

  it('counts in the Authorization header only', async () => {
    const own = await sessionOf(api, await createAccount(api))
    const { access } = await tokensOf(own)
    const file = `/assets/${(await storeFile(api, { content: 'x', type: 'text/plain', isPublic: true })).id}`
    expect((await api.anonymous('GET', `${file}?access_token=${own}`)).status).toBe(200)
    expect(await statusOf(access, file)).toBe(200)
    expect(await api.anonymous('GET', `${file}?access_token=${access}`)).toMatchObject({
      status: 401,
      body: { error: { code: 'HEADER_ONLY' } },
    })
  })

  it('is for the resource that it names, however that is written', async () => {
    const { token: own } = await api.user(readNotes)
    const forApi = await tokensOf(own, { resource: `${base.replace('127.0.0.1', 'localhost')}/` })
    const forMcp = await tokensOf(own, { resource: `${base}/mcp` })
    expect(decodeJwt(forApi.access).aud).toEqual([base])
    expect(await statusOf(forApi.access)).toBe(200)
    expect(await api.as(forMcp.access)('GET', '/items/note')).toMatchObject({
      status: 401,
      body: { error: { code: 'WRONG_AUDIENCE' } },
      headers: { 'www-authenticate': expect.stringContaining('error="invalid_token"') },
    })
    const clientInfo = { name: 'a client', version: '1' }
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
    const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params }
    const mcp = (headers: Record<string, string>, message: object = initialize) =>
      api.anonymous('POST', '/mcp', message, { accept: 'application/json, text/event-stream', ...headers })
    expect((await mcp({ authorization: `Bearer ${forMcp.access}` })).status).toBe(200)
    const listed = await mcp(
      { authorization: `Bearer ${forMcp.access}`, 'mcp-protocol-version': '2025-06-18' },
      { jsonrpc: '2.0', id: 2, method: 'tools/list', params: {} },
    )
    expect(listed.text).toContain('svc_list_items')
    // It needs a session of the user's own.
    expect(listed.text).not.toContain('svc_logout')
    const metadata = `resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"`
    for (const headers of [{}, { authorization: `Bearer ${forApi.access}` }] as Record<string, string>[])
      expect(await mcp(headers)).toMatchObject({
        status: 401,
        headers: { 'www-authenticate': expect.stringContaining(metadata) },
      })
  })
})

describe('registration', () => {
  it('gives the same metadata the same client, and takes no address that runs something', async () => {
    const metadata = { client_name: 'The same', redirect_uris: ['https://b.example.com/x', 'https://a.example.com/x'] }
    const [first, second] = [
      await register(metadata),
      await register({ ...metadata, redirect_uris: [...metadata.redirect_uris].reverse() }),
    ]
    expect(second.body.client_id).toBe(first.body.client_id)
    for (const uri of [
      'javascript:alert(1)',
      'http://app.example.com/x',
      'https://a.example.com/#x',
      'https://u:p@a.example.com/',
      'data:text/html,x',
      'nothing',
    ])
      expect(await register({ redirect_uris: [uri] })).toMatchObject({
        status: 400,
        body: { error: 'invalid_redirect_uri' },
      })
    expect(await register({ grant_types: ['client_credentials'] })).toMatchObject({
      status: 400,
      body: { error: 'invalid_client_metadata' },
    })
    expect(await register({ id_token_signed_response_alg: 'none' })).toMatchObject({
      status: 400,
      body: {
        error: 'invalid_client_metadata',
        error_description: 'id_token_signed_response_alg must be RS256 or EdDSA',
      },
    })
    const named = { client_name: 'By default' }
    const asked = await register({ ...named, id_token_signed_response_alg: 'RS256' })
    expect(asked.body.client_id).toBe((await register(named)).body.client_id)
    expect((await register({ redirect_uris: [] })).status).toBe(400)
  })

  it('is bounded for a network, and forgotten without a sign-in', async () => {
    await api.sql('delete from "svc_OAuthClient"')
    const answers = await Promise.all(Array.from({ length: 30 }, () => register()))
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(20)
    expect(answers.find(({ status }) => status === 429)).toMatchObject({
      body: { error: 'temporarily_unavailable' },
      headers: { 'retry-after': '3600' },
    })
    await api.sql(`update "svc_OAuthClient" set "expiresAt" = now() - interval '1 second'`)
    expect((await register()).status).toBe(201)
    const { body } = answers.find(({ status }) => status === 201)!
    expect((await look(queryOf(body.client_id))).status).toBe(400)
    await api.sql('delete from "svc_OAuthClient"')
  })
})

describe('a metadata document', () => {
  let home: string
  type Document = { status?: number; location?: string; body?: string; never?: true }
  const documents = new Map<string, (id: string) => Document>()
  const good = (id: string, more: object = {}) =>
    JSON.stringify({ client_id: id, client_name: 'Documented', redirect_uris: [redirectUri], ...more })

  beforeAll(async () => {
    const [key, cert] = ['key', 'certificate'].map((name) => readFileSync(`test/fixtures/tls/${name}.pem`, 'utf8'))
    const trusted = getCACertificates('default')
    setDefaultCACertificates([...trusted, cert!])
    const server = createSecureServer({ key: key!, cert: cert! }, (request, response) => {
      const document: Document = documents.get(request.url!)?.(`${home}${request.url}`) ?? { status: 404 }
      const { status = 200, location, body, never } = document
      if (never) return
      response.writeHead(status, { 'content-type': 'application/json', ...(location && { location }) }).end(body)
    })
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    home = `https://localhost:${(server.address() as AddressInfo).port}`
    return () => {
      setDefaultCACertificates(trusted)
      server.closeAllConnections()
      server.close()
    }
  })

  it('makes its address a client, whose host the page names', async () => {
    documents.set('/good', (id) => ({ body: good(id) }))
    const cookie = cookieOf(await sessionOf(api, await createAccount(api)))
    const page = await look(queryOf(`${home}/good`), cookie)
    expect(page.text).toContain(`<strong>Documented</strong> of <strong class="host">${new URL(home).host}</strong>`)
    const way = await granted(await sessionOf(api, await createAccount(api)), { client_id: `${home}/good` })
    expect((await redeem(way)).status).toBe(200)
  })

  it.each([
    ['elsewhere', () => ({ status: 302, location: '/good' })],
    ['too-large', (id: string) => ({ body: good(id, { x: 'x'.repeat(5200) }) })],
    ['of-another', () => ({ body: good('https://app.example.com/client.json') })],
    ['no-json', () => ({ body: '<html>' })],
    ['no-addresses', (id: string) => ({ body: JSON.stringify({ client_id: id }) })],
    ['with-a-key', (id: string) => ({ body: good(id, { token_endpoint_auth_method: 'private_key_jwt' }) })],
    ['running', (id: string) => ({ body: good(id, { redirect_uris: ['javascript:alert(1)'] }) })],
  ])('%s is none', async (name, answer) => {
    documents.set(`/${name}`, answer)
    const refused = await look(queryOf(`${home}/${name}`))
    expect(refused).toMatchObject({ status: 400, text: expect.stringContaining('metadata document') })
  })

  it('that does not come within three seconds is none', async () => {
    documents.set('/slow', () => ({ never: true }))
    const refused = await look(queryOf(`${home}/slow`))
    expect(refused).toMatchObject({ status: 400, text: expect.stringContaining('metadata document') })
  })

  it('is read at public addresses only, by https, with a path', async () => {
    const guarded = { ...api.runtime, config: testConfig(api.database.url, { BASE_URL: base }) }
    await expect(findClient(guarded, `${home}/good`)).rejects.toThrow('metadata document')
    await expect(findClient(guarded, 'https://169.254.169.254/latest')).rejects.toThrow('not allowed')
    for (const id of ['http://127.0.0.1/x', 'https://localhost/', 'https://localhost/x#y', 'https://LOCALHOST/x'])
      expect((await look(queryOf(id))).status).toBe(400)
  })
})

describe('several web processes', () => {
  const of = (process: Api) => (path: string, fields: Record<string, string>) =>
    process.anonymous('POST', path, String(new URLSearchParams(fields)), {
      'content-type': 'application/x-www-form-urlencoded',
    })

  it('know the codes, tokens and keys of each other, and the end of each access at once', async () => {
    const other = await startApi(
      { BASE_URL: base, MCP_ENABLED: 'true', AUTH_RATE_LIMIT_DISABLED: 'true' },
      api.database,
    )
    const [here, there] = [of(api), of(other)]
    const { clientId, code, verifier } = await granted((await api.user(readNotes)).token, { scope: 'openid read' })
    const redeemed = await there('/oauth/token', {
      ...{ grant_type: 'authorization_code', client_id: clientId, code },
      ...{ code_verifier: verifier, redirect_uri: redirectUri },
    })
    expect([redeemed.status, redeemed.text]).toEqual([200, expect.stringContaining('id_token')])
    const keys = createLocalJWKSet((await api.anonymous('GET', '/oauth/jwks')).body)
    await jwtVerify(redeemed.body.id_token, keys, { issuer: base, audience: clientId })
    const renew = (at: typeof here, refreshToken: string) =>
      at('/oauth/token', { grant_type: 'refresh_token', client_id: clientId, refresh_token: refreshToken })
    const { status, body } = await renew(here, redeemed.body.refresh_token)
    const use = async () => [
      await statusOf(body.access_token),
      (await other.as(body.access_token)('GET', '/items/note')).status,
    ]
    expect([status, await use()]).toEqual([200, [200, 200]])
    // The one of before, at the other process: it was stolen, or its answer was lost.
    expect((await renew(there, redeemed.body.refresh_token)).body.error).toBe('invalid_grant')
    expect(await use()).toEqual([401, 401])
    expect((await renew(here, body.refresh_token)).status).toBe(400)
  })
})

describe('with tenants', () => {
  it('a program is in the tenant of the session that allowed it, and in no other', async () => {
    const single = api
    onTestFinished(() => {
      api = single
    })
    api = await startApi({ BASE_URL: base, MULTI_TENANT: 'true', AUTH_RATE_LIMIT_DISABLED: 'true' })
    const fields = { text: { type: 'String' }, tenant_Id: { type: 'UUID' } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields } })).status).toBe(201)
    const role = await createRole(api)
    await grant(api, role, ...readNotes)
    const [one, two] = [await createTenant(api, 'one'), await createTenant(api, 'two')]
    const [ada, bob] = [await createUser(api, role, one), await createUser(api, role, two)]
    await bob.call('POST', '/items/note', { text: 'of two' })
    const { access, clientId } = await tokensOf(ada.token, { scope: 'read write' })
    const call = api.as(access)
    const made = await call('POST', '/items/note?fields=text,tenant_Id', { text: 'of one' })
    expect([made.status, made.body.data]).toEqual([201, { text: 'of one', tenant_Id: one }])
    expect((await call('POST', '/items/note', { text: 'x', tenant_Id: two })).status).toBeGreaterThanOrEqual(400)
    expect((await call('GET', '/items/note?fields=text')).body.data).toEqual([{ text: 'of one' }])
    const [event] = await api.sql(
      `select agent->>'client' as client, "tenant_Id" as tenant from "svc_AuditLog"
       where entity = 'note' and "userId" = $1 order by position desc limit 1`,
      [ada.id],
    )
    expect(event).toMatchObject({ tenant: one })
    const { sessions } = (await ada.call('GET', '/auth/sessions')).body
    expect(sessions.filter(({ client }: any) => client?.id === clientId)).toHaveLength(1)
    await api.sql('delete from "svc_UserRole" where id = $1', [ada.userRoleId])
    expect((await call('GET', '/items/note')).status).toBe(401)
  })
})

describe('clients of others', () => {
  /** As a browser with a session would. */
  async function throughThePages(url: URL, cookie: string): Promise<URL> {
    const query = url.search.slice(1)
    const page = await look(query, cookie)
    expect(page.text).toContain('Allow access?')
    return leavesFor(await decide(query, page, cookie))
  }

  it.each([
    ['RS256', undefined],
    ['EdDSA', 'EdDSA'],
  ])('openid-client signs in with ID tokens of %s, and notices another issuer', async (signedWith, wanted) => {
    const user = await createAccount(api)
    const cookie = cookieOf(await sessionOf(api, user))
    const insecure = { execute: [openid.allowInsecureRequests] }
    const config = await openid.dynamicClientRegistration(
      new URL(base),
      {
        redirect_uris: [redirectUri],
        client_name: 'openid-client',
        ...(wanted && { id_token_signed_response_alg: wanted }),
      },
      openid.None(),
      insecure,
    )
    const checks = {
      pkceCodeVerifier: openid.randomPKCECodeVerifier(),
      expectedState: openid.randomState(),
      expectedNonce: openid.randomNonce(),
    }
    const url = openid.buildAuthorizationUrl(config, {
      redirect_uri: redirectUri,
      scope: 'openid email',
      code_challenge: await openid.calculatePKCECodeChallenge(checks.pkceCodeVerifier),
      code_challenge_method: 'S256',
      state: checks.expectedState,
      nonce: checks.expectedNonce,
    })
    const callback = await throughThePages(url, cookie)
    const mixedUp = new URL(callback)
    mixedUp.searchParams.set('iss', 'https://evil.test')
    await expect(openid.authorizationCodeGrant(config, mixedUp, checks)).rejects.toThrow()
    const tokens = await openid.authorizationCodeGrant(config, callback, checks)
    expect(tokens.claims()).toMatchObject({ sub: user.id, email: user.email })
    const keys = createRemoteJWKSet(new URL(`${base}/oauth/jwks`))
    const { protectedHeader } = await jwtVerify(tokens.id_token!, keys, { issuer: base })
    expect(protectedHeader.alg).toBe(signedWith)
    expect(await openid.fetchUserInfo(config, tokens.access_token, user.id)).toMatchObject({ email: user.email })
  })

  it("the MCP client's sign-in works", async () => {
    const { token: own } = await api.user(readNotes)
    const cookie = cookieOf(own)
    const kept: { client?: any; tokens?: any; verifier?: string; sent?: URL } = {}
    const provider: OAuthClientProvider = {
      redirectUrl: redirectUri,
      clientMetadata: {
        redirect_uris: [redirectUri],
        client_name: 'MCP',
        grant_types: ['authorization_code', 'refresh_token'],
      },
      clientInformation: () => kept.client,
      saveClientInformation: (client) => {
        kept.client = client
      },
      tokens: () => kept.tokens,
      saveTokens: (tokens) => {
        kept.tokens = tokens
      },
      redirectToAuthorization: (url) => {
        kept.sent = url
      },
      saveCodeVerifier: (verifier) => {
        kept.verifier = verifier
      },
      codeVerifier: () => kept.verifier!,
    }
    expect(await auth(provider, { serverUrl: `${base}/mcp` })).toBe('REDIRECT')
    expect(kept.sent!.searchParams.get('resource')).toBe(`${base}/mcp`)
    const callback = await throughThePages(kept.sent!, cookie)
    const authorizationCode = callback.searchParams.get('code')!
    const answered = { serverUrl: `${base}/mcp`, authorizationCode, iss: callback.searchParams.get('iss')! }
    expect(await auth(provider, answered as never)).toBe('AUTHORIZED')
    expect(decodeJwt(kept.tokens.access_token)).toMatchObject({
      aud: [`${base}/mcp`],
      scope: 'read write offline_access',
    })
    expect(await auth(provider, { serverUrl: `${base}/mcp` })).toBe('AUTHORIZED')
  })
})

/** As a page of the server would, in the browser. */
const savePasskey = `async ({ token, currentPassword }) => {
  const post = async (path, body) => {
    const headers = { 'content-type': 'application/json', authorization: 'Bearer ' + token }
    const answer = await fetch('/auth/passkey/register/' + path, { method: 'POST', headers, body: JSON.stringify(body) })
    if (!answer.ok) throw new Error(await answer.text())
    return answer.json()
  }
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await post('options', { currentPassword }))
  const credential = await navigator.credentials.create({ publicKey })
  await post('verify', { response: credential.toJSON(), name: 'a key' })
}`

describeWithBrowser('in a browser', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await startBrowser()
  })

  it('a user signs in with a passkey', async () => {
    const port = await freePort()
    const home = `http://localhost:${port}`
    const named = await startApi(
      {
        ...{ BASE_URL: home, AUTH_SERVICES_ENABLED: 'LOCAL,PASSKEY', AUTH_RATE_LIMIT_DISABLED: 'true' },
        ...{ PASSKEY_RP_ID: 'localhost', PASSKEY_RP_NAME: 'Notes', PASSKEY_ORIGIN: home },
      },
      api.database,
    )
    await named.app.listen({ host: '127.0.0.1', port })
    const user = await createAccount(api)
    const context = await browser.newContext()
    onTestFinished(() => context.close())
    const page = await context.newPage()
    page.setDefaultTimeout(longestWaitMs)
    const devtools = await context.newCDPSession(page)
    await devtools.send('WebAuthn.enable')
    const authenticator = { protocol: 'ctap2', transport: 'internal', hasResidentKey: true } as const
    const present = { hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true }
    await devtools.send('WebAuthn.addVirtualAuthenticator', { options: { ...authenticator, ...present } })
    const clientId = await registered()
    await page.goto(`${home}/oauth/authorize?${queryOf(clientId)}`)
    await page.click('#passkey')
    await page.locator('#passkey-problem').waitFor()
    const own = { token: await sessionOf(named, user), currentPassword: password }
    await page.evaluate(`(${savePasskey})(${JSON.stringify(own)})`)
    await page.click('#passkey')
    await page.locator('h1', { hasText: 'Allow access?' }).waitFor()
    expect(await page.content()).toContain(user.email)
    expect(page.url()).toContain(`client_id=${clientId}`)
  })

  it('a user signs in, reads what is asked, allows it, and is sent back to the program', async () => {
    const user = await createAccount(api)
    const back = createServer()
    await new Promise<void>((listening) => back.listen(0, '127.0.0.1', listening))
    onTestFinished(() => void back.close())
    const port = (back.address() as AddressInfo).port
    const arrived = new Promise<string>((resolve) => {
      back.on('connection', (socket) => {
        socket.once('data', (data) => {
          resolve(String(data).split(' ')[1]!)
          socket.end(
            'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 4\r\n\r\ndone',
          )
        })
      })
    })
    const clientId = await registered({ redirect_uris: ['http://127.0.0.1/callback'] })
    const context = await browser.newContext({ viewport: { width: 390, height: 844 } })
    onTestFinished(() => context.close())
    const page = await context.newPage()
    page.setDefaultTimeout(longestWaitMs)
    const wrong: string[] = []
    page.on('console', (message) => {
      if (message.type() === 'error' && !/status of 4\d\d/.test(message.text())) wrong.push(message.text())
    })
    const query = queryOf(clientId, { redirect_uri: `http://127.0.0.1:${port}/callback`, scope: 'read write' })
    await page.goto(`${base}/oauth/authorize?${query}`)
    await page.fill('form[action=sign-in] [name=email]', user.email)
    await page.fill('[name=password]', 'not the password')
    await page.click('form[action=sign-in] button')
    await page.locator('[role=alert]', { hasText: 'Incorrect password.' }).waitFor()
    await page.fill('[name=password]', password)
    await page.click('form[action=sign-in] button')
    await page.locator('h1', { hasText: 'Allow access?' }).waitFor()
    expect(await page.locator('li').allTextContents()).toEqual([
      'Read everything that you can read',
      'Create, change and delete what you can',
    ])
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390)
    await page.click('[value=allow]')
    const { searchParams } = new URL(await arrived, base)
    expect(Object.fromEntries(searchParams)).toEqual({ code: expect.any(String), state: 'of the client', iss: base })
    expect(wrong).toEqual([])
  })
})
