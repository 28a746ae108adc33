select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and (t."stars")::text > $2::text
    and case when t."deletedAt" is null
    and (t."stars")::text > $2::text then (t."published" at time zone 'UTC')::date = $1::date else false end
    order by t."id") t) o
-- ["2024-05-01","1"]
