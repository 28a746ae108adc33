select (
  select count(*)
  from "notes" t
  where t."deletedAt" is null
  and t."stars" = $1::integer)::text as total
-- [5]
