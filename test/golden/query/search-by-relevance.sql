select coalesce(json_agg(o.*), '[]')::text as data, (
  select count(*)
  from "notes" t
  where t."deletedAt" is null
  and exists (
    select
    from (
      select left(coalesce(t."title", '') || ' ' || coalesce((
            select q1."name"
            from "users" q1
            where q1."id" = t."owner_Id"), '') || ' ' || coalesce((
            select string_agg(q2."text", ' ')
            from "comments" q2
            where q2."note_Id" = t."id"
            and q2."deletedAt" is null), ''), 200000) collate "default" as body offset 0) d
    where (body ~* $1::text or to_tsvector('english', body) @@ (
        select to_tsquery('english', $2::text)))))::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and exists (
      select
      from (
        select left(coalesce(t."title", '') || ' ' || coalesce((
              select q1."name"
              from "users" q1
              where q1."id" = t."owner_Id"), '') || ' ' || coalesce((
              select string_agg(q2."text", ' ')
              from "comments" q2
              where q2."note_Id" = t."id"
              and q2."deletedAt" is null), ''), 200000) collate "default" as body offset 0) d
      where (body ~* $1::text or to_tsvector('english', body) @@ (
          select to_tsquery('english', $2::text))))
    order by ts_rank(to_tsvector('english', left(coalesce(t."title", '') || ' ' || coalesce((
              select q3."name"
              from "users" q3
              where q3."id" = t."owner_Id"), '') || ' ' || coalesce((
              select string_agg(q4."text", ' ')
              from "comments" q4
              where q4."note_Id" = t."id"
              and q4."deletedAt" is null), ''), 200000) collate "default"), to_tsquery('english', $3::text)) desc, t."id" desc
    limit 5) t) o
-- ["(^|[^[:alnum:]])fox","'fox':*","'fox':*"]
