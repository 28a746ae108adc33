import { AppError } from '../errors.ts'
import { plain } from '../near-names.ts'
import type { Catalog, Collection, Field, FieldJson, SchemaJson } from './catalog.ts'
import { type Definitions, definitionsOf, keyReference, withField, withSchema } from './definitions.ts'
import { checkUnreserved, isColumnOf, isRelationName, maxNameLength } from './identifiers.ts'
import { anySchema, type JunctionEnd, pairSchema } from './junctions.ts'
import type { RelationshipType } from './shape/relation-types.ts'

/**
 * New relationships as edits of definitions (spec/schemas.md §3): the catalog in, the definitions after the change out.
 * Pure; what they mean for tables follows from the difference.
 */

/** What the ends of a relationship say besides where they point. */
export type RelationshipDetails = {
  readonly description?: string
  readonly onDelete?: string
  readonly onUpdate?: string
  readonly showAs?: readonly unknown[]
}

export type Relationship = {
  readonly type: RelationshipType
  /** What the relation is called. */
  readonly name: string
  /** What the request calls it, which may be its column's name. */
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
  const foreignKey = relationship.foreignKey ?? columnNamed(catalog, target, `${relationship.alias ?? source}_Id`)
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

/** `{name}_Id`, or the column that is called so but for its case; the request's own word where that is a column's. */
function ownKeyName(catalog: Catalog, source: string, { name, entry }: Relationship): string {
  return isColumnOf(entry, name) ? entry : columnNamed(catalog, source, `${name}_Id`)
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

/** What happens to the rows of a column that is there already is said by the relation that holds it. */
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
