import { randomUUID } from 'node:crypto'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Call } from '../support/api.ts'
import { type Attacked, startAttacked } from '../support/canary.ts'
import { storeGrants } from '../support/stored-grants.ts'

/** Reaching other people's items by their ids, and the system's own collections. */

let on: Attacked
beforeAll(async () => {
  on = await startAttacked()
})

afterEach(() => {
  expect(on.watched.leaks()).toEqual([])
})

async function someone(
  permissions: readonly object[],
): Promise<{ call: Call; id: string; roleId: string; token: string }> {
  const { token, id, roleId } = await on.api.user(permissions)
  return { call: on.watched.as(token), id, roleId, token }
}

const actions = ['create', 'read', 'update', 'delete']
const everythingOn = (...collections: string[]) =>
  collections.flatMap((collection) => actions.map((action) => ({ collection, action, fields: ['*'] })))

describe('P-14 an item that is not mine looks like one that does not exist', () => {
  const mine = { userCreated_Id: '$CURRENT_USER' }
  const owned = ['svc_File', 'svc_Tasks', 'note']
  let owner: Awaited<ReturnType<typeof someone>>
  const foreign: Record<string, string> = {}

  beforeAll(async () => {
    owner = await someone([
      ...owned.flatMap((collection) =>
        actions.map((action) => ({ collection, action, fields: ['*'], conditions: mine })),
      ),
      ...actions.map((action) => ({
        collection: 'svc_Notification',
        action,
        fields: ['*'],
        conditions: { userId: '$CURRENT_USER' },
      })),
      { collection: 'svc_AuditLog', action: 'read', fields: ['*'], conditions: { userId: '$CURRENT_USER' } },
      { collection: 'svc_User', action: 'read', fields: ['firstName'], conditions: { id: '$CURRENT_USER' } },
      { collection: 'svc_Permission', action: 'read', fields: ['*'], conditions: { role_Id: '$CURRENT_ROLE' } },
      { collection: 'svc_ACL', action: 'read', fields: ['*'], conditions: { name: 'nothing' } },
    ])
    const other = on.ids.otherUser
    const insert = async (table: string, columns: string, values: unknown[]) => {
      const places = values.map((_, i) => `$${i + 1}`)
      const [row] = await on.api.sql(`insert into "${table}" (${columns}) values (${places}) returning id`, values)
      foreign[table] = String(row.id)
    }
    await insert('svc_File', 'filename, "originalFilename", type, size, storage, "userCreated_Id"', [
      'f',
      'f',
      't',
      1,
      'l',
      other,
    ])
    await insert('svc_Tasks', 'type, "userCreated_Id"', ['x', other])
    await insert('svc_Notification', 'type, title, "userId"', ['info', on.canaries.ungranted, other])
    foreign.note = on.ids.other
    foreign.svc_User = other
    foreign.svc_AuditLog = (
      await on.api.sql(`select id from "svc_AuditLog" where "userId" is distinct from $1 limit 1`, [owner.id])
    )[0].id
    foreign.svc_Permission = (
      await on.api.sql(`select id from "svc_Permission" where "role_Id" = $1 limit 1`, [on.lim.roleId])
    )[0].id
    foreign.svc_ACL = (await on.api.sql(`select id from "svc_ACL" limit 1`))[0].id
  })

  const routes = (): [string, string, string, object?][] => [
    ...[...owned, 'svc_Notification'].flatMap((collection): [string, string, string, object?][] => [
      ['GET', `/items/${collection}/`, collection],
      ['PATCH', `/items/${collection}/`, collection, {}],
      ['DELETE', `/items/${collection}/`, collection],
    ]),
    ['GET', '/items/svc_AuditLog/', 'svc_AuditLog'],
    ['GET', '/items/svc_User/', 'svc_User'],
    ['GET', '/items/svc_Permission/', 'svc_Permission'],
    ['GET', '/permissions/', 'svc_Permission'],
    ['GET', '/acls/', 'svc_ACL'],
  ]

  it.each(routes())('%s %s', async (method, path, collection, body) => {
    const position = await on.api.position()
    const numeric = collection === 'svc_Tasks'
    const theirs = await owner.call(method, path + foreign[collection], body)
    const nobodys = await owner.call(method, path + (numeric ? '987654321' : randomUUID()), body)
    expect(theirs.status).toBe(403)
    expect([nobodys.status, nobodys.text]).toEqual([theirs.status, theirs.text])
    expect(await on.api.log(position)).toEqual([])
  })

  it.each(routes())('%s %s with what is no id', async (method, path, _collection, body) => {
    for (const id of ['x', '1;drop', '%27', '%00', '..%2f..', 'null', '1,2', '[]', '%5B%22a%22%5D', 'a'.repeat(400)]) {
      const { status, text } = await owner.call(method, path + id, body)
      expect([id, [400, 403, 404].includes(status)]).toEqual([id, true])
      expect(text).not.toMatch(/select|syntax|pg_|at .*\.ts/i)
    }
  })

  it('after it was deleted, too', async () => {
    const { body } = await owner.call('POST', '/items/note', { title: 'gone' })
    const { id } = body.data
    expect((await owner.call('DELETE', `/items/note/${id}`)).status).toBe(200)
    const [gone, never] = [
      await owner.call('GET', `/items/note/${id}`),
      await owner.call('GET', `/items/note/${randomUUID()}`),
    ]
    expect([gone.status, gone.text]).toEqual([never.status, never.text])
  })
})

describe('P-18 system collections through the generic routes', () => {
  const guarded = ['svc_Settings', 'svc_Permission', 'svc_ACL', 'svc_Role', 'svc_UserRole', 'svc_Template']
  const closed = [
    'svc_AuditLog',
    'svc_SchemaDefinition',
    'svc_Migration',
    'svc_Sessions',
    'svc_Verification',
    'svc_EmailLog',
  ]

  it('cannot be written by a role that was granted everything, nor closed ones by an administrator', async () => {
    const { call, roleId } = await someone([])
    await storeGrants(on.api, roleId, everythingOn(...guarded, ...closed))
    await on.watched.reload()
    const position = await on.api.position()
    for (const collection of [...guarded, ...closed]) {
      const [row] = await on.api.sql(`select * from "${collection}" limit 1`)
      const id = row?.id ?? row?.collectionName ?? randomUUID()
      for (const [who, callAs] of [
        ['wide', call],
        ['admin', on.api.admin],
      ] as const) {
        if (who === 'admin' && !closed.includes(collection)) continue
        const statuses = [
          (await callAs('POST', `/items/${collection}`, { name: 'x' })).status,
          (await callAs('POST', `/items/${collection}/bulk`, [{ name: 'x' }])).status,
          (await callAs('PATCH', `/items/${collection}/${id}`, { name: 'x' })).status,
          (await callAs('PATCH', `/items/${collection}/bulk`, [{ id, name: 'x' }])).status,
        ]
        // Administrators end sessions by their rows.
        if (who !== 'admin' || collection !== 'svc_Sessions')
          statuses.push(
            (await callAs('DELETE', `/items/${collection}/${id}`)).status,
            (await callAs('DELETE', `/items/${collection}/bulk`, [id])).status,
          )
        expect([who, collection, statuses]).toEqual([who, collection, statuses.map(() => 403)])
      }
    }
    expect(await on.api.log(position)).toEqual([])
  })

  it('cannot be read without a permission, by anybody', async () => {
    const nobody = await someone([])
    for (const collection of [
      ...guarded,
      ...closed,
      'svc_User',
      'svc_Account',
      'svc_Invite',
      'svc_Tenant',
      'svc_Workflow',
    ])
      for (const call of [nobody.call, on.watched.as()])
        for (const path of ['', `/${randomUUID()}`]) {
          const { status, body } = await call('GET', `/items/${collection}${path}`)
          expect([collection, status, body.error.message]).toEqual([
            collection,
            403,
            `You don't have permission to read items in '${collection}'`,
          ])
        }
  })

  it.each([
    'pgboss.job',
    'job',
    'information_schema.tables',
    'pg_class',
    'pg_catalog.pg_user',
    'public.svc_User',
    '"svc_User"',
    'SVC_USER',
    'svc_user',
    'svc_User;',
    'svc_User--',
    'svc_User%00',
    ' svc_User',
    'svc_User u',
    '__proto__',
    'constructor',
    'hasOwnProperty',
    '*',
    '%',
  ])('%j is no collection', async (name) => {
    const { call } = await someone([])
    for (const callAs of [call, on.api.admin, on.watched.as()])
      for (const [method, path, body] of [
        ['GET', ''],
        ['GET', `/${randomUUID()}`],
        ['POST', '', { a: 1 }],
        ['PATCH', `/${randomUUID()}`, { a: 1 }],
        ['DELETE', `/${randomUUID()}`],
        ['POST', '/bulk', [{}]],
      ] as const) {
        const answer = await callAs(method, `/items/${encodeURIComponent(name)}${path}`, body)
        expect([answer.status, answer.body.error.message]).toEqual([404, `Model ${name} not found`])
      }
  })

  it('answer malformed rules as the dedicated routes do', async () => {
    const rule = { role_Id: on.lim.roleId, collection: 'note', action: 'delete' }
    for (const wrong of [
      { conditions: { nothing: 1 } },
      { conditions: 'all' },
      { relConditions: { nothing: {} } },
      { defaultValues: { title: '$CURRENT_USER.password' } },
      { fields: { title: true } },
      { fields: [1] },
      { collection: '*' },
      { action: 'everything' },
      { acl_Ids: [randomUUID()] },
    ])
      for (const path of ['/permissions', '/items/svc_Permission']) {
        const answer = await on.api.admin('POST', path, { ...rule, ...wrong })
        expect([path, wrong, answer.status]).toEqual([path, wrong, 400])
        expect(answer.body.error.message).toMatch(/^Validation failed: /)
      }
    const many = await on.api.admin('POST', '/items/svc_Permission/bulk', [rule, { ...rule, conditions: { x: 1 } }])
    expect(many.status).toBe(400)
    expect(
      await on.api.sql(`select 1 from "svc_Permission" where "role_Id" = $1 and action = 'delete'`, [on.lim.roleId]),
    ).toEqual([])
  })

  it('keep what is granted by hand past every check closed', async () => {
    const { call, roleId } = await someone([])
    const grant = (columns: string, values: string) =>
      on.api.sql(
        `insert into "svc_Permission" ("role_Id", collection, action, ${columns}) values ($1, 'note', 'read', ${values})`,
        [roleId],
      )
    const statuses: number[] = []
    for (const [columns, values] of [
      ['fields', `'{"title": true}'`],
      ['fields', `'5'`],
      ['fields', `'[null]'`],
      ['"relConditions"', `'"all"'`],
      ['"acl_Ids"', `'["${randomUUID()}"]'`],
      ['"acl_Ids"', `'"all"'`],
      ['"acl_Ids", fields', `'["${randomUUID()}"]', '["*"]'`],
    ] as const) {
      await grant(columns, values)
      await on.api.admin('POST', '/permissions/reload')
      statuses.push((await on.api.as((await signInAgain(roleId)).token)('GET', '/items/note')).status)
      await on.api.sql(`delete from "svc_Permission" where "role_Id" = $1`, [roleId])
    }
    expect(statuses).toEqual(statuses.map(() => 403))
    await grant('conditions', `'{"nothing": 1}'`)
    await on.api.admin('POST', '/permissions/reload')
    const list = await on.api.as((await signInAgain(roleId)).token)('GET', '/items/note')
    expect(list.body).toEqual({ data: [], totalCount: 0 })
    expect((await call('GET', '/items/svc_Permission')).status).toBe(403)
  })
})

/** A session in this process, of a user in the role. */
async function signInAgain(roleId: string): Promise<{ token: string }> {
  const [{ email }] = await on.api.sql(
    `select u.email from "svc_User" u join "svc_UserRole" ur on ur."user_Id" = u.id where ur."role_Id" = $1`,
    [roleId],
  )
  const { body } = await on.api.anonymous('POST', '/auth/login', { email, password: 'password of a user' })
  return body
}

describe('P-20 roles', () => {
  it.each([
    'administrator',
    'Administrator',
    'ADMINISTRATOR',
    ' administrator',
    'ａdministrator',
    'administrátor',
    'аdministrator',
    'admіnistrator',
    'adm1nistrator',
    'admin\u200bistrator',
    'public',
    'рublic',
    'publ1c',
    'User',
    'uѕer',
  ])('cannot be named %j', async (name) => {
    const made = await on.api.admin('POST', '/items/svc_Role', { name })
    expect([403, 409]).toContain(made.status)
    const own = await on.api.admin('POST', '/items/svc_Role', { name: `plain ${randomUUID()}` })
    expect([403, 409]).toContain((await on.api.admin('PATCH', `/items/svc_Role/${own.body.data.id}`, { name })).status)
  })

  it('of the system keep their names and stay', async () => {
    const position = await on.api.position()
    for (const { id } of await on.api.sql(
      `select id from "svc_Role" where name in ('administrator', 'public', 'user')`,
    )) {
      const [{ name, description }] = await on.api.sql('select name, description from "svc_Role" where id = $1', [id])
      expect((await on.api.admin('PATCH', `/items/svc_Role/${id}`, { name, description })).status).toBe(200)
      expect((await on.api.admin('PATCH', `/items/svc_Role/${id}`, { name: 'boss' })).body.error.message).toBe(
        'System role names cannot be changed',
      )
      expect((await on.api.admin('DELETE', `/items/svc_Role/${id}`)).body.error.message).toBe(
        'System roles cannot be deleted',
      )
      expect((await on.api.admin('DELETE', '/items/svc_Role/bulk', [id])).status).toBe(403)
    }
    expect(await on.api.log(position)).toEqual([])
  })

  it('are not changed by those who are in them, whatever they were granted', async () => {
    const { call, id, roleId } = await someone([])
    await storeGrants(on.api, roleId, everythingOn('svc_Role', 'svc_UserRole', 'svc_Permission', 'svc_ACL'))
    await on.watched.reload()
    const [admin] = await on.api.sql(`select id from "svc_Role" where name = 'administrator'`)
    const [link] = await on.api.sql(`select id from "svc_UserRole" where "user_Id" = $1`, [id])
    const position = await on.api.position()
    for (const [method, path, body] of [
      ['PATCH', `/items/svc_Role/${roleId}`, { name: 'administrator' }],
      ['PATCH', `/items/svc_Role/${roleId}`, { isTenantSpecific: false }],
      ['PATCH', `/items/svc_UserRole/${link.id}`, { role_Id: admin.id }],
      ['POST', '/items/svc_UserRole', { user_Id: id, role_Id: admin.id }],
      ['POST', '/items/svc_Permission', { role_Id: roleId, collection: 'svc_User', action: 'read' }],
      ['POST', '/permissions', { role_Id: roleId, collection: 'svc_User', action: 'read' }],
      ['POST', '/permissions/reload', {}],
      ['POST', '/permissions-import', {}],
      ['POST', '/permissions-preview-import', {}],
      ['GET', '/permissions-export', undefined],
      ['GET', `/permissions/explain?collection=note&action=read&role=${roleId}`, undefined],
      ['POST', '/acls', { name: 'mine' }],
    ] as const) {
      const answer = await call(method, path, body)
      expect([path, answer.status]).toEqual([path, 403])
      if (!path.startsWith('/items')) expect(answer.body.error.message).toBe('Access denied. Administrators only.')
    }
    expect(await on.api.log(position)).toEqual([])
  })

  it('have permissions for collections, never for all of them at once', async () => {
    for (const collection of ['*', '', 'svc_*', '%', null])
      expect(
        (
          await on.api.admin('POST', '/permissions', {
            role_Id: on.lim.roleId,
            collection,
            action: 'read',
            fields: '*',
          })
        ).status,
      ).toBe(400)
  })
})

describe('G-09 tasks of a user', () => {
  const state = {
    task_status: 'Completed',
    result_data: { done: true },
    error_data: { message: 'none' },
    retry_count: 9,
    started_at: '2024-01-01T00:00:00Z',
  }
  const stored = async (type: string) =>
    (
      await on.api.sql('select task_status, result_data, retry_count, started_at from "svc_Tasks" where type = $1', [
        type,
      ])
    )[0]
  const fresh = { task_status: 'Not started', result_data: null, retry_count: 0, started_at: null }

  it.each([['*'], ['*', ...Object.keys(state)]])('have no state of its own making (fields %s …)', async (...fields) => {
    const { call } = await someone([
      { collection: 'svc_Tasks', action: 'create', fields },
      { collection: 'svc_Tasks', action: 'read', fields: ['*'] },
    ])
    for (const [name, value] of Object.entries(state)) {
      const one = await call('POST', '/items/svc_Tasks', { type: 'forged', [name]: value })
      expect([one.status, one.body.error.message]).toEqual([403, `You don't have permission to create field: ${name}`])
      const bulk = await call('POST', '/items/svc_Tasks/bulk', [{ type: 'forged' }, { type: 'forged', [name]: value }])
      expect(bulk.status).toBe(403)
    }
    expect(await stored('forged')).toBeUndefined()
    const type = `plain ${fields.length}`
    expect((await call('POST', '/items/svc_Tasks', { type, task_data: { a: 1 } })).status).toBe(201)
    expect(await stored(type)).toEqual(fresh)
  })

  it('change it only where a permission names the field', async () => {
    const all = await someone(everythingOn('svc_Tasks'))
    const named = await someone([
      { collection: 'svc_Tasks', action: 'update', fields: ['task_status'] },
      { collection: 'svc_Tasks', action: 'read', fields: ['*'] },
    ])
    const { body } = await all.call('POST', '/items/svc_Tasks', { type: 'reset' })
    const path = `/items/svc_Tasks/${body.data.id}`
    for (const [name, value] of Object.entries(state))
      expect((await all.call('PATCH', path, { [name]: value })).status).toBe(403)
    expect(await stored('reset')).toEqual(fresh)
    expect((await all.call('PATCH', path, { scheduled_time: '2030-01-01T00:00:00Z' })).status).toBe(200)
    expect((await named.call('PATCH', path, { task_status: 'Error' })).status).toBe(200)
    expect((await named.call('PATCH', path, { started_at: '2024-01-01T00:00:00Z' })).status).toBe(403)
  })
})
