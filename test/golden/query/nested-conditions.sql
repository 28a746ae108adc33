select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q1."id" as "id", q1."text" as "text"
      from "comments" q1
      where q1."note_Id" = t."id"
      and q1."deletedAt" is null
      and q1."likes" > $1::integer
      order by q1."id") o) as "comments"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    order by t."id") t) o
-- [5]
