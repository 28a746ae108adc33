select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."title" <> t."body"
    and t."stars" < any (
      select q1."likes"
      from "comments" q1
      where q1."note_Id" = t."id"
      and q1."deletedAt" is null)
    and exists (
      select 1
      from "users" q2
      where q2."id" = t."owner_Id"
      and q2."age" > t."stars")
    order by t."id") t) o
-- []
