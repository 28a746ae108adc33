/** Definitions as they are edited: the JSON of `GET /schemas`, of which the server has added some entries itself. */

export type Entry = Readonly<Record<string, unknown>>

export type Index = {
  readonly name?: string
  readonly fields: readonly string[]
  readonly unique?: boolean
  readonly nullsNotDistinct?: boolean
  readonly type?: string
  readonly SystemGenerated?: unknown
}

export type Constraint = {
  readonly type: string
  readonly name?: string
  readonly fields?: readonly string[]
  readonly nullsNotDistinct?: boolean
  readonly expression?: string
}

export type Schema = {
  readonly name?: string
  readonly description?: string
  readonly isJunction?: boolean
  readonly fields: Readonly<Record<string, Entry>>
  readonly indexes?: readonly Index[]
  readonly constraints?: readonly Constraint[] | Readonly<Record<string, Omit<Constraint, 'name'>>>
  readonly [other: string]: unknown
}

export type Definition = { readonly collectionName: string; readonly schema: Schema }

export const isSystem = (collection: string): boolean => collection.startsWith('svc_')

/** Whether the server has added an entry, which nobody declares then. */
export const isAdded = ({ SystemGenerated }: { readonly SystemGenerated?: unknown }): boolean =>
  SystemGenerated === true || SystemGenerated === 'true'

export const isRelation = ({ relType }: Entry): boolean => typeof relType === 'string'

type Named = { readonly name: string; readonly entry: Entry }

const entriesOf = ({ fields }: Schema): readonly Named[] =>
  Object.entries(fields).map(([name, entry]) => ({ name, entry }))

export const columnsOf = (schema: Schema): readonly Named[] =>
  entriesOf(schema).filter(({ entry }) => !isRelation(entry))

export const relationsOf = (schema: Schema): readonly Named[] =>
  entriesOf(schema).filter(({ entry }) => isRelation(entry))

/** A declaration as it is sent back. */
export function declaredOf(schema: Schema): Schema {
  const declared = Object.entries(schema.fields).filter(([, entry]) => !isAdded(entry))
  return { ...schema, fields: Object.fromEntries(declared) }
}

/** In one form, each with the name that the server gives it unless it is named. */
export function constraintsOf(collection: string, { constraints }: Schema): readonly (Constraint & { name: string })[] {
  const list: readonly Constraint[] = isList(constraints)
    ? constraints
    : Object.entries(constraints ?? {}).map(([name, one]) => ({ ...one, name }))
  return list.map((one) => ({ ...one, name: one.name ?? `${collection}_${(one.fields ?? []).join('_')}_key` }))
}

const isList = (value: Schema['constraints']): value is readonly Constraint[] => Array.isArray(value)

export const indexName = (collection: string, { name, fields }: Index): string =>
  name ?? `${collection}_${fields.join('_')}_idx`

const kinds: Readonly<Record<string, string>> = {
  BelongsTo: 'many to one',
  HasMany: 'one to many',
  HasOne: 'one to one',
  BelongsToMany: 'many to many',
}

/** A relation's kind in words. */
export function kindOf(schema: Schema, { relType, polymorphic, foreignKey }: Entry): string {
  if (polymorphic === true) return 'many to any'
  const isUnique = relType === 'BelongsTo' && schema.fields[String(foreignKey)]?.unique === true
  return isUnique ? 'one to one' : (kinds[String(relType)] ?? String(relType))
}

/** An entry without a member, or with another value of it; undefined and empty text take it away. */
export function withMember(entry: Entry, name: string, value: unknown): Entry {
  const { [name]: _, ...others } = entry
  return value === undefined || value === '' ? others : { ...others, [name]: value }
}

/** The same one step deeper; an object that is empty then goes with it. */
export function withPart(entry: Entry, member: string, name: string, value: unknown): Entry {
  const part = withMember(objectOf(entry[member]), name, value)
  return withMember(entry, member, Object.keys(part).length === 0 ? undefined : part)
}

export const objectOf = (value: unknown): Entry =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Entry) : {}

/** Types with their names for people, the usual ones first. */
export const types: Readonly<Record<string, string>> = {
  String: 'Short text',
  Text: 'Long text',
  Integer: 'Whole number',
  Decimal: 'Exact number',
  Boolean: 'Yes or no',
  DateTime: 'Date and time',
  Date: 'Date',
  ENUM: 'One of a list',
  JSON: 'JSON',
  UUID: 'UUID',
  HTML: 'Formatted text',
  CiText: 'Text, upper and lower case alike',
  BigInt: 'Large whole number',
  Double: 'Floating-point number',
  Float: 'Floating-point number of 4 bytes',
  Time: 'Time of day',
  DateTime_NO_TZ: 'Date and time without zone',
  Time_NO_TZ: 'Time of day without zone',
  SUID: 'Short random id',
  TOKEN: 'Random token',
  VIRTUAL: 'Calculated',
  Array_String: 'List of texts',
  Array_Integer: 'List of whole numbers',
  Array_Decimal: 'List of exact numbers',
  Array_Double: 'List of floating-point numbers',
  Array_Boolean: 'List of yes and no',
  Array_UUID: 'List of UUIDs',
  Array_DateTime: 'List of dates with times',
  Array_DateTime_NO_TZ: 'List of dates with times without zone',
  Array_Date: 'List of dates',
  Array_Time: 'List of times of day',
  Array_Time_NO_TZ: 'List of times of day without zone',
  Range_Integer: 'Range of whole numbers',
  Range_Decimal: 'Range of exact numbers',
  Range_Double: 'Range of floating-point numbers',
  Range_DateTime: 'Span of dates with times',
  Range_DateTime_NO_TZ: 'Span of dates with times without zone',
  Range_Date: 'Span of dates',
  Range_Time: 'Span of times of day',
  Range_Time_NO_TZ: 'Span of times of day without zone',
  Point: 'Point on the map',
  LineString: 'Line on the map',
  Polygon: 'Area on the map',
  MultiPoint: 'Points on the map',
  MultiLineString: 'Lines on the map',
  MultiPolygon: 'Areas on the map',
  GeometryCollection: 'Shapes on the map',
  Geography: 'Place on the globe',
  Vector: 'Vector',
  HalfVec: 'Vector of half precision',
  SparseVec: 'Sparse vector',
}
