select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and exists (
      select 1
      from "users" q1
      where q1."id" = t."owner_Id"
      and exists (
        select 1
        from "teams" q2
        where q2."id" = q1."team_Id"
        and q2."name" = $1::text))
    and not (exists (
        select 1
        from "users" q3
        where q3."id" = t."owner_Id"
        and not (q3."email" is null)))
    order by t."id") t) o
-- ["red"]
