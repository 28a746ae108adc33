select coalesce(json_agg(o.*), '[]')::text as data, (
  select count(*)
  from "notes" t
  where t."deletedAt" is null)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    order by (
      select q1."likes"
      from "comments" q1
      where q1."note_Id" = t."id"
      and q1."deletedAt" is null
      order by q1."likes" desc nulls last
      limit 1) desc, t."id" desc
    limit 5) t) o
-- []
