select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and case when jsonb_typeof(t."meta" #> $1::text[]) = 'array' then jsonb_array_length(t."meta" #> $1::text[]) > $2::numeric else false end
    and t."meta" @? $3::jsonpath
    and ($5::jsonb[] is not null
      and ((t."meta" -> $4::text) = any($5::jsonb[])) is not true)
    order by t."id") t) o
-- [["list"],2,"$.a","k",["1"]]
