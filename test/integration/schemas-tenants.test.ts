import { beforeAll, describe, expect, it } from 'vitest'
import { runSetup } from '../../src/setup/setup.ts'
import { type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'
import { silent } from '../support/log.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'

const on = { MULTI_TENANT: 'true' }
const slug = {
  fields: { slug: { type: 'String', unique: true }, code: { type: 'String' } },
  indexes: [{ fields: ['code'], unique: true }],
}

const indexes = async (api: Api, table: string): Promise<string[]> =>
  (await api.sql('select indexdef from pg_indexes where tablename = $1 order by 1', [table])).map((row) => row.indexdef)

describe('MULTI_TENANT', () => {
  let api: Api
  let tenants: string[]
  const create = (item: object) => api.admin('POST', '/items/entry', item)

  beforeAll(async () => {
    api = await startApi(on)
    expect((await api.admin('POST', '/schemas', { collectionName: 'entry', schema: slug })).status).toBe(201)
    tenants = await Promise.all(
      ['one', 'two'].map(async (name) => (await api.admin('POST', '/items/svc_Tenant', { name })).body.data.id),
    )
  })

  it("gives every collection of the installation its tenant, which definitions show as the server's", async () => {
    const { body } = await create({ slug: 'x', tenant_Id: tenants[0] })
    const item = await api.admin('GET', `/items/entry/${body.data.id}?fields=slug,tenant_Id,tenant.name`)
    expect(item.body.data).toEqual({ slug: 'x', tenant_Id: tenants[0], tenant: { id: tenants[0], name: 'one' } })
    const { fields } = (await api.admin('GET', '/schemas/entry')).body.data.schema
    expect(Object.keys(declaredOf(fields))).toEqual(['slug', 'code'])
    expect(fields).toMatchObject({
      tenant_Id: { type: 'UUID', SystemGenerated: 'true' },
      tenant: { relType: 'BelongsTo', target: 'svc_Tenant', SystemGenerated: 'true' },
    })
    expect((await create({ tenant_Id: '0b1f6a5e-3c1d-4b5e-8d8f-2f6d0c9a7b11' })).status).toBe(409)
  })

  it('makes unique fields and indexes unique per tenant, and once among rows without one', async () => {
    expect((await create({ slug: 'a', code: 'a', tenant_Id: tenants[0] })).status).toBe(201)
    expect((await create({ slug: 'a', code: 'a', tenant_Id: tenants[1] })).status).toBe(201)
    expect((await create({ slug: 'a', code: 'a', tenant_Id: null })).status).toBe(201)
    for (const tenant_Id of [...tenants, null]) {
      expect((await create({ slug: 'a', tenant_Id })).status).toBe(409)
      expect((await create({ code: 'a', tenant_Id })).status).toBe(409)
      expect((await create({ tenant_Id })).status).toBe(201)
      expect((await create({ tenant_Id })).status).toBe(201)
    }
  })

  it('keeps one-to-one keys and keys that others name unique as they are', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'card',
      schema: { fields: { number: { type: 'String', unique: true } } },
    })
    const answer = await api.admin('POST', '/schemas', {
      collectionName: 'use',
      schema: {
        fields: {
          card_no: { type: 'String' },
          card: { relType: 'BelongsTo', target: 'card', foreignKey: 'card_no', targetKey: 'number' },
        },
      },
    })
    expect(answer.text).toContain('successfully')
    expect((await indexes(api, 'card')).join()).toContain('card_number_key ON public.card USING btree (number)')
    await api.admin('POST', '/schemas/card/relationships', {
      type: 'O2O',
      name: 'entry',
      target: 'entry',
      alias: 'card',
    })
    expect((await indexes(api, 'card')).join()).toContain('(entry_id)')
  })

  it('puts the tenant in front of the pair of a junction', async () => {
    await api.admin('POST', '/schemas/entry/relationships', { type: 'M2M', name: 'links', target: 'entry' })
    const [id] = (await api.admin('GET', '/items/entry?limit=1')).body.data.map((row: any) => row.id)
    const link = { entry_id: id, entry_id_2: id }
    expect((await api.admin('POST', '/items/entry_entry_links_junction', link)).status).toBe(201)
    expect((await api.admin('POST', '/items/entry_entry_links_junction', link)).status).toBe(409)
    expect((await indexes(api, 'entry_entry_links_junction')).join()).toContain('("tenant_Id", entry_id, entry_id_2)')
  })

  it('survives changes of the schema', async () => {
    const fields = { ...slug.fields, slug: { type: 'String' }, more: { type: 'String', unique: true } }
    expect((await api.admin('PATCH', '/schemas/entry', { schema: { ...slug, fields } })).text).toContain('successfully')
    expect((await create({ slug: 'a', more: 'm', tenant_Id: tenants[0] })).status).toBe(201)
    expect((await create({ slug: 'a', more: 'm', tenant_Id: tenants[1] })).status).toBe(201)
    expect((await create({ more: 'm', tenant_Id: tenants[1] })).status).toBe(409)
  })
})

describe('turning MULTI_TENANT on', () => {
  it('is adopted by setup: tables gain the column, unique fields become unique per tenant', async () => {
    const database = await createDatabase()
    const before = await startApi({}, database)
    await before.admin('POST', '/schemas', { collectionName: 'entry', schema: slug })
    await before.admin('POST', '/schemas', {
      collectionName: 'part',
      schema: { fields: { entry: { relType: 'BelongsTo', target: 'entry' } } },
    })
    const { body } = await before.admin('POST', '/items/entry', { slug: 'a' })
    await runSetup(testConfig(database.url, on), silent)
    await runSetup(testConfig(database.url, on), silent)
    const api = await startApi(on, database)
    const item = await api.admin('GET', `/items/entry/${body.data.id}`)
    expect(item.body.data).toMatchObject({ slug: 'a', tenant_Id: null })
    const tenant = (await api.admin('POST', '/items/svc_Tenant', { name: 'T' })).body.data.id
    expect((await api.admin('POST', '/items/entry', { slug: 'a', tenant_Id: tenant })).status).toBe(201)
    expect((await api.admin('POST', '/items/entry', { slug: 'a' })).status).toBe(409)
    const position = await api.position()
    await api.admin('PATCH', `/items/entry/${body.data.id}`, { tenant_Id: tenant, slug: 'b' })
    expect((await api.log(position))[0]?.changes.after).toMatchObject({ tenant_Id: tenant })
    expect((await indexes(api, 'part')).join()).toContain('("tenant_Id")')
  })
})
