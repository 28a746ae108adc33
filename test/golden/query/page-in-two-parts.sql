select coalesce(json_agg(p.item) filter (
    where p.n <= $1::bigint), '[]')::text as data, null::text as total, case when count(*) > $1::bigint then min(p.keys) filter (
  where p.n = $1::bigint) end as next
from (
  select (
    select row_to_json(o.*)
    from (
      select t."id" as "id") o) as item, json_build_array(t."$1"::text, t."$2"::text)::text as keys, row_number() over () as n
  from (
    select *
    from ((
        select t."id", t."email" as "$1", t."id" as "$2"
        from "users" t
        where (t."email", t."id") > ($2::text, $3::uuid)
        order by t."email", t."id"
        limit ($1::bigint + 1)) union all (
        select t."id", t."email" as "$1", t."id" as "$2"
        from "users" t
        where t."email" is null
        order by t."email", t."id"
        limit ($1::bigint + 1))) t
    order by t."$1", t."$2"
    limit ($1::bigint + 1)) t) p
-- [500,"u@example.com","00000000-0000-4000-8000-000000000001"]
