import type { CollectionDefinition, Field, FieldJson, ReferentialAction, Relation, RelationKind } from './catalog.ts'
import { flag, invalid, objectOrUndefined } from './compile-field.ts'
import { checkIdentifier } from './identifiers.ts'

/** A collection while the catalog is being compiled: its own fields are known, its relations not yet. */
export type Draft = {
  readonly name: string
  readonly definition: CollectionDefinition
  /** Gains the foreign keys that relations imply. */
  readonly fields: Map<string, Field>
  readonly relations: ReadonlyMap<string, FieldJson>
  readonly primaryKey: Field
}

export type Drafts = ReadonlyMap<string, Draft>

/** Adds the foreign key of every belongsTo that does not declare it, typed like the key it points at. */
export function addForeignKeys(draft: Draft, drafts: Drafts): void {
  for (const [name, json] of draft.relations) {
    if (json.relType !== 'BelongsTo') continue
    const { foreignKey, target, targetKey } = endsOf(draft, name, json, drafts)
    const key = keyOf(draft, name, drafts.get(target)!, targetKey)
    if (!draft.fields.has(foreignKey)) draft.fields.set(foreignKey, foreignKeyField(draft, name, foreignKey, key, json))
  }
}

/** The relations of a collection; needs the foreign keys of all. 400 for ends that do not exist or do not meet. */
export function relationsOf(draft: Draft, drafts: Drafts): ReadonlyMap<string, Relation> {
  const relations = new Map<string, Relation>()
  for (const [name, json] of draft.relations) {
    if (draft.fields.has(name)) throw invalid(draft.name, `relation ${name} has the name of a field`)
    relations.set(name, relationOf(draft, name, json, drafts))
  }
  checkForeignKeysDiffer(draft.name, [...relations.values()])
  return relations
}

function relationOf(draft: Draft, name: string, json: FieldJson, drafts: Drafts): Relation {
  const ends = endsOf(draft, name, json, drafts)
  const target = drafts.get(ends.target)!
  const discriminator = discriminatorOf(draft, name, json)
  const isConstraint = ends.kind === 'belongsTo' && json.constraints !== false
  const relation: Relation = {
    name,
    ...ends,
    tables: tablesOf(draft, name, json, drafts),
    discriminator,
    ...actionsOf(draft, name, json, ends.foreignKey),
    constraint: isConstraint,
  }
  if (relation.kind === 'belongsTo') checkOwnKey(draft, relation, keyOf(draft, name, target, relation.targetKey))
  else checkFarKeys(draft, relation, drafts)
  return relation
}

type Ends = Pick<Relation, 'kind' | 'target' | 'foreignKey' | 'targetKey' | 'through' | 'otherKey'>

const relationKinds: Readonly<Record<string, RelationKind>> = {
  BelongsTo: 'belongsTo',
  HasOne: 'hasOne',
  HasMany: 'hasMany',
  BelongsToMany: 'belongsToMany',
}

function endsOf(draft: Draft, name: string, json: FieldJson, drafts: Drafts): Ends {
  const kind = kindOf(draft.name, name, json)
  const target = typeof json.target === 'string' ? drafts.get(json.target) : undefined
  if (target === undefined) throw invalid(draft.name, `relation ${name}: unknown target ${JSON.stringify(json.target)}`)
  const foreignKey = textOf(json, 'foreignKey') ?? `${kind === 'belongsTo' ? name : draft.name}_Id`
  checkIdentifier(`foreign key of ${draft.name}.${name}`, foreignKey)
  const isManyToMany = kind === 'belongsToMany'
  const through = isManyToMany ? textOf(json, 'through') : undefined
  if (isManyToMany && through === undefined) throw invalid(draft.name, `relation ${name} needs through`)
  return {
    kind,
    target: target.name,
    foreignKey,
    targetKey: textOf(json, 'targetKey') ?? target.primaryKey.name,
    through,
    otherKey: isManyToMany ? (textOf(json, 'otherKey') ?? `${target.name}_Id`) : undefined,
  }
}

function kindOf(collection: string, name: string, json: FieldJson): RelationKind {
  const { relType } = json
  if (typeof relType !== 'string' || !Object.hasOwn(relationKinds, relType))
    throw invalid(collection, `relation ${name}: relType must be BelongsTo, HasOne, HasMany or BelongsToMany`)
  return json.polymorphic === true ? 'polymorphic' : relationKinds[relType]!
}

function textOf(json: FieldJson, key: string): string | undefined {
  const value = json[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

function keyOf(draft: Draft, name: string, target: Draft, targetKey: string): Field {
  const key = target.fields.get(targetKey)
  if (key === undefined) throw invalid(draft.name, `relation ${name}: ${target.name} has no field ${targetKey}`)
  return key
}

function foreignKeyField(draft: Draft, name: string, foreignKey: string, key: Field, json: FieldJson): Field {
  const refuse = (problem: string) => {
    throw invalid(draft.name, `relation ${name} ${problem}`)
  }
  return {
    ...key,
    name: foreignKey,
    primaryKey: false,
    unique: false,
    nullable: flag(json, 'allowNull', refuse, true),
    default: undefined,
    generated: undefined,
    hidden: false,
    unlogged: false,
    shownBy: undefined,
    validate: undefined,
    systemGenerated: json.SystemGenerated === 'true',
  }
}

/** `scope: {column: value}`; only relations without a database constraint can depend on a value. */
function discriminatorOf(draft: Draft, name: string, json: FieldJson): Relation['discriminator'] {
  const scope = objectOrUndefined(json.scope)
  if (scope === undefined) return undefined
  const [entry, ...more] = Object.entries(scope)
  if (entry === undefined || more.length > 0 || typeof entry[1] !== 'string')
    throw invalid(draft.name, `relation ${name}: scope is {field: text}`)
  if (json.relType === 'BelongsTo' && json.constraints !== false)
    throw invalid(draft.name, `relation ${name}: scope needs constraints: false`)
  return { column: entry[0], value: entry[1] }
}

function tablesOf(draft: Draft, name: string, json: FieldJson, drafts: Drafts): readonly string[] {
  if (json.tables === undefined || json.tables === null) return []
  const isList = Array.isArray(json.tables) && json.tables.every((table) => typeof table === 'string')
  if (!isList) throw invalid(draft.name, `relation ${name}: tables must be a list of collections`)
  const tables = json.tables as string[]
  const unknown = tables.find((table) => !drafts.has(table))
  if (unknown !== undefined) throw invalid(draft.name, `relation ${name}: unknown table ${JSON.stringify(unknown)}`)
  return tables
}

const referentialActions: ReadonlySet<unknown> = new Set(['CASCADE', 'RESTRICT', 'SET NULL', 'NO ACTION'])

function actionsOf({ name: collection, fields }: Draft, name: string, json: FieldJson, foreignKey: string) {
  const own = json.relType === 'BelongsTo' ? fields.get(foreignKey) : undefined
  const action = (key: 'onDelete' | 'onUpdate', absent: ReferentialAction): ReferentialAction => {
    const value = typeof json[key] === 'string' ? json[key].toUpperCase() : (json[key] ?? absent)
    if (!referentialActions.has(value))
      throw invalid(collection, `relation ${name}: onDelete and onUpdate are CASCADE, RESTRICT, SET NULL or NO ACTION`)
    if (value === 'SET NULL' && own?.nullable === false)
      throw invalid(collection, `relation ${name}: ${key} SET NULL needs a foreign key that may be null`)
    return value as ReferentialAction
  }
  return {
    onDelete: action('onDelete', own?.nullable === false ? 'RESTRICT' : 'SET NULL'),
    onUpdate: action('onUpdate', 'CASCADE'),
  }
}

function checkOwnKey(draft: Draft, relation: Relation, key: Field): void {
  const { name, foreignKey, target, targetKey, constraint, discriminator } = relation
  const own = draft.fields.get(foreignKey)!
  if (own.kind !== key.kind)
    throw invalid(draft.name, `relation ${name}: ${foreignKey} is ${own.type}, ${target}.${targetKey} is ${key.type}`)
  if (constraint && !key.primaryKey && !key.unique)
    throw invalid(draft.name, `relation ${name}: ${target}.${targetKey} is not unique`)
  if (discriminator !== undefined) requireField(draft, name, draft, discriminator.column)
}

function checkFarKeys(draft: Draft, relation: Relation, drafts: Drafts): void {
  const { name, kind, target, foreignKey, through, otherKey, discriminator } = relation
  if (kind === 'belongsToMany') {
    const link = drafts.get(through!)
    if (link === undefined) throw invalid(draft.name, `relation ${name}: unknown collection ${through}`)
    requireField(draft, name, link, foreignKey)
    requireField(draft, name, link, otherKey!)
    if (foreignKey === otherKey) throw invalid(draft.name, `relation ${name}: foreignKey and otherKey must differ`)
  } else {
    const far = drafts.get(target)!
    requireField(draft, name, far, foreignKey)
    if (discriminator !== undefined) requireField(draft, name, far, discriminator.column)
  }
}

function requireField(draft: Draft, relation: string, collection: Draft, field: string): void {
  if (!collection.fields.has(field))
    throw invalid(draft.name, `relation ${relation}: ${collection.name} has no field ${field}`)
}

/** One column can be checked against one key only. */
function checkForeignKeysDiffer(collection: string, relations: readonly Relation[]): void {
  const ends = new Map<string, string>()
  for (const { name, constraint, foreignKey, target, targetKey } of relations) {
    if (!constraint) continue
    const end = `${target}.${targetKey}`
    if ((ends.get(foreignKey) ?? end) !== end)
      throw invalid(collection, `relation ${name}: ${foreignKey} already points at ${ends.get(foreignKey)}`)
    ends.set(foreignKey, end)
  }
}
