select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."likes" as "likes", t."note_Id" as "note_Id", t."author_Id" as "author_Id", to_char(t."deletedAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "deletedAt"
  from (
    select t."id", t."likes", t."note_Id", t."author_Id", t."deletedAt"
    from "comments" t
    where t."deletedAt" is null
    order by t."id") t) o
-- []
