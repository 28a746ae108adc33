import { createHash } from 'node:crypto'
import { AppError } from '../errors.ts'
import type {
  Catalog,
  Collection,
  CollectionDefinition,
  Default,
  Field,
  FieldJson,
  Index,
  RealtimeAction,
  ReferentialAction,
  Relation,
  SchemaJson,
} from './catalog.ts'
import { fieldTypes } from './field-types.ts'
import { checkIdentifier, checkRelationName } from './identifiers.ts'
import { shownFields, unloggedCollections, unwritableCollections } from './system-collections.ts'

/**
 * Compiles stored definitions into the catalog. Pure. Throws an AppError (400) that names the collection and the
 * field; a catalog is therefore always whole (spec/schemas.md §2).
 */
export function compileCatalog(definitions: readonly CollectionDefinition[]): Catalog {
  const drafts = new Map(definitions.map((definition) => [definition.collectionName, draftOf(definition)]))
  const collections = new Map<string, Collection>()
  for (const draft of drafts.values()) collections.set(draft.name, collectionOf(draft, drafts))
  return { version: versionOf(definitions), collections }
}

type Draft = {
  readonly name: string
  readonly definition: CollectionDefinition
  readonly fields: Map<string, Field>
  readonly relations: Map<string, FieldJson>
  readonly primaryKey: Field
}

function draftOf(definition: CollectionDefinition): Draft {
  const { collectionName: name, schema } = definition
  checkIdentifier('collection name', name)
  const fields = new Map<string, Field>()
  const relations = new Map<string, FieldJson>()
  for (const [key, json] of Object.entries(fieldsOf(name, schema))) {
    if (isRelation(json)) {
      checkRelationName(name, key)
      relations.set(key, json)
    } else {
      checkIdentifier(`field of ${name}`, key)
      fields.set(key, fieldOf(name, key, json))
    }
  }
  for (const [key, json] of impliedFields(schema)) if (!fields.has(key)) fields.set(key, fieldOf(name, key, json))
  for (const [key, json] of impliedRelations(schema)) if (!relations.has(key)) relations.set(key, json)
  return { name, definition, fields, relations, primaryKey: primaryKeyOf(name, fields) }
}

function fieldsOf(name: string, schema: SchemaJson): Record<string, FieldJson> {
  if (schema === null || typeof schema !== 'object' || Array.isArray(schema))
    throw invalid(name, 'schema must be an object')
  const { fields } = schema
  if (fields === undefined || fields === null || typeof fields !== 'object' || Array.isArray(fields))
    throw invalid(name, 'schema.fields must be an object')
  for (const [key, json] of Object.entries(fields))
    if (json === null || typeof json !== 'object' || Array.isArray(json))
      throw invalid(name, `field ${key} must be an object`)
  const declared = fields as Record<string, FieldJson>
  const hasPrimaryKey = Object.values(declared).some((json) => json.primaryKey === true)
  return hasPrimaryKey
    ? declared
    : {
        id: { ...declared.id, type: 'UUID', primaryKey: true, defaultValue: { type: 'UUIDV4' } },
        ...without(declared, 'id'),
      }
}

function without<T>(record: Record<string, T>, key: string): Record<string, T> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => name !== key))
}

const now = { type: 'NOW' }

function impliedFields(schema: SchemaJson): [string, FieldJson][] {
  const implied: [string, FieldJson][] = []
  if (schema.usertrack === true)
    implied.push(['userCreated_Id', { type: 'UUID' }], ['userUpdated_Id', { type: 'UUID' }])
  if (schema.sortEnabled === true) implied.push(['sort', { type: 'Integer' }])
  if (schema.timestamps !== false)
    implied.push(
      ['createdAt', { type: 'DateTime', allowNull: false, defaultValue: now }],
      ['updatedAt', { type: 'DateTime', allowNull: false, defaultValue: now }],
    )
  if (schema.paranoid === true) implied.push(['deletedAt', { type: 'DateTime' }])
  return implied.map(([key, json]) => [key, { ...json, SystemGenerated: 'true' }])
}

function impliedRelations(schema: SchemaJson): [string, FieldJson][] {
  if (schema.usertrack !== true) return []
  const toUser = (foreignKey: string): FieldJson => ({
    relType: 'BelongsTo',
    target: 'svc_User',
    foreignKey,
    onDelete: 'SET NULL',
    SystemGenerated: 'true',
  })
  return [
    ['userCreated', toUser('userCreated_Id')],
    ['userUpdated', toUser('userUpdated_Id')],
  ]
}

function primaryKeyOf(name: string, fields: ReadonlyMap<string, Field>): Field {
  const keys = [...fields.values()].filter((field) => field.primaryKey)
  if (keys.length !== 1) throw invalid(name, `exactly one primary key is needed, ${keys.length} are declared`)
  return keys[0]!
}

function isRelation(json: FieldJson): boolean {
  return json.relType !== undefined
}

/** One column from its stored JSON. */
function fieldOf(collection: string, name: string, json: FieldJson): Field {
  const typeName = json.type
  const type = typeof typeName === 'string' && Object.hasOwn(fieldTypes, typeName) ? fieldTypes[typeName] : undefined
  if (type === undefined) throw invalid(collection, `field ${name} has unknown type ${JSON.stringify(typeName)}`)
  const values = valuesOf(json)
  const generated = typeName === 'VIRTUAL' ? requireText(collection, name, json.calculated, 'calculated') : undefined
  const field: Field = {
    name,
    type: typeName as string,
    kind: type.kind,
    pgType: type.pgType({
      length: wholeNumber(collection, name, values.stringLength ?? values.length),
      precision: wholeNumber(collection, name, values.precision),
      scale: wholeNumber(collection, name, values.scale),
    }),
    element: type.element,
    primaryKey: json.primaryKey === true,
    nullable: json.primaryKey !== true && json.allowNull !== false,
    unique: json.unique === true,
    default: defaultOf(collection, name, json.defaultValue),
    generated,
    enumValues: type.kind === 'enum' ? enumValuesOf(collection, name, json.values) : undefined,
    hidden: json.hidden === true,
    unlogged: json.unlogged === true,
    shownBy: shownFields.get(`${collection}.${name}`),
    validate: objectOrUndefined(json.validate),
    systemGenerated: json.SystemGenerated === true || json.SystemGenerated === 'true',
  }
  checkDefault(collection, field)
  return field
}

function valuesOf(json: FieldJson): FieldJson {
  return objectOrUndefined(json.values) ?? {}
}

function objectOrUndefined(value: unknown): FieldJson | undefined {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as FieldJson) : undefined
}

function wholeNumber(collection: string, field: string, value: unknown): number | undefined {
  if (value === undefined || value === null || value === '') return undefined
  const number = Number(value)
  if (!Number.isInteger(number) || number < 0 || number > 10_000_000)
    throw invalid(collection, `field ${field}: length, precision and scale are whole numbers`)
  return number
}

function requireText(collection: string, field: string, value: unknown, key: string): string {
  if (typeof value !== 'string' || value.trim() === '') throw invalid(collection, `field ${field} needs ${key}`)
  return value
}

function enumValuesOf(collection: string, field: string, values: unknown): readonly string[] {
  const list = Array.isArray(values) ? values : objectOrUndefined(values)?.values
  if (!Array.isArray(list) || list.length === 0 || !list.every((value) => typeof value === 'string'))
    throw invalid(collection, `field ${field}: an ENUM needs values, a list of strings`)
  return [...new Set(list as string[])]
}

const namedDefaults: Readonly<Record<string, Default>> = {
  UUIDV4: { kind: 'uuid' },
  SUID: { kind: 'suid' },
  NOW: { kind: 'now' },
  AUTOINCREMENT: { kind: 'autoincrement' },
  CURRENT_USER: { kind: 'current_user' },
  CURRENT_TENANT: { kind: 'current_tenant' },
}

function defaultOf(collection: string, field: string, json: unknown): Default | undefined {
  if (json === undefined || json === null) return undefined
  const named = objectOrUndefined(json)
  if (named === undefined) return { kind: 'literal', value: json }
  const { type } = named
  if (type === 'SQL')
    return { kind: 'sql', expression: requireText(collection, field, named.value, 'defaultValue.value') }
  if (typeof type === 'string') {
    const known = Object.hasOwn(namedDefaults, type) ? namedDefaults[type] : undefined
    if (known === undefined) throw invalid(collection, `field ${field} has unknown default type ${type}`)
    return known
  }
  return { kind: 'literal', value: Object.hasOwn(named, 'value') ? named.value : json }
}

/** A default that cannot be stored is refused when the collection is declared, not at the first insert. */
function checkDefault(collection: string, field: Field): void {
  const { default: chosen } = field
  if (chosen === undefined) return
  if (chosen.kind === 'autoincrement' && field.kind !== 'integer' && field.kind !== 'bigint')
    throw invalid(collection, `field ${field.name}: AUTOINCREMENT needs an Integer or BigInt`)
  if (chosen.kind === 'literal' && !fits(field, chosen.value))
    throw invalid(collection, `field ${field.name}: the default does not fit type ${field.type}`)
}

function fits(field: Field, value: unknown): boolean {
  switch (field.kind) {
    case 'integer':
      return Number.isInteger(value)
    case 'bigint':
      return Number.isSafeInteger(value) || (typeof value === 'string' && /^-?\d{1,19}$/.test(value))
    case 'decimal':
      return Number.isFinite(value) || (typeof value === 'string' && /^-?\d+(\.\d+)?$/.test(value))
    case 'float':
      return Number.isFinite(value)
    case 'boolean':
      return typeof value === 'boolean'
    case 'enum':
      return typeof value === 'string' && field.enumValues!.includes(value)
    case 'json':
    case 'array':
    case 'range':
      return true
    default:
      return typeof value === 'string'
  }
}

function collectionOf(draft: Draft, drafts: ReadonlyMap<string, Draft>): Collection {
  const { name, definition } = draft
  const { schema } = definition
  const fields = new Map(draft.fields)
  const relations = new Map<string, Relation>()
  for (const [key, json] of draft.relations) {
    if (fields.has(key)) throw invalid(name, `relation ${key} has the name of a field`)
    const relation = relationOf(draft, key, json, drafts)
    relations.set(key, relation)
    if (relation.kind === 'belongsTo' && !fields.has(relation.foreignKey))
      fields.set(relation.foreignKey, foreignKeyField(name, relation, json, drafts))
  }
  return {
    name,
    system: name.startsWith('svc_'),
    primaryKey: draft.primaryKey,
    fields,
    relations,
    indexes: indexesOf(name, schema, fields),
    timestamps: schema.timestamps !== false,
    paranoid: schema.paranoid === true,
    usertrack: schema.usertrack === true,
    sortEnabled: schema.sortEnabled === true,
    logged: !unloggedCollections.has(name),
    realtime: realtimeOf(name, schema),
    writable: !unwritableCollections.has(name),
    definition,
  }
}

const relationKinds = {
  BelongsTo: 'belongsTo',
  HasOne: 'hasOne',
  HasMany: 'hasMany',
  BelongsToMany: 'belongsToMany',
} as const

function relationOf(draft: Draft, name: string, json: FieldJson, drafts: ReadonlyMap<string, Draft>): Relation {
  const relType = json.relType
  if (typeof relType !== 'string' || !Object.hasOwn(relationKinds, relType))
    throw invalid(draft.name, `relation ${name}: relType must be BelongsTo, HasOne, HasMany or BelongsToMany`)
  const kind = json.polymorphic === true ? 'polymorphic' : relationKinds[relType as keyof typeof relationKinds]
  const target = typeof json.target === 'string' ? drafts.get(json.target) : undefined
  if (target === undefined) throw invalid(draft.name, `relation ${name}: unknown target ${JSON.stringify(json.target)}`)
  const text = (key: string): string | undefined =>
    typeof json[key] === 'string' && json[key] !== '' ? (json[key] as string) : undefined
  const foreignKey = text('foreignKey') ?? `${kind === 'belongsTo' ? name : draft.name}_Id`
  checkIdentifier(`foreign key of ${draft.name}.${name}`, foreignKey)
  const scope = objectOrUndefined(json.scope)
  const discriminator = scope === undefined ? undefined : Object.entries(scope)[0]
  return {
    name,
    kind,
    target: target.name,
    foreignKey,
    targetKey: text('targetKey') ?? target.primaryKey.name,
    through: kind === 'belongsToMany' ? (text('through') ?? missing(draft.name, name, 'through')) : undefined,
    otherKey: kind === 'belongsToMany' ? (text('otherKey') ?? `${target.name}_Id`) : undefined,
    tables: Array.isArray(json.tables) ? (json.tables as string[]) : [],
    discriminator:
      discriminator === undefined ? undefined : { column: discriminator[0], value: String(discriminator[1]) },
    onDelete: referentialAction(
      draft.name,
      name,
      json.onDelete,
      draft.fields.get(foreignKey)?.nullable ?? json.allowNull !== false,
    ),
    onUpdate: referentialAction(draft.name, name, json.onUpdate ?? 'CASCADE', true),
    constraint: kind === 'belongsTo' && json.constraints !== false,
  }
}

function missing(collection: string, relation: string, key: string): never {
  throw invalid(collection, `relation ${relation} needs ${key}`)
}

const referentialActions = new Set(['CASCADE', 'RESTRICT', 'SET NULL', 'NO ACTION'])

function referentialAction(collection: string, relation: string, value: unknown, nullable: boolean): ReferentialAction {
  if (value === undefined || value === null) return nullable ? 'SET NULL' : 'RESTRICT'
  if (typeof value !== 'string' || !referentialActions.has(value))
    throw invalid(
      collection,
      `relation ${relation}: onDelete and onUpdate are CASCADE, RESTRICT, SET NULL or NO ACTION`,
    )
  return value as ReferentialAction
}

function foreignKeyField(
  collection: string,
  relation: Relation,
  json: FieldJson,
  drafts: ReadonlyMap<string, Draft>,
): Field {
  const key = drafts.get(relation.target)!.fields.get(relation.targetKey)
  if (key === undefined)
    throw invalid(collection, `relation ${relation.name}: ${relation.target} has no field ${relation.targetKey}`)
  return {
    ...key,
    name: relation.foreignKey,
    primaryKey: false,
    unique: false,
    nullable: json.allowNull !== false,
    default: undefined,
    generated: undefined,
    hidden: false,
    unlogged: false,
    validate: undefined,
  }
}

function indexesOf(name: string, schema: SchemaJson, fields: ReadonlyMap<string, Field>): readonly Index[] {
  if (schema.indexes !== undefined && !Array.isArray(schema.indexes)) throw invalid(name, 'indexes must be a list')
  return (schema.indexes ?? []).map((json) => {
    const columns = json?.fields
    if (!Array.isArray(columns) || columns.length === 0) throw invalid(name, 'an index needs fields')
    for (const column of columns)
      if (!fields.has(column)) throw invalid(name, `an index names the unknown field ${JSON.stringify(column)}`)
    const index = json.name ?? `${name}_${columns.join('_')}_idx`
    checkIdentifier(`index of ${name}`, index)
    const method = json.type ?? 'btree'
    if (!['btree', 'hash', 'gin', 'gist'].includes(method)) throw invalid(name, `index ${index}: unknown type`)
    return {
      name: index,
      fields: columns,
      unique: json.unique === true,
      nullsNotDistinct: json.nullsNotDistinct === true,
      method,
    }
  })
}

const allActions: readonly RealtimeAction[] = ['insert', 'update', 'delete']

/** User collections are on unless they say false; system collections are off unless they say so (realtime facts §1). */
function realtimeOf(name: string, schema: SchemaJson): Collection['realtime'] {
  const { realtime } = schema
  if (realtime === undefined) return { enabled: !name.startsWith('svc_'), actions: new Set(allActions) }
  if (typeof realtime === 'boolean') return { enabled: realtime, actions: new Set(allActions) }
  return { enabled: realtime.enabled !== false, actions: new Set(realtime.actions ?? allActions) }
}

function versionOf(definitions: readonly CollectionDefinition[]): string {
  const hash = createHash('sha256')
  for (const { collectionName, schema } of [...definitions].sort((a, b) =>
    a.collectionName < b.collectionName ? -1 : 1,
  ))
    hash.update(collectionName).update('\0').update(JSON.stringify(schema)).update('\0')
  return hash.digest('base64url').slice(0, 16)
}

function invalid(collection: string, problem: string): AppError {
  return new AppError(400, `Invalid schema for ${collection}: ${problem}`, { code: 'INVALID_SCHEMA' })
}
