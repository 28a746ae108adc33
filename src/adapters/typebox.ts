import type { TProperties, TSchema, Type as TypeBox } from 'typebox'
import type * as Checker from 'typebox/schema'
import { onFirstUse } from '../language/once.ts'

/*
 * TypeBox without what no process needs at its start: its index is 370 files, which took a tenth of a start. Shapes are built
 * here, exactly as TypeBox builds them; their types are TypeBox's. The checker is loaded when the first value is checked.
 */

type Builder = Pick<
  typeof TypeBox,
  | 'Any'
  | 'Array'
  | 'Boolean'
  | 'Integer'
  | 'Literal'
  | 'Null'
  | 'Number'
  | 'Object'
  | 'Optional'
  | 'Partial'
  | 'Record'
  | 'Refine'
  | 'String'
  | 'Union'
  | 'Unknown'
  | 'Unsafe'
>

type SchemaOptions = Readonly<Record<string, unknown>>
type ValueCheck = (value: never) => unknown

/** Builds shapes: `Type.Object({ name: Type.String({ minLength: 1 }) })`. */
export const Type = {
  Any: (options?: SchemaOptions) => made('Any', {}, options),
  Array: (items: TSchema, options?: SchemaOptions) => made('Array', { type: 'array', items }, options),
  Boolean: (options?: SchemaOptions) => made('Boolean', { type: 'boolean' }, options),
  Integer: (options?: SchemaOptions) => made('Integer', { type: 'integer' }, options),
  Literal: (value: string | number | boolean, options?: SchemaOptions) =>
    made('Literal', { type: typeof value, const: value }, options),
  Null: (options?: SchemaOptions) => made('Null', { type: 'null' }, options),
  Number: (options?: SchemaOptions) => made('Number', { type: 'number' }, options),
  Object: (properties: TProperties, options?: SchemaOptions) => {
    const required = Object.keys(properties).filter((name) => !('~optional' in properties[name]!))
    return made('Object', { type: 'object', ...(required.length > 0 && { required }), properties }, options)
  },
  Optional: (shape: TSchema) => marked(shape, { '~optional': true }),
  Partial: ({ properties }: { properties: TProperties }, options?: SchemaOptions) => {
    const optional = Object.entries(properties).map(([name, shape]) => [name, marked(shape, { '~optional': true })])
    return made('Object', { type: 'object', properties: Object.fromEntries(optional) }, options)
  },
  /** Of names that are any text. */
  Record: (_name: TSchema, value: TSchema, options?: SchemaOptions) =>
    made('Record', { type: 'object', patternProperties: { '^.*$': value } }, options),
  Refine: (shape: TSchema, check: ValueCheck, error = () => 'Refine Error') => {
    const before = (shape as { '~refine'?: readonly unknown[] })['~refine'] ?? []
    return marked(shape, { '~refine': [...before, { check, error }] })
  },
  String: (options?: SchemaOptions) => made('String', { type: 'string' }, options),
  Union: (anyOf: readonly TSchema[], options?: SchemaOptions) => made('Union', { anyOf }, options),
  Unknown: (options?: SchemaOptions) => made('Unknown', {}, options),
  Unsafe: (shape: TSchema) => marked(shape, { '~unsafe': null }),
} as unknown as Builder

const made = (kind: string, members: object, options: SchemaOptions = {}): TSchema =>
  marked({ ...members, ...options }, { '~kind': kind })

/** The same shape with members that are not shown, and that a copy by `...` leaves behind. */
function marked(shape: object, hidden: Readonly<Record<string, unknown>>): TSchema {
  const copy = Object.defineProperties({}, Object.getOwnPropertyDescriptors(shape))
  for (const [name, value] of Object.entries(hidden))
    Object.defineProperty(copy, name, { value, enumerable: false, writable: true, configurable: true })
  return copy
}

// Texts that PostgreSQL reads as a time, and as text.
const moment = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/
const formats: Readonly<Record<string, (value: string) => boolean>> = {
  'date-time': (value) => moment.test(value) && !Number.isNaN(Date.parse(value)),
  unicode: (value) => value.isWellFormed() && !value.includes('\0'),
}

const format = onFirstUse<typeof import('typebox/format')>('typebox/format')
const schema = onFirstUse<typeof Checker>('typebox/schema')

let hasFormats = false

function checker(): typeof Checker {
  if (!hasFormats) for (const [name, holds] of Object.entries(formats)) format().Set(name, holds)
  hasFormats = true
  return schema()
}

/** Whether a value fits a shape. To check many values, compile it. */
export const fits = (shape: TSchema, value: unknown): boolean => checker().Check(shape, value)

/** Makes the check of a shape code; that takes as long as some hundred checks. */
export function compiled(shape: TSchema): (value: unknown) => boolean {
  const validator = checker().Compile(shape)
  return (value) => validator.Check(value)
}

/** The problems of a value that does not fit. */
export const problemsOf = (shape: TSchema, value: unknown) => checker().Errors(shape, value)[1]
