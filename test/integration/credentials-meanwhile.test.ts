import { beforeAll, describe, expect, it } from 'vitest'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { plant } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { openAuthenticator } from '../support/authenticator.ts'
import { inTurn as requestsInTurn } from '../support/in-turn.ts'
import { appCode } from '../support/totp.ts'

const origin = 'https://app.example.com'
const rpId = 'example.com'
const password = 'password of a user'

let api: Api
beforeAll(async () => {
  api = await startApi({
    AUTH_APP_URL: origin,
    AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY',
    ALLOW_PASSWORD_WRITES: 'true',
    AUTH_RATE_LIMIT_DISABLED: 'true',
    PASSKEY_RP_ID: rpId,
    PASSKEY_RP_NAME: 'Example',
    PASSKEY_ORIGIN: origin,
  })
})

const writesItself = [
  { collection: 'svc_User', action: 'read', fields: ['*'] },
  { collection: 'svc_User', action: 'update', fields: ['password'] },
]

/** A user whose address was never proven: a stranger may have set it up. */
async function unproven() {
  const user = await api.user(writesItself)
  await api.sql('update "svc_User" set "emailVerified" = false where id = $1', [user.id])
  return user
}

type User = Awaited<ReturnType<typeof unproven>>

/** What one request does while the next, which was checked before, waits for the account. */
const inTurn = (user: User, requests: readonly (() => Promise<Answer>)[]) =>
  requestsInTurn(api, { table: 'svc_User', id: user.id }, requests)

const story = async (after: bigint) => {
  await afterwardsDone(api.runtime)
  return (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
}

/** Everything that opens an account or guards it. */
const credentialsOf = async ({ id }: User) => {
  const [row] = await api.sql(
    `select (select password from "svc_User" where id = $1),
       (select count(*)::int from "svc_ApiKey" where "user_Id" = $1) as keys,
       (select count(*)::int from "svc_Passkey" where "user_Id" = $1) as passkeys,
       (select count(*)::int from "svc_TwoFactor" where "user_Id" = $1) as factors,
       (select count(*)::int from "svc_Challenge" where "user_Id" = $1) as challenges`,
    [id],
  )
  return row
}

/** Has everything ready that the request needs; gives the request. */
type Maker = (user: User) => Promise<() => Promise<Answer>>

const makers: Record<string, Maker> = {
  'an API key':
    async ({ call }) =>
    () =>
      call('POST', '/auth/keys', { name: 'Mine', currentPassword: password }),
  'the challenge of a passkey':
    async ({ call }) =>
    () =>
      call('POST', '/auth/passkey/register/options', { currentPassword: password }),
  'a passkey': async ({ call }) => {
    const options = (await call('POST', '/auth/passkey/register/options')).body
    const response = openAuthenticator({ origin, rpId }).register(options)
    return () => call('POST', '/auth/passkey/register/verify', { response })
  },
  'the secret of a second factor':
    async ({ call }) =>
    () =>
      call('POST', '/auth/2fa/enable', { currentPassword: password }),
  'a second factor': async ({ call }) => {
    const { secret } = (await call('POST', '/auth/2fa/enable')).body
    return () => call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })
  },
  'another password':
    async ({ call }) =>
    () =>
      call('POST', '/auth/password/change', { currentPassword: password, newPassword: 'of the stranger' }),
  'another password by its row':
    async ({ call, id }) =>
    () =>
      call('PATCH', `/items/svc_User/${id}`, { password: 'of the stranger' }),
  'another address':
    async ({ call, id }) =>
    () =>
      call('POST', '/auth/email/change', { email: `stranger-${id}@example.com`, currentPassword: password }),
}

describe.each(Object.entries(makers))('a request under way that gives the account %s', (_what, make) => {
  it('leaves nothing to an account whose owner takes it over meanwhile', async () => {
    const user = await unproven()
    const request = await make(user)
    const secret = await plant(api, 'magic-link', user.email)
    const [takeover, answer] = await inTurn(user, [() => api.anonymous('GET', `/auth/magiclink/${secret}`), request])
    expect(takeover).toMatchObject({ status: 200 })
    expect(answer).toMatchObject({ status: 401 })
    expect(await credentialsOf(user)).toEqual({ password: null, keys: 0, passkeys: 0, factors: 0, challenges: 0 })
  })

  it('leaves nothing to an account that is suspended meanwhile', async () => {
    const user = await unproven()
    const request = await make(user)
    const before = await credentialsOf(user)
    const [suspension, answer] = await inTurn(user, [
      () => api.admin('PATCH', `/items/svc_User/${user.id}`, { status: 'suspended' }),
      request,
    ])
    expect(suspension).toMatchObject({ status: 200 })
    expect(answer).toMatchObject({ status: 401 })
    expect(await credentialsOf(user)).toMatchObject({ password: before.password, keys: 0, passkeys: 0 })
    const enabled = await api.sql('select from "svc_TwoFactor" where "user_Id" = $1 and enabled', [user.id])
    expect(enabled).toEqual([])
  })

  it('is refused, with nothing in the log, once its session has ended', async () => {
    const user = await unproven()
    const request = await make(user)
    const before = await credentialsOf(user)
    // A passkey that answers its challenge uses it up, whatever becomes of it.
    const known = { password: before.password, keys: 0, passkeys: 0, factors: before.factors }
    const position = await api.position()
    const ended = () => api.admin('DELETE', `/auth/admin/users/${user.id}/sessions`)
    const [answer, others] = await inTurn(user, [request, ended])
    expect(others).toMatchObject({ status: 200 })
    expect(answer).toMatchObject({ status: 401 })
    expect(await credentialsOf(user)).toMatchObject(known)
    expect((await story(position)).filter((line) => !/session|Session/.test(line))).toEqual([])
    expect(await api.jobs('mail')).toEqual([])
  })
})

describe('a request under way with a proof of identity', () => {
  it('makes no API key by the password of before', async () => {
    const user = await api.user()
    const change = { currentPassword: password, newPassword: 'another password' }
    const [changed, key] = await inTurn(user, [
      () => user.call('POST', '/auth/password/change', change),
      () => user.call('POST', '/auth/keys', { name: 'Mine', currentPassword: password }),
    ])
    expect(changed).toMatchObject({ status: 200 })
    expect(key).toMatchObject({ status: 403, body: { code: 'FRESH_PROOF_REFUSED' } })
    expect(await credentialsOf(user)).toMatchObject({ keys: 0 })
  })

  it('still makes no more keys than there may be', async () => {
    const user = await api.user()
    await api.sql(
      `insert into "svc_ApiKey" (name, "user_Id", hash, hint) select 'k', $1, 'hash ' || i, 'hint' from generate_series(1, 49) i`,
      [user.id],
    )
    const one = () => user.call('POST', '/auth/keys', { name: 'Mine' })
    const answers = await inTurn(user, [one, one])
    expect(answers.map(({ status }) => status)).toEqual([200, 400])
    expect(await credentialsOf(user)).toMatchObject({ keys: 50 })
  })
})
