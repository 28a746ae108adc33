select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."stars" >= $1::integer
    and t."stars" < $2::integer
    and t."status" = $3::text
    and t."due" is not null
    order by t."id") t) o
-- [1,5,"draft"]
