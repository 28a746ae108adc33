select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."title" as "title", (
    select row_to_json(o.*)
    from (
      select q4."id" as "id", q4."name" as "name", q4."email" as "email", q4."age" as "age", q4."team_Id" as "team_Id"
      from "users" q4
      where q4."id" = t."owner_Id"
      and q4."age" >= $5::integer) o) as "owner", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q5."id" as "id", q5."text" as "text"
      from "comments" q5
      where q5."note_Id" = t."id"
      and exists (
        select 1
        from "users" q6
        where q6."id" = q5."author_Id"
        and exists (
          select 1
          from "teams" q7
          where q7."id" = q6."team_Id"
          and q7."name" = $6::text))
      and q5."deletedAt" is null
      order by q5."id") o) as "comments"
  from (
    select t."id", t."title", t."owner_Id"
    from "notes" t
    where t."owner_Id" = $1::uuid
    and t."deletedAt" is null
    and (t."title" = $2::text or exists (
        select 1
        from "comments" q1
        where q1."note_Id" = t."id"
        and exists (
          select 1
          from "users" q2
          where q2."id" = q1."author_Id"
          and exists (
            select 1
            from "teams" q3
            where q3."id" = q2."team_Id"
            and q3."name" = $3::text))
        and q1."deletedAt" is null
        and q1."likes" > $4::integer))
    order by t."id") t) o
-- ["00000000-0000-4000-8000-000000000001","x","red",1,18,"red"]
