import { rawQuery, type Tx } from '../db/sql.ts'
import { logFunctionSql } from '../events/log-triggers.ts'
import type { Catalog } from './catalog.ts'
import { compileCatalog } from './compile.ts'
import { linkEnds } from './link-ends.ts'
import { lockCatalog, tablesWithTenants } from './manager.ts'
import { readDefinitions } from './store.ts'

/**
 * Gives every logged table the function that today's code makes for its triggers; for migrations. Whether a table has
 * tenants is asked of the table, because migrations don't know MULTI_TENANT.
 */
export async function renewLogFunctions(tx: Tx): Promise<void> {
  await lockCatalog(tx)
  const stored = await readDefinitions(tx)
  const [plain, tenanted] = [compileCatalog(stored), compileCatalog(stored, { multiTenant: true })]
  const withTenants = await tablesWithTenants(tx)
  const stand = [...plain.collections].map(
    ([name, collection]) => [name, withTenants.has(name) ? tenanted.collections.get(name)! : collection] as const,
  )
  const catalog: Catalog = { ...plain, collections: new Map(stand) }
  for (const collection of catalog.collections.values())
    for (const statement of logFunctionSql(collection, linkEnds(catalog, collection))) await tx.any(rawQuery(statement))
}
