import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/**
 * Statements that read rows out of the log keep no plan for the columns that a table had before: PostgreSQL reads values by it as
 * what they are not.
 */

let api: Api

beforeAll(async () => {
  api = await startApi()
})

const retypes = [
  ['String', 'Integer', '13', 13],
  ['Integer', 'String', 13, '13'],
  ['String', 'Double', '13.5', 13.5],
  ['String', 'Date', '2024-01-13', '2024-01-13'],
  ['Text', { type: 'String', values: { stringLength: 50 } }, 'thirteen', 'thirteen'],
] as const

describe.each(retypes)('after a change of a field from %j to %j', (from, to, stored, shown) => {
  it('the trash, the history and the changes show values of the new type', async () => {
    const name = `retyped_${retypes.findIndex((one) => one[0] === from && one[1] === to)}`
    const made = await api.admin('POST', '/schemas', {
      collectionName: name,
      schema: { fields: { n: { type: from }, other: { type: 'Integer' } } },
    })
    expect(made.status, made.text).toBe(201)
    const [kept, gone] = await Promise.all(
      [1, 2].map(async () => (await api.admin('POST', `/items/${name}`, { n: stored })).body.data.id),
    )
    const { body } = await api.admin('GET', '/changes')
    const since = body.cursor
    await api.admin('DELETE', `/items/${name}/${gone}`)
    await api.admin('PATCH', `/items/${name}/${kept}`, { other: 1 })
    const asked = {
      trash: `/items/${name}/deleted`,
      history: `/items/${name}/${gone}/history`,
      changes: `/changes?collections=${name}&since=${encodeURIComponent(since)}`,
      before: `/items/${name}?asOf=${encodeURIComponent(since)}&sort=id`,
    }
    /** On every connection that may have prepared it. */
    const answers = async (path: string) => {
      const all = await Promise.all(Array.from({ length: 12 }, () => api.admin('GET', path)))
      expect(all.map(({ status }) => status)).toEqual(all.map(() => 200))
      return all.map(({ body: { data } }) => JSON.stringify(data))
    }
    for (const path of Object.values(asked)) await answers(path)
    const type = typeof to === 'string' ? { type: to } : to
    const changed = await api.admin('PATCH', `/schemas/${name}`, { schema: { fields: { n: type } } })
    expect(changed.status, changed.text).toBe(200)
    for (const [what, path] of Object.entries(asked))
      for (const text of await answers(path))
        expect(text).toContain(`"n":${what === 'history' ? '{"before":' : ''}${JSON.stringify(shown)}`)
  })
})
