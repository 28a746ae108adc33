import { expect, it } from 'vitest'
import { positionOfEventId } from '../../src/events/log.ts'
import { startApi } from '../support/api.ts'
import { createDatabase } from '../support/postgres.ts'
import { prepareDatabase } from '../support/prepare.ts'

it.each(['false', 'true'])('log functions of before become those of today, with MULTI_TENANT=%s', async (tenants) => {
  const database = await createDatabase()
  const api = await startApi({ MULTI_TENANT: tenants }, database)
  const schema = { fields: { title: { type: 'String' }, secret: { type: 'String', hidden: true } } }
  for (const collectionName of ['note', 'tag'])
    expect((await api.admin('POST', '/schemas', { collectionName, schema })).status).toBe(201)
  const links = { type: 'M2M', name: 'tags', target: 'tag', alias: 'notes', through: 'note_tag' }
  expect((await api.admin('POST', '/schemas/note/relationships', links)).status).toBe(201)
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
  await api.sql(`delete from "svc_Migration" where version = '0.10.9'`)
  await prepareDatabase(database.url)
  expect(await functions()).toEqual(today)
})

it('a log with generated columns becomes the one that is made today, and keeps its events', async () => {
  const database = await createDatabase()
  const api = await startApi({}, database)
  const schema = { fields: { title: { type: 'String' } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'note', schema })).status).toBe(201)
  const shape = () =>
    api.sql(`select c.relname as name, pg_get_expr(d.adbin, d.adrelid) as default, a.attname as column, a.attgenerated as generated
      from pg_class c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, a.attnum)
      where c.relname like 'svc\\_AuditLog%' and a.attnum > 0 and not a.attisdropped order by c.relname, a.attname`)
  const indexes = () =>
    api.sql(
      `select pg_get_indexdef(indexrelid) as index from pg_index where indrelid = '"svc_AuditLog"'::regclass order by 1`,
    )
  const today = { shape: await shape(), indexes: await indexes() }
  const ids = () => api.sql('select id, position from "svc_AuditLog" where position <= $1 order by position', [last])
  const [{ last }] = (await api.sql('select max(position) as last from "svc_AuditLog"')) as [{ last: string }]
  const before = await ids()

  await api.sql(`alter table "svc_AuditLog" drop column id,
    add column id uuid not null generated always as ((lpad(to_hex(position >> 16), 8, '0') || '-'
      || lpad(to_hex(position & 65535), 4, '0') || '-8000-8000-000000000000')::uuid) stored,
    add column "updatedAt" timestamptz not null generated always as ("createdAt") stored,
    add primary key (id, "createdAt")`)
  await api.sql('create index "svc_AuditLog_position_idx" on "svc_AuditLog" (position)')
  expect(await ids()).toEqual(before)
  await api.sql(`delete from "svc_Migration" where version = '0.9.4'`)
  await prepareDatabase(database.url)
  expect({ shape: await shape(), indexes: await indexes() }).toEqual(today)
  expect(await ids()).toEqual(before)
  expect((await api.admin('POST', '/items/note', { title: 'new' })).status).toBe(201)
  const [event] = await api.sql('select id, position from "svc_AuditLog" order by position desc limit 1')
  expect(positionOfEventId(String(event?.id))).toBe(event?.position)
})
