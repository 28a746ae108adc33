select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and exists (
      select
      from (
        select body, to_tsvector('english', body) as stems
        from (
          select left(coalesce(t."title", '') || ' ' || coalesce(t."body", '') || ' ' || coalesce(t."status", '') || ' ' || coalesce(t."canary", ''), 200000) collate "default" as body offset 0) d offset 0) d
      where (body ~* $1::text or stems @@ (
          select to_tsquery('english', $2::text)))
      and (body ~* $3::text or stems @@ (
          select to_tsquery('english', $4::text))))
    order by t."id") t) o
-- ["(^|[^[:alnum:]])quick","'quick':*","(^|[^[:alnum:]])o[^[:alnum:]]+fox","'o fox':*"]
