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
      and q1."likes" >= $1::integer
      and q1."likes" < $2::integer)
    and exists (
      select 1
      from "note_labels" q3 join "labels" q2 on q2."id" = q3."label_Id"
      where q3."note_Id" = t."id"
      and q2."name" = $3::text)
    and not (exists (
        select 1
        from "comments" q4
        where q4."note_Id" = t."id"
        and q4."deletedAt" is null))
    order by t."id") t) o
-- [1,9,"later"]
