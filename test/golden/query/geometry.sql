select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", ST_AsGeoJSON(t."at")::json as "at", ST_AsGeoJSON(t."area")::json as "area", ST_AsGeoJSON(t."spot")::json as "spot", t."embedding"::text::json as "embedding", t."sparse"::vector::text::json as "sparse"
  from (
    select t."id", t."at", t."area", t."spot", t."embedding", t."sparse"
    from "places" t
    where ST_DWithin(t."at"::geography, ST_SetSRID(ST_GeomFromGeoJSON($1::text), 4326)::geography, $2::double precision)
    and ST_Intersects(t."area", ST_Transform(ST_SetSRID(ST_GeomFromGeoJSON($3::text), 4326), 31287))
    order by t."at"::geography <-> ST_SetSRID(ST_MakePoint($4::double precision, $5::double precision), 4326)::geography, t."id") t) o
-- ["{\"type\":\"Point\",\"coordinates\":[1,2]}",10,"{\"type\":\"Point\",\"coordinates\":[1,2]}",1,2]
