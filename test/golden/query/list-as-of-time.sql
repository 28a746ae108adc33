with "$since0" as materialized (
  select distinct on (e."entityId") e."entityId" as id, ((case when e.changes ? 'erased' then null when e.action = 'update' then (e.changes->'after') || (e.changes->'before') else e.changes->'before' end) - array(
      select d.key
      from jsonb_each_text(coalesce((
            select jsonb_object_agg(g.name, g.position)
            from (

              select was.name, max(s.position) as position
              from public."svc_AuditLog" s
      cross join lateral (
                select case when not f.value ? 'relType' then f.key when f.value->>'relType' = 'BelongsTo' then coalesce(f.value->>'foreignKey', f.key || '_Id') end as name

                from jsonb_each(s.changes->'before'->'schema'->'fields') f except
                select case when not f.value ? 'relType' then f.key when f.value->>'relType' = 'BelongsTo' then coalesce(f.value->>'foreignKey', f.key || '_Id') end as name

                from jsonb_each(s.changes->'after'->'schema'->'fields') f) was

              where s.entity = 'svc_SchemaDefinition'
              and s."entityId" = 'notes'
              and s.type = 'data'
              and s.action = 'update'

              and s.changes->'before' ? 'schema'
              and was.name is not null

              group by was.name) g), '{}')) d
      where d.value::bigint > e.position)) as image
  from public."svc_AuditLog" e

  where e.entity = 'notes'
  and e.type = 'data'
  and e."createdAt" > $1::timestamptz
  and coalesce(e."createdAt" >= (
      select d."createdAt"
      from public."svc_SchemaDefinition" d
      where d."collectionName" = 'notes'
      and d."collectionName" not like 'svc\_%'), true)
  order by e."entityId", e.position), "notes" as not materialized (
  select c.*
  from public."notes" c
  where (
    select svc_log.reach(null, null, $2::timestamptz))
  and not exists (
    select
    from "$since0" s
    where s.id = c."id"::text)
    union all
  select r.*
  from "$since0" s, jsonb_populate_record((
      select "svc$row"
      from public."notes" "svc$row"
      where false), s.image) r
  where s.image is not null), "$since1" as materialized (
  select distinct on (e."entityId") e."entityId" as id, ((case when e.changes ? 'erased' then null when coalesce(e.changes->'before'->'deletedAt', e.changes->'after'->'deletedAt') <> 'null'

      and exists (
        select
        from public."svc_AuditLog" d
        where d.type = 'data'
        and d.entity = 'svc_SchemaDefinition'
        and d."entityId" = 'users'

        and d.changes->'before'->'schema'->>'paranoid' = 'true') then null when e.action = 'update' then (e.changes->'after') || (e.changes->'before') else e.changes->'before' end) - array(
      select d.key
      from jsonb_each_text(coalesce((
            select jsonb_object_agg(g.name, g.position)
            from (

              select was.name, max(s.position) as position
              from public."svc_AuditLog" s
      cross join lateral (
                select case when not f.value ? 'relType' then f.key when f.value->>'relType' = 'BelongsTo' then coalesce(f.value->>'foreignKey', f.key || '_Id') end as name

                from jsonb_each(s.changes->'before'->'schema'->'fields') f except
                select case when not f.value ? 'relType' then f.key when f.value->>'relType' = 'BelongsTo' then coalesce(f.value->>'foreignKey', f.key || '_Id') end as name

                from jsonb_each(s.changes->'after'->'schema'->'fields') f) was

              where s.entity = 'svc_SchemaDefinition'
              and s."entityId" = 'users'
              and s.type = 'data'
              and s.action = 'update'

              and s.changes->'before' ? 'schema'
              and was.name is not null

              group by was.name) g), '{}')) d
      where d.value::bigint > e.position)) as image
  from public."svc_AuditLog" e

  where e.entity = 'users'
  and e.type = 'data'
  and e."createdAt" > $1::timestamptz
  and coalesce(e."createdAt" >= (
      select d."createdAt"
      from public."svc_SchemaDefinition" d
      where d."collectionName" = 'users'
      and d."collectionName" not like 'svc\_%'), true)
  order by e."entityId", e.position), "users" as not materialized (
  select c.*
  from public."users" c
  where (
    select svc_log.reach(null, null, $2::timestamptz))
  and not exists (
    select
    from "$since1" s
    where s.id = c."id"::text)
    union all
  select r.*
  from "$since1" s, jsonb_populate_record((
      select "svc$row"
      from public."users" "svc$row"
      where false), s.image) r
  where s.image is not null) select past.*
from (
  select coalesce(json_agg(o.*), '[]')::text as data, (
    select count(*)
    from "notes" t
    where t."deletedAt" is null)::text as total
  from (
    select t."id" as "id", (
      select row_to_json(o.*)
      from (
        select q1."id" as "id", q1."name" as "name"
        from "users" q1
        where q1."id" = t."owner_Id") o) as "owner"
    from (
      select t."id", t."owner_Id"
      from "notes" t
      where t."deletedAt" is null
      order by t."id"
      limit 5) t) o) past
-- ["2024-05-01T10:00:00Z","2024-05-01T10:00:00Z"]
