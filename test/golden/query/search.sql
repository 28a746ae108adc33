select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and to_tsvector('english', left(coalesce(t."title", '') || ' ' || coalesce(t."body", '') || ' ' || coalesce(t."status", '') || ' ' || coalesce(t."code"::text, '') || ' ' || coalesce(t."canary", '') || ' ' || coalesce(t."owner_Id"::text, ''), 200000)) @@ to_tsquery('english', $1::text)
    order by t."id") t) o
-- ["'quick':* & 'o fox':*"]
