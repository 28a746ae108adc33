import type { Catalog } from '../../catalog/catalog.ts'
import { compileCatalog } from '../../catalog/compile.ts'
import { readDefinitions } from '../../catalog/store.ts'
import type { Config } from '../../config.ts'
import type { Reader } from '../../db/sql.ts'
import type { Subject } from './lint-rules.ts'
import { checkedColumns, columnTypes } from './queries.ts'

/** What the linter must know of a database, as it is now. */
export async function readSubject(db: Reader, config: Config): Promise<Omit<Subject, 'inTransaction'>> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: config.tenancy.enabled })
  const types = new Map((await columnTypes(db)).map(({ table, column, type }) => [`${table}.${column}`, type]))
  const checked = new Set((await checkedColumns(db)).map(({ table, column }) => `${table}.${column}`))
  return {
    columnType: (table, column) => types.get(`${table}.${column}`),
    isCheckedNotNull: (table, column) => checked.has(`${table}.${column}`),
    usesOf: (table, column) => usesOf(catalog, table, column),
  }
}

/** What of the collections would be without its table or column. */
function usesOf(catalog: Catalog, table: string, column?: string): readonly string[] {
  const collection = catalog.collections.get(table)
  const own = column === undefined ? collection : collection?.fields.get(column)
  const of = column === undefined ? `collection ${table}` : `field ${column} of collection ${table}`
  return own === undefined ? [] : [of]
}
