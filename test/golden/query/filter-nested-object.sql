select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and exists (
      select 1
      from "comments" q1
      where q1."note_Id" = t."id"
      and q1."deletedAt" is null
      and q1."likes" = $1::integer
      and exists (
        select 1
        from "users" q2
        where q2."id" = q1."author_Id"
        and q2."name" = $2::text))
    and not (exists (
        select 1
        from "users" q3
        where q3."id" = t."owner_Id"))
    order by t."id") t) o
-- [1,"Ann"]
