import { createHash } from 'node:crypto'
import { AppError } from '../errors.ts'
import type {
  Catalog,
  CatalogOptions,
  Collection,
  CollectionDefinition,
  Field,
  FieldJson,
  Index,
  RealtimeAction,
  Relation,
  SchemaJson,
} from './catalog.ts'
import { fieldOf, flag, invalid, objectOrUndefined } from './compile-field.ts'
import { checksOf, indexesOf, perTenant, uniqueFieldIndex } from './compile-index.ts'
import { addForeignKeys, type Draft, type Drafts, relationsOf } from './compile-relation.ts'
import { checkIdentifier, checkRelationName } from './identifiers.ts'
import { unloggedCollections, unwritableCollections } from './system-collections.ts'

/**
 * Compiles stored definitions into the catalog. Pure. Throws an AppError (400) that names the collection and the
 * field; a catalog is therefore always whole (spec/schemas.md §2).
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
 * What is wrong with definitions, each looked at for itself and then among the others; empty for definitions that
 * compile. For answers that list everything at once.
 */
export function definitionProblems(
  definitions: readonly CollectionDefinition[],
  options: CatalogOptions = {},
): { collectionName: string; error: string }[] {
  const drafts = new Map<string, Draft>()
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

function draftOf(definition: CollectionDefinition, options: CatalogOptions): Draft {
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

type Implied = { readonly fields: [string, FieldJson][]; readonly relations: [string, FieldJson][] }

/** What the switches of a definition add (spec/schemas.md §2). */
function impliedOf(name: string, schema: SchemaJson, options: CatalogOptions): Implied {
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
function referencedKeys(drafts: Drafts): ReferencedKeys {
  const keys = new Map<string, Set<string>>()
  for (const { relations } of drafts.values())
    for (const { relType, target, targetKey } of relations.values())
      if (relType === 'BelongsTo' && typeof targetKey === 'string')
        keys.set(String(target), (keys.get(String(target)) ?? new Set()).add(targetKey))
  return keys
}

function collectionOf(draft: Draft, drafts: Drafts, referenced: ReferencedKeys, options: CatalogOptions): Collection {
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
function scopedUniques({ name, fields }: Draft, global: ReadonlySet<string>) {
  const isScoped = (field: Field) => field.unique && !field.primaryKey && !global.has(field.name)
  const scoped: Index[] = [...fields.values()]
    .filter(isScoped)
    .map((field) => perTenant(uniqueFieldIndex(name, field), fields))
  const plain = new Map([...fields].map(([key, field]) => [key, isScoped(field) ? { ...field, unique: false } : field]))
  return { fields: plain, indexes: scoped }
}

const allActions: readonly RealtimeAction[] = ['insert', 'update', 'delete']

/** User collections are on unless they say false; system collections are off unless they say so (realtime facts §1). */
function realtimeOf(name: string, { realtime }: SchemaJson): Collection['realtime'] {
  // Whatever the definition says (quality R-07).
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
    hash.update(collectionName).update('\0').update(JSON.stringify(schema)).update('\0')
  return hash.digest('base64url').slice(0, 16)
}
