import { beforeAll, describe, expect, it } from 'vitest'
import { plant } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { openAuthenticator } from '../support/authenticator.ts'
import { configured } from '../support/configured.ts'
import { appCode, wrongAppCode } from '../support/totp.ts'
import { untilAdmitted } from '../support/wait.ts'

const origin = 'https://app.example.com'
const rpId = 'example.com'
const password = 'password of a user'
const services = {
  AUTH_APP_URL: origin,
  AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY',
  PASSKEY_RP_ID: rpId,
  PASSKEY_RP_NAME: 'Example',
  PASSKEY_ORIGIN: origin,
}

let api: Api
beforeAll(async () => {
  api = await startApi(services)
})

const story = async (after: bigint) => (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
const forgetStep = (id: string) => api.sql('update "svc_TwoFactor" set "lastStep" = null where "user_Id" = $1', [id])

/** A user with a bearer token, and the same user in a browser with the session cookie. */
async function somebody() {
  const user = await api.user()
  const login = await api.anonymous('POST', '/auth/login', { email: user.email, password, authMode: 'cookie' })
  const cookie = String(login.headers['set-cookie']).split(';')[0]!
  const browser = (path: string, body: object = {}) => api.anonymous('POST', path, body, { cookie, origin })
  return { ...user, cookie, browser }
}

type Somebody = Awaited<ReturnType<typeof somebody>>

async function withSecondFactor(user: Somebody): Promise<string> {
  const { secret } = (await user.call('POST', '/auth/2fa/enable')).body
  await user.call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
  await forgetStep(user.id)
  return secret
}

async function withPasskey(user: Somebody) {
  const authenticator = openAuthenticator({ origin, rpId })
  const options = (await user.call('POST', '/auth/passkey/register/options')).body
  const response = authenticator.register(options)
  expect((await user.call('POST', '/auth/passkey/register/verify', { response })).status).toBe(200)
  return async () => {
    const { options: asked, challengeId } = (await api.anonymous('POST', '/auth/passkey/authenticate/options')).body
    return { challengeId, response: authenticator.sign(asked) as object }
  }
}

/** What opens an account for good: what makes it, and how it is refused to a script that has nothing but the cookie. */
const makers = [
  ['POST', '/auth/keys', { name: 'Mine' }, ['svc_ApiKey create', 'svc_User key_created']],
  ['POST', '/auth/passkey/register/options', {}, []],
  ['POST', '/auth/2fa/enable', {}, ['svc_TwoFactor create']],
] as const

describe.each(makers)('%s %s', (_method, path, body, events) => {
  it('needs more than the cookie, however young its session is', async () => {
    const user = await somebody()
    const before = await api.position()
    // The route of keys refuses members that it does not know.
    const others = path === '/auth/keys' ? [] : [{ password }]
    for (const nothing of [{}, { currentPassword: null }, ...others]) {
      const answer = await user.browser(path, { ...body, ...nothing })
      expect(answer).toMatchObject({
        status: 403,
        body: { code: 'FRESH_PROOF_REQUIRED', methods: ['currentPassword'] },
      })
      expect(answer.body).not.toHaveProperty('key')
    }
    expect(await story(before)).toEqual([])
  })

  it('refuses what is wrong, and says so in the log', async () => {
    const user = await somebody()
    const before = await api.position()
    for (const proof of [{ currentPassword: 'wrong' }, { currentPassword: '' }, { currentPassword: 5 }]) {
      const answer = await user.browser(path, { ...body, ...proof })
      expect(answer).toMatchObject({ status: 403, body: { code: 'FRESH_PROOF_REFUSED' } })
    }
    expect(await story(before)).toEqual(Array.from({ length: 3 }, () => 'svc_User proof_failed'))
    expect((await api.log(before))[0]).toMatchObject({ type: 'auth', entityId: user.id, userId: user.id })
  })

  it('takes the password', async () => {
    const user = await somebody()
    const before = await api.position()
    expect((await user.browser(path, { ...body, currentPassword: password })).status).toBe(200)
    expect(await story(before)).toEqual(events)
  })

  it('asks nothing more of a bearer, but looks at what is shown', async () => {
    const user = await somebody()
    expect((await user.call('POST', path, { ...body, currentPassword: 'wrong' })).body.code).toBe('FRESH_PROOF_REFUSED')
    expect((await user.call('POST', path, body)).status).toBe(200)
  })

  it('of another site is refused before', async () => {
    const user = await somebody()
    const headers = { cookie: user.cookie, origin: 'https://evil.test' }
    const answer = await api.anonymous('POST', path, { ...body, currentPassword: password }, headers)
    expect(answer.body.code).toBe('CROSS_SITE_REQUEST')
  })

  it('bounds guesses per user, over processes, and what is right takes nothing of them', async () => {
    const env = { ...services, AUTH_RATE_LIMIT_DISABLED: 'false', AUTH_RATE_LIMIT: '4' }
    const processes = [await configured(api.database, env), await configured(api.database, env)]
    const user = await somebody()
    const guess = (i: number, currentPassword: string) =>
      processes[i % 2]!.inject({
        method: 'POST',
        url: path,
        headers: { cookie: user.cookie, origin },
        payload: { ...body, currentPassword },
        remoteAddress: `192.0.2.${i}`,
      })
    for (let i = 0; i < 6; i += 1) expect((await guess(i, password)).statusCode).toBe(200)
    const guesses = Array.from({ length: 8 }, (_, i) => untilAdmitted(() => guess(i, `guess ${i}`)))
    const codes = (await Promise.all(guesses)).map(({ statusCode }) => statusCode)
    expect(codes.sort()).toEqual([403, 403, 403, 403, 429, 429, 429, 429])
    expect((await guess(1, password)).statusCode).toBe(429)
  })
})

describe('a fresh proof', () => {
  const make = (user: Somebody, proof: object) => user.browser('/auth/keys', { name: 'Mine', ...proof })

  it('may be a code of the second factor, once', async () => {
    const user = await somebody()
    const secret = await withSecondFactor(user)
    expect((await make(user, {})).body.methods).toEqual(['currentPassword', 'twoFactorCode'])
    expect((await make(user, { twoFactorCode: wrongAppCode(secret) })).body.code).toBe('FRESH_PROOF_REFUSED')
    const twoFactorCode = appCode(secret)
    expect((await make(user, { twoFactorCode })).status).toBe(200)
    expect((await make(user, { twoFactorCode })).body.code).toBe('FRESH_PROOF_REFUSED')
    const [{ failures }] = await api.sql('select failures from "svc_TwoFactor" where "user_Id" = $1', [user.id])
    expect(failures).toBe(1)
  })

  it('may be the own passkey, once', async () => {
    const [user, other] = [await somebody(), await somebody()]
    const [sign, signOther] = [await withPasskey(user), await withPasskey(other)]
    expect((await make(user, {})).body.methods).toEqual(['currentPassword', 'passkey'])
    expect((await make(user, { passkey: await signOther() })).body.code).toBe('FRESH_PROOF_REFUSED')
    const passkey = await sign()
    expect((await make(user, { passkey })).status).toBe(200)
    for (const again of [passkey, {}, 'x', { challengeId: passkey.challengeId }])
      expect((await make(user, { passkey: again })).body.code).toBe('FRESH_PROOF_REFUSED')
  })

  it('is judged by one of them: a right one beside a wrong one is no second try', async () => {
    const user = await somebody()
    const secret = await withSecondFactor(user)
    const proof = { currentPassword: 'wrong', twoFactorCode: appCode(secret) }
    expect((await make(user, proof)).body.code).toBe('FRESH_PROOF_REFUSED')
  })

  it('of an account that has nothing to show begins with a password', async () => {
    const user = await somebody()
    await api.sql('update "svc_User" set password = null where id = $1', [user.id])
    const email = await plant(api, 'magic-link', user.email)
    const query = '?authMode=cookie'
    const entered = await api.anonymous('GET', `/auth/magiclink/${email}${query}`, undefined, { origin })
    const cookie = String(entered.headers['set-cookie']).split(';')[0]!
    const answer = await api.anonymous('POST', '/auth/keys', { name: 'Mine' }, { cookie, origin })
    expect(answer).toMatchObject({ status: 403, body: { code: 'FRESH_PROOF_REQUIRED', methods: [] } })
  })

  it('is what ending the second factor has always asked for', async () => {
    const user = await somebody()
    await withSecondFactor(user)
    expect((await user.browser('/auth/2fa/disable')).status).toBe(400)
    expect((await user.browser('/auth/2fa/disable', { password: 'wrong' })).status).toBe(401)
    expect((await user.browser('/auth/2fa/disable', { password })).body).toEqual({ disabled: true })
  })
})

describe('a browser with a session cookie that signs in', () => {
  it.each(['jwt', undefined] as const)(
    'gets no token by link, second factor or passkey, with authMode %s',
    async (authMode) => {
      const user = await somebody()
      const sign = await withPasskey(user)
      const headers = { cookie: user.cookie, origin }
      const query = authMode === undefined ? '' : `?authMode=${authMode}`
      const link = `/auth/magiclink/${await plant(api, 'magic-link', user.email)}${query}`
      const answers = [
        await api.anonymous('GET', link, undefined, headers),
        await api.anonymous('POST', '/auth/passkey/authenticate/verify', { ...(await sign()), authMode }, headers),
      ]
      const secret = await withSecondFactor(user)
      const { body } = await api.anonymous('POST', '/auth/login', { email: user.email, password, authMode })
      const code = appCode(secret)
      const challenge = { twoFactorToken: body.twoFactorToken, code, authMode }
      answers.push(await api.anonymous('POST', '/auth/2fa/verify', challenge, headers))
      for (const answer of answers) {
        expect(answer).toMatchObject({ status: 200, body: { authMode: 'cookie', user: { id: user.id } } })
        const token = String(answer.headers['set-cookie']).split(';')[0]!.split('=')[1]!
        expect((await api.as(token)('GET', '/auth/check')).body.user.id).toBe(user.id)
        expect(answer.body).not.toHaveProperty('token')
        expect(answer.text).not.toContain(token)
      }
    },
  )
})
