import { expect, it } from 'vitest'
import { startApi } from '../support/api.ts'
import { createDatabase } from '../support/postgres.ts'
import { prepareDatabase } from '../support/prepare.ts'

it.each(['false', 'true'])('log functions of before become those of today, with MULTI_TENANT=%s', async (tenants) => {
  const database = await createDatabase()
  const api = await startApi({ MULTI_TENANT: tenants }, database)
  const schema = { fields: { title: { type: 'String' }, secret: { type: 'String', hidden: true } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'note', schema })).status).toBe(201)
  const functions = () =>
    api.sql(
      `select proname as name, prosrc as body from pg_proc where pronamespace = 'svc_log'::regnamespace order by 1`,
    )
  const today = await functions()
  const ofNotes = today.find(({ name }) => name === 'note')
  expect(String(ofNotes?.body).includes('"tenant_Id" as tenant')).toBe(tenants === 'true')

  await api.sql(`do $do$ declare f record; begin
    for f in select distinct p.oid::regproc as name from pg_proc p join pg_trigger t on t.tgfoid = p.oid
      where t.tgname = 'svc_log_insert'
    loop execute format('create or replace function %s() returns trigger language plpgsql as $f$ begin return null; end $f$', f.name); end loop;
  end $do$`)
  expect(await functions()).not.toEqual(today)
  await api.sql(`delete from "svc_Migration" where version = '0.9.3'`)
  await prepareDatabase(database.url)
  expect(await functions()).toEqual(today)
})
