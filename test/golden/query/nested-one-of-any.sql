select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q1."id" as "id", q1."item_id" as "item_id", q1."collection" as "collection", (
        select row_to_json(o.*)
        from (
          select q2."id" as "id", q2."url" as "url"
          from "images" q2
          where q2."id" = q1."item_id"
          and q1."collection" = 'images') o) as "images"
      from "notes_blocks_junction" q1
      where q1."notes_id" = t."id"
      and q1."collection" in ('images')
      order by q1."id") o) as "blocks"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    order by t."id") t) o
-- []
