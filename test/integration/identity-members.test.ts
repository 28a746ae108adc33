import { beforeAll, describe, expect, it } from 'vitest'
import { factsSince } from '../support/accounts.ts'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { storeKey } from '../support/api-keys.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'

/** Managers give, change and take roles: those that they may invite to, within their tenant. */

const actions = ['create', 'read', 'update', 'delete']
const all = (...collections: string[]) =>
  collections.flatMap((collection) =>
    actions.map((action) => ({
      collection,
      action,
      fields: ['*', 'role_Id', 'tenant_Id', 'userRoles.*', 'userRoles.role_Id', 'userRoles.tenant_Id', 'roles.*'],
    })),
  )

describe.each([true, false])('with tenants: %s', (isMultiTenant) => {
  let api: Api
  let own: string | null
  let foreign: string | null
  let member: string
  let editor: string
  let owner: string
  let administrator: string
  let manager: TenantUser
  let target: TenantUser

  beforeAll(async () => {
    api = await startApi({ MULTI_TENANT: String(isMultiTenant) })
    own = isMultiTenant ? await createTenant(api, 'Own') : null
    foreign = isMultiTenant ? await createTenant(api, 'Foreign') : null
    ;[member, editor, owner] = [await createRole(api), await createRole(api), await createRole(api)]
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    administrator = id
    // The memberships as a relation between users and roles, as an installation may declare them.
    const through = { through: 'svc_UserRole', foreignKey: 'user_Id', otherKey: 'role_Id' }
    const fields = { roles: { relType: 'BelongsToMany', target: 'svc_Role', ...through } }
    const changed = await api.admin('PATCH', '/schemas/svc_User', { schema: { fields } })
    expect(changed.status, changed.text).toBe(200)
    const managing = await createRole(api, { canInviteRoleIds: [member, editor, administrator] })
    const readsRoles = { collection: 'svc_Role', action: 'read', fields: ['*'] }
    await grant(api, managing, ...all('svc_UserRole', 'svc_User', 'svc_Tenant'), readsRoles)
    manager = await createUser(api, managing, own)
  })

  const roleOf = async ({ userRoleId }: TenantUser) =>
    (await api.sql('select "role_Id", "tenant_Id", "user_Id" from "svc_UserRole" where id = $1', [userRoleId]))[0]
  const path = ({ userRoleId }: TenantUser) => `/items/svc_UserRole/${userRoleId}`
  const isLive = async (token: string) => (await api.as(token)('GET', '/auth/check')).status === 200

  it('a member gets another role', async () => {
    target = await createUser(api, member, own)
    const before = await api.position()
    const answer = await manager.call('PATCH', path(target), { role_Id: editor })
    expect([answer.status, answer.text]).toEqual([200, `{"data":{"id":"${target.userRoleId}"}}`])
    expect(await roleOf(target)).toMatchObject({ role_Id: editor, tenant_Id: own })
    expect(await factsSince(api, before)).toEqual(['svc_UserRole update'])
    expect((await api.log(before))[0]).toMatchObject({ userId: manager.id })
    expect(await isLive(target.token)).toBe(true)
    const back = await manager.call('PATCH', '/items/svc_UserRole/bulk', [{ id: target.userRoleId, role_Id: member }])
    expect([back.status, (await roleOf(target)).role_Id]).toEqual([200, member])
  })

  it('a member is removed, with its sessions and keys', async () => {
    const gone = await createUser(api, member, own)
    const key = await storeKey(api, gone.id, { tenantId: own })
    expect(await isLive(key)).toBe(true)
    const before = await api.position()
    expect((await manager.call('DELETE', path(gone))).status).toBe(200)
    expect((await factsSince(api, before)).sort()).toEqual(['svc_ApiKey delete', 'svc_UserRole delete'])
    expect([await isLive(gone.token), await isLive(key)]).toEqual([false, false])
  })

  it('a new user comes with a role', async () => {
    const user = { firstName: 'New', email: `member-of-${isMultiTenant}@example.com`, userRoles: [{ role_Id: member }] }
    const made = await manager.call('POST', '/items/svc_User', user)
    expect(made.status, made.text).toBe(201)
    const [row] = await api.sql('select "role_Id", "tenant_Id" from "svc_UserRole" where "user_Id" = $1', [
      made.body.data.id,
    ])
    expect(row).toEqual({ role_Id: member, tenant_Id: own })
    for (const role_Id of [owner, administrator]) {
      const other = { ...user, email: `other-${role_Id}@example.com`, userRoles: [{ role_Id }] }
      const answer = await manager.call('POST', '/items/svc_User', other)
      expect([answer.status, answer.body.error.code]).toEqual([403, 'ROLE_NOT_ASSIGNABLE'])
      expect(await api.sql('select 1 from "svc_User" where email = $1', [other.email])).toEqual([])
    }
  })

  type Try = [string, (by: Call) => Promise<Answer>]
  const withMembership = (role_Id: string): Try[] => [
    ['PATCH', (by) => by('PATCH', path(target), { role_Id })],
    ['bulk PATCH', (by) => by('PATCH', '/items/svc_UserRole/bulk', [{ id: target.userRoleId, role_Id }])],
    ['PUT', (by) => by('PUT', '/items/svc_UserRole?key=id', { id: target.userRoleId, user_Id: target.id, role_Id })],
    [
      'a nested write',
      (by) => by('PATCH', `/items/svc_User/${target.id}`, { userRoles: [{ id: target.userRoleId, role_Id }] }),
    ],
    ['a list of roles', (by) => by('PATCH', `/items/svc_User/${target.id}`, { roles: [role_Id] })],
    ['replacing all roles', (by) => by('PATCH', `/items/svc_User/${target.id}`, { userRoles: [{ role_Id }] })],
  ]

  it.each(['a role that may not be assigned', 'administrator'])('no user gets %s', async (what) => {
    const role = what === 'administrator' ? administrator : owner
    target = await createUser(api, member, own)
    const before = await api.position()
    for (const [way, attempt] of withMembership(role)) {
      const answer = await attempt(manager.call)
      expect([way, answer.status, answer.body.error.code]).toEqual([way, 403, 'ROLE_NOT_ASSIGNABLE'])
    }
    const content = JSON.stringify([{ user_Id: target.id, role_Id: role }])
    const parts = [{ name: 'jsonFile', filename: 'roles.json', content }]
    const imported = await upload(api, manager.token, '/items/svc_UserRole/import-json', parts)
    expect(imported.status).toBe(400)
    const created = await manager.call('POST', '/items/svc_UserRole', { user_Id: manager.id, role_Id: role })
    expect(created.status).toBe(403)
    expect(await factsSince(api, before)).toEqual([])
  })

  it('no user loses a role that may not be taken', async () => {
    const kept = await createUser(api, owner, own)
    const before = await api.position()
    const answers = [
      await manager.call('PATCH', path(kept), { role_Id: member }),
      await manager.call('DELETE', path(kept)),
      await manager.call('DELETE', '/items/svc_UserRole/bulk', [kept.userRoleId]),
      await manager.call('PATCH', `/items/svc_User/${kept.id}`, { userRoles: [] }),
      await manager.call('PATCH', path(manager), { role_Id: member }),
      await manager.call('DELETE', path(manager)),
    ]
    expect(answers.map(({ status, body }) => `${status} ${body.error.code}`)).toEqual(
      answers.map(() => '403 ROLE_NOT_ASSIGNABLE'),
    )
    expect(await factsSince(api, before)).toEqual([])
  })

  it('a role does not become another user’s', async () => {
    const [one, other] = [await createUser(api, member, own), await createUser(api, member, own)]
    await api.sql('delete from "svc_UserRole" where id = $1', [other.userRoleId])
    const moved = await manager.call('PATCH', path(one), { user_Id: other.id })
    // With tenants, who has no role here is not even known here.
    expect([400, 403]).toContain(moved.status)
    expect(await roleOf(one)).toMatchObject({ user_Id: one.id })
    expect((await manager.call('PATCH', path(one), { user_Id: one.id, role_Id: editor })).status).toBe(200)
  })

  it('a role without any to assign writes none, whatever was granted', async () => {
    const role = await createRole(api)
    await grant(api, role, ...all('svc_UserRole'))
    const { call } = await createUser(api, role, own)
    const before = await api.position()
    for (const [method, where, body] of [
      ['POST', '/items/svc_UserRole', { user_Id: target.id, role_Id: member }],
      ['PATCH', path(target), { role_Id: member }],
      ['DELETE', path(target), undefined],
    ] as const)
      expect((await call(method, where, body)).status).toBe(403)
    expect(await factsSince(api, before)).toEqual([])
  })

  it('a key does not change the role of its own user', async () => {
    const [{ role_Id: managing }] = [await roleOf(manager)]
    await api.sql(`update "svc_Role" set "canInviteRoleIds" = $2 where id = $1`, [
      managing,
      JSON.stringify([member, editor, administrator, managing]),
    ])
    await api.runtime.access.reload()
    const call = api.as(await storeKey(api, manager.id, { tenantId: own }))
    const answer = await call('PATCH', path(manager), { role_Id: member })
    expect([answer.status, answer.body.error.code]).toEqual([403, 'API_KEY_NOT_ACCEPTED'])
    expect((await call('PATCH', path(target), { role_Id: editor })).status).toBe(200)
  })

  if (isMultiTenant)
    it('other tenants are out of reach', async () => {
      const there = await createUser(api, member, foreign)
      const both = await createUser(api, member, own)
      await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
        both.id,
        member,
        foreign,
      ])
      const mine = await createUser(api, member, own)
      const before = await api.position()
      const refused = [
        await manager.call('PATCH', path(there), { role_Id: editor }),
        await manager.call('DELETE', path(there)),
        await manager.call('POST', '/items/svc_UserRole', { user_Id: mine.id, role_Id: member, tenant_Id: foreign }),
        await manager.call('PATCH', path(mine), { tenant_Id: foreign }),
        await manager.call('PATCH', `/items/svc_Tenant/${foreign}`, { userRoles: [mine.userRoleId] }),
        await manager.call('PATCH', `/items/svc_Tenant/${foreign}`, {
          userRoles: [{ user_Id: mine.id, role_Id: member }],
        }),
      ]
      expect(refused.map(({ status }) => status)).toEqual(refused.map(() => 403))
      const unknown = await manager.call('POST', '/items/svc_UserRole', { user_Id: there.id, role_Id: member })
      expect([400, 403]).toContain(unknown.status)
      // The other tenant relies on this account, too.
      for (const change of [{ email: 'mine@attacker.example' }, { status: 'suspended' }]) {
        const answer = await manager.call('PATCH', `/items/svc_User/${both.id}`, change)
        expect([answer.status, answer.body.error.code]).toEqual([403, 'IDENTITY_PROTECTED'])
        expect(answer.text).not.toContain(foreign)
      }
      expect((await manager.call('DELETE', `/items/svc_User/${both.id}`)).status).toBe(403)
      expect(await factsSince(api, before)).toEqual([])
      // Here it is a member like others.
      expect((await manager.call('PATCH', path(both), { role_Id: editor })).status).toBe(200)
      expect((await manager.call('PATCH', `/items/svc_User/${mine.id}`, { status: 'suspended' })).status).toBe(200)
    })
})
