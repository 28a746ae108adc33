/** Names that a change of definitions needs and that SQL from outside has given to something else. */
import { type Reader, sql } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import type { Catalog } from './catalog.ts'
import { tableIndexes } from './ddl.ts'

/** The names that a change makes. What the definitions had under a name before is no obstacle: the change drops it first. */
export type NewNames = {
  /** Of tables. */
  readonly tables: readonly string[]
  /** Of indexes, which share the names of tables. */
  readonly indexes: readonly string[]
  readonly columns: readonly { readonly table: string; readonly column: string }[]
}

/** Pure. */
export function newNames(before: Catalog, after: Catalog): NewNames {
  const known = new Set(indexNames(before))
  const collections = [...after.collections.values()]
  return {
    tables: collections.flatMap(({ name }) => (before.collections.has(name) ? [] : [name])),
    indexes: indexNames(after).filter((name) => !known.has(name)),
    columns: collections.flatMap(({ name: table, fields }) => {
      const old = before.collections.get(table)?.fields
      return old === undefined
        ? []
        : [...fields.keys()].flatMap((column) => (old.has(column) ? [] : [{ table, column }]))
    }),
  }
}

const indexNames = ({ collections }: Catalog): readonly string[] =>
  [...collections.values()].flatMap((collection) => tableIndexes(collection).map(({ name }) => name))

/** 409 for names of tables and indexes that are taken, 400 for those of columns, with a way out for each. */
export async function refuseTaken(db: Reader, { tables, indexes, columns }: NewNames): Promise<void> {
  if (tables.length + indexes.length + columns.length === 0) return
  const relations = await takenRelations(db, [...tables, ...indexes])
  const taken = relations.map((relation) => relationText(relation, tables.includes(relation.name)))
  const inTables = await takenColumns(db, columns)
  if (taken.length + inTables.length === 0) return
  throw new AppError(taken.length > 0 ? 409 : 400, 'The schema cannot be applied', {
    code: 'SCHEMA_NOT_APPLICABLE',
    details: [...taken, ...inTables.map(columnText)].join('; '),
  })
}

type Relation = { readonly name: string; readonly kind: string }

/** A type is in the way of a table, which has a type of its name. */
function takenRelations(db: Reader, names: readonly string[]): Promise<readonly Relation[]> {
  return db.any<Relation>(sql`
    select relname as name, relkind::text as kind from pg_class
    where relnamespace = 'public'::regnamespace and relname = any(${sql.array([...names], 'text')})
    union all
    select typname, 'type' from pg_type
    where typnamespace = 'public'::regnamespace and typrelid = 0 and typcategory <> 'A'
      and typname = any(${sql.array([...names], 'text')})
    order by 1`)
}

type Column = NewNames['columns'][number]

async function takenColumns(db: Reader, columns: readonly Column[]): Promise<readonly Column[]> {
  const [tables, names] = [columns.map(({ table }) => table), columns.map(({ column }) => column)]
  return db.any<Column>(sql`
    select c.relname as table, a.attname as column
    from unnest(${sql.array(tables, 'text')}, ${sql.array(names, 'text')}) as wanted(t, c0)
    join pg_class c on c.relname = t and c.relnamespace = 'public'::regnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attname = c0 and a.attnum > 0 and not a.attisdropped
    order by 1, 2`)
}

function relationText({ name, kind }: Relation, isTable: boolean): string {
  const own = isTable ? 'collection' : 'index'
  return `the database has ${kinds[kind] ?? 'an object'} ${name} that no definition describes: rename it by SQL, or give the ${own} another name`
}

const kinds: Readonly<Record<string, string>> = {
  r: 'a table',
  p: 'a table',
  f: 'a foreign table',
  v: 'a view',
  m: 'a materialized view',
  i: 'an index',
  I: 'an index',
  S: 'a sequence',
  c: 'a type',
  type: 'a type',
}

const columnText = ({ table, column }: Column): string =>
  `the table ${table} has a column ${column} that no field describes: rename or drop it by SQL, or give the field another name`
