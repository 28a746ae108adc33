select row_to_json(o.*)::text as data
from (
  select t."title" as "title", (
    select row_to_json(o.*)
    from (
      select q1."id" as "id", q1."name" as "name"
      from "users" q1
      where q1."id" = t."owner_Id") o) as "owner"
  from "notes" t
  where t."id" = $1::integer
  and t."deletedAt" is null
  and t."stars" = $2::integer) o
-- [1,5]
