import type { Twin } from './shape.ts'

/**
 * The statements of the ceiling. PostgreSQL makes the JSON: on two cores the Node process is what is short, and parsing
 * rows to write them again costs it more than anything else. `owned`: the caller sees its own rows only.
 */

const time = (column: string, row = 't') =>
  `to_char(${row}."${column}" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "${column}"`

const shown = `id, sku, name, description, price::text as price, stock, active, ${time('releasedAt')}, "owner_Id",
  "category_Id", ${time('createdAt')}, ${time('updatedAt')}`

export const oneSql = (table: Twin, owned: boolean): string =>
  `select row_to_json(o)::text as data from (select ${shown} from ${table} t where id = $1${owned ? ' and "owner_Id" = $2' : ''}) o`

export function listSql(table: Twin, owned: boolean): string {
  const where = `where "category_Id" = $1 and price >= $2 and price < $3${owned ? ' and "owner_Id" = $4' : ''}`
  return `select coalesce(json_agg(o), '[]')::text as data, (select count(*) from ${table} ${where})::text as total
    from (select ${shown} from (select * from ${table} ${where} order by price, id limit 25) t) o`
}

export function nestedListSql(table: Twin, owned: boolean, counted: boolean): string {
  const where = owned ? ' where "owner_Id" = $1' : ''
  const total = counted ? `(select count(*) from ${table}${where})::text` : 'null'
  return `select coalesce(json_agg(o), '[]')::text as data, ${total} as total from (
    select id, sku, name, price::text as price,
      (select row_to_json(c) from (select id, name, slug from category where id = t."category_Id") c) as category
    from (select * from ${table}${where} order by sku limit 25) t) o`
}

export function reportSql(table: Twin, by: 'category' | 'month', owned: boolean): string {
  const where = owned ? ' where "owner_Id" = $1' : ''
  const list = (object: string, groups: string, order: string) =>
    `with g as materialized (${groups})
     select (select json_agg(${object} order by ${order}) from g)::text as data, (select count(*) from g)::text as total`
  if (by === 'month')
    return list(
      `json_build_object('year_releasedAt', g.y, 'month_releasedAt', g.m, 'count', g.n, 'stocked', g.s, 'turnover', g.t)`,
      `select extract(year from "releasedAt")::int as y, extract(month from "releasedAt")::int as m,
         count(*) as n, sum(stock) as s, sum(price) as t from ${table}${where} group by 1, 2`,
      'g.y, g.m',
    )
  return list(
    `json_build_object('category_Id', g.c, 'count', g.n, 'stocked', g.s, 'mean', g.p,
       'category', (select json_build_object('id', id, 'name', name) from category where id = g.c))`,
    `select "category_Id" as c, count(*) as n, sum(stock) as s, avg(price)::float8 as p from ${table}${where} group by 1`,
    'g.c',
  )
}

export const createSql = (table: Twin): string =>
  `insert into ${table} (sku, name, description, price, stock, "releasedAt", "owner_Id", "category_Id")
   values ($1, $2, $3, $4, $5, $6, $7, $8) returning to_json(id)::text as data`

export const bulkSql = (table: Twin): string =>
  `with made as (
     insert into ${table} (sku, name, description, price, stock, "releasedAt", "owner_Id", "category_Id")
     select sku, name, description, price, stock, "releasedAt", "owner_Id", "category_Id" from json_to_recordset($1) as r(
       sku text, name text, description text, price numeric, stock int, "releasedAt" timestamptz, "owner_Id" uuid,
       "category_Id" uuid) returning id)
   select json_agg(id)::text as data from made`

export const updateSql = (table: Twin, owned: boolean): string =>
  `update ${table} set name = $2, stock = $3, "updatedAt" = now() where id = $1${owned ? ' and "owner_Id" = $4' : ''}
   returning to_json(id)::text as data`

export const deleteSql = (table: Twin, owned: boolean): string =>
  `delete from ${table} where id = $1${owned ? ' and "owner_Id" = $2' : ''} returning to_json(id)::text as data`

export const meSql = `select json_build_object(
    'user', (select row_to_json(o) from (select u.id, u."firstName", u."lastName", u."fullName", u.phone, u.email,
      u."emailVerified", u."avatar_Id", ${time('lastAccess', 'u')}, u.status, u.session_limits, ${time('createdAt', 'u')},
      ${time('updatedAt', 'u')}) o),
    'role', (select row_to_json(o) from (
      select r.id, r.name, r.description, r."isTenantSpecific", r."canInviteRoleIds", r.app_access) o),
    'permissions', (select coalesce(json_agg(o), '[]') from (
      select p.id, p.action, p.collection, p."role_Id", p.fields, p.conditions, p."relConditions", p."defaultValues",
        ${time('createdAt', 'p')}, ${time('updatedAt', 'p')}
      from public."svc_Permission" p where p."role_Id" = r.id order by p.collection, p.action) o),
    'tenant', null)::text as data
  from public."svc_User" u join public."svc_UserRole" ur on ur."user_Id" = u.id join public."svc_Role" r on r.id = ur."role_Id"
  where u.id = $1`

export const loginSql = `select u.password,
    json_build_object('id', u.id, 'email', u.email, 'firstName', u."firstName", 'lastName', u."lastName") as "user",
    json_build_object('id', r.id, 'name', r.name) as role
  from public."svc_User" u join public."svc_UserRole" ur on ur."user_Id" = u.id join public."svc_Role" r on r.id = ur."role_Id"
  where u.email = $1`
