import { beforeAll, describe, expect, it } from 'vitest'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { type Api, startApi } from '../support/api.ts'
import { type Lies, openAuthenticator } from '../support/authenticator.ts'
import { configured } from '../support/configured.ts'
import { appCode } from '../support/totp.ts'

const origin = 'https://app.example.com'
const rpId = 'example.com'
const services = {
  AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY',
  PASSKEY_RP_ID: rpId,
  PASSKEY_RP_NAME: 'Example',
  PASSKEY_ORIGIN: `${origin},https://other.example.com`,
}
const notRegistered = {
  status: 401,
  body: { message: 'Passkey registration failed', code: 'INVALID_PASSKEY_RESPONSE' },
}
const notAuthenticated = {
  status: 401,
  body: { message: 'Passkey authentication failed', code: 'INVALID_PASSKEY_RESPONSE' },
}

let api: Api
beforeAll(async () => {
  api = await startApi(services)
})

const story = async (after: bigint) => {
  await afterwardsDone(api.runtime)
  return (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
}
const ask = async () => (await api.anonymous('POST', '/auth/passkey/authenticate/options')).body
const open = (challengeId: string, response: unknown, more: object = {}) =>
  api.anonymous('POST', '/auth/passkey/authenticate/verify', { challengeId, response, ...more })
const sessionsOf = (id: string) => api.sql('select type from "svc_Sessions" where "user_Id" = $1', [id])

/** A user with a passkey and no sessions but the one that made it. */
async function owner(counts = true) {
  const user = await api.user()
  const authenticator = openAuthenticator({ origin, rpId, counts })
  const options = (await user.call('POST', '/auth/passkey/register/options')).body
  const response = authenticator.register(options)
  const { status, body } = await user.call('POST', '/auth/passkey/register/verify', { response, name: ' My key ' })
  expect(status).toBe(200)
  const signIn = async (lies: Lies = {}, more: object = {}) => {
    const { options, challengeId } = await ask()
    return open(challengeId, authenticator.sign(options, lies), more)
  }
  return { ...user, authenticator, passkeyId: body.passkey.id as string, signIn }
}

describe('registering', () => {
  it('asks the browser for a key and keeps the passkey', async () => {
    const user = await api.user()
    const before = await api.position()
    const { status, body: options } = await user.call('POST', '/auth/passkey/register/options')
    expect(status).toBe(200)
    expect(options).toMatchObject({
      rp: { id: rpId, name: 'Example' },
      user: { id: Buffer.from(user.id).toString('base64url'), name: user.email },
      attestation: 'none',
      authenticatorSelection: { residentKey: 'preferred', userVerification: 'preferred' },
      excludeCredentials: [],
    })
    expect(options.pubKeyCredParams.map(({ alg }: { alg: number }) => alg)).toEqual([-8, -7, -257])
    const authenticator = openAuthenticator({ origin, rpId })
    const response = authenticator.register(options)
    const verified = await user.call('POST', '/auth/passkey/register/verify', { response, name: ' My key ' })
    expect(verified).toMatchObject({ status: 200 })
    expect(verified.body).toEqual({ verified: true, passkey: { id: expect.any(String), name: 'My key' } })
    expect(await story(before)).toEqual(['svc_Passkey create', 'svc_User passkey_added'])
    expect((await user.call('GET', '/auth/passkey')).body).toEqual({
      passkeys: [
        {
          id: verified.body.passkey.id,
          name: 'My key',
          deviceType: 'singleDevice',
          backedUp: false,
          createdAt: expect.stringMatching(/^\d{4}-.+\.\d{3}Z$/),
          lastUsedAt: null,
        },
      ],
    })
    const again = (await user.call('POST', '/auth/passkey/register/options')).body
    expect(again.excludeCredentials).toEqual([{ id: authenticator.credentialId, type: 'public-key' }])
    const { body } = await api.admin('GET', `/items/svc_Passkey/${verified.body.passkey.id}`)
    for (const hidden of ['credentialID', 'publicKey', 'counter']) expect(body.data).not.toHaveProperty(hidden)
  })

  it.each<[string, Lies]>([
    ['another origin', { origin: 'https://evil.test' }],
    ['an origin that only looks alike', { origin: 'https://app.example.com.evil.test' }],
    ['another relying party', { rpId: 'evil.test' }],
    ['another challenge', { challenge: Buffer.from('guessed').toString('base64url') }],
    ['the answer to another question', { type: 'webauthn.get' }],
    ['nobody present', { present: false }],
  ])('refuses %s', async (_what, lies) => {
    const user = await api.user()
    const options = (await user.call('POST', '/auth/passkey/register/options')).body
    const authenticator = openAuthenticator({ origin, rpId })
    const before = await api.position()
    const verify = (response: object) => user.call('POST', '/auth/passkey/register/verify', { response })
    expect(await verify(authenticator.register(options, lies))).toMatchObject(notRegistered)
    // The challenge is used up, so the truth comes too late.
    expect(await verify(authenticator.register(options))).toMatchObject(notRegistered)
    expect(await story(before)).toEqual([])
  })

  it('takes a challenge once, in time, and only from the user it was given to', async () => {
    const [user, other] = [await api.user(), await api.user()]
    const verify = (who: typeof user, response: object) =>
      who.call('POST', '/auth/passkey/register/verify', { response })
    const begin = async (who: typeof user) => (await who.call('POST', '/auth/passkey/register/options')).body
    const options = await begin(user)
    await begin(other)
    const authenticator = openAuthenticator({ origin, rpId })
    expect(await verify(other, authenticator.register(options))).toMatchObject(notRegistered)
    const response = authenticator.register(options)
    const answers = await Promise.all([1, 2, 3, 4].map(() => verify(user, response)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401])
    const late = await begin(user)
    await api.sql(`update "svc_Challenge" set "expiresAt" = now() where "user_Id" = $1`, [user.id])
    expect(await verify(user, openAuthenticator({ origin, rpId }).register(late))).toMatchObject(notRegistered)
  })

  it('refuses a passkey that a user has already', async () => {
    const { authenticator } = await owner()
    const thief = await api.user()
    const options = (await thief.call('POST', '/auth/passkey/register/options')).body
    const response = authenticator.register(options)
    expect(await thief.call('POST', '/auth/passkey/register/verify', { response })).toMatchObject(notRegistered)
    expect((await thief.call('GET', '/auth/passkey')).body.passkeys).toEqual([])
  })
})

describe('signing in', () => {
  it('opens the session that is asked for', async () => {
    const user = await owner()
    const before = await api.position()
    const { options, challengeId } = await ask()
    expect(options).toMatchObject({ rpId, userVerification: 'preferred' })
    expect(options.allowCredentials ?? []).toEqual([])
    expect(challengeId).toMatch(/^[0-9a-f]{64}$/)
    const response = user.authenticator.sign(options)
    const opened = await open(challengeId, response, { authType: 'mobile', authMode: 'cookie' })
    expect(opened).toMatchObject({ status: 200, body: { authMode: 'cookie', user: { id: user.id } } })
    expect(opened.headers['set-cookie']).toMatch(/^token_\w{8}=/)
    expect(opened.body.token).toBeUndefined()
    expect((await sessionsOf(user.id)).map(({ type }) => type)).toContain('mobile')
    expect(await story(before)).toEqual(['svc_User login'])
    expect(await api.jobs('mail')).toEqual([])
    expect((await user.call('GET', '/auth/passkey')).body.passkeys[0].lastUsedAt).toEqual(expect.any(String))
  })

  it.each<[string, Lies]>([
    ['another origin', { origin: 'https://evil.test' }],
    ['another relying party', { rpId: 'evil.test' }],
    ['another challenge', { challenge: Buffer.from('guessed').toString('base64url') }],
    ['the answer to another question', { type: 'webauthn.create' }],
    ['nobody present', { present: false }],
    ['another user as owner', { userHandle: Buffer.from('somebody else').toString('base64url') }],
  ])('refuses %s', async (_what, lies) => {
    const user = await owner()
    await user.signIn()
    const before = await api.position()
    expect(await user.signIn(lies)).toMatchObject(notAuthenticated)
    expect(await story(before)).toEqual(['svc_User login_failed'])
    expect((await user.signIn({ userHandle: null })).status).toBe(200)
  })

  it('refuses a signature of another passkey, and one of no known passkey', async () => {
    const [user, other] = [await owner(), await owner()]
    const stranger = openAuthenticator({ origin, rpId })
    const forged = await ask()
    const response = other.authenticator.sign(forged.options, { credentialId: user.authenticator.credentialId })
    expect(await open(forged.challengeId, response)).toMatchObject(notAuthenticated)
    const unknown = await ask()
    expect(await open(unknown.challengeId, stranger.sign(unknown.options))).toMatchObject(notAuthenticated)
  })

  it('refuses ids that none can have like any other', async () => {
    const { authenticator } = await owner()
    for (const id of ['a\0b', '', 'ü', 'x'.repeat(10_000), 7]) {
      const { options, challengeId } = await ask()
      const position = await api.position()
      expect(await open(challengeId, { ...authenticator.sign(options), id })).toMatchObject(notAuthenticated)
      expect(await story(position)).toEqual([])
    }
    expect(await open('a\0b', authenticator.sign((await ask()).options))).toMatchObject(notAuthenticated)
  })

  it('takes a challenge once and in time', async () => {
    const user = await owner()
    const { options, challengeId } = await ask()
    const responses = [1, 2, 3, 4].map(() => user.authenticator.sign(options))
    const answers = await Promise.all(responses.map((response) => open(challengeId, response)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401])
    expect(await open(challengeId, user.authenticator.sign(options))).toMatchObject(notAuthenticated)
    const late = await ask()
    await api.sql(`update "svc_Challenge" set "expiresAt" = now() where identifier like 'passkey:auth:%'`)
    expect(await open(late.challengeId, user.authenticator.sign(late.options))).toMatchObject(notAuthenticated)
    const other = await ask()
    expect(await open(other.challengeId, user.authenticator.sign(options))).toMatchObject(notAuthenticated)
  })

  it('refuses a counter that did not grow', async () => {
    const user = await owner()
    expect((await user.signIn({ counter: 10 })).status).toBe(200)
    for (const counter of [10, 9, 0]) expect(await user.signIn({ counter })).toMatchObject(notAuthenticated)
    expect((await user.signIn({ counter: 11 })).status).toBe(200)
  })

  it('takes simultaneous uses with one counter as one use', async () => {
    const user = await owner()
    const asked = await Promise.all([ask(), ask(), ask()])
    const answers = await Promise.all(
      asked.map(({ options, challengeId }) => open(challengeId, user.authenticator.sign(options, { counter: 7 }))),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401])
  })

  it('works with authenticators that do not count', async () => {
    const user = await owner(false)
    expect((await user.signIn()).status).toBe(200)
    expect((await user.signIn()).status).toBe(200)
  })

  it('asks for no second factor, but for a verified user where there is one', async () => {
    const user = await owner()
    expect((await user.signIn({ verified: false })).status).toBe(200)
    const { secret } = (await user.call('POST', '/auth/2fa/enable')).body
    await user.call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
    expect(await user.signIn({ verified: false })).toMatchObject(notAuthenticated)
    expect((await user.signIn()).body.token).toEqual(expect.any(String))
  })

  it('tells nothing about an account that is not active', async () => {
    const user = await owner()
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [user.id])
    expect(await user.signIn()).toMatchObject(notAuthenticated)
  })

  it('ends with the passkey', async () => {
    const user = await owner()
    const other = await owner()
    const remove = (id: string) => user.call('DELETE', `/auth/passkey/${id}`)
    for (const id of [other.passkeyId, 'none', '%27', crypto.randomUUID()])
      expect(await remove(id)).toMatchObject({ status: 404, body: { message: 'Passkey not found' } })
    const before = await api.position()
    expect(await remove(user.passkeyId.toUpperCase())).toMatchObject({ status: 200, body: { deleted: true } })
    expect(await story(before)).toEqual(['svc_Passkey delete', 'svc_User passkey_removed'])
    expect(await user.signIn()).toMatchObject(notAuthenticated)
    expect((await other.signIn()).status).toBe(200)
  })
})

describe('incomplete configurations', () => {
  it('is refused', async () => {
    const user = await owner()
    const { challengeId } = await ask()
    const both = 'challengeId and response are required'
    for (const [call, method, path, body, status, message] of [
      [api.anonymous, 'POST', '/auth/passkey/register/options', {}, 401, 'Unauthorized'],
      [api.anonymous, 'POST', '/auth/passkey/register/verify', {}, 401, 'Unauthorized'],
      [api.anonymous, 'GET', '/auth/passkey', undefined, 401, 'Unauthorized'],
      [api.anonymous, 'DELETE', `/auth/passkey/${user.passkeyId}`, undefined, 401, 'Unauthorized'],
      [user.call, 'POST', '/auth/passkey/register/verify', {}, 400, 'response is required'],
      [user.call, 'POST', '/auth/passkey/register/verify', { response: [] }, 400, 'response is required'],
      [user.call, 'POST', '/auth/passkey/register/verify', { response: {} }, 401, 'Passkey registration failed'],
      [api.anonymous, 'POST', '/auth/passkey/authenticate/verify', { challengeId }, 400, both],
      [api.anonymous, 'POST', '/auth/passkey/authenticate/verify', { response: {} }, 400, both],
      [
        api.anonymous,
        'POST',
        '/auth/passkey/authenticate/verify',
        { challengeId, response: { id: user.authenticator.credentialId, response: 7 } },
        401,
        'Passkey authentication failed',
      ],
      [
        api.anonymous,
        'POST',
        '/auth/passkey/authenticate/verify',
        { challengeId, response: {}, authType: 'x' },
        403,
        "Invalid session type. Must be 'mobile' or 'web'",
      ],
    ] as const) {
      const answer = await call(method, path, body)
      expect([path, answer.status, answer.body.message]).toEqual([path, status, message])
    }
  })

  it('configured is not there', async () => {
    const { token } = await api.user()
    for (const missing of ['PASSKEY_RP_ID', 'PASSKEY_RP_NAME', 'PASSKEY_ORIGIN']) {
      const { [missing]: _left, ...env } = services as Record<string, string>
      const app = await configured(api.database, env)
      const headers = { authorization: `Bearer ${token}` }
      for (const [method, url] of [
        ['POST', '/auth/passkey/register/options'],
        ['POST', '/auth/passkey/register/verify'],
        ['POST', '/auth/passkey/authenticate/options'],
        ['POST', '/auth/passkey/authenticate/verify'],
        ['GET', '/auth/passkey'],
        ['DELETE', '/auth/passkey/x'],
      ] as const) {
        for (const by of [headers, {}]) {
          const answer = await app.inject({ method, url, headers: by })
          expect([answer.statusCode, answer.json().code]).toEqual([400, 'PASSKEY_NOT_ENABLED'])
        }
      }
      expect((await app.inject({ url: '/' })).json().data.auth.passkey).toBe(false)
    }
    expect((await api.anonymous('GET', '/')).body.data.auth.passkey).toBe(true)
  })
})
