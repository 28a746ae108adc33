select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."total"::text as "total", t."day" as "day", t."tenant_Id" as "tenant_Id", t."client_Id" as "client_Id", (
    select row_to_json(o.*)
    from (
      select q1."id" as "id", q1."name" as "name"
      from "clients" q1
      where q1."id" = t."client_Id"
      and q1."tenant_Id" = $2::uuid) o) as "client"
  from (
    select t."id", t."total", t."day", t."tenant_Id", t."client_Id"
    from "orders" t
    where t."tenant_Id" = $1::uuid
    order by t."id") t) o
-- ["00000000-0000-4000-8000-0000000000a1","00000000-0000-4000-8000-0000000000a1"]
