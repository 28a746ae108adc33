import type { TSchema } from 'typebox'
import type { Catalog, Collection, Field, Kind, Relation } from '../../../catalog/catalog.ts'
import type { Representing } from '../../../http/shapes.ts'
import { oncePer } from '../../../language/once.ts'
import { isToMany } from '../../../query/plan.ts'
import type { Rights, WriteRights } from '../../data/items/items.ts'
import type { RowDirection } from '../../data/schemas/schemas.ts'

/** A collection as one caller knows it. */
export type CollectionView = { readonly collection: Collection; readonly rights: Rights }

/** The names of a collection's schemas among the components; names of collections have no dots. */
const rowOf = (name: string) => name
const newRowOf = (name: string) => `${name}.new`
const changedRowOf = (name: string) => `${name}.change`

export const componentRef = (kind: string, name: string): Json => ({ $ref: `#/components/${kind}/${name}` })
const schemaRef = (name: string) => componentRef('schemas', name)

/** The schemas of a collection: its rows as they are answered, and what a new or a changed one may set. */
export function collectionSchemas(
  catalog: Catalog,
  { collection, rights }: CollectionView,
  readable: ReadonlySet<string>,
) {
  const schemas: Record<string, Json> = {}
  const { name } = collection
  const { read, create, update } = rights
  if (read !== undefined) schemas[rowOf(name)] = rowSchema(catalog, { collection, rights }, readable)
  if (create !== undefined) schemas[newRowOf(name)] = writtenSchema(catalog, collection, create, 'new')
  if (update !== undefined) schemas[changedRowOf(name)] = writtenSchema(catalog, collection, update, 'changed')
  return schemas
}

/** The replacement for a collection's rows in the shapes of its routes. */
export function standIn({ collection, rights }: CollectionView): Stand {
  const { name, primaryKey } = collection
  const key = keySchema(primaryKey)
  const onlyKey = { type: 'object', properties: { [primaryKey.name]: key } }
  const row = rights.read === undefined ? onlyKey : schemaRef(rowOf(name))
  const changed = rights.update === undefined ? { type: 'object' } : schemaRef(changedRowOf(name))
  return (represents) => {
    switch (represents) {
      case 'key':
        return key
      case 'row':
        return row
      case 'written row': {
        // The key is answered as `id`, whatever its field is called.
        const written = { type: 'object', properties: { id: key }, required: ['id'] }
        return primaryKey.name === 'id' ? row : { anyOf: [written, row] }
      }
      case 'new row':
        return rights.create === undefined ? { type: 'object' } : schemaRef(newRowOf(name))
      case 'changed row':
        return changed
      case 'named change':
        return namedChange(collection, changed)
    }
  }
}

/** The changes of one item among many: beside its key, or as `data`. The key may always be called `id`, unless another field is. */
function namedChange({ primaryKey, fields }: Collection, change: Json): Json {
  const key = keySchema(primaryKey)
  const named = (name: string) => ({ type: 'object', properties: { [name]: key }, required: [name] })
  const id = fields.has('id') ? primaryKey.name : 'id'
  const apart = { type: 'object', properties: { [id]: key, data: change }, required: [id, 'data'] }
  return { anyOf: [{ allOf: [named(primaryKey.name), change] }, apart] }
}

/** Every member is optional: `fields` decides which there are. `aggregate` adds some, and may put its own in place of others. */
function rowSchema(catalog: Catalog, { collection, rights }: CollectionView, readable: ReadonlySet<string>): Json {
  const { fields, relations } = rights.read!
  const properties: Record<string, Json> = {}
  for (const field of fields) properties[field.name] = readSchema(field, descriptionOf(collection, field.name))
  for (const { relation, fields: shown } of relations) {
    // A declared field is a column of the row, whatever else has its name.
    if (properties[relation.name] !== undefined) continue
    const target = catalog.collections.get(relation.target)!
    const row = sameFields(shown, target) && readable.has(target.name) ? schemaRef(rowOf(target.name)) : ofFields(shown)
    properties[relation.name] = nestedSchema(relation, row)
  }
  return { type: 'object', ...describedAs(collection), properties }
}

/** Whether the relation shows what reading the collection itself may show at most. */
const sameFields = (shown: readonly Field[], { fields }: Collection): boolean =>
  shown.length === [...fields.values()].filter(({ hidden }) => !hidden).length

function ofFields(fields: readonly Field[]): Json {
  const properties = Object.fromEntries(fields.map((field) => [field.name, readSchema(field, undefined)]))
  return { type: 'object', properties }
}

function nestedSchema(relation: Relation, row: Json): Json {
  const description = `${relation.target}, where \`fields\` asks for it: \`${relation.name}.*\`.`
  if (isToMany(relation)) return { type: 'array', items: row, description }
  return { anyOf: [row, { type: 'null' }], description }
}

function writtenSchema(
  catalog: Catalog,
  collection: Collection,
  { fields, relations, required }: WriteRights,
  row: 'new' | 'changed',
): Json {
  const properties: Record<string, Json> = {}
  for (const field of fields) properties[field.name] = writeSchema(field, descriptionOf(collection, field.name))
  for (const relation of relations)
    properties[relation.name] ??= writtenRelation(relation, catalog.collections.get(relation.target), row)
  // A row of the relation, or its key by the relation's name, will do as well.
  const replaceable = new Set(relations.filter(({ kind }) => kind === 'belongsTo').map(({ foreignKey }) => foreignKey))
  const needed = [...required].filter((name) => properties[name] !== undefined && !replaceable.has(name))
  return {
    type: 'object',
    ...describedAs(collection),
    properties,
    ...(needed.length > 0 && { required: needed.sort() }),
  }
}

function writtenRelation(relation: Relation, target: Collection | undefined, of: 'new' | 'changed'): Json {
  const key = target === undefined ? {} : keySchema(target.primaryKey)
  // Not the target's own payload: its parent fills its foreign key in, and a row that exists is named by its key.
  const ofRow = { type: 'object', additionalProperties: true }
  const row = { anyOf: [key, ofRow] }
  if (!isToMany(relation))
    return {
      ...orNull(row),
      description: `The key of a row of ${relation.target}, or a row; may stand for \`${relation.foreignKey}\`.`,
    }
  const description = `Rows of ${relation.target} or their keys${of === 'new' ? '' : ': those of the list replace all'}.`
  return { type: 'array', items: row, description }
}

function describedAs({ definition, name }: Collection): Json {
  const text = definition.schema.description
  return { title: name, ...(typeof text === 'string' && text !== '' && { description: text }) }
}

function descriptionOf({ definition }: Collection, field: string): string | undefined {
  const { description, comment } = definition.schema.fields[field] ?? {}
  return [description, comment].find((text): text is string => typeof text === 'string' && text !== '')
}

/** A field in rows that are answered. */
function readSchema(field: Field, description: string | undefined): Json {
  const schema = formOf(field.kind, field.element, field.enumValues, 'answered')
  return { ...described(field, description), ...(field.nullable ? orNull(schema) : schema) }
}

/** A field in payloads: with its rules, and in every form that is taken. */
function writeSchema(field: Field, description: string | undefined): Json {
  const schema = { ...formOf(field.kind, field.element, field.enumValues, 'taken'), ...rulesOf(field) }
  const chosen = field.default?.kind === 'literal' ? { default: field.default.value } : {}
  return {
    ...described(field, description),
    ...(field.nullable ? orNull(schema) : schema),
    ...chosen,
    ...(field.hidden && { writeOnly: true }),
  }
}

/** The type of a primary key, in answers and in paths. */
function keySchema({ kind, element, enumValues }: Field): Json {
  return formOf(kind, element, enumValues, 'answered')
}

function formOf(
  kind: Kind,
  element: Kind | undefined,
  enumValues: readonly string[] | undefined,
  direction: RowDirection,
): Json {
  if (kind === 'enum') return { type: 'string', enum: [...(enumValues ?? [])] }
  if (kind === 'array')
    return { type: 'array', items: orNull(formOf(element ?? 'text', undefined, undefined, direction)) }
  if (kind === 'range') return rangeOf(orNull(boundOf(element ?? 'integer', direction)), direction)
  const form = forms[kind]
  return { ...(direction === 'taken' ? (form.taken ?? form.answered) : form.answered) }
}

/** A bound may be what no format and no number writes: `10000-01-01`, `infinity`. */
function boundOf(kind: Kind, direction: RowDirection): Json {
  const { format, ...form } = formOf(kind, undefined, undefined, direction)
  if (kind === 'float') return { ...form, type: ['number', 'string'] }
  return form.type === 'string' || format === undefined ? form : { ...form, format }
}

function rangeOf(bound: Json, direction: RowDirection): Json {
  const flag = { type: 'boolean' }
  const whole = {
    type: 'object',
    properties: { lower: bound, upper: bound, lowerInclusive: flag, upperInclusive: flag },
  }
  const empty = {
    type: 'object',
    properties: { empty: { const: true } },
    required: ['empty'],
    description: 'Holds nothing; null as a bound means that there is none.',
  }
  if (direction === 'answered') return { anyOf: [whole, empty] }
  return { anyOf: [whole, empty, { type: 'array', items: bound, minItems: 2, maxItems: 2 }] }
}

const geoJson: Json = {
  type: 'object',
  properties: { type: { type: 'string' }, coordinates: { type: 'array' } },
  required: ['type'],
  description: 'GeoJSON',
}

/** By kind what is answered, and where more is taken that. */
const forms: Readonly<Record<Exclude<Kind, 'enum' | 'array' | 'range'>, { answered: Json; taken?: Json }>> = {
  text: { answered: { type: 'string' } },
  integer: { answered: { type: 'integer', format: 'int32' } },
  bigint: {
    answered: { type: ['integer', 'string'], format: 'int64' },
  },
  decimal: { answered: { type: 'string', format: 'decimal' }, taken: { type: ['string', 'number'] } },
  float: { answered: { type: 'number' } },
  boolean: { answered: { type: 'boolean' } },
  datetime: { answered: { type: 'string', format: 'date-time' } },
  datetime_no_tz: { answered: { type: 'string', format: 'date-time' } },
  date: { answered: { type: 'string', format: 'date' } },
  time: { answered: { type: 'string', examples: ['13:45:00+00'] } },
  time_no_tz: { answered: { type: 'string', examples: ['13:45:00'] } },
  json: { answered: {} },
  uuid: { answered: { type: 'string', format: 'uuid' } },
  geometry: { answered: geoJson },
  geography: { answered: geoJson },
  vector: { answered: { type: 'array', items: { type: 'number' } } },
}

/** Also without a value. */
function orNull(schema: Json): Json {
  const { type, enum: words } = schema
  if (type === undefined) return Array.isArray(schema.anyOf) ? { ...schema, anyOf: [...schema.anyOf, isNull] } : schema
  return { ...schema, type: [type, 'null'].flat(), ...(Array.isArray(words) && { enum: [...words, null] }) }
}

const isNull = { type: 'null' }

/** Notes on types whose JSON form does not explain itself. */
const notes: Readonly<Partial<Record<Kind, string>>> = {
  bigint: 'A number within ±(2⁵³−1), else text.',
  decimal: 'Exact, as text.',
  datetime_no_tz: 'A time without a zone.',
}

function described({ kind, type, generated }: Field, description: string | undefined): Json {
  const words = [description, notes[kind], generated === undefined ? undefined : 'Calculated.']
  const text = words.filter((word) => word !== undefined).join(' ')
  return { ...(text !== '' && { description: text }), 'x-type': type }
}

/** Rules of the definition that JSON Schema has words for. */
function rulesOf({ kind, pgType, validate = {} }: Field): Json {
  const longest = /^varchar\((\d+)\)$/.exec(pgType)?.[1]
  const argument = (name: string): unknown => {
    const rule = validate[name]
    return rule !== null && typeof rule === 'object' && !Array.isArray(rule) ? (rule as { args?: unknown }).args : rule
  }
  if (kind === 'text') {
    const length = argument('len')
    const [least, most] = Array.isArray(length) ? length : []
    const format = textFormats.find(([rule]) => argument(rule) === true)?.[1]
    const maxLength = Math.min(Number(longest ?? Number.POSITIVE_INFINITY), Number(most ?? Number.POSITIVE_INFINITY))
    return {
      ...(least !== undefined && { minLength: least }),
      ...(Number.isFinite(maxLength) && { maxLength }),
      ...(format !== undefined && { format }),
    }
  }
  if (kind !== 'integer' && kind !== 'float') return {}
  const [minimum, maximum] = [argument('min'), argument('max')].map((bound) => [bound].flat()[0])
  return {
    ...(typeof minimum === 'number' && { minimum }),
    ...(typeof maximum === 'number' && { maximum }),
  }
}

const textFormats = [
  ['isEmail', 'email'],
  ['isUrl', 'uri'],
  ['isUUID', 'uuid'],
] as const

/** A JSON Schema, or a part of the document. */
export type Json = { [member: string]: unknown }

/** The replacement for a collection's rows in the shapes of its routes. */
export type Stand = (represents: NonNullable<Representing['represents']>) => Json

/** Annotations that mean nothing to others. */
const own: ReadonlySet<string> = new Set(['refusal', 'lenient', 'unchecked', 'unknown', 'represents', '$id'])
/** Formats that no one else knows: programs would warn of them, or refuse the shape. */
const ownFormats: ReadonlySet<unknown> = new Set(['unicode'])
const ofSchemas: ReadonlySet<string> = new Set([
  'items',
  'additionalProperties',
  'not',
  'if',
  'then',
  'else',
  'contains',
  'contentSchema',
])
const ofLists: ReadonlySet<string> = new Set(['anyOf', 'allOf', 'oneOf', 'prefixItems'])
const ofMaps: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions'])

/**
 * A declared shape as the document has it: without our annotations, and where `stand` is given with it in place of what
 * represents rows.
 */
export function schemaOf(shape: TSchema, stand?: Stand): Json {
  return plain(shape as unknown as Json, stand)
}

/** Shapes that do not represent rows are the same for every collection: two hundred of them share one. */
function plain(shape: Json, stand: Stand | undefined): Json {
  return stand === undefined || !mentionsRows(shape) ? plainShared(shape) : plainOf(shape, stand)
}

const plainShared = oncePer((shape: Json): Json => plainOf(shape, undefined))

const mentionsRows = oncePer(
  (shape: Json): boolean =>
    (shape as Representing).represents !== undefined ||
    Object.values(shape).some((part) => part !== null && typeof part === 'object' && mentionsRows(part as Json)),
)

function plainOf(shape: Json, stand: Stand | undefined): Json {
  const { represents } = shape as Representing
  if (represents !== undefined && stand !== undefined) return stand(represents)
  // A schema that an extension shares with its routes by a name of its own is not in the document.
  if (typeof shape.$ref === 'string') return {}
  const schema: Json = {}
  for (const [keyword, value] of Object.entries(shape)) {
    if (own.has(keyword) || typeof value === 'function' || value === undefined) continue
    // Examples of rows are of no collection in particular.
    if (keyword === 'examples' && stand !== undefined && mentionsRows(shape)) continue
    if (keyword === 'format' && ownFormats.has(value)) continue
    if (keyword === 'patternProperties') schema.additionalProperties = ofRecord(value as Json, stand)
    else schema[keyword] = partOf(keyword, value, stand)
  }
  return schema
}

function partOf(keyword: string, value: unknown, stand: Stand | undefined): unknown {
  if (ofLists.has(keyword) || Array.isArray(value))
    return ofLists.has(keyword) || keyword === 'items' ? (value as Json[]).map((one) => plain(one, stand)) : value
  if (value === null || typeof value !== 'object') return value
  if (ofSchemas.has(keyword)) return plain(value as Json, stand)
  if (!ofMaps.has(keyword)) return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member as Json, stand)]))
}

/** A record has one pattern, which all of its names match. */
function ofRecord(patterns: Json, stand: Stand | undefined): Json {
  return plain((Object.values(patterns)[0] ?? {}) as Json, stand)
}
