import { beforeAll, describe, expect, it } from 'vitest'
import { verifyTablesOf } from '../../src/events/verify.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'
import { createRole, createUser, grant } from '../support/tenants.ts'

/** A field that is dropped and made again under its name begins with an empty past (docs/history.md). */

let api: Api
let id: string
let target: string
/** Requests that made the row, changed both fields and the reference, and changed the note alone. */
const requests: string[] = []
/** The moments after them. */
const moments: string[] = []
/** The moment before them all. */
let start: string

const text = { type: 'String' }
const to = (name: string) => ({ relType: 'BelongsTo', target: name })

const done = async (...call: Parameters<Api['admin']>) => {
  const answer = await api.admin(...call)
  if (answer.status >= 300) throw new Error(`${answer.status} ${answer.text}`)
  return { data: answer.body?.data, id: String(answer.headers['x-request-id']) }
}
const log = async (...call: Parameters<Api['admin']>) => {
  const { data, id: request } = await done(...call)
  requests.push(request)
  moments.push((await done('GET', '/history/now')).data.cursor)
  return data
}
const drop = (field: string) => done('DELETE', `/schemas/memo/fields/${field}`)
const add = (fields: object) => done('PATCH', '/schemas/memo', { schema: { fields } })
const undo = (body: object) => api.admin('POST', '/log/undo', body)
const shown = async (query = '') => (await done('GET', `/items/memo/${id}?fields=title,note,owner_Id${query}`)).data

beforeAll(async () => {
  api = await startApi()
  for (const collectionName of ['person', 'firm'])
    await done('POST', '/schemas', { collectionName, schema: { fields: { name: text } } })
  const fields = { title: text, note: text, owner: to('person') }
  await done('POST', '/schemas', { collectionName: 'memo', schema: { fields } })
  target = (await done('POST', '/items/person', { name: 'P' })).data.id
  start = (await done('GET', '/history/now')).data.cursor
  ;({ id } = await log('POST', '/items/memo', { title: 'a', note: 'first', owner_Id: target }))
  await log('PATCH', `/items/memo/${id}`, { title: 'b', note: 'second', owner_Id: null })
  await log('PATCH', `/items/memo/${id}`, { note: 'third' })
  await drop('note')
  await drop('owner')
  await add({ note: { ...text, defaultValue: 'new' }, owner: to('firm') })
})

describe('a field made again', () => {
  it('shows nothing of the old one in reads of the past, in histories and to the log', async () => {
    expect(await shown()).toMatchObject({ title: 'b', note: 'new', owner_Id: null })
    expect(await shown(`&asOf=${moments[0]}`)).toMatchObject({ title: 'a', note: null, owner_Id: null })
    expect(await shown(`&asOf=${moments[2]}`)).toMatchObject({ title: 'b', note: 'new' })
    const history = (await done('GET', `/items/memo/${id}/history`)).data
    expect(history).toHaveLength(3)
    expect(history[1].changes.title).toEqual({ before: 'a', after: 'b' })
    for (const old of ['first', 'second', 'third', target]) expect(JSON.stringify(history)).not.toContain(old)
    const verified = await verifyTablesOf(testConfig(api.database.url))
    expect(verified.find(({ collection }) => collection === 'memo')).toMatchObject({ rows: 1, verified: 1 })
  })

  it('shows nothing of the old one to who asks for changes from an old cursor', async () => {
    const { body } = await api.admin('GET', `/changes?since=${start}&collections=memo`)
    const old = { note: null, owner_Id: null }
    expect(body.data).toMatchObject([
      { action: 'create', data: { ...old, title: 'a' } },
      { action: 'update', data: { ...old, title: 'b' } },
      { action: 'update', data: { ...old, title: 'b' } },
    ])
    expect(body.resync).toEqual(['memo'])
    // Nor is a row let through for what the old one held.
    const role = await createRole(api)
    await grant(api, role, { collection: 'memo', action: 'read', conditions: { note: 'second' } })
    const { call } = await createUser(api, role, null)
    expect((await call('GET', `/changes?since=${start}&collections=memo`)).body.data).toEqual([])
  })

  it('is left alone by restore, and by the undo of what changed the old one, which says so', async () => {
    await done('POST', `/items/memo/${id}/restore`, { asOf: moments[0] })
    expect(await shown()).toMatchObject({ title: 'a', note: 'new', owner_Id: null })
    await done('PATCH', `/items/memo/${id}`, { title: 'b' })
    const lost = (fields: string[]) => [{ collection: 'memo', id, reasons: [{ reason: 'lost', fields }] }]
    const preview = await undo({ requestId: requests[2], dryRun: true })
    expect(preview.body.data.conflicts).toEqual(lost(['note']))
    const before = await api.position()
    const refused = await undo({ requestId: requests[2] })
    expect([refused.status, refused.body.error.code]).toEqual([409, 'UNDO_CONFLICT'])
    expect(await api.log(before)).toEqual([])
    const both = await undo({ requestId: requests[1], dryRun: true })
    expect(both.body.data.conflicts).toMatchObject([
      {
        reasons: [
          { reason: 'changed', fields: ['title'] },
          { reason: 'lost', fields: ['note', 'owner_Id'] },
        ],
      },
    ])
    expect((await undo({ requestId: requests[1], force: [{ collection: 'memo', id }] })).status).toBe(200)
    expect(await shown()).toMatchObject({ title: 'a', note: 'new', owner_Id: null })
  })

  it('has a past of its own, whatever its type', async () => {
    await drop('note')
    await add({ note: { type: 'Integer' } })
    const { id: request } = await done('PATCH', `/items/memo/${id}`, { title: 'c', note: 7 })
    expect((await undo({ requestId: request })).status).toBe(200)
    expect(await shown()).toMatchObject({ title: 'a', note: null })
    const old = await undo({ requestId: requests[2], dryRun: true })
    expect(old.body.data.conflicts).toMatchObject([{ reasons: [{ reason: 'lost', fields: ['note'] }] }])
    const { id: deletion } = await done('DELETE', `/items/memo/${id}`)
    expect((await done('GET', '/items/memo/deleted')).data).toMatchObject([{ item: { title: 'a', note: null } }])
    expect((await undo({ requestId: deletion })).status).toBe(200)
    const all = await undo({ requestId: requests[0], dryRun: true })
    expect(all.body.data.counts).toMatchObject([{ collection: 'memo', delete: 1 }])
  })
})
