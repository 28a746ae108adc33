import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { unseal } from '../../src/adapters/sealing.ts'
import { cookieNamesOf } from '../../src/features/accounts/auth/browser.ts'
import { createAccount, factsSince, plant, sessionOf } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { inTurn } from '../support/in-turn.ts'
import { type OpenId, startOpenId, visit } from '../support/openid.ts'
import { testConfig } from '../support/prepare.ts'
import { appCode } from '../support/totp.ts'

const base = 'http://api.example.test'
const app = 'https://app.example.com'
const client = { clientId: 'daybook', clientSecret: 'a secret of the client, for tests' }
const redirectUris = [
  ...['google', 'gitlab', 'apple'].map((id) => `${base}/auth/callback/${id}`),
  ...[`${app}/oauth/callback`, `${app}/`],
]

let openId: OpenId
let env: Record<string, string>
let api: Api
let names = 0

beforeAll(async () => {
  openId = await startOpenId({ ...client, redirectUris })
  env = {
    AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,GOOGLE,GITLAB,APPLE,DISCORD',
    BASE_URL: base,
    AUTH_APP_URL: app,
    SSRF_ALLOW_PRIVATE_URL_FETCH: 'true',
    AUTH_RATE_LIMIT_DISABLED: 'true',
    OAUTH_ALLOW_DIRECT_IDTOKEN: 'true',
    ...of('GOOGLE'),
    ...of('GITLAB'),
    ...of('APPLE'),
    DISCORD_CLIENT_ID: 'without a secret',
  }
  api = await startApi(env)
})

let position: bigint
beforeEach(async () => {
  position = await api.position()
})

const of = (id: string) => ({
  [`${id}_CLIENT_ID`]: client.clientId,
  [`${id}_CLIENT_SECRET`]: client.clientSecret,
  [`${id}_ISSUER`]: openId.issuer,
})

/** Somebody new at the provider. */
function somebody(claims: object = {}): { login: string; email: string } {
  names += 1
  const email = `somebody${names}@example.com`
  openId.accounts.set(`login${names}`, { email, email_verified: true, name: 'Grace Brewster Hopper', ...claims })
  return { login: `login${names}`, email }
}

const start = (body: object, from: Api = api) =>
  from.anonymous('POST', '/auth/social/signin', { provider: 'google', ...body })
const pathOf = ({ pathname, search }: URL) => pathname + search
const cookiesOf = ({ headers }: Answer) =>
  [headers['set-cookie'] ?? []].flat().map((cookie) => String(cookie).split(';', 1)[0]!)

/** The whole way with JSON at its end. */
async function signIn(login: string | undefined, body: object = {}, from: Api = api): Promise<Answer> {
  const { body: started } = await start(body, from)
  return from.anonymous('GET', pathOf(await visit(started.url, login)))
}

/** The whole way by a link; the address of the app that it ends at. */
async function signInByLink(login: string | undefined, query = '', provider = 'google') {
  const begun = await api.anonymous('GET', `/auth/signin/${provider}?redirect_url=${app}/welcome?a=b${query}`)
  expect(begun.status).toBe(302)
  const back = await visit(String(begun.headers.location), login)
  const ended = await api.anonymous('GET', pathOf(back), undefined, { cookie: cookiesOf(begun).join('; ') })
  expect(ended.status).toBe(302)
  return { ended, address: new URL(String(ended.headers.location)) }
}

const userOf = async (email: string) => (await api.sql('select * from "svc_User" where email = $1', [email]))[0]
const linksOf = (userId: string) => api.sql('select * from "svc_Account" where "user_Id" = $1', [userId])

describe('a sign-in', () => {
  it('creates an account, links it, and finds it again', async () => {
    const { login, email } = somebody()
    const started = await start({})
    expect(started).toMatchObject({ status: 200, body: { redirect: true } })
    const first = await api.anonymous('GET', pathOf(await visit(started.body.url, login)))
    expect(first).toMatchObject({
      status: 200,
      body: {
        authMode: 'jwt',
        user: { email, firstName: 'Grace', lastName: 'Brewster Hopper' },
        role: { name: 'user' },
      },
    })
    expect(first.headers['cache-control']).toBe('no-store')
    expect((await api.as(first.body.token)('GET', '/auth/check')).status).toBe(200)
    const user = await userOf(email)
    expect(user).toMatchObject({ password: null, emailVerified: true, status: 'active' })
    expect(await factsSince(api, position)).toEqual([
      ...['svc_User create', 'svc_UserRole create', 'svc_Account create'],
      ...['svc_User register', 'svc_User social_linked', 'svc_User login'],
    ])
    expect((await api.log(position)).find(({ action }) => action === 'social_linked')).toMatchObject({
      entityId: user.id,
      changes: { provider: 'google' },
    })
    expect(await api.jobs('mail')).toEqual([])

    openId.accounts.set(login, { email: 'moved@example.com', email_verified: true })
    const again = await signIn(login)
    expect(again.body.user).toEqual(first.body.user)
    expect(await linksOf(user.id)).toHaveLength(1)
  })

  it('keeps the tokens of the provider sealed and hidden', async () => {
    const { login, email } = somebody()
    await signIn(login)
    const user = await userOf(email)
    const [link] = await linksOf(user.id)
    const sealedFor = { purpose: 'social-tokens', owner: JSON.stringify(['google', login]) }
    expect(unseal(api.runtime.config, sealedFor, link.idToken)?.text).toMatch(/^ey.+\..+\..+$/)
    expect(link.accessTokenExpiresAt.getTime()).toBeGreaterThan(Date.now())
    const shown = await api.admin('GET', `/items/svc_Account/${link.id}`)
    expect(shown.body.data).toMatchObject({ accountId: login, providerId: 'google' })
    for (const name of ['accessToken', 'refreshToken', 'idToken', 'password'])
      expect(shown.body.data).not.toHaveProperty(name)
    expect(JSON.stringify(await api.log(position))).not.toContain(link.accessToken)
  })

  it('sends state, nonce and a code challenge, and only configured addresses', async () => {
    const headers = {
      host: 'evil.test',
      'x-forwarded-host': 'evil.test',
      'x-forwarded-proto': 'https',
      forwarded: 'host=evil.test',
    }
    const { body } = await api.anonymous(
      'POST',
      '/auth/social/signin',
      { provider: 'google', scopes: ['phone'] },
      headers,
    )
    const { searchParams } = new URL(body.url)
    expect(Object.fromEntries(searchParams)).toEqual({
      client_id: client.clientId,
      response_type: 'code',
      redirect_uri: `${base}/auth/callback/google`,
      scope: 'openid email profile phone',
      state: expect.stringMatching(/^[0-9a-f]{64}$/),
      nonce: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    })
    const stored = await api.sql('select * from "svc_Challenge" where identifier like \'social:%\'')
    expect(JSON.stringify(stored)).not.toContain(searchParams.get('state'))
    expect(JSON.stringify(stored)).not.toContain(searchParams.get('nonce'))
  })

  it('by a link ends at the app with the token in its address, in cookie mode with none', async () => {
    const { login } = somebody()
    const { address } = await signInByLink(login)
    expect(`${address.origin}${address.pathname}`).toBe(`${app}/welcome`)
    expect([...address.searchParams.keys()]).toEqual(['a', 'token'])
    const check = await api.as(address.searchParams.get('token')!)('GET', '/auth/check')
    expect(check.status).toBe(200)

    const byCookie = await signInByLink(login, '&authMode=cookie')
    expect(byCookie.address.href).toBe(`${app}/welcome?a=b`)
    const [session] = cookiesOf(byCookie.ended).filter((cookie) => cookie.startsWith('token_'))
    const me = await api.anonymous('GET', '/auth/check', undefined, { cookie: session! })
    expect(me.status).toBe(200)
  })

  it('gives no token to a browser that has a session cookie, wherever that is known', async () => {
    const { login } = somebody()
    const session = (answer: Answer) => cookiesOf(answer).find((cookie) => cookie.startsWith('token_'))!
    const first = await signInByLink(login, '&authMode=cookie')
    const cookie = session(first.ended)
    const begin = (headers?: Record<string, string>) =>
      api.anonymous('GET', `/auth/signin/google?redirect_url=${app}/welcome&authMode=jwt`, undefined, headers)
    const end = async (begun: Answer, cookies: readonly string[]) =>
      api.anonymous('GET', pathOf(await visit(String(begun.headers.location), login)), undefined, {
        cookie: cookies.join('; '),
      })
    // It came to the beginning with the cookie; the provider's redirect may come without.
    const begun = await begin({ cookie })
    for (const ended of [
      await end(begun, cookiesOf(begun)),
      await end(await begin({ cookie }), [cookie]),
      await end(await begin(), [cookie]),
    ])
      expect(new URL(String(ended.headers.location ?? `${app}/`)).searchParams.has('token')).toBe(false)
    const [kept, forced] = [await end(await begin({ cookie }), cookiesOf(begun)), await end(await begin(), [cookie])]
    // A way that this browser has not begun does not change its session.
    for (const ended of [kept, forced]) {
      expect(ended).toMatchObject({ status: 400, body: { message: 'State does not match the initiating session' } })
      expect(session(ended)).toBeUndefined()
    }
    const again = await begin({ cookie })
    const ended = await end(again, [cookie, ...cookiesOf(again)])
    expect(ended.headers.location).toBe(`${app}/welcome`)
    const check = await api.anonymous('GET', '/auth/check', undefined, { cookie: session(ended) })
    expect(check.status).toBe(200)
    // A cookie of a session that is over says nothing.
    await api.anonymous('POST', '/auth/logout', undefined, { cookie, origin: new URL(app).origin })
    const dead = await end(await begin({ cookie }), [cookie])
    expect(new URL(String(dead.headers.location)).searchParams.has('token')).toBe(true)
  })

  it("ends at the frontend's own page when it names one, which then calls the callback", async () => {
    const { login } = somebody()
    const { body } = await start({ callbackURL: `${app}/oauth/callback`, authType: 'web' })
    const back = await visit(body.url, login)
    expect(`${back.origin}${back.pathname}`).toBe(`${app}/oauth/callback`)
    const answer = await api.anonymous('GET', `/auth/callback/google${back.search}`)
    expect(answer.status).toBe(200)
    const [{ type }] = await api.sql('select type from "svc_Sessions" where "user_Id" = $1', [answer.body.user.id])
    expect(type).toBe('web')

    const bare = await visit((await start({ callbackURL: app })).body.url, login)
    expect((await api.anonymous('GET', `/auth/callback/google${bare.search}`)).status).toBe(200)
  })

  it('may come as a form, where Apple posts it, with the name beside the token', async () => {
    const { login } = somebody({ name: undefined })
    const { body } = await start({ provider: 'apple' })
    const back = await visit(body.url, login)
    const form = new URLSearchParams(back.search)
    form.set('user', JSON.stringify({ name: { firstName: 'Ada', lastName: 'King' }, email: 'evil@example.com' }))
    const headers = {
      'content-type': 'application/x-www-form-urlencoded',
      origin: 'https://appleid.apple.com',
      cookie: `${cookieNamesOf(api.runtime).plain}=x`,
    }
    const answer = await api.anonymous('POST', '/auth/callback/apple', form.toString(), headers)
    expect(answer).toMatchObject({ status: 200, body: { user: { firstName: 'Ada', lastName: 'King' } } })
    const other = await api.anonymous('POST', '/auth/social/signin', form.toString(), headers)
    expect(other.status).toBe(415)
  })

  it('asks for the second factor too', async () => {
    const { login, email } = somebody()
    const { body } = await signIn(login)
    const account = { id: body.user.id, email }
    await api.sql('update "svc_User" set password = (select password from "svc_User" where email = $2) where id = $1', [
      account.id,
      (await createAccount(api)).email,
    ])
    const call = api.as(await sessionOf(api, account))
    const { secret } = (await call('POST', '/auth/2fa/enable')).body
    await call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
    await api.sql('delete from "svc_Sessions" where "user_Id" = $1', [account.id])
    const challenged = await signIn(login)
    expect(challenged.body).toEqual({
      twoFactorRequired: true,
      twoFactorToken: expect.any(String),
      code: 'TWO_FACTOR_REQUIRED',
    })
    const { address } = await signInByLink(login, '&authMode=cookie')
    expect([...address.searchParams.keys()]).toEqual(['a', 'twoFactorRequired', 'twoFactorToken', 'code'])
    expect(await api.sql('select 1 from "svc_Sessions" where "user_Id" = $1', [account.id])).toEqual([])
  })

  it('of the same person for the first time, many times at once, makes one account', async () => {
    const { login, email } = somebody()
    const backs = await Promise.all([1, 2, 3, 4].map(async () => visit((await start({})).body.url, login)))
    const answers = await Promise.all(backs.map((back) => api.anonymous('GET', pathOf(back))))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(new Set(answers.map(({ body }) => body.user.id)).size).toBe(1)
    expect(await linksOf((await userOf(email)).id)).toHaveLength(1)
  })

  it('works for a person without an e-mail address', async () => {
    const { login } = somebody({ email: undefined, email_verified: undefined })
    const first = await signIn(login)
    expect(first).toMatchObject({ status: 200, body: { user: { email: null, firstName: 'Grace' } } })
    expect((await signIn(login)).body.user.id).toBe(first.body.user.id)
  })
})

describe('an account of the same address', () => {
  it('is linked when the provider has verified the address', async () => {
    const { login, email } = somebody()
    const account = await createAccount(api, { email })
    const answer = await signIn(login)
    expect(answer.body.user.id).toBe(account.id)
    expect(await userOf(email)).toMatchObject({ emailVerified: true, password: expect.any(String) })
    expect(await factsSince(api, position)).toContain('svc_User social_linked')
  })

  it('is refused when it has not, unless OAUTH_ALLOW_UNVERIFIED_LINK', async () => {
    for (const email_verified of [false, undefined, 'yes' as never]) {
      const { login, email } = somebody({ email_verified })
      const account = await createAccount(api, { email })
      position = await api.position()
      expect(await signIn(login)).toMatchObject({ status: 403, body: { code: 'ACCOUNT_NOT_LINKED' } })
      expect(await factsSince(api, position)).toEqual([])
      expect(await linksOf(account.id)).toEqual([])
    }
    const lenient = await startApi({ ...env, OAUTH_ALLOW_UNVERIFIED_LINK: 'true' }, api.database)
    const { login, email } = somebody({ email_verified: false })
    const account = await createAccount(api, { email, emailVerified: false })
    expect((await signIn(login, {}, lenient)).body.user.id).toBe(account.id)
    expect(await userOf(email)).toMatchObject({ emailVerified: false, password: expect.any(String) })
  })

  it('that another person has set up is taken from them', async () => {
    const { login, email } = somebody()
    const account = await createAccount(api, { email, emailVerified: false })
    const stranger = await sessionOf(api, account)
    await api.sql(
      `insert into "svc_Account" ("user_Id", "providerId", "accountId") values ($1, 'gitlab', 'the stranger')`,
      [account.id],
    )
    position = await api.position()
    const owner = await signIn(login)
    expect(owner.body.user.id).toBe(account.id)
    expect((await api.as(stranger)('GET', '/auth/check')).status).toBe(401)
    expect((await api.as(owner.body.token)('GET', '/auth/check')).status).toBe(200)
    expect(await userOf(email)).toMatchObject({ emailVerified: true, password: null })
    expect((await linksOf(account.id)).map(({ providerId }) => providerId)).toEqual(['google'])
    const facts = await factsSince(api, position)
    for (const fact of ['email_verified', 'unverified_credentials_dropped', 'social_linked', 'login'])
      expect(facts).toContain(`svc_User ${fact}`)
  })

  it('that is taken from them during a sign-in by their provider keeps no link to it', async () => {
    const { login, email } = somebody({ email_verified: false })
    expect((await signIn(login)).body.user).toMatchObject({ email })
    const account = await userOf(email)
    const secret = await plant(api, 'magic-link', email)
    const { body: started } = await start({})
    const back = pathOf(await visit(started.url, login))
    const [takeover, stranger] = await inTurn(api, { table: 'svc_User', id: account.id }, [
      () => api.anonymous('GET', `/auth/magiclink/${secret}`),
      () => api.anonymous('GET', back),
    ])
    expect(takeover).toMatchObject({ status: 200, body: { user: { email } } })
    expect(stranger).toMatchObject({ status: 403, body: { code: 'ACCOUNT_NOT_LINKED' } })
    expect(await linksOf(account.id)).toEqual([])
    expect(await api.sql('select from "svc_Sessions" where "user_Id" = $1', [account.id])).toHaveLength(1)
  })

  it('that is suspended stays closed', async () => {
    const { login, email } = somebody()
    await createAccount(api, { email, status: 'suspended' })
    expect(await signIn(login)).toMatchObject({ status: 403, body: { message: 'Account is suspended' } })
    const { address } = await signInByLink(login)
    expect(address.searchParams.get('error')).toBe('Account is suspended')
    expect(address.searchParams.has('token')).toBe(false)
  })
})

it('no new user comes in where registration is closed', async () => {
  const closed = await startApi({ ...env, PUBLIC_REGISTRATION: 'false' }, api.database)
  const { login, email } = somebody()
  expect(await signIn(login, {}, closed)).toMatchObject({ status: 403, body: { code: 'REGISTRATION_DISABLED' } })
  expect(await userOf(email)).toBeUndefined()
  await createAccount(api, { email })
  expect((await signIn(login, {}, closed)).status).toBe(200)
})

it('an unverified address is not enough where addresses must be verified', async () => {
  const strict = await startApi({ ...env, REQUIRE_EMAIL_VERIFICATION: 'true' }, api.database)
  const { login, email } = somebody({ email_verified: false })
  position = await api.position()
  const unverified = { code: 'EMAIL_NOT_VERIFIED', requiresEmailVerification: true }
  const first = await signIn(login, {}, strict)
  expect(first).toMatchObject({
    status: 403,
    body: { ...unverified, message: 'Email not verified. A mail to verify it has been sent; then sign in again.' },
  })
  const user = await userOf(email)
  expect(user).toMatchObject({ emailVerified: false, password: null })
  expect(await factsSince(api, position)).toEqual([
    ...['svc_User create', 'svc_UserRole create', 'svc_Account create', 'svc_EmailLog create'],
    ...['svc_User register', 'svc_User social_linked', 'svc_EmailLog queued'],
  ])
  expect(await api.jobs('mail')).toHaveLength(1)
  expect(await api.sql('select count(*)::int as n from "svc_Sessions" where "user_Id" = $1', [user.id])).toEqual([
    { n: 0 },
  ])
  position = await api.position()
  const again = await signIn(login, {}, strict)
  expect(again).toMatchObject({ status: 403, body: { ...unverified, message: expect.stringContaining('recently') } })
  expect((await factsSince(api, position)).filter((fact) => fact.includes('EmailLog'))).toEqual([])
  // Another identity that claims the address gets nothing of the account.
  const other = somebody({ email_verified: false, email })
  expect(await signIn(other.login, {}, strict)).toMatchObject({ status: 403, body: { code: 'ACCOUNT_NOT_LINKED' } })
  expect(await linksOf(user.id)).toHaveLength(1)
  expect(await api.jobs('mail')).toHaveLength(1)
  await api.sql('update "svc_User" set "emailVerified" = true where id = $1', [user.id])
  expect((await signIn(login, {}, strict)).body.user.id).toBe(user.id)
})

it('no address is refused where addresses must be verified, and an account of the address stays as it is', async () => {
  const config = { ...env, REQUIRE_EMAIL_VERIFICATION: 'true', OAUTH_ALLOW_UNVERIFIED_LINK: 'true' }
  const strict = await startApi(config, api.database)
  const nobody = somebody({ email: undefined })
  const { login, email } = somebody({ email_verified: false })
  const account = await createAccount(api, { email, emailVerified: false })
  position = await api.position()
  expect(await signIn(nobody.login, {}, strict)).toMatchObject({ status: 403, body: { code: 'EMAIL_MISSING' } })
  expect(await signIn(login, {}, strict)).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } })
  expect(await factsSince(api, position)).toEqual([])
  expect(await linksOf(account.id)).toEqual([])
})

describe('a state', () => {
  const refused = { status: 400, body: { message: 'Invalid or expired state' } }

  it('works once, of simultaneous uses one', async () => {
    const { login } = somebody()
    const back = await visit((await start({})).body.url, login)
    const answers = await Promise.all([1, 2, 3].map(() => api.anonymous('GET', pathOf(back))))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400])
    expect(await api.anonymous('GET', pathOf(back))).toMatchObject(refused)
  })

  it('works for its provider only (mix-up), and is used up by the attempt', async () => {
    const { login } = somebody()
    const back = await visit((await start({})).body.url, login)
    expect(await api.anonymous('GET', `/auth/callback/gitlab${back.search}`)).toMatchObject(refused)
    expect(await api.anonymous('GET', pathOf(back))).toMatchObject(refused)
  })

  it.each(['unknown', '', 'x'.repeat(400)])('that is %j opens nothing', async (state) => {
    const answer = await api.anonymous('GET', `/auth/callback/google?code=x&state=${state}`)
    expect(answer.status).toBe(400)
  })

  it('expires after ten minutes', async () => {
    const { login } = somebody()
    const back = await visit((await start({})).body.url, login)
    const [{ seconds }] = await api.sql(
      `select extract(epoch from max("expiresAt") - now())::float8 as seconds from "svc_Challenge" where identifier like 'social:%'`,
    )
    expect(seconds).toBeGreaterThan(590)
    expect(seconds).toBeLessThanOrEqual(600)
    await api.sql(`update "svc_Challenge" set "expiresAt" = now() where identifier like 'social:%'`)
    expect(await api.anonymous('GET', pathOf(back))).toMatchObject(refused)
  })

  it('does not carry another code', async () => {
    const [victim, attacker] = [somebody(), somebody()]
    const own = await visit((await start({})).body.url, victim.login)
    const foreign = await visit((await start({})).body.url, attacker.login)
    own.searchParams.set('code', foreign.searchParams.get('code')!)
    expect((await api.anonymous('GET', pathOf(own))).status).toBe(400)
    expect(await userOf(attacker.email)).toBeUndefined()
  })

  it('comes from the issuer it was sent to (RFC 9207)', async () => {
    const back = await visit((await start({})).body.url, somebody().login)
    back.searchParams.set('iss', 'https://evil.test')
    expect((await api.anonymous('GET', pathOf(back))).status).toBe(400)
  })

  it('of another browser is refused in cookie mode, and always with OAUTH_STATE_COOKIE_BINDING', async () => {
    const bound = await startApi({ ...env, OAUTH_STATE_COOKIE_BINDING: 'true' }, api.database)
    for (const [of, body] of [
      [bound, {}],
      [api, { authMode: 'cookie' }],
    ] as const) {
      const { login } = somebody()
      for (const cookie of ['', 'oauth_state=', `oauth_state=${'0'.repeat(64)}`]) {
        const back = await visit((await start(body, of)).body.url, login)
        expect(await of.anonymous('GET', pathOf(back), undefined, { cookie })).toMatchObject({
          status: 400,
          body: { message: 'State does not match the initiating session' },
        })
      }
      const begun = await start(body, of)
      const [cookie] = [begun.headers['set-cookie']].flat()
      expect(cookie).toMatch(/^oauth_state=[0-9a-f]{64}; Path=\/; Max-Age=600; HttpOnly; SameSite=Lax$/)
      const back = await visit(begun.body.url, login)
      expect(String(cookie)).not.toContain(back.searchParams.get('state'))
      const ended = await of.anonymous('GET', pathOf(back), undefined, { cookie: cookiesOf(begun).join('; ') })
      expect(ended.status).toBe(200)
      expect(cookiesOf(ended)).toContain('oauth_state=')
    }
  })
})

describe('a refusal of the provider', () => {
  it('is told as JSON, or to the app', async () => {
    expect(await signIn(undefined)).toMatchObject({ status: 400, body: { message: 'End-User aborted interaction' } })
    const { address } = await signInByLink(undefined)
    expect(Object.fromEntries(address.searchParams)).toEqual({
      a: 'b',
      error: 'End-User aborted interaction',
      error_code: 'BAD_REQUEST',
    })
    const { body } = await start({ errorCallbackURL: `${app}/failed` })
    const answer = await api.anonymous('GET', pathOf(await visit(body.url, undefined)))
    expect(answer.headers.location).toBe(`${app}/failed?error=End-User+aborted+interaction&error_code=BAD_REQUEST`)
    expect(await factsSince(api, position)).toEqual([])
  })

  it('of the code is told too, and nothing happens', async () => {
    const { body } = await start({})
    const state = new URL(body.url).searchParams.get('state')
    const answer = await api.anonymous('GET', `/auth/callback/google?code=guessed&state=${state}&iss=${openId.issuer}`)
    expect(answer).toMatchObject({ status: 400, body: { message: 'grant request is invalid' } })
    expect(await factsSince(api, position)).toEqual([])
  })

  it('a provider that does not answer is said to be out of reach', async () => {
    const dead = await startApi({ ...env, GOOGLE_ISSUER: 'http://127.0.0.1:1' }, api.database)
    expect((await start({}, dead)).status).toBe(502)
  })

  it('a provider on a private address is not asked without SSRF_ALLOW_PRIVATE_URL_FETCH', () => {
    const { SSRF_ALLOW_PRIVATE_URL_FETCH: _allowed, ...closed } = env
    expect(() => testConfig(api.database.url, closed)).toThrow('GOOGLE_ISSUER: is no https:// address')
  })
})

describe('starting', () => {
  it.each([
    [{ provider: undefined }, 'Provider is required'],
    [{ provider: ['google'] }, 'Provider is required'],
    [{ provider: 'nobody' }, "Provider 'nobody' not found"],
    [{ provider: 'constructor' }, "Provider 'constructor' not found"],
    [{ provider: 'discord' }, "Provider 'discord' not found"],
    [{ scopes: [1] }, 'Invalid scopes'],
    [{ scopes: ['a"b'] }, 'Invalid scopes'],
    [{ authMode: 'both' }, "Invalid authMode. Must be 'jwt' or 'cookie'"],
    [{ callbackURL: 'https://evil.test/callback' }, 'Invalid callbackURL'],
    [{ callbackURL: `${app}/oauth/callback?a=b` }, 'Invalid callbackURL'],
    [{ callbackURL: [app] }, 'Invalid callbackURL'],
    [{ errorCallbackURL: 'https://evil.test/' }, 'Invalid errorCallbackURL'],
  ])('with %j is refused', async (body, message) => {
    expect(await start(body)).toMatchObject({ status: 400, body: { message } })
  })

  const untrusted = [
    ...[undefined, '', 'https://evil.test', '//evil.test', '/relative', 'javascript:alert(1)', `${app}@evil.test/`],
    ...[`${app}.evil.test/`, `${app}\\@evil.test`, `${app}/#fragment`, `${app}/\u0000`, `http://app.example.com/`],
    ...[`${app}:444/`, `https://user@app.example.com/`, `${app}/${'x'.repeat(5000)}`, ` ${app}/`, `${app}/a b`],
  ]
  it.each(untrusted)('by a link that leads to %j is refused', async (address) => {
    const query = address === undefined ? '' : `?redirect_url=${encodeURIComponent(address)}`
    const answer = await api.anonymous('GET', `/auth/signin/google${query}`)
    expect(answer).toMatchObject({ status: 400, body: { message: 'Invalid or missing redirect_url' } })
  })

  it('in cookie mode by a page of another site is refused', async () => {
    const headers = { origin: 'https://evil.test' }
    const answer = await api.anonymous(
      'POST',
      '/auth/social/signin',
      { provider: 'google', authMode: 'cookie' },
      headers,
    )
    expect(answer.status).toBe(403)
  })

  it('lists those that are fully configured', async () => {
    const { body } = await api.anonymous('GET', '/')
    expect(body.data.auth.socialProviders).toEqual(['google', 'apple', 'gitlab'])
    expect(JSON.stringify(body)).not.toContain(client.clientId)
  })
})

describe('an ID token', () => {
  const claimsFor = (login: string) => ({
    iss: openId.issuer,
    aud: client.clientId,
    sub: login,
    nonce: 'n',
    ...openId.accounts.get(login),
  })
  const present = (token: string, more: object = {}, from: Api = api) =>
    start({ idToken: { token, nonce: 'n', ...more } }, from)

  it('signs in where that is allowed', async () => {
    const { login, email } = somebody()
    const answer = await present(await openId.idToken(claimsFor(login)))
    expect(answer).toMatchObject({ status: 200, body: { redirect: false, authMode: 'jwt', user: { email } } })
    expect((await signIn(login)).body.user.id).toBe(answer.body.user.id)
  })

  it('is refused where it is not', async () => {
    const closed = await startApi({ ...env, OAUTH_ALLOW_DIRECT_IDTOKEN: 'false' }, api.database)
    expect(await present('x', {}, closed)).toMatchObject({
      status: 400,
      body: { message: 'Direct ID-token sign-in is disabled. Use the OAuth redirect flow.' },
    })
  })

  it('that is forged, of others, for others or without its nonce opens nothing', async () => {
    const { login, email } = somebody()
    const claims = claimsFor(login)
    const { SignJWT, generateKeyPair, UnsecuredJWT } = await import('jose')
    const stranger = await generateKeyPair('RS256')
    const { nonce: _nonce, ...withoutNonce } = claims
    const forged = {
      unsigned: new UnsecuredJWT(claims).setIssuedAt().setExpirationTime('5m').encode(),
      'signed by a stranger': await new SignJWT(claims)
        .setProtectedHeader({ alg: 'RS256', kid: 'test' })
        .setIssuedAt()
        .setExpirationTime('5m')
        .sign(stranger.privateKey),
      'signed by the client secret': await new SignJWT(claims)
        .setProtectedHeader({ alg: 'HS256' })
        .setIssuedAt()
        .setExpirationTime('5m')
        .sign(new TextEncoder().encode(client.clientSecret)),
      'another issuer': await openId.idToken({ ...claims, iss: 'https://evil.test' }),
      'another audience': await openId.idToken({ ...claims, aud: 'another client' }),
      'another party': await openId.idToken({ ...claims, aud: [client.clientId, 'x'], azp: 'x' }),
      'another nonce': await openId.idToken({ ...claims, nonce: 'm' }),
      'without a nonce': await openId.idToken(withoutNonce),
      'without a subject': await openId.idToken({ ...claims, sub: undefined }),
      'an unknown key': await openId.idToken(claims, { kid: 'unknown' }),
      expired: await openId.idToken(claims, {}, '1 minute ago'),
      'no token': 'nonsense',
    }
    for (const [kind, token] of Object.entries(forged))
      expect([kind, (await present(token)).status]).toEqual([kind, 401])
    const right = await openId.idToken(claims)
    expect(await present(right, { nonce: undefined })).toMatchObject({
      status: 401,
      body: { message: 'Invalid ID token' },
    })
    expect(await present(right, { token: undefined })).toMatchObject({ status: 401 })
    expect(await userOf(email)).toBeUndefined()
    expect(await factsSince(api, position)).toEqual([])
  })
})
