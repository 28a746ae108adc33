/**
 * Relationships as edits of definitions: the catalog in, the definitions after the change out. Pure; what they mean for
 * tables follows from the difference.
 *
 * Words: the *holder* of a relation is the belongsTo that declares its foreign key; the relations *back* are those that
 * read the same link from the other side.
 */
import { AppError } from '../errors.ts'
import { plain } from '../language/text.ts'
import type { Catalog, Collection, Field, FieldJson, Relation, SchemaJson } from './catalog.ts'
import {
  anySchema,
  type Definitions,
  definitionsOf,
  type JunctionEnd,
  keyReference,
  pairSchema,
  withField,
  withoutFields,
  withSchema,
} from './definitions.ts'
import { checkUnreserved, isColumnOf, isRelationName, maxNameLength } from './identifiers.ts'
import type { RelationshipType } from './shape.ts'

/** Members of a relationship besides its ends. */
export type RelationshipDetails = {
  readonly description?: string
  readonly onDelete?: string
  readonly onUpdate?: string
  readonly showAs?: readonly unknown[]
}

export type Relationship = {
  readonly type: RelationshipType
  /** Name of the relation. */
  readonly name: string
  /** Its name in the request, which may be its column's. */
  readonly entry: string
  /** One to one by a column that the target has already. */
  readonly isOnTarget: boolean
  /** Every type but M2A has one. */
  readonly target?: string | undefined
  /** Name of the relation back, on the target. */
  readonly alias?: string | undefined
  readonly foreignKey?: string | undefined
  /** Name of the junction of M2M and M2A. */
  readonly through?: string | undefined
  /** The collections that M2A can point at. */
  readonly tables?: readonly string[] | undefined
  readonly details: RelationshipDetails
}

/** 404 for unknown collections, 409 for names that are taken, 400 for generated names that are too long. */
export function withRelationship(catalog: Catalog, source: string, relationship: Relationship): Definitions {
  const definitions = definitionsOf(catalog)
  if (!definitions.has(source)) throw unknownEnd()
  checkUnreserved(source, relationship.name)
  switch (relationship.type) {
    case 'M2O':
    case 'O2O':
      return withToOne(catalog, definitions, source, relationship)
    case 'O2M':
      return withToMany(catalog, definitions, source, relationship)
    case 'M2M':
      return withPairs(catalog, definitions, source, relationship)
    case 'M2A':
      return withAny(catalog, definitions, source, relationship)
  }
}

function withToOne(
  catalog: Catalog,
  definitions: Definitions,
  source: string,
  relationship: Relationship,
): Definitions {
  const { type, name, alias, details } = relationship
  const target = knownTarget(definitions, relationship)
  if (relationship.isOnTarget) {
    const held = heldKey(catalog, source, target, relationship)
    if (held !== undefined)
      return withNewEntry(catalog, definitions, source, name, farJson('HasOne', target, held, details))
  }
  const foreignKey = relationship.foreignKey ?? ownKeyName(catalog, source, relationship)
  checkLengths([name, foreignKey, alias])
  if (alias !== undefined) checkUnreserved(target, alias)
  const isUnique = type === 'O2O'
  const keyed = withForeignKey(catalog, definitions, { source, foreignKey, target, isUnique })
  const related = withNewEntry(catalog, keyed, source, name, {
    relType: 'BelongsTo',
    target,
    foreignKey,
    description: type,
    ...details,
  })
  if (alias === undefined) return related
  return withNewEntry(catalog, related, target, alias, reverseJson(source, foreignKey, type))
}

/** The relation is declared on the source, the column is the target's. */
function withToMany(
  catalog: Catalog,
  definitions: Definitions,
  source: string,
  relationship: Relationship,
): Definitions {
  const { name, details } = relationship
  const target = knownTarget(definitions, relationship)
  const held = heldKey(catalog, source, target, relationship)
  if (held !== undefined) {
    const described = withActionsOf(catalog, definitions, { source: target, foreignKey: held, target: source }, details)
    return withNewEntry(catalog, described, source, name, farJson('HasMany', target, held, details))
  }
  const alias = relationship.alias ?? backName(catalog, source, target, name)
  const foreignKey = relationship.foreignKey ?? columnNamed(catalog, target, `${relationship.alias ?? source}_id`)
  checkLengths([name, foreignKey, alias])
  checkUnreserved(target, alias)
  const keyed = withForeignKey(catalog, definitions, { source: target, foreignKey, target: source, isUnique: false })
  const related = withNewEntry(catalog, keyed, target, alias, {
    relType: 'BelongsTo',
    target: source,
    foreignKey,
    description: 'O2M Alias',
    ...actionsOf(details),
  })
  return withNewEntry(catalog, related, source, name, farJson('HasMany', target, foreignKey, details))
}

/**
 * The column of the target by which it belongs to the source already: the one that is named (by column or alias), or the
 * only one there is. 400 that names them where several fit.
 */
function heldKey(
  catalog: Catalog,
  source: string,
  target: string,
  { foreignKey, alias }: Relationship,
): string | undefined {
  const far = catalog.collections.get(target)!
  const declared = far.definition.schema.fields
  const all = [...far.relations.values()].filter(
    (relation) =>
      relation.kind === 'belongsTo' &&
      relation.target === source &&
      relation.targetKey === catalog.collections.get(source)!.primaryKey.name &&
      relation.discriminator === undefined,
  )
  if (foreignKey !== undefined) return all.find((relation) => relation.foreignKey === foreignKey)?.foreignKey
  if (alias !== undefined) return all.find((relation) => relation.name === alias)?.foreignKey
  const keys = [...new Set(all.filter(({ name }) => Object.hasOwn(declared, name)).map((each) => each.foreignKey))]
  if (keys.length > 1)
    throw new AppError(400, `${target} belongs to ${source} by ${keys.join(' and ')}: name one of them as foreignKey`)
  return keys[0]
}

/** `{name}_id`, or the column that is called so but for its case; the request's own word where that is a column's. */
function ownKeyName(catalog: Catalog, source: string, { name, entry }: Relationship): string {
  return isColumnOf(entry, name) ? entry : columnNamed(catalog, source, `${name}_id`)
}

/** The column of this name, or the only one of the same letters: a second one would be taken for it. */
function columnNamed(catalog: Catalog, collection: string, name: string): string {
  const { fields } = catalog.collections.get(collection)!
  if (fields.has(name)) return name
  const same = [...fields.keys()].filter((other) => plain(other) === plain(name))
  return same.length === 1 ? same[0]! : name
}

function actionsOf({ onDelete, onUpdate }: RelationshipDetails) {
  return { ...(onDelete !== undefined && { onDelete }), ...(onUpdate !== undefined && { onUpdate }) }
}

/** Where the column is there already, the relation that holds it declares the actions. */
function withActionsOf(
  catalog: Catalog,
  definitions: Definitions,
  { source, foreignKey, target }: Omit<ForeignKey, 'isUnique'>,
  details: RelationshipDetails,
): Definitions {
  const actions = actionsOf(details)
  const declared = definitions.get(source)!.fields
  const holder = [...catalog.collections.get(source)!.relations.values()].find(
    (relation) =>
      relation.kind === 'belongsTo' &&
      relation.foreignKey === foreignKey &&
      relation.target === target &&
      Object.hasOwn(declared, relation.name),
  )
  if (holder === undefined || Object.keys(actions).length === 0) return definitions
  return withField(definitions, source, holder.name, { ...declared[holder.name], ...actions })
}

function farJson(relType: 'HasMany' | 'HasOne', target: string, foreignKey: string, details: RelationshipDetails) {
  const { onDelete, onUpdate, ...shown } = details
  return { relType, target, foreignKey, description: relType === 'HasOne' ? 'O2O' : 'O2M', ...shown }
}

function withPairs(
  catalog: Catalog,
  definitions: Definitions,
  source: string,
  relationship: Relationship,
): Definitions {
  const { name, alias, details } = relationship
  const target = knownTarget(definitions, relationship)
  const isSelf = source === target
  const junction = relationship.through ?? `${source}_${target}_${name}_junction`
  const near: JunctionEnd = { collection: source, foreignKey: `${source}_id`, alias: source }
  const far: JunctionEnd = {
    collection: target,
    foreignKey: isSelf ? `${target}_id_2` : `${target}_id`,
    alias: isSelf ? `${target}_2` : target,
  }
  checkLengths([name, alias, junction, near.foreignKey, far.foreignKey, far.alias])
  if (alias !== undefined) checkUnreserved(target, alias)
  const linked = withJunction(definitions, junction, pairSchema(definitions, junction, [near, far]))
  const related = withNewEntry(catalog, linked, source, name, toJunction(junction, near, 'M2M', details))
  if (alias === undefined) return related
  return withNewEntry(catalog, related, target, alias, toJunction(junction, far, 'M2M Alias', {}))
}

function withAny(catalog: Catalog, definitions: Definitions, source: string, relationship: Relationship): Definitions {
  const { name, tables = [], details } = relationship
  checkTables(catalog, tables)
  const junction = relationship.through ?? `${source}_${name}_junction`
  const alias = relationship.alias ?? `${source}_${name}`
  const owner: JunctionEnd = {
    collection: source,
    foreignKey: `${source}_id`,
    alias: tables.includes(source) ? `${source}_source` : source,
  }
  checkLengths([name, alias, junction, owner.foreignKey, owner.alias])
  for (const table of tables) checkUnreserved(table, alias)
  const linked = withJunction(definitions, junction, anySchema(definitions, junction, owner, tables))
  const related = withNewEntry(catalog, linked, source, name, {
    ...toJunction(junction, owner, 'M2A', details),
    polymorphic: true,
    tables,
  })
  return tables.reduce(
    (next, table) =>
      withNewEntry(catalog, next, table, alias, {
        ...toJunction(junction, { foreignKey: 'item_id' }, 'M2A Alias', {}),
        scope: { collection: table },
      }),
    related,
  )
}

function toJunction(
  junction: string,
  { foreignKey }: Pick<JunctionEnd, 'foreignKey'>,
  description: string,
  details: RelationshipDetails,
) {
  return { relType: 'HasMany', target: junction, foreignKey, description, ...details }
}

function reverseJson(target: string, foreignKey: string, type: RelationshipType): FieldJson {
  return { relType: type === 'O2O' ? 'HasOne' : 'HasMany', target, foreignKey, description: `${type} Alias` }
}

type ForeignKey = { source: string; foreignKey: string; target: string; isUnique: boolean }

/** Declares the column, or takes the one that is there if it can hold the target's keys. */
function withForeignKey(catalog: Catalog, definitions: Definitions, key: ForeignKey): Definitions {
  const { source, foreignKey, target, isUnique } = key
  const known = catalog.collections.get(source)!.fields.get(foreignKey)
  const reference = keyReference(definitions.get(target)!)
  if (known === undefined)
    return withField(definitions, source, foreignKey, { ...reference, ...(isUnique && { unique: true }) })
  checkHolds(known, catalog.collections.get(target)!)
  const declared = definitions.get(source)!.fields[foreignKey]
  if (!isUnique || known.unique || known.primaryKey) return definitions
  return withField(definitions, source, foreignKey, { ...(declared ?? reference), unique: true })
}

function checkHolds(field: Field, { name, primaryKey }: Collection): void {
  if (field.kind !== primaryKey.kind)
    throw new AppError(400, `Field ${field.name} is ${field.type}, ${name}.${primaryKey.name} is ${primaryKey.type}`)
}

function withNewEntry(
  catalog: Catalog,
  definitions: Definitions,
  collection: string,
  name: string,
  json: FieldJson,
): Definitions {
  const known = catalog.collections.get(collection)!
  const isTaken =
    known.fields.has(name) || known.relations.has(name) || Object.hasOwn(definitions.get(collection)!.fields, name)
  if (isTaken) throw new AppError(409, `${collection} has a field ${name} already`)
  return withField(definitions, collection, name, json)
}

function withJunction(definitions: Definitions, name: string, schema: SchemaJson): Definitions {
  if (definitions.has(name)) throw new AppError(409, `Collection ${name} already exists`)
  return withSchema(definitions, name, schema)
}

function knownTarget(definitions: Definitions, { target }: Relationship): string {
  if (target === undefined || !definitions.has(target)) throw unknownEnd()
  return target
}

function unknownEnd(): AppError {
  return new AppError(404, 'Source or target collection not found', { code: 'UNKNOWN_COLLECTION' })
}

function checkTables(catalog: Catalog, tables: readonly string[]): void {
  const targets = tables.map((table) => catalog.collections.get(table))
  if (targets.length === 0 || targets.includes(undefined)) throw new AppError(404, 'Target table not found')
  const types = new Set(targets.map((target) => target!.primaryKey.kind))
  if (types.size > 1) throw new AppError(400, 'Target tables must have the same id type')
}

/** All names that the relationship needs, judged together. */
function checkLengths(names: readonly (string | undefined)[]): void {
  const long = names.filter((name) => name !== undefined && name.length > maxNameLength)
  if (long.length > 0)
    throw new AppError(400, `Identifiers of more than ${maxNameLength} characters: ${long.join(', ')}`, {
      code: 'INVALID_IDENTIFIER',
      details: long,
    })
}

/** The relation back of an O2M without an alias is named after the source where that is possible. */
function backName(catalog: Catalog, source: string, target: string, name: string): string {
  const { fields, relations } = catalog.collections.get(target)!
  const isUsable = isRelationName(target, source) && !fields.has(source) && !relations.has(source)
  return isUsable ? source : `${source}_${name}`
}

/* Changes and removals. */

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

/** As {@link withoutCollections}, of one. */
export function withoutCollection(definitions: Definitions, name: string): Definitions {
  return withoutCollections(definitions, [name])
}

/**
 * Removes collections, which may refer to each other, the junctions that link them, and what other collections declare about
 * any of them. 409 when another collection has a foreign key to one.
 */
export function withoutCollections(definitions: Definitions, names: readonly string[]): Definitions {
  const gone = new Set(names.flatMap((name) => [name, ...junctionsTo(definitions, name)]))
  const rest = [...definitions].filter(([collection]) => !gone.has(collection))
  const holders = rest.filter(([, { fields }]) => Object.values(fields).some((json) => holdsKeyTo(gone, json)))
  if (holders.length > 0)
    throw new AppError(409, `Collection ${names.join(', ')} is still the target of relations`, {
      code: 'COLLECTION_IN_USE',
      details: holders.map(([collection]) => collection),
    })
  return new Map(rest.map(([collection, schema]) => [collection, withoutRelationsTo(gone, schema)]))
}

/** A relation by where it is declared. */
type OwnedRelation = { readonly collection: Collection; readonly relation: Relation }

function relationAt(catalog: Catalog, source: string, name: string): { place: OwnedRelation; json: FieldJson } {
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
function junctionOf(catalog: Catalog, { relation }: OwnedRelation): Collection | undefined {
  if (relation.kind === 'belongsTo') return undefined
  const link = catalog.collections.get(relation.through ?? relation.target)
  return link?.definition.schema.isJunction === true ? link : undefined
}

function holderOf(catalog: Catalog, { collection, relation }: OwnedRelation): OwnedRelation | undefined {
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

function backOf(catalog: Catalog, place: OwnedRelation): OwnedRelation[] {
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

function placesOf(
  catalog: Catalog,
  isWanted: (collection: Collection, relation: Relation) => boolean,
): OwnedRelation[] {
  return [...catalog.collections.values()].flatMap((collection) =>
    [...collection.relations.values()]
      .filter((relation) => isWanted(collection, relation))
      .map((relation) => ({ collection, relation })),
  )
}

/** onDelete and onUpdate take effect where the foreign key is. */
function withActions(
  definitions: Definitions,
  holder: OwnedRelation | undefined,
  details: RelationshipDetails,
): Definitions {
  const { onDelete, onUpdate } = details
  if (holder === undefined || (onDelete === undefined && onUpdate === undefined)) return definitions
  return withField(definitions, holder.collection.name, holder.relation.name, {
    ...entryAt(definitions, holder),
    ...(onDelete !== undefined && { onDelete }),
    ...(onUpdate !== undefined && { onUpdate }),
  })
}

function withAlias(
  catalog: Catalog,
  definitions: Definitions,
  place: OwnedRelation,
  alias: string | null,
): Definitions {
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

function withoutAliases(definitions: Definitions, back: readonly OwnedRelation[]): Definitions {
  const holder = back.find(({ relation }) => relation.kind === 'belongsTo')
  if (holder !== undefined)
    throw new AppError(400, `Relation ${holder.relation.name} holds the foreign key: delete the relationship instead`)
  return back.reduce(without, definitions)
}

/** The column keeps its name, also where it was derived from the alias. */
function renamed(definitions: Definitions, place: OwnedRelation, alias: string): Definitions {
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

function entryAt(definitions: Definitions, { collection, relation }: OwnedRelation): FieldJson {
  return definitions.get(collection.name)!.fields[relation.name]!
}

function without(definitions: Definitions, { collection, relation }: OwnedRelation): Definitions {
  return withoutFields(definitions, collection.name, [relation.name])
}

/** The foreign key's column goes with its last relation, unless it is the primary key too. */
function withoutColumn(
  catalog: Catalog,
  definitions: Definitions,
  { collection, relation }: OwnedRelation,
): Definitions {
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

/** Relations with a scope share a column, so a single one cannot hold it. */
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
