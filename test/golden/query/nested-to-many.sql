select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q1."id" as "id", q1."text" as "text", (
        select row_to_json(o.*)
        from (
          select q2."id" as "id", q2."name" as "name"
          from "users" q2
          where q2."id" = q1."author_Id") o) as "author"
      from "comments" q1
      where q1."note_Id" = t."id"
      and q1."deletedAt" is null
      order by q1."id") o) as "comments", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q3."id" as "id", q3."name" as "name"
      from "note_labels" q4 join "labels" q3 on q3."id" = q4."label_Id"
      where q4."note_Id" = t."id"
      order by q3."id") o) as "labels"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    order by t."id") t) o
-- []
