select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."embedding"::text::json as "embedding", t."sparse"::vector::text::json as "sparse"
  from (
    select t."id", t."embedding", t."sparse"
    from "places" t
    where (t."embedding" <=> $1::vector) < $2::double precision
    order by t."embedding" <-> $3::vector, t."id") t) o
-- ["[1,2,3]",0.5,"[1,2,3]"]
