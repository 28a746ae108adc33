import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'

/** Import and export are doors to tenants like any other. */

let api: Api
let admin: string
let t1: string
let t2: string
let one: TenantUser
let two: TenantUser
let free: TenantUser

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true', STRICT_TENANT_ISOLATION: 'false', TENANT_IGNORED_TABLES: 'shared' })
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  for (const collectionName of ['note', 'shared'])
    await api.admin('POST', '/schemas', {
      collectionName,
      schema: { fields: { title: { type: 'String', unique: true } } },
    })
  ;[t1, t2] = [await createTenant(api, 'one'), await createTenant(api, 'two')]
  const role = await createRole(api)
  const everywhere = await createRole(api, { isTenantSpecific: false })
  for (const id of [role, everywhere])
    await grant(
      api,
      id,
      { collection: 'note', action: 'create', fields: '*' },
      { collection: 'note', action: 'read', fields: '*' },
    )
  one = await createUser(api, role, t1)
  two = await createUser(api, role, t2)
  free = await createUser(api, everywhere, null)
})

type Options = { token?: string; query?: string; tenant?: string; collection?: string }

function importCsv(content: string, { token = admin, query = '', tenant, collection = 'note' }: Options = {}) {
  const file = { name: 'csvFile', filename: 'notes.csv', content }
  const field = tenant === undefined ? [] : [{ name: 'tenant', value: tenant }]
  return upload(api, token, `/items/${collection}/import-csv${query}`, [file, ...field])
}

const tenantsOf = async (title: string) =>
  (await api.sql('select "tenant_Id" as t from note where title = $1 order by 1', [title])).map(({ t }) => t)
const rows = async () => (await api.sql('select count(*)::int as n from note'))[0].n

describe('a scoped caller', () => {
  it('imports into its own tenant, whatever the file, form or query say', async () => {
    expect((await importCsv('title\nmine', { token: one.token })).status).toBe(200)
    expect((await importCsv('title\nmine', { token: two.token, tenant: t2 })).status).toBe(200)
    expect((await importCsv(`title,tenant_Id\nmine1,${t1}\nmine2,`, { token: one.token })).status).toBe(200)
    expect(await tenantsOf('mine')).toEqual([t1, t2].sort())
    expect(await tenantsOf('mine1')).toEqual([t1])
    expect(await tenantsOf('mine2')).toEqual([t1])
    const [before, position] = [await rows(), await api.position()]
    const other = 'Cannot operate on data from different tenant'
    for (const options of [{ tenant: t2 }, { query: `?tenant=${t2}` }])
      expect(await importCsv('title\nforeign', { token: one.token, ...options })).toMatchObject({
        status: 403,
        body: { error: { message: other } },
      })
    expect(await importCsv(`title,tenant_Id\nok,\nforeign,${t2}`, { token: one.token })).toMatchObject({
      status: 400,
      body: { error: { details: { results: { failed: 1, errors: [{ row: 2, error: other }] } } } },
    })
    expect(await rows()).toBe(before)
    expect(await api.log(position)).toEqual([])
  })

  it('exports nothing of another tenant, whatever happens there', async () => {
    const file = async (user: TenantUser, format: string) =>
      (await user.call('GET', `/items/note/export?sort=title&format=${format}`)).text
    const before = [await file(one, 'csv'), await file(one, 'json')]
    expect((await importCsv('title\nelsewhere', { token: two.token })).status).toBe(200)
    expect([await file(one, 'csv'), await file(one, 'json')]).toEqual(before)
    expect(before.join()).not.toContain(t2)
    expect(await file(two, 'csv')).toContain('elsewhere')
  })
})

describe('a caller that belongs to no tenant', () => {
  it('names the one to import into, in the form or the query', async () => {
    for (const token of [admin, free.token]) {
      const refused = async (title: string, options: Options, status = 400) =>
        expect((await importCsv(`title\n${title}`, { token, ...options })).status).toBe(status)
      await refused('x', {})
      await refused('x', { tenant: 'no id' })
      await refused('x', { tenant: crypto.randomUUID() })
    }
    const named = await importCsv('title\nx', { token: admin, tenant: 'Alpha' })
    expect(named.body.error.message).toBe('tenant: expected the id of a tenant, a UUID')
    expect((await importCsv('title\nform', { tenant: t1 })).status).toBe(200)
    expect((await importCsv('title\nquery', { token: free.token, query: `?tenant=${t2}` })).status).toBe(200)
    expect(await tenantsOf('form')).toEqual([t1])
    expect(await tenantsOf('query')).toEqual([t2])
    const mixed = await importCsv(`title,tenant_Id\na,${t1}\nb,${t2}`, { tenant: t1 })
    expect(mixed.body.error.details.results.errors).toEqual([expect.objectContaining({ row: 2 })])
  })

  it('names none where rows belong to none', async () => {
    expect((await importCsv('title\nx', { collection: 'shared' })).status).toBe(200)
  })
})
