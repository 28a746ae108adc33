with "$groups" as materialized (
  select case when isfinite(t."published" at time zone $1::text) then extract(year
    from t."published" at time zone $1::text)::integer end as k1, extract(dow
    from t."due"::timestamp)::integer as k2, count(*) as a1
  from "notes" t
  where t."deletedAt" is null
  group by 1, 2) select case when (
  select count(*)
  from "$groups") <= 1000 then (
  select coalesce(json_agg(o.object), '[]')
  from (
    select json_build_object('date:year:published', g.k1, 'year_published', g.k1, 'date:dow:due', g.k2, 'dow_due', g.k2, $2::text, g.a1) as object
    from (
      select g.*
      from "$groups" g
      order by g.k1, g.k2) g) o)::text end as data, (
  select count(*)
  from "$groups")::text as total
-- ["Asia/Tokyo","n"]
