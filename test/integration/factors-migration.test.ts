import { expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { createDatabase } from '../support/postgres.ts'
import { prepareDatabase } from '../support/prepare.ts'

const collections = ['svc_TwoFactor', 'svc_Passkey', 'svc_ApiKey']

it('a database of before gets the tables of factors and keys', async () => {
  const database = await createDatabase()
  const api = await startApi({}, database)
  const tables = async () =>
    (
      await api.sql(
        `select table_name as name from information_schema.tables where table_name = any($1) order by table_name`,
        [[...collections, 'svc_Challenge']],
      )
    ).map(({ name }) => name)
  const triggers = () =>
    api.sql(
      `select tgname as name from pg_trigger where tgrelid = '"svc_ApiKey"'::regclass and not tgisinternal order by 1`,
    )
  const [tablesBefore, triggersBefore] = [await tables(), await triggers()]
  expect(tablesBefore).toHaveLength(4)
  for (const name of [...collections, 'svc_Challenge']) await api.sql(`drop table "${name}"`)
  await api.sql('delete from "svc_SchemaDefinition" where "collectionName" = any($1)', [collections])
  await api.sql(`delete from "svc_Migration" where version = '0.4.3'`)
  expect(await tables()).toEqual([])
  await prepareDatabase(database.url)
  expect([await tables(), await triggers()]).toEqual([tablesBefore, triggersBefore])
})
