select coalesce(json_agg(o.*), '[]')::text as data, (
  select count(*)
  from "notes" t
  where t."deletedAt" is null)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    left join "users" q1 on q1."id" = t."owner_Id"
    left join "teams" q2 on q2."id" = q1."team_Id"
    where t."deletedAt" is null
    order by q2."name" desc, q1."name", t."id"
    limit 5) t) o
-- []
