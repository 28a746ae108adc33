/**
 * Definitions on their way in and out: a client's declaration is stored in one spelling or refused with all of its
 * problems; a stored one is shown with the entries that the server adds. Pure.
 *
 * Stored is one spelling: an entry is a column or a relation, by its own name, with `relType` in the words of inline
 * relations. The server's own additions are left out. Stored entries pass as they are, so that definitions of
 * older versions can still be sent back.
 */
import { isDeepStrictEqual } from 'node:util'
import { AppError } from '../errors.ts'
import { nearName, shown } from '../language/text.ts'
import type { Catalog, Collection, Field, FieldJson, IndexJson, SchemaJson } from './catalog.ts'
import { addedBySwitches, madeUpKey, switchColumns } from './compile.ts'
import { definitionsOf, isGiven, keyReference, withoutFields } from './definitions.ts'
import { fieldTypes, flag, readField } from './fields.ts'
import { checkMemberName, isColumnOf } from './identifiers.ts'
import {
  type DefinitionProblem,
  memberProblems,
  membersOf,
  objectProblems,
  type RelationshipType,
  type RelType,
  relationshipTypeOf,
  relTypeProblem,
  typeProblem,
} from './shape.ts'
import { isObject } from './values.ts'

/** A change of a definition: what it leaves out stays, null removes. */
type SchemaPatch = Readonly<Record<string, unknown>> & {
  readonly fields?: Readonly<Record<string, FieldJson | null>>
}

export type Door = {
  readonly catalog: Catalog
  readonly collection: string
  /** Definitions that come with this one and are not in the catalog yet. */
  readonly beside?: ReadonlyMap<string, unknown>
}

/** A whole definition. 400 with all problems, each with its path. */
export function declaredSchema(door: Door, raw: unknown): SchemaJson {
  if (!isObject(raw)) throw refused(door.collection, [{ path: 'schema', message: 'must be an object' }])
  return read(door, raw) as SchemaJson
}

/** A part of one, in which null removes. 400 as above. */
export function declaredPatch(door: Door, raw: unknown): SchemaPatch {
  if (!isObject(raw)) throw refused(door.collection, [{ path: 'schema', message: 'must be an object' }])
  return read(door, raw, true)
}

/** 400 for a definition, or for a part of a request about one. */
function refused(collection: string, problems: readonly DefinitionProblem[]): AppError {
  const words = problems.map(({ path, message }) => `${path}: ${message}`).join('; ')
  return new AppError(400, `Invalid schema for ${collection}: ${words}`, {
    code: 'INVALID_SCHEMA',
    details: { errors: problems },
  })
}

function read(door: Door, raw: FieldJson, isPatch = false): SchemaPatch {
  const { collection } = door
  const known = door.catalog.collections.get(collection)
  const stored = known?.definition.schema
  const context: DeclarationContext = { ...door, stored, isPatch, fields: isObject(raw.fields) ? raw.fields : {} }
  const { fields: given, ...others } = raw
  const entries = Object.entries(context.fields).map(([key, json]) => entryOf(context, key, json))
  const named = entries.flatMap(({ entries }) => entries)
  const problems = [
    ...collectionProblems(context, others),
    ...(isObject(given) || (isPatch && given === undefined) ? [] : [{ path: 'fields', message: 'must be an object' }]),
    ...entries.flatMap(({ problems }) => problems),
    ...twiceProblems(named),
  ]
  if (problems.length > 0) throw refused(collection, problems)
  const isOwn = ([name, json]: Entry) =>
    json === null || !isServerAdded(name, json, { collection, known, entries: named })
  return { ...others, ...(given !== undefined && { fields: Object.fromEntries(named.filter(isOwn)) }) }
}

type DeclarationContext = Door & {
  readonly stored: SchemaJson | undefined
  readonly isPatch: boolean
  /** The entries as they came. */
  readonly fields: FieldJson
}

type Entry = readonly [name: string, json: FieldJson | null]
type ReadEntries = { readonly entries: readonly Entry[]; readonly problems: readonly DefinitionProblem[] }

function collectionProblems({ stored }: DeclarationContext, raw: FieldJson): DefinitionProblem[] {
  const fresh = changedMembers(raw, stored)
  const { indexes, constraints, realtime, cache } = fresh
  return [
    ...memberProblems(['collection'], fresh, ''),
    ...(Array.isArray(indexes) ? indexes.flatMap((json, i) => objectProblems('index', json, `indexes[${i}]`)) : []),
    ...constraintProblems(constraints),
    ...(isObject(realtime) ? memberProblems(['realtime'], realtime, 'realtime') : []),
    ...(isObject(cache) ? memberProblems(['cache'], cache, 'cache') : []),
  ]
}

function constraintProblems(constraints: unknown): DefinitionProblem[] {
  if (Array.isArray(constraints))
    return constraints.flatMap((json, i) => objectProblems('constraint', json, `constraints[${i}]`))
  if (!isObject(constraints)) return []
  const present = Object.entries(constraints).filter(([, json]) => json !== null)
  return present.flatMap(([name, json]) => objectProblems('constraint', json, `constraints.${name}`))
}

/** Members that are not stored just so. */
function changedMembers(json: FieldJson, stored: unknown): FieldJson {
  if (!isObject(stored)) return json
  return Object.fromEntries(Object.entries(json).filter(([word, value]) => !isDeepStrictEqual(value, stored[word])))
}

function entryOf(context: DeclarationContext, key: string, json: unknown): ReadEntries {
  const stored = storedEntry(context, key)
  if (stored !== undefined && isDeepStrictEqual(json, stored)) return { entries: [[key, stored]], problems: [] }
  if (json === null && context.isPatch) return { entries: [[key, null]], problems: [] }
  const at = `fields.${key}`
  if (!isObject(json)) return failed([{ path: at, message: `must be an object, such as {"type": "String"}` }])
  const isRelation = isGiven(json.relType) || relationshipTypeOf(json.type) !== undefined
  return isRelation ? relationEntry(context, key, json) : columnEntry(context, key, json)
}

const failed = (problems: readonly DefinitionProblem[]): ReadEntries => ({ entries: [], problems })

function storedEntry({ stored }: DeclarationContext, key: string): FieldJson | undefined {
  return stored !== undefined && Object.hasOwn(stored.fields, key) ? stored.fields[key] : undefined
}

function columnEntry(context: DeclarationContext, key: string, json: FieldJson): ReadEntries {
  const at = `fields.${key}`
  const problems = [
    ...nameProblems(`field of ${context.collection}`, key, at),
    ...memberProblems(['column'], changedMembers(json, storedEntry(context, key)), at),
    ...columnProblems(context, key, json, at),
  ]
  return problems.length > 0 ? failed(problems) : { entries: [[key, json]], problems }
}

/** Problems of a column beyond the names of its members. */
function columnProblems(
  { collection }: DeclarationContext,
  name: string,
  json: FieldJson,
  at: string,
): DefinitionProblem[] {
  const type = typeProblem(json)
  const values = isObject(json.values) ? memberProblems(['values'], json.values, `${at}.values`) : []
  if (type !== undefined) return [{ path: `${at}.type`, message: type }, ...values]
  const isIdle = typeof json.calculated === 'string' && json.calculated !== '' && json.type !== 'VIRTUAL'
  const idle = isIdle ? [{ path: `${at}.calculated`, message: 'has no effect: it needs type "VIRTUAL"' }] : []
  if (values.length > 0) return [...values, ...idle]
  const problem = problemOf((refuse) => readField(collection, name, json, refuse))
  return problem === undefined ? idle : [{ path: at, message: problem }, ...idle]
}

function problemOf(work: (refuse: (problem: string) => never) => unknown): string | undefined {
  try {
    work((problem) => {
      throw new AppError(400, problem)
    })
    return undefined
  } catch (error) {
    if (error instanceof AppError) return error.message
    throw error
  }
}

function nameProblems(what: string, name: string, path: string): DefinitionProblem[] {
  const message = problemOf(() => checkMemberName(what, name))
  return message === undefined ? [] : [{ path, message }]
}

function relationEntry(context: DeclarationContext, key: string, json: FieldJson): ReadEntries {
  const at = `fields.${key}`
  const isTyped = isGiven(json.type) && relationshipTypeOf(json.type) === undefined
  const word = isGiven(json.relType) ? json.relType : json.type
  const kindProblem = relTypeProblem(word) ?? differingWords(json)
  if (kindProblem !== undefined) return failed([{ path: `${at}.relType`, message: kindProblem }])
  const name = nameOf(context, key, json)
  const relation: RelationIn = { key, at, name, json, isTyped, type: relationshipTypeOf(word)! }
  const shapeProblems = [
    ...memberProblems(['relation', 'column'], changedMembers(json, storedEntry(context, key)), at),
    ...nameProblems(`relation of ${context.collection}`, name, at),
    ...targetProblems(context, relation),
  ]
  if (shapeProblems.length > 0) return failed(shapeProblems)
  const relType = relTypeOf(context, relation)
  return relType === 'BelongsTo' ? belongsToEntry(context, relation) : farEntry(context, relation, relType)
}

/** A definition of the days in which `as` had no effect keeps its names. */
function nameOf(context: DeclarationContext, key: string, { as }: FieldJson): string {
  const isOld = storedEntry(context, key)?.relType !== undefined && storedEntry(context, key)?.as === as
  return isGiven(as) && !isOld ? shown(as) : key
}

type RelationIn = {
  readonly key: string
  readonly at: string
  /** Name of the relation, which `as` may give. */
  readonly name: string
  readonly json: FieldJson
  /** Whether its `type` is that of a column. */
  readonly isTyped: boolean
  readonly type: RelationshipType
}

function differingWords({ relType, type }: FieldJson): string | undefined {
  const [one, other] = [relationshipTypeOf(relType), relationshipTypeOf(type)]
  return one === undefined || other === undefined || one === other
    ? undefined
    : `is ${JSON.stringify(relType)}, type says ${JSON.stringify(type)}`
}

function targetProblems(context: DeclarationContext, { at, json }: RelationIn): DefinitionProblem[] {
  const { target } = json
  if (typeof target === 'string' && schemaOf(context, target) !== undefined) return []
  const message = isGiven(target)
    ? `unknown collection ${JSON.stringify(target)}`
    : 'is missing: the collection it leads to'
  return [{ path: `${at}.target`, message }]
}

function schemaOf({ catalog, collection, beside, fields }: DeclarationContext, name: string): SchemaJson | undefined {
  const stored = definitionsOf(catalog).get(name)
  if (name === collection) return { fields: { ...stored?.fields, ...present(fields) } }
  const besides = beside?.get(name)
  if (isObject(besides) && isObject(besides.fields)) return { fields: present(besides.fields) }
  return stored
}

const present = (fields: FieldJson) =>
  Object.fromEntries(Object.entries(fields).filter(([, json]) => isObject(json))) as SchemaJson['fields']

/** One to one is kept on either side: on the target where that has the column already. */
function relTypeOf(context: DeclarationContext, { type, json }: RelationIn): RelType {
  if (type === 'M2O') return 'BelongsTo'
  if (type === 'M2M') return 'BelongsToMany'
  if (type === 'O2M' || type === 'M2A') return 'HasMany'
  if (json.relType === 'HasOne' || json.type === 'HasOne') return 'HasOne'
  const target = String(json.target)
  const far = context.catalog.collections.get(target)
  const isFar = isGiven(json.foreignKey)
    ? far?.fields.has(String(json.foreignKey)) === true && target !== context.collection
    : holdersOf(context, target).length > 0
  return isFar ? 'HasOne' : 'BelongsTo'
}

/** The relations of the target that lead here, by which a relation back can be read. */
function holdersOf({ catalog, collection }: DeclarationContext, target: string) {
  const far = catalog.collections.get(target)
  const declared = far?.definition.schema.fields ?? {}
  return [...(far?.relations.values() ?? [])].filter(
    ({ name, kind, target: to, targetKey, discriminator }) =>
      kind === 'belongsTo' &&
      to === collection &&
      targetKey === catalog.collections.get(collection)?.primaryKey.name &&
      discriminator === undefined &&
      Object.hasOwn(declared, name),
  )
}

function belongsToEntry(context: DeclarationContext, relation: RelationIn): ReadEntries {
  const { at, key, name, json, isTyped, type } = relation
  const foreignKey = columnNameOf(context, relation)
  const isOne = type === 'O2O'
  if (foreignKey === name) {
    const right = name.replace(/_?id$/i, '') || 'owner'
    const message = `a relation and its column cannot both be called ${name}: name the relation, such as as: "${right}"`
    return failed([{ path: at, message }])
  }
  const isColumn = isTyped || isOne || !isNeutral('defaultValue', json.defaultValue)
  const column = isColumn ? columnOf(context, relation, foreignKey) : undefined
  const idle = isTyped
    ? []
    : idleProblems(context, relation, `give the entry a type, or declare the column ${foreignKey}`)
  const problems = [
    ...idle,
    ...(column === undefined ? requiredProblems(context, relation, foreignKey) : []),
    ...(column?.problems ?? []),
  ]
  if (problems.length > 0) return failed(problems)
  const isNamed = isColumn || isGiven(json.foreignKey) || foreignKey !== `${name}_Id`
  const rest = relationMembers(json, isColumn ? ['allowNull'] : [])
  const stored = { relType: 'BelongsTo', ...rest, ...(isNamed && { foreignKey }) }
  const own: Entry[] = [[name, stored]]
  return { entries: [...(column?.entries ?? []), ...own].sort(keyFirst(key)), problems }
}

/** The entry's own name keeps its place in front. */
const keyFirst = (key: string) => (a: Entry, b: Entry) => Number(b[0] === key) - Number(a[0] === key)

/**
 * The column of a BelongsTo: named, or as it is stored, or by the entry's own name where `as` names the relation and
 * the entry is called like a column, or derived from the relation's name.
 */
function columnNameOf(context: DeclarationContext, { key, name, json, isTyped }: RelationIn): string {
  if (isGiven(json.foreignKey)) return String(json.foreignKey)
  const stored = storedEntry(context, name)
  const isSame = stored?.relType === 'BelongsTo' && stored.target === json.target
  if (isSame && isGiven(stored.foreignKey)) return String(stored.foreignKey)
  const isColumn = name !== key && (isTyped || isColumnOf(key, name))
  return isColumn ? key : `${name}_Id`
}

/** The column that an entry declares with its relation. */
function columnOf(
  context: DeclarationContext,
  { key, at, json, isTyped, type }: RelationIn,
  name: string,
): ReadEntries {
  const beside = name === key ? undefined : context.fields[name]
  const members = Object.fromEntries(Object.entries(json).filter(([word]) => isColumnMember(word)))
  if (isObject(beside)) {
    const differing = Object.entries({ ...members, ...(type === 'O2O' && { unique: true }) }).filter(
      ([word, value]) => word !== 'SystemGenerated' && !isDeepStrictEqual(value, beside[word]),
    )
    return failed(
      differing.map(([word]) => ({
        path: `${at}.${word}`,
        message: `fields.${name} declares the column: say it there`,
      })),
    )
  }
  const reference = isTyped ? {} : (storedEntry(context, name) ?? keyReference(schemaOf(context, String(json.target))!))
  const { allowNull, defaultValue } = json
  const column: FieldJson = {
    ...reference,
    ...(isTyped ? members : isGiven(defaultValue) && { defaultValue }),
    ...(isGiven(allowNull) && { allowNull }),
    ...(type === 'O2O' && { unique: true }),
  }
  const problems = [
    ...nameProblems(`field of ${context.collection}`, name, `${at}.foreignKey`),
    ...columnProblems(context, name, column, at),
  ]
  return { entries: [[name, column]], problems }
}

const isColumnMember = (word: string) =>
  word === 'type' ||
  word === 'allowNull' ||
  word === 'SystemGenerated' ||
  (Object.hasOwn(membersOf('column'), word) && !Object.hasOwn(membersOf('relation'), word))

/** Where the column is declared by itself, only that decides whether it may be empty. */
function requiredProblems(
  context: DeclarationContext,
  { at, json }: RelationIn,
  foreignKey: string,
): DefinitionProblem[] {
  const column = Object.hasOwn(context.fields, foreignKey)
    ? context.fields[foreignKey]
    : storedEntry(context, foreignKey)
  const refuse = (problem: string): never => {
    throw new AppError(400, problem)
  }
  const isRequired = !flag(json, 'allowNull', refuse, true)
  const isSame = !isRequired || !isObject(column) || column.allowNull === json.allowNull || column.primaryKey === true
  return isSame ? [] : [{ path: `${at}.allowNull`, message: `has no effect: say it in fields.${foreignKey}` }]
}

function farEntry(context: DeclarationContext, relation: RelationIn, relType: RelType): ReadEntries {
  const { at, name, json, type } = relation
  const problems = [
    ...idleProblems(context, relation, `a ${relType} has no column of its own`, true),
    ...nameProblems(`relation of ${context.collection}`, name, at),
  ]
  const foreignKey = relType === 'BelongsToMany' ? undefined : farKeyOf(context, relation)
  if (isProblem(foreignKey)) problems.push(foreignKey)
  if (problems.length > 0) return failed(problems)
  const stored = {
    relType,
    ...relationMembers(json),
    ...(type === 'M2A' && { polymorphic: true }),
    ...(foreignKey !== undefined && { foreignKey }),
  }
  return { entries: [[name, stored]], problems }
}

const isProblem = (value: string | DefinitionProblem | undefined): value is DefinitionProblem =>
  typeof value === 'object'

/** The column on the target, where the entry does not name it and it is not called after this collection. */
function farKeyOf(context: DeclarationContext, { at, name, json }: RelationIn): string | DefinitionProblem | undefined {
  const target = String(json.target)
  if (isGiven(json.foreignKey)) return String(json.foreignKey)
  const stored = storedEntry(context, name)
  if (stored?.target === target && isGiven(stored.foreignKey)) return String(stored.foreignKey)
  if (context.catalog.collections.get(target)?.fields.has(`${context.collection}_Id`)) return undefined
  const [holder, ...more] = holdersOf(context, target)
  if (more.length === 0) return holder?.foreignKey
  const names = [holder!, ...more].map(({ foreignKey }) => foreignKey).join(' and ')
  return { path: `${at}.foreignKey`, message: `is needed: ${target} leads here by ${names}` }
}

/** What an entry without a type may say of the column of its relation. */
const ofKeys = ['allowNull', 'defaultValue']

/** Members of a column that have no effect where there is none, unless they say what is so anyway. */
function idleProblems(
  context: DeclarationContext,
  { key, at, json, isTyped }: RelationIn,
  remedy: string,
  isFar = false,
): DefinitionProblem[] {
  const words = Object.keys(changedMembers(json, storedEntry(context, key))).filter(
    (word) =>
      (isColumnMember(word) && !['SystemGenerated', 'type', ...(isFar ? [] : ofKeys)].includes(word)) ||
      (word === 'type' && isTyped),
  )
  return words
    .filter((word) => !isNeutral(word, json[word]))
    .map((word) => ({ path: `${at}.${word}`, message: `has no effect: ${remedy}` }))
}

function isNeutral(word: string, value: unknown): boolean {
  if (word === 'allowNull') return value === null || value === undefined || value === true || value === 'true'
  if (value === null || value === undefined || value === false || value === 'false' || value === '') return true
  return word !== 'defaultValue' && typeof value === 'object' && Object.keys(value).length === 0
}

function relationMembers(json: FieldJson, without: readonly string[] = []): FieldJson {
  const { relType: _word, type: _type, ...rest } = json
  const kept = Object.entries(rest).filter(
    ([word, value]) => Object.hasOwn(membersOf('relation'), word) && value !== null && !without.includes(word),
  )
  return Object.fromEntries(kept)
}

function twiceProblems(entries: readonly Entry[]): DefinitionProblem[] {
  const byName = Map.groupBy(entries, ([name]) => name)
  const twice = [...byName].filter(([, same]) => same.length > 1)
  return twice.map(([name]) => ({ path: `fields.${name}`, message: 'is declared by two entries' }))
}

/*
 * Entries that the server adds to a collection by itself, as clients see them: marked `SystemGenerated: "true"`, and left out
 * again where it comes back.
 */

/** A definition with the key, the columns and the relations that no client declared. Declared entries are as they are. */
export function shownSchema(catalog: Catalog, collection: Collection): SchemaJson {
  const { schema } = collection.definition
  const isDeclared = (name: string) => Object.hasOwn(schema.fields, name)
  const added = new Map(addedBySwitches())
  const entryOf = (field: Field): FieldJson =>
    field.primaryKey ? madeUpKey : (added.get(field.name) ?? keyEntry(catalog, collection, field))
  const fields = [...collection.fields.values()].filter(({ name }) => !isDeclared(name))
  const relations = [...collection.relations.keys()].filter((name) => !isDeclared(name))
  const shown = (name: string, json: FieldJson): [string, FieldJson] => [name, { ...json, ...mark }]
  const [keys, others] = [fields.filter(({ primaryKey }) => primaryKey), fields.filter((field) => !field.primaryKey)]
  return {
    ...schema,
    fields: Object.fromEntries([
      ...keys.map((field) => shown(field.name, entryOf(field))),
      ...Object.entries(schema.fields).map(([name, json]) => [name, asCompiled(collection, name, json)]),
      ...others.map((field) => shown(field.name, entryOf(field))),
      ...relations.flatMap((name) => (added.has(name) ? [shown(name, added.get(name)!)] : [])),
    ]),
  }
}

/** Whether an entry that came from a client is one that {@link shownSchema} had added. */
function isServerAdded(
  name: string,
  json: FieldJson,
  { collection, known, entries }: DeclarationSurroundings,
): boolean {
  const isMarked = json.SystemGenerated === 'true' || json.SystemGenerated === true
  const stored = known?.definition.schema.fields ?? {}
  if (!isMarked || Object.hasOwn(stored, name)) return false
  // The system's own entries are marked too.
  if (collection.startsWith('svc_')) return known?.fields.has(name) === true || known?.relations.has(name) === true
  const added = addedBySwitches().find(([other]) => other === name)?.[1]
  if (added !== undefined) return isAlike(added, json)
  if (json.primaryKey === true || json.primaryKey === 'true')
    return name === 'id' && json.type === 'UUID' && isMadeUp(json.defaultValue)
  return isKeyOfRelation(name, json, [...Object.entries(stored), ...entries])
}

type DeclaredEntries = readonly (readonly [name: string, json: FieldJson | null])[]

type DeclarationSurroundings = {
  readonly collection: string
  /** The collection as it is; undefined for a new one. */
  readonly known: Collection | undefined
  /** The entries that came together. */
  readonly entries: DeclaredEntries
}

const mark = { SystemGenerated: 'true' } as const

/** The column of a BelongsTo, where no entry declares it. */
function keyEntry(catalog: Catalog, { definition, relations }: Collection, field: Field): FieldJson {
  const relation = [...relations.values()].find(
    ({ kind, foreignKey }) => kind === 'belongsTo' && foreignKey === field.name,
  )
  const target = relation && catalog.collections.get(relation.target)
  const schema = target?.definition.schema ?? definition.schema
  const isByKey = target === undefined || relation?.targetKey === target.primaryKey.name
  const { type = field.type, values } = isByKey ? keyReference(schema) : (schema.fields[relation!.targetKey] ?? {})
  return {
    type,
    ...(values !== undefined && { values }),
    ...(!field.nullable && { allowNull: false }),
  }
}

/** Times that were declared as dates are times all the same. */
function asCompiled({ fields }: Collection, name: string, json: FieldJson): FieldJson {
  const type = fields.get(name)?.type
  return json.type === 'Date' && type === 'DateTime' ? { ...json, type } : json
}

function isAlike(added: FieldJson, json: FieldJson): boolean {
  if (added.relType !== undefined) return json.relType === added.relType && json.target === added.target
  const [one, other] = [added.type, json.type].map((type) => fieldTypes[String(type)]?.kind)
  return one === other || (one === 'datetime' && other === 'date')
}

function isMadeUp(preset: unknown): boolean {
  return preset === undefined || (preset as { type?: unknown } | null)?.type === 'UUIDV4'
}

/** One that says no more than its relation does. */
function isKeyOfRelation(name: string, json: FieldJson, entries: DeclaredEntries): boolean {
  const isPlain = Object.keys(json).every((word) => ['type', 'values', 'allowNull', 'SystemGenerated'].includes(word))
  return (
    isPlain &&
    entries.some(
      ([relation, entry]) =>
        entry?.relType === 'BelongsTo' &&
        (entry.foreignKey ?? `${relation}_Id`) === name &&
        isRequired(entry) === isRequired(json),
    )
  )
}

const isRequired = ({ allowNull }: FieldJson) => allowNull === false || allowNull === 'false'

/**
 * A change of a definition put on what is stored: what the change leaves out stays, what it gives replaces the entry of
 * that name, null removes. Pure.
 */

export type MergedSchema = {
  readonly schema: SchemaJson
  /** Columns that the change itself gives up; the loss of any other is a mistake. */
  readonly givenUp: ReadonlySet<string>
}

/** 400 for a null that names nothing, or what only a switch removes. */
export function merged(collection: Collection, patch: SchemaPatch): MergedSchema {
  const stored = collection.definition.schema
  const { fields = {}, indexes, constraints, ...others } = patch
  const nulls = Object.keys(fields).filter((name) => fields[name] === null)
  const problems = nulls.flatMap((name) => nullProblems(collection, name))
  if (problems.length > 0) throw refused(collection.name, problems)
  const entries = [...nulls, ...relationsOn(collection, nulls, fields)]
  const gone = [...entries, ...derivedColumns(collection, entries, fields)]
  const kept = without(collection, gone)
  const schema = {
    ...kept,
    ...others,
    fields: mergedFields(kept.fields, fields),
    ...(Object.hasOwn(patch, 'indexes') && { indexes: mergedIndexes(collection.name, kept.indexes, indexes) }),
    ...(Object.hasOwn(patch, 'constraints') && { constraints: mergedConstraints(collection.name, kept, constraints) }),
  }
  return { schema: settled(stored, schema), givenUp: givenUp(gone, patch) }
}

/** The whole definition that a change without its nulls makes. */
export function whole(patch: SchemaPatch): SchemaJson {
  const fields = Object.entries(patch.fields ?? {}).filter(([, json]) => json !== null)
  const others = Object.entries(patch).filter(([, value]) => value !== null)
  return { ...Object.fromEntries(others), fields: Object.fromEntries(fields) } as SchemaJson
}

function nullProblems(
  { name: collection, definition, fields, relations }: Collection,
  name: string,
): DefinitionProblem[] {
  if (Object.hasOwn(definition.schema.fields, name)) return []
  const path = `fields.${name}`
  const adding = Object.entries(switchColumns).find(([, columns]) => columns.includes(name))?.[0]
  if (adding !== undefined && fields.has(name))
    return [{ path, message: `is added by ${adding}: set that to false to remove it` }]
  if (fields.get(name)?.primaryKey) return [{ path, message: 'is the primary key and cannot be removed' }]
  if ([...relations.values()].some(({ kind, foreignKey }) => kind === 'belongsTo' && foreignKey === name)) return []
  const near = nearName(name, Object.keys(definition.schema.fields))
  const meant = near === undefined ? '' : `, did you mean ${near}?`
  return [{ path, message: `${collection} has no field ${name}${meant}` }]
}

/** A relation without its column would only make it again. */
function relationsOn({ definition, relations }: Collection, columns: readonly string[], fields: FieldJson): string[] {
  return [...relations.values()]
    .filter(({ kind, foreignKey }) => kind === 'belongsTo' && columns.includes(foreignKey))
    .map(({ name }) => name)
    .filter((name) => Object.hasOwn(definition.schema.fields, name) && !Object.hasOwn(fields, name))
}

/** Columns that only relations which are removed had brought. */
function derivedColumns({ definition, relations }: Collection, gone: readonly string[], fields: FieldJson): string[] {
  const holders = [...relations.values()].filter(({ kind }) => kind === 'belongsTo')
  const isHeld = (column: string) =>
    holders.some(({ name, foreignKey }) => foreignKey === column && !gone.includes(name)) ||
    Object.hasOwn(definition.schema.fields, column) ||
    Object.hasOwn(fields, column)
  return holders
    .filter(({ name, foreignKey }) => gone.includes(name) && !isHeld(foreignKey))
    .map(({ foreignKey }) => foreignKey)
}

function without({ name, definition }: Collection, gone: readonly string[]): SchemaJson {
  return withoutFields(new Map([[name, definition.schema]]), name, gone).get(name)!
}

/** In the order of the change where it names them all, else of what is stored. */
function mergedFields(kept: SchemaJson['fields'], given: NonNullable<SchemaPatch['fields']>): SchemaJson['fields'] {
  const present = Object.entries(given).filter((entry): entry is [string, FieldJson] => entry[1] !== null)
  const isWhole = Object.keys(kept).every((name) => Object.hasOwn(given, name))
  return isWhole ? Object.fromEntries(present) : { ...kept, ...Object.fromEntries(present) }
}

function mergedIndexes(collection: string, kept: SchemaJson['indexes'], given: unknown): SchemaJson['indexes'] {
  if (given === null) return undefined
  const nameOf = ({ name, fields }: IndexJson) => name ?? `${collection}_${[fields].flat().join('_')}_idx`
  return mergedByName(kept ?? [], given as readonly IndexJson[], nameOf)
}

type ConstraintEntry = Readonly<Record<string, unknown>>

function mergedConstraints(collection: string, { constraints: kept }: SchemaJson, given: unknown) {
  if (given === null) return undefined
  const removed = Object.entries(Array.isArray(given) ? {} : Object(given)).flatMap(([name, json]) =>
    json === null ? [name] : [],
  )
  const nameOf = ({ name, fields }: ConstraintEntry) => String(name ?? `${collection}_${[fields].flat().join('_')}_key`)
  const list = mergedByName(constraintList(kept), constraintList(given), nameOf)
  return list.filter((constraint) => !removed.includes(nameOf(constraint))) as unknown as SchemaJson['constraints']
}

function constraintList(json: unknown): readonly ConstraintEntry[] {
  if (json === undefined || json === null) return []
  if (Array.isArray(json)) return json
  return Object.entries(Object(json)).flatMap(([name, entry]) => (entry === null ? [] : [{ name, ...Object(entry) }]))
}

function mergedByName<T>(kept: readonly T[], given: readonly T[], nameOf: (entry: T) => string): readonly T[] {
  const replacement = new Map(given.map((entry) => [nameOf(entry), entry]))
  const names = new Set(kept.map(nameOf))
  return [
    ...kept.map((entry) => replacement.get(nameOf(entry)) ?? entry),
    ...given.filter((entry) => !names.has(nameOf(entry))),
  ]
}

/** Members that null removed are gone; one that says the same in other words is as it was stored. */
function settled(stored: SchemaJson, schema: Readonly<Record<string, unknown>>): SchemaJson {
  const entries = Object.entries(schema).filter(([, value]) => value !== null && value !== undefined)
  const { constraints } = stored
  return Object.fromEntries(
    entries.map(([word, value]) => {
      const isSame = word === 'constraints' && isDeepStrictEqual(value, constraintList(constraints))
      return [word, isSame ? constraints : value]
    }),
  ) as unknown as SchemaJson
}

/** Columns removed by name, and those of switches that the change sets. */
function givenUp(gone: readonly string[], patch: SchemaPatch): ReadonlySet<string> {
  const set = Object.entries(switchColumns).filter(([word]) => Object.hasOwn(patch, word))
  return new Set([...gone, ...set.flatMap(([, columns]) => columns)])
}
