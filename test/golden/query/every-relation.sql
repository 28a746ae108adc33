select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id", t."name" as "name", t."email" as "email", t."age" as "age", t."team_Id" as "team_Id", (
    select row_to_json(o.*)
    from (
      select q1."id" as "id", q1."name" as "name"
      from "teams" q1
      where q1."id" = t."team_Id") o) as "team", (
    select coalesce(json_agg(o.*), '[]')
    from (
      select q2."id" as "id", q2."title" as "title", q2."body" as "body", q2."status" as "status", q2."stars" as "stars", case when q2."views" between -9007199254740991
      and 9007199254740991 then to_json(q2."views") else to_json(q2."views"::text) end as "views", q2."price"::text as "price", q2."rating" as "rating", q2."weight" as "weight", q2."pinned" as "pinned", q2."due" as "due", to_char(q2."published" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "published", to_char(q2."local", 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "local", q2."alarm" as "alarm", q2."meta" as "meta", q2."tags" as "tags", case when q2."amounts" is null then null else (
        select coalesce(json_agg(e.v::text
            order by e.n), '[]')
        from unnest(q2."amounts") with ordinality e(v, n)) end as "amounts", case when q2."moments" is null then null else (
        select coalesce(json_agg(to_char(e.v at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
            order by e.n), '[]')
        from unnest(q2."moments") with ordinality e(v, n)) end as "moments", case when q2."pages" is null then null when isempty(q2."pages") then json_build_object('empty', true) else json_build_object('lower', lower(q2."pages"), 'upper', upper(q2."pages"), 'lowerInclusive', lower_inc(q2."pages"), 'upperInclusive', upper_inc(q2."pages")) end as "pages", case when q2."period" is null then null when isempty(q2."period") then json_build_object('empty', true) else json_build_object('lower', coalesce(to_char(lower(q2."period") at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || case when lower(q2."period") at time zone 'UTC' < '0001-01-01' then ' BC' else '' end, lower(q2."period")::text), 'upper', coalesce(to_char(upper(q2."period") at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || case when upper(q2."period") at time zone 'UTC' < '0001-01-01' then ' BC' else '' end, upper(q2."period")::text), 'lowerInclusive', lower_inc(q2."period"), 'upperInclusive', upper_inc(q2."period")) end as "period", case when q2."prices" is null then null when isempty(q2."prices") then json_build_object('empty', true) else json_build_object('lower', lower(q2."prices")::text, 'upper', upper(q2."prices")::text, 'lowerInclusive', lower_inc(q2."prices"), 'upperInclusive', upper_inc(q2."prices")) end as "prices", case when q2."share" is null then null when isempty(q2."share") then json_build_object('empty', true) else json_build_object('lower', lower(q2."share")::float8, 'upper', upper(q2."share")::float8, 'lowerInclusive', lower_inc(q2."share"), 'upperInclusive', upper_inc(q2."share")) end as "share", q2."code" as "code", q2."canary" as "canary", q2."owner_Id" as "owner_Id", q2."category_Id" as "category_Id", to_char(q2."deletedAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "deletedAt"
      from "notes" q2
      where q2."owner_Id" = t."id"
      and q2."deletedAt" is null
      order by q2."id") o) as "notes", (
    select row_to_json(o.*)
    from (
      select q3."id" as "id", q3."motto" as "motto", q3."user_Id" as "user_Id"
      from "profiles" q3
      where q3."user_Id" = t."id"
      order by q3."id"
      limit 1) o) as "profile"
  from (
    select t."id", t."name", t."email", t."age", t."team_Id"
    from "users" t
    order by t."id") t) o
-- []
