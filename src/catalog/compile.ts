import { createHash } from 'node:crypto'
import { AppError } from '../errors.ts'
import { firstRepeated } from '../language/text.ts'
import type {
  Catalog,
  CatalogOptions,
  Check,
  Collection,
  CollectionDefinition,
  Field,
  FieldJson,
  Index,
  IndexMethod,
  RealtimeAction,
  ReferentialAction,
  Relation,
  RelationKind,
  SchemaJson,
} from './catalog.ts'
import { expressionProblem, fieldOf, flag, invalid, objectOrUndefined } from './fields.ts'
import { checkIdentifier, checkRelationName, shortened } from './identifiers.ts'
import { unloggedCollections, unwritableCollections } from './system-collections.ts'

/**
 * Compiles stored definitions into the catalog. Pure. Throws an AppError (400) that names the collection and the
 * field; a catalog is therefore always whole.
 */
export function compileCatalog(definitions: readonly CollectionDefinition[], options: CatalogOptions = {}): Catalog {
  const drafts = new Map(definitions.map((definition) => [definition.collectionName, draftOf(definition, options)]))
  for (const draft of drafts.values()) addForeignKeys(draft, drafts)
  const referenced = referencedKeys(drafts)
  const collections = new Map(
    [...drafts.values()].map((draft) => [draft.name, collectionOf(draft, drafts, referenced, options)]),
  )
  return { version: versionOf(definitions), collections }
}

/**
 * The problems of definitions, each looked at for itself and then among the others; empty for definitions that
 * compile. For answers that list everything at once.
 */
export function definitionProblems(
  definitions: readonly CollectionDefinition[],
  options: CatalogOptions = {},
): { collectionName: string; error: string }[] {
  const drafts = new Map<string, CollectionDraft>()
  const steps = [
    (definition: CollectionDefinition) => void drafts.set(definition.collectionName, draftOf(definition, options)),
    ({ collectionName }: CollectionDefinition) => addForeignKeys(drafts.get(collectionName)!, drafts),
    ({ collectionName }: CollectionDefinition) =>
      void collectionOf(drafts.get(collectionName)!, drafts, referencedKeys(drafts), options),
  ]
  for (const step of steps) {
    const problems = definitions.flatMap((definition) => problemOf(definition.collectionName, () => step(definition)))
    if (problems.length > 0) return problems
  }
  return []
}

function problemOf(collectionName: string, work: () => void): { collectionName: string; error: string }[] {
  try {
    work()
    return []
  } catch (error) {
    if (error instanceof AppError) return [{ collectionName, error: error.message }]
    throw error
  }
}

/** Compiling most definitions of a catalog again, as at every change of one, takes what is known of their schemas. */
function draftOf(definition: CollectionDefinition, options: CatalogOptions): CollectionDraft {
  const { collectionName: name, schema } = definition
  const tenants = isTenantScoped(name, options)
  const known = compiled.get(schema)
  const isSame = known?.draft.name === name && known.tenants === tenants
  const draft = isSame ? known.draft : newDraft(definition, options)
  if (!isSame) compiled.set(schema, { draft, tenants })
  return { ...draft, definition, fields: new Map(draft.fields) }
}

const compiled = new WeakMap<SchemaJson, { readonly draft: CollectionDraft; readonly tenants: boolean }>()

function newDraft(definition: CollectionDefinition, options: CatalogOptions): CollectionDraft {
  const { collectionName: name, schema } = definition
  checkIdentifier('collection name', name)
  const fields = new Map<string, Field>()
  const relations = new Map<string, FieldJson>()
  for (const [key, json] of Object.entries(fieldsOf(name, schema))) {
    if (json.relType !== undefined) {
      // The relations of a junction are named after the collections it links, whatever those are called.
      if (schema.isJunction === true) checkIdentifier(`relation of ${name}`, key)
      else checkRelationName(name, key)
      relations.set(key, json)
    } else {
      checkIdentifier(`field of ${name}`, key)
      fields.set(key, fieldOf(name, key, json))
    }
  }
  const implied = impliedOf(name, schema, options)
  for (const [key, json] of implied.fields) addImplied(name, fields, key, json)
  for (const [key, json] of implied.relations) if (!relations.has(key) && !fields.has(key)) relations.set(key, json)
  return { name, definition, fields, relations, primaryKey: primaryKeyOf(name, fields) }
}

/** 400 unless a schema is an object whose fields are objects: what everything that edits definitions relies on. */
export function checkShape(name: string, schema: unknown): void {
  const fields = objectOrUndefined(objectOrUndefined(schema)?.fields)
  if (fields === undefined) throw invalid(name, 'schema.fields must be an object')
  const bad = Object.entries(fields).find(([, json]) => objectOrUndefined(json) === undefined)
  if (bad !== undefined) throw invalid(name, `field ${bad[0]} must be an object`)
}

function fieldsOf(name: string, schema: SchemaJson): Readonly<Record<string, FieldJson>> {
  checkShape(name, schema)
  const { fields: declared } = schema
  const hasKey = Object.values(declared).some(({ primaryKey }) => primaryKey === true || primaryKey === 'true')
  if (hasKey) return declared
  const { id = { type: 'UUID' }, ...others } = declared
  return { id: { ...(id.type === 'UUID' && madeUp), ...id, primaryKey: true }, ...others }
}

const madeUp: FieldJson = { defaultValue: { type: 'UUIDV4' } }

/** The key of a collection that declares none. */
export const madeUpKey: FieldJson = { type: 'UUID', primaryKey: true, ...madeUp }

/** Every entry that a switch of a definition can add, by name. */
export function addedBySwitches(): readonly (readonly [name: string, json: FieldJson])[] {
  const { fields, relations } = impliedOf('', everySwitch, { multiTenant: true })
  return [...fields, ...relations]
}

const everySwitch: SchemaJson = { fields: {}, timestamps: true, paranoid: true, usertrack: true, sortEnabled: true }

/** The columns and relations that a switch of a definition adds. */
export const switchColumns: Readonly<Record<string, readonly string[]>> = {
  timestamps: ['createdAt', 'updatedAt'],
  paranoid: ['deletedAt'],
  usertrack: ['userCreated_Id', 'userUpdated_Id'],
  sortEnabled: ['sort'],
}

type ImpliedFields = { readonly fields: [string, FieldJson][]; readonly relations: [string, FieldJson][] }

/** The entries that the switches of a definition add. */
function impliedOf(name: string, schema: SchemaJson, options: CatalogOptions): ImpliedFields {
  const on = (key: string, absent = false) => switchOf(name, schema, key, absent)
  const fields: [string, FieldJson][] = []
  const relations: [string, FieldJson][] = []
  if (on('usertrack'))
    for (const key of ['userCreated', 'userUpdated']) {
      fields.push([`${key}_Id`, { type: 'UUID' }])
      relations.push([key, reference('svc_User', `${key}_Id`, 'SET NULL')])
    }
  if (on('sortEnabled')) fields.push(['sort', { type: 'Integer' }])
  if (isTenantScoped(name, options)) {
    fields.push(['tenant_Id', { type: 'UUID', defaultValue: { type: 'CURRENT_TENANT' } }])
    relations.push(['tenant', reference('svc_Tenant', 'tenant_Id', 'CASCADE')])
  }
  if (on('timestamps', true)) fields.push(['createdAt', stamp], ['updatedAt', stamp])
  if (on('paranoid')) fields.push(['deletedAt', { type: 'DateTime' }])
  return { fields, relations }
}

const stamp: FieldJson = { type: 'DateTime', allowNull: false, defaultValue: { type: 'NOW' } }

function reference(target: string, foreignKey: string, onDelete: string): FieldJson {
  return { relType: 'BelongsTo', target, foreignKey, onDelete, SystemGenerated: 'true' }
}

function isTenantScoped(name: string, { multiTenant }: CatalogOptions): boolean {
  return multiTenant === true && !name.startsWith('svc_')
}

/**
 * A definition may declare such a field itself, e.g. with a description, but not as something else. A time that is
 * declared as a date is the time all the same.
 */
function addImplied(collection: string, fields: Map<string, Field>, key: string, json: FieldJson): void {
  const implied = fieldOf(collection, key, { ...json, SystemGenerated: 'true' })
  const declared = fields.get(key)
  const isDay = implied.kind === 'datetime' && declared?.kind === 'date'
  if (declared === undefined || isDay) fields.set(key, implied)
  else if (declared.kind !== implied.kind) throw invalid(collection, `field ${key} must be of type ${implied.type}`)
}

function switchOf(collection: string, schema: SchemaJson, key: string, absent = false): boolean {
  const refuse = (problem: string) => {
    throw invalid(collection, `it ${problem}`)
  }
  return flag(schema, key, refuse, absent)
}

function primaryKeyOf(name: string, fields: ReadonlyMap<string, Field>): Field {
  const keys = [...fields.values()].filter((field) => field.primaryKey)
  if (keys.length !== 1) throw invalid(name, `exactly one primary key is needed, ${keys.length} are declared`)
  return keys[0]!
}

type ReferencedKeys = ReadonlyMap<string, ReadonlySet<string>>

/** Fields that other collections point at, by collection. */
function referencedKeys(drafts: CollectionDrafts): ReferencedKeys {
  const keys = new Map<string, Set<string>>()
  for (const { relations } of drafts.values())
    for (const { relType, target, targetKey } of relations.values())
      if (relType === 'BelongsTo' && typeof targetKey === 'string')
        keys.set(String(target), (keys.get(String(target)) ?? new Set()).add(targetKey))
  return keys
}

function collectionOf(
  draft: CollectionDraft,
  drafts: CollectionDrafts,
  referenced: ReferencedKeys,
  options: CatalogOptions,
): Collection {
  const { name, definition } = draft
  const { schema } = definition
  const relations = relationsOf(draft, drafts)
  const scoped = isTenantScoped(name, options)
  const global = new Set([...(referenced.get(name) ?? []), ...foreignKeysOf(relations)])
  const { fields, indexes } = scoped ? scopedUniques(draft, global) : { fields: draft.fields, indexes: [] }
  const declared = indexesOf(definition, fields)
  checksOf(definition)
  if (!['undefined', 'boolean'].includes(typeof schema.isJunction)) throw invalid(name, 'isJunction is true or false')
  return {
    name,
    system: name.startsWith('svc_'),
    primaryKey: draft.primaryKey,
    fields,
    relations,
    indexes: scoped ? [...declared.map((index) => perTenant(index, fields)), ...indexes] : declared,
    timestamps: switchOf(name, schema, 'timestamps', true),
    paranoid: switchOf(name, schema, 'paranoid'),
    usertrack: switchOf(name, schema, 'usertrack'),
    sortEnabled: switchOf(name, schema, 'sortEnabled'),
    logged: !unloggedCollections.has(name),
    realtime: realtimeOf(name, schema),
    cache: cacheOf(name, schema),
    writable: !unwritableCollections.has(name),
    definition,
  }
}

function cacheOf(name: string, { cache }: SchemaJson): Collection['cache'] {
  const ttl = typeof cache === 'object' && cache !== null ? cache.ttl : undefined
  const isTtl = Number.isSafeInteger(ttl) && ttl! > 0
  if (!['undefined', 'boolean'].includes(typeof cache) && !isTtl)
    throw invalid(name, 'cache is true, false or { "ttl": seconds }')
  return { wanted: isTtl ? true : (cache as boolean | undefined), ttlSeconds: isTtl ? ttl : undefined }
}

function foreignKeysOf(relations: ReadonlyMap<string, Relation>): string[] {
  return [...relations.values()].filter(({ kind }) => kind === 'belongsTo').map(({ foreignKey }) => foreignKey)
}

/**
 * Unique fields of a tenant's collection are unique per tenant, so the fields themselves are no longer. Foreign keys and
 * keys that others point at stay as they are: the row they name has one tenant, and a constraint needs them unique.
 */
function scopedUniques({ name, fields }: CollectionDraft, global: ReadonlySet<string>) {
  const isScoped = (field: Field) => field.unique && !field.primaryKey && !global.has(field.name)
  const scoped: Index[] = [...fields.values()]
    .filter(isScoped)
    .map((field) => perTenant(uniqueFieldIndex(name, field), fields))
  const plain = new Map([...fields].map(([key, field]) => [key, isScoped(field) ? { ...field, unique: false } : field]))
  return { fields: plain, indexes: scoped }
}

const allActions: readonly RealtimeAction[] = ['insert', 'update', 'delete']

/** User collections are on unless they say false; system collections are off unless they say so. */
function realtimeOf(name: string, { realtime }: SchemaJson): Collection['realtime'] {
  // Also where the definition says otherwise: subscribers must not see the log or credentials.
  if (unloggedCollections.has(name) || unwritableCollections.has(name)) return { enabled: false, actions: new Set() }
  if (realtime === undefined || realtime === null)
    return { enabled: !name.startsWith('svc_'), actions: new Set(allActions) }
  if (typeof realtime === 'boolean') return { enabled: realtime, actions: new Set(allActions) }
  const { enabled = true, actions = allActions } = objectOrUndefined(realtime) ?? { enabled: realtime }
  const isList = Array.isArray(actions) && actions.every((action) => allActions.includes(action))
  if (typeof enabled !== 'boolean' || !isList)
    throw invalid(name, `realtime is true, false or {enabled, actions: [${allActions}]}`)
  return { enabled, actions: new Set(actions as RealtimeAction[]) }
}

function versionOf(definitions: readonly CollectionDefinition[]): string {
  const hash = createHash('sha256')
  for (const { collectionName, schema } of [...definitions].sort((a, b) =>
    a.collectionName < b.collectionName ? -1 : 1,
  ))
    hash.update(collectionName).update('\0').update(jsonOf(schema)).update('\0')
  return hash.digest('base64url').slice(0, 16)
}

function jsonOf(schema: SchemaJson): string {
  const text = texts.get(schema) ?? JSON.stringify(schema)
  texts.set(schema, text)
  return text
}

const texts = new WeakMap<SchemaJson, string>()

/* Relations. */

/** A collection while the catalog is being compiled: its own fields are known, its relations not yet. */
type CollectionDraft = {
  readonly name: string
  readonly definition: CollectionDefinition
  /** Gains the foreign keys that relations imply. */
  readonly fields: Map<string, Field>
  readonly relations: ReadonlyMap<string, FieldJson>
  readonly primaryKey: Field
}

type CollectionDrafts = ReadonlyMap<string, CollectionDraft>

/** Adds the foreign key of every belongsTo that does not declare it, typed like the key it points at. */
function addForeignKeys(draft: CollectionDraft, drafts: CollectionDrafts): void {
  for (const [name, json] of draft.relations) {
    if (json.relType !== 'BelongsTo') continue
    const { foreignKey, target, targetKey } = endsOf(draft, name, json, drafts)
    const key = keyOf(draft, name, drafts.get(target)!, targetKey)
    if (!draft.fields.has(foreignKey)) draft.fields.set(foreignKey, foreignKeyField(draft, name, foreignKey, key, json))
  }
}

/** The relations of a collection; needs the foreign keys of all. 400 for ends that do not exist or do not meet. */
function relationsOf(draft: CollectionDraft, drafts: CollectionDrafts): ReadonlyMap<string, Relation> {
  const relations = new Map<string, Relation>()
  for (const [name, json] of draft.relations) {
    if (draft.fields.has(name)) throw invalid(draft.name, `relation ${name} has the name of a field`)
    relations.set(name, relationOf(draft, name, json, drafts))
  }
  checkForeignKeysDiffer(draft.name, [...relations.values()])
  return relations
}

function relationOf(draft: CollectionDraft, name: string, json: FieldJson, drafts: CollectionDrafts): Relation {
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

function endsOf(draft: CollectionDraft, name: string, json: FieldJson, drafts: CollectionDrafts): Ends {
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

function keyOf(draft: CollectionDraft, name: string, target: CollectionDraft, targetKey: string): Field {
  const key = target.fields.get(targetKey)
  if (key === undefined) throw invalid(draft.name, `relation ${name}: ${target.name} has no field ${targetKey}`)
  return key
}

function foreignKeyField(draft: CollectionDraft, name: string, foreignKey: string, key: Field, json: FieldJson): Field {
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
function discriminatorOf(draft: CollectionDraft, name: string, json: FieldJson): Relation['discriminator'] {
  const scope = objectOrUndefined(json.scope)
  if (scope === undefined) return undefined
  const [entry, ...more] = Object.entries(scope)
  if (entry === undefined || more.length > 0 || typeof entry[1] !== 'string')
    throw invalid(draft.name, `relation ${name}: scope is {field: text}`)
  if (json.relType === 'BelongsTo' && json.constraints !== false)
    throw invalid(draft.name, `relation ${name}: scope needs constraints: false`)
  return { column: entry[0], value: entry[1] }
}

function tablesOf(draft: CollectionDraft, name: string, json: FieldJson, drafts: CollectionDrafts): readonly string[] {
  if (json.tables === undefined || json.tables === null) return []
  const isList = Array.isArray(json.tables) && json.tables.every((table) => typeof table === 'string')
  if (!isList) throw invalid(draft.name, `relation ${name}: tables must be a list of collections`)
  const tables = json.tables as string[]
  const unknown = tables.find((table) => !drafts.has(table))
  if (unknown !== undefined) throw invalid(draft.name, `relation ${name}: unknown table ${JSON.stringify(unknown)}`)
  return tables
}

const referentialActions: ReadonlySet<unknown> = new Set(['CASCADE', 'RESTRICT', 'SET NULL', 'NO ACTION'])

function actionsOf({ name: collection, fields }: CollectionDraft, name: string, json: FieldJson, foreignKey: string) {
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

function checkOwnKey(draft: CollectionDraft, relation: Relation, key: Field): void {
  const { name, foreignKey, target, targetKey, constraint, discriminator } = relation
  const own = draft.fields.get(foreignKey)!
  if (own.kind !== key.kind)
    throw invalid(draft.name, `relation ${name}: ${foreignKey} is ${own.type}, ${target}.${targetKey} is ${key.type}`)
  if (constraint && !key.primaryKey && !key.unique)
    throw invalid(draft.name, `relation ${name}: ${target}.${targetKey} is not unique`)
  if (discriminator !== undefined) requireField(draft, name, draft, discriminator.column)
}

function checkFarKeys(draft: CollectionDraft, relation: Relation, drafts: CollectionDrafts): void {
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

function requireField(draft: CollectionDraft, relation: string, collection: CollectionDraft, field: string): void {
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

/* Indexes and constraints. */

type FieldsByName = ReadonlyMap<string, Field>

/** The declared indexes and the unique constraints, which PostgreSQL keeps as indexes too. */
function indexesOf({ collectionName: name, schema }: CollectionDefinition, fields: FieldsByName): readonly Index[] {
  const list = schema.indexes ?? []
  if (!Array.isArray(list)) throw invalid(name, 'indexes must be a list')
  const uniques = constraintList(name, schema.constraints).filter((json) => json.type === 'unique')
  const indexes = [
    ...list.map((json) => indexOf(name, json, fields)),
    ...uniques.map((json) => uniqueOf(name, json, fields)),
  ]
  checkNamesDiffer(
    name,
    indexes.map((index) => index.name),
  )
  return indexes
}

/** The CHECK constraints that a definition declares. */
export function checksOf({ collectionName: name, schema }: CollectionDefinition): readonly Check[] {
  const checks = constraintList(name, schema.constraints).flatMap((json) =>
    json.type === 'check' ? [checkOf(name, json)] : [],
  )
  checkNamesDiffer(
    name,
    checks.map((check) => check.name),
  )
  return checks
}

/**
 * A unique index counts per tenant. Rows without a tenant count together, hence nulls are not
 * distinct; a row without a value in the index's own fields stays out of it, as it would in the index as declared.
 */
function perTenant(index: Index, fields: FieldsByName): Index {
  if (!index.unique || index.fields.includes('tenant_Id')) return index
  return {
    ...index,
    fields: ['tenant_Id', ...index.fields],
    nullsNotDistinct: true,
    whereNotNull: index.nullsNotDistinct ? [] : index.fields.filter((field) => fields.get(field)?.nullable),
  }
}

/** The index of `unique: true` of a field. */
function uniqueFieldIndex(collection: string, field: Field): Index {
  return plainIndex(shortened(`${collection}_${field.name}_key`), [field.name], true)
}

export function plainIndex(name: string, fields: readonly string[], unique: boolean): Index {
  return { name, fields, unique, nullsNotDistinct: false, whereNotNull: [], method: 'btree' }
}

const methods: ReadonlySet<unknown> = new Set(['btree', 'hash', 'gin', 'gist'])

function indexOf(collection: string, json: unknown, fields: FieldsByName): Index {
  const index = objectOrUndefined(json) ?? {}
  const columns = columnsOf(collection, index.fields, fields)
  const name = index.name ?? `${collection}_${columns.join('_')}_idx`
  checkIdentifier(`index of ${collection}`, name)
  const method = index.type ?? 'btree'
  if (!methods.has(method)) throw invalid(collection, `index ${name}: type must be btree, hash, gin or gist`)
  return {
    ...plainIndex(name, columns, index.unique === true),
    nullsNotDistinct: index.unique === true && index.nullsNotDistinct === true,
    method: method as IndexMethod,
  }
}

function uniqueOf(collection: string, json: FieldJson, fields: FieldsByName): Index {
  const columns = columnsOf(collection, json.fields, fields)
  const name = json.name ?? shortened(`${collection}_${columns.join('_')}_key`)
  checkIdentifier(`constraint of ${collection}`, name)
  return { ...plainIndex(name, columns, true), nullsNotDistinct: json.nullsNotDistinct === true }
}

function columnsOf(collection: string, columns: unknown, fields: FieldsByName): readonly string[] {
  if (!Array.isArray(columns) || columns.length === 0) throw invalid(collection, 'an index needs fields')
  const unknown = columns.find((column) => !fields.has(column))
  if (unknown !== undefined) throw invalid(collection, `an index names the unknown field ${JSON.stringify(unknown)}`)
  return columns
}

function checkOf(collection: string, { name, expression }: FieldJson): Check {
  checkIdentifier(`constraint of ${collection}`, name)
  if (typeof expression !== 'string') throw invalid(collection, `constraint ${name} needs an expression`)
  const problem = expressionProblem(expression)
  if (problem !== undefined) throw invalid(collection, `constraint ${name}: ${problem}`)
  return { name, expression }
}

/** A list, or an object by name. */
function constraintList(collection: string, json: unknown): readonly FieldJson[] {
  if (json === undefined || json === null) return []
  const named = objectOrUndefined(json)
  const list = named === undefined ? json : Object.entries(named).map(([name, entry]) => ({ name, ...Object(entry) }))
  const isList = Array.isArray(list) && list.every((entry) => ['check', 'unique'].includes(entry?.type))
  if (!isList) throw invalid(collection, 'constraints must be a list of {type: "check" | "unique", …}')
  return list as FieldJson[]
}

function checkNamesDiffer(collection: string, names: readonly string[]): void {
  const twice = firstRepeated(names)
  if (twice !== undefined) throw invalid(collection, `there are two indexes or constraints named ${twice}`)
}
