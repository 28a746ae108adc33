import type { Catalog, Collection, Field, Kind, Relation } from '../../../../src/catalog/catalog.ts'

/** The type names that the tests use, as catalog fields have them. */
const TYPES: Readonly<Record<string, [Kind, string, Kind?]>> = {
  String: ['text', 'varchar(255)'],
  Text: ['text', 'text'],
  Integer: ['integer', 'integer'],
  BigInt: ['bigint', 'bigint'],
  Decimal: ['decimal', 'numeric(12,2)'],
  Real: ['float', 'real'],
  Double: ['float', 'double precision'],
  Boolean: ['boolean', 'boolean'],
  DateTime: ['datetime', 'timestamptz'],
  DateTime_NO_TZ: ['datetime_no_tz', 'timestamp'],
  Date: ['date', 'date'],
  Time: ['time', 'timetz'],
  Time_NO_TZ: ['time_no_tz', 'time'],
  JSON: ['json', 'jsonb'],
  UUID: ['uuid', 'uuid'],
  ENUM: ['enum', 'varchar'],
  Array_Integer: ['array', 'integer[]', 'integer'],
  Array_String: ['array', 'text[]', 'text'],
  Array_Decimal: ['array', 'numeric[]', 'decimal'],
  Array_DateTime: ['array', 'timestamptz[]', 'datetime'],
  Array_Date: ['array', 'date[]', 'date'],
  Array_Boolean: ['array', 'boolean[]', 'boolean'],
  Array_UUID: ['array', 'uuid[]', 'uuid'],
  Range_Integer: ['range', 'int4range', 'integer'],
  Range_DateTime: ['range', 'tstzrange', 'datetime'],
  Range_Double: ['range', 'numrange', 'float'],
  Range_Decimal: ['range', 'numrange', 'decimal'],
  Range_Date: ['range', 'daterange', 'date'],
  Point: ['geometry', 'geometry(Point,4326)'],
  Polygon: ['geometry', 'geometry(Polygon,31287)'],
  Geography: ['geography', 'geography(Point,4326)'],
  Vector: ['vector', 'vector(3)'],
  SparseVec: ['vector', 'sparsevec(3)'],
}

/** A field of such a type; `id` is the primary key. */
export function field(name: string, type: string, more: Partial<Field> = {}): Field {
  const [kind, pgType, element] = TYPES[type]!
  const primaryKey = name === 'id'
  return {
    name,
    type,
    kind,
    pgType,
    element,
    nullable: !primaryKey,
    primaryKey,
    unique: false,
    default: undefined,
    generated: undefined,
    enumValues: undefined,
    hidden: false,
    unlogged: false,
    validate: undefined,
    systemGenerated: false,
    ...more,
  }
}

type RelationParts = Partial<Relation> & Pick<Relation, 'target'>

const relation = (name: string, kind: Relation['kind'], parts: RelationParts): Relation => ({
  name,
  kind,
  foreignKey: '',
  targetKey: 'id',
  through: undefined,
  otherKey: undefined,
  tables: [],
  discriminator: undefined,
  onDelete: 'NO ACTION',
  onUpdate: 'NO ACTION',
  constraint: true,
  ...parts,
})

export const belongsTo = (name: string, target: string, foreignKey = `${name}_Id`, more: Partial<Relation> = {}) =>
  relation(name, 'belongsTo', { target, foreignKey, ...more })
export const hasOne = (name: string, target: string, foreignKey: string) =>
  relation(name, 'hasOne', { target, foreignKey })
export const hasMany = (name: string, target: string, foreignKey: string) =>
  relation(name, 'hasMany', { target, foreignKey })
export const belongsToMany = (name: string, target: string, through: string, foreignKey: string, otherKey: string) =>
  relation(name, 'belongsToMany', { target, through, foreignKey, otherKey })
export const polymorphic = (name: string, target: string, foreignKey: string, tables: string[]) =>
  relation(name, 'polymorphic', { target, foreignKey, tables })

export type CollectionParts = {
  fields: Field[]
  relations?: Relation[]
  paranoid?: boolean
  sortEnabled?: boolean
  isJunction?: boolean
}

export function collection(name: string, parts: CollectionParts): Collection {
  const { fields, relations = [], paranoid = false, sortEnabled = false, isJunction = false } = parts
  return {
    name,
    system: name.startsWith('svc_'),
    primaryKey: fields.find((candidate) => candidate.primaryKey)!,
    fields: new Map(fields.map((each) => [each.name, each])),
    relations: new Map(relations.map((each) => [each.name, each])),
    indexes: [],
    timestamps: false,
    paranoid,
    usertrack: false,
    sortEnabled,
    logged: true,
    realtime: { enabled: false, actions: new Set() },
    cache: { wanted: undefined, ttlSeconds: undefined },
    writable: true,
    definition: { collectionName: name, schema: { fields: {}, isJunction } },
  }
}

export const catalogOf = (...collections: Collection[]): Catalog => ({
  version: 'test',
  collections: new Map(collections.map((each) => [each.name, each])),
})

/** A plain table for a collection, without constraints but the primary key. */
export function createTable({ name, fields }: Collection): string {
  const columns = [...fields.values()].map(
    (each) => `"${each.name}" ${each.pgType}${each.primaryKey ? ' primary key' : ''}`,
  )
  return `create table "${name}" (${columns.join(', ')})`
}
