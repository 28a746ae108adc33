import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'

/** A many-to-any key is two columns, and a caller may write either: the row that both name is one that the caller may read. */

const junction = 'project_blocks_junction'
const text = { type: 'String' }

async function declare(api: Api): Promise<void> {
  const schemas: [string, object, object?][] = [
    ['project', { name: text }, { usertrack: true }],
    ['category', { name: text }],
    ['tag', { name: text }, { paranoid: true }],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const blocks = { type: 'M2A', name: 'blocks', tables: ['category', 'tag'], alias: 'projects' }
  expect((await api.admin('POST', '/schemas/project/relationships', blocks)).status).toBeLessThan(300)
}

const create = async (call: Call, collection: string, payload: object): Promise<any> => {
  const { status, body, text: words } = await call('POST', `/items/${collection}`, payload)
  expect(status, words).toBe(201)
  return body.data.id
}

/** 400 or 403, and neither a row nor an event. */
async function refused(api: Api, send: () => Promise<Answer>, message?: string): Promise<void> {
  const rows = () => api.sql(`select * from ${junction} order by id`)
  const [before, position] = [await rows(), await api.position()]
  const { status, text: words } = await send()
  expect([400, 403], words).toContain(status)
  if (message !== undefined) expect(words).toContain(message)
  expect(await rows()).toEqual(before)
  expect(await api.log(position)).toEqual([])
}

describe('a link to any collection', () => {
  let api: Api
  let user: Awaited<ReturnType<Api['user']>>
  let project: string
  let link: number
  const ids: Record<'category' | 'tag' | 'other' | 'secret', string> = { category: '', tag: '', other: '', secret: '' }
  const mine = { userCreated_Id: '$CURRENT_USER' }
  const permissions = [
    { collection: 'project', action: 'create', fields: ['*'] },
    { collection: 'project', action: 'read', fields: ['*', 'blocks.*'], conditions: mine },
    { collection: 'project', action: 'update', fields: ['*', 'blocks', 'blocks.*'], conditions: mine },
    { collection: 'tag', action: 'read', fields: ['*'], conditions: { name: { ne: 'secret' } } },
    ...['create', 'update'].map((action) => ({
      ...{ collection: junction, action, fields: ['*'] },
      conditions: { 'project.userCreated_Id': '$CURRENT_USER' },
    })),
  ]

  beforeAll(async () => {
    api = await startApi()
    await declare(api)
    ids.category = await create(api.admin, 'category', { name: 'c' })
    ids.tag = await create(api.admin, 'tag', { name: 'one' })
    ids.other = await create(api.admin, 'tag', { name: 'other' })
    ids.secret = await create(api.admin, 'tag', { name: 'secret' })
    user = await api.user(permissions)
    project = await create(user.call, 'project', { name: 'mine' })
  })

  beforeEach(async () => {
    await api.sql(`delete from ${junction}`)
    link = await create(user.call, junction, { project_id: project, collection: 'tag', item_id: ids.tag })
  })

  const stored = async () => (await api.sql(`select collection, item_id from ${junction} where id = $1`, [link]))[0]
  const change = (payload: object) => user.call('PATCH', `/items/${junction}/${link}`, payload)

  it('is changed by either of its columns to a row that the caller may read', async () => {
    expect((await change({ item_id: ids.other })).status).toBe(200)
    expect(await stored()).toEqual({ collection: 'tag', item_id: ids.other })
    expect((await change({ collection: 'tag' })).status).toBe(200)
    expect((await change({ collection: 'tag', item_id: ids.tag })).status).toBe(200)
    expect((await change({ item_id: ids.tag })).status).toBe(200)
    const nested = { blocks: [{ id: link, item_id: ids.other }] }
    expect((await user.call('PATCH', `/items/project/${project}`, nested)).status).toBe(200)
    expect(await stored()).toEqual({ collection: 'tag', item_id: ids.other })
  })

  it('is not changed by its key alone to a row that the caller may not read, or that is not there', async () => {
    for (const item_id of [ids.secret, ids.category, project]) {
      await refused(api, () => change({ item_id }), 'item_id')
      await refused(api, () => user.call('PATCH', `/items/${junction}/bulk`, [{ id: link, item_id }]))
      const nested = { blocks: [{ id: link, item_id }] }
      await refused(api, () => user.call('PATCH', `/items/project/${project}`, nested), 'blocks.0.item_id')
      await refused(api, () => change({ item_id, tag: { id: ids.tag } }))
    }
    for (const item_id of [ids.category, project])
      await refused(api, () => api.admin('PATCH', `/items/${junction}/${link}`, { item_id }))
  })

  it('is not changed by its kind alone', async () => {
    await api.sql('insert into category (id, name) values ($1, $2)', [ids.tag, 'the same key'])
    await refused(api, () => change({ collection: 'category' }))
    await refused(api, () => change({ collection: 'x' }), 'cannot hold an item of x')
    await refused(api, () => api.admin('PATCH', `/items/${junction}/${link}`, { collection: 'project' }))
    const admin = await api.admin('PATCH', `/items/${junction}/${link}`, { collection: 'category' })
    expect(admin.status, admin.text).toBe(200)
    await api.sql('delete from category where id = $1', [ids.tag])
  })

  it('whose collection the caller may not read stays as it is, and changes no further', async () => {
    await api.sql(`update ${junction} set collection = 'category', item_id = $1`, [ids.category])
    expect((await change({ item_id: ids.category })).status).toBe(200)
    expect((await change({ collection: 'category' })).status).toBe(200)
    await refused(api, () => change({ item_id: ids.tag }))
    await refused(api, () => change({ collection: 'tag' }))
  })

  it('is not changed by a writer who meets another one', async () => {
    await api.sql('insert into category (id, name) values ($1, $2)', [ids.other, 'the same key'])
    const both = await api.user([
      ...permissions,
      { collection: 'category', action: 'read', fields: ['*'], conditions: { id: ids.tag } },
    ])
    await api.sql('insert into category (id, name) values ($1, $2)', [ids.tag, 'may be read'])
    await api.sql(`update project set "userCreated_Id" = $1`, [both.id])
    const send = (payload: object) => both.call('PATCH', `/items/${junction}/${link}`, payload)
    const answers = await Promise.all([send({ collection: 'category' }), send({ item_id: ids.other })])
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    await api.sql(`update project set "userCreated_Id" = $1`, [user.id])
    await api.sql('delete from category where id = any($1)', [[ids.tag, ids.other]])
  })

  it('is not made with a kind that the relation does not have', async () => {
    for (const collection of ['x', 'project', 'svc_User', 'Tag']) {
      const row = { project_id: project, collection, item_id: ids.category }
      const message = `cannot hold an item of ${collection}`
      await refused(api, () => user.call('POST', `/items/${junction}`, row), message)
      await refused(api, () => api.admin('POST', `/items/${junction}/bulk`, [row]), message)
      const content = JSON.stringify([row])
      const file = [{ name: 'jsonFile', filename: 'rows.json', content }]
      await refused(api, () => upload(api, user.token, `/items/${junction}/import-json`, file), message)
    }
  })

  it('is looked at with what a permission puts under the payload, which is not looked at by itself', async () => {
    const reads = [{ collection: 'project', action: 'read', fields: ['*'] }, permissions[3]!]
    const role = async (defaultValues: object) =>
      (await api.user([{ collection: junction, action: 'create', fields: ['*'], defaultValues }, ...reads])).call
    const kind = await role({ collection: 'tag' })
    await refused(api, () => kind('POST', `/items/${junction}`, { project_id: project, item_id: ids.secret }))
    await create(kind, junction, { project_id: project, item_id: ids.other })
    const key = await role({ item_id: ids.category })
    await refused(api, () => key('POST', `/items/${junction}`, { project_id: project, collection: 'category' }))
    const all = await role({ item_id: ids.category, collection: 'category' })
    await create(all, junction, { project_id: project })
  })

  it('is looked at by an upsert with the row that is there', async () => {
    await api.sql(`alter table ${junction} alter collection drop not null`)
    const { schema } = (await api.admin('GET', `/schemas/${junction}`)).body.data
    const fields = { ...schema.fields, collection: text }
    expect((await api.admin('PATCH', `/schemas/${junction}`, { schema: { ...schema, fields } })).text).toMatch(
      /success/,
    )
    const upsert = (payload: object) =>
      user.call('PUT', `/items/${junction}?key=id`, { id: link, project_id: project, ...payload })
    for (const item_id of [ids.secret, ids.category]) await refused(api, () => upsert({ item_id }), 'item_id')
    await refused(api, () => upsert({ item_id: ids.tag, collection: 'category' }))
    const done = await upsert({ item_id: ids.other })
    expect(done.status, done.text).toBe(200)
    expect(await stored()).toEqual({ collection: 'tag', item_id: ids.other })
  })

  it('is put back by an undo', async () => {
    const { headers } = await change({ item_id: ids.other })
    expect(await stored()).toEqual({ collection: 'tag', item_id: ids.other })
    const undo = { requestId: headers['x-request-id'] }
    const { status, text: words } = await api.admin('POST', '/log/undo', undo)
    expect(status, words).toBe(200)
    expect(await stored()).toEqual({ collection: 'tag', item_id: ids.tag })
  })

  it('is put back by an undo where its row is in the trash by now', async () => {
    const { headers } = await change({ item_id: ids.other })
    const requestId = headers['x-request-id']
    expect((await api.admin('DELETE', `/items/tag/${ids.tag}`)).status).toBe(200)
    const { status, text: words } = await api.admin('POST', '/log/undo', { requestId })
    expect(status, words).toBe(200)
    expect(await stored()).toEqual({ collection: 'tag', item_id: ids.tag })
    expect((await api.admin('PATCH', `/items/tag/${ids.tag}`, { deletedAt: null })).status).toBe(200)
  })
})

describe('a link to any collection of a tenant', () => {
  it('does not lead to the rows of another', async () => {
    const api = await startApi({ MULTI_TENANT: 'true' })
    await declare(api)
    const [one, two] = [await createTenant(api, 'one'), await createTenant(api, 'two')]
    const roleId = await createRole(api)
    for (const collection of ['project', 'category', 'tag', junction])
      for (const action of ['create', 'read', 'update'])
        await grant(api, roleId, { collection, action, fields: ['*', 'blocks', 'blocks.*'] })
    const [ann, bob] = [await createUser(api, roleId, one), await createUser(api, roleId, two)]
    const foreign = await create(ann.call, 'category', { name: 'of one' })
    const own = await create(bob.call, 'category', { name: 'of two' })
    const project = await create(bob.call, 'project', { name: 'of two' })
    const link = await create(bob.call, junction, { project_id: project, collection: 'category', item_id: own })
    await refused(api, () => bob.call('PATCH', `/items/${junction}/${link}`, { item_id: foreign }))
    await refused(api, () => bob.call('PATCH', `/items/${junction}/bulk`, [{ id: link, item_id: foreign }]))
    const nested = { blocks: [{ id: link, item_id: foreign }] }
    await refused(api, () => bob.call('PATCH', `/items/project/${project}`, nested))
    const row = { project_id: project, collection: 'svc_User', item_id: ann.id }
    await refused(api, () => bob.call('POST', `/items/${junction}`, row))
  })
})
