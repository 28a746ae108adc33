import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { upload } from '../support/upload.ts'

/** A row that the caller may not read, and one that is not there, are the same to a caller who points at them. */

let api: Api
/** Reads projects whose name is not secret, and may do everything with tasks. */
let limited: { call: Call; token: string; id: string }
/** May do everything with tasks, and reads no project. */
let blind: typeof limited
/** Reads every project. */
let full: typeof limited

const ids = { seen: '', unseen: '', other: '', deleted: '', missing: randomUUID() }

beforeAll(async () => {
  api = await startApi()
  const schemas: [string, object][] = [
    ['project', { fields: { name: { type: 'String' }, code: { type: 'String', unique: true } }, paranoid: true }],
    [
      'task',
      {
        fields: {
          title: { type: 'String', unique: true },
          project: { relType: 'BelongsTo', target: 'project', foreignKey: 'project_Id' },
          owner: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'owner_Id' },
          parent: { relType: 'BelongsTo', target: 'task', foreignKey: 'parent_Id' },
          children: { relType: 'HasMany', target: 'task', foreignKey: 'parent_Id' },
        },
      },
    ],
  ]
  for (const [collectionName, schema] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema })).text).toContain('success')
  const project = async (name: string) => (await api.admin('POST', '/items/project', { name, code: name })).body.data.id
  ids.seen = await project('open')
  ids.other = await project('open too')
  ids.unseen = await project('secret')
  ids.deleted = await project('deleted')
  await api.admin('DELETE', `/items/project/${ids.deleted}`)
  const tasks = ['create', 'read', 'update', 'delete'].map((action) => ({
    collection: 'task',
    action,
    fields: ['*', 'children.*', 'parent.*'],
  }))
  const all = { collection: 'project', action: 'read', fields: ['*'] }
  limited = await api.user([...tasks, { ...all, conditions: { name: { ne: 'secret' } } }])
  blind = await api.user(tasks)
  full = await api.user([...tasks, all])
})

let count = 0
const title = () => {
  count += 1
  return `task ${count}`
}

/** A task without a user, which points nowhere. */
const task = async (more: object = {}) =>
  (await api.admin('POST', '/items/task', { title: title(), ...more })).body.data.id as string

/** What was answered, without what differs between any two requests. */
const brief = ({ status, body, headers }: Answer) => ({
  status,
  body: JSON.parse(JSON.stringify(body).replaceAll(/task \d+|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}/g, '…')),
  headers: Object.keys(headers).filter((name) => name !== 'content-length'),
})

type Way = (caller: typeof limited, project: string) => Promise<Answer>

const ways: Readonly<Record<string, Way>> = {
  'a create by the column': ({ call }, project_Id) => call('POST', '/items/task', { title: title(), project_Id }),
  'a create by the column with an object': ({ call }, id) =>
    call('POST', '/items/task', { title: title(), project_Id: { id } }),
  'a create by the relation': ({ call }, project) => call('POST', '/items/task', { title: title(), project }),
  'a create by the relation with an object': ({ call }, id) =>
    call('POST', '/items/task', { title: title(), project: { id } }),
  'a create of many': ({ call }, project_Id) =>
    call('POST', '/items/task/bulk', [
      { title: title() },
      { title: title(), project_Id },
      { title: title(), project_Id },
    ]),
  'an update by the column': async ({ call }, project_Id) =>
    call('PATCH', `/items/task/${await task()}`, { project_Id }),
  'an update from another one': async ({ call }, project_Id) =>
    call('PATCH', `/items/task/${await task({ project_Id: ids.seen })}`, { project_Id, title: title() }),
  'an update by the relation': async ({ call }, project) => call('PATCH', `/items/task/${await task()}`, { project }),
  'an update of many': async ({ call }, project_Id) =>
    call('PATCH', '/items/task/bulk', [{ id: await task(), project_Id }]),
  'an upsert that creates': ({ call }, project_Id) =>
    call('PUT', '/items/task?key=title', { title: title(), project_Id }),
  'an upsert that changes': async ({ call }, project_Id) => {
    const name = title()
    await api.admin('POST', '/items/task', { title: name, project_Id: ids.seen })
    return call('PUT', '/items/task?key=title', { title: name, project_Id })
  },
  'a nested child': ({ call }, project_Id) =>
    call('POST', '/items/task', { title: title(), children: [{ title: title(), project_Id }] }),
  'a nested parent': ({ call }, project_Id) =>
    call('POST', '/items/task', { title: title(), parent: { title: title(), project_Id } }),
  'a nested change': async ({ call }, project_Id) =>
    call('POST', '/items/task', { title: title(), parent: { id: await task(), project_Id } }),
  'an import of JSON': ({ token }, project_Id) =>
    upload(api, token, '/items/task/import-json', [
      { name: 'jsonFile', filename: 'a.json', content: JSON.stringify([{ title: title(), project_Id }]) },
    ]),
  'an import of CSV': ({ token }, id) =>
    upload(api, token, '/items/task/import-csv', [
      { name: 'csvFile', filename: 'a.csv', content: `title,project_Id\n${title()},${id}\n` },
    ]),
  'an import of CSV by the relation': ({ token }, id) =>
    upload(api, token, '/items/task/import-csv', [
      { name: 'csvFile', filename: 'a.csv', content: `title,project\n${title()},${id}\n` },
    ]),
}

describe.each(Object.entries(ways))('%s', (_what, way) => {
  it('is the same for a row that is not the caller’s to see and one that is not there', async () => {
    const position = await api.position()
    const unseen = await way(limited, ids.unseen)
    const missing = await way(limited, ids.missing)
    expect(brief(unseen)).toEqual(brief(missing))
    expect(unseen.status).toBe(400)
    expect(unseen.text).not.toContain('secret')
    const written = await api.log(position)
    expect(written.filter(({ userId }) => userId === limited.id)).toEqual([])
  })

  it('is refused to a caller who reads no such row at all', async () => {
    const answers = [await way(blind, ids.other), await way(blind, ids.unseen), await way(blind, ids.missing)]
    const [first] = answers.map(brief)
    expect(first!.status === 403 || first!.status === 400).toBe(true)
    for (const answer of answers) expect(brief(answer)).toEqual(first)
  })

  it('is done where the caller sees the row', async () => {
    for (const caller of [limited, full]) expect([200, 201]).toContain((await way(caller, ids.other)).status)
    expect([200, 201]).toContain((await way(full, ids.unseen)).status)
  })
})

describe('a foreign key', () => {
  it('says to who sees every row that a row is not there, as it always did', async () => {
    for (const call of [full.call, api.admin])
      expect(await call('POST', '/items/task', { title: title(), project_Id: ids.missing })).toMatchObject({
        status: 409,
        body: { error: { message: 'Foreign key constraint violation' } },
      })
  })

  it('may point at a deleted row, which can be read', async () => {
    for (const { call } of [limited, full])
      expect((await call('POST', '/items/task', { title: title(), project_Id: ids.deleted })).status).toBe(201)
  })

  it('may not by its relation', async () => {
    for (const call of [limited.call, full.call, api.admin])
      for (const project of [ids.deleted, { id: ids.deleted }])
        expect(await call('POST', '/items/task', { title: title(), project })).toMatchObject({
          status: 400,
          body: { error: { message: 'Validation failed for relational data' } },
        })
  })

  it('is opened by the grant of its column in both forms, by that of its relation in one', async () => {
    const read = { collection: 'project', action: 'read', fields: ['*'] }
    const make = { collection: 'project', action: 'create', fields: ['*'] }
    const writer = async (name: string) =>
      (await api.user([read, make, { collection: 'task', action: 'create', fields: ['title', name] }])).call
    const [byColumn, byRelation] = [await writer('project_Id'), await writer('project')]
    const create = (call: Call, more: object) => call('POST', '/items/task', { title: title(), ...more })
    const denied = (what: string) => ({
      status: 403,
      body: { error: { message: `You don't have permission to create ${what}` } },
    })
    expect((await create(byColumn, { project_Id: ids.seen })).status).toBe(201)
    expect((await create(byColumn, { project: ids.seen })).status).toBe(201)
    expect((await create(byColumn, { project: { id: ids.seen } })).status).toBe(201)
    expect(await create(byColumn, { project: { name: 'new' } })).toMatchObject(denied('relation: project'))
    expect(await create(byRelation, { project_Id: ids.seen })).toMatchObject(denied('field: project_Id'))
    expect((await create(byRelation, { project: ids.seen })).status).toBe(201)
    expect((await create(byRelation, { project: { name: 'new' } })).status).toBe(201)
  })

  it('may stay where it is when a whole row is sent back', async () => {
    const name = title()
    const id = await task({ project_Id: ids.unseen, title: name })
    for (const { call } of [limited, blind]) {
      const { data } = (await call('GET', `/items/task/${id}`)).body
      expect(data.project_Id).toBe(ids.unseen)
      expect((await call('PATCH', `/items/task/${id}`, data)).status).toBe(200)
      const { id: _id, ...rest } = data
      expect((await call('PUT', '/items/task?key=title', rest)).status).toBe(200)
      const elsewhere = { ...rest, project_Id: ids.missing }
      expect((await call('PUT', '/items/task?key=title', elsewhere)).status).toBe(400)
      expect((await call('PUT', '/items/task?key=title', { ...rest, title: title() })).status).toBe(400)
    }
    const rows = await api.sql('select "project_Id" from task where id = $1', [id])
    expect(rows).toEqual([{ project_Id: ids.unseen }])
  })

  it('does not tell by staying what the caller may not read', async () => {
    const tasks = ['create', 'update'].map((action) => ({ collection: 'task', action, fields: ['*'] }))
    const projects = { collection: 'project', action: 'read', fields: ['*'], conditions: { name: { ne: 'secret' } } }
    const writer = await api.user([...tasks, { collection: 'task', action: 'read', fields: ['title'] }, projects])
    const id = await task({ project_Id: ids.unseen })
    for (const project_Id of [ids.unseen, ids.missing])
      expect((await writer.call('PATCH', `/items/task/${id}`, { project_Id })).status).toBe(400)
  })

  it('may always hold the caller’s own id', async () => {
    for (const { call, id } of [limited, blind, full]) {
      expect((await call('POST', '/items/task', { title: title(), owner_Id: id })).status).toBe(201)
      expect((await call('POST', '/items/task', { title: title(), owner_Id: id.toUpperCase() })).status).toBe(201)
      const [other, none] = [blind.id === id ? full.id : blind.id, randomUUID()]
      const answers = [other, none].map((owner_Id) => call('POST', '/items/task', { title: title(), owner_Id }))
      for (const { status } of await Promise.all(answers)) expect(status).toBe(400)
    }
  })

  it('may be cleared by a caller who reads no such row', async () => {
    const id = await task({ project_Id: ids.seen })
    expect((await blind.call('PATCH', `/items/task/${id}`, { project_Id: null })).status).toBe(200)
  })
})
