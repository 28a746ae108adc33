select coalesce(json_agg(o.*), '[]')::text as data, null::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    order by t."id"
    limit 10) t) o
-- []
