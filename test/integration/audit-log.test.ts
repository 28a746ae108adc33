import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

let api: Api
let id: string

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'paper',
    schema: { fields: { title: { type: 'String' }, note: { type: 'String' } } },
  })
  id = (await api.admin('POST', '/items/paper', { title: 'a', note: 'canary' })).body.data.id
  await api.admin('PATCH', `/items/paper/${id}`, { title: 'b' })
  await api.admin('DELETE', `/items/paper/${id}`)
})

const events = async () => {
  const query = new URLSearchParams({
    filter: JSON.stringify({ entity: 'paper', entityId: id }),
    sort: 'id',
    fields: 'action,changes,userId,updatedAt,createdAt',
  })
  return (await api.admin('GET', `/items/svc_AuditLog?${query}`)).body.data
}

describe('reading the log through /items/svc_AuditLog', () => {
  it('shows both images whole, null where there is none', async () => {
    const [created, updated, deleted] = await events()
    expect(created).toMatchObject({
      action: 'create',
      changes: { before: null, after: { id, title: 'a', note: 'canary' } },
    })
    expect(updated.changes).toMatchObject({
      before: { id, title: 'a', note: 'canary' },
      after: { id, title: 'b', note: 'canary' },
    })
    expect(deleted.changes).toMatchObject({ before: { id, title: 'b' }, after: null })
    expect(created.updatedAt).toBe(created.createdAt)
  })

  it('hides in the past what is hidden today', async () => {
    const { schema } = (await api.admin('GET', '/schemas/paper')).body.data
    await api.admin('PATCH', '/schemas/paper', {
      schema: { ...schema, fields: { ...schema.fields, note: { type: 'String', hidden: true } } },
    })
    const shown = await events()
    expect(shown).toHaveLength(3)
    expect(JSON.stringify(shown)).not.toContain('canary')
    expect(shown[1].changes.before).toMatchObject({ title: 'a' })
  })

  it.each([
    'filter={"changes":{"jsonbContains":{"after":{"note":"canary"}}}}',
    'sort=changes',
    'groupBy=changes&aggregate={"n":{"function":"count","field":"*"}}',
  ])('cannot be asked what the images hold: %s', async (query) => {
    expect((await api.admin('GET', `/items/svc_AuditLog?${query}`)).status).toBe(400)
  })

  it('knows updatedAt as createdAt, of which it has a column', async () => {
    const ask = async (query: Record<string, string>) =>
      (await api.admin('GET', `/items/svc_AuditLog?${new URLSearchParams(query)}`)).body
    const [first] = await events()
    const found = (updatedAt: object) =>
      ask({ filter: JSON.stringify({ entity: 'paper', updatedAt }), fields: 'action' })
    expect((await found({ lt: first.createdAt })).data).toEqual([])
    expect((await found({ gte: first.createdAt })).data).toHaveLength(3)
    const sorted = await ask({ sort: '-updatedAt', limit: '1', fields: 'updatedAt' })
    expect(sorted).toEqual(await ask({ sort: '-id', limit: '1', fields: 'updatedAt' }))
    const count = JSON.stringify({ n: { function: 'count', field: '*' } })
    const grouped = await ask({ groupBy: 'updatedAt', aggregate: count, filter: JSON.stringify({ entity: 'paper' }) })
    expect(grouped.data[0]).toEqual({ updatedAt: expect.any(String), n: expect.anything() })
  })

  it('shows domain events as they are', async () => {
    const query = new URLSearchParams({
      filter: JSON.stringify({ type: 'schema' }),
      fields: 'action,changes,entityId',
      limit: '1',
    })
    expect((await api.admin('GET', `/items/svc_AuditLog?${query}`)).body.data).toEqual([
      { action: 'changed', changes: { collection: 'paper', change: 'create' }, entityId: 'paper' },
    ])
  })
})
