import type { Static } from 'typebox'
import type { Catalog, Collection, CollectionDefinition } from '../../../catalog/catalog.ts'
import { type Loss, withNew } from '../../../catalog/change.ts'
import { declaredPatch, declaredSchema, shownSchema } from '../../../catalog/declared.ts'
import { knownDefinitions, withSchema } from '../../../catalog/definitions.ts'
import { checkIdentifier } from '../../../catalog/identifiers.ts'
import { merged, whole } from '../../../catalog/merge.ts'
import { withoutCollection } from '../../../catalog/relationships.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { type ChangeOptions, changeSchemas, type SchemaChanged } from './change.ts'
import type { SchemaListQuery } from './declarations.ts'

export { type ChangeOptions, changeSchemas } from './change.ts'
export { type RefusedSql, refusedObjects, refusedTexts } from './sql-guard.ts'
export { catalogOfImport } from './transfer.ts'
export { typescriptOf } from './typescript.ts'

/** Creates a collection: table, definition row and event in one transaction. 400 for a bad schema, 409 for a known name. */
export function createSchema(
  deps: Reads & Writes,
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
  return changeSchemas(deps, actor, { message: 'Error creating schema', edit }, options)
}

/**
 * Changes a collection: adds, alters (castable types only), removes what is null. Entries that the schema leaves out stay; with
 * `drop` they go. 404 for an unknown collection, 400 where a column would go that nobody named.
 */
export function updateSchema(
  deps: Reads & Writes,
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
  return changeSchemas(deps, actor, { message, edit, means }, options)
}

/** Removes one field with its values, or one relation. 404 for an unknown one, 400 while something else needs it. */
export function deleteField(
  deps: Reads & Writes,
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
  return changeSchemas(deps, actor, { message: 'Error deleting field', edit }, options)
}

/**
 * Drops a collection with its table, its junctions and the relations that others declare to it. 403 for system
 * collections, 409 while another collection has a foreign key to it.
 */
export function deleteSchema(
  deps: Reads & Writes,
  actor: Actor,
  collectionName: string,
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    if (catalog.collections.get(collectionName)!.system) throw new AppError(403, 'System collections cannot be deleted')
    return withoutCollection(definitions, collectionName)
  }
  return changeSchemas(deps, actor, { message: 'Error deleting schema', edit }, options)
}

/**
 * Definitions by name, as `GET /schemas` answers them, with what the server adds. `limit=-1` is
 * all of them on one page.
 */
export function listSchemas(
  deps: CurrentCatalog,
  admin: boolean,
  { search, page, limit, sort }: Static<typeof SchemaListQuery>,
) {
  const catalog = deps.catalog.current()
  const all = [...catalog.collections.values()].map((collection) => visibleDefinition(catalog, collection, admin))
  const found = all.filter(
    ({ collectionName }) => search === undefined || collectionName.toLowerCase().includes(search.toLowerCase()),
  )
  found.sort((a, b) => (a.collectionName < b.collectionName ? -1 : 1))
  if (sortsDescending(sort)) found.reverse()
  if (page === undefined && limit === undefined) return { data: found, totalCount: found.length }
  return limit === -1 ? paged(found, 1, -1) : paged(found, page ?? 1, limit ?? 50)
}

export function oneSchema(deps: CurrentCatalog, admin: boolean, collectionName: string): CollectionDefinition {
  const catalog = deps.catalog.current()
  const collection = catalog.collections.get(collectionName)
  if (collection === undefined) throw new AppError(404, 'Schema not found', { code: 'UNKNOWN_COLLECTION' })
  return visibleDefinition(catalog, collection, admin)
}

function paged<T>(all: readonly T[], page: number, limit: number) {
  const totalPages = limit === -1 ? 1 : Math.max(1, Math.ceil(all.length / limit))
  const pagination = {
    currentPage: page,
    totalPages,
    limit,
    hasNextPage: page < totalPages,
    hasPrevPage: page > 1,
    nextPage: page < totalPages ? page + 1 : null,
    prevPage: page > 1 ? page - 1 : null,
  }
  const data = limit === -1 ? all : all.slice((page - 1) * limit, page * limit)
  return { data, totalCount: all.length, pagination }
}

function sortsDescending(sort: string | undefined): boolean {
  if (sort === undefined) return false
  const match = /^(-)?collectionName(?::(asc|desc))?$/i.exec(sort)
  if (match === null) throw errors.badQuery('schemas are sorted by collectionName')
  return match[1] !== undefined || match[2]?.toLowerCase() === 'desc'
}

/** An administrator edits whole definitions; to everybody else hidden fields do not exist. */
function visibleDefinition(catalog: Catalog, collection: Collection, admin: boolean): CollectionDefinition {
  const { name: collectionName, fields } = collection
  const schema = shownSchema(catalog, collection)
  if (admin) return { collectionName, schema }
  const { constraints: _, ...shown } = schema
  const isVisible = (name: string) => fields.get(name)?.hidden !== true
  return {
    collectionName,
    schema: {
      ...shown,
      fields: Object.fromEntries(Object.entries(schema.fields).filter(([name]) => isVisible(name))),
      ...(schema.indexes !== undefined && { indexes: schema.indexes.filter((index) => index.fields.every(isVisible)) }),
    },
  }
}
