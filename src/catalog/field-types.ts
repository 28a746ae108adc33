import type { Default, Kind } from './catalog.ts'

/** The `values` member of a field definition, as far as types read it. */
export type TypeValues = {
  readonly length?: number | undefined
  readonly precision?: number | undefined
  readonly scale?: number | undefined
  readonly srid?: number | undefined
  readonly dimensions?: number | undefined
}

/** What a server must have for a type; which variable turns it on is in {@link switchOf}. */
export type Extension = 'citext' | 'postgis' | 'vector'

export type FieldType = {
  readonly kind: Kind
  readonly pgType: (values: TypeValues) => string
  readonly element?: Kind
  readonly extension?: Extension
  /** What a field gets that declares no default of its own. */
  readonly default?: Default
}

const plain = (kind: Kind, pgType: string): FieldType => ({ kind, pgType: () => pgType })
const array = (of: FieldType): FieldType => ({
  kind: 'array',
  pgType: (values) => `${of.pgType(values)}[]`,
  element: of.kind,
})
const range = (element: Kind, pgType: string): FieldType => ({ kind: 'range', pgType: () => pgType, element })
const geometry = (shape: string): FieldType => ({
  kind: 'geometry',
  pgType: ({ srid = wgs84 }) => `geometry(${shape},${srid})`,
  extension: 'postgis',
})
const vector = (pgType: string): FieldType => ({
  kind: 'vector',
  pgType: ({ dimensions }) => `${pgType}(${dimensions})`,
  extension: 'vector',
})

const wgs84 = 4326

const text = plain('text', 'text')
const varchar: FieldType = {
  kind: 'text',
  pgType: ({ length }) => (length === undefined ? 'text' : `varchar(${length})`),
}
const integer = plain('integer', 'integer')
const decimal: FieldType = { kind: 'decimal', pgType: numericType }
const real = plain('float', 'real')
const double = plain('float', 'double precision')
const boolean = plain('boolean', 'boolean')
const dateTime = plain('datetime', 'timestamptz')
const localDateTime = plain('datetime_no_tz', 'timestamp')
const date = plain('date', 'date')
const time = plain('time', 'timetz')
const localTime = plain('time_no_tz', 'time')
const json = plain('json', 'jsonb')
const uuid = plain('uuid', 'uuid')

/** Types of the specification by their names in `spec/schemas.md` §2. */
export const fieldTypes: Readonly<Record<string, FieldType>> = {
  String: varchar,
  Text: text,
  TEXT: text,
  HTML: text,
  CiText: { kind: 'text', pgType: () => 'citext', extension: 'citext' },
  Integer: integer,
  BigInt: plain('bigint', 'bigint'),
  Decimal: decimal,
  Real: real,
  Float: real,
  Double: double,
  DOUBLE: double,
  Boolean: boolean,
  DateTime: dateTime,
  DateTime_NO_TZ: localDateTime,
  Date: date,
  Time: time,
  Time_NO_TZ: localTime,
  JSON: json,
  JSONB: json,
  UUID: uuid,
  SUID: { ...text, default: { kind: 'suid' } },
  TOKEN: { ...plain('text', 'varchar(9)'), default: { kind: 'token' } },
  ENUM: plain('enum', 'text'),
  VIRTUAL: text,
  Array_Integer: array(integer),
  Array_String: array(varchar),
  Array_Double: array(double),
  Array_Decimal: array(decimal),
  Array_DateTime: array(dateTime),
  Array_DateTime_NO_TZ: array(localDateTime),
  Array_Date: array(date),
  Array_Time: array(time),
  Array_Time_NO_TZ: array(localTime),
  Array_UUID: array(uuid),
  Array_Boolean: array(boolean),
  Range_Integer: range('integer', 'int4range'),
  Range_DateTime: range('datetime', 'tstzrange'),
  Range_DateTime_NO_TZ: range('datetime_no_tz', 'tsrange'),
  Range_Time: range('time', 'svc_timetzrange'),
  Range_Time_NO_TZ: range('time_no_tz', 'svc_timerange'),
  // numeric holds every double exactly, so a range type of its own would only cost the built-in operators.
  Range_Double: range('float', 'numrange'),
  Range_Decimal: range('decimal', 'numrange'),
  Range_Date: range('date', 'daterange'),
  Point: geometry('Point'),
  LineString: geometry('LineString'),
  Polygon: geometry('Polygon'),
  MultiPoint: geometry('MultiPoint'),
  MultiLineString: geometry('MultiLineString'),
  MultiPolygon: geometry('MultiPolygon'),
  GeometryCollection: geometry('GeometryCollection'),
  Geography: {
    kind: 'geography',
    pgType: ({ srid = wgs84 }) => `geography(Point,${srid})`,
    extension: 'postgis',
  },
  Vector: vector('vector'),
  HalfVec: vector('halfvec'),
  SparseVec: vector('sparsevec'),
}

/** The extension a type needs; undefined for most. `type` is a {@link Field}'s, so it is known. */
export function extensionOf(type: string): Extension | undefined {
  return fieldTypes[type]?.extension
}

/** The variable that allows types of an extension; undefined where they are always allowed. */
export const switchOf: Readonly<Record<Extension, string | undefined>> = {
  citext: undefined,
  postgis: 'DATABASE_POSTGIS',
  vector: 'DATABASE_VECTOR',
}

function numericType({ precision, scale }: TypeValues): string {
  if (precision === undefined) return 'numeric'
  return scale === undefined ? `numeric(${precision})` : `numeric(${precision},${scale})`
}
