import type { Field, Kind } from '../../../catalog/catalog.ts'
import type { Json } from './shape.ts'

/** A field in rows that are answered. */
export function readSchema(field: Field, description: string | undefined): Json {
  const schema = formOf(field.kind, field.element, field.enumValues, 'answered')
  return { ...described(field, description), ...(field.nullable ? orNull(schema) : schema) }
}

/** A field in payloads: with its rules, and in every form that is taken. */
export function writeSchema(field: Field, description: string | undefined): Json {
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
export function keySchema({ kind, element, enumValues }: Field): Json {
  return formOf(kind, element, enumValues, 'answered')
}

type Direction = 'answered' | 'taken'

function formOf(
  kind: Kind,
  element: Kind | undefined,
  enumValues: readonly string[] | undefined,
  direction: Direction,
): Json {
  if (kind === 'enum') return { type: 'string', enum: [...(enumValues ?? [])] }
  if (kind === 'array')
    return { type: 'array', items: orNull(formOf(element ?? 'text', undefined, undefined, direction)) }
  if (kind === 'range') return rangeOf(orNull(formOf(element ?? 'integer', undefined, undefined, direction)), direction)
  const form = forms[kind]
  return { ...(direction === 'taken' ? (form.taken ?? form.answered) : form.answered) }
}

function rangeOf(bound: Json, direction: Direction): Json {
  const flag = { type: 'boolean' }
  const whole = {
    type: 'object',
    properties: { lower: bound, upper: bound, lowerInclusive: flag, upperInclusive: flag },
  }
  if (direction === 'answered') return whole
  return { anyOf: [whole, { type: 'array', items: bound, minItems: 2, maxItems: 2 }] }
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
export function orNull(schema: Json): Json {
  const { type, enum: words } = schema
  if (type === undefined) return Array.isArray(schema.anyOf) ? { ...schema, anyOf: [...schema.anyOf, isNull] } : schema
  return { ...schema, type: [type, 'null'].flat(), ...(Array.isArray(words) && { enum: [...words, null] }) }
}

const isNull = { type: 'null' }

/** What the JSON form of a type does not say by itself. */
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
