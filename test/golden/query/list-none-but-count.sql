select coalesce(json_agg(o.*), '[]')::text as data, (
  select count(*)
  from "notes" t
  where t."deletedAt" is null)::text as total
from (
  select t."id" as "id", t."title" as "title", t."body" as "body", t."status" as "status", t."stars" as "stars", case when t."views" between -9007199254740991
  and 9007199254740991 then to_json(t."views") else to_json(t."views"::text) end as "views", t."price"::text as "price", t."rating" as "rating", t."weight" as "weight", t."pinned" as "pinned", t."due" as "due", to_char(t."published" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "published", to_char(t."local", 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "local", t."alarm" as "alarm", t."meta" as "meta", t."tags" as "tags", case when t."amounts" is null then null else (
    select coalesce(json_agg(e.v::text
        order by e.n), '[]')
    from unnest(t."amounts") with ordinality e(v, n)) end as "amounts", case when t."moments" is null then null else (
    select coalesce(json_agg(to_char(e.v at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        order by e.n), '[]')
    from unnest(t."moments") with ordinality e(v, n)) end as "moments", case when t."pages" is null then null when isempty(t."pages") then json_build_object('empty', true) else json_build_object('lower', lower(t."pages"), 'upper', upper(t."pages"), 'lowerInclusive', lower_inc(t."pages"), 'upperInclusive', upper_inc(t."pages")) end as "pages", case when t."period" is null then null when isempty(t."period") then json_build_object('empty', true) else json_build_object('lower', coalesce(to_char(lower(t."period") at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || case when lower(t."period") at time zone 'UTC' < '0001-01-01' then ' BC' else '' end, lower(t."period")::text), 'upper', coalesce(to_char(upper(t."period") at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || case when upper(t."period") at time zone 'UTC' < '0001-01-01' then ' BC' else '' end, upper(t."period")::text), 'lowerInclusive', lower_inc(t."period"), 'upperInclusive', upper_inc(t."period")) end as "period", case when t."prices" is null then null when isempty(t."prices") then json_build_object('empty', true) else json_build_object('lower', lower(t."prices")::text, 'upper', upper(t."prices")::text, 'lowerInclusive', lower_inc(t."prices"), 'upperInclusive', upper_inc(t."prices")) end as "prices", case when t."share" is null then null when isempty(t."share") then json_build_object('empty', true) else json_build_object('lower', lower(t."share")::float8, 'upper', upper(t."share")::float8, 'lowerInclusive', lower_inc(t."share"), 'upperInclusive', upper_inc(t."share")) end as "share", t."code" as "code", t."canary" as "canary", t."owner_Id" as "owner_Id", t."category_Id" as "category_Id", to_char(t."deletedAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "deletedAt"
  from (
    select t."id", t."title", t."body", t."status", t."stars", t."views", t."price", t."rating", t."weight", t."pinned", t."due", t."published", t."local", t."alarm", t."meta", t."tags", t."amounts", t."moments", t."pages", t."period", t."prices", t."share", t."code", t."canary", t."owner_Id", t."category_Id", t."deletedAt"
    from "notes" t
    where t."deletedAt" is null
    order by t."id"
    limit 0) t) o
-- []
