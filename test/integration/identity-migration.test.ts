import { expect, it } from 'vitest'
import { down } from '../../migrations/0.10.2_identities.ts'
import { createAccount } from '../support/accounts.ts'
import { startApi } from '../support/api.ts'
import { storeKey } from '../support/api-keys.ts'
import { createDatabase } from '../support/postgres.ts'
import { prepareDatabase } from '../support/prepare.ts'

it('a database of before gets the guards and the templates, and loses keys that wait to live again', async () => {
  const database = await createDatabase()
  const api = await startApi({}, database)
  const state = async () => ({
    triggers: await api.sql(
      `select tgname, tgrelid::regclass::text as on, pg_get_triggerdef(oid) as is from pg_trigger
       where tgrelid in ('"svc_User"'::regclass, '"svc_UserRole"'::regclass) and not tgisinternal order by 2, 1`,
    ),
    functions: await api.sql(`select proname, prosrc from pg_proc where proname like 'svc\\_%' order by 1`),
    templates: await api.sql('select id, type, subject, body from "svc_Template" order by type'),
  })
  const [before, keysBefore] = [await state(), await api.sql('select id from "svc_ApiKey"')]
  const sql = async (text: string, values?: readonly unknown[]) => api.sql(text, values && [...values])
  await down({ sql } as unknown as Parameters<typeof down>[0])
  await api.sql(`delete from "svc_Migration" where version = '0.10.2'`)
  await api.sql(`delete from "svc_Template" where type = 'email_change' or type = 'welcome'`)
  expect(await state()).not.toEqual(before)
  const [active, suspended, roleless] = [await createAccount(api), await createAccount(api), await createAccount(api)]
  for (const { id } of [active, suspended, roleless]) await storeKey(api, id)
  await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [suspended.id])
  await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [roleless.id])
  await prepareDatabase(database.url)
  const after = await state()
  expect({ ...after, templates: [] }).toEqual({ ...before, templates: [] })
  // A template of an earlier version that somebody has deleted stays deleted.
  expect(after.templates).toEqual(before.templates.filter(({ type }) => type !== 'welcome'))
  expect(keysBefore).toEqual([])
  expect(await api.sql('select "user_Id" as id from "svc_ApiKey"')).toEqual([{ id: active.id }])
})
