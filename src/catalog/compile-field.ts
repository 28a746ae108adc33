import { AppError } from '../errors.ts'
import type { Field, FieldJson, Kind } from './catalog.ts'
import { checkDefault, type Refuse, readDefault } from './defaults.ts'
import { expressionProblem } from './expressions.ts'
import { fieldTypes, type TypeValues } from './field-types.ts'
import { sameFields, shownFields } from './system-collections.ts'
import { rulesProblem } from './validate.ts'

/** One column from its stored JSON. 400 that names the collection and the field for whatever does not fit. */
export function fieldOf(collection: string, name: string, json: FieldJson): Field {
  return readField(collection, name, json, (problem) => {
    throw invalid(collection, `field ${name} ${problem}`)
  })
}

/** As {@link fieldOf}; `refuse` is told what does not fit. */
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
  const name = type === 'Array' ? `Array_${String(objectOrUndefined(values)?.type)}` : type
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
  const number = Number(value)
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
