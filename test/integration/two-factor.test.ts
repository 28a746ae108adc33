import { beforeAll, describe, expect, it } from 'vitest'
import { cookieNamesOf } from '../../src/features/accounts/auth/browser.ts'
import { plant } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { testEnv } from '../support/prepare.ts'
import { createRole, createTenant, createUser } from '../support/tenants.ts'
import { appCode, wrongAppCode } from '../support/totp.ts'

const services = { AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR' }
const password = 'password of a user'
const refusal = {
  status: 401,
  body: { message: 'Invalid or expired two-factor code', code: 'INVALID_TWO_FACTOR_CODE' },
}

let api: Api
beforeAll(async () => {
  api = await startApi(services)
})

const post = (path: string, body?: unknown, headers?: Record<string, string>) =>
  api.anonymous('POST', path, body, headers)
const login = (email: string, more: object = {}) => post('/auth/login', { email, password, ...more })
const verify = (twoFactorToken: string, code: string, more: object = {}) =>
  post('/auth/2fa/verify', { twoFactorToken, code, ...more })
const challenge = async (email: string, more: object = {}): Promise<string> =>
  (await login(email, more)).body.twoFactorToken
const sessionsOf = (id: string) => api.sql('select type from "svc_Sessions" where "user_Id" = $1', [id])
/** Data changes and facts since a position, as `entity action`. */
const story = async (after: bigint) => (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)

/** A user who has finished the setup, no sessions, and whose next code is not used yet. */
async function enrolled(of: Api = api) {
  const user = await of.user()
  const { secret, backupCodes } = (await user.call('POST', '/auth/2fa/enable')).body
  const finished = await user.call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
  expect(finished).toMatchObject({ status: 200, body: { enabled: true } })
  await forgetStep(user.id)
  await api.sql('delete from "svc_Sessions" where "user_Id" = $1', [user.id])
  return { ...user, secret: secret as string, backupCodes: backupCodes as string[] }
}

const forgetStep = (id: string) => api.sql('update "svc_TwoFactor" set "lastStep" = null where "user_Id" = $1', [id])

describe('setting up', () => {
  it('counts only when the app has shown a code, and keeps its secrets from everybody', async () => {
    const user = await api.user()
    const before = await api.position()
    const begun = await user.call('POST', '/auth/2fa/enable')
    const { secret, otpauthUrl, backupCodes } = begun.body
    // Begun is not on.
    expect(await user.call('GET', '/auth/2fa')).toMatchObject({ status: 200, body: { enabled: false } })
    expect(begun.status).toBe(200)
    expect(Object.keys(begun.body).sort()).toEqual(['backupCodes', 'otpauthUrl', 'secret'])
    expect(secret).toMatch(/^[A-Z2-7]{32}$/)
    expect(otpauthUrl).toContain(`secret=${secret}`)
    expect(new URL(otpauthUrl).searchParams.get('issuer')).toBe(api.runtime.config.project.name)
    expect(new Set(backupCodes).size).toBe(10)
    for (const code of backupCodes) expect(code).toMatch(/^[0-9a-f]{10}$/)
    expect((await login(user.email)).body.token).toEqual(expect.any(String))
    expect(await user.call('POST', '/auth/2fa/verify-setup', { code: wrongAppCode(secret) })).toMatchObject({
      status: 401,
      body: { message: 'Invalid code', code: 'INVALID_TWO_FACTOR_CODE' },
    })
    const finished = await user.call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
    expect(finished).toMatchObject({ status: 200, body: { enabled: true } })
    expect((await user.call('GET', '/auth/2fa')).body).toEqual({ enabled: true })
    expect(await story(before)).toEqual([
      'svc_TwoFactor create',
      'svc_User login',
      'svc_TwoFactor update',
      'svc_User 2fa_enabled',
    ])
    expect(await api.jobs('mail')).toEqual([])
    expect(await user.call('POST', '/auth/2fa/enable')).toMatchObject({
      status: 400,
      body: { message: 'Two-factor is already enabled. Disable it first.' },
    })
    const shown = await api.admin('GET', `/items/svc_TwoFactor?filter=${JSON.stringify({ user_Id: user.id })}`)
    expect(Object.keys(shown.body.data[0]).sort()).toEqual(['createdAt', 'enabled', 'id', 'updatedAt', 'user_Id'])
    const [stored] = await api.sql('select row_to_json(f)::text as row from "svc_TwoFactor" f where "user_Id" = $1', [
      user.id,
    ])
    const logged = JSON.stringify(await api.log(before))
    for (const kept of [secret, ...backupCodes]) {
      expect(stored.row).not.toContain(kept)
      expect(logged).not.toContain(kept)
    }
  })

  it('may be begun anew until it is finished; then only the last secret counts', async () => {
    const user = await api.user()
    const first = (await user.call('POST', '/auth/2fa/enable')).body.secret
    const second = (await user.call('POST', '/auth/2fa/enable')).body.secret
    const finish = (secret: string) => user.call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
    expect((await finish(first)).status).toBe(401)
    expect((await finish(second)).status).toBe(200)
    expect(await finish(second)).toMatchObject({ status: 400 })
  })

  it('uses its code up', async () => {
    const user = await api.user()
    const { secret } = (await user.call('POST', '/auth/2fa/enable')).body
    const code = appCode(secret)
    await user.call('POST', '/auth/2fa/verify-setup', { code })
    expect(await verify(await challenge(user.email), code)).toMatchObject(refusal)
  })

  it('needs an account with a password', async () => {
    const user = await api.user()
    await api.sql('update "svc_User" set password = null where id = $1', [user.id])
    expect(await user.call('POST', '/auth/2fa/enable')).toMatchObject({
      status: 400,
      body: {
        message: 'Two-factor authentication requires a password on this account. Set a password first.',
        code: 'TWO_FACTOR_REQUIRES_PASSWORD',
      },
    })
  })

  it('refuses what is incomplete', async () => {
    const user = await api.user()
    const cases: [Answer, number, string][] = [
      [await post('/auth/2fa/enable'), 401, 'Unauthorized'],
      [await post('/auth/2fa/verify-setup', { code: '1' }), 401, 'Unauthorized'],
      [await post('/auth/2fa/disable', { password }), 401, 'Unauthorized'],
      [await user.call('POST', '/auth/2fa/verify-setup', {}), 400, 'code is required'],
      [await user.call('POST', '/auth/2fa/verify-setup', { code: '1' }), 400, 'Two-factor setup has not been started'],
      [await user.call('POST', '/auth/2fa/disable', {}), 400, 'Password is required'],
      [await user.call('POST', '/auth/2fa/disable', { password: 'wrong' }), 401, 'Invalid password'],
      [await post('/auth/2fa/verify', { code: '1' }), 400, 'twoFactorToken and code are required'],
      [await post('/auth/2fa/verify', { twoFactorToken: 'x' }), 400, 'twoFactorToken and code are required'],
      [
        await post('/auth/2fa/verify', { twoFactorToken: ['x'], code: {} }),
        400,
        'twoFactorToken and code are required',
      ],
    ]
    for (const [{ status, body }, wanted, message] of cases) expect([status, body.message]).toEqual([wanted, message])
  })
})

describe('the challenge', () => {
  it('comes before any session or cookie, and opens nothing but its own door', async () => {
    const user = await enrolled()
    const before = await api.position()
    const answer = await login(user.email, { authMode: 'cookie' })
    const twoFactorToken = answer.body.twoFactorToken
    expect(answer).toMatchObject({ status: 200 })
    expect(answer.body).toEqual({ twoFactorRequired: true, twoFactorToken, code: 'TWO_FACTOR_REQUIRED' })
    expect(answer.headers['set-cookie']).toBeUndefined()
    expect(await sessionsOf(user.id)).toEqual([])
    expect(await story(before)).toEqual(['svc_User 2fa_challenged'])
    const challenged = api.as(twoFactorToken)
    for (const [method, path] of [
      ['GET', '/auth/me'],
      ['GET', '/auth/check'],
      ['POST', '/auth/refresh'],
      ['POST', '/auth/2fa/enable'],
    ] as const) {
      expect((await challenged(method, path)).status).toBe(401)
      const { plain, host } = cookieNamesOf(api.runtime)
      const cookie = { cookie: `${plain}=${twoFactorToken}; ${host}=${twoFactorToken}` }
      expect((await api.anonymous(method, path, undefined, cookie)).status).toBe(401)
    }
    const [{ text }] = await api.sql(`select string_agg(c::text, ' ') as text from "svc_Challenge" c`)
    expect(text).not.toContain(twoFactorToken)
  })

  it('is no access token, mail token or passkey challenge, nor the other way round', async () => {
    const user = await enrolled()
    const { body } = await verify(await challenge(user.email), appCode(user.secret))
    await forgetStep(user.id)
    for (const foreign of [body.token, JSON.parse(atob(body.token.split('.')[1])).sessionToken, user.id])
      expect(await verify(foreign, appCode(user.secret))).toMatchObject(refusal)
  })

  it('opens the session that was asked for, once', async () => {
    const user = await enrolled()
    const token = await challenge(user.email, { authType: 'web' })
    const before = await api.position()
    const opened = await verify(token, appCode(user.secret))
    expect(opened).toMatchObject({ status: 200, body: { authMode: 'jwt', user: { id: user.id }, tenant: null } })
    expect(Object.keys(opened.body).sort()).toEqual(['authMode', 'permissions', 'role', 'tenant', 'token', 'user'])
    expect((await api.as(opened.body.token)('GET', '/auth/check')).body).toEqual({ valid: true, user: { id: user.id } })
    expect(await sessionsOf(user.id)).toEqual([{ type: 'web' }])
    expect((await api.log(before)).map(({ action, userId, changes }) => ({ action, userId, changes }))).toEqual([
      { action: 'login', userId: user.id, changes: null },
    ])
    expect(await api.jobs('mail')).toEqual([])
    await forgetStep(user.id)
    expect(await verify(token, appCode(user.secret))).toMatchObject(refusal)
  })

  it('remembers the cookie, unless verifying asks otherwise', async () => {
    const user = await enrolled()
    const cookie = await verify(await challenge(user.email, { authMode: 'cookie' }), appCode(user.secret))
    expect(cookie.headers['set-cookie']).toMatch(/^token_\w{8}=.+HttpOnly/)
    expect(cookie.body).toMatchObject({ authMode: 'cookie', message: 'Authentication successful' })
    expect(cookie.body.token).toBeUndefined()
    await forgetStep(user.id)
    const token = await challenge(user.email, { authMode: 'cookie' })
    const foreign = { origin: 'https://evil.test' }
    expect(
      await post('/auth/2fa/verify', { twoFactorToken: token, code: appCode(user.secret) }, foreign),
    ).toMatchObject({
      status: 403,
      body: { message: 'Cross-site request refused' },
    })
    const jwt = await verify(token, appCode(user.secret), { authMode: 'jwt' })
    expect(jwt.headers['set-cookie']).toBeUndefined()
    expect(jwt.body.token).toEqual(expect.any(String))
  })

  it('opens one session to 30 simultaneous right answers', async () => {
    const user = await enrolled()
    const [first, second] = [await challenge(user.email), await challenge(user.email)]
    const code = appCode(user.secret)
    const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => verify(i % 2 ? first : second, code)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 401)).toHaveLength(29)
    expect(await sessionsOf(user.id)).toHaveLength(1)
  })

  it('refuses a code a second time, with a new challenge too', async () => {
    const user = await enrolled()
    const code = appCode(user.secret)
    expect((await verify(await challenge(user.email), code)).status).toBe(200)
    expect(await verify(await challenge(user.email), code)).toMatchObject(refusal)
    expect((await verify(await challenge(user.email), appCode(user.secret, 1))).status).toBe(200)
    expect(await verify(await challenge(user.email), appCode(user.secret))).toMatchObject(refusal)
  })

  it('lives five minutes by the database clock', async () => {
    const user = await enrolled()
    const move = (to: string) =>
      api.sql(`update "svc_Challenge" set "expiresAt" = now() + $2::interval where "user_Id" = $1`, [user.id, to])
    const token = await challenge(user.email)
    const [{ left }] = await api.sql(
      `select extract(epoch from "expiresAt" - now())::float8 as left from "svc_Challenge" where "user_Id" = $1`,
      [user.id],
    )
    expect(left).toBeGreaterThan(280)
    expect(left).toBeLessThanOrEqual(300)
    await move('0 seconds')
    expect(await verify(token, appCode(user.secret))).toMatchObject(refusal)
    await move('20 seconds')
    expect((await verify(token, appCode(user.secret))).status).toBe(200)
  })

  it('takes no code of another user', async () => {
    const [a, b] = [await enrolled(), await enrolled()]
    expect(await verify(await challenge(a.email), appCode(b.secret))).toMatchObject(refusal)
    expect(await verify(await challenge(a.email), b.backupCodes[0]!)).toMatchObject(refusal)
    expect(await sessionsOf(a.id)).toEqual([])
  })

  it('ends with the password that it was opened with, and with the account', async () => {
    const user = await enrolled()
    const token = await challenge(user.email)
    const [{ password: hash }] = await api.sql('select password from "svc_User" where id = $1', [user.id])
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [user.id])
    expect(await verify(token, appCode(user.secret))).toMatchObject({
      status: 403,
      body: { message: 'Account is suspended' },
    })
    await api.sql(`update "svc_User" set status = 'active', password = 'another' where id = $1`, [user.id])
    expect(await verify(token, appCode(user.secret))).toMatchObject(refusal)
    await api.sql('update "svc_User" set password = $2 where id = $1', [user.id, hash])
    expect((await verify(token, appCode(user.secret))).status).toBe(200)
    expect(await api.sql('select from "svc_Challenge" where "user_Id" = $1', [user.id])).toEqual([])
  })
})

describe('wrong codes', () => {
  it('are five per challenge and per account; a new challenge changes nothing', async () => {
    const user = await enrolled()
    const token = await challenge(user.email)
    const before = await api.position()
    for (let i = 0; i < 5; i += 1) expect(await verify(token, wrongAppCode(user.secret))).toMatchObject(refusal)
    expect(await story(before)).toEqual(Array.from({ length: 5 }, () => 'svc_User 2fa_failed'))
    expect(await verify(token, appCode(user.secret))).toMatchObject(refusal)
    const next = await challenge(user.email)
    expect(await verify(next, appCode(user.secret))).toMatchObject(refusal)
    expect(await verify(next, user.backupCodes[0]!)).toMatchObject(refusal)
    expect(await sessionsOf(user.id)).toEqual([])
    await api.sql(`update "svc_TwoFactor" set "lockedUntil" = now() where "user_Id" = $1`, [user.id])
    expect(await verify(token, appCode(user.secret))).toMatchObject(refusal)
    expect((await verify(next, appCode(user.secret))).status).toBe(200)
  })

  it('lock the account for longer each time, until a right one', async () => {
    const user = await enrolled()
    const lock = async (failures: number) => {
      await api.sql(`update "svc_TwoFactor" set failures = $2, "lockedUntil" = null where "user_Id" = $1`, [
        user.id,
        failures,
      ])
      await verify(await challenge(user.email), wrongAppCode(user.secret))
      const [row] = await api.sql(
        `select round(extract(epoch from "lockedUntil" - now()) / 60)::int as minutes from "svc_TwoFactor" where "user_Id" = $1`,
        [user.id],
      )
      return row.minutes
    }
    expect([await lock(3), await lock(4), await lock(9), await lock(499)]).toEqual([null, 15, 30, 240])
    await api.sql(`update "svc_TwoFactor" set "lockedUntil" = null where "user_Id" = $1`, [user.id])
    await verify(await challenge(user.email), appCode(user.secret))
    expect(await api.sql('select failures from "svc_TwoFactor" where "user_Id" = $1', [user.id])).toEqual([
      { failures: 0 },
    ])
  })

  it('include everything that is no code of the app and no backup code', async () => {
    const user = await enrolled()
    for (const code of ['12345', '1234567', '0x1234', 'ffffffffff', '１２３４５６', '-1', 'a'.repeat(10_000)]) {
      await api.sql('update "svc_TwoFactor" set failures = 0 where "user_Id" = $1', [user.id])
      expect(await verify(await challenge(user.email), code)).toMatchObject(refusal)
      expect(await api.sql('select failures from "svc_TwoFactor" where "user_Id" = $1', [user.id])).toEqual([
        { failures: 1 },
      ])
    }
    expect(await sessionsOf(user.id)).toEqual([])
  })
})

describe('backup codes', () => {
  it('work once each, however they are typed', async () => {
    const user = await enrolled()
    const [first, second] = user.backupCodes as [string, string]
    expect((await verify(await challenge(user.email), first)).status).toBe(200)
    expect(await verify(await challenge(user.email), first)).toMatchObject(refusal)
    const typed = ` ${second.slice(0, 5).toUpperCase()}-${second.slice(5)} `
    expect((await verify(await challenge(user.email), typed)).status).toBe(200)
    const [{ left }] = await api.sql(
      `select jsonb_array_length("backupCodes") as left from "svc_TwoFactor" where "user_Id" = $1`,
      [user.id],
    )
    expect(left).toBe(8)
  })

  it('open one session to simultaneous uses', async () => {
    const user = await enrolled()
    const tokens = [await challenge(user.email), await challenge(user.email), await challenge(user.email)]
    const answers = await Promise.all(tokens.map((token) => verify(token, user.backupCodes[0]!)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
  })
})

describe('switching it off', () => {
  it('takes the password, forgets the secrets and is an event', async () => {
    const user = await enrolled()
    const { body } = await verify(await challenge(user.email), appCode(user.secret))
    const before = await api.position()
    const disabled = await api.as(body.token)('POST', '/auth/2fa/disable', { password })
    expect(disabled).toMatchObject({ status: 200, body: { disabled: true } })
    expect(await story(before)).toEqual(['svc_TwoFactor delete', 'svc_User 2fa_disabled'])
    expect((await login(user.email)).body.token).toEqual(expect.any(String))
  })
})

describe('configured', () => {
  it('is not there without TWOFACTOR', async () => {
    const user = await enrolled()
    const app = await configured(api.database, { AUTH_SERVICES_ENABLED: 'LOCAL' })
    const call = async (url: string, payload: object, token?: string) => {
      const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
      return (await app.inject({ method: 'POST', url, payload, headers })).json()
    }
    const { token } = await call('/auth/login', { email: user.email, password })
    expect(token).toEqual(expect.any(String))
    for (const answer of [
      await call('/auth/2fa/enable', {}, token),
      await call('/auth/2fa/verify', { twoFactorToken: 'x', code: '1' }),
    ])
      expect(answer).toEqual({
        message: 'Two-factor authentication is not enabled on this server',
        code: 'BAD_REQUEST',
      })
    expect((await app.inject({ url: '/' })).json().data.auth.twoFactor).toBe(false)
    expect((await api.anonymous('GET', '/')).body.data.auth.twoFactor).toBe(true)
  })

  it('survives a rotation of SECRET_KEY, and needs the previous key only once', async () => {
    const user = await enrolled()
    const after = { ...services, SECRET_KEY: 'a new key for tests only, of no worth either' }
    const during = { ...after, SECRET_KEY_PREVIOUS: testEnv(api.database.url).SECRET_KEY! }
    const [rotating, rotated] = [await configured(api.database, during), await configured(api.database, after)]
    const signIn = async (app: typeof rotated, code: string) => {
      const payload = { twoFactorToken: await challenge(user.email), code }
      return (await app.inject({ method: 'POST', url: '/auth/2fa/verify', payload })).statusCode
    }
    expect(await signIn(rotated, appCode(user.secret))).toBe(503)
    expect(await signIn(rotating, user.backupCodes[0]!)).toBe(200)
    expect(await signIn(rotating, appCode(user.secret))).toBe(200)
    await forgetStep(user.id)
    expect(await signIn(rotated, appCode(user.secret))).toBe(200)
  })

  it('that no key opens is told of as that, and counts no try', async () => {
    const user = await enrolled()
    const lost = await configured(api.database, { ...services, SECRET_KEY: 'another key for tests only, of no worth' })
    const before = await api.position()
    for (let time = 0; time < 6; time += 1) {
      const payload = { twoFactorToken: await challenge(user.email), code: appCode(user.secret) }
      const { statusCode, body } = await lost.inject({ method: 'POST', url: '/auth/2fa/verify', payload })
      expect([statusCode, JSON.parse(body).code]).toEqual([503, 'TWO_FACTOR_LOST'])
    }
    expect(
      await api.sql('select failures, "lockedUntil" from "svc_TwoFactor" where "user_Id" = $1', [user.id]),
    ).toEqual([{ failures: 0, lockedUntil: null }])
    expect((await api.log(before)).filter(({ action }) => action === '2fa_failed')).toEqual([])
  })

  it('remembers the tenant that was asked for', async () => {
    const app = await configured(api.database, { ...services, MULTI_TENANT: 'true' })
    const roleId = await createRole(api)
    const [one, two] = [await createTenant(api, 'one'), await createTenant(api, 'two')]
    const user = await createUser(api, roleId, one)
    await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
      user.id,
      roleId,
      two,
    ])
    const { secret } = (await user.call('POST', '/auth/2fa/enable')).body
    await user.call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
    await forgetStep(user.id)
    const call = async (url: string, payload: object) => (await app.inject({ method: 'POST', url, payload })).json()
    const { twoFactorToken } = await call('/auth/login', { email: user.email, password, tenant_Id: two })
    const opened = await call('/auth/2fa/verify', { twoFactorToken, code: appCode(secret) })
    expect(opened.tenant).toMatchObject({ id: two, name: 'two' })
  })
})

describe('mails', () => {
  const byLink = async (email: string) =>
    api.anonymous('GET', `/auth/magiclink/${await plant(api, 'magic-link', email)}`)
  const reset = async (email: string, next: string) =>
    post(`/auth/password/reset/${await plant(api, 'password-reset', email)}`, { password: next })

  it('does not stand for the second factor: a magic link is answered by a challenge', async () => {
    const user = await enrolled()
    const before = await api.position()
    const { status, body } = await byLink(user.email)
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { twoFactorRequired: true, code: 'TWO_FACTOR_REQUIRED' },
    })
    expect(body.token).toBeUndefined()
    expect(await sessionsOf(user.id)).toEqual([])
    expect(await story(before)).toEqual(['svc_User 2fa_challenged'])
    expect((await verify(body.twoFactorToken, appCode(user.secret))).status).toBe(200)
    expect(await sessionsOf(user.id)).toHaveLength(1)
  })

  it('ends challenges with a reset, after which the second factor is still asked for', async () => {
    const user = await enrolled()
    const pending = await challenge(user.email)
    expect((await reset(user.email, 'another password')).status).toBe(200)
    expect(await verify(pending, appCode(user.secret))).toMatchObject(refusal)
    expect(await api.sql('select from "svc_Challenge" where "user_Id" = $1', [user.id])).toEqual([])
    expect((await login(user.email, { password: 'another password' })).body).toMatchObject({ twoFactorRequired: true })
  })

  it('proves ownership, which drops what another person set up before', async () => {
    const user = await enrolled()
    await api.sql('update "svc_User" set "emailVerified" = false where id = $1', [user.id])
    const { body } = await byLink(user.email)
    expect(body.token).toEqual(expect.any(String))
    expect(await api.sql('select from "svc_TwoFactor" where "user_Id" = $1', [user.id])).toEqual([])
  })
})
