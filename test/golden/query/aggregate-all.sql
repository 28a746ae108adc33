with "$groups" as materialized (
  select count(*) as a1, sum(t."price") as a2, avg(t."stars")::double precision as a3, max(t."published") as a4, count(distinct t."status") as a5, coalesce(json_agg(to_char(t."published" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      order by t."id"), '[]') as a6
  from "notes" t
  where t."deletedAt" is null) select (
  select coalesce(json_agg(o.object), '[]')
  from (
    select json_build_object($1::text, g.a1, $2::text, case when length(ltrim(translate(g.a2::text, '-.', ''), '0')) <= 15 then to_json(g.a2) else to_json(g.a2::text) end, $3::text, g.a3, $4::text, to_char(g.a4 at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), $5::text, g.a5, $6::text, g.a6) as object
    from (
      select g.*
      from "$groups" g) g) o)::text as data, (
  select count(*)
  from "$groups")::text as total
-- ["n","total","mean","last","kinds","all"]
