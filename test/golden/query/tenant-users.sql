select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."email" as "email"
  from (
    select t."id", t."email"
    from "svc_User" t
    where exists (
      select 1
      from "svc_UserRole" q1
      where q1."user_Id" = t."id"
      and q1."tenant_Id" = $1::uuid)
    order by t."id") t) o
-- ["00000000-0000-4000-8000-0000000000a1"]
