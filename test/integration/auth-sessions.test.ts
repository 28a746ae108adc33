import jwt from 'jsonwebtoken'
import { beforeAll, describe, expect, it } from 'vitest'
import { hashSecret, newSecret, signToken } from '../../src/adapters/tokens.ts'
import { insertSession, type NewSession } from '../../src/db/unlogged/sessions.ts'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
/** A second web process on the same database. */
let other: Api
beforeAll(async () => {
  api = await startApi()
  other = await startApi({}, api.database)
})

const readUsers = [{ collection: 'svc_User', action: 'read', fields: ['*'] }]
const facts = async (after: bigint) =>
  (await api.log(after)).map(({ entityId, action, userId }) => ({ entityId, action, userId }))
const sessionsOf = (id: string) => api.sql('select * from "svc_Sessions" where "user_Id" = $1', [id])
const unauthorized = { status: 401, body: { message: 'Unauthorized' } }
const badToken = { status: 401, body: { message: 'Invalid or expired token' } }
const badCheck = { status: 401, body: { valid: false, message: 'Invalid or expired token' } }

const expired = () =>
  jwt.sign(
    { id: 'x', role_Id: 'x', sessionToken: newSecret(), iss: api.runtime.config.project.name, exp: 1 },
    api.runtime.config.auth.secretKey,
  )
const unknown = () =>
  signToken(
    api.runtime.config,
    { userId: 'x', roleId: 'x', tenantId: undefined, userRoleId: undefined, sessionToken: newSecret() },
    new Date(),
  )

describe('GET /auth/me', () => {
  it('answers the own row without hidden fields, and where the caller stands', async () => {
    const { call, id, email, roleId } = await api.user(readUsers)
    const { status, body } = await call('GET', '/auth/me')
    expect(status).toBe(200)
    expect(body).toEqual({
      user: expect.objectContaining({
        id,
        email,
        firstName: 'U',
        emailVerified: true,
        status: 'active',
        createdAt: expect.stringMatching(/^\d{4}-.*T.*\.\d{3}Z$/),
      }),
      role: expect.objectContaining({ id: roleId }),
      permissions: [
        expect.objectContaining({ role_Id: roleId, collection: 'svc_User', action: 'read', fields: ['*'] }),
      ],
      tenant: null,
    })
    expect(body.user).not.toHaveProperty('password')
  })

  it('needs read permission on svc_User', async () => {
    const { call } = await api.user()
    expect(await call('GET', '/auth/me')).toMatchObject({
      status: 403,
      body: { message: "You don't have permission to read items in 'svc_User'" },
    })
  })

  it('needs none of an administrator, who sees no hidden field either', async () => {
    const { status, body } = await api.admin('GET', '/auth/me')
    expect(status).toBe(200)
    expect(body.user).toMatchObject({ email: 'admin@example.com' })
    expect(body.user).not.toHaveProperty('password')
  })

  it('shows what the caller has just changed', async () => {
    const { call, id } = await api.user(readUsers)
    await call('GET', '/auth/me')
    await api.admin('PATCH', `/items/svc_User/${id}`, { firstName: 'Changed' })
    expect((await call('GET', '/auth/me')).body.user.firstName).toBe('Changed')
  })

  it('notes the last access every five minutes, without an event', async () => {
    const { call, id } = await api.user(readUsers)
    const seen = async () => {
      await call('GET', '/auth/me')
      await afterwardsDone(api.runtime)
      return (await api.sql('select "lastAccess" from "svc_User" where id = $1', [id]))[0].lastAccess
    }
    const before = await api.position()
    const first = await seen()
    expect(first).toBeInstanceOf(Date)
    expect(await seen()).toEqual(first)
    await api.sql(`update "svc_User" set "lastAccess" = now() - interval '301 seconds' where id = $1`, [id])
    expect((await seen()).getTime()).toBeGreaterThanOrEqual(first.getTime())
    expect(await facts(before)).toEqual([])
  })
})

describe('the last access of a user who may not read svc_User', () => {
  const lastAccess = async (id: string) => {
    await afterwardsDone(api.runtime)
    return (await api.sql('select "lastAccess" from "svc_User" where id = $1', [id]))[0].lastAccess
  }

  it('is noted by /auth/me, which refuses them', async () => {
    const { call, id } = await api.user()
    expect((await call('GET', '/auth/me')).status).toBe(403)
    expect(await lastAccess(id)).toBeInstanceOf(Date)
  })

  it('is noted by any request of a session that was not used for five minutes', async () => {
    const { call, id } = await api.user()
    await api.sql(
      `update "svc_Sessions" set "createdAt" = now() - interval '301 seconds', "lastUsedAt" = null where "user_Id" = $1`,
      [id],
    )
    expect((await call('GET', '/notifications')).status).toBe(200)
    expect(await lastAccess(id)).toBeInstanceOf(Date)
  })
})

describe('routes that need a session', () => {
  const routes = [
    ['GET', '/auth/me', unauthorized],
    ['GET', '/auth/logout', unauthorized],
    ['POST', '/auth/logout', unauthorized],
    ['POST', '/auth/email/verify', unauthorized],
    ['POST', '/auth/refresh', badToken],
    ['GET', '/auth/check', badCheck],
  ] as const

  it.each(routes)('%s %s refuses callers without a live one', async (method, path, answer) => {
    expect(await api.anonymous(method, path)).toMatchObject(answer)
    for (const token of ['garbage', expired(), unknown()])
      expect(await api.as(token)(method, path)).toMatchObject(answer)
  })

  it.each(routes)('%s %s takes the token from nowhere but header and cookie', async (method, path, answer) => {
    const { token } = await api.user(readUsers)
    expect(await api.anonymous(method, `${path}?access_token=${token}&token=${token}`)).toMatchObject(answer)
    if (method === 'POST')
      expect(await api.anonymous(method, path, { access_token: token, token, refreshToken: token })).toMatchObject(
        answer,
      )
    expect(
      await api.anonymous(method, path, undefined, { 'x-access-token': token, authorization: token }),
    ).toMatchObject(answer)
  })

  it('take a token that only SECRET_KEY_PREVIOUS signed', async () => {
    const { token } = await api.user()
    const rotated = {
      SECRET_KEY: 'the next key of this installation, for tests',
      SECRET_KEY_PREVIOUS: api.runtime.config.auth.secretKey,
    }
    const check = async (env: Record<string, string>) =>
      (
        await (
          await configured(api.database, env)
        ).inject({ url: '/auth/check', headers: { authorization: `bearer  ${token}` } })
      ).statusCode
    expect(await check(rotated)).toBe(200)
    expect(await check({ SECRET_KEY: rotated.SECRET_KEY })).toBe(401)
  })

  it('refuse a session whose token says another user', async () => {
    const one = await api.user()
    const two = await api.user()
    const { sessionToken } = jwt.decode(one.token) as { sessionToken: string }
    const forged = signToken(
      api.runtime.config,
      { userId: two.id, roleId: two.roleId, tenantId: undefined, userRoleId: undefined, sessionToken },
      new Date(),
    )
    expect((await api.as(forged)('GET', '/auth/check')).status).toBe(401)
  })
})

describe('an Authorization header that opens nothing', () => {
  /** Of every access class and both error formats; no such id or body matters. */
  const routes = [
    ['GET', '/'],
    ['POST', '/'],
    ['GET', '/settings'],
    ['GET', '/settings/branding'],
    ['GET', '/schemas'],
    ['GET', '/permissions'],
    ['GET', '/changes'],
    ['GET', '/templates/types'],
    ['GET', '/items/svc_User'],
    ['POST', '/items/svc_User'],
    ['PATCH', '/items/svc_User/x'],
    ['DELETE', '/items/svc_User/x'],
    ['GET', '/reports/svc_User'],
    ['GET', '/metrics'],
    ['GET', '/ops/jobs'],
    ['GET', '/auth/me'],
    ['GET', '/auth/check'],
    ['GET', '/auth/keys'],
    ['GET', '/auth/logout'],
    ['POST', '/auth/refresh'],
    ['POST', '/auth/login'],
    ['POST', '/auth/register'],
    ['POST', '/auth/magiclink'],
    ['GET', '/auth/magiclink/x'],
    ['POST', '/auth/password/reset'],
    ['GET', '/auth/email/verify/x'],
    ['GET', '/auth/verify-invite/x'],
    ['GET', '/auth/signin/google'],
    ['GET', '/auth/callback/google'],
    ['GET', '/auth/admin/users/x/sessions'],
  ] as const

  it.each(routes)('is 401 by %s %s, with a code and WWW-Authenticate, and does nothing', async (method, path) => {
    const [ended, key] = [await api.user(), `dbk_${'0'.repeat(72)}`]
    expect((await ended.call('POST', '/auth/logout')).status).toBe(200)
    const foreign = jwt.sign(
      { ...(jwt.decode(ended.token) as object), iss: 'Another' },
      api.runtime.config.auth.secretKey,
    )
    const before = await api.position()
    for (const [authorization, code] of [
      ['Bearer garbage', 'INVALID_TOKEN'],
      ['Bearer', 'INVALID_TOKEN'],
      ['Bearer ', 'INVALID_TOKEN'],
      ['Bearer a b', 'INVALID_TOKEN'],
      [ended.token, 'INVALID_TOKEN'],
      ['Basic eDp5', 'INVALID_TOKEN'],
      [`Bearer ${foreign}`, 'INVALID_TOKEN'],
      [`Bearer ${expired()}`, 'INVALID_TOKEN'],
      [`Bearer ${unknown()}`, 'SESSION_ENDED'],
      [`Bearer ${ended.token}`, 'SESSION_ENDED'],
      [`bearer ${ended.token}`, 'SESSION_ENDED'],
      [`Bearer ${key}`, 'INVALID_API_KEY'],
    ] as const) {
      const answer = await api.anonymous(method, path, method === 'GET' ? undefined : {}, { authorization })
      expect([authorization, answer.status]).toEqual([authorization, 401])
      expect(path.startsWith('/auth/') ? answer.body.code : answer.body.error.code).toBe(code)
      expect(answer.headers['www-authenticate']).toMatch(/^Bearer error="invalid_token", error_description="[\w ]+"$/)
    }
    expect(await api.log(before)).toEqual([])
  })

  it('is no reason not to say that the process lives, and an empty one is none', async () => {
    expect((await api.as('garbage')('GET', '/health')).status).toBe(200)
    expect((await api.as('garbage')('GET', '/ready')).status).toBe(200)
    expect((await api.anonymous('GET', '/', undefined, { authorization: '' })).status).toBe(200)
    expect((await api.as('garbage')('GET', '/nowhere')).status).toBe(404)
  })

  it('is asked for where there is none', async () => {
    const { status, headers } = await api.anonymous('GET', '/auth/me')
    expect([status, headers['www-authenticate']]).toEqual([401, 'Bearer'])
  })

  it('counts for RATE_LIMIT, also where that goes by user', async () => {
    const app = await configured(api.database, {
      RATE_LIMIT_DISABLED: 'false',
      RATE_LIMIT: '3',
      RATE_LIMIT_INTERVAL: '600000',
      RATE_LIMIT_BY_USER: 'true',
    })
    const headers = { authorization: 'Bearer garbage' }
    const codes = []
    for (let i = 0; i < 4; i += 1) codes.push((await app.inject({ url: '/', headers })).statusCode)
    expect(codes).toEqual([401, 401, 401, 429])
  })
})

describe('POST /auth/refresh', () => {
  it('replaces the session by a new one of the same kind', async () => {
    const { id, email } = await api.user()
    const { body } = await api.anonymous('POST', '/auth/login', {
      email,
      password: 'password of a user',
      authType: 'mobile',
    })
    const [old] = (await sessionsOf(id)).filter(({ type }) => type === 'mobile')
    const before = await api.position()
    const answer = await api.as(body.token)('POST', '/auth/refresh', { refreshToken: 'whatever', authMode: 'jwt' })
    expect(answer).toMatchObject({ status: 200, body: { authMode: 'jwt', expiresIn: 604_800 } })
    expect(Object.keys(answer.body).sort()).toEqual(['authMode', 'expiresIn', 'token'])
    const assignment = async () => (await api.sql('select id from "svc_UserRole" where "user_Id" = $1', [id]))[0].id
    expect(jwt.decode(answer.body.token)).toMatchObject({ id, userRole_Id: await assignment() })
    expect(await facts(before)).toEqual([{ entityId: id, action: 'refresh', userId: id }])
    const mobile = (await sessionsOf(id)).filter(({ type }) => type === 'mobile')
    expect(mobile).toHaveLength(1)
    expect(mobile[0].id).not.toBe(old.id)
    expect((await api.as(body.token)('GET', '/auth/check')).status).toBe(401)
    expect((await api.as(answer.body.token)('GET', '/auth/check')).status).toBe(200)
    expect((await other.as(body.token)('GET', '/auth/check')).status).toBe(401)
  })

  const ended = { status: 401, body: { message: 'Invalid or expired token', code: 'SESSION_ENDED' } }
  const secretOf = (token: string) => (jwt.decode(token) as { sessionToken: string }).sessionToken

  it('answers the same request again with a token of the same session, until that is used, and no other request', async () => {
    const { id, token } = await api.user()
    const before = await api.position()
    const first = await api.as(token)('POST', '/auth/refresh')
    expect(first.status).toBe(200)
    const sessions = await sessionsOf(id)
    expect(sessions).toHaveLength(1)
    for (const process of [api, other, api]) {
      const again = await process.as(token)('POST', '/auth/refresh', { authMode: 'jwt' })
      expect(again).toMatchObject({ status: 200, body: { authMode: 'jwt', expiresIn: 604_800 } })
      expect(secretOf(again.body.token)).toBe(secretOf(first.body.token))
      for (const path of ['/auth/check', '/items/svc_User', '/auth/sessions'])
        expect((await process.as(token)('GET', path)).status).toBe(401)
    }
    expect(await sessionsOf(id)).toEqual(sessions)
    expect(await facts(before)).toEqual([{ entityId: id, action: 'refresh', userId: id }])
    expect((await other.as(first.body.token)('GET', '/auth/check')).status).toBe(200)
    for (const process of [api, other]) expect(await process.as(token)('POST', '/auth/refresh')).toMatchObject(ended)
    expect((await api.as(first.body.token)('GET', '/auth/check')).status).toBe(200)
    expect(await facts(before)).toHaveLength(1)
  })

  it.each([
    [
      'a minute',
      `update "svc_Sessions" set "createdAt" = "createdAt" - interval '61 s', "lastUsedAt" = "lastUsedAt" - interval '61 s'`,
    ],
    ['the end of the new session', 'delete from "svc_Sessions"'],
    ['its expiry', 'update "svc_Sessions" set "expiresAt" = now()'],
  ])('refuses the former token after %s', async (_what, change) => {
    const { id, token } = await api.user()
    expect((await api.as(token)('POST', '/auth/refresh')).status).toBe(200)
    await api.sql(`${change} where "user_Id" = $1`, [id])
    const before = await api.position()
    expect(await api.as(token)('POST', '/auth/refresh')).toMatchObject(ended)
    expect(await facts(before)).toEqual([])
  })

  it('refuses the former token of a user who is suspended, and the one before it', async () => {
    const { id, token } = await api.user()
    const second = (await api.as(token)('POST', '/auth/refresh')).body.token
    const third = await api.as(second)('POST', '/auth/refresh')
    expect(third.status).toBe(200)
    expect(await api.as(token)('POST', '/auth/refresh')).toMatchObject(ended)
    expect(secretOf((await api.as(second)('POST', '/auth/refresh')).body.token)).toBe(secretOf(third.body.token))
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [id])
    expect(await api.as(second)('POST', '/auth/refresh')).toMatchObject(ended)
  })

  it('opens one session for 50 requests at the same time', async () => {
    const { id, token } = await api.user()
    const before = await api.position()
    const calls = Array.from({ length: 50 }, (_, i) => (i % 2 === 0 ? api : other).as(token)('POST', '/auth/refresh'))
    const answers = await Promise.all(calls)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(50)
    expect(new Set(answers.map(({ body }) => secretOf(body.token))).size).toBe(1)
    expect(await sessionsOf(id)).toHaveLength(1)
    expect(await facts(before)).toEqual([{ entityId: id, action: 'refresh', userId: id }])
    const { token: next } = answers.find(({ status }) => status === 200)!.body
    expect((await other.as(next)('GET', '/auth/check')).status).toBe(200)
  })

  it('refuses an unknown authMode and keeps the session', async () => {
    const { call } = await api.user()
    expect(await call('POST', '/auth/refresh', { authMode: 'x' })).toMatchObject({ status: 400 })
    expect((await call('GET', '/auth/check')).status).toBe(200)
  })
})

describe('logout', () => {
  it.each(['GET', 'POST'])('by %s ends the session at once, in every process', async (method) => {
    const { id, token } = await api.user(readUsers)
    expect((await other.as(token)('GET', '/auth/me')).status).toBe(200)
    const before = await api.position()
    expect(await api.as(token)(method, '/auth/logout')).toMatchObject({
      status: 200,
      body: { message: 'Logged out successfully' },
    })
    expect(await api.as(token)('GET', '/auth/me')).toMatchObject(unauthorized)
    expect(await other.as(token)('GET', '/auth/me')).toMatchObject(unauthorized)
    expect(await facts(before)).toEqual([{ entityId: id, action: 'logout', userId: id }])
    expect(await sessionsOf(id)).toEqual([])
    expect((await api.as(token)('POST', '/auth/refresh')).status).toBe(401)
  })

  it('leaves the other sessions alone', async () => {
    const { email, token } = await api.user()
    const second = await api.anonymous('POST', '/auth/login', { email, password: 'password of a user' })
    await api.as(token)('GET', '/auth/logout')
    expect((await api.as(second.body.token)('GET', '/auth/check')).status).toBe(200)
  })

  it('by HEAD does not exist', async () => {
    const { token } = await api.user()
    expect((await api.as(token)('HEAD', '/auth/logout')).status).toBe(404)
    expect((await api.as(token)('GET', '/auth/check')).status).toBe(200)
  })
})

describe('a live session', () => {
  /** Both processes have it in their caches. */
  async function warm(token: string) {
    for (const process of [api, other]) expect((await process.as(token)('GET', '/auth/check')).status).toBe(200)
  }
  async function ends(token: string) {
    for (const process of [api, other])
      await waitFor(async () => (await process.as(token)('GET', '/auth/check')).status === 401)
  }

  it.each([
    ['its user is suspended', `update "svc_User" set status = 'suspended' where id = $1`],
    ['its user is deleted', `delete from "svc_User" where id = $1`],
    ['its user loses the role', `delete from "svc_UserRole" where "user_Id" = $1`],
    ['its row is deleted', `delete from "svc_Sessions" where "user_Id" = $1`],
    ['its row expires', `update "svc_Sessions" set "expiresAt" = now() where "user_Id" = $1`],
  ])('counts no more when %s, whoever does it', async (_what, statement) => {
    const { token, id } = await api.user()
    await warm(token)
    await api.sql(statement, [id])
    // Answered when the other process has heard what was notified before.
    await other.sql('select')
    for (const process of [api, other]) expect((await process.as(token)('GET', '/auth/check')).status).toBe(401)
  })

  it('follows a change of the role', async () => {
    const { token, id } = await api.user(readUsers)
    await warm(token)
    await api.admin(
      'PATCH',
      `/items/svc_UserRole/${(await api.sql('select id from "svc_UserRole" where "user_Id" = $1', [id]))[0].id}`,
      {
        role_Id: (await api.sql(`select id from "svc_Role" where name = 'user'`))[0].id,
      },
    )
    for (const process of [api, other]) expect((await process.as(token)('GET', '/auth/me')).status).toBe(403)
  })

  it('ends by the clock of the database, also from the cache', async () => {
    const { token, id } = await api.user()
    await api.sql(`update "svc_Sessions" set "expiresAt" = now() + interval '300 milliseconds' where "user_Id" = $1`, [
      id,
    ])
    await ends(token)
    expect(await sessionsOf(id)).toHaveLength(1)
  })

  it('is extended once a day', async () => {
    const { token, id } = await api.user()
    const touch = async (age: string) => {
      await api.sql(
        `update "svc_Sessions" set "updatedAt" = now() - $2::interval, "expiresAt" = now() + interval '1 hour' where "user_Id" = $1`,
        [id, age],
      )
      await waitFor(async () => {
        await api.as(token)('GET', '/auth/check')
        return (
          await api.sql(
            `select "expiresAt" > now() + interval '6 days' as extended from "svc_Sessions" where "user_Id" = $1`,
            [id],
          )
        )[0].extended
      })
    }
    await touch('25 hours')
    await api.sql(
      `update "svc_Sessions" set "updatedAt" = now() - interval '23 hours', "expiresAt" = now() + interval '1 hour' where "user_Id" = $1`,
      [id],
    )
    // Read anew: the update was notified before this answer's own statement ran.
    await waitFor(
      async () =>
        (await api.runtime.sessions.find((jwt.decode(token) as { sessionToken: string }).sessionToken))?.extendable ===
        false,
    )
    await api.as(token)('GET', '/auth/check')
    expect(
      (
        await api.sql(
          `select "expiresAt" < now() + interval '2 hours' as kept from "svc_Sessions" where "user_Id" = $1`,
          [id],
        )
      )[0].kept,
    ).toBe(true)
  })
})

describe('opening a session', () => {
  it.each([
    ['the password changed since it was checked', `update "svc_User" set password = 'other' where id = $1`],
    ['the account was suspended since', `update "svc_User" set status = 'suspended' where id = $1`],
    ['the account was deleted since', `delete from "svc_User" where id = $1`],
  ])('fails when %s', async (_what, statement) => {
    const { id, roleId } = await api.user()
    const [{ password }] = await api.sql('select password from "svc_User" where id = $1', [id])
    const session = (): NewSession => ({
      ...{ userId: id, roleId, tenantId: null, type: 'default', passwordHash: password },
      ...{ tokenHash: hashSecret(newSecret()), seconds: 60, ip: '127.0.0.1', userAgent: null },
    })
    const open = () => commit(api.runtime, systemActor, async (tx) => ({ result: await insertSession(tx, session()) }))
    expect(await open()).toEqual({ id: expect.any(String), userRoleId: expect.any(String) })
    await api.sql(statement, [id])
    expect(await open()).toBeUndefined()
  })
})
