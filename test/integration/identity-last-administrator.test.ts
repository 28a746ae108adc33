import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createAccount, factsSince, sessionOf, type TestAccount } from '../support/accounts.ts'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { createRole, createTenant, grant } from '../support/tenants.ts'

/** A user who may do everything has to stay, by every way and for every caller. */

let api: Api
let administrator: string
let member: string
let managing: string
let first: TestAccount
let call: Call

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true' })
  const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
  administrator = id
  member = await createRole(api)
  managing = await createRole(api, { canInviteRoleIds: [member], isTenantSpecific: false })
  await grant(api, managing, { collection: 'svc_Tenant', action: 'delete', fields: ['*'] })
})

/** One administrator is left, new for every test. */
beforeEach(async () => {
  first = await newAdministrator()
  call = api.as(await sessionOf(api, first))
  await api.sql('delete from "svc_UserRole" where "role_Id" = $1 and "user_Id" <> $2', [administrator, first.id])
})

async function newAdministrator(tenantId: string | null = null): Promise<TestAccount> {
  const account = await createAccount(api)
  await api.sql('update "svc_UserRole" set "role_Id" = $2, "tenant_Id" = $3 where "user_Id" = $1', [
    account.id,
    administrator,
    tenantId,
  ])
  return account
}

const membershipOf = async ({ id }: TestAccount) =>
  (await api.sql('select id from "svc_UserRole" where "user_Id" = $1', [id]))[0].id as string

const last = {
  status: 409,
  body: { error: { code: 'LAST_ADMINISTRATOR', message: expect.stringContaining('Make another one first') } },
}

describe('the last active administrator', () => {
  const ways: [string, () => Promise<Answer>][] = [
    ['suspended', () => call('PATCH', `/items/svc_User/${first.id}`, { status: 'suspended' })],
    ['made inactive by bulk', () => call('PATCH', '/items/svc_User/bulk', [{ id: first.id, status: 'inactive' }])],
    [
      'suspended by PUT',
      () => call('PUT', '/items/svc_User?key=id', { id: first.id, firstName: 'A', status: 'pending' }),
    ],
    ['deleted', () => call('DELETE', `/items/svc_User/${first.id}`)],
    ['deleted by bulk', () => call('DELETE', '/items/svc_User/bulk', [first.id])],
    [
      'given another role',
      async () => call('PATCH', `/items/svc_UserRole/${await membershipOf(first)}`, { role_Id: member }),
    ],
    [
      'given another role by PUT',
      async () =>
        call('PUT', '/items/svc_UserRole?key=id', {
          id: await membershipOf(first),
          user_Id: first.id,
          role_Id: member,
        }),
    ],
    ['taken the role', async () => call('DELETE', `/items/svc_UserRole/${await membershipOf(first)}`)],
    ['taken the role by bulk', async () => call('DELETE', '/items/svc_UserRole/bulk', [await membershipOf(first)])],
    ['taken the role with all roles', () => call('PATCH', `/items/svc_User/${first.id}`, { userRoles: [] })],
    [
      'given another role with its user',
      async () =>
        call('PATCH', `/items/svc_User/${first.id}`, {
          userRoles: [{ id: await membershipOf(first), role_Id: member }],
        }),
    ],
    [
      'given a role that takes its members over',
      async () => call('PATCH', `/items/svc_Role/${member}`, { userRoles: [await membershipOf(first)] }),
    ],
    ['replaced by a role without members', () => call('PATCH', `/items/svc_Role/${administrator}`, { userRoles: [] })],
  ]

  it.each(ways)('is not %s', async (_way, change) => {
    const before = await api.position()
    const answer = await change()
    expect(answer, answer.text).toMatchObject(last)
    expect(await factsSince(api, before)).toEqual([])
    expect((await call('GET', '/auth/me')).body.role.name).toBe('administrator')
  })

  it.each(ways)('may be %s while there is another one', async (way, change) => {
    const second = await newAdministrator()
    const answer = await change()
    // The role itself keeps those who are in it: each of them has to go by name.
    if (way === 'replaced by a role without members') return expect(answer).toMatchObject(last)
    expect(answer.status, answer.text).toBeLessThan(300)
    expect((await api.as(await sessionOf(api, second))('GET', '/permissions')).status).toBe(200)
  })

  it('is not the one beside suspended ones', async () => {
    const second = await newAdministrator()
    expect((await call('PATCH', `/items/svc_User/${second.id}`, { status: 'suspended' })).status).toBe(200)
    expect(await call('PATCH', `/items/svc_User/${first.id}`, { status: 'suspended' })).toMatchObject(last)
    expect((await call('DELETE', `/items/svc_User/${second.id}`)).status).toBe(200)
  })

  it('stays when the tenant of its role is deleted, by SQL too', async () => {
    const tenant = await createTenant(api, `Head office ${first.id}`)
    await api.sql('update "svc_UserRole" set "tenant_Id" = $2 where "user_Id" = $1', [first.id, tenant])
    const there = api.as(await sessionOf(api, first))
    expect(await there('DELETE', `/items/svc_Tenant/${tenant}`)).toMatchObject(last)
    await expect(api.sql('delete from "svc_Tenant" where id = $1', [tenant])).rejects.toMatchObject({ code: 'SV409' })
    await expect(api.sql(`update "svc_User" set status = 'deleted'`)).rejects.toMatchObject({ code: 'SV409' })
    await expect(api.sql('delete from "svc_User"')).rejects.toMatchObject({ code: 'SV409' })
  })

  it('stays with those who are demoted at the same time', async () => {
    for (let round = 0; round < 5; round += 1) {
      const second = await newAdministrator()
      const other = api.as(await sessionOf(api, second))
      const [one, two] = await Promise.all([
        call('PATCH', `/items/svc_User/${first.id}`, { status: 'suspended' }),
        other('DELETE', `/items/svc_UserRole/${await membershipOf(second)}`),
      ])
      expect([one.status, two.status].sort()).toEqual([200, 409])
      const left = await api.sql(
        `select u.id from "svc_UserRole" ur join "svc_User" u on u.id = ur."user_Id"
         where ur."role_Id" = $1 and u.status = 'active'`,
        [administrator],
      )
      expect(left).toHaveLength(1)
      first = left[0].id === first.id ? first : second
      call = left[0].id === second.id ? other : call
      await api.sql(`delete from "svc_User" where id = any($1) and id <> $2`, [[first.id, second.id], left[0].id])
    }
  })
})

describe('tenants', () => {
  it('with members are deleted only by those who may take all their roles', async () => {
    const [own, foreign] = [await createTenant(api, `Own ${first.id}`), await createTenant(api, `Foreign ${first.id}`)]
    const place = async (roleId: string, tenantId: string) => {
      const account = await createAccount(api)
      await api.sql('update "svc_UserRole" set "role_Id" = $2, "tenant_Id" = $3 where "user_Id" = $1', [
        account.id,
        roleId,
        tenantId,
      ])
      return account
    }
    const manager = api.as(await sessionOf(api, await place(managing, own)))
    await place(member, foreign)
    for (const id of [own, foreign]) {
      const answer = await manager('DELETE', `/items/svc_Tenant/${id}`)
      expect([answer.status, answer.body.error.code]).toEqual([403, 'IDENTITY_PROTECTED'])
    }
    expect((await call('DELETE', `/items/svc_Tenant/${foreign}`)).status).toBe(200)
  })
})
