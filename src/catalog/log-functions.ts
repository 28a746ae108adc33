import { rawQuery, type Tx } from '../db/sql.ts'
import { logFunctionSql } from '../events/log-triggers.ts'
import { compileCatalog } from './compile.ts'
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
  for (const name of plain.collections.keys()) {
    const { collections } = withTenants.has(name) ? tenanted : plain
    for (const statement of logFunctionSql(collections.get(name)!)) await tx.any(rawQuery(statement))
  }
}
