select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and exists (
      select 1
      from "notes_blocks_junction" q1
      where q1."notes_id" = t."id"
      and exists (
        select 1
        from "images" q2
        where q2."id" = q1."item_id"
        and q1."collection" = 'images'
        and q2."url" is not null))
    order by t."id") t) o
-- []
