import { withClient } from './server.ts'

/**
 * Everything that statements have made in a database, a line for each thing, sorted: columns in their order, defaults,
 * constraints, indexes, functions, triggers, types, sequences, options, owners and grants. Without the monthly partitions
 * of the log, whose names follow from the time, and without the queues' own schema.
 */
export async function structureOf(url: string): Promise<readonly string[]> {
  return withClient(url, async (client) => {
    await client.query(`set search_path = ''`)
    const { rows } = await client.query(structureSql)
    return rows.map(({ line }) => line)
  })
}

const structureSql = String.raw`
with spaces as (
  select oid, nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'pgboss')
), relations as (
  select c.* from pg_class c where c.relnamespace in (select oid from spaces) and c.relname !~ '^svc_AuditLog_\d{6}'
), lines as (
  select format('schema %s %s', nspname, n.nspacl) as line from pg_namespace n where oid in (select oid from spaces)
  union all
  select format('relation %s %s %s %s %s %s %s', c.oid::regclass, c.relkind, c.relpersistence, c.reloptions, c.relreplident,
    pg_get_userbyid(c.relowner), c.relacl) || concat(' ', pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid))
  from relations c
  union all
  select format('column %s %s %s %s %s %s', a.attrelid::regclass, a.attnum, quote_ident(a.attname),
    format_type(a.atttypid, a.atttypmod), a.attcollation, a.attstorage)
    || concat(case when a.attnotnull then ' not null' end, ' ', a.attidentity, a.attgenerated, a.attcompression, ' ',
      pg_get_expr(d.adbin, d.adrelid), ' ', a.attacl)
  from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  where a.attrelid in (select oid from relations where relkind in ('r', 'p', 'v', 'm', 'c')) and a.attnum > 0
  union all
  select format('constraint %s on %s: %s', quote_ident(k.conname), coalesce(k.conrelid, 0)::regclass, pg_get_constraintdef(k.oid))
  -- The columns say whether they may be null; the names of such constraints differ by server and after a restore.
  from pg_constraint k where k.connamespace in (select oid from spaces) and k.contype <> 'n'
    and (k.conrelid = 0 or k.conrelid in (select oid from relations))
  union all
  select format('index %s', pg_get_indexdef(i.indexrelid)) || concat(' ', i.indisvalid, i.indisreplident, i.indisclustered)
  from pg_index i where i.indexrelid in (select oid from relations) and i.indrelid in (select oid from relations)
  union all
  select format('function %s %s %s', pg_get_functiondef(p.oid), pg_get_userbyid(p.proowner), p.proacl)
  from pg_proc p where p.pronamespace in (select oid from spaces) and p.prokind <> 'a'
    -- The functions of range types have no body.
    and p.prolang not in (select oid from pg_language where lanname in ('internal', 'c'))
  union all
  select format('trigger %s %s', pg_get_triggerdef(t.oid), t.tgenabled)
  from pg_trigger t where not t.tgisinternal and t.tgrelid in (select oid from relations)
  union all
  select format('type %s %s %s', t.oid::regtype, t.typtype, t.typacl) || concat(' ',
    (select string_agg(e.enumlabel, ',' order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid), ' ',
    (select r.rngsubtype::regtype from pg_range r where r.rngtypid = t.oid))
  from pg_type t where t.typnamespace in (select oid from spaces) and t.typname !~ '^_?svc_AuditLog_\d{6}'
  union all
  select format('sequence %s %s %s %s %s %s %s', seqrelid::regclass, seqtypid::regtype, seqstart, seqincrement, seqmin, seqcache, seqcycle)
  from pg_sequence where seqrelid in (select oid from relations)
  union all
  select format('publication %s %s %s', pubname, pubinsert, pubviaroot) from pg_publication where pubname like 'svc%'
  union all
  select format('extension %s', extname) from pg_extension
)
select line from lines order by line`
