/**
 * Queries that differ in the values of their filter only have plans that differ in operands only. A *template* is such a
 * plan, or its statement, with *slots* for the values of another query: these are read as `resolve` would read them, and
 * nothing else of resolving and compiling is done again.
 */
import { isObject, type ParamValue } from '../catalog/values.ts'
import type { Operand } from './operators.ts'
import type { Asked } from './plan.ts'
import { type Plan, withOperands } from './resolve.ts'
import { type Statement, statement } from './sql.ts'

export type Shape = { readonly text: string; readonly leaves: readonly unknown[] }

/** Of a filter that has passed `guard`. Two filters have the same text only if they are equal but for their leaves. */
export function shapeOf(filter: unknown): Shape {
  const leaves: unknown[] = []
  return { text: shapeText(filter, leaves), leaves }
}

function shapeText(value: unknown, leaves: unknown[]): string {
  if (isLeaf(value)) {
    leaves.push(value)
    return Array.isArray(value) ? '[]' : '?'
  }
  if (Array.isArray(value)) return `[${value.map((entry) => shapeText(entry, leaves))}]`
  if (!isObject(value)) return String(value)
  return `{${Object.entries(value).map(([key, entry]) => `${JSON.stringify(key)}:${shapeText(entry, leaves)}`)}}`
}

/** Switches and null are part of the shape: they choose between different tests. */
function isLeaf(value: unknown): boolean {
  if (typeof value === 'string' || typeof value === 'number') return true
  return Array.isArray(value) && !value.some((entry) => typeof entry === 'object' && entry !== null)
}

export type Form = {
  readonly plan: Plan
  /** What became of the leaves, in their order. */
  readonly asked: readonly Asked[]
}

/**
 * The form of a plan whose filter, the very object, has these leaves. Undefined unless each of them has become the operand
 * of one test: what else was looked at (the type of a cast, a part of an operand) may have decided more.
 */
export function formOf(plan: Plan, leaves: readonly unknown[]): Form | undefined {
  const asked = plan.asked.filter(({ raw }) => isLeaf(raw))
  const isWhole = asked.length === leaves.length && asked.every(({ raw }, i) => raw === leaves[i])
  return isWhole ? { plan, asked } : undefined
}

/** A form with the values of a query; `operands` in the order of its leaves. */
export type Filled = { readonly plan: Plan; readonly operands: readonly Operand[] }

/** Undefined where the values make another test than those that the form was made of. 400 as from `resolve`. */
export function fillForm({ plan, asked }: Form, leaves: readonly unknown[]): Filled | undefined {
  const operands = asked.map(({ operator, type, label }, i) => operator.read(leaves[i], type, label))
  if (!operands.every((operand, i) => isAlike(operand, asked[i]!.operand))) return undefined
  return { plan: exchange(plan, asked, operands), operands }
}

const exchange = (plan: Plan, asked: readonly Asked[], operands: readonly Operand[]): Plan =>
  withOperands(plan, new Map(asked.map(({ operand }, i) => [operand, operands[i]!])))

/** Whether both have the same text in a statement. */
const isAlike = (one: Operand, other: Operand): boolean =>
  one.variant === other.variant &&
  one.matchesNull === other.matchesNull &&
  one.values.length === other.values.length &&
  one.values.every(({ pgType }, i) => pgType === other.values[i]!.pgType)

/** The statement of a form. `blanks`: which of its values are those of which operand. */
export type StatementForm = {
  readonly statement: Statement
  readonly blanks: readonly { readonly at: number; readonly operand: number; readonly value: number }[]
}

/** `compile` looks at no value (compile.ts), so it can be shown marks in their place. */
export function statementFormOf({ plan, asked }: Form, compile: (plan: Plan) => Statement): StatementForm {
  const places = new Map<ParamValue, { readonly operand: number; readonly value: number }>()
  const marked = asked.map(({ operand }, number): Operand => {
    const values = operand.values.map(({ pgType }, value) => {
      const mark = `\0${number}.${value}`
      places.set(mark, { operand: number, value })
      return { value: mark, pgType }
    })
    return { ...operand, values }
  })
  const statement = compile(exchange(plan, asked, marked))
  const blanks = statement.values.flatMap((mark, at) => {
    const place = places.get(mark)
    return place === undefined ? [] : [{ at, ...place }]
  })
  return { statement, blanks }
}

export function fillStatement({ statement: { text, values }, blanks }: StatementForm, { operands }: Filled): Statement {
  const filled = [...values]
  for (const { at, operand, value } of blanks) filled[at] = operands[operand]!.values[value]!.value
  return statement(text, filled)
}
