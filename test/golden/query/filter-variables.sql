select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."owner_Id" = $1::uuid
    and t."published" < $2::timestamptz
    and t."code" = $3::uuid
    order by t."id") t) o
-- ["00000000-0000-4000-8000-000000000001","2024-05-03T12:00:00.000Z",null]
