with "$groups" as materialized (
  select t."category_Id" as k1, extract(month
    from t."published" at time zone 'UTC')::integer as k2, sum(t."price") as a1, max(t."views") as a2
  from "notes" t
  where t."deletedAt" is null
  group by 1, 2) select (
  select coalesce(json_agg(o.object), '[]')
  from (
    select json_build_object('category_Id', g.k1, 'date:month:published', g.k2, 'month_published', g.k2, $1::text, case when length(ltrim(translate(g.a1::text, '-.', ''), '0')) <= 15 then to_json(g.a1) else to_json(g.a1::text) end, $2::text, case when g.a2 between -9007199254740991
      and 9007199254740991 then to_json(g.a2) else to_json(g.a2::text) end, 'category', d."category") as object
    from (
      select g.*
      from "$groups" g
      order by g.a1 desc, g.k1, g.k2) g cross join lateral (
      select (
        select row_to_json(o.*)
        from (
          select q1."id" as "id", q1."name" as "name", (
            select row_to_json(o.*)
            from (
              select q2."id" as "id", q2."name" as "name"
              from "categories" q2
              where q2."id" = q1."parent_Id") o) as "parent"
          from "categories" q1
          where q1."id" = t."category_Id") o) as "category"
      from (
        select g.k1 as "category_Id") t) d
    order by g.a1 desc, g.k1, g.k2) o)::text as data, (
  select count(*)
  from "$groups")::text as total
-- ["total","most"]
