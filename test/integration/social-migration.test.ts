import { expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { createDatabase } from '../support/postgres.ts'
import { prepareDatabase } from '../support/prepare.ts'

it('a database of before gets one account per identity', async () => {
  const database = await createDatabase()
  const api = await startApi({}, database)
  const index = 'svc_Account_identity_unique'
  const state = async () => ({
    table: await api.sql(`select indexdef from pg_indexes where indexname = $1`, [index]),
    definition: await api.sql(`select schema from "svc_SchemaDefinition" where "collectionName" = 'svc_Account'`),
  })
  const before = await state()
  expect(before.table).toEqual([
    { indexdef: expect.stringMatching(/^CREATE UNIQUE INDEX.*\("providerId", "accountId"\)$/) },
  ])
  await api.sql(`drop index "${index}"`)
  await api.sql(
    `update "svc_SchemaDefinition" set schema = jsonb_set(schema::jsonb, '{indexes}', (schema::jsonb->'indexes') - 1)
     where "collectionName" = 'svc_Account'`,
  )
  await api.sql(`delete from "svc_Migration" where version = '0.4.4'`)
  expect((await state()).table).toEqual([])
  await prepareDatabase(database.url)
  expect(await state()).toEqual(before)
})
