select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."pages" @> $1::int4range
    and t."period" && $2::tstzrange
    order by t."id") t) o
-- ["[\"3\",\"3\"]","[\"2024-01-01T00:00:00Z\",)"]
