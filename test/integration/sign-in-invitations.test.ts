import { beforeAll, expect, it } from 'vitest'
import { hashSecret, newSecret } from '../../src/adapters/tokens.ts'
import { factsSince, password, plant } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { openAuthenticator } from '../support/authenticator.ts'
import { type OpenId, startOpenId, visit } from '../support/openid.ts'
import { createRole, createTenant, createUser, type TenantUser } from '../support/tenants.ts'
import { appCode } from '../support/totp.ts'

const app = 'https://app.example.com'
const base = 'http://api.example.test'
const client = { clientId: 'daybook', clientSecret: 'a secret of the client, for tests' }
const over = { status: 400, body: { message: 'Invalid or expired invitation' } }
const homeless = { status: 403, body: { message: 'No role is assigned to this account' } }

let openId: OpenId
let api: Api
let tenant: string
let role: string
let manager: TenantUser

beforeAll(async () => {
  openId = await startOpenId({ ...client, redirectUris: [`${base}/auth/callback/google`] })
  api = await startApi({
    ...{ MULTI_TENANT: 'true', AUTH_APP_URL: app, BASE_URL: base },
    AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY,GOOGLE',
    ...{ PASSKEY_RP_ID: 'example.com', PASSKEY_RP_NAME: 'Example', PASSKEY_ORIGIN: app },
    ...{ GOOGLE_CLIENT_ID: client.clientId, GOOGLE_CLIENT_SECRET: client.clientSecret, GOOGLE_ISSUER: openId.issuer },
    ...{ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', AUTH_RATE_LIMIT_DISABLED: 'true' },
  })
  tenant = await createTenant(api, 'Acme')
  role = await createRole(api)
  manager = await createUser(api, await createRole(api, { canInviteRoleIds: [role] }), tenant)
})

/** An invitation of the address, and the token that its mail has. */
async function invited(email: string) {
  const { status, body } = await manager.call('POST', '/auth/invite', { email, role_Id: role })
  expect(status).toBe(200)
  const token = newSecret()
  await api.sql('update "svc_Invite" set token = $1 where id = $2', [hashSecret(token), body.invite.id])
  return { id: body.invite.id as string, token }
}

/** A member, whom `prepare` may give something to sign in with, loses the only role and is invited again. */
async function removed(prepare: (user: TenantUser) => Promise<void> = async () => undefined) {
  const user = await createUser(api, role, tenant)
  await prepare(user)
  expect((await api.admin('DELETE', `/items/svc_UserRole/${user.userRoleId}`)).status).toBe(200)
  const { id: inviteId, token: inviteToken } = await invited(user.email)
  return { user, inviteId, inviteToken }
}

const login = (email: string, more: object = {}) => api.anonymous('POST', '/auth/login', { email, password, ...more })
const stateOf = async (id: string) =>
  (await api.sql('select status, "acceptedBy_Id" from "svc_Invite" where id = $1', [id]))[0]
const rolesOf = (id: string) => api.sql('select "role_Id", "tenant_Id" from "svc_UserRole" where "user_Id" = $1', [id])

async function expectBack(user: TenantUser, inviteId: string, answer: Answer) {
  expect(answer).toMatchObject({
    status: 200,
    body: { user: { email: user.email }, role: { id: role }, tenant: { id: tenant, name: 'Acme' } },
  })
  expect(await rolesOf(user.id)).toEqual([{ role_Id: role, tenant_Id: tenant }])
  expect(await stateOf(inviteId)).toEqual({ status: 'accepted', acceptedBy_Id: user.id })
  expect((await api.as(answer.body.token)('GET', '/auth/tenants')).body.tenants).toHaveLength(1)
}

it('accepts it by password, once, and says so in the log', async () => {
  const { inviteId, inviteToken, user } = await removed()
  expect(await login(user.email)).toMatchObject(homeless)
  const before = await api.position()
  const answer = await login(user.email, { inviteToken })
  await expectBack(user, inviteId, answer)
  expect(await factsSince(api, before)).toEqual([
    ...['svc_Invite update', 'svc_UserRole create'],
    ...['svc_User invite_accepted', 'svc_User login'],
  ])
  expect(await login(user.email, { inviteToken })).toMatchObject(over)
  expect((await login(user.email)).body.tenant).toMatchObject({ id: tenant })
})

it('accepts it where an administrator has deleted the only tenant of the account', async () => {
  const gone = await createTenant(api, 'Gone')
  const user = await createUser(api, role, gone)
  expect((await api.admin('DELETE', `/items/svc_Tenant/${gone}`)).status).toBe(200)
  expect(await login(user.email)).toMatchObject(homeless)
  const { id, token } = await invited(user.email)
  await expectBack(user, id, await login(user.email, { inviteToken: token }))
})

it('leads a member of another tenant to the one of the invitation', async () => {
  const user = await createUser(api, role, await createTenant(api, 'Elsewhere'))
  const { token } = await invited(user.email)
  expect((await login(user.email, { inviteToken: token })).body.tenant).toMatchObject({ id: tenant })
  expect(await rolesOf(user.id)).toHaveLength(2)
})

it('proves nothing by itself: the password comes first, and the address must be the invited one', async () => {
  const { inviteId, inviteToken, user } = await removed()
  const before = await api.position()
  const body = { email: user.email, inviteToken }
  const wrong = { status: 400, body: { message: 'Incorrect password.' } }
  expect(await api.anonymous('POST', '/auth/login', { ...body, password: 'not the password' })).toMatchObject(wrong)
  const unknown = { ...body, password: 'not the password', inviteToken: newSecret() }
  expect(await api.anonymous('POST', '/auth/login', unknown)).toMatchObject(wrong)
  expect((await api.anonymous('POST', '/auth/accept-invite', { inviteToken })).status).toBe(401)
  const stranger = await createUser(api, role, tenant)
  expect(await login(stranger.email, { inviteToken })).toMatchObject({
    status: 403,
    body: { message: "The email address doesn't match the invitation" },
  })
  expect(await login(user.email, { inviteToken: newSecret() })).toMatchObject(over)
  expect(await stateOf(inviteId)).toMatchObject({ status: 'pending' })
  expect(await factsSince(api, before)).not.toContain('svc_User invite_accepted')
})

it('refuses one that was revoked or has expired, and one of a member', async () => {
  const first = await removed()
  await api.admin('PATCH', `/items/svc_Invite/${first.inviteId}`, { status: 'revoked' })
  expect(await login(first.user.email, { inviteToken: first.inviteToken })).toMatchObject(over)
  const second = await removed()
  await api.sql(`update "svc_Invite" set "expiresAt" = now() where id = $1`, [second.inviteId])
  expect(await login(second.user.email, { inviteToken: second.inviteToken })).toMatchObject(over)
  expect(await stateOf(second.inviteId)).toMatchObject({ status: 'expired' })
  const third = await removed()
  const insert = 'insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)'
  await api.sql(insert, [third.user.id, role, tenant])
  expect(await login(third.user.email, { inviteToken: third.inviteToken })).toMatchObject({
    status: 400,
    body: { message: 'User is already a member of this tenant' },
  })
  expect(await stateOf(third.inviteId)).toMatchObject({ status: 'pending' })
})

it('is accepted once of 10 at the same time', async () => {
  const { inviteToken, user } = await removed()
  const answers = await Promise.all(Array.from({ length: 10 }, () => login(user.email, { inviteToken })))
  expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(9).fill(400)])
  expect(await rolesOf(user.id)).toHaveLength(1)
})

it('accepts it by a magic link, which stays good where it is refused', async () => {
  const { inviteId, inviteToken, user } = await removed()
  const link = await plant(api, 'magic-link', user.email)
  const open = (query: string) => api.anonymous('GET', `/auth/magiclink/${link}${query}`)
  expect(await open('')).toMatchObject(homeless)
  expect(await open(`?inviteToken=${newSecret()}`)).toMatchObject(over)
  await expectBack(user, inviteId, await open(`?inviteToken=${inviteToken}`))
})

it('accepts it only once the second factor was shown', async () => {
  let secret = ''
  const { inviteId, inviteToken, user } = await removed(async ({ call, id }) => {
    secret = (await call('POST', '/auth/2fa/enable')).body.secret
    expect((await call('POST', '/auth/2fa/verify-setup', { code: appCode(secret) })).status).toBe(200)
    await api.sql('update "svc_TwoFactor" set "lastStep" = null where "user_Id" = $1', [id])
  })
  const { body } = await login(user.email, { inviteToken })
  expect(body).toMatchObject({ twoFactorRequired: true })
  expect(await stateOf(inviteId)).toMatchObject({ status: 'pending' })
  const verify = (code: string) =>
    api.anonymous('POST', '/auth/2fa/verify', { twoFactorToken: body.twoFactorToken, code })
  expect((await verify('000000x')).status).toBe(401)
  expect(await rolesOf(user.id)).toEqual([])
  await expectBack(user, inviteId, await verify(appCode(secret)))
})

it('accepts it by a passkey', async () => {
  const authenticator = openAuthenticator({ origin: app, rpId: 'example.com' })
  const { inviteId, inviteToken, user } = await removed(async ({ call }) => {
    const options = (await call('POST', '/auth/passkey/register/options')).body
    const response = authenticator.register(options)
    expect((await call('POST', '/auth/passkey/register/verify', { response })).status).toBe(200)
  })
  const open = async (more: object) => {
    const { options, challengeId } = (await api.anonymous('POST', '/auth/passkey/authenticate/options')).body
    const body = { challengeId, response: authenticator.sign(options), ...more }
    return api.anonymous('POST', '/auth/passkey/authenticate/verify', body)
  }
  expect(await open({})).toMatchObject(homeless)
  await expectBack(user, inviteId, await open({ inviteToken }))
})

it('accepts it by a provider', async () => {
  const { inviteId, inviteToken, user } = await removed()
  openId.accounts.set('removed', { email: user.email, email_verified: true, name: 'Grace' })
  const signIn = async (more: object) => {
    const begun = await api.anonymous('POST', '/auth/social/signin', { provider: 'google', ...more })
    if (begun.status !== 200) return begun
    const { pathname, search } = await visit(begun.body.url, 'removed')
    return api.anonymous('GET', pathname + search)
  }
  expect(await signIn({})).toMatchObject(homeless)
  expect(await signIn({ inviteToken: newSecret() })).toMatchObject(over)
  await expectBack(user, inviteId, await signIn({ inviteToken }))
})

it('is no way in without MULTI_TENANT', async () => {
  const single = await startApi()
  const user = await single.user()
  const body = { email: user.email, password, inviteToken: newSecret() }
  expect(await single.anonymous('POST', '/auth/login', body)).toMatchObject(over)
})
