import { rawQuery, sql, type Tx } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import type { Catalog, CatalogOptions, CollectionDefinition } from './catalog.ts'
import { compileCatalog } from './compile.ts'
import { catalogChangesSql } from './ddl.ts'
import {
  type CollectionChange,
  countLosses,
  type DefinitionPlan,
  type Dropped,
  planChange,
  refuseGaps,
} from './definition-plan.ts'
import { type Definitions, definitionsOf, knownDefinitions, toStored, withSchema } from './definitions.ts'
import { withoutCollection } from './relationship-edits.ts'
import { readDefinitions } from './store.ts'

/**
 * Changes of the catalog: definition rows and tables in the caller's transaction, so that a failing statement leaves
 * both as they were (spec/schemas.md §1). One change at a time in the whole database.
 */

/** What may refuse a change: before its first statement, and after its last one. */
export type ChangeGuard = Readonly<Record<'before' | 'afterwards', (plan: DefinitionPlan) => Promise<void>>>

/** What migrations write is the operator's. */
const unguarded: ChangeGuard = { before: async () => undefined, afterwards: async () => undefined }

/**
 * The one way to change definitions: `edit` makes the next ones from the catalog as it is inside the transaction, the
 * tables follow by the difference. Junctions that a BelongsToMany names and nobody declares are added.
 *
 * @returns what was done to which collection, in name order
 * @throws AppError 400 for definitions that do not compile or cannot be reached from the present ones
 */
export async function changeDefinitions(
  tx: Tx,
  edit: (catalog: Catalog) => Definitions,
  options: CatalogOptions = {},
): Promise<readonly CollectionChange[]> {
  return (await executeChange(tx, edit, options)).changes
}

/** As {@link changeDefinitions}, with what was dropped; the guard may refuse the change. */
export async function executeChange(
  tx: Tx,
  edit: (catalog: Catalog) => Definitions,
  options: CatalogOptions = {},
  guard: ChangeGuard = unguarded,
): Promise<{ readonly changes: readonly CollectionChange[]; readonly dropped: readonly Dropped[] }> {
  const plan = planChange(await lockedDefinitions(tx), edit, options)
  await guard.before(plan)
  await refuseGaps(tx, plan)
  const dropped = await countLosses(tx, plan)
  for (const statement of plan.statements) await tx.any(rawQuery(statement))
  await guard.afterwards(plan)
  for (const change of plan.changes) await storeChange(tx, change, plan.next)
  return { changes: plan.changes, dropped }
}

/** Lets one change of definitions after the other through; the lock ends with the transaction, readers never wait. */
export async function lockCatalog(tx: Tx): Promise<void> {
  await tx.any(sql.unsafe`select pg_advisory_xact_lock(hashtext('daybook catalog'))`)
}

/** Creates collections that may point at each other. 409 when one exists. */
export async function createCollections(
  tx: Tx,
  definitions: readonly CollectionDefinition[],
  options: CatalogOptions = {},
): Promise<void> {
  await changeDefinitions(tx, (catalog) => withNew(catalog, definitions), options)
}

/** The definitions of a catalog and new ones beside them. 409 when one exists. */
export function withNew(catalog: Catalog, definitions: readonly CollectionDefinition[]): Definitions {
  const next = new Map(definitionsOf(catalog))
  for (const { collectionName, schema } of definitions) {
    if (next.has(collectionName))
      throw new AppError(409, `Collection ${collectionName} already exists`, { code: 'COLLECTION_EXISTS' })
    next.set(collectionName, schema)
  }
  return next
}

/** Registers a collection whose table exists already: the log, whose table is made by `events/log.ts`. */
export async function adoptCollection(tx: Tx, definition: CollectionDefinition): Promise<void> {
  compileCatalog([...(await lockedDefinitions(tx)), definition])
  const { collectionName, schema } = definition
  await storeChange(tx, { collection: collectionName, change: 'create' }, new Map([[collectionName, schema]]))
}

/** Brings table and definition to a new version. 404 for an unknown collection. */
export async function updateCollection(
  tx: Tx,
  { collectionName, schema }: CollectionDefinition,
  options: CatalogOptions = {},
): Promise<void> {
  const edit = (catalog: Catalog) => withSchema(knownDefinitions(catalog, collectionName), collectionName, schema)
  await changeDefinitions(tx, edit, options)
}

/**
 * Drops table and definition, and with them the junctions that were made for its relationships and what others declare
 * about it. 404 for an unknown collection, 409 while others have a foreign key to it.
 */
export async function deleteCollection(tx: Tx, name: string, options: CatalogOptions = {}): Promise<void> {
  await changeDefinitions(tx, (catalog) => withoutCollection(knownDefinitions(catalog, name), name), options)
}

/**
 * Gives the tables that were made before MULTI_TENANT was turned on their tenant column and makes their unique fields
 * unique per tenant. Part of setup; safe to run again. Returns the collections it changed.
 */
export async function adoptTenants(tx: Tx): Promise<readonly string[]> {
  const stored = await lockedDefinitions(tx)
  const [plain, tenanted] = [compileCatalog(stored), compileCatalog(stored, { multiTenant: true })]
  const done = await tablesWithTenants(tx)
  const missing = [...plain.collections.keys()].filter((name) => !name.startsWith('svc_') && !done.has(name))
  const present = new Map(tenanted.collections)
  for (const name of missing) present.set(name, plain.collections.get(name)!)
  const statements = catalogChangesSql({ ...plain, collections: present }, tenanted)
  for (const statement of statements) await tx.any(rawQuery(statement))
  return missing
}

/** The tables that have a tenant column, whatever MULTI_TENANT is now. */
async function tablesWithTenants(tx: Tx): Promise<ReadonlySet<string>> {
  const rows = await tx.any<{ name: string }>(sql.unsafe`
    select table_name as name from information_schema.columns where column_name = 'tenant_Id' and table_schema = 'public'`)
  return new Set(rows.map(({ name }) => name))
}

async function storeChange(tx: Tx, { collection, change }: CollectionChange, definitions: Definitions): Promise<void> {
  const next = definitions.get(collection)
  const schema = sql.jsonb((next === undefined ? null : toStored(next)) as never)
  if (change === 'create')
    await tx.any(
      sql.unsafe`insert into "svc_SchemaDefinition" ("collectionName", schema) values (${collection}, ${schema})`,
    )
  if (change === 'update')
    await tx.any(
      sql.unsafe`update "svc_SchemaDefinition" set schema = ${schema}, "updatedAt" = now() where "collectionName" = ${collection}`,
    )
  if (change === 'delete')
    await tx.any(sql.unsafe`delete from "svc_SchemaDefinition" where "collectionName" = ${collection}`)
}

async function lockedDefinitions(tx: Tx): Promise<readonly CollectionDefinition[]> {
  await lockCatalog(tx)
  const { exists } = await tx.one<{ exists: boolean }>(
    sql.unsafe`select to_regclass('"svc_SchemaDefinition"') is not null as exists`,
  )
  return exists ? readDefinitions(tx) : []
}
