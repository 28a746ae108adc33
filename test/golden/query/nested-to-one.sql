select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", (
    select row_to_json(o.*)
    from (
      select q1."id" as "id", q1."name" as "name", (
        select row_to_json(o.*)
        from (
          select q2."id" as "id", q2."name" as "name"
          from "teams" q2
          where q2."id" = q1."team_Id") o) as "team", (
        select row_to_json(o.*)
        from (
          select q3."id" as "id", q3."motto" as "motto"
          from "profiles" q3
          where q3."user_Id" = q1."id"
          order by q3."id"
          limit 1) o) as "profile"
      from "users" q1
      where q1."id" = t."owner_Id") o) as "owner", (
    select row_to_json(o.*)
    from (
      select q4."id" as "id", (
        select row_to_json(o.*)
        from (
          select q5."id" as "id", q5."name" as "name"
          from "categories" q5
          where q5."id" = q4."parent_Id") o) as "parent"
      from "categories" q4
      where q4."id" = t."category_Id") o) as "category"
  from (
    select t."id", t."owner_Id", t."category_Id"
    from "notes" t
    where t."deletedAt" is null
    order by t."id") t) o
-- []
