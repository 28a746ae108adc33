import type { Catalog, Collection, Field, FieldJson, SchemaJson } from './catalog.ts'
import { addedBySwitches, madeUpKey } from './compile.ts'
import { keyReference } from './definitions.ts'
import { fieldTypes } from './field-types.ts'

/**
 * What the server adds to a collection by itself, as clients see it: marked `SystemGenerated: "true"`, and left out
 * again where it comes back.
 */

/** A definition with the key, the columns and the relations that nobody declared. Declared entries are as they are. */
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
export function isServerAdded(name: string, json: FieldJson, { collection, known, entries }: Surroundings): boolean {
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

type Entries = readonly (readonly [name: string, json: FieldJson | null])[]

export type Surroundings = {
  readonly collection: string
  /** The collection as it is; undefined for a new one. */
  readonly known: Collection | undefined
  /** The entries that came together. */
  readonly entries: Entries
}

const mark = { SystemGenerated: 'true' } as const

/** The column of a BelongsTo that nobody declared. */
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
function isKeyOfRelation(name: string, json: FieldJson, entries: Entries): boolean {
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
