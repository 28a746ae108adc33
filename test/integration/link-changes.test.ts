import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { type Change, pullAll } from '../support/changes.ts'
import { administrator } from '../support/prepare.ts'
import { connect, type TestSocket } from '../support/socket.ts'

let api: Api
let address: string
let token: string

const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
const named = (more: object = {}) => ({ fields: { id: serial, name: { type: 'String' } }, ...more })

/**
 * task ↔ tag (junction, relations on both sides), task → label (direct, only task has the relation), page → task | tag
 * (to any), badge ↔ tag without timestamps.
 */
beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const relations = (labels: object) => ({
    labels: { relType: 'BelongsToMany', through: 'task_label', foreignKey: 'task_id', otherKey: 'label_id', ...labels },
  })
  await declare('tag', named())
  await declare('label', named())
  const { fields } = named()
  await declare('task', { usertrack: true, fields: { ...fields, ...relations({ target: 'label' }) } })
  await declare('page', named())
  await declare('badge', named({ timestamps: false }))
  await relate('task', { type: 'M2M', name: 'tags', target: 'tag', alias: 'tasks', through: 'task_tag' })
  await relate('badge', { type: 'M2M', name: 'tags', target: 'tag', alias: 'badges', through: 'badge_tag' })
  await relate('page', { type: 'M2A', name: 'blocks', tables: ['task', 'tag'], alias: 'pages', through: 'page_block' })
})

async function declare(collectionName: string, schema: object) {
  const answer = await api.admin('POST', '/schemas', { collectionName, schema })
  expect(answer.status, answer.text).toBe(201)
}

async function relate(source: string, body: object) {
  const answer = await api.admin('POST', `/schemas/${source}/relationships`, body)
  expect(answer.status, answer.text).toBe(201)
}

async function create(collection: string, payload: object = {}): Promise<any> {
  const answer = await api.admin('POST', `/items/${collection}`, { name: collection, ...payload })
  expect(answer.status, answer.text).toBe(201)
  return answer.body.data.id
}

const patch = async (path: string, payload: unknown) => {
  const answer = await api.admin('PATCH', `/items/${path}`, payload)
  expect(answer.status, answer.text).toBe(200)
}

/** A socket that follows these collections. */
async function follow(names: readonly string[], by = token): Promise<TestSocket> {
  const client = await connect(address, by)
  for (const name of names) expect(await client.subscribe(name)).toMatchObject({ status: 'success' })
  return client
}

/**
 * What `work` makes subscribers of these collections hear, as sorted `action collection id`; `GET /changes` must tell the
 * same. A new item per collection is the end: what is told of one collection comes in order.
 */
async function told(names: readonly string[], work: () => Promise<unknown>): Promise<string[]> {
  const client = await follow(names)
  const since = (await api.admin('GET', '/changes')).body.cursor
  await work()
  const ends = await Promise.all(names.map(async (name) => `create ${name} ${await create(name, { name: 'end' })}`))
  const shown = () => client.frames.map(({ action, collection, data }) => `${action} ${collection} ${data.id}`)
  for (const end of ends) await client.frame(() => shown().includes(end))
  const { data } = await pullAll(api.admin, since, { collections: names.join() })
  const pulled = data.map(({ action, collection, id, position }: Change) => [position, `${action} ${collection} ${id}`])
  expect(pulled).toEqual(client.frames.map(({ position }, index) => [position, shown()[index]]).sort(byPosition))
  client.close()
  return shown()
    .filter((one) => !ends.includes(one))
    .sort()
}

const byPosition = ([one]: unknown[], [other]: unknown[]) => Number(one) - Number(other)

describe('a change of links', () => {
  it('is told once to the subscribers of either side, with the row as it is', async () => {
    const [one, two] = [await create('tag'), await create('tag')]
    const id = await create('task', { name: 'linked' })
    const names = ['task', 'tag']
    const link = () => patch(`task/${id}`, { tags: [{ tag_id: one }] })
    expect(await told(names, link)).toEqual([`update tag ${one}`, `update task ${id}`])
    const replace = () => patch(`task/${id}`, { tags: [{ tag_id: two }] })
    expect(await told(names, replace)).toEqual([`update tag ${one}`, `update tag ${two}`, `update task ${id}`])
    expect(await told(names, () => patch(`tag/${one}`, { tasks: [{ task_id: id }] }))).toEqual([
      `update tag ${one}`,
      `update task ${id}`,
    ])
    const unlink = () => patch(`task/${id}`, { tags: [] })
    expect(await told(names, unlink)).toEqual([`update tag ${one}`, `update tag ${two}`, `update task ${id}`])
    const client = await follow(['task'])
    await link()
    const { data } = await client.frame(({ action }) => action === 'update')
    expect(data).toEqual((await api.admin('GET', `/items/task/${id}`)).body.data)
  })

  it('is one event with what else changes of the item, and none beside its creation or deletion', async () => {
    const tag = await create('tag')
    const names = ['task', 'label']
    const id = await create('task', { labels: [await create('label')] })
    const both = () => patch(`task/${id}`, { name: 'renamed', tags: [{ tag_id: tag }], labels: [{ name: 'own' }] })
    const shown = await told(names, both)
    expect(shown.filter((one) => one.includes('task'))).toEqual([`update task ${id}`])
    const client = await follow(['task'])
    const created = await create('task', { tags: [{ tag_id: tag }], labels: [{ name: 'own' }] })
    expect((await api.admin('DELETE', `/items/task/${created}`)).status).toBe(200)
    await client.frame(({ action }) => action === 'delete')
    expect(client.frames.map(({ action }) => action)).toEqual(['create', 'delete'])
    expect(await told(['tag'], async () => void (await api.admin('DELETE', `/items/task/${id}`)))).toEqual([
      `update tag ${tag}`,
    ])
  })

  it('that leaves the set as it is leaves no trace', async () => {
    const tag = await create('tag')
    const label = await create('label')
    const id = await create('task', { tags: [{ tag_id: tag }], labels: [label] })
    const page = await create('page', { blocks: [{ collection: 'tag', item_id: tag }] })
    const before = await api.position()
    await patch(`task/${id}`, { tags: [{ tag_id: tag }], labels: [label] })
    await patch(`page/${page}`, { blocks: [{ collection: 'tag', item_id: tag }] })
    await patch(`tag/${tag}`, { tasks: [{ task_id: id }] })
    expect(await api.log(before)).toEqual([])
  })

  it('is told of collections without timestamps, and of rows between that are written by themselves or by SQL', async () => {
    const tag = await create('tag')
    const badge = await create('badge')
    const names = ['badge', 'tag']
    const expected = [`update badge ${badge}`, `update tag ${tag}`]
    expect(await told(names, () => patch(`badge/${badge}`, { tags: [{ tag_id: tag }] }))).toEqual(expected)
    const [{ id: link }] = await api.sql('select id from badge_tag where badge_id = $1', [badge])
    expect(await told(names, () => api.admin('DELETE', `/items/badge_tag/${link}`))).toEqual(expected)
    const row = { badge_id: badge, tag_id: tag }
    expect(await told(names, () => api.admin('POST', '/items/badge_tag', row))).toEqual(expected)
    const other = await create('badge')
    const move = () => api.sql('update badge_tag set badge_id = $1 where badge_id = $2', [other, badge])
    expect(await told(names, move)).toEqual([`update badge ${badge}`, `update badge ${other}`, expected[1]])
    expect(await told(names, () => api.sql('truncate badge_tag'))).toEqual([`update badge ${other}`, expected[1]])
  })

  it('to any collection is told on both sides, and when a linked item goes', async () => {
    const [task, tag] = [await create('task'), await create('tag')]
    const page = await create('page')
    const names = ['page', 'task', 'tag']
    const blocks = [
      { collection: 'tag', item_id: tag },
      { collection: 'task', item_id: task },
    ]
    expect(await told(names, () => patch(`page/${page}`, { blocks }))).toEqual([
      `update page ${page}`,
      `update tag ${tag}`,
      `update task ${task}`,
    ])
    expect(await told(names, () => api.admin('DELETE', `/items/tag/${tag}`))).toEqual([
      `delete tag ${tag}`,
      `update page ${page}`,
    ])
  })

  it('reaches only users who may read the item, with the fields that they may read, and can be resumed after it', async () => {
    const tag = await create('tag')
    const [open, closed] = [await create('task', { name: 'open' }), await create('task', { name: 'closed' })]
    const read = { collection: 'task', action: 'read', fields: ['name'], conditions: { name: { eq: 'open' } } }
    const user = await api.user([read])
    const client = await connect(address, user.token)
    const wish = { collection: 'task', filter: { name: { isNotNull: true } } }
    const { cursor } = await client.emit('subscribe', wish)
    for (const id of [closed, open]) await patch(`task/${id}`, { tags: [{ tag_id: tag }] })
    const first = await client.frame(() => true)
    expect(first).toMatchObject({ action: 'update', data: { id: open, name: 'open' } })
    expect(Object.keys(first.data).sort()).toEqual(['id', 'name'])
    const { data } = await pullAll(user.call, cursor)
    expect(data).toMatchObject([{ action: 'update', collection: 'task', id: open }])
    await patch(`task/${open}`, { tags: [] })
    await client.frame(({ position }) => position !== first.position)
    const again = await connect(address, user.token)
    await again.emit('subscribe', { ...wish, since: first.cursor })
    expect(again.frames).toHaveLength(1)
    expect(client.frames).toHaveLength(2)
    expect(again.frames[0]?.position).toBe(client.frames[1]?.position)
  })

  it('has an image that follows every other change of the item, also of writers at the same moment', async () => {
    const tag = await create('tag', { name: '0' })
    const tasks = await Promise.all(Array.from({ length: 6 }, () => create('task')))
    await Promise.all([
      ...tasks.map((id) => patch(`task/${id}`, { tags: [{ tag_id: tag }] })),
      ...tasks.map((id) => patch(`tag/${tag}`, { name: `named ${id}` })),
    ])
    const [{ name }] = await api.sql('select name from tag where id = $1', [tag])
    const events = (await api.log()).filter(({ entity, entityId }) => entity === 'tag' && entityId === String(tag))
    expect(events.at(-1)?.changes.after.name).toBe(name)
    for (const [index, { action, changes }] of events.entries())
      if (action === 'update')
        expect(changes.before.name ?? changes.after.name).toBe(events[index - 1]?.changes.after.name)
  })
})

describe('the trigger of a table between', () => {
  const source = async (table: string) =>
    (
      await api.sql(`select prosrc from pg_proc where pronamespace = 'svc_log'::regnamespace and proname = $1`, [table])
    )[0]?.prosrc

  it('follows the collections that it links', async () => {
    await declare('left_end', named())
    await declare('right_end', named())
    await relate('left_end', { type: 'M2M', name: 'rights', target: 'right_end', alias: 'lefts', through: 'ends' })
    const schema = (await api.admin('GET', '/schemas/left_end')).body.data.schema
    const fields = { ...schema.fields, secret: { type: 'String', hidden: true } }
    expect((await api.admin('PATCH', '/schemas/left_end', { schema: { ...schema, fields } })).status).toBe(200)
    const right = await create('right_end')
    const before = await api.position()
    const left = await create('left_end', { secret: 'canary' })
    await patch(`left_end/${left}`, { rights: [{ right_end_id: right }] })
    const events = await api.log(before)
    expect(events.map(({ action, entity }) => `${action} ${entity}`).sort()).toEqual([
      'create ends',
      'create left_end',
      'update left_end',
      'update right_end',
    ])
    expect(JSON.stringify(events)).not.toContain('canary')
    expect((await api.admin('DELETE', '/schemas/left_end/relationships/rights')).status).toBe(200)
    expect(await source('ends')).toBeUndefined()
  })

  it('is the only one that has more to do than to append what was written', async () => {
    for (const table of ['task', 'tag', 'label', 'page']) expect(await source(table)).not.toContain('svc$end')
    for (const table of ['task_tag', 'task_label', 'page_block']) expect(await source(table)).toContain('svc$end')
  })
})
