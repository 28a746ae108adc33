import jwt from 'jsonwebtoken'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { openLeases } from '../../src/db/leases.ts'
import { openListener } from '../../src/db/listener.ts'
import type { Database } from '../../src/db/pools.ts'
import { openSessionStore } from '../../src/features/accounts/auth/session-store.ts'
import { type Api, startApi } from '../support/api.ts'
import { silent } from '../support/log.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** `$CURRENT_…` in stored rules, over the caller's rows and what they are related to. */

let api: Api
const tenants: string[] = []

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true', TENANT_IGNORED_TABLES: 'doc,svc_File' })
  await api.admin('POST', '/schemas', {
    collectionName: 'doc',
    schema: {
      fields: {
        title: { type: 'String' },
        kind: { type: 'String' },
        org: { type: 'UUID' },
        stars: { type: 'Integer' },
        owner: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'owner_Id' },
      },
    },
  })
  for (const name of ['one', 'two', 'three']) tenants.push(await createTenant(api, name))
  await api.sql(
    `insert into doc (title, kind, org, stars) values ('a', 'image/png', $1, 1), ('b', 'text/plain', $2, 2), ('c', null, $3, 3)`,
    tenants,
  )
})

/** Titles of the documents that a user in a new role with this rule sees. */
async function reader(conditions: object, more: object = {}) {
  const role = await createRole(api)
  await grant(api, role, { collection: 'doc', action: 'read', fields: ['title'], conditions, ...more })
  const user = await createUser(api, role, tenants[0]!)
  const titles = async () => {
    const { status, body } = await user.call('GET', '/items/doc?fields=title&sort=title')
    expect(status).toBe(200)
    return body.data.map(({ title }: { title: string }) => title).join('')
  }
  return { ...user, role, titles }
}

async function avatarOf(userId: string, type: string): Promise<string> {
  const [{ id }] = await api.sql(
    `insert into "svc_File" (filename, "originalFilename", type, size, storage) values ('f', 'f', $1, 1, 'l') returning id`,
    [type],
  )
  await api.sql('update "svc_User" set "avatar_Id" = $1 where id = $2', [id, userId])
  return id
}

const alsoIn = (userId: string, roleId: string, tenantId: string) =>
  api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
    userId,
    roleId,
    tenantId,
  ])

describe('a to-one path', () => {
  it('is the value of the related row', async () => {
    const { id, titles } = await reader({ kind: '$CURRENT_USER.avatar.type' })
    expect(await titles()).toBe('')
    await avatarOf(id, 'image/png')
    await waitFor(async () => (await titles()) === 'a')
    await avatarOf(id, 'text/plain')
    await waitFor(async () => (await titles()) === 'b')
  })

  it('follows a change of the related row within the freshness of a session', async () => {
    const { id, titles } = await reader({ kind: '$CURRENT_USER.avatar.type' })
    const file = await avatarOf(id, 'image/png')
    await waitFor(async () => (await titles()) === 'a')
    await api.sql(`update "svc_File" set type = 'text/plain' where id = $1`, [file])
    await waitFor(async () => (await titles()) === 'b')
  })

  it('without a related row lets nothing through, negated neither', async () => {
    const variable = '$CURRENT_USER.avatar.type'
    for (const conditions of [{ kind: { ne: variable } }, { kind: { notIn: variable } }, { NOT: { kind: variable } }])
      expect([conditions, await (await reader(conditions)).titles()]).toEqual([conditions, ''])
  })

  it('may start at any of the caller’s rows and be several relations long', async () => {
    const [role] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    for (const conditions of [
      { org: '$CURRENT_USERROLE.tenant.id' },
      { org: '$CURRENT_USERROLE.tenant' },
      { AND: [{ org: '$CURRENT_TENANT' }, { title: { ne: '$CURRENT_USERROLE.role.name' } }] },
      { OR: [{ org: '$CURRENT_USERROLE.user.userRoles.tenant.id' }, { title: '$CURRENT_ROLE.permissions.action' }] },
    ])
      expect([conditions, await (await reader(conditions)).titles()]).toEqual([conditions, 'a'])
    expect(role).toBeDefined()
  })
})

describe('a to-many path', () => {
  it('has the values of all related rows: eq is any, ne none of them', async () => {
    const any = await reader({ org: '$CURRENT_USER.userRoles.tenant_Id' })
    const inside = await reader({ org: { in: '$CURRENT_USER.userRoles.tenant_Id' } })
    const none = await reader({ org: { ne: '$CURRENT_USER.userRoles.tenant_Id' } })
    expect([await any.titles(), await inside.titles(), await none.titles()]).toEqual(['a', 'a', 'bc'])
    for (const { id, role } of [any, inside, none]) await alsoIn(id, role, tenants[1]!)
    await waitFor(async () => (await any.titles()) === 'ab')
    await waitFor(async () => (await inside.titles()) === 'ab')
    await waitFor(async () => (await none.titles()) === 'c')
  })

  it('without related rows lets nothing through, either way', async () => {
    const { titles } = await reader({ kind: { ne: '$CURRENT_USER.userRoles.user.avatar.type' } })
    expect(await titles()).toBe('')
  })

  it('means the rows themselves where it ends at a relation', async () => {
    const { titles } = await reader({ org: { in: '$CURRENT_TENANT.userRoles.tenant' } })
    expect(await titles()).toBe('a')
  })
})

describe('columns', () => {
  it('of the caller’s own rows and of the settings need no relation', async () => {
    await api.sql(`update "svc_Settings" set title = 'b', keywords = 'c' where "tenant_Id" is null`)
    await api.runtime.settings.reload()
    expect(await (await reader({ title: '$CURRENT_SETTINGS.title' })).titles()).toBe('b')
    expect(await (await reader({ org: '$CURRENT_USERROLE.tenant_Id' })).titles()).toBe('a')
    expect(await (await reader({ org: '$CURRENT_TENANT.id' })).titles()).toBe('a')
    const named = await reader({ title: '$CURRENT_ROLE.description' })
    await api.admin('PATCH', `/items/svc_Role/${named.role}`, { description: 'c' })
    await waitFor(async () => (await named.titles()) === 'c')
  })

  it('of the settings are the tenant’s where it has its own, and follow a change', async () => {
    const { titles } = await reader({ title: '$CURRENT_SETTINGS.title' })
    await api.sql(`insert into "svc_Settings" (project_name, title, "tenant_Id") values ('x', 'a', $1)`, [tenants[0]])
    await waitFor(async () => (await titles()) === 'a')
    await api.sql(`delete from "svc_Settings" where "tenant_Id" = $1`, [tenants[0]])
    await waitFor(async () => (await titles()) === 'b')
  })
})

describe('paths over relations', () => {
  it('fill in default values and limit related rows', async () => {
    const role = await createRole(api)
    await grant(
      api,
      role,
      {
        collection: 'doc',
        action: 'create',
        fields: ['title'],
        defaultValues: {
          kind: '$CURRENT_USER.avatar.type',
          org: '$CURRENT_USERROLE.tenant.id',
          owner_Id: '$CURRENT_USER',
        },
      },
      {
        collection: 'doc',
        action: 'read',
        fields: ['title', 'owner.email'],
        conditions: { owner_Id: { isNotNull: true } },
        relConditions: { owner: { avatar_Id: '$CURRENT_USER.avatar.id' } },
      },
      { collection: 'svc_User', action: 'read', fields: ['email'] },
    )
    const [with_, without] = [await createUser(api, role, tenants[0]!), await createUser(api, role, tenants[0]!)]
    await avatarOf(with_.id, 'image/png')
    for (const [user, kind] of [
      [with_, 'image/png'],
      [without, null],
    ] as const) {
      const { body } = await user.call('POST', '/items/doc', { title: 'made' })
      const [row] = await api.sql('select * from doc where id = $1', [body.data.id])
      expect(row).toMatchObject({ kind, org: tenants[0], owner_Id: user.id })
    }
    const read = async (user: typeof with_) =>
      (await user.call('GET', '/items/doc?fields=owner.email&sort=owner.email')).body.data.map(
        ({ owner }: any) => owner?.email,
      )
    expect((await read(with_)).filter(Boolean)).toEqual([with_.email])
    expect((await read(without)).filter(Boolean)).toEqual([])
    await api.sql(`delete from doc where title = 'made'`)
  })

  it('in named rules work as in permissions', async () => {
    const rule = await api.admin('POST', '/acls', {
      name: 'of my tenants',
      fields: ['title'],
      conditions: { org: { in: '$CURRENT_USER.userRoles.tenant_Id' } },
    })
    const role = await createRole(api)
    await grant(api, role, { collection: 'doc', action: 'read', acl_Ids: [rule.body.id] })
    const user = await createUser(api, role, tenants[1]!)
    expect((await user.call('GET', '/items/doc')).body.data).toMatchObject([{ title: 'b' }])
  })

  it('are known as soon as a rule asks for them, to those who are signed in already', async () => {
    const { role, titles } = await reader({ title: 'nothing' })
    expect(await titles()).toBe('')
    const [{ id }] = await api.sql('select id from "svc_Permission" where "role_Id" = $1', [role])
    await api.admin('PATCH', `/permissions/${id}`, { conditions: { org: '$CURRENT_USERROLE.tenant.id' } })
    expect(await titles()).toBe('a')
  })

  it('cannot be used by a request, not even where a rule does', async () => {
    const { call } = await reader({ org: '$CURRENT_USERROLE.tenant.id' })
    for (const variable of ['$CURRENT_USERROLE.tenant.id', '$CURRENT_USER.avatar.type', '$CURRENT_USER.userRoles']) {
      for (const query of [
        { filter: { title: variable } },
        { fields: 'title', filter: { OR: [{ title: { in: [variable] } }] } },
      ]) {
        const path = `/items/doc?${new URLSearchParams(Object.entries(query).map(([k, v]): [string, string] => [k, typeof v === 'string' ? v : JSON.stringify(v)]))}`
        const { status, body } = await call('GET', path)
        expect([variable, status, body.error?.message]).toEqual([variable, 400, 'Invalid query parameters'])
        expect(body.error.details).toContain('only stored permissions')
      }
    }
  })

  it('that a change of a collection has broken let nothing through, and lock no user out', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'team', schema: { fields: { name: { type: 'String' } } } })
    const { definition } = api.runtime.catalog.current().collections.get('svc_Role')!
    const team = { relType: 'BelongsTo', target: 'team', foreignKey: 'team_id' }
    const schema = { ...definition.schema, fields: { ...definition.schema.fields, team } }
    expect((await api.admin('PATCH', '/schemas/svc_Role', { schema })).status).toBe(200)
    await api.sql(`insert into team (name) values ('b')`)
    const { role, call, titles } = await reader({ title: '$CURRENT_ROLE.team.name' })
    await api.sql('update "svc_Role" set team_id = (select id from team) where id = $1', [role])
    await waitFor(async () => (await titles()) === 'b')
    expect((await api.admin('PATCH', '/schemas/svc_Role?drop=true', { schema: definition.schema })).status).toBe(200)
    expect(await titles()).toBe('')
    expect((await call('GET', '/auth/check')).status).toBe(200)
  })
})

describe('the cost', () => {
  it('is one more statement when a session is read, and none for roles without such rules', async () => {
    const { config, reserved, catalog, access } = api.runtime
    const listener = await openListener({ config, log: silent, db: reserved, leased: true })
    onTestFinished(() => listener.close())
    const leases = openLeases({ db: reserved, listener, log: silent })
    await waitFor(() => listener.isLive())
    const statements: string[] = []
    const run: Database['run'] = (text, values, name) => {
      statements.push(text)
      return reserved.run(text, values, name)
    }
    const store = openSessionStore({ db: { ...reserved, run }, listener, leases, catalog, access, config, log: silent })
    const rules: [object, number][] = [
      [{ title: '$CURRENT_USER.email' }, 1],
      [{ OR: [{ kind: '$CURRENT_USER.avatar.type' }, { org: '$CURRENT_USER.userRoles.tenant_Id' }] }, 2],
    ]
    for (const [conditions, expected] of rules) {
      const { token } = await reader(conditions)
      const { sessionToken } = jwt.decode(token) as { sessionToken: string }
      statements.length = 0
      const session = await store.find(sessionToken)
      expect(statements).toHaveLength(expected)
      expect([...session!.related.keys()]).toEqual(expected === 1 ? [] : ['CURRENT_USER.userRoles.tenant_Id'])
    }
  })
})
