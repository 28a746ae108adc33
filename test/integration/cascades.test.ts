import { beforeAll, expect, it } from 'vitest'
import { verifyTablesOf } from '../../src/events/verify.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'
import { mulberry } from '../support/random.ts'

/** Rows that go with a row of their own table, while others of that table lose their reference to it. */

let api: Api

const key = { type: 'Integer', primaryKey: true }
const to = (target: string, onDelete: string) => ({ relType: 'BelongsTo', target, onDelete })

const done = async (...call: Parameters<Api['admin']>) => {
  const answer = await api.admin(...call)
  if (answer.status >= 300) throw new Error(`${answer.status} ${answer.text}`)
  return answer
}

beforeAll(async () => {
  api = await startApi()
  const fields = (name: string) => ({ id: key, up: to(name, 'CASCADE'), friend: to(name, 'SET NULL') })
  await done('POST', '/schemas', { collectionName: 'made', schema: { fields: fields('made') } })
  // The other way round: the reference that is emptied comes to a table that has the other one.
  const { friend, ...first } = fields('grown')
  await done('POST', '/schemas', { collectionName: 'grown', schema: { fields: first } })
  await done('PATCH', '/schemas/grown', { schema: { fields: { friend } } })
})

it.each(['made', 'grown'])('a delete logs what becomes of each row of %s in its order', async (name) => {
  const random = mulberry(1)
  const below = (count: number) => Math.floor(random() * count)
  for (let round = 0; round < 40; round += 1) {
    const count = 3 + below(7)
    const rows = Array.from({ length: count }, (_, i) => {
      const friend = below(3) === 0 ? null : 1 + below(count)
      return { id: i + 1, up: i === 0 ? null : 1 + below(i), friend }
    })
    await api.sql(
      `insert into ${name} (id, "up_Id", "friend_Id") values ${rows.map(({ id, up, friend }) => `(${id}, ${up}, ${friend})`)}`,
    )
    const before = await api.position()
    await done('DELETE', `/items/${name}/1`)
    const state = new Map(rows.map(({ id, friend }) => [String(id), friend]))
    for (const { action, entityId, changes } of await api.log(before)) {
      if (entityId === null) throw new Error(`${action} of no row`)
      expect([round, action, entityId, state.get(entityId)]).toEqual([
        round,
        action,
        entityId,
        (changes.before as { friend_Id: number | null }).friend_Id,
      ])
      if (action === 'delete') state.delete(entityId)
      else state.set(entityId, (changes.after as { friend_Id: number | null }).friend_Id)
    }
    expect([round, state.size]).toEqual([round, 0])
  }
  const verified = await verifyTablesOf(testConfig(api.database.url))
  expect(verified.find(({ collection }) => collection === name)).toMatchObject({ different: 0 })
})

it('the rows come back with their references', async () => {
  const rows = [
    [1, null, null],
    [2, 1, null],
    [3, 2, 1],
  ]
  await api.sql(`insert into made (id, "up_Id", "friend_Id") values ${rows.map((row) => `(${row.map(String)})`)}`)
  const { headers } = await done('DELETE', '/items/made/1')
  await done('POST', '/log/undo', { requestId: headers['x-request-id'] })
  const now = await api.sql('select id, "up_Id", "friend_Id" from made order by id')
  expect(now.map((row) => Object.values(row))).toEqual(rows)
})
