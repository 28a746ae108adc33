import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { preparedPlan } from '../../src/features/data/items/reads.ts'
import { systemAccess } from '../../src/query/access.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { resolveEnv, resolveList } from '../../src/query/resolve.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** Plans are kept for questions that are asked again, and answers are the same. */

let api: Api

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true', STRICT_TENANT_ISOLATION: 'false' })
  const schema = { fields: { title: { type: 'String' }, at: { type: 'DateTime' }, tenant_Id: { type: 'UUID' } } }
  const made = await api.admin('POST', '/schemas', { collectionName: 'page', schema })
  if (made.status !== 201) throw new Error(made.text)
  await api.sql(`insert into page (title) values ('a'), ('b'), ('c')`)
})

const list = '/items/page?fields=title&sort=title'
const ofPages = (more: object) => ({ collection: 'page', action: 'read', fields: ['title'], ...more })

/** A user of a role that is at no tenant, or of one that exists. */
async function reader(more: object, role?: string) {
  const roleId = role ?? (await createRole(api, { isTenantSpecific: false }))
  if (role === undefined) await grant(api, roleId, ofPages(more))
  return { ...(await createUser(api, roleId, null)), roleId }
}

/** The titles of the pages that a user sees, asked so often that the plan is kept. */
async function titles(call: Call, path = list): Promise<string> {
  const answers = [await call('GET', path), await call('GET', path), await call('GET', path)]
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
  const [first, ...others] = answers.map(({ body }) => body.data.map((row: { title: string }) => row.title).join(''))
  expect(others).toEqual([first, first])
  return first
}

/** How often a question had to be resolved of `times`. */
function resolved(token: { catalog?: object; access?: object }, raw: object, times = 4): number {
  const { runtime } = api
  let count = 0
  for (let i = 0; i < times; i += 1)
    preparedPlan(
      (token.catalog ?? runtime.catalog.current()) as never,
      { meaning: () => 'somebody', ...token.access } as never,
      { name: 'list page', raw: raw as never },
      (given) => {
        count += 1
        return resolveList(runtime.catalog.current(), systemAccess, 'page', parseListQuery(given), resolveEnv(runtime))
      },
    )
  return count
}

describe('a question is resolved', () => {
  it('no more when it was asked twice', () => {
    expect(resolved({}, { limit: '7' })).toBe(2)
    expect(resolved({}, { limit: '7' })).toBe(0)
  })

  it('no more with other values in a filter of the same shape', () => {
    const filter = (n: number) => ({ filter: `{"title":"t${n}","at":{"gte":"2024-01-0${n}"}}`, limit: '7' })
    expect([1, 2, 3, 4].map((n) => resolved({}, filter(n), 1))).toEqual([1, 1, 0, 0])
    expect(
      [5, 6].map((n) => resolved({}, { 'filter[title]': `${n}`, 'filter[at][gte]': '2024-01-07', limit: '7' }, 1)),
    ).toEqual([0, 0])
    expect(resolved({}, { ...filter(7), limit: '8' })).toBe(2)
  })

  it('anew for values that make another test, and again no more for the others', () => {
    const filter = (value: unknown) => ({ filter: JSON.stringify({ title: { isNull: value } }), limit: '9' })
    expect(resolved({}, filter('true'))).toBe(2)
    expect(resolved({}, filter('false'))).toBe(4)
    expect(resolved({}, filter('true'))).toBe(0)
  })

  it('no more in the very words where a value decides more than a comparison', () => {
    const filter = (to: string) => ({ filter: JSON.stringify({ title: { eq: '1', cast: to } }), limit: '6' })
    expect(resolved({}, filter('integer'), 6)).toBe(4)
    expect(resolved({}, filter('text'), 6)).toBe(2)
  })

  it('anew with other collections, by others, and in other words', () => {
    expect(resolved({ catalog: {} }, { limit: '7' })).toBe(2)
    expect(resolved({ access: { meaning: () => 'somebody else' } }, { limit: '7' })).toBe(2)
    expect(resolved({}, { limit: '8' })).toBe(2)
    expect(resolved({}, { limit: '80', page: '1' })).toBe(2)
    expect(resolved({}, { limit: '8', page: '01' })).toBe(2)
  })

  it.each([
    ['a variable', { filter: '{"at":{"lt":"$NOW"}}' }],
    ['an escaped variable', { filter: '{"at":{"lt":"\\u0024NOW"}}' }],
    ['a variable in brackets', { 'filter[at][lt]': '$NOW' }],
    ['something else than text', { filter: { at: null } }],
    ['a long text', { filter: JSON.stringify({ title: 'x'.repeat(4000) }) }],
  ])('every time when it holds %s', (_what, raw) => {
    expect(resolved({}, raw)).toBe(4)
  })

  it('every time when what the caller may changes with the time', () => {
    expect(resolved({ access: { meaning: () => undefined } }, { limit: '7' })).toBe(4)
  })
})

describe('with a plan that is kept', () => {
  it('a changed rule, changed fields and a lost permission are seen at once', async () => {
    const { call, roleId } = await reader({ conditions: { title: 'a' } })
    expect(await titles(call)).toBe('a')
    const [{ id }] = await api.sql('select id from "svc_Permission" where "role_Id" = $1', [roleId])
    await api.admin('PATCH', `/permissions/${id}`, { conditions: { title: { in: ['b', 'c'] } } })
    expect(await titles(call)).toBe('bc')
    await api.admin('PATCH', `/permissions/${id}`, { fields: ['at'] })
    expect((await call('GET', list)).status).toBe(403)
    await api.admin('DELETE', `/permissions/${id}`)
    expect((await call('GET', list)).status).toBe(403)
  })

  it('users of a role have their own values of its variables, and their new ones', async () => {
    const one = await reader({ conditions: { title: '$CURRENT_USER.firstName' } })
    const other = await reader({}, one.roleId)
    const rename = (id: string, firstName: string) => api.admin('PATCH', `/items/svc_User/${id}`, { firstName })
    await rename(one.id, 'a')
    await rename(other.id, 'b')
    expect(await titles(one.call)).toBe('a')
    expect(await titles(other.call)).toBe('b')
    await rename(one.id, 'c')
    expect(await titles(one.call)).toBe('c')
  })

  it('a filter of the same shape finds what its own values are', async () => {
    const { call } = await reader({ conditions: { title: { in: ['a', 'b'] } }, fields: ['title', 'at'] })
    const asked = async (filter: unknown) => {
      const { status, body } = await call('GET', `${list}&filter=${encodeURIComponent(JSON.stringify(filter))}`)
      return status === 200 ? body.data.map((row: { title: string }) => row.title).join('') : status
    }
    const answers: unknown[] = []
    for (const title of ['a', 'b', 'c', 'a', "a' or true --", 'b', null, 'a']) answers.push(await asked({ title }))
    expect(answers).toEqual(['a', 'b', '', 'a', '', 'b', '', 'a'])
    const lists = [['a'], ['a', 'b', 'c'], [], ['b', null], ['c']]
    expect(await Promise.all(lists.map((title) => asked({ title: { in: title } })))).toEqual(['a', 'ab', '', 'b', ''])
    for (const at of ['2030-01-01', '2031-01-01', '2032-01-01']) expect(await asked({ at: { lt: at } })).toBe('')
    expect(await asked({ at: { lt: 'soon' } })).toBe(400)
    expect(await asked({ at: { lt: '$NOW' } })).toBe('')
  })

  it('a list that is too long to be held whole is streamed with its own values', async () => {
    await api.sql(`insert into page (title) select 'long' || n % 2 from generate_series(1, 2400) n`)
    const asked = async (title: string) => {
      const { body } = await api.admin('GET', `/items/page?fields=title&filter={"title":"${title}"}`)
      return new Set(body.data.map((row: { title: string }) => row.title)).size === 1 && body.data.length
    }
    for (const title of ['long0', 'long1', 'long0', 'long1', 'a'])
      expect(await asked(title)).toBe(title === 'a' ? 1 : 1200)
    await api.sql(`delete from page where title like 'long%'`)
  })

  it('users of a role stay in their tenants', async () => {
    const role = await createRole(api)
    await grant(api, role, ofPages({}))
    const [here, there] = [await createTenant(api, 'here'), await createTenant(api, 'there')]
    await api.sql(`insert into page (title, "tenant_Id") values ('h', $1), ('t', $2)`, [here, there])
    const [one, other] = [await createUser(api, role, here), await createUser(api, role, there)]
    expect(await titles(one.call)).toBe('h')
    expect(await titles(other.call)).toBe('t')
    await api.sql('delete from page where "tenant_Id" is not null')
  })

  it('a rule with the time lets rows through as it goes by', async () => {
    const { call } = await reader({ conditions: { at: { lt: '$NOW' } } })
    await api.sql(`update page set at = now() + interval '1 hour' where title = 'b'`)
    expect(await titles(call)).toBe('')
    const clock = vi.spyOn(api.runtime, 'clock').mockImplementation(() => new Date(Date.now() + 2 * 3_600_000))
    onTestFinished(() => clock.mockRestore())
    expect(await titles(call)).toBe('b')
  })

  it('a rule with the settings follows them', async () => {
    const { call } = await reader({ conditions: { title: '$CURRENT_SETTINGS.title' } })
    expect(await titles(call)).toBe('')
    await api.admin('PATCH', '/settings', { title: 'c' })
    await waitFor(async () => (await call('GET', list)).body.data.length === 1)
  })

  it('a changed collection is seen at once', async () => {
    const schema = { fields: { name: { type: 'String' } } }
    await api.admin('POST', '/schemas', { collectionName: 'sheet', schema })
    await api.admin('POST', '/items/sheet', { name: 'x' })
    const ask = async () => (await api.admin('GET', '/items/sheet')).body.data
    for (const _ of [1, 2, 3]) expect(Object.keys((await ask())[0])).not.toContain('more')
    await api.admin('PATCH', '/schemas/sheet', { schema: { fields: { ...schema.fields, more: { type: 'String' } } } })
    expect(Object.keys((await ask())[0])).toContain('more')
  })

  it('every item is its own, and an id that is none is refused', async () => {
    const { body } = await api.admin('GET', '/items/page?sort=title')
    for (const { id, title } of [...body.data, ...body.data])
      expect((await api.admin('GET', `/items/page/${id}?fields=title`)).body.data).toEqual({ title })
    expect((await api.admin('GET', '/items/page/none?fields=title')).status).toBe(400)
    const missing = '00000000-0000-4000-8000-000000000000'
    expect((await api.admin('GET', `/items/page/${missing}?fields=title`)).status).toBe(403)
  })

  it('an item is read as it was where that is asked for', async () => {
    const { body } = await api.admin('POST', '/items/page', { title: 'before' })
    const before = (await api.admin('GET', '/items/page?limit=0&changesCursor=true')).body.changesCursor
    await api.admin('PATCH', `/items/page/${body.data.id}`, { title: 'after' })
    for (const _ of [1, 2, 3]) {
      const asked = await api.admin('GET', `/items/page/${body.data.id}?fields=title&asOf=${before}`)
      expect(asked.body.data).toEqual({ title: 'before' })
    }
  })
})
