select coalesce(json_agg(o.*), '[]')::text as data, (
  select count(*)
  from "notes" t
  where t."deletedAt" is null)::text as total
from (
  select t."id" as "id", t."title" as "title"
  from (
    select t."id", t."title"
    from "notes" t
    where t."deletedAt" is null
    order by t."stars" desc, t."id" desc
    limit 25) t) o
-- []
