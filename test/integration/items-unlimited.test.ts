import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** Lists without a limit: short ones by one statement, long ones streamed, both the same to the client. */

let api: Api

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'line',
    schema: { fields: { id: { type: 'Integer', primaryKey: true }, text: { type: 'String' } } },
  })
  await api.sql(`insert into line select n, 'line ' || n from generate_series(1, 1500) n`)
})

const path = (parameters: Readonly<Record<string, unknown>>) =>
  `/items/line?${new URLSearchParams(
    Object.entries(parameters).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )}`

const upTo = (n: number) => ({ id: { lte: n } })

describe('a list without a limit', () => {
  it.each([0, 1, 999, 1000, 1001, 1500])('of %i rows is complete and in order', async (n) => {
    const ids = Array.from({ length: n }, (_, i) => ({ id: n - i }))
    for (const limit of [{}, { limit: -1 }, { limit: 1200 + n }]) {
      const answer = await api.admin('GET', path({ filter: upTo(n), fields: 'id', sort: '-id', ...limit }))
      expect(answer.body).toEqual({ data: ids, totalCount: n })
      // Only a whole answer has a tag.
      expect(answer.headers.etag === undefined).toBe(n > 1000)
    }
    const uncounted = await api.admin('GET', path({ filter: upTo(n), fields: 'id', sort: '-id', count: false }))
    expect(uncounted.body).toEqual({ data: ids })
  })

  it.each([
    [1, 4],
    [499, 1000],
    [499, 1001],
    [1000, 1000],
    [2000, 1500],
  ])('after an offset of %i of %i rows has the true total', async (offset, n) => {
    const { body } = await api.admin('GET', path({ filter: upTo(n), fields: 'id', offset }))
    expect(body.totalCount).toBe(n)
    expect(body.data).toHaveLength(Math.max(0, n - offset))
    if (offset < n) expect(body.data[0]).toEqual({ id: offset + 1 })
  })

  it('cut by a large limit still counts what comes after it', async () => {
    const { body } = await api.admin('GET', path({ fields: 'id', limit: 1200 }))
    expect([body.data.length, body.totalCount]).toEqual([1200, 1500])
  })

  it.each([3, 1000, 1001])('of %i groups is complete', async (n) => {
    const groups = { groupBy: 'text', aggregate: { n: { function: 'count' } }, filter: upTo(n) }
    const { body } = await api.admin('GET', path(groups))
    expect([body.data.length, body.totalCount]).toEqual([n, n])
    expect(body.data[0]).toEqual({ text: expect.stringMatching(/^line /), n: 1 })
  })
})
