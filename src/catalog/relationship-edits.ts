import { AppError } from '../errors.ts'
import type { Catalog, Collection, FieldJson, Relation, SchemaJson } from './catalog.ts'
import { type Definitions, definitionsOf, withField, withoutFields } from './definitions.ts'
import { checkUnreserved } from './identifiers.ts'
import type { RelationshipDetails } from './relationships.ts'

/**
 * Changes and removals of relationships as edits of definitions (spec/schemas.md §3). Pure, like `relationships.ts`.
 *
 * Words: the *holder* of a relation is the belongsTo that declares its foreign key; the relations *back* are those that
 * read the same link from the other side.
 */

export type RelationshipChange = {
  /** Renames the relation back, adds it, or with null removes it. */
  readonly alias?: string | null | undefined
  readonly details: RelationshipDetails
}

/** 404 for what is no relation of the collection's own definition, 400 for an alias that cannot be had. */
export function withChangedRelationship(
  catalog: Catalog,
  source: string,
  name: string,
  { alias, details }: RelationshipChange,
): Definitions {
  const { place, json } = relationAt(catalog, source, name)
  const described = withField(definitionsOf(catalog), source, name, { ...json, ...details })
  const acting = withActions(described, holderOf(catalog, place), details)
  return alias === undefined ? acting : withAlias(catalog, acting, place, alias)
}

/** Removes a relation with its column, the relation back, and the junction if it has one. */
export function withoutRelationship(catalog: Catalog, source: string, name: string): Definitions {
  const { place } = relationAt(catalog, source, name)
  const definitions = withoutFields(definitionsOf(catalog), source, [name])
  const junction = junctionOf(catalog, place)
  if (junction !== undefined) return withoutCollection(definitions, junction.name)
  const holder = holderOf(catalog, place)
  const others = backOf(catalog, place).reduce(without, definitions)
  return holder === undefined ? others : withoutColumn(catalog, others, holder)
}

/**
 * Removes a collection, the junctions that link it, and what other collections declare about any of them. 409 when
 * another collection has a foreign key to it.
 */
export function withoutCollection(definitions: Definitions, name: string): Definitions {
  const gone = new Set([name, ...junctionsTo(definitions, name)])
  const rest = [...definitions].filter(([collection]) => !gone.has(collection))
  const holders = rest.filter(([, { fields }]) => Object.values(fields).some((json) => holdsKeyTo(gone, json)))
  if (holders.length > 0)
    throw new AppError(409, `Collection ${name} is still the target of relations`, {
      code: 'COLLECTION_IN_USE',
      details: holders.map(([collection]) => collection),
    })
  return new Map(rest.map(([collection, schema]) => [collection, withoutRelationsTo(gone, schema)]))
}

/** A relation by where it is declared. */
type Place = { readonly collection: Collection; readonly relation: Relation }

function relationAt(catalog: Catalog, source: string, name: string): { place: Place; json: FieldJson } {
  const collection = catalog.collections.get(source)
  if (collection === undefined)
    throw new AppError(404, 'Source or target collection not found', { code: 'UNKNOWN_COLLECTION' })
  const relation = collection.relations.get(name)
  const json = declarationOf(collection, name)
  if (relation === undefined || json === undefined) throw new AppError(404, 'Relationship field not found')
  return { place: { collection, relation }, json }
}

/** Undefined for a relation that a switch of the definition implies. */
function declarationOf({ definition }: Collection, name: string): FieldJson | undefined {
  const { fields } = definition.schema
  return Object.hasOwn(fields, name) ? fields[name] : undefined
}

/** The junction that a relation goes through. */
function junctionOf(catalog: Catalog, { relation }: Place): Collection | undefined {
  if (relation.kind === 'belongsTo') return undefined
  const link = catalog.collections.get(relation.through ?? relation.target)
  return link?.definition.schema.isJunction === true ? link : undefined
}

function holderOf(catalog: Catalog, { collection, relation }: Place): Place | undefined {
  if (relation.kind === 'belongsTo') return { collection, relation }
  const link = catalog.collections.get(relation.through ?? relation.target)!
  const held = [...link.relations.values()].find(
    ({ kind, foreignKey, target, name }) =>
      kind === 'belongsTo' &&
      foreignKey === relation.foreignKey &&
      target === collection.name &&
      declarationOf(link, name) !== undefined,
  )
  return held && { collection: link, relation: held }
}

function backOf(catalog: Catalog, place: Place): Place[] {
  const { collection, relation } = place
  const junction = junctionOf(catalog, place)
  if (junction !== undefined)
    return placesOf(catalog, (_, other) => leadsTo(other, junction.name) && other !== relation)
  if (relation.kind !== 'belongsTo') return [holderOf(catalog, place) ?? []].flat()
  const readsBack = ({ name }: Collection, { kind, target, foreignKey }: Relation) =>
    kind !== 'belongsTo' && name === relation.target && target === collection.name && foreignKey === relation.foreignKey
  return placesOf(catalog, readsBack)
}

function leadsTo({ kind, target, through }: Relation, name: string): boolean {
  return kind !== 'belongsTo' && (target === name || through === name)
}

function placesOf(catalog: Catalog, isWanted: (collection: Collection, relation: Relation) => boolean): Place[] {
  return [...catalog.collections.values()].flatMap((collection) =>
    [...collection.relations.values()]
      .filter((relation) => isWanted(collection, relation))
      .map((relation) => ({ collection, relation })),
  )
}

/** onDelete and onUpdate take effect where the foreign key is. */
function withActions(definitions: Definitions, holder: Place | undefined, details: RelationshipDetails): Definitions {
  const { onDelete, onUpdate } = details
  if (holder === undefined || (onDelete === undefined && onUpdate === undefined)) return definitions
  return withField(definitions, holder.collection.name, holder.relation.name, {
    ...entryAt(definitions, holder),
    ...(onDelete !== undefined && { onDelete }),
    ...(onUpdate !== undefined && { onUpdate }),
  })
}

function withAlias(catalog: Catalog, definitions: Definitions, place: Place, alias: string | null): Definitions {
  const back = backOf(catalog, place)
  if (alias === null) return withoutAliases(definitions, back)
  if (back.length > 0) return back.reduce((next, each) => renamed(next, each, alias), definitions)
  const { collection, relation } = place
  if (relation.kind !== 'belongsTo')
    throw new AppError(400, `Relation ${relation.name} has no relation back that could be named`)
  const isOne = collection.fields.get(relation.foreignKey)?.unique === true
  checkFree(definitions, relation.target, alias)
  checkUnreserved(relation.target, alias)
  return withField(definitions, relation.target, alias, {
    relType: isOne ? 'HasOne' : 'HasMany',
    target: collection.name,
    foreignKey: relation.foreignKey,
    description: isOne ? 'O2O Alias' : 'M2O Alias',
  })
}

function withoutAliases(definitions: Definitions, back: readonly Place[]): Definitions {
  const holder = back.find(({ relation }) => relation.kind === 'belongsTo')
  if (holder !== undefined)
    throw new AppError(400, `Relation ${holder.relation.name} holds the foreign key: delete the relationship instead`)
  return back.reduce(without, definitions)
}

/** The column keeps its name, also where it was derived from the alias. */
function renamed(definitions: Definitions, place: Place, alias: string): Definitions {
  const { collection, relation } = place
  if (relation.name === alias) return definitions
  checkFree(definitions, collection.name, alias)
  checkUnreserved(collection.name, alias)
  const json = { ...entryAt(definitions, place), foreignKey: relation.foreignKey }
  return withField(without(definitions, place), collection.name, alias, json)
}

function checkFree(definitions: Definitions, collection: string, name: string): void {
  if (Object.hasOwn(definitions.get(collection)!.fields, name))
    throw new AppError(409, `${collection} has a field ${name} already`)
}

function entryAt(definitions: Definitions, { collection, relation }: Place): FieldJson {
  return definitions.get(collection.name)!.fields[relation.name]!
}

function without(definitions: Definitions, { collection, relation }: Place): Definitions {
  return withoutFields(definitions, collection.name, [relation.name])
}

/** The foreign key's column goes with its last relation, unless it is the primary key too. */
function withoutColumn(catalog: Catalog, definitions: Definitions, { collection, relation }: Place): Definitions {
  const { foreignKey } = relation
  const still = Object.entries(definitions.get(collection.name)!.fields).some(
    ([name, json]) => json.relType === 'BelongsTo' && (json.foreignKey ?? `${name}_Id`) === foreignKey,
  )
  const isKey = catalog.collections.get(collection.name)!.primaryKey.name === foreignKey
  return still || isKey ? definitions : withoutFields(definitions, collection.name, [foreignKey])
}

function junctionsTo(definitions: Definitions, name: string): string[] {
  const target = new Set([name])
  const links = ({ isJunction, fields }: SchemaJson) =>
    isJunction === true && Object.values(fields).some((json) => holdsKeyTo(target, json))
  return [...definitions].filter(([, schema]) => links(schema)).map(([collection]) => collection)
}

/** A relation with a scope is one of several that share a column, so none of them holds it. */
function holdsKeyTo(collections: ReadonlySet<string>, { relType, target, scope }: FieldJson): boolean {
  return relType === 'BelongsTo' && scope === undefined && isOneOf(collections, target)
}

function isOneOf(collections: ReadonlySet<string>, name: unknown): boolean {
  return typeof name === 'string' && collections.has(name)
}

function withoutRelationsTo(gone: ReadonlySet<string>, schema: SchemaJson): SchemaJson {
  const entries = Object.entries(schema.fields)
    .filter(([, { target, through }]) => !isOneOf(gone, target) && !isOneOf(gone, through))
    .map(([name, json]): [string, FieldJson] => [name, withoutTables(gone, json)])
  return { ...schema, fields: Object.fromEntries(entries) }
}

function withoutTables(gone: ReadonlySet<string>, json: FieldJson): FieldJson {
  if (!Array.isArray(json.tables)) return json
  return { ...json, tables: json.tables.filter((table) => !gone.has(table)) }
}
