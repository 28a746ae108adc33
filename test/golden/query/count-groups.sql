select count(*)::text as total
from (
  select q1."name" as k1, sum(q2."likes") as a1
  from "notes" t
  left join "categories" q1 on q1."id" = t."category_Id"
  left join "comments" q2 on q2."note_Id" = t."id"
  and q2."deletedAt" is null
  where t."deletedAt" is null
  group by 1) g
-- []
