select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."title" ilike $1::text
    and t."body" not like $2::text
    order by t."id") t) o
-- ["%50\\%%","A\\_%"]
