select case when count(*) <= 1000 then coalesce(json_agg(o.*), '[]')::text end as data, count(*)::text as total
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
    order by t."title", t."id"
    limit 1001) t) o
-- []
