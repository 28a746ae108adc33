import { parseSql, SqlSyntaxError } from '../../../adapters/sql-parser.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { checksOf } from '../../../catalog/compile.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { type ExpressionRow, expressionRefusal, trustedExtensions } from './sql-expression.ts'

/**
 * The guard of SQL that comes from outside: SQL defaults, calculations and CHECK constraints of definitions. They run with
 * the rights of the database role whenever a row is written, so they may do no more than compute a value
 * (docs/decisions/0032-sql-from-outside.md). It works twice: on the text before any of it runs, by the list of names, and
 * on what PostgreSQL has made of the text, by the objects that the names stand for.
 */

/** An SQL text of a definition that is refused, and why: `calls pg_sleep(), which is not on the list of functions`. */
export type RefusedSql = { readonly collection: string; readonly part: string; readonly reason: string }

/** The texts of a collection that are not allowed. Runs nothing. */
export async function refusedTexts(collection: Collection): Promise<readonly RefusedSql[]> {
  const refused: RefusedSql[] = []
  for (const { part, text, row } of textsOf(collection)) {
    const reason = await refusalOf(text, row)
    if (reason !== undefined) refused.push({ collection: collection.name, part, reason })
  }
  return refused
}

/**
 * Objects in the tables' expressions that belong neither to PostgreSQL nor to a listed extension: functions, operators
 * or types that somebody has made, under any name. The collections' tables must be there.
 */
export async function refusedObjects(db: Reader, collections: readonly Collection[]): Promise<readonly RefusedSql[]> {
  const parts = collections.flatMap((collection) =>
    textsOf(collection).map(({ part, column, constraint }) => ({
      collection: collection.name,
      part,
      column,
      constraint,
    })),
  )
  if (parts.length === 0) return []
  const rows = await db.any<{ place: number; object: string }>(
    rawQuery(strangersSql, [
      parts.map(({ collection }) => collection),
      parts.map(({ column }) => column ?? null),
      parts.map(({ constraint }) => constraint ?? null),
      trustedExtensions,
    ]),
  )
  return rows.map(({ place, object }) => {
    const { collection, part } = parts[place - 1]!
    return { collection, part, reason: `uses ${object}, which is not PostgreSQL's own` }
  })
}

/** Refuses texts of the collections that a change touches, before anything of them runs. */
export async function checkTexts({ collections }: Catalog, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const collection = collections.get(name)
    if (collection !== undefined) refuse(await refusedTexts(collection))
  }
}

/** Refuses what the same texts have become, in the transaction that has made the tables. */
export async function checkObjects(db: Reader, { collections }: Catalog, names: readonly string[]): Promise<void> {
  refuse(
    await refusedObjects(
      db,
      names.flatMap((name) => collections.get(name) ?? []),
    ),
  )
}

function refuse([first]: readonly RefusedSql[]): void {
  if (first === undefined) return
  const { collection, part, reason } = first
  throw new AppError(400, `Invalid schema for ${collection}: ${part} ${reason}`, { code: 'SQL_NOT_ALLOWED' })
}

type Text = {
  /** Its place in words. */
  readonly part: string
  readonly column?: string
  readonly constraint?: string
  readonly text: string
  readonly row: ExpressionRow
}

function textsOf(collection: Collection): readonly Text[] {
  const { name: table, fields, system, definition } = collection
  const columns: ReadonlySet<string> = new Set(fields.keys())
  const hidden = system ? [...fields.values()].filter((field) => field.hidden).map(({ name }) => name) : []
  const row: ExpressionRow = { table, columns, secret: new Set(hidden) }
  const nothing: ExpressionRow = { table, columns: new Set(), secret: new Set() }
  return [
    ...[...fields.values()].flatMap((field): Text[] => {
      const place = { column: field.name, part: `field ${field.name}` }
      if (field.generated !== undefined) return [{ ...place, text: field.generated, row }]
      return field.default?.kind === 'sql' ? [{ ...place, text: field.default.expression, row: nothing }] : []
    }),
    ...checksOf(definition).map(({ name, expression }) => ({
      constraint: name,
      part: `constraint ${name}`,
      text: expression,
      row,
    })),
  ]
}

async function refusalOf(text: string, row: ExpressionRow): Promise<string | undefined> {
  try {
    return expressionRefusal(await parseSql(`select (${text})`), row)
  } catch (error) {
    if (error instanceof SqlSyntaxError) return `has a malformed SQL expression: ${error.message}`
    throw error
  }
}

/**
 * PostgreSQL records what a stored expression uses, save what every database has from its beginning, which is nearly all
 * of pg_catalog. `place` is the number of the part from 1.
 */
const strangersSql = `with expression as (
  select part.place, c.oid as relation, 'pg_attrdef'::regclass as classid, d.oid as objid
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality part("table", "column", "constraint", place)
  join pg_class c on c.relname = part."table" and c.relnamespace = 'public'::regnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attname = part."column"
  join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  union all
  select part.place, c.oid, 'pg_constraint'::regclass, k.oid
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality part("table", "column", "constraint", place)
  join pg_class c on c.relname = part."table" and c.relnamespace = 'public'::regnamespace
  join pg_constraint k on k.conrelid = c.oid and k.contype = 'c' and k.conname = part."constraint"
), own as (
  select 'pg_type'::regclass as classid, to_regtype(name)::oid as objid
  from unnest(array['public.svc_timerange', 'public.svc_timetzrange']) name
  union all
  select 'pg_proc'::regclass, to_regprocedure(name)::oid from unnest(array['public.svc_short_id()', 'public.svc_token()']) name
), used as (
  select distinct e.place, d.refclassid, d.refobjid,
    case d.refclassid when 'pg_type'::regclass then coalesce(
      (select nullif(t.typelem, 0) from pg_type t where t.oid = d.refobjid and t.typcategory = 'A'), d.refobjid)
      else d.refobjid end as element
  from expression e join pg_depend d on d.classid = e.classid and d.objid = e.objid
  where not (d.refclassid = 'pg_class'::regclass and d.refobjid = e.relation)
)
select place::int, pg_describe_object(refclassid, refobjid, 0) as object from used u
where not (refclassid in ('pg_collation'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
    and (pg_identify_object(refclassid, refobjid, 0)).schema = 'pg_catalog')
  and not exists (select from own o where o.classid = u.refclassid and o.objid = u.element)
  and not exists (select from own o join pg_depend i on i.refclassid = o.classid and i.refobjid = o.objid
    where i.deptype = 'i' and i.classid = u.refclassid and i.objid = u.element)
  and not exists (select from pg_depend x join pg_extension e on e.oid = x.refobjid
    where x.refclassid = 'pg_extension'::regclass and x.deptype = 'e' and e.extname = any($4::text[])
      and x.classid = u.refclassid and x.objid = u.element)
order by place`
