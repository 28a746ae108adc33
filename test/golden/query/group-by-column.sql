with "$groups" as materialized (
  select *
  from (
    select t."status" as k1, count(*) as a1
    from "notes" t
    where t."deletedAt" is null
    group by 1) g
  where g."a1" > $1::bigint) select (
  select coalesce(json_agg(o.object), '[]')
  from (
    select json_build_object('status', g.k1, $2::text, g.a1) as object
    from (
      select g.*
      from "$groups" g
      order by g.a1 desc, g.k1
      limit 3) g) o)::text as data, (
  select count(*)
  from "$groups")::text as total
-- ["1","n"]
