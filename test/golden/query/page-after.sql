select coalesce(json_agg(p.item) filter (
    where p.n <= 25), '[]')::text as data, (
  select count(*)
  from "notes" t
  where t."deletedAt" is null
  and t."stars" = $5::integer)::text as total, case when count(*) > 25 then min(p.keys) filter (
  where p.n = 25) end as next
from (
  select (
    select row_to_json(o.*)
    from (
      select t."title" as "title") o) as item, json_build_array(t."$1"::text, t."$2"::text, t."$3"::text)::text as keys, row_number() over () as n
  from (
    select t."title", q1."email" as "$1", t."title" as "$2", t."id" as "$3"
    from "notes" t
    left join "users" q1 on q1."id" = t."owner_Id"
    where t."deletedAt" is null
    and t."stars" = $4::integer
    and q1."email" <= $1::text
    and (q1."email" < $1::text or (q1."email" = $1::text
        and (t."title" > $2::text or t."title" is null or (t."title" = $2::text
            and (t."id" > $3::integer)))))
    order by q1."email" desc, t."title", t."id"
    limit (25 + 1)) t) p
-- ["u@example.com","Alpha","7",5,5]
