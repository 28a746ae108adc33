select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q1."id" as "id", q1."name" as "name"
      from "categories" q1
      where q1."parent_Id" = t."id"
      order by q1."sort", q1."id") o) as "children"
  from (
    select t."id"
    from "categories" t
    order by t."id") t) o
-- []
