/** What an operator of the filter language is, and the pieces that its table is made of. */
import type { Kind } from '../catalog/catalog.ts'
import { errors } from '../errors.ts'
import type { TypedValue } from './sql.ts'
import type { ValueType } from './values.ts'

export type Operator = {
  /** Kinds of column it applies to; undefined: all. */
  readonly kinds: ReadonlySet<Kind> | undefined
  /** Extension without which it does not exist. */
  readonly needs?: Extension
  /** The operand, variables already replaced; throws 400. `label` is the path named in errors. */
  readonly read: (raw: unknown, type: ValueType, label: string) => Operand
  /** `values` are the placeholders of the operand's values, in order. */
  readonly sql: (column: string, values: readonly string[], variant: string, type: ValueType) => string
}

export type Extension = 'postgis' | 'vector'

export type Operand = {
  readonly values: readonly TypedValue[]
  /** Chooses between the few texts an operator can become; from a closed set, never from the request. */
  readonly variant: string
  /** True where a missing value is what is asked for; on a relation path a missing row then counts too. */
  readonly matchesNull: boolean
}

export const operand = (values: readonly TypedValue[], variant = '', matchesNull = false): Operand => ({
  values,
  variant,
  matchesNull,
})

export const kinds = (...names: Kind[]): ReadonlySet<Kind> => new Set(names)

/** The comparison words of operators that carry one inside (`{ op, value }`). */
export const COMPARISONS: ReadonlyMap<unknown, string> = new Map([
  ['eq', '='],
  ['ne', '<>'],
  ['gt', '>'],
  ['gte', '>='],
  ['lt', '<'],
  ['lte', '<='],
])

/** true, "true", false, "false". */
export function readSwitch(raw: unknown, label: string): boolean {
  if (raw === true || raw === 'true') return true
  if (raw === false || raw === 'false') return false
  throw errors.badQuery(`${label}: expected true or false`)
}

export function readComparison(raw: unknown, label: string): string {
  const comparison = COMPARISONS.get(raw)
  if (comparison === undefined) throw errors.badQuery(`${label}: op must be eq, ne, gt, gte, lt or lte`)
  return comparison
}
