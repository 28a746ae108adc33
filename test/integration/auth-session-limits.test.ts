import { isDeepStrictEqual } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { deleteOldSessions } from '../../src/features/accounts/auth/sessions.ts'
import { workers } from '../../src/workers/workers.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { createTenant } from '../support/tenants.ts'
import { untilAdmitted, waitFor } from '../support/wait.ts'

let api: Api
/** A second web process on the same database. */
let other: Api
beforeAll(async () => {
  api = await startApi()
  other = await startApi({}, api.database)
})

const password = 'password of a user'
const login = (email: string, authType: unknown, on: Api = api) =>
  on.anonymous('POST', '/auth/login', { email, password, authType })
const live = async (id: string, type: string) =>
  (
    await api.sql('select id from "svc_Sessions" where "user_Id" = $1 and type = $2 and "expiresAt" > now()', [
      id,
      type,
    ])
  ).length

async function limitSettings(limits: unknown): Promise<void> {
  await api.sql(`update "svc_Settings" set session_limits = $1::jsonb where "tenant_Id" is null`, [
    JSON.stringify(limits),
  ])
  for (const { runtime } of [api, other])
    await waitFor(() => isDeepStrictEqual(runtime.settings.current().session_limits, limits))
}

const limitUser = (id: string, limits: unknown) =>
  api.sql('update "svc_User" set session_limits = $2::jsonb where id = $1', [id, JSON.stringify(limits)])

const refused = (message: string) => ({ status: 403, body: { message } })
const full = (type: string, limit: number) =>
  refused(`Maximum ${type} session limit (${limit}) reached. Please logout from another device.`)

describe('the limit of sessions', () => {
  it('lets no more sessions in than it says, also 50 at the same time', async () => {
    const type = 'web'
    const { id, email } = await api.user()
    await limitUser(id, { [type]: 2 })
    const before = await api.position()
    const logins = Array.from({ length: 50 }, (_, i) =>
      untilAdmitted(() => login(email, type, i % 2 === 0 ? api : other)),
    )
    const answers = await Promise.all(logins)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2)
    for (const answer of answers.filter(({ status }) => status !== 200)) expect(answer).toMatchObject(full(type, 2))
    expect(await live(id, type)).toBe(2)
    const facts = (await api.log(before)).map(({ action, userId }) => ({ action, userId }))
    expect(facts).toEqual(Array(2).fill({ action: 'login', userId: id }))
  })

  it('frees a place when a session is ended or expires, not when it is refreshed', async () => {
    const { id, email } = await api.user()
    await limitUser(id, { web: 1 })
    const first = await login(email, 'web')
    const { body } = await api.as(first.body.token)('POST', '/auth/refresh')
    expect(await login(email, 'web')).toMatchObject(full('web', 1))
    await api.as(body.token)('POST', '/auth/logout')
    expect((await login(email, 'web')).status).toBe(200)
    await api.sql('update "svc_Sessions" set "expiresAt" = now() where "user_Id" = $1', [id])
    expect((await login(email, 'web')).status).toBe(200)
  })

  it.each([
    ['Web', 'web'],
    ['Mobile', 'mobile'],
  ])('of 0 refuses: %s', async (name, type) => {
    const { id, email } = await api.user()
    await limitUser(id, { web: 0, mobile: 0 })
    expect(await login(email, type)).toMatchObject(refused(`${name} sessions are not allowed`))
    expect(await live(id, type)).toBe(0)
  })

  it('counts the types apart, and leaves sessions without one alone', async () => {
    const { id, email } = await api.user()
    await limitUser(id, { web: 1, mobile: 1, default: 0 })
    expect((await login(email, 'web')).status).toBe(200)
    expect((await login(email, 'mobile')).status).toBe(200)
    for (const type of [undefined, null, 'default']) expect((await login(email, type)).status).toBe(200)
    expect(await login(email, 'web')).toMatchObject(full('web', 1))
  })

  it.each(['x', 'WEB', '', 1, ['web'], { web: 1 }])('knows no type %j', async (type) => {
    const { email } = await api.user()
    expect(await login(email, type)).toMatchObject(refused("Invalid session type. Must be 'mobile' or 'web'"))
  })

  it('comes from the user, else the role, else the default of the settings', async () => {
    const { id, email, roleId } = await api.user()
    await limitSettings({ default: { web: 3 }, roles: { [roleId]: { web: 1 } } })
    expect((await login(email, 'web')).status).toBe(200)
    expect(await login(email, 'web')).toMatchObject(full('web', 1))
    await limitSettings({ default: { web: 2 } })
    expect((await login(email, 'web')).status).toBe(200)
    expect(await login(email, 'web')).toMatchObject(full('web', 2))
    await limitUser(id, { web: -1 })
    expect((await login(email, 'web')).status).toBe(200)
    await limitUser(id, { web: null })
    expect(await login(email, 'web')).toMatchObject(full('web', 2))
    await limitSettings(null)
  })

  it('does not bind administrators', async () => {
    await limitSettings({ default: { web: 0 } })
    const answer = await api.anonymous('POST', '/auth/login', { ...administrator, authType: 'web' })
    expect(answer.status).toBe(200)
    await limitSettings(null)
  })

  it('binds a registration, which then leaves nothing behind', async () => {
    await limitSettings({ default: { mobile: 0 } })
    const person = { firstName: 'A', lastName: 'B', email: 'limited@example.com', password, authType: 'mobile' }
    const before = await api.position()
    expect(await api.anonymous('POST', '/auth/register', person)).toMatchObject(
      refused('Mobile sessions are not allowed'),
    )
    expect(await api.log(before)).toEqual([])
    await limitSettings(null)
  })

  it('refuses when it cannot be looked up', async () => {
    const { id, email } = await api.user()
    await api.sql('alter table "svc_User" rename column session_limits to gone')
    try {
      expect((await login(email, 'web')).status).toBeGreaterThanOrEqual(500)
      expect((await login(email, undefined)).status).toBe(200)
    } finally {
      await api.sql('alter table "svc_User" rename column gone to session_limits')
    }
    expect(await live(id, 'web')).toBe(0)
    expect((await login(email, 'web')).status).toBe(200)
  })

  it('of a tenant replaces that of the installation, whole', async () => {
    const tenants = await startApi({ MULTI_TENANT: 'true' }, api.database)
    const [one, two] = [await createTenant(api, 'Limited'), await createTenant(api, 'Like all')]
    const { id, email, roleId } = await api.user()
    for (const tenantId of [one, two])
      await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
        id,
        roleId,
        tenantId,
      ])
    await api.sql(
      `insert into "svc_Settings" ("tenant_Id", project_name, session_limits) values ($1, 'Limited', '{"default":{"mobile":0}}')`,
      [one],
    )
    await limitSettings({ default: { web: 0, mobile: 1 } })
    await waitFor(() => tenants.runtime.settings.current(two).session_limits !== null)
    const at = (tenantId: string, authType: string) =>
      tenants.anonymous('POST', '/auth/login', { email, password, authType, tenant_Id: tenantId })
    await waitFor(() => tenants.runtime.settings.current(one).project_name === 'Limited')
    expect((await at(one, 'web')).status).toBe(200)
    expect(await at(one, 'mobile')).toMatchObject(refused('Mobile sessions are not allowed'))
    expect(await at(two, 'web')).toMatchObject(refused('Web sessions are not allowed'))
    expect((await at(two, 'mobile')).status).toBe(200)
    expect(await at(two, 'mobile')).toMatchObject(full('mobile', 1))
    await limitSettings(null)
  })
})

describe('the cleanup of expired sessions', () => {
  /** Sessions of a new user, expired but for one. */
  async function withExpired(count: number): Promise<string> {
    const { id } = await api.user()
    await api.sql(
      `insert into "svc_Sessions" (token, "user_Id", "expiresAt") select 'expired ' || i || $1, $1::uuid, now() from generate_series(1, $2) i`,
      [id, count],
    )
    return id
  }
  const left = async (id: string) =>
    (await api.sql('select count(*)::int as count from "svc_Sessions" where "user_Id" = $1', [id]))[0].count

  it('deletes them all, in batches, and leaves live ones', async () => {
    const id = await withExpired(120)
    await deleteOldSessions(api.runtime, new AbortController().signal)
    expect(await left(id)).toBe(1)
  })

  it('stops between two batches', async () => {
    const id = await withExpired(1)
    await expect(deleteOldSessions(api.runtime, AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough')
    expect(await left(id)).toBe(2)
  })

  it('does nothing with DISABLE_SESSION_CLEANUP', async () => {
    const id = await withExpired(1)
    const { config } = api.runtime
    const disabled = { ...api.runtime, config: { ...config, auth: { ...config.auth, disableSessionCleanup: true } } }
    await deleteOldSessions(disabled, new AbortController().signal)
    expect(await left(id)).toBe(2)
  })

  it('is due every hour and five seconds after a start', () => {
    const worker = workers['log-cleanup'].find((one) => 'queue' in one && one.queue === 'session-cleanup')
    expect(worker).toMatchObject({ schedule: expect.stringMatching(/^\d+ \* \* \* \*$/), secondsAfterStart: 5 })
  })
})
