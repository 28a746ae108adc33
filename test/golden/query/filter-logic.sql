select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and (t."stars" = $1::integer or not (t."pinned" = $2::boolean))
    and t."title" = $3::text
    order by t."id") t) o
-- [1,true,"x"]
