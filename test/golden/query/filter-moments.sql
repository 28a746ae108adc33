select coalesce(json_agg(o.*), '[]')::text as data, count(*)::text as total
from (
  select t."id" as "id"
  from (
    select t."id"
    from "notes" t
    where t."deletedAt" is null
    and t."published" > $1::timestamptz
    and t."published" not between $2::timestamptz
    and $3::timestamptz
    and (date_trunc('milliseconds', t."published") = any($4::timestamptz[])
      and (t."published" between $5::timestamptz
        and $6::timestamptz or t."published" between $7::timestamptz
        and $8::timestamptz))
    and t."local" between $9::timestamp
    and $10::timestamp
    and date_trunc('milliseconds', t."local") <> all($11::timestamp[])
    order by t."id") t) o
-- ["2024-05-01T00:00:00.000999Z","2024-05-02T10:00:00.123Z","2024-05-02T10:00:00.123999Z",["2024-05-01T00:00:00.000Z","2024-05-03T00:00:00.000Z"],"2024-05-01T00:00:00.000Z","2024-05-01T00:00:00.000999Z","2024-05-03T00:00:00.000Z","2024-05-03T00:00:00.000999Z","2024-05-01T00:00:00.000","2024-05-02T00:00:00.000999",["2024-05-01T12:00:00.000"]]
