import { beforeAll, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { hashSecret } from '../../src/adapters/tokens.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { sendMail } from '../support/mails.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'
import { untilAdmitted } from '../support/wait.ts'

const app = 'https://app.example.com'
const env = {
  MULTI_TENANT: 'true',
  AUTH_APP_URL: app,
  PUBLIC_REGISTRATION: 'false',
}

let smtp: SmtpDouble
let api: Api
/** A second web process on the same database. */
let other: Api
let tenant: string
let foreign: string
/** What members of `tenant` may invite to. */
let invitable: string
let inviterRole: string
let inviter: TenantUser
const mailer = openMailer()

beforeAll(async () => {
  smtp = await startSmtp()
  api = await startApi({ ...env, ...smtp.env })
  other = await startApi({ ...env, ...smtp.env }, api.database)
  ;[tenant, foreign] = [await createTenant(api, 'Acme'), await createTenant(api, 'Foreign')]
  invitable = await createRole(api)
  inviterRole = await createRole(api, { canInviteRoleIds: [invitable] })
  inviter = await createUser(api, inviterRole, tenant)
  return () => mailer.close()
})

let count = 0
const newEmail = () => `invited${++count}@example.com`
const person = (email: string) => ({ firstName: 'In', lastName: 'Vited', email, password: 'password of a user' })
const invite = (call: Call, email: string, more: object = {}) =>
  call('POST', '/auth/invite', { email, role_Id: invitable, link: app, ...more })
const statusOf = async (id: string) =>
  (await api.sql('select status from "svc_Invite" where id = $1', [id]))[0].status as string
const facts = async (after: bigint) => (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
const memberships = (userId: string) =>
  api.sql('select "role_Id", "tenant_Id" from "svc_UserRole" where "user_Id" = $1 order by "createdAt"', [userId])
const attempt = { id: 'test', retryCount: 0, retryLimit: 1, signal: new AbortController().signal }

/** Sends the mails that wait, as the mail worker does, and gives the token in the one to the address. */
async function mailedToken(email: string): Promise<string> {
  const waiting = await api.sql(`select id from "svc_EmailLog" where email = $1 and status = 'queued'`, [email])
  for (const { id } of waiting) await sendMail(api.runtime, mailer, id, attempt)
  const mail = smtp.accepted.findLast(({ recipients }) => recipients.includes(email))
  return /accept-invite\?token=([0-9a-f]{64})/.exec(mail?.text ?? '')![1]!
}

/** A pending invitation whose mail has arrived. */
async function invited(email = newEmail(), more: object = {}) {
  const { body } = await invite(inviter.call, email, more)
  return { id: body.invite.id as string, email, token: await mailedToken(email) }
}

const expired = (id: string) => api.sql(`update "svc_Invite" set "expiresAt" = now() where id = $1`, [id])
const over = { status: 400, body: { message: 'Invalid or expired invitation' } }

describe('POST /auth/invite', () => {
  it.each([
    ['somebody without an account', 'inviteNewUser', ''],
    ['somebody with one', 'inviteExistingUser', '&existing=true'],
  ])('mails %s a link, whose token is made when it is sent', async (_who, template, suffix) => {
    const email = suffix === '' ? newEmail() : (await createUser(api, invitable, foreign)).email
    const before = await api.position()
    const answer = await invite(inviter.call, ` ${email.toUpperCase()} `, { link: `${app}/` })
    expect(answer).toMatchObject({
      status: 200,
      body: {
        message: 'Invitation sent successfully',
        invite: { id: expect.any(String), email, status: 'pending', expiresAt: expect.stringMatching(/Z$/) },
      },
    })
    expect(Object.keys(answer.body.invite).sort()).toEqual(['email', 'expiresAt', 'id', 'status'])
    expect(await facts(before)).toEqual([
      'svc_Invite create',
      'svc_EmailLog create',
      'svc_User invite',
      'svc_EmailLog queued',
    ])
    const [mail] = await api.sql('select * from "svc_EmailLog" where email = $1', [email])
    expect(mail).toMatchObject({ templateName: template, status: 'queued', tenant_Id: tenant })
    expect((await api.jobs('mail')).map(({ data }) => data)).toContainEqual({ emailLogId: mail.id })

    const token = await mailedToken(email)
    const sent = smtp.accepted.findLast(({ recipients }) => recipients.includes(email))!
    expect(sent.subject).toBe('You are invited to Acme at Daybook')
    expect(sent.text).toContain(`${app}/accept-invite?token=${token}${suffix}`)
    const [row] = await api.sql(
      `select token, "invitedBy_Id", "role_Id", "tenant_Id", "expiresAt" - now() > interval '6 days 23 hours' as week from "svc_Invite" where id = $1`,
      [answer.body.invite.id],
    )
    expect(row).toEqual({
      token: hashSecret(token),
      invitedBy_Id: inviter.id,
      role_Id: invitable,
      tenant_Id: tenant,
      week: true,
    })
    const stored = JSON.stringify(
      await api.sql(
        'select to_jsonb(l) from "svc_AuditLog" l union all select to_jsonb(m) from "svc_EmailLog" m union all select to_jsonb(j) from pgboss.job j',
      ),
    )
    expect(stored).not.toContain(token)
  })

  it.each([
    ['no address', { email: undefined }, 400, 'Email and role_Id are required'],
    ['no role', { role_Id: undefined }, 400, 'Email and role_Id are required'],
    ['no address at all', { email: 'nobody' }, 400, 'Invalid email address'],
    ['a foreign link', { link: 'https://evil.test' }, 400, 'Invalid application URL'],
    ['a link with a user', { link: 'https://app.example.com@evil.test' }, 400, 'Invalid application URL'],
    ['a link that is no text', { link: [app] }, 400, 'Invalid application URL'],
    ['an unknown role', { role_Id: 'x' }, 403, 'You are not allowed to invite to this role'],
  ])('refuses %s', async (_what, more, status, message) => {
    const before = await api.position()
    expect(await invite(inviter.call, newEmail(), more)).toMatchObject({ status, body: { message } })
    expect(await api.log(before)).toEqual([])
  })

  it('gives only roles that the own role may invite to, at the own tenant', async () => {
    const [{ id: administrators }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    const [{ id: everybody }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    const reckless = await createRole(api, { canInviteRoleIds: [administrators, everybody] })
    const other = await createUser(api, reckless, tenant)
    const before = await api.position()
    for (const role_Id of [administrators, everybody, inviterRole])
      expect((await invite(other.call, newEmail(), { role_Id })).status).toBe(403)
    expect((await invite(inviter.call, newEmail(), { role_Id: inviterRole })).status).toBe(403)
    for (const tenant_Id of [foreign, 'x'])
      expect(await invite(inviter.call, newEmail(), { tenant_Id })).toMatchObject({
        status: 403,
        body: { message: 'Access denied for specified tenant' },
      })
    expect(await api.log(before)).toEqual([])
  })

  it('lets administrators name any role and tenant that exists', async () => {
    expect((await invite(api.admin, newEmail(), { tenant_Id: foreign, role_Id: inviterRole })).status).toBe(200)
    expect((await invite(api.admin, newEmail())).body).toEqual({
      message: 'tenant_Id is required',
      code: 'BAD_REQUEST',
    })
    for (const tenant_Id of ['x', invitable])
      expect(await invite(api.admin, newEmail(), { tenant_Id })).toMatchObject({
        status: 404,
        body: { message: 'Tenant not found' },
      })
    expect(await invite(api.admin, newEmail(), { tenant_Id: tenant, role_Id: tenant })).toMatchObject({
      status: 404,
      body: { message: 'Role not found' },
    })
  })

  it('knows a role that was made a moment ago, whose notification has not arrived', async () => {
    await api.sql('alter table "svc_Role" disable trigger svc_notify')
    const roles = [await createRole(api), await createRole(api)]
    await api.sql('alter table "svc_Role" enable trigger svc_notify')
    const { body } = await invite(api.admin, newEmail(), { tenant_Id: tenant, role_Id: roles[0] })
    expect(body).toMatchObject({ invite: { status: 'pending' } })
    const seen = await other.admin('POST', '/auth/preview', { role: roles[1] })
    expect(seen.status, seen.text).toBe(200)
  })

  it('invites an address once at a time, and members not at all', async () => {
    const email = newEmail()
    const answers = await Promise.all([1, 2, 3, 4].map((i) => invite((i % 2 ? api : other).as(inviter.token), email)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400, 400])
    const pending = { status: 400, body: { message: 'An invitation is already pending for this email' } }
    expect(await invite(inviter.call, email)).toMatchObject(pending)
    expect((await invite(api.admin, email, { tenant_Id: foreign })).status).toBe(200)
    const { id } = answers.find(({ status }) => status === 200)!.body.invite
    await expired(id)
    expect((await invite(inviter.call, email)).status).toBe(200)
    expect(await statusOf(id)).toBe('expired')
    expect(await invite(inviter.call, inviter.email)).toMatchObject({
      status: 400,
      body: { message: 'User is already a member of this tenant' },
    })
  })

  it('is not sent any more when it was revoked before', async () => {
    const email = newEmail()
    const { body } = await invite(inviter.call, email)
    const { status } = await api.admin('PATCH', `/items/svc_Invite/${body.invite.id}`, { status: 'revoked' })
    expect(status).toBe(200)
    const [{ id }] = await api.sql('select id from "svc_EmailLog" where email = $1', [email])
    await sendMail(api.runtime, mailer, id, attempt)
    expect(await api.sql('select status, "errorMessage" from "svc_EmailLog" where id = $1', [id])).toEqual([
      { status: 'failed', errorMessage: 'the invitation is over' },
    ])
  })
})

describe('GET /auth/verify-invite/{token}', () => {
  it('tells what it is about, and where to go on', async () => {
    const { token, email } = await invited()
    const role = api.runtime.access.current().roles.get(invitable)!
    const about = {
      ...{ valid: true, email, userExists: false, tenant: { id: tenant, name: 'Acme' } },
      role: { id: invitable, name: role.name },
    }
    expect((await api.anonymous('GET', `/auth/verify-invite/${token}`)).body).toEqual(about)
    const { body } = await api.anonymous('GET', `/auth/verify-invite/${token}?link=${encodeURIComponent(app)}`)
    expect(body.acceptUrl).toBe(`${app}/register?inviteToken=${token}&email=${encodeURIComponent(email)}`)
    const member = await createUser(api, invitable, foreign)
    const known = await invited(member.email)
    const second = await api.anonymous('GET', `/auth/verify-invite/${known.token}?link=${encodeURIComponent(app)}`)
    expect(second.body).toMatchObject({ userExists: true, acceptUrl: `${app}/login?inviteToken=${known.token}` })
    expect(await api.anonymous('GET', `/auth/verify-invite/${token}?link=https://evil.test`)).toMatchObject({
      status: 400,
      body: { message: 'Invalid application URL' },
    })
  })

  it.each([
    ['unknown', async () => 'f'.repeat(64)],
    ['no token', async () => 'x'],
    [
      'expired',
      async () => {
        const { id, token } = await invited()
        await expired(id)
        return token
      },
    ],
    [
      'revoked',
      async () => {
        const { id, token } = await invited()
        await api.admin('PATCH', `/items/svc_Invite/${id}`, { status: 'revoked' })
        return token
      },
    ],
  ])('answers 400 for one that is %s', async (_what, tokenOf) => {
    expect(await api.anonymous('GET', `/auth/verify-invite/${await tokenOf()}`)).toMatchObject({
      status: 400,
      body: { valid: false, message: 'Invalid or expired invitation' },
    })
  })
})

describe('POST /auth/accept-invite', () => {
  const accept = (call: Call, inviteToken: unknown, more: object = {}) =>
    call('POST', '/auth/accept-invite', { inviteToken, ...more })

  it('joins the tenant in its role, and goes on there with a new session', async () => {
    const user = await createUser(api, invitable, foreign)
    const { id, token } = await invited(user.email)
    const before = await api.position()
    const answer = await accept(user.call, token)
    expect(answer).toMatchObject({
      status: 200,
      body: {
        ...{ message: 'Invitation accepted successfully', authMode: 'jwt', permissions: [] },
        user: { id: user.id, email: user.email },
        role: { id: invitable },
        tenant: { id: tenant, name: 'Acme' },
      },
    })
    expect(await facts(before)).toEqual(['svc_Invite update', 'svc_UserRole create', 'svc_User invite_accepted'])
    expect(await memberships(user.id)).toEqual([
      { role_Id: invitable, tenant_Id: foreign },
      { role_Id: invitable, tenant_Id: tenant },
    ])
    expect(await statusOf(id)).toBe('accepted')
    for (const on of [other, api]) expect((await on.as(user.token)('GET', '/auth/check')).status).toBe(401)
    expect((await other.as(answer.body.token)('GET', '/auth/check')).status).toBe(200)
    expect(await accept(api.as(answer.body.token), token)).toMatchObject(over)
  })

  it('is for the invited address only', async () => {
    const { id, token } = await invited()
    const user = await createUser(api, invitable, foreign)
    expect(await accept(user.call, token)).toMatchObject({
      status: 403,
      body: { message: "The email address doesn't match the invitation" },
    })
    expect(await statusOf(id)).toBe('pending')
    expect(await memberships(user.id)).toHaveLength(1)
    expect(await accept(api.anonymous, token)).toMatchObject({ status: 401 })
  })

  it('works once of 20 at the same time', async () => {
    const user = await createUser(api, invitable, foreign)
    const { token } = await invited(user.email)
    const tries = Array.from({ length: 20 }, (_, i) => accept((i % 2 ? api : other).as(user.token), token))
    const answers = await Promise.all(tries)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    for (const { status } of answers.filter((one) => one.status !== 200)) expect([400, 401]).toContain(status)
    expect(await memberships(user.id)).toHaveLength(2)
    expect(await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [user.id])).toHaveLength(1)
  })

  it('marks one that has expired as that', async () => {
    const user = await createUser(api, invitable, foreign)
    const { id, token } = await invited(user.email)
    await expired(id)
    expect(await accept(user.call, token)).toMatchObject(over)
    expect(await statusOf(id)).toBe('expired')
    for (const wrong of [undefined, '', [token], 'x']) expect(await accept(user.call, wrong)).toMatchObject(over)
  })

  it('takes no other secret for an invitation, and no invitation for a session', async () => {
    const { token } = await invited()
    expect((await api.as(token)('GET', '/auth/check')).status).toBe(401)
    expect((await accept(inviter.call, inviter.token)).status).toBe(400)
  })
})

describe('POST /auth/register with an invitation', () => {
  const register = (email: string, inviteToken: unknown, more: object = {}, on: Api = api) =>
    on.anonymous('POST', '/auth/register', { ...person(email), inviteToken, ...more })

  it('is accepted while registration is closed; role and tenant come from the invitation only', async () => {
    const { id, email, token } = await invited()
    const before = await api.position()
    const answer = await register(email.toUpperCase(), token, {
      ...{ roleName: 'administrator', role_Id: inviterRole, tenant: { name: 'Mine' }, tenant_Id: foreign },
    })
    expect(answer).toMatchObject({
      status: 200,
      body: {
        message: 'User registered successfully',
        role: { id: invitable },
        tenant: { id: tenant, name: 'Acme' },
        user: { email },
      },
    })
    const { id: userId } = answer.body.user
    expect(await facts(before)).toEqual([
      'svc_User create',
      'svc_UserRole create',
      'svc_Invite update',
      'svc_User invite_accepted',
      'svc_User register',
      'svc_User login',
    ])
    expect(await memberships(userId)).toEqual([{ role_Id: invitable, tenant_Id: tenant }])
    expect(await api.sql('select "emailVerified" from "svc_User" where id = $1', [userId])).toEqual([
      { emailVerified: true },
    ])
    expect(await statusOf(id)).toBe('accepted')
    expect((await other.as(answer.body.token)('GET', '/auth/check')).status).toBe(200)
  })

  it('is refused for another address, and for an invitation that is over', async () => {
    const { id, email, token } = await invited()
    const before = await api.position()
    expect(await register(newEmail(), token)).toMatchObject({
      status: 400,
      body: { message: "The email address doesn't match the invitation" },
    })
    expect(await register(email, 'f'.repeat(64))).toMatchObject(over)
    expect(await api.log(before)).toEqual([])
    await expired(id)
    expect(await register(email, token)).toMatchObject(over)
    expect(await statusOf(id)).toBe('expired')
    expect(await register(email, undefined)).toMatchObject({ status: 403, body: { code: 'REGISTRATION_DISABLED' } })
    expect(await api.sql('select id from "svc_User" where email = $1', [email])).toEqual([])
  })

  it('works once of 20 at the same time, and leaves the invitation to users with an account', async () => {
    const { email, token } = await invited()
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => untilAdmitted(() => register(email, token, {}, i % 2 ? api : other))),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(19)
    const user = await createUser(api, invitable, foreign)
    const second = await invited(user.email)
    expect(await register(user.email, second.token)).toMatchObject({
      status: 400,
      body: { message: 'User already exists' },
    })
    expect(await statusOf(second.id)).toBe('pending')
  })
})

describe('POST /auth/register in multi-tenant mode', () => {
  const open = { MULTI_TENANT: 'true', AUTH_APP_URL: app }

  async function register(variables: Record<string, string>, body: object) {
    const web = await configured(api.database, { ...open, ...variables })
    const response = await web.inject({ method: 'POST', url: '/auth/register', payload: body })
    return { status: response.statusCode, body: response.json() }
  }

  it('creates a tenant with the account, in the default role or one of ALLOWED_ROLES_MULTI_TENANT', async () => {
    const owner = api.runtime.access.current().roles.get(inviterRole)!
    const before = await api.position()
    const first = await register({}, { ...person(newEmail()), tenant: { name: ' New Ltd ' } })
    expect(first).toMatchObject({ status: 200, body: { role: { name: 'user' }, tenant: { name: 'New Ltd' } } })
    expect(await facts(before)).toEqual([
      'svc_Tenant create',
      'svc_User create',
      'svc_UserRole create',
      'svc_User register',
      'svc_User login',
    ])
    expect((await memberships(first.body.user.id))[0].tenant_Id).toBe(first.body.tenant.id)
    const second = await register(
      { ALLOWED_ROLES_MULTI_TENANT: `x,${owner.name}` },
      { ...person(newEmail()), tenant: { name: 'Newer Ltd' }, roleName: owner.name },
    )
    expect(second).toMatchObject({ status: 200, body: { role: { id: inviterRole } } })
  })

  it.each([
    ['no tenant', { tenant: undefined }, 'Tenant information is required for registration in multi-tenant mode'],
    [
      'no name of one',
      { tenant: { name: ' ' } },
      'Tenant information is required for registration in multi-tenant mode',
    ],
    ['a name that is taken', { tenant: { name: 'Acme' } }, 'A tenant with this name already exists'],
    ['the role administrator', { roleName: 'administrator' }, 'Role is not allowed for multi-tenant registration'],
    ['the role public', { roleName: 'public' }, 'Role is not allowed for multi-tenant registration'],
    ['a role not listed', { roleName: 'user' }, 'Role is not allowed for multi-tenant registration'],
    ['a role that is listed but unknown', { roleName: 'x' }, 'Role is not allowed for multi-tenant registration'],
    ['a known address', { email: 'admin@example.com' }, 'User already exists'],
  ])('refuses %s, and leaves nothing behind', async (_what, more, message) => {
    const before = await api.position()
    const body = { ...person(newEmail()), tenant: { name: `Tenant ${newEmail()}` }, ...more }
    expect(await register({ ALLOWED_ROLES_MULTI_TENANT: 'x,public' }, body)).toEqual({
      status: 400,
      body: { message, code: 'BAD_REQUEST' },
    })
    expect(await api.log(before)).toEqual([])
  })
})

describe('POST /auth/register with a tenant and AUTH_GENERIC_RESPONSES', () => {
  it('answers alike for known and new addresses, also where the tenant’s name is taken, and leaves no tenant', async () => {
    const web = await configured(api.database, { ...env, PUBLIC_REGISTRATION: 'true', AUTH_GENERIC_RESPONSES: 'true' })
    const register = async (email: string, name: string) => {
      const payload = { ...person(email), tenant: { name } }
      const response = await web.inject({ method: 'POST', url: '/auth/register', payload })
      return [response.statusCode, response.json()]
    }
    const before = await api.position()
    const known = [await register('admin@example.com', 'Alike Ltd'), await register('admin@example.com', 'Acme')]
    expect(await api.log(before)).toEqual([])
    const fresh = [await register(newEmail(), 'Alike Ltd'), await register(newEmail(), 'Acme')]
    expect(known).toEqual(fresh)
    expect(fresh.map(([status]) => status)).toEqual([200, 400])
    expect(await api.sql(`select count(*)::int as n from "svc_Tenant" where name = 'Alike Ltd'`)).toEqual([{ n: 1 }])
  })
})

describe('GET /auth/tenants', () => {
  it("lists where the caller has a role, and nobody else's tenants", async () => {
    const user = await createUser(api, invitable, foreign)
    const [link] = await api.sql(
      'insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3) returning id',
      [user.id, inviterRole, tenant],
    )
    const { body } = await user.call('GET', '/auth/tenants')
    expect(body.tenants).toMatchObject([
      { id: foreign, name: 'Foreign', userRole_Id: user.userRoleId, role: { id: invitable, app_access: null } },
      { id: tenant, name: 'Acme', userRole_Id: link.id, role: { id: inviterRole } },
    ])
    expect(Object.keys(body.tenants[0].role).sort()).toEqual(['app_access', 'id', 'name'])
    expect((await api.admin('GET', '/auth/tenants')).body).toEqual({ tenants: [] })
  })
})

describe('POST /auth/switch-tenant', () => {
  const change = (call: Call, body: object) => call('POST', '/auth/switch-tenant', body)

  /** A member of both tenants, signed in at the foreign one, with the id of the other role assignment. */
  async function both() {
    const user = await createUser(api, invitable, foreign)
    const [link] = await api.sql(
      'insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3) returning id',
      [user.id, inviterRole, tenant],
    )
    return { ...user, there: link.id as string }
  }

  it.each([
    ['tenant', () => ({ tenant_Id: tenant })],
    ['role assignment', (there: string) => ({ userRole_Id: there })],
  ])('goes on there by %s; the old session ends at once', async (_what, bodyOf) => {
    const user = await both()
    const before = await api.position()
    const answer = await change(user.call, bodyOf(user.there))
    expect(answer).toMatchObject({
      status: 200,
      body: { authMode: 'jwt', tenant: { id: tenant }, role: { id: inviterRole }, userRole_Id: user.there },
    })
    expect(await facts(before)).toEqual(['svc_User tenant_switched'])
    for (const on of [other, api]) expect((await on.as(user.token)('GET', '/auth/check')).status).toBe(401)
    await grant(api, inviterRole, { collection: 'svc_User', action: 'read', fields: ['*'] })
    await other.runtime.access.reload()
    const me = await other.as(answer.body.token)('GET', '/auth/me')
    expect(me.body).toMatchObject({ tenant, role: { id: inviterRole } })
    await api.sql(`delete from "svc_Permission" where "role_Id" = $1`, [inviterRole])
    await api.runtime.access.reload()
  })

  it('hands the token over as a cookie where that is asked for', async () => {
    const user = await both()
    const { body, headers } = await change(user.call, { tenant_Id: tenant, authMode: 'cookie' })
    expect(body).not.toHaveProperty('token')
    expect(headers['set-cookie']).toMatch(/^token_\w{8}=/)
  })

  it('hands it over as the cookie to who came with one, whatever is asked for', async () => {
    const user = await both()
    const { headers: first } = await change(user.call, { tenant_Id: tenant, authMode: 'cookie' })
    const headers = { cookie: String(first['set-cookie']).split(';')[0]!, 'sec-fetch-site': 'same-origin' }
    const body = { tenant_Id: tenant, authMode: 'jwt' }
    const answer = await api.anonymous('POST', '/auth/switch-tenant', body, headers)
    expect(answer).toMatchObject({ status: 200, body: { authMode: 'cookie' } })
    expect(answer.body).not.toHaveProperty('token')
    const cookie = String(answer.headers['set-cookie']).split(';')[0]!
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie })).status).toBe(200)
    const claims = JSON.parse(Buffer.from(cookie.split('.')[1]!, 'base64url').toString())
    expect(claims).toMatchObject({ tenant_Id: tenant, userRole_Id: answer.body.userRole_Id })
  })

  it('keeps the type of the session, and counts the limit where another is asked for', async () => {
    const user = await both()
    await api.sql(`update "svc_User" set session_limits = '{"web":0,"mobile":1}' where id = $1`, [user.id])
    expect(await change(user.call, { tenant_Id: tenant, authType: 'web' })).toMatchObject({
      status: 403,
      body: { message: 'Web sessions are not allowed' },
    })
    expect((await user.call('GET', '/auth/check')).status).toBe(200)
    const first = await change(user.call, { tenant_Id: tenant, authType: 'mobile' })
    const second = await change(api.as(first.body.token), { tenant_Id: foreign })
    const third = await change(api.as(second.body.token), { tenant_Id: tenant, authType: 'mobile' })
    expect([first, second, third].map(({ status }) => status)).toEqual([200, 200, 200])
    const { body } = await api.as(third.body.token)('GET', '/auth/check')
    expect(body).toEqual({ valid: true, user: { id: user.id }, tenant: { id: tenant } })
    expect(await api.sql('select type from "svc_Sessions" where "user_Id" = $1', [user.id])).toEqual([
      { type: 'mobile' },
    ])
  })

  it('works once of 10 at the same time', async () => {
    const user = await both()
    const tries = Array.from({ length: 10 }, (_, i) =>
      change((i % 2 ? api : other).as(user.token), { tenant_Id: tenant }),
    )
    const statuses = (await Promise.all(tries)).map(({ status }) => status).sort()
    expect(statuses).toEqual([200, ...Array(9).fill(401)])
    expect(await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [user.id])).toHaveLength(1)
  })

  it('refuses what is not the caller’s, and keeps the session', async () => {
    const user = await createUser(api, invitable, foreign)
    const stranger = await createUser(api, invitable, tenant)
    const before = await api.position()
    const cases: [object, number, string][] = [
      [{}, 400, 'tenant_Id or userRole_Id is required'],
      [{ tenant_Id: tenant }, 403, 'Access denied for specified tenant'],
      [{ userRole_Id: stranger.userRoleId }, 403, 'Access denied for specified role assignment'],
      [{ userRole_Id: user.userRoleId, tenant_Id: tenant }, 403, 'Access denied for specified role assignment'],
      [{ tenant_Id: invitable }, 404, 'Tenant not found'],
      [{ tenant_Id: 'x' }, 404, 'Tenant not found'],
      [{ tenant_Id: foreign, authType: 'x' }, 403, "Invalid session type. Must be 'mobile' or 'web'"],
      [{ tenant_Id: foreign, authMode: 'x' }, 400, "Invalid authMode. Must be 'jwt' or 'cookie'"],
    ]
    for (const [body, status, message] of cases)
      expect(await change(user.call, body)).toMatchObject({ status, body: { message } })
    const [{ id }] = await api.sql(
      `select ur.id from "svc_UserRole" ur join "svc_User" u on u.id = ur."user_Id" where u.email = 'admin@example.com'`,
    )
    for (const body of [{ userRole_Id: id }, { tenant_Id: tenant }])
      expect(await change(api.admin, body)).toMatchObject({
        status: 400,
        body: { message: 'Cannot switch tenant for non-tenant-specific role' },
      })
    expect((await change(api.admin, { tenant_Id: invitable })).status).toBe(404)
    expect(await api.log(before)).toEqual([])
    expect((await user.call('GET', '/auth/check')).status).toBe(200)
  })

  it('ends only the sessions at the tenant whose role is revoked', async () => {
    const user = await both()
    const login = { email: user.email, password: 'password of a user', tenant_Id: tenant }
    const there = await api.anonymous('POST', '/auth/login', login)
    expect(there.body.tenant.id).toBe(tenant)
    await api.sql('delete from "svc_UserRole" where id = $1', [user.there])
    for (const on of [other, api]) {
      expect((await on.as(there.body.token)('GET', '/auth/check')).status).toBe(401)
      expect((await on.as(user.token)('GET', '/auth/check')).status).toBe(200)
    }
    expect(await api.anonymous('POST', '/auth/login', login)).toMatchObject({
      status: 403,
      body: { message: 'Access denied for specified tenant' },
    })
  })
})

describe('without MULTI_TENANT', () => {
  it.each([
    ['GET', `/auth/verify-invite/${'f'.repeat(64)}`, undefined],
    ['POST', '/auth/accept-invite', { inviteToken: 'f'.repeat(64) }],
    ['GET', '/auth/tenants', undefined],
    ['POST', '/auth/switch-tenant', { tenant_Id: 'x' }],
  ] as const)('%s %s answers 400', async (method, url, payload) => {
    const web = await configured(api.database, {})
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    const user = await createUser(api, id, null)
    const response = await web.inject({
      ...{ method, url, headers: { authorization: `Bearer ${user.token}` } },
      ...(payload !== undefined && { payload }),
    })
    expect({ status: response.statusCode, body: response.json() }).toEqual({
      status: 400,
      body: { message: 'Multi-tenant mode is not enabled', code: 'BAD_REQUEST' },
    })
  })

  it('an invitation is refused with what to do instead', async () => {
    const web = await configured(api.database, {})
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    const { token } = await createUser(api, id, null)
    const headers = { authorization: `Bearer ${token}` }
    const response = await web.inject({
      method: 'POST',
      url: '/auth/invite',
      headers,
      payload: { email: 'a@example.com' },
    })
    expect({ status: response.statusCode, body: response.json() }).toEqual({
      status: 400,
      body: {
        message: 'Multi-tenant mode is not enabled',
        code: 'BAD_REQUEST',
        details: expect.stringMatching(/POST \/items\/svc_User, .* POST \/auth\/password\/reset$/),
      },
    })
  })
})
