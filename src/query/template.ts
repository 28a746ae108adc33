/**
 * Queries that differ in the values of their filter only have plans that differ in operands only. A *template* is such a
 * plan, or its statement, with *slots*: the values of another query are read as `resolve` would read them and put there,
 * and nothing else of resolving and compiling is done again.
 *
 * The template of a filter is all of it but the values of its slots: the strings, the numbers and the lists of plain
 * values.
 */
import { isObject, type ParamValue } from '../catalog/values.ts'
import type { Operand } from './operators.ts'
import type { Slot } from './plan.ts'
import { type Plan, withOperands } from './resolve.ts'
import { type Statement, statement } from './sql.ts'

type FilterTemplate = { readonly text: string; readonly values: readonly unknown[] }

/** Of a filter that has passed `guard`. Two filters have the same text only if they are equal but for their values. */
export function templateOfFilter(filter: unknown): FilterTemplate {
  const values: unknown[] = []
  return { text: filterText(filter, values), values }
}

function filterText(value: unknown, values: unknown[]): string {
  if (fillsSlot(value)) {
    values.push(value)
    return Array.isArray(value) ? '[]' : '?'
  }
  if (Array.isArray(value)) return `[${value.map((entry) => filterText(entry, values))}]`
  if (!isObject(value)) return String(value)
  return `{${Object.entries(value).map(([key, entry]) => `${JSON.stringify(key)}:${filterText(entry, values)}`)}}`
}

/** Switches and null are part of the text: they choose between different tests. */
function fillsSlot(value: unknown): boolean {
  if (typeof value === 'string' || typeof value === 'number') return true
  return Array.isArray(value) && !value.some((entry) => typeof entry === 'object' && entry !== null)
}

/** `slots` in the order of the filter's values. */
export type PlanTemplate = { readonly plan: Plan; readonly slots: readonly Slot[] }

/**
 * The template of a plan whose filter, the very object, has these values. Undefined unless each of them has become the
 * operand of one test: what else was looked at (the type of a cast, a part of an operand) may have decided more.
 */
export function templateOfPlan(plan: Plan, values: readonly unknown[]): PlanTemplate | undefined {
  const slots = plan.slots.filter(({ raw }) => fillsSlot(raw))
  const isWhole = slots.length === values.length && slots.every(({ raw }, i) => raw === values[i])
  return isWhole ? { plan, slots } : undefined
}

/** A template with the values of a query; `operands` in the order of its slots. */
export type BoundPlan = { readonly plan: Plan; readonly operands: readonly Operand[] }

/** Undefined where the values make another test than those that the template was made of. 400 as from `resolve`. */
export function bindPlan({ plan, slots }: PlanTemplate, values: readonly unknown[]): BoundPlan | undefined {
  const operands = slots.map(({ operator, type, label }, i) => operator.read(values[i], type, label))
  if (!operands.every((operand, i) => isAlike(operand, slots[i]!.operand))) return undefined
  return { plan: exchange(plan, slots, operands), operands }
}

const exchange = (plan: Plan, slots: readonly Slot[], operands: readonly Operand[]): Plan =>
  withOperands(plan, new Map(slots.map(({ operand }, i) => [operand, operands[i]!])))

/** Whether both have the same text in a statement. */
const isAlike = (one: Operand, other: Operand): boolean =>
  one.variant === other.variant &&
  one.matchesNull === other.matchesNull &&
  one.values.length === other.values.length &&
  one.values.every(({ pgType }, i) => pgType === other.values[i]!.pgType)

/** `slots`: which of the statement's values are those of which operand. */
export type StatementTemplate = {
  readonly statement: Statement
  readonly slots: readonly { readonly at: number; readonly operand: number; readonly value: number }[]
}

/** `compile` looks at no value (compile.ts), so it can be shown marks in their place. */
export function templateOfStatement(
  { plan, slots: ofPlan }: PlanTemplate,
  compile: (plan: Plan) => Statement,
): StatementTemplate {
  const places = new Map<ParamValue, { readonly operand: number; readonly value: number }>()
  const marked = ofPlan.map(({ operand }, number): Operand => {
    const values = operand.values.map(({ pgType }, value) => {
      const mark = `\0${number}.${value}`
      places.set(mark, { operand: number, value })
      return { value: mark, pgType }
    })
    return { ...operand, values }
  })
  const statement = compile(exchange(plan, ofPlan, marked))
  const slots = statement.values.flatMap((mark, at) => {
    const place = places.get(mark)
    return place === undefined ? [] : [{ at, ...place }]
  })
  return { statement, slots }
}

export function bindStatement(
  { statement: { text, values, dependsOn }, slots }: StatementTemplate,
  { operands }: BoundPlan,
): Statement {
  const bound = [...values]
  for (const { at, operand, value } of slots) bound[at] = operands[operand]!.values[value]!.value
  return statement(text, bound, dependsOn)
}
