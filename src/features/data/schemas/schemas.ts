import type { Static } from 'typebox'
import type { Catalog, Collection, CollectionDefinition, Index, IndexJson, Relation } from '../../../catalog/catalog.ts'
import { type Loss, withNew } from '../../../catalog/change.ts'
import { createIndexSql, tableIndexes } from '../../../catalog/ddl.ts'
import { declaredPatch, declaredSchema, merged, shownSchema, whole } from '../../../catalog/declared.ts'
import { knownDefinitions, withSchema } from '../../../catalog/definitions.ts'
import { checkIdentifier, checkMemberName } from '../../../catalog/identifiers.ts'
import {
  type Relationship,
  type RelationshipChange,
  type RelationshipDetails,
  withChangedRelationship,
  withoutCollection,
  withoutRelationship,
  withRelationship,
} from '../../../catalog/relationships.ts'
import {
  type DefinitionProblem,
  memberProblems,
  type RelationshipType,
  relationshipTypeOf,
} from '../../../catalog/shape.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, sql } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { type ChangeOptions, changed, changeSchemas, commitDdl, reasonOf, type SchemaChanged } from './change.ts'
import type { SchemaListQuery } from './declarations.ts'

export { beginDdl, type ChangeOptions, changeSchemas, isOwn } from './change.ts'
export { type RefusedSql, refusedObjects, refusedTexts } from './sql-guard.ts'
export { catalogOfImport, MoveRefused, moveSchemas, previewImport, readImport } from './transfer.ts'
export { type RowDirection, typescriptOf } from './typescript.ts'

/** Creates a collection: table, definition row and event in one transaction. 400 for a bad schema, 409 for a known name. */
export function createSchema(
  deps: Reads & Writes,
  actor: Actor,
  { collectionName, schema: raw }: { readonly collectionName?: unknown; readonly schema: object },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    checkIdentifier('collection name', collectionName)
    // The address of its reports is that of the statistics.
    if (collectionName === 'stats') throw errors.badBody('The collection name stats is reserved')
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
 * `drop` they go. 404 for an unknown collection, 400 where a column would go that was not named, or without `alter` stored
 * values would become others, and for another name: collections keep theirs.
 */
export function updateSchema(
  deps: Reads & Writes,
  actor: Actor,
  { collectionName, schema: raw, named = collectionName }: NamedChange,
  options: ChangeOptions,
): Promise<SchemaChanged> {
  let givenUp: ReadonlySet<string> = new Set()
  const message = 'Error updating schema'
  const means = ({ collection, field }: Loss) => options.drop || (collection === collectionName && givenUp.has(field!))
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    if (named !== collectionName)
      throw errors.badBody(`collectionName is not ${collectionName}: collections cannot be renamed`)
    const door = { catalog, collection: collectionName }
    const patch = declaredPatch(door, raw)
    if (options.drop) return withSchema(definitions, collectionName, declaredSchema(door, whole(patch)))
    const change = merged(catalog.collections.get(collectionName)!, patch)
    givenUp = change.givenUp
    return withSchema(definitions, collectionName, change.schema)
  }
  return changeSchemas(deps, actor, { message, edit, means, keepsValues: !options.alter }, options)
}

type NamedChange = {
  readonly collectionName: string
  readonly schema: object
  /** The name that the body says besides. */
  readonly named?: unknown
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
 * Definitions in the order of `sort`, by name unless given, as `GET /schemas` answers them, with what the server adds.
 * `limit=-1` is all of them on one page. 400 for a sort by anything but the name and the times of a definition.
 */
export async function listSchemas(
  deps: Reads & CurrentCatalog,
  admin: boolean,
  { search, page, limit, sort, brief = false }: Static<typeof SchemaListQuery>,
) {
  const catalog = deps.catalog.current()
  const shownOf = (collection: Collection) =>
    brief ? briefDefinition(collection) : visibleDefinition(catalog, collection, admin)
  const all = [...catalog.collections.values()].map(shownOf)
  const found = all.filter(
    ({ collectionName }) => search === undefined || collectionName.toLowerCase().includes(search.toLowerCase()),
  )
  const { by, descending } = readSort(sort)
  found.sort((a, b) => (a.collectionName < b.collectionName ? -1 : 1))
  if (by !== 'collectionName') {
    const places = await placesInTime(deps, by)
    const placeOf = ({ collectionName }: Pick<CollectionDefinition, 'collectionName'>) =>
      places.get(collectionName) ?? places.size
    found.sort((a, b) => placeOf(a) - placeOf(b))
  }
  if (descending) found.reverse()
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

type SchemaSort = { readonly by: 'collectionName' | 'createdAt' | 'updatedAt'; readonly descending: boolean }

/** `field`, `-field`, `field:asc` or `field:desc`. */
function readSort(sort = 'collectionName'): SchemaSort {
  const [, minus, by, direction] = /^(-)?(collectionName|createdAt|updatedAt)(?::(asc|desc))?$/i.exec(sort) ?? []
  const known = sortable.find((name) => name.toLowerCase() === by?.toLowerCase())
  if (known === undefined) throw errors.badQuery(`schemas are sorted by ${sortable.join(', ')}`)
  return { by: known, descending: minus !== undefined || direction?.toLowerCase() === 'desc' }
}

const sortable = ['collectionName', 'createdAt', 'updatedAt'] as const

/** The place of each definition in the order in which they were created, or last changed; those of one moment by name. */
async function placesInTime({ db }: Reads, by: 'createdAt' | 'updatedAt'): Promise<ReadonlyMap<string, number>> {
  const rows = await db.any<{ name: string }>(sql`
    select "collectionName" as name from "svc_SchemaDefinition" order by ${sql.identifier([by])}, "collectionName" collate "C"`)
  return new Map(rows.map(({ name }, place) => [name, place]))
}

/** Enough to choose a collection by. */
function briefDefinition({ name: collectionName, definition }: Collection) {
  const { description } = definition.schema
  return { collectionName, schema: description === undefined ? {} : { description } }
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

/** Creates a relationship with its column, index, junction and relation back. */
export function createRelationship(
  deps: Reads & Writes,
  actor: Actor,
  { source, body }: { source: string; body: Body },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => withRelationship(catalog, source, readRelationship(source, body))
  return changeSchemas(deps, actor, { message: 'Error creating relationship', edit }, options)
}

/** Changes what the ends of a relationship say: alias, description, showAs, onDelete, onUpdate. */
export function updateRelationship(
  deps: Reads & Writes,
  actor: Actor,
  { source, field, body }: { source: string; field: string; body: Body },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const relation = catalog.collections.get(source)?.relations.get(field)
    return withChangedRelationship(catalog, source, field, readChange(relation, body))
  }
  return changeSchemas(deps, actor, { message: 'Error updating relationship', edit }, options)
}

/** Removes a relationship with its column, relation back and junction. */
export function deleteRelationship(
  deps: Reads & Writes,
  actor: Actor,
  { source, field }: { source: string; field: string },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => withoutRelationship(catalog, source, field)
  return changeSchemas(deps, actor, { message: 'Error deleting relationship', edit }, options)
}

type Body = Readonly<Record<string, unknown>>

function readRelationship(source: string, body: Body): Relationship {
  const [name, as] = [body.name ?? body.as, text(body, 'as')]
  const type = typeOf(body)
  checkMembers(body, [])
  checkMemberName('relationship name', name)
  if (as !== undefined) checkMemberName(`relation of ${source}`, as)
  return {
    type,
    name: as ?? name,
    entry: name,
    isOnTarget: body.type === 'HasOne' || body.relType === 'HasOne',
    target: text(body, 'target'),
    alias: text(body, 'alias'),
    foreignKey: text(body, 'foreignKey'),
    through: text(body, 'through'),
    tables: tablesOf(body),
    details: detailsOf(body),
  }
}

/** The kind, in either vocabulary, under either name. */
function typeOf({ type, relType }: Body): RelationshipType {
  const [one, other] = [relationshipTypeOf(type ?? relType), relationshipTypeOf(relType ?? type)]
  if (one === undefined || one !== other)
    throw new AppError(400, 'Invalid relationship type. Must be M2O, O2M, O2O, M2M, or M2A')
  return one
}

function readChange(relation: Relation | undefined, body: Body): RelationshipChange {
  checkMembers(body, relation === undefined ? [] : fixedProblems(relation, body))
  const isRemoval = body.alias === null || body.alias === ''
  return { alias: isRemoval ? null : text(body, 'alias'), details: detailsOf(body) }
}

/** Clients may send a relationship back as they know it, but not as another one. */
function fixedProblems(relation: Relation, body: Body): DefinitionProblem[] {
  const { name, target, foreignKey, through, tables } = relation
  const present: Body = { name, as: name, target, foreignKey, through: through ?? body.through }
  const isOther = (word: string) => body[word] !== undefined && body[word] !== null && body[word] !== present[word]
  const isOtherType = (word: unknown) =>
    word !== undefined && word !== null && !typesOf[relation.kind].includes(relationshipTypeOf(word)!)
  const hasOtherTables = Array.isArray(body.tables) && [...body.tables].sort().join() !== [...tables].sort().join()
  const words = [
    ...Object.keys(present).filter(isOther),
    ...['type', 'relType'].filter((word) => isOtherType(body[word])),
    ...(hasOtherTables ? ['tables'] : []),
  ]
  return words.map((path) => ({ path, message: 'cannot be changed: delete the relationship and create another' }))
}

const typesOf: Readonly<Record<Relation['kind'], readonly RelationshipType[]>> = {
  belongsTo: ['M2O', 'O2O'],
  hasOne: ['O2O'],
  hasMany: ['O2M', 'M2M', 'M2A'],
  belongsToMany: ['M2M'],
  polymorphic: ['M2A'],
}

function checkMembers(body: Body, more: readonly DefinitionProblem[]): void {
  const shape = memberProblems(['relationship'], body, '').filter(({ message }) => !message.startsWith('must be'))
  const problems = [...shape, ...more]
  if (problems.length === 0) return
  const words = problems.map(({ path, message }) => `${path}: ${message}`).join('; ')
  throw new AppError(400, words, { code: 'INVALID_SCHEMA', details: { errors: problems } })
}

function detailsOf(body: Body): RelationshipDetails {
  const [description, onDelete, onUpdate] = ['description', 'onDelete', 'onUpdate'].map((key) => text(body, key))
  const { showAs } = body
  if (showAs !== undefined && showAs !== null && !Array.isArray(showAs))
    throw new AppError(400, 'showAs must be a list')
  return {
    ...(description !== undefined && { description }),
    ...(onDelete !== undefined && { onDelete }),
    ...(onUpdate !== undefined && { onUpdate }),
    ...(Array.isArray(showAs) && { showAs }),
  }
}

function tablesOf({ tables }: Body): readonly string[] | undefined {
  if (tables === undefined || tables === null) return undefined
  const isList = Array.isArray(tables) && tables.every((table) => typeof table === 'string')
  if (!isList) throw new AppError(400, 'tables must be a list of collections')
  return [...new Set(tables as string[])]
}

/** Absent, null and empty mean the same. */
function text(body: Body, key: string): string | undefined {
  const value = body[key] ?? undefined
  if (value !== undefined && typeof value !== 'string') throw new AppError(400, `${key} must be a string`)
  return value === '' ? undefined : value
}

/** Adds an index to a collection. 409 when it has one of that name. */
export function addIndex(
  deps: Reads & Writes,
  actor: Actor,
  { collectionName, body }: { collectionName: string; body: Readonly<Record<string, unknown>> },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const index = readIndex(collectionName, body)
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    const isTaken = catalog.collections.get(collectionName)!.indexes.some(({ name }) => name === index.name)
    if (isTaken) throw new AppError(409, `${collectionName} has an index ${index.name} already`)
    const schema = definitions.get(collectionName)!
    return withSchema(definitions, collectionName, { ...schema, indexes: [...(schema.indexes ?? []), index] })
  }
  return changeSchemas(deps, actor, { message: 'Error adding index', edit }, options)
}

/** Removes a declared index. 404 for an unknown one, 403 for those of the system. */
export function removeIndex(
  deps: Reads & Writes,
  actor: Actor,
  { collectionName, name }: { collectionName: string; name: string },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    const schema = definitions.get(collectionName)!
    const indexes = schema.indexes ?? []
    const kept = indexes.filter((index) => (index.name ?? defaultName(collectionName, index.fields)) !== name)
    if (kept.length === indexes.length) throw new AppError(404, `Index ${name} not found`)
    return withSchema(definitions, collectionName, { ...schema, indexes: kept })
  }
  return changeSchemas(deps, actor, { message: 'Error removing index', edit }, options)
}

type IndexMigration = { collection: string; index: string; status: 'created' | 'skipped' | 'error'; error?: string }

/** Creates the indexes that definitions imply and tables lack, each in a transaction of its own. */
export async function migrateIndexes(deps: Reads & Writes & CurrentCatalog, actor: Actor) {
  const present = await presentIndexes(deps)
  const details: IndexMigration[] = []
  for (const collection of deps.catalog.current().collections.values())
    for (const index of tableIndexes(collection))
      details.push(
        present.has(index.name)
          ? { collection: collection.name, index: index.name, status: 'skipped' }
          : await createMissing(deps, actor, collection, index),
      )
  const count = (status: IndexMigration['status']) => details.filter((entry) => entry.status === status).length
  return {
    message: 'Foreign key index migration completed',
    summary: { created: count('created'), skipped: count('skipped'), errors: count('error') },
    details,
  }
}

async function presentIndexes({ db }: Reads): Promise<ReadonlySet<string>> {
  const rows = await db.any<{ name: string }>(sql`select indexname as name from pg_indexes where schemaname = 'public'`)
  return new Set(rows.map(({ name }) => name))
}

async function createMissing(
  deps: Writes,
  actor: Actor,
  collection: Collection,
  index: Index,
): Promise<IndexMigration> {
  const entry = { collection: collection.name, index: index.name }
  try {
    await commitDdl(deps, actor, async (tx) => {
      await tx.any(rawQuery(createIndexSql(collection, index)))
      return { result: undefined, events: [changed({ collection: collection.name, change: 'update' })] }
    })
    return { ...entry, status: 'created' }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { ...entry, status: 'error', error: reasonOf(error) }
  }
}

function readIndex(collectionName: string, body: Readonly<Record<string, unknown>>): IndexJson & { name: string } {
  const problems = memberProblems(['index'], body, '')
  if (problems.length > 0)
    throw new AppError(400, 'Error adding index', { code: 'INVALID_SCHEMA', details: { errors: problems } })
  const { name, fields, unique, nullsNotDistinct, type } = body
  if (!Array.isArray(fields) || fields.length === 0 || !fields.every((field) => typeof field === 'string'))
    throw errors.badBody('fields must be a list of field names')
  return {
    name: typeof name === 'string' && name !== '' ? name : defaultName(collectionName, fields),
    fields,
    ...(unique === true && { unique }),
    ...(nullsNotDistinct === true && { nullsNotDistinct }),
    ...(typeof type === 'string' && { type: type as NonNullable<IndexJson['type']> }),
  }
}

function defaultName(collectionName: string, fields: readonly string[]): string {
  return `${collectionName}_${fields.join('_')}_idx`
}
