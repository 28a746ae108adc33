/** Fields: their types, and one column with its default from the JSON of a definition. */

import { quoteText } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import type { Default, Field, FieldJson, Kind } from './catalog.ts'
import { sameFields, shownFields } from './system-collections.ts'
import { ruleProblems, rulesProblem } from './validate.ts'
import { readValue } from './values.ts'

/** The `values` member of a field definition, as far as types read it. */
type TypeValues = {
  readonly length?: number | undefined
  readonly precision?: number | undefined
  readonly scale?: number | undefined
  readonly srid?: number | undefined
  readonly dimensions?: number | undefined
}

/** An extension that a type needs; the variable that turns it on is in {@link switchOf}. */
export type Extension = 'citext' | 'postgis' | 'vector'

type FieldType = {
  readonly kind: Kind
  readonly pgType: (values: TypeValues) => string
  readonly element?: Kind
  readonly extension?: Extension
  /** For fields that declare no default of their own. */
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

/** The types of fields by their names in definitions. */
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

/* A column. */

/** One column from its stored JSON. 400 that names the collection and the field for whatever does not fit. */
export function fieldOf(collection: string, name: string, json: FieldJson): Field {
  return readField(collection, name, json, (problem) => {
    throw invalid(collection, `field ${name} ${problem}`)
  })
}

/** As {@link fieldOf}; `refuse` is called with the problem. */
export function readField(collection: string, name: string, json: FieldJson, refuse: Refuse): Field {
  const typeName = typeNameOf(json)
  const type = fieldTypes[typeName] ?? refuse(`has unknown type ${JSON.stringify(json.type)}`)
  const primaryKey = flag(json, 'primaryKey', refuse)
  const field: Field = {
    name,
    type: typeName,
    kind: type.kind,
    pgType: type.pgType(typeValues(typeName, json, refuse)),
    element: type.element,
    primaryKey,
    nullable: !primaryKey && flag(json, 'allowNull', refuse, true),
    unique: flag(json, 'unique', refuse),
    default: readDefault(json.defaultValue, type, refuse),
    generated: typeName === 'VIRTUAL' ? calculation(json.calculated, refuse) : undefined,
    enumValues: type.kind === 'enum' ? enumValuesOf(json.values, refuse) : undefined,
    hidden: flag(json, 'hidden', refuse),
    unlogged: flag(json, 'unlogged', refuse),
    shownBy: shownFields.get(`${collection}.${name}`),
    sameAs: sameFields.get(`${collection}.${name}`),
    validate: rulesOf(json.validate, refuse),
    systemGenerated: json.SystemGenerated === true || json.SystemGenerated === 'true',
  }
  if (primaryKey) checkKey(field, refuse)
  checkRules(field, refuse)
  return field
}

export function invalid(collection: string, problem: string): AppError {
  return new AppError(400, `Invalid schema for ${collection}: ${problem}`, { code: 'INVALID_SCHEMA' })
}

export function objectOrUndefined(value: unknown): FieldJson | undefined {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as FieldJson) : undefined
}

/** A switch of a definition: absent, a boolean, or its word; anything else is a mistake that must not pass as false. */
export function flag(json: FieldJson, key: string, refuse: Refuse, absent = false): boolean {
  const value = json[key]
  if (value === undefined || value === null) return absent
  if (value === true || value === 'true') return true
  return value === false || value === 'false' ? false : refuse(`needs true or false as ${key}`)
}

/** `Array` with the element in `values.type` is another spelling of `Array_Integer` and the like. */
function typeNameOf({ type, values }: FieldJson): string {
  const element = objectOrUndefined(values)?.type
  const name = type === 'Array' && typeof element === 'string' ? `Array_${element}` : type
  return typeof name === 'string' && Object.hasOwn(fieldTypes, name) ? name : ''
}

function typeValues(type: string, json: FieldJson, refuse: Refuse): TypeValues {
  const values = objectOrUndefined(json.values) ?? {}
  const read = (value: unknown, most: number) => wholeNumber(value, most, refuse)
  const dimensions = read(values.dimensions, type === 'SparseVec' ? 1_000_000_000 : 16_000)
  if (fieldTypes[type]?.kind === 'vector' && !dimensions) refuse('needs values.dimensions')
  return {
    length: read(values.stringLength ?? values.length, 10_485_760),
    precision: read(values.precision, 1000),
    scale: read(values.scale, 1000),
    srid: read(values.srid, 999_999),
    dimensions,
  }
}

function wholeNumber(value: unknown, most: number, refuse: Refuse): number | undefined {
  if (value === undefined || value === null || value === '') return undefined
  const number = typeof value === 'number' || typeof value === 'string' ? Number(value) : Number.NaN
  if (Number.isInteger(number) && number >= 0 && number <= most) return number
  return refuse(`needs whole numbers up to ${most} in values`)
}

function calculation(value: unknown, refuse: Refuse): string {
  if (typeof value !== 'string') return refuse('needs calculated, an SQL expression')
  const problem = expressionProblem(value)
  return problem === undefined ? value : refuse(`cannot be calculated: ${problem}`)
}

function enumValuesOf(values: unknown, refuse: Refuse): readonly string[] {
  const list = Array.isArray(values) ? values : objectOrUndefined(values)?.values
  if (!Array.isArray(list) || list.length === 0 || !list.every((value) => typeof value === 'string'))
    return refuse('needs values, a list of strings')
  return [...new Set(list as string[])]
}

function rulesOf(validate: unknown, refuse: Refuse): FieldJson | undefined {
  if (validate === undefined || validate === null) return undefined
  return objectOrUndefined(validate) ?? refuse('needs an object as validate')
}

const keyKinds: ReadonlySet<Kind> = new Set(['uuid', 'text', 'integer', 'bigint'])

function checkKey(field: Field, refuse: Refuse): void {
  if (!keyKinds.has(field.kind) || field.generated !== undefined)
    refuse('cannot be the primary key: that is a UUID, an Integer, a BigInt or a String')
  if (field.hidden) refuse('cannot be hidden: it is the primary key')
}

function checkRules(field: Field, refuse: Refuse): void {
  const problem = rulesProblem(field)
  if (problem !== undefined) refuse(`is not valid: ${problem}`)
  if (field.generated !== undefined && field.default !== undefined) refuse('is calculated and cannot have a default')
  checkDefault(field, refuse)
}

/* Defaults. */

/** Ends the reading of a field with what is wrong with it. */
type Refuse = (problem: string) => never

/**
 * The default of a field from its JSON: `{type:'NOW'}` and the like, `{type:'SQL', value}`, `{value: x}`, or a plain
 * literal. Without one the type's own counts; an explicit null means none.
 */
function readDefault(json: unknown, type: FieldType, refuse: Refuse): Default | undefined {
  if (json === undefined) return type.default
  if (json === null) return undefined
  if (typeof json !== 'object' || Array.isArray(json)) return { kind: 'literal', value: json }
  const { type: name, value } = json as { type?: unknown; value?: unknown }
  const others = Object.keys(json).filter((key) => key !== 'type' && key !== 'value')
  if (others.length === 0 && name === 'SQL') return { kind: 'sql', expression: readExpression(value, refuse) }
  const named = typeof name === 'string' && Object.hasOwn(namedDefaults, name) ? namedDefaults[name] : undefined
  if (others.length === 0 && named !== undefined) return named
  if (others.length === 0 && name === undefined && value !== undefined) return { kind: 'literal', value }
  if (objectKinds.has(type.kind)) return { kind: 'literal', value: json }
  return refuse(`has unknown default type ${JSON.stringify(name)}`)
}

/** Refuses a default that cannot be stored when the field is declared, not at the first insert. */
function checkDefault(field: Field, refuse: Refuse): void {
  const { default: chosen } = field
  if (chosen === undefined) return
  const kinds = kindsOf[chosen.kind]
  if (kinds !== undefined && !kinds.has(field.kind))
    refuse(`has a default that does not fit type ${field.type}: it needs ${[...kinds].join(', ')}`)
  if (chosen.kind === 'literal') checkLiteral(field, chosen.value, refuse)
}

/**
 * The SQL expression that gives a column its default; undefined where there is none, where the column counts by itself
 * (AUTOINCREMENT) and where the server fills the value in (current user, current tenant).
 */
export function defaultExpression({ default: chosen, ...field }: Field): string | undefined {
  switch (chosen?.kind) {
    case 'uuid':
      return field.kind === 'uuid' ? 'gen_random_uuid()' : 'gen_random_uuid()::text'
    case 'suid':
      return 'svc_short_id()'
    case 'token':
      return 'svc_token()'
    case 'now':
      return nowSql(field.kind)
    case 'sql':
      return `(${chosen.expression})`
    case 'literal':
      return literalSql({ ...field, default: chosen }, chosen.value)
    default:
      return undefined
  }
}

const namedDefaults: Readonly<Record<string, Default>> = {
  UUIDV4: { kind: 'uuid' },
  SUID: { kind: 'suid' },
  TOKEN: { kind: 'token' },
  NOW: { kind: 'now' },
  AUTOINCREMENT: { kind: 'autoincrement' },
  CURRENT_USER: { kind: 'current_user' },
  CURRENT_TENANT: { kind: 'current_tenant' },
}

/** Kinds whose literals are objects themselves. */
const objectKinds: ReadonlySet<Kind> = new Set(['json', 'range', 'geometry', 'geography'])

const ids: ReadonlySet<Kind> = new Set(['uuid', 'text'])
const texts: ReadonlySet<Kind> = new Set(['text'])

const kindsOf: Readonly<Partial<Record<Default['kind'], ReadonlySet<Kind>>>> = {
  uuid: ids,
  suid: texts,
  token: texts,
  now: new Set(['datetime', 'datetime_no_tz', 'date', 'time', 'time_no_tz']),
  autoincrement: new Set(['integer', 'bigint']),
  current_user: ids,
  current_tenant: ids,
}

function readExpression(value: unknown, refuse: Refuse): string {
  if (typeof value !== 'string') return refuse('needs defaultValue.value, an SQL expression')
  const problem = expressionProblem(value)
  return problem === undefined ? value : refuse(`has a bad default: ${problem}`)
}

function checkLiteral(field: Field, value: unknown, refuse: Refuse): void {
  const hint = meantDefault(value)
  if (!hasForm(value, field.kind, field.element) || !hasRoom(field, value))
    refuse(`has a default that does not fit type ${field.type}${hint}`)
  const problem = readingProblem(field, value) ?? ruleProblems(field, value)[0]?.message
  if (problem !== undefined) refuse(`has a default that does not fit: ${problem}${hint}`)
}

/** Of a text that is the name of what makes a default: `"CURRENT_USER"`, also as rules name it. */
function meantDefault(value: unknown): string {
  const name = typeof value === 'string' ? value.replace(/^\$/, '').toUpperCase() : ''
  return Object.hasOwn(namedDefaults, name) ? `, did you mean {"type": "${name}"}?` : ''
}

/** Stricter than payloads are read: a default of an Integer is a number, not its digits. */
function hasForm(value: unknown, kind: Kind, element?: Kind): boolean {
  switch (kind) {
    case 'json':
      return true
    case 'integer':
    case 'float':
      return typeof value === 'number'
    case 'bigint':
    case 'decimal':
      return typeof value === 'number' || typeof value === 'string'
    case 'boolean':
      return typeof value === 'boolean'
    case 'array':
      return Array.isArray(value) && value.every((entry) => entry === null || hasForm(entry, element ?? 'text'))
    case 'vector':
      return Array.isArray(value)
    case 'range':
    case 'geometry':
    case 'geography':
      return typeof value === 'object'
    default:
      return typeof value === 'string'
  }
}

/** PostgreSQL would look at the digits of a `numeric(p,s)` only when the default is used. */
function hasRoom({ kind, pgType }: Field, value: unknown): boolean {
  const [, precision, scale = '0'] = /^numeric\((\d+)(?:,(\d+))?\)$/.exec(pgType) ?? []
  if (kind !== 'decimal' || precision === undefined) return true
  return Math.abs(Number(value)) < 10 ** (Number(precision) - Number(scale))
}

function readingProblem(field: Field, value: unknown): string | undefined {
  try {
    readValue(value, field, field.name)
    return undefined
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return typeof error.details === 'string' ? error.details : error.message
  }
}

function nowSql(kind: Kind): string {
  const inUtc = `(now() at time zone 'UTC')`
  switch (kind) {
    case 'datetime':
      return 'now()'
    case 'time':
      return 'now()::timetz'
    case 'datetime_no_tz':
      return inUtc
    default:
      return kind === 'date' ? `${inUtc}::date` : `${inUtc}::time`
  }
}

function literalSql(field: Field, value: unknown): string {
  const { value: read } = readValue(value, field, field.name)
  switch (field.kind) {
    case 'array':
      return arraySql(field, read as unknown[])
    case 'geometry':
      return `ST_SetSRID(ST_GeomFromGeoJSON(${quoteText(String(read))}), ${sridOf(field)})`
    case 'geography':
      return `ST_GeomFromGeoJSON(${quoteText(String(read))})::geography`
    case 'vector':
      return `${quoteText(String(read))}::vector::${field.pgType}`
    default:
      return `${quoteText(String(read))}::${field.pgType}`
  }
}

function arraySql({ pgType }: Field, elements: readonly unknown[]): string {
  if (elements.length === 0) return `'{}'::${pgType}`
  const literals = elements.map((element) => (element === null ? 'null' : quoteText(String(element))))
  return `array[${literals.join(', ')}]::${pgType}`
}

function sridOf({ pgType }: Field): string {
  return /,(\d+)\)$/.exec(pgType)?.[1] ?? '4326'
}

/*
 * SQL expressions that administrators write into definitions: SQL defaults, VIRTUAL columns, CHECK constraints. They
 * become part of generated DDL between parentheses, so each must be one expression that cannot leave them. PostgreSQL
 * checks, when the change is made, what it means and that it has no subquery.
 */

const longestExpression = 2000

/** A quoted string or name; without backslashes (refused below) PostgreSQL ends them where this does. */
const quoted = /'(?:[^']|'')*'|"(?:[^"]|"")*"/g

/** The problem with the text as one SQL expression, if any. */
export function expressionProblem(text: string): string | undefined {
  if (text.trim() === '') return 'an SQL expression is empty'
  if (text.length > longestExpression) return `an SQL expression is longer than ${longestExpression} characters`
  if (/[\\\0]/.test(text)) return 'an SQL expression has a backslash or NUL'
  const bare = text.replace(quoted, '?')
  if (/['"]/.test(bare)) return 'an SQL expression has a quote that is not closed'
  if (/[;$]|--|\/\*/.test(bare)) return 'an SQL expression has a semicolon, a comment or a dollar sign'
  return isBalanced(bare) ? undefined : 'an SQL expression has brackets that do not match'
}

const closing: Readonly<Record<string, string>> = { '(': ')', '[': ']' }

function isBalanced(bare: string): boolean {
  const open: string[] = []
  for (const char of bare) {
    if (char in closing) open.push(closing[char]!)
    else if ((char === ')' || char === ']') && open.pop() !== char) return false
  }
  return open.length === 0
}
