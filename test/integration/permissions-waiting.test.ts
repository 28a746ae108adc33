import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { examine } from '../../src/doctor/doctor.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Permissions for collections that do not exist yet. */

let api: Api
let role: Awaited<ReturnType<Api['user']>>
let n = 0
let later: string

beforeAll(async () => {
  api = await startApi()
})

beforeEach(async () => {
  n += 1
  later = `later${n}`
  role = await api.user()
})

const permit = (rule: object) =>
  api.admin('POST', '/permissions', { role_Id: role.roleId, collection: later, action: 'read', fields: '*', ...rule })
const declare = async (fields: object = {}) => {
  const schema = { fields: { title: { type: 'String' }, stars: { type: 'Integer' }, ...fields } }
  const { status, text } = await api.admin('POST', '/schemas', { collectionName: later, schema })
  expect(status, text).toBe(201)
}
const explain = (question: object) =>
  api.admin(
    'GET',
    `/permissions/explain?${new URLSearchParams({ collection: later, action: 'read', user: role.id, ...question })}`,
  )
const doctor = async () =>
  (await examine(testEnv(api.database.url))).filter(
    ({ check, says }) => check === 'permissions' && says.includes(later),
  )

describe('a permission for a collection that does not exist yet', () => {
  it('is stored, grants nothing, and counts from the moment that the collection is created', async () => {
    const before = await api.position()
    const made = await permit({ fields: ['title'], conditions: { stars: { gt: 1 } } })
    expect([made.status, made.body.collection]).toEqual([201, later])
    expect((await api.log(before)).map(({ entity, action }) => [entity, action])).toEqual([
      ['svc_Permission', 'create'],
    ])
    expect((await role.call('GET', `/items/${later}`)).status).toBe(404)
    await declare()
    for (const stars of [1, 2]) await api.admin('POST', `/items/${later}`, { title: `${stars}`, stars })
    const { status, body } = await role.call('GET', `/items/${later}`)
    expect([status, body.totalCount]).toEqual([200, 1])
    expect(body.data).toEqual([{ id: expect.any(String), title: '2' }])
    expect((await role.call('GET', `/items/${later}?fields=stars`)).status).toBe(403)
    expect((await role.call('POST', `/items/${later}`, { title: 'x' })).status).toBe(403)
  })

  it('is explained while it waits, and found by the doctor', async () => {
    const { id } = (await permit({ conditions: { title: 'x' } })).body
    expect((await explain({})).body).toMatchObject({
      allowed: false,
      decidedBy: 'collection',
      reason: `Model ${later} not found: the permission waits for the collection to be created`,
      permission: { id, fields: ['*'], problems: [] },
      fields: null,
      conditions: { stored: { title: 'x' }, resolved: null, problem: null },
    })
    for (const question of [{ action: 'update' }, { collection: 'nowhere' }, { collection: 'no where' }])
      expect((await explain(question)).status).toBe(404)
    expect(await doctor()).toMatchObject([
      { status: 'warning', says: expect.stringMatching(/does not exist: it grants/) },
    ])
    await declare()
    expect(await doctor()).toEqual([])
    expect((await explain({})).body).toMatchObject({ allowed: true, decidedBy: 'permission' })
  })

  it.each<[string, object, object]>([
    ['conditions', { conditions: { nope: 1 } }, { field: 'conditions', message: 'unknown field "nope"' }],
    ['a value', { conditions: { stars: 'many' } }, { field: 'conditions', message: 'stars.eq: expected an integer' }],
    ['a hidden field', { conditions: { pin: 'x' } }, { field: 'conditions', message: expect.stringContaining('pin') }],
  ])('lets no row through where %s do not fit what is created', async (_what, rule, problem) => {
    expect((await permit(rule)).status).toBe(201)
    await declare({ pin: { type: 'String', hidden: true } })
    await api.admin('POST', `/items/${later}`, { title: 'x', stars: 1, pin: 'x' })
    const { status, body } = await role.call('GET', `/items/${later}`)
    expect([status, body]).toEqual([200, { data: [], totalCount: 0 }])
    expect((await explain({})).body).toMatchObject({
      allowed: false,
      decidedBy: 'rule',
      permission: { problems: [problem] },
    })
    expect(await doctor()).toHaveLength(1)
  })

  it('shows no field that it did not name, and refuses limits of what is no relation', async () => {
    expect((await permit({ fields: ['titel', 'team.name'] })).status).toBe(201)
    await declare()
    await api.admin('POST', `/items/${later}`, { title: 'x' })
    expect((await role.call('GET', `/items/${later}`)).body.data).toEqual([{ id: expect.any(String) }])
    expect((await explain({})).body.permission.problems.map(({ message }: any) => message)).toEqual([
      'titel names no field or relation',
      'team.name names no field or relation',
    ])
    expect(await doctor()).toHaveLength(2)
  })

  it('is refused whole where it limits the rows of what is no relation', async () => {
    expect((await permit({ relConditions: { team: { name: 'x' } } })).status).toBe(201)
    await declare()
    expect((await role.call('GET', `/items/${later}`)).status).toBe(403)
    expect((await explain({})).body).toMatchObject({
      allowed: false,
      permission: { problems: [{ field: 'relConditions', message: `team is not a relation of '${later}'` }] },
    })
  })

  it('creates nothing where its conditions do not fit', async () => {
    await permit({ action: 'create', conditions: { nope: 1 } })
    await declare()
    expect((await role.call('POST', `/items/${later}`, { title: 'x' })).status).toBe(403)
    expect(await api.sql(`select 1 from "${later}"`)).toEqual([])
  })

  it('comes with an import, too', async () => {
    const [{ name }] = await api.sql('select name from "svc_Role" where id = $1', [role.roleId])
    const file = {
      version: '1.0',
      roles: [{ name, permissions: [{ collection: later, action: 'read', fields: '*' }] }],
    }
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const part = { name: 'rolesPermissions', filename: 'roles.json', content: JSON.stringify(file) }
    const { status, text } = await upload(api, token, '/permissions-import', [part])
    expect(status, text).toBe(200)
    await declare()
    expect((await role.call('GET', `/items/${later}`)).status).toBe(200)
  })

  it('must still be one that could mean something', async () => {
    for (const rule of [
      { action: 'list' },
      { fields: { title: true } },
      { conditions: 'all' },
      { conditions: { title: '$CURRENT_USER.nope' } },
      { conditions: { AND: 7 } },
      { relConditions: 'x' },
    ])
      expect([rule, (await permit(rule)).status]).toEqual([rule, 400])
  })
})

it('the doctor tells what a permission shows through a relation alone', async () => {
  await api.admin('POST', '/schemas', { collectionName: `team${n}`, schema: { fields: { name: { type: 'String' } } } })
  await declare({ team: { relType: 'BelongsTo', target: `team${n}`, foreignKey: 'team_Id' } })
  const { id } = (await permit({ fields: ['title', 'team.name'] })).body
  expect(await doctor()).toMatchObject([
    {
      status: 'warning',
      says: expect.stringMatching(new RegExp(`reads id, name of team${n} through ${later}.team$`)),
      remedy: expect.stringContaining(id),
    },
  ])
  await permit({ collection: `team${n}`, fields: ['name'] })
  expect(await doctor()).toEqual([])
})
