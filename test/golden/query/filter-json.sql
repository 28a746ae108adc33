select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."meta" @> $1::jsonb
    and (jsonb_typeof(t."meta" -> $2::text) = 'number'
      and (t."meta" -> $2::text) > $3::jsonb)
    and (t."meta" #> $4::text[]) = $5::jsonb
    order by t."id") t) o
-- ["{\"k\":1}","k","0",["a","b"],"7"]
