import { type Access, everything } from './access.ts'

/** Definitions of collections as pages use them. */

/** A column of a collection, as its definition says and the console needs it. */
export type Field = {
  readonly name: string
  readonly type: string
  readonly kind: FieldKind
  /** How the members of an array behave. */
  readonly element: FieldKind | undefined
  readonly isKey: boolean
  readonly isRequired: boolean
  /** Nobody reads it, or the caller may not. */
  readonly isHidden: boolean
  /** The server fills it in: nobody writes it. */
  readonly isGenerated: boolean
  /** Whether the caller may give a new row a value of it, or change it. */
  readonly isCreatable: boolean
  readonly isChangeable: boolean
  readonly options: readonly string[]
  readonly maxLength: number | undefined
  /** The value of a new row that brings none, in words; undefined where it then has none, or a machine's. */
  readonly unlessGiven: string | undefined
  readonly description: string | undefined
  /** The editor of an extension that forms have for it: `{extension}/{editor}`. */
  readonly editor: string | undefined
  /** The relation whose key the column holds. */
  readonly relation: Relation | undefined
}

/** How a value is shown, edited and compared. */
export type FieldKind =
  | 'text'
  | 'long text'
  | 'integer'
  | 'decimal'
  | 'float'
  | 'boolean'
  | 'datetime'
  | 'datetime without zone'
  | 'date'
  | 'time'
  | 'json'
  | 'uuid'
  | 'enum'
  | 'array'
  | 'range'
  | 'geometry'
  | 'vector'

export type Relation = {
  readonly name: string
  readonly kind: 'one' | 'many' | 'links' | 'links to any'
  readonly target: string
  /** `one`: the column here that holds the key. `many`: the column there. */
  readonly foreignKey: string | undefined
  /** `links`: the collection between. */
  readonly through: string | undefined
  /** `links to any`: where it may lead. */
  readonly tables: readonly string[]
  /** Whether the caller may read a field of the rows that it leads to with the row itself. */
  readonly reads: (field: string) => boolean
  readonly isCreatable: boolean
  readonly isChangeable: boolean
}

export type Collection = {
  readonly name: string
  readonly label: string
  readonly description: string | undefined
  readonly isSystem: boolean
  readonly isJunction: boolean
  readonly isSoftDeleted: boolean
  /** The name of the field. */
  readonly key: string
  readonly fields: readonly Field[]
  readonly relations: readonly Relation[]
  /** The field whose value names a row for people. */
  readonly titleField: string
  /** The caller's rights on its rows, within the rules. */
  readonly mayCreate: boolean
  readonly mayUpdate: boolean
  readonly mayDelete: boolean
}

export type Catalog = ReadonlyMap<string, Collection>

/** The answer of `GET /openapi` to its caller. */
export type Description = {
  readonly paths: Readonly<Record<string, object>>
  readonly components: { readonly schemas: Readonly<Record<string, Shape>> }
}

/** Of a row, or of rows behind a relation. */
export type Shape = {
  readonly properties?: Readonly<Record<string, Shape>>
  readonly items?: Shape
  readonly anyOf?: readonly Shape[]
  readonly $ref?: string
}

/** As `GET /schemas` answers it. */
export type Definition = {
  readonly collectionName: string
  readonly schema: {
    readonly name?: string
    readonly description?: string
    readonly paranoid?: boolean
    readonly isJunction?: boolean
    readonly fields: Readonly<Record<string, Entry>>
  }
}

type Entry = {
  readonly type?: string
  readonly relType?: string
  readonly target?: string
  readonly as?: string
  readonly foreignKey?: string
  readonly through?: string
  readonly polymorphic?: boolean
  readonly tables?: readonly string[]
  readonly primaryKey?: boolean
  readonly allowNull?: boolean
  readonly hidden?: boolean
  readonly calculated?: string
  readonly SystemGenerated?: string | boolean
  readonly values?: unknown
  readonly description?: unknown
  readonly defaultValue?: unknown
  readonly editor?: unknown
}

/** A definition as pages use it, for somebody who may do so much. */
export function collectionOf({ collectionName, schema }: Definition, access: Access = everything): Collection {
  const entries = Object.entries(schema.fields)
  const relations = entries.filter(([, entry]) => entry.relType !== undefined).map((entry) => relationOf(entry, access))
  const fields = entries
    .filter(([, entry]) => entry.relType === undefined && entry.type !== undefined)
    .map(([name, entry]) => fieldOf(name, entry, relations, access))
    .sort((a, b) => placeOf(a, entries) - placeOf(b, entries))
  const key = fields.find(({ isKey }) => isKey)?.name ?? 'id'
  return {
    name: collectionName,
    label: schema.name ?? collectionName,
    description: schema.description,
    isSystem: collectionName.startsWith('svc_'),
    isJunction: schema.isJunction === true,
    isSoftDeleted: schema.paranoid === true,
    key,
    fields,
    relations,
    titleField: titleFieldOf(fields, key),
    mayCreate: access.creates !== undefined,
    mayUpdate: access.updates !== undefined,
    mayDelete: access.deletes,
  }
}

/** In the order of the definition: the key first, a relation's column where the relation stands, stamps last. */
function placeOf({ name, isKey, relation }: Field, entries: readonly (readonly [string, Entry])[]): number {
  if (isKey) return -1
  const place = entries.findIndex(([entry]) => entry === (stamps.has(name) ? name : (relation?.name ?? name)))
  return stamps.has(name) ? entries.length + place : place
}

const stamps = new Set(['createdAt', 'updatedAt', 'deletedAt', 'userCreated_Id', 'userUpdated_Id'])

function fieldOf(name: string, entry: Entry, relations: readonly Relation[], access: Access): Field {
  const type = entry.type ?? 'String'
  const isKey = entry.primaryKey === true
  const makesItself = Object(entry.defaultValue) as { type?: string }
  const isGenerated = type === 'VIRTUAL' || stamps.has(name) || makesItself.type === 'AUTOINCREMENT'
  return {
    name,
    type,
    ...kindsOf(type, entry.values),
    isKey,
    isRequired: entry.allowNull === false && entry.defaultValue === undefined && !isKey,
    isHidden: entry.hidden === true || !access.reads(name),
    isGenerated,
    isCreatable: !isGenerated && access.creates?.(name) === true,
    isChangeable: !isGenerated && !isKey && access.updates?.(name) === true,
    options: optionsOf(entry.values),
    maxLength: lengthOf(entry.values),
    unlessGiven: unlessGiven(entry.defaultValue),
    description: typeof entry.description === 'string' ? entry.description : undefined,
    editor: typeof entry.editor === 'string' ? entry.editor : undefined,
    relation: relations.find(({ kind, foreignKey }) => kind === 'one' && foreignKey === name),
  }
}

const made: Readonly<Record<string, string>> = { NOW: 'now', CURRENT_USER: 'you', CURRENT_TENANT: 'your tenant' }

function unlessGiven(stated: unknown): string | undefined {
  if (stated === undefined || stated === null) return undefined
  const { type, value } = Object(stated) as { type?: unknown; value?: unknown }
  const isPlain = typeof stated !== 'object' || Array.isArray(stated)
  if (type !== undefined && !isPlain) return made[String(type)]
  const literal = isPlain ? stated : value
  if (literal === undefined || literal === null) return undefined
  if (typeof literal === 'boolean') return literal ? 'yes' : 'no'
  return typeof literal === 'string' ? literal || undefined : JSON.stringify(literal)
}

/** The list of an ENUM. */
export function optionsOf(values: unknown): readonly string[] {
  const list = Array.isArray(values) ? values : (Object(values) as { values?: unknown }).values
  return Array.isArray(list) ? list.map(String) : []
}

function lengthOf(values: unknown): number | undefined {
  const { stringLength, length } = Object(values) as { stringLength?: unknown; length?: unknown }
  const longest = stringLength ?? length
  return typeof longest === 'number' ? longest : undefined
}

const kinds: Readonly<Record<string, FieldKind>> = {
  Text: 'long text',
  TEXT: 'long text',
  HTML: 'long text',
  Integer: 'integer',
  BigInt: 'integer',
  Decimal: 'decimal',
  Real: 'float',
  Float: 'float',
  Double: 'float',
  DOUBLE: 'float',
  Boolean: 'boolean',
  DateTime: 'datetime',
  DateTime_NO_TZ: 'datetime without zone',
  Date: 'date',
  Time: 'time',
  Time_NO_TZ: 'time',
  JSON: 'json',
  JSONB: 'json',
  UUID: 'uuid',
  ENUM: 'enum',
}

/** How values of a type behave. */
export function kindOf(type: string): FieldKind {
  const known = kinds[type]
  if (known !== undefined) return known
  if (type.startsWith('Array')) return 'array'
  if (type.startsWith('Range')) return 'range'
  if (/Vec(tor)?$/.test(type)) return 'vector'
  if (/Point|Line|Polygon|Geo/.test(type)) return 'geometry'
  return 'text'
}

/** How values of a type behave, and the members of those that are lists: `Array_String` is short for `Array` with `values`. */
export function kindsOf(type: string, values?: unknown): Pick<Field, 'kind' | 'element'> {
  const { type: named } = Object(values) as { type?: unknown }
  const element = /^Array_(.+)$/.exec(type)?.[1] ?? (type === 'Array' && typeof named === 'string' ? named : undefined)
  return { kind: kindOf(type), element: element === undefined ? undefined : kindOf(element) }
}

const relationKinds: Readonly<Record<string, Relation['kind']>> = {
  BelongsTo: 'one',
  M2O: 'one',
  HasMany: 'many',
  O2M: 'many',
  HasOne: 'many',
  O2O: 'many',
  BelongsToMany: 'links',
  M2M: 'links',
  M2A: 'links to any',
}

function relationOf([entryName, entry]: [string, Entry], access: Access): Relation {
  const name = entry.as ?? entryName
  const kind = entry.polymorphic === true ? 'links to any' : (relationKinds[entry.relType ?? ''] ?? 'many')
  return {
    name,
    kind,
    target: entry.target ?? '',
    foreignKey: entry.foreignKey ?? (kind === 'one' ? `${name}_Id` : undefined),
    through: entry.through,
    tables: entry.tables ?? [],
    reads: (field) => access.readsThrough(name, field),
    isCreatable: access.creates?.(name) === true,
    isChangeable: access.updates?.(name) === true,
  }
}

const names = ['name', 'title', 'label', 'subject', 'email', 'fullName', 'firstName', 'filename', 'code', 'slug', 'key']

/** The field that names a row for people: a usual name, or its first short text. */
function titleFieldOf(fields: readonly Field[], key: string): string {
  const shown = fields.filter(({ isHidden }) => !isHidden)
  const usual = names.find((name) => shown.some((field) => field.name === name))
  return usual ?? shown.find(({ kind, isKey }) => kind === 'text' && !isKey)?.name ?? key
}
