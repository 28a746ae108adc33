select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."tags" @> $1::text[]
    and cardinality(t."tags") > $2::integer
    and t."amounts" && $3::numeric[]
    order by t."id") t) o
-- [["a"],1,["1.5"]]
