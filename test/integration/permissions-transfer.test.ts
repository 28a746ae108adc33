import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'

/** Roles and permissions as a file. */

let api: Api
let token: string
let aclId: string

beforeAll(async () => {
  api = await startApi()
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  await api.admin('POST', '/schemas', {
    collectionName: 'book',
    schema: { usertrack: true, fields: { title: { type: 'String' }, stars: { type: 'Integer' } } },
  })
  aclId = (await api.sql(`select id from "svc_ACL" where name = 'Read_Own'`))[0].id
})

type Upload = { name?: string; filename?: string; type?: string; content: string | Buffer }

/** A file as a browser sends it. */
async function upload(path: string, parts: readonly Upload[], as: string | undefined = token): Promise<Answer> {
  const form = new FormData()
  for (const { name = 'rolesPermissions', filename = 'roles.json', type = 'application/json', content } of parts)
    form.append(name, new Blob([content as string], { type }), filename)
  const request = new Request('http://localhost', { method: 'POST', body: form })
  const response = await api.app.inject({
    method: 'POST',
    url: path,
    headers: {
      'content-type': request.headers.get('content-type')!,
      ...(as !== undefined && { authorization: `Bearer ${as}` }),
    },
    payload: Buffer.from(await request.arrayBuffer()),
  })
  return { status: response.statusCode, body: response.json(), text: response.body, headers: response.headers }
}

const send = (path: string, file: unknown) => upload(path, [{ content: JSON.stringify(file) }])
const importFile = (file: unknown) => send('/permissions-import', file)
const preview = (file: unknown) => send('/permissions-preview-import', file)
const read = (more: object = {}) => ({ collection: 'book', action: 'read', fields: ['title'], ...more })
const fileOf = (...roles: object[]) => ({ version: '1.0', timestamp: '2024-01-01T00:00:00.000Z', roles })

const permissionsOf = async (role: string) =>
  api.sql(
    `select p.collection, p.action, p.fields, p.conditions, p."relConditions", p."defaultValues", p."acl_Ids"
     from "svc_Permission" p join "svc_Role" r on r.id = p."role_Id" where r.name = $1 order by 1, 2`,
    [role],
  )

const stored = (more: object = {}) => ({
  ...read(),
  conditions: null,
  relConditions: null,
  defaultValues: null,
  acl_Ids: null,
  ...more,
})

describe('the export', () => {
  it('is an attachment with every role and what it may do, as stored', async () => {
    const { body: role } = await api.admin('POST', '/items/svc_Role', { name: 'exported', description: 'For export' })
    for (const permission of [
      read({ fields: 'title, stars', conditions: { stars: { gt: 1 } }, defaultValues: null }),
      { collection: 'book', action: 'delete', acl_Ids: [aclId] },
    ])
      await api.admin('POST', '/permissions', { role_Id: role.data.id, ...permission })
    const answer = await api.admin('GET', '/permissions-export')
    expect(answer.status).toBe(200)
    expect(answer.headers['content-disposition']).toMatch(/^attachment; filename="permissions-\d{4}-\d\d-\d\d\.json"$/)
    expect(answer.headers['content-type']).toMatch(/^application\/json/)
    expect(answer.body).toMatchObject({ version: '1.0', timestamp: expect.stringMatching(/Z$/) })
    expect(answer.body.roles.map(({ name }: { name: string }) => name)).toEqual([
      'administrator',
      'exported',
      'public',
      'user',
    ])
    const nothing = { fields: null, conditions: null, defaultValues: null, relConditions: null }
    expect(answer.body.roles[1]).toEqual({
      name: 'exported',
      description: 'For export',
      permissions: [
        { ...nothing, collection: 'book', action: 'delete', acls: ['Read_Own'] },
        { ...nothing, collection: 'book', action: 'read', fields: 'title, stars', conditions: { stars: { gt: 1 } } },
      ],
    })
  })

  it('imports as it is, and then nothing changes', async () => {
    const { body: file } = await api.admin('GET', '/permissions-export')
    const before = await api.position()
    const { changes } = (await preview(file)).body
    expect(changes).toMatchObject({ newRoles: [], new: [], modified: [], deleted: [] })
    expect(changes.unchanged).toHaveLength(2)
    expect((await importFile(file)).body).toEqual({
      message: 'Roles and permissions import completed',
      changes: { createdRoles: [], created: [], updated: [], deleted: [], errors: [] },
    })
    expect(await api.log(before)).toEqual([])
  })
})

describe('the import', () => {
  it('previews exactly what it does, and does it in one go', async () => {
    await importFile(
      fileOf({
        name: 'editor',
        permissions: [read(), read({ action: 'update', fields: '*' }), read({ action: 'delete', fields: null })],
      }),
    )
    const file = fileOf(
      {
        name: 'editor',
        permissions: [
          read({ fields: ['title', 'stars'], conditions: { userCreated_Id: '$CURRENT_USER' } }),
          read({ action: 'update', fields: '*' }),
          read({ action: 'create', defaultValues: { stars: 1 } }),
        ],
      },
      {
        name: 'newcomer',
        description: 'Just arrived',
        permissions: [{ collection: 'book', action: 'read', acls: ['Read_Own'] }],
      },
    )
    const before = await api.position()
    const seen = await preview(file)
    expect(seen).toMatchObject({ status: 200, body: { importVersion: '1.0', importTimestamp: file.timestamp } })
    expect(await api.log(before)).toEqual([])
    const at = (role: string, action: string) => ({ role, collection: 'book', action })
    expect(seen.body.changes).toEqual({
      newRoles: ['newcomer'],
      new: [at('editor', 'create'), at('newcomer', 'read')],
      modified: [{ ...at('editor', 'read'), differences: ['fields', 'conditions'] }],
      deleted: [at('editor', 'delete')],
      unchanged: [at('editor', 'update')],
    })
    const done = await importFile(file)
    expect(done).toMatchObject({ status: 200, body: { message: 'Roles and permissions import completed' } })
    expect(done.body.changes).toEqual({
      createdRoles: ['newcomer'],
      created: seen.body.changes.new,
      updated: [at('editor', 'read')],
      deleted: seen.body.changes.deleted,
      errors: [],
    })
    expect(await permissionsOf('editor')).toEqual([
      stored({ action: 'create', defaultValues: { stars: 1 } }),
      stored({ fields: ['title', 'stars'], conditions: { userCreated_Id: '$CURRENT_USER' } }),
      stored({ action: 'update', fields: '*' }),
    ])
    expect(await permissionsOf('newcomer')).toEqual([stored({ fields: null, acl_Ids: [aclId] })])
    const [role] = await api.sql(`select description, "isTenantSpecific" from "svc_Role" where name = 'newcomer'`)
    expect(role).toEqual({ description: 'Just arrived', isTenantSpecific: true })
    const events = await api.log(before)
    expect(events.map(({ entity, action }) => `${entity} ${action}`)).toEqual([
      'svc_Role create',
      'svc_Permission delete',
      'svc_Permission update',
      'svc_Permission create',
      'svc_Permission create',
    ])
    const [{ id }] = await api.sql(`select id from "svc_User" where email = $1`, [administrator.email])
    expect(new Set(events.map(({ userId }) => userId))).toEqual(new Set([id]))
  })

  it('counts at once, and leaves roles alone that it does not list', async () => {
    const [listed, other] = [await api.user([read()]), await api.user([read()])]
    const [{ name }] = await api.sql('select name from "svc_Role" where id = $1', [listed.roleId])
    expect((await listed.call('GET', '/items/book')).status).toBe(200)
    expect((await importFile(fileOf({ name, permissions: [] }))).status).toBe(200)
    expect((await listed.call('GET', '/items/book')).status).toBe(403)
    expect((await other.call('GET', '/items/book')).status).toBe(200)
  })

  it('keeps the ids of permissions that stay', async () => {
    await importFile(fileOf({ name: 'stable', permissions: [read()] }))
    const idOf = async () =>
      (
        await api.sql(
          `select p.id from "svc_Permission" p join "svc_Role" r on r.id = p."role_Id" where r.name = 'stable'`,
        )
      )[0].id
    const before = await idOf()
    await importFile(fileOf({ name: 'stable', permissions: [read({ fields: '*' })] }))
    expect(await idOf()).toBe(before)
  })

  it.each<[string, unknown, string[]]>([
    ['no object', [], ['roles']],
    ['no roles', { version: '1.0' }, ['roles']],
    ['roles that are no list', { roles: {} }, ['roles']],
    ['a role without a name', fileOf({ permissions: [] }), ['roles[0].name']],
    ['a role that is no object', { roles: ['editor'] }, ['roles[0].name']],
    ['a role listed twice', fileOf({ name: 'a' }, { name: 'a' }), ['roles[1].name']],
    ['a name that reads like a built-in role', fileOf({ name: 'аdministrator' }), ['roles[0].name']],
    ['permissions that are no list', fileOf({ name: 'a', permissions: {} }), ['roles[0].permissions']],
    ['a permission listed twice', fileOf({ name: 'a', permissions: [read(), read()] }), ['roles[0].permissions[1]']],
    [
      'permissions that mean nothing',
      fileOf(
        { name: 'a', permissions: [read({ action: 'list' }), read({ collection: 'no where' })] },
        {
          name: 'b',
          permissions: [read({ conditions: { nope: 1 } }), read({ action: 'update', acls: ['No_Such'], fields: null })],
        },
      ),
      [
        'roles[0].permissions[0].action',
        'roles[0].permissions[1].collection',
        'roles[1].permissions[0].conditions',
        'roles[1].permissions[1].acl_Ids',
      ],
    ],
    [
      'a permission that is no object',
      fileOf({ name: 'a', permissions: ['read'] }),
      ['roles[0].permissions[0].action', 'roles[0].permissions[0].collection'],
    ],
  ])('refuses %s, says where, and changes nothing', async (_what, file, fields) => {
    const before = await api.position()
    for (const path of ['/permissions-import', '/permissions-preview-import']) {
      const { status, body } = await send(path, file)
      expect([path, status, body.error.message]).toEqual([path, 400, 'Invalid import data format'])
      expect(body.error.details.errors.map(({ field }: { field: string }) => field)).toEqual(fields)
    }
    expect(await api.log(before)).toEqual([])
  })

  it('changes nothing when the database refuses a part of it', async () => {
    await api.sql(`create function refuse_delete() returns trigger language plpgsql as
      $$ begin if new.action = 'delete' then raise exception 'no'; end if; return new; end $$`)
    await api.sql(
      `create trigger refuse before insert on "svc_Permission" for each row execute function refuse_delete()`,
    )
    const before = await api.position()
    const file = fileOf(
      { name: 'editor', permissions: [] },
      { name: 'late', permissions: [read(), read({ action: 'delete' })] },
    )
    const { status, body } = await importFile(file)
    expect([status, body.error.message]).toEqual([400, 'no'])
    await api.sql('drop trigger refuse on "svc_Permission"')
    expect(await api.log(before)).toEqual([])
    expect(await permissionsOf('editor')).toHaveLength(3)
    expect(await api.sql(`select 1 from "svc_Role" where name = 'late'`)).toEqual([])
  })

  it('of two at the same time ends as one of them', async () => {
    const file = (fields: string) =>
      fileOf({ name: 'raced', permissions: [read({ fields }), read({ action: 'update', fields })] })
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, i) => importFile(file(i % 2 === 0 ? 'title' : 'stars'))),
    )
    for (const { status } of answers) expect([200, 409]).toContain(status)
    expect(answers.some(({ status }) => status === 200)).toBe(true)
    const left = await permissionsOf('raced')
    expect(left).toHaveLength(2)
    expect(new Set(left.map(({ fields }) => fields)).size).toBe(1)
  })
})

describe('the upload', () => {
  const good = { content: JSON.stringify(fileOf()) }

  it.each<[string, Upload[], string]>([
    ['no part', [], 'No roles & permissions file uploaded'],
    ['another part', [{ ...good, name: 'schema' }], 'No roles & permissions file uploaded'],
    [
      'another kind of file',
      [{ ...good, filename: 'roles.csv', type: 'text/csv' }],
      'Invalid file type. Please upload a JSON file',
    ],
    ['no JSON', [{ content: '{"roles": [' }], 'Invalid JSON file'],
    ['an empty file', [{ content: '' }], 'Invalid JSON file'],
    ['bytes', [{ content: Buffer.from([0xff, 0xfe, 0x00]) }], 'The uploaded file is not valid UTF-8'],
    ['depth', [{ content: '['.repeat(100_000) }], 'The uploaded file is nested too deeply'],
  ])('with %s is refused', async (_what, parts, message) => {
    for (const path of ['/permissions-import', '/permissions-preview-import']) {
      const { status, body } = await upload(path, parts)
      expect([path, status, body.error.message]).toEqual([path, 400, message])
    }
  })

  it.each([
    [{ ...good, filename: 'roles.JSON', type: 'application/octet-stream' }],
    [{ ...good, filename: 'roles', type: 'application/json' }],
  ])('is known by its name or its type', async (part) => {
    expect((await upload('/permissions-import', [part])).status).toBe(200)
  })

  it('that is no upload is refused', async () => {
    const answer = await api.admin('POST', '/permissions-import', fileOf())
    expect([answer.status, answer.body.error.message]).toEqual([400, 'No roles & permissions file uploaded'])
    expect((await api.admin('POST', '/permissions-import')).status).toBe(400)
    const broken = await api.app.inject({
      method: 'POST',
      url: '/permissions-import',
      headers: { 'content-type': 'multipart/form-data', authorization: `Bearer ${token}` },
      payload: 'x',
    })
    expect(broken.statusCode).toBe(400)
  })

  it('larger than BODY_SIZE_LIMIT is refused', async () => {
    const { bodySizeLimit } = api.runtime.config.server
    const answer = await upload('/permissions-import', [{ content: Buffer.alloc(bodySizeLimit + 1, ' ') }])
    expect(answer.status).toBe(413)
  })

  it('is for administrators', async () => {
    const { token: user } = await api.user()
    for (const path of ['/permissions-import', '/permissions-preview-import']) {
      const refused = await upload(path, [good], user)
      expect([refused.status, refused.body.error.message]).toEqual([403, 'Access denied. Administrators only.'])
      expect((await upload(path, [good], '')).status).toBe(401)
    }
    expect((await api.as(user)('GET', '/permissions-export')).status).toBe(403)
    expect((await api.anonymous('GET', '/permissions-export')).status).toBe(401)
  })
})
