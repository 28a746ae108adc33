import { rawQuery, sql, type Tx } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import type { Catalog, CollectionDefinition } from './catalog.ts'
import { compileCatalog } from './compile.ts'
import { alterTableSql, createTableSql, dropTableSql, foreignKeysSql, referencingCollections } from './ddl.ts'
import { readDefinitions } from './store.ts'

/**
 * Changes of the catalog: definition row and table in the caller's transaction, so that a failing statement leaves
 * both as they were (spec/schemas.md §1). One change at a time in the whole database.
 */

/** Creates collections that may point at each other. 409 when one exists. */
export async function createCollections(tx: Tx, definitions: readonly CollectionDefinition[]): Promise<void> {
  const stored = await lockedDefinitions(tx)
  for (const { collectionName } of definitions)
    if (stored.some((known) => known.collectionName === collectionName))
      throw new AppError(409, `Collection ${collectionName} already exists`, { code: 'COLLECTION_EXISTS' })
  const catalog = compileCatalog([...stored, ...definitions])
  const created = definitions.map(({ collectionName }) => catalog.collections.get(collectionName)!)
  for (const collection of created) await run(tx, createTableSql(collection))
  for (const collection of created) await run(tx, foreignKeysSql(collection))
  for (const definition of definitions) await storeDefinition(tx, definition)
}

/** Registers a collection whose table exists already: the log, whose table is made by `events/log.ts`. */
export async function adoptCollection(tx: Tx, definition: CollectionDefinition): Promise<void> {
  compileCatalog([...(await lockedDefinitions(tx)), definition])
  await storeDefinition(tx, definition)
}

/** Brings table and definition to a new version. 404 for an unknown collection. */
export async function updateCollection(tx: Tx, definition: CollectionDefinition): Promise<void> {
  const stored = await lockedDefinitions(tx)
  const others = stored.filter((known) => known.collectionName !== definition.collectionName)
  const before = collectionOf(compileCatalog(stored), definition.collectionName)
  const after = collectionOf(compileCatalog([...others, definition]), definition.collectionName)
  await run(tx, alterTableSql(before, after))
  await tx.any(sql.unsafe`
    update "svc_SchemaDefinition" set schema = ${sql.jsonb(definition.schema as never)}, "updatedAt" = now()
    where "collectionName" = ${definition.collectionName}`)
}

/** Drops table and definition. 404 for an unknown collection, 409 while others point at it. */
export async function deleteCollection(tx: Tx, name: string): Promise<void> {
  const catalog = compileCatalog(await lockedDefinitions(tx))
  await run(tx, dropTableSql(collectionOf(catalog, name), referencingCollections(catalog, name)))
  await tx.any(sql.unsafe`delete from "svc_SchemaDefinition" where "collectionName" = ${name}`)
}

function collectionOf(catalog: Catalog, name: string) {
  const collection = catalog.collections.get(name)
  if (collection === undefined) throw new AppError(404, 'Schema not found')
  return collection
}

/** Serialises all changes of definitions; the lock ends with the transaction. */
async function lockedDefinitions(tx: Tx): Promise<readonly CollectionDefinition[]> {
  await tx.any(sql.unsafe`select pg_advisory_xact_lock(hashtext('daybook catalog'))`)
  const { exists } = await tx.one<{ exists: boolean }>(
    sql.unsafe`select to_regclass('"svc_SchemaDefinition"') is not null as exists`,
  )
  return exists ? readDefinitions(tx) : []
}

async function storeDefinition(tx: Tx, { collectionName, schema }: CollectionDefinition): Promise<void> {
  await tx.any(sql.unsafe`
    insert into "svc_SchemaDefinition" ("collectionName", schema) values (${collectionName}, ${sql.jsonb(schema as never)})`)
}

async function run(tx: Tx, statements: readonly string[]): Promise<void> {
  for (const statement of statements) await tx.any(rawQuery(statement))
}
