select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."filename" as "filename", t."isPublic" as "isPublic", t."tenant_Id" as "tenant_Id"
  from (
    select t."id", t."filename", t."isPublic", t."tenant_Id"
    from "svc_File" t
    where (t."tenant_Id" = $1::uuid or t."isPublic" = $2::boolean)
    order by t."id") t) o
-- ["00000000-0000-4000-8000-0000000000a1",true]
