import { type BoundedMemory, openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { oncePer } from '../../../language/once.ts'
import type { Access } from '../../../query/access.ts'
import { plainFilter } from '../../../query/parse.ts'
import type { Plan } from '../../../query/resolve.ts'
import type { Statement } from '../../../query/sql.ts'
import {
  type BoundPlan,
  bindPlan,
  bindStatement,
  type PlanTemplate,
  type StatementTemplate,
  templateOfFilter,
  templateOfPlan,
  templateOfStatement,
} from '../../../query/template.ts'

/** A query as a plan, with its statement as soon as that was needed. */
export type PreparedPlan = {
  readonly plan: Plan
  statement?: Statement
  /** Set where it is a cached template with the values of this query. */
  readonly binding?: { readonly kept: CachedTemplate; readonly bound: BoundPlan }
}

type CachedTemplate = { readonly template: PlanTemplate; statement?: StatementTemplate }
/** In place of the template of questions that have none. */
type NoTemplate = { readonly template: undefined }

/** A question: `name` tells kinds of questions and their collections apart, `raw` is the query string. */
type PlanQuestion = { readonly name: string; readonly raw: RawQuery }

type RawQuery = Readonly<Record<string, unknown>>

/**
 * The plan of a question from memory, or the one that `resolve` makes of its query string, in which the filter may be
 * parsed already. To resolve and compile a question costs as much as the rest of its way through this process, and
 * clients ask few different ones, or many that differ in the values of their filter only.
 *
 * Exact: a plan is cached with the catalog that it was resolved against and found by everything else that resolving looks
 * at, which is the question, but for values that are read anew each time (query/template.ts), and what the caller may
 * (`Access.meaning`). A question that could name a variable is always resolved anew; errors and plans that
 * name the time are never cached.
 */
export function preparedPlan(
  catalog: Catalog,
  access: Access,
  { name, raw }: PlanQuestion,
  resolve: (raw: RawQuery) => Plan,
): PreparedPlan {
  const meaning = access.meaning?.()
  const rest = meaning === undefined ? undefined : withoutFilter(raw)
  if (rest === undefined) return { plan: resolve(raw) }
  const memory = memoryOf(catalog)
  const unfiltered = `${meaning} ${name} ${rest.text}`
  if (!rest.hasFilter) return cachedExactly(memory, unfiltered, () => resolve(raw))
  const filter = plainFilter(raw)
  const plan = () => resolve({ ...Object.fromEntries(Object.entries(raw).filter(([key]) => !isOfFilter(key))), filter })
  const { text, values } = templateOfFilter(filter)
  const key = `${unfiltered} ${text}`
  if (values.length === 0) return cachedExactly(memory, key, plan)
  const kept = memory.templates.get(key)
  if (kept === undefined) return cachedAsTemplate(memory, key, plan, values)
  if (kept.template === undefined) return cachedExactly(memory, `${key} ${JSON.stringify(values)}`, plan)
  const bound = bindPlan(kept.template, values)
  return bound === undefined ? { plan: plan() } : { plan: bound.plan, binding: { kept, bound } }
}

/** The statement of a plan; always with the same `compile`. */
export function statementOf(prepared: PreparedPlan, compile: (plan: Plan) => Statement): Statement {
  const { binding } = prepared
  if (binding !== undefined) {
    binding.kept.statement ??= templateOfStatement(binding.kept.template, compile)
    return bindStatement(binding.kept.statement, binding.bound)
  }
  prepared.statement ??= compile(prepared.plan)
  return prepared.statement
}

const largestQuestion = 4000

const isOfFilter = (key: string): boolean => key === 'filter' || key.startsWith('filter[')

/** All of a question but its filter, as a text of its own; undefined for one that is not cached. */
function withoutFilter(raw: RawQuery): { readonly text: string; readonly hasFilter: boolean } | undefined {
  let text = ''
  let length = 0
  let hasFilter = false
  for (const key of Object.keys(raw)) {
    const value = raw[key]
    if (typeof value !== 'string' || mayNameVariables.test(value)) return undefined
    length += key.length + value.length
    if (isOfFilter(key)) hasFilter = true
    // With the lengths, as no character is free to stand between them.
    else text += `${key.length},${value.length},${key}${value}`
  }
  return length <= largestQuestion ? { text, hasFilter } : undefined
}

/** A variable begins with `$`, which JSON may also write as an escape. */
const mayNameVariables = /\$|\\u/

type PlanMemory = {
  readonly plans: BoundedMemory<PreparedPlan>
  readonly templates: BoundedMemory<CachedTemplate | NoTemplate>
  readonly once: Set<string>
}

const memoryOf = oncePer(
  (_catalog: Catalog): PlanMemory => ({
    plans: openBoundedMemory<PreparedPlan>(bounds),
    templates: openBoundedMemory<CachedTemplate | NoTemplate>(bounds),
    once: new Set(),
  }),
)

/** A guess at objects and statement of a plan: about ten times the text of its question, and never little. */
const bounds = {
  maxBytes: 8_000_000,
  maxEntryBytes: 64_000,
  sizeOf: (_kept: object, key: string) => 8000 + 10 * key.length,
}

function cachedExactly({ plans, once }: PlanMemory, key: string, plan: () => Plan): PreparedPlan {
  const known = plans.get(key)
  if (known !== undefined) return known
  const made: PreparedPlan = { plan: plan() }
  if (isLasting(made.plan) && isRepeated(once, key)) plans.set(key, made, 0)
  return made
}

function cachedAsTemplate(
  { templates, once }: PlanMemory,
  key: string,
  plan: () => Plan,
  values: readonly unknown[],
): PreparedPlan {
  const made = plan()
  if (isLasting(made) && isRepeated(once, key)) {
    templates.set(key, { template: templateOfPlan(made, values) }, 0)
  }
  return { plan: made }
}

const isLasting = ({ time }: Plan): boolean => time === undefined

/** A question that is asked once is not worth the collector's work. */
function isRepeated(once: Set<string>, key: string): boolean {
  if (once.delete(key)) return true
  if (once.size >= 2000) once.clear()
  once.add(key)
  return false
}
