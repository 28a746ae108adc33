import { quoteText } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import type { Default, Field, Kind } from './catalog.ts'
import { expressionProblem } from './expressions.ts'
import type { FieldType } from './field-types.ts'
import { ruleProblems } from './validate.ts'
import { readValue } from './values.ts'

/** Ends the reading of a field with what is wrong with it. */
export type Refuse = (problem: string) => never

/**
 * The default of a field from its JSON: `{type:'NOW'}` and the like, `{type:'SQL', value}`, `{value: x}`, or a plain
 * literal (spec/schemas.md §2). Without one the type's own counts; an explicit null means none.
 */
export function readDefault(json: unknown, type: FieldType, refuse: Refuse): Default | undefined {
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
export function checkDefault(field: Field, refuse: Refuse): void {
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
  if (!hasForm(value, field.kind, field.element) || !hasRoom(field, value))
    refuse(`has a default that does not fit type ${field.type}`)
  const problem = readingProblem(field, value) ?? ruleProblems(field, value)[0]?.message
  if (problem !== undefined) refuse(`has a default that does not fit: ${problem}`)
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
