import { beforeAll, describe, expect, it } from 'vitest'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { type Api, startApi } from '../support/api.ts'

let api: Api
/** A second web process on the same database. */
let other: Api
beforeAll(async () => {
  api = await startApi()
  other = await startApi({}, api.database)
})

const password = 'password of a user'
const unknownId = '01890000-0000-7000-8000-000000000000'
const facts = async (after: bigint) =>
  (await api.log(after)).map(({ type, entityId, action, userId, changes }) => ({
    ...{ type, entityId, action, userId, changes },
  }))

/** A user with three sessions. */
async function user() {
  const { id, email, token, call } = await api.user()
  const [web, mobile] = await Promise.all(
    ['web', 'mobile'].map((authType) =>
      api.anonymous('POST', '/auth/login', { email, password, authType }, { 'user-agent': `a ${authType} client` }),
    ),
  )
  return { id, call, token, web: web!.body.token as string, mobile: mobile!.body.token as string }
}
const check = (token: string, on: Api) => on.as(token)('GET', '/auth/check')
const idOf = async (token: string): Promise<string> =>
  (await api.as(token)('GET', '/auth/sessions')).body.sessions.find(({ current }: any) => current).id

describe('GET /auth/sessions', () => {
  it("lists the caller's live sessions, and says which one asks", async () => {
    const { id, web } = await user()
    await api.user()
    await api.sql(`update "svc_Sessions" set "expiresAt" = now() where "user_Id" = $1 and type = 'mobile'`, [id])
    const { status, body, text, headers } = await api.as(web)('GET', '/auth/sessions')
    expect(status).toBe(200)
    expect(headers['cache-control']).toBe('no-store')
    expect(body.sessions.map(({ type, current }: any) => ({ type, current }))).toEqual([
      { type: 'web', current: true },
      { type: 'default', current: false },
    ])
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*\.\d{3}Z$/)
    expect(body.sessions[0]).toEqual({
      id: expect.any(String),
      type: 'web',
      ipAddress: '127.0.0.1',
      userAgent: 'a web client',
      tenant_Id: null,
      createdAt: time,
      lastUsedAt: time,
      expiresAt: time,
      current: true,
      client: null,
    })
    expect(text).not.toContain(
      (await api.sql('select token from "svc_Sessions" where id = $1', [body.sessions[0].id]))[0].token,
    )
  })

  it('tells when a session was last used, to five minutes', async () => {
    const { web } = await user()
    const id = await idOf(web)
    await api.sql(`update "svc_Sessions" set "createdAt" = now() - interval '2 hours' where id = $1`, [id])
    const age = async () => {
      await check(web, api)
      await afterwardsDone(api.runtime)
      const [row] = await api.sql(
        `select extract(epoch from now() - coalesce("lastUsedAt", "createdAt"))::int as age from "svc_Sessions" where id = $1`,
        [id],
      )
      return row.age
    }
    expect(await age()).toBeLessThan(60)
    await api.sql(`update "svc_Sessions" set "lastUsedAt" = now() - interval '4 minutes' where id = $1`, [id])
    expect(await age()).toBeGreaterThanOrEqual(240)
  })

  it('needs a session', async () => {
    for (const [method, path] of [
      ['GET', '/auth/sessions'],
      ['DELETE', `/auth/sessions/${unknownId}`],
    ] as const)
      expect(await api.anonymous(method, path)).toMatchObject({ status: 401, body: { message: 'Unauthorized' } })
  })
})

describe('DELETE /auth/sessions/{id}', () => {
  it('ends another session of the caller, at once and in every process', async () => {
    const { id, web, mobile } = await user()
    const sessionId = await idOf(mobile)
    expect((await check(mobile, other)).status).toBe(200)
    const before = await api.position()
    const answer = await api.as(web)('DELETE', `/auth/sessions/${sessionId}`)
    expect(answer).toMatchObject({ status: 200, body: { message: 'Session ended successfully' } })
    expect(answer.headers['set-cookie']).toBeUndefined()
    for (const on of [other, api]) expect((await check(mobile, on)).status).toBe(401)
    expect((await check(web, other)).status).toBe(200)
    expect(await facts(before)).toEqual([
      { type: 'auth', entityId: id, action: 'session_ended', userId: id, changes: { sessionId } },
    ])
  })

  it('of the current one is a logout', async () => {
    const { id, web } = await user()
    const sessionId = await idOf(web)
    const before = await api.position()
    const answer = await api.as(web)('DELETE', `/auth/sessions/${sessionId}`)
    expect(answer.status).toBe(200)
    expect(answer.headers['set-cookie']).toMatch(/^token_\w{8}=; .*Max-Age=0/)
    for (const on of [other, api]) expect((await check(web, on)).status).toBe(401)
    expect(await facts(before)).toEqual([{ type: 'auth', entityId: id, action: 'logout', userId: id, changes: null }])
  })

  it.each([
    ['of somebody else', async () => idOf((await user()).web)],
    ['nobody has', async () => unknownId],
    ['that is no id', async () => `x' or true --`],
    [
      'that has expired',
      async (id: string) =>
        (
          await api.sql(
            `insert into "svc_Sessions" (token, "user_Id", "expiresAt") values (gen_random_uuid()::text, $1, now()) returning id`,
            [id],
          )
        )[0].id,
    ],
  ])('answers 404 for one %s, and ends nothing', async (_what, sessionOf) => {
    const { id, web } = await user()
    const path = `/auth/sessions/${encodeURIComponent(await sessionOf(id))}`
    const count = async () => (await api.sql('select count(*)::int as n from "svc_Sessions"'))[0].n
    const [before, sessions] = [await api.position(), await count()]
    expect(await api.as(web)('DELETE', path)).toMatchObject({ status: 404, body: { message: 'Session not found' } })
    expect(await facts(before)).toEqual([])
    expect(await count()).toBe(sessions)
  })
})

describe('/auth/admin/users/{id}/sessions', () => {
  it('shows an administrator the sessions of a user', async () => {
    const { id } = await user()
    const { body } = await api.admin('GET', `/auth/admin/users/${id}/sessions`)
    expect(body.sessions.map(({ type }: any) => type).sort()).toEqual(['default', 'mobile', 'web'])
    expect(body.sessions.every(({ current }: any) => current === false)).toBe(true)
  })

  it('ends one of them, or all', async () => {
    const { id, token, web, mobile } = await user()
    const [{ id: adminId }] = await api.sql(`select id from "svc_User" where email = 'admin@example.com'`)
    const sessionId = await idOf(web)
    const before = await api.position()
    expect(await api.admin('DELETE', `/auth/admin/users/${id}/sessions/${sessionId}`)).toMatchObject({ status: 200 })
    expect((await check(web, other)).status).toBe(401)
    expect((await check(mobile, other)).status).toBe(200)
    expect(await api.admin('DELETE', `/auth/admin/users/${id}/sessions`)).toMatchObject({
      status: 200,
      body: { message: 'Sessions ended successfully', ended: 2 },
    })
    for (const one of [token, mobile]) expect((await check(one, other)).status).toBe(401)
    const ended = await facts(before)
    expect(ended).toHaveLength(3)
    for (const fact of ended)
      expect(fact).toMatchObject({ type: 'auth', entityId: id, action: 'session_ended', userId: adminId })
  })

  it.each(['GET', 'DELETE'])(
    '%s answers 404 for an unknown user, 403 for others than administrators',
    async (method) => {
      const { id, web } = await user()
      for (const nobody of [unknownId, 'x'])
        expect(await api.admin(method, `/auth/admin/users/${nobody}/sessions`)).toMatchObject({
          status: 404,
          body: { message: 'User not found' },
        })
      expect((await api.as(web)(method, `/auth/admin/users/${id}/sessions`)).status).toBe(403)
      expect((await api.anonymous(method, `/auth/admin/users/${id}/sessions`)).status).toBe(401)
      expect((await check(web, api)).status).toBe(200)
    },
  )

  it('answers 404 for a session of another user', async () => {
    const [one, two] = [await user(), await user()]
    const path = `/auth/admin/users/${one.id}/sessions/${await idOf(two.web)}`
    expect(await api.admin('DELETE', path)).toMatchObject({ status: 404, body: { message: 'Session not found' } })
  })
})

describe('an ended session', () => {
  it.each([
    [
      'its user is suspended and reinstated',
      [
        `update "svc_User" set status = 'suspended' where id = $1`,
        `update "svc_User" set status = 'active' where id = $1`,
      ],
    ],
    [
      'the role of its user is taken and given again',
      [
        `delete from "svc_UserRole" where "user_Id" = $1`,
        `insert into "svc_UserRole" ("user_Id", "role_Id") select $1, id from "svc_Role" where name = 'user'`,
      ],
    ],
  ])('stays ended when %s', async (_what, statements) => {
    const { id, web } = await user()
    for (const statement of statements) await api.sql(statement, [id])
    expect((await check(web, api)).status).toBe(401)
    expect(await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [id])).toEqual([])
  })

  it('is not what changes of the role or the profile make', async () => {
    const { id, web } = await user()
    await api.sql(
      `update "svc_UserRole" set "role_Id" = (select id from "svc_Role" where name = 'user'), "tenant_Id" = "tenant_Id" where "user_Id" = $1`,
      [id],
    )
    await api.sql(`update "svc_User" set "firstName" = 'Other', status = 'active' where id = $1`, [id])
    expect((await check(web, api)).status).toBe(200)
  })
})
