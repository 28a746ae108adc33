select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."stars" = any($1::integer[])
    and t."status" <> all($2::text[])
    and t."price" between $3::numeric
    and $4::numeric
    order by t."id") t) o
-- [[1,2],["draft"],"1","2"]
