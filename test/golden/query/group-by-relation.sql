with "$groups" as materialized (
  select q1."name" as k1, sum(q2."likes") as a1, min(t."id") as r
  from "notes" t
  left join "categories" q1 on q1."id" = t."category_Id"
  left join "comments" q2 on q2."note_Id" = t."id"
  and q2."deletedAt" is null
  where t."deletedAt" is null
  group by 1) select (
  select coalesce(json_agg(o.object), '[]')
  from (
    select json_build_object('category.name', g.k1, 'category_name', g.k1, $1::text, case when g.a1 between -9007199254740991
      and 9007199254740991 then to_json(g.a1) else to_json(g.a1::text) end, 'category', d."category", 'owner', d."owner") as object
    from (
      select g.*
      from "$groups" g
      order by g.k1) g
    left join lateral (
      select (
        select row_to_json(o.*)
        from (
          select q3."id" as "id", q3."name" as "name"
          from "categories" q3
          where q3."id" = t."category_Id") o) as "category", (
        select row_to_json(o.*)
        from (
          select q4."id" as "id", q4."name" as "name"
          from "users" q4
          where q4."id" = t."owner_Id") o) as "owner"
      from "notes" t
      where t."id" = g.r) d on true
    order by g.k1) o)::text as data, (
  select count(*)
  from "$groups")::text as total
-- ["likes"]
