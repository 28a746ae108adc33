import type { Catalog } from '../../../catalog/catalog.ts'
import { type Loss, withNew } from '../../../catalog/change.ts'
import { declaredPatch, declaredSchema } from '../../../catalog/declared.ts'
import { knownDefinitions, withSchema } from '../../../catalog/definitions.ts'
import { checkIdentifier } from '../../../catalog/identifiers.ts'
import { merged, whole } from '../../../catalog/merge.ts'
import { withoutCollection } from '../../../catalog/relationships.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { changeSchemas, type SchemaChanged } from './change.ts'

export { changeSchemas } from './change.ts'
export { type RefusedSql, refusedObjects, refusedTexts } from './sql-guard.ts'

/** How a change is made: `drop` takes the definition as the whole, `dryRun` only tells. */
export type ChangeOptions = { readonly drop: boolean; readonly dryRun: boolean }

/** Creates a collection: table, definition row and event in one transaction. 400 for a bad schema, 409 for a known name. */
export function createSchema(
  rt: Reads & Writes,
  actor: Actor,
  { collectionName, schema: raw }: { readonly collectionName?: unknown; readonly schema: object },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    checkIdentifier('collection name', collectionName)
    if (collectionName.endsWith('_junction')) throw errors.badBody('Collection names ending in _junction are reserved')
    // A known name is answered as that, whatever the schema would be as a change of the collection.
    withNew(catalog, [{ collectionName, schema: { fields: {} } }])
    const schema = declaredSchema({ catalog, collection: collectionName }, raw)
    return withNew(catalog, [{ collectionName, schema }])
  }
  return changeSchemas(rt, actor, { message: 'Error creating schema', edit }, options)
}

/**
 * Changes a collection: adds, alters (castable types only), removes what is null. Entries that the schema leaves out stay; with
 * `drop` they go. 404 for an unknown collection, 400 where a column would go that nobody named.
 */
export function updateSchema(
  rt: Reads & Writes,
  actor: Actor,
  { collectionName, schema: raw }: { readonly collectionName: string; readonly schema: object },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  let givenUp: ReadonlySet<string> = new Set()
  const message = 'Error updating schema'
  const means = ({ collection, field }: Loss) => options.drop || (collection === collectionName && givenUp.has(field!))
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    const door = { catalog, collection: collectionName }
    const patch = declaredPatch(door, raw)
    if (options.drop) return withSchema(definitions, collectionName, declaredSchema(door, whole(patch)))
    const change = merged(catalog.collections.get(collectionName)!, patch)
    givenUp = change.givenUp
    return withSchema(definitions, collectionName, change.schema)
  }
  return changeSchemas(rt, actor, { message, edit, means }, options)
}

/** Removes one field with its values, or one relation. 404 for an unknown one, 400 while something else needs it. */
export function deleteField(
  rt: Reads & Writes,
  actor: Actor,
  { collectionName, field }: { collectionName: string; field: string },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    const collection = catalog.collections.get(collectionName)!
    if (!collection.fields.has(field) && !collection.relations.has(field))
      throw new AppError(404, `Field ${field} not found`, { code: 'UNKNOWN_FIELD' })
    return withSchema(definitions, collectionName, merged(collection, { fields: { [field]: null } }).schema)
  }
  return changeSchemas(rt, actor, { message: 'Error deleting field', edit }, options)
}

/**
 * Drops a collection with its table, its junctions and the relations that others declare to it. 403 for system
 * collections, 409 while another collection has a foreign key to it.
 */
export function deleteSchema(
  rt: Reads & Writes,
  actor: Actor,
  collectionName: string,
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    if (catalog.collections.get(collectionName)!.system) throw new AppError(403, 'System collections cannot be deleted')
    return withoutCollection(definitions, collectionName)
  }
  return changeSchemas(rt, actor, { message: 'Error deleting schema', edit }, options)
}
