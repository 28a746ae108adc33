import { type Reader, sql } from '../db/sql.ts'
import type { Catalog } from './catalog.ts'
import { logTable } from './log-triggers.ts'

/** A table, or some of its columns, that a collection's definition names and the database lacks. */
export type TableLack = { readonly collection: string; readonly columns: readonly string[] | 'all' }

/** Tables and columns that went without their definitions, by SQL from outside. The log's table is not made of its definition. */
export async function tableLacks(db: Reader, { collections }: Catalog): Promise<readonly TableLack[]> {
  const rows = await db.any<{ name: string; columns: readonly string[] }>(sql`
    select c.relname as name, array(
      select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
    from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')`)
  const columnsOf = new Map(rows.map(({ name, columns }) => [name, new Set(columns)]))
  return [...collections.values()].flatMap(({ name: collection, fields }): TableLack[] => {
    const there = columnsOf.get(collection)
    if (collection === logTable) return []
    if (there === undefined) return [{ collection, columns: 'all' }]
    const columns = [...fields.keys()].filter((name) => !there.has(name))
    return columns.length === 0 ? [] : [{ collection, columns }]
  })
}

export const lackInWords = ({ columns }: TableLack): string =>
  columns === 'all' ? 'its table is missing' : `its table has no ${columns.join(', ')}`
