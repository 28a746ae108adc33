import type { SchemaJson } from '../../catalog/catalog.ts'
import { knownDefinitions, withSchema } from '../../catalog/definitions.ts'
import { checkIdentifier } from '../../catalog/identifiers.ts'
import { withNew } from '../../catalog/manager.ts'
import { withoutCollection } from '../../catalog/relationship-edits.ts'
import { AppError, errors } from '../../errors.ts'
import type { Actor } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { changeSchemas } from './change.ts'

/** Creates a collection: table, definition row and event in one transaction. 400 for a bad schema, 409 for a known name. */
export async function createSchema(rt: Runtime, actor: Actor, body: unknown): Promise<void> {
  const { collectionName } = objectOf(body)
  const schema = schemaOf(body)
  await changeSchemas(rt, actor, 'Error creating schema', (catalog) => {
    checkIdentifier('collection name', collectionName)
    if (collectionName.endsWith('_junction')) throw errors.badBody('Collection names ending in _junction are reserved')
    return withNew(catalog, [{ collectionName, schema }])
  })
}

/** Brings a collection to a new schema: adds, alters (castable types only), drops. 404 for an unknown one. */
export async function updateSchema(rt: Runtime, actor: Actor, collectionName: string, body: unknown): Promise<void> {
  const schema = schemaOf(body)
  await changeSchemas(rt, actor, 'Error updating schema', (catalog) =>
    withSchema(knownDefinitions(catalog, collectionName), collectionName, schema),
  )
}

/**
 * Drops a collection with its table, its junctions and the relations that others declare to it. 403 for system
 * collections, 409 while another collection has a foreign key to it.
 */
export async function deleteSchema(rt: Runtime, actor: Actor, collectionName: string): Promise<void> {
  await changeSchemas(rt, actor, 'Error deleting schema', (catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    if (catalog.collections.get(collectionName)!.system) throw new AppError(403, 'System collections cannot be deleted')
    return withoutCollection(definitions, collectionName)
  })
}

export function objectOf(body: unknown): Readonly<Record<string, unknown>> {
  if (body === null || typeof body !== 'object' || Array.isArray(body))
    throw errors.badBody('Request body must be an object')
  return body as Record<string, unknown>
}

function schemaOf(body: unknown): SchemaJson {
  const { schema } = objectOf(body)
  if (schema === null || typeof schema !== 'object' || Array.isArray(schema))
    throw errors.badBody('schema must be an object')
  return schema as SchemaJson
}
