import { type BoundedMemory, openBoundedMemory } from '../../adapters/bounded-memory.ts'
import type { Catalog } from '../../catalog/catalog.ts'
import { oncePer } from '../../once-per.ts'
import type { Access } from '../../query/access.ts'
import type { Plan } from '../../query/resolve.ts'
import type { Statement } from '../../query/sql.ts'

/** What a query has become, with its statement as soon as that was needed. */
export type PreparedPlan = { readonly plan: Plan; statement?: Statement }

/** What is asked for: `name` tells kinds of questions and their collections apart, `raw` is the query string. */
export type Question = { readonly name: string; readonly raw: Readonly<Record<string, unknown>> }

/**
 * The plan of a question from memory, or the one that `resolve` makes. To resolve and compile a question costs as much as
 * the rest of its way through this process, and clients ask few different ones.
 *
 * Exact: a plan is kept with the catalog that it was resolved against and found by everything else that resolving looks
 * at, which is the question and what the caller may (`Access.meaning`). A question that could name a variable is always
 * resolved anew; errors are never kept.
 */
export function preparedPlan(catalog: Catalog, access: Access, question: Question, resolve: () => Plan): PreparedPlan {
  const key = keyOf(access, question)
  if (key === undefined) return { plan: resolve() }
  const { kept, once } = memoryOf(catalog)
  const known = kept.get(key)
  if (known !== undefined) return known
  const made: PreparedPlan = { plan: resolve() }
  // A question that nobody repeats is not worth the collector's work.
  if (once.delete(key)) kept.set(key, made, 0)
  else remember(once, key)
  return made
}

/** The statement of a plan; always with the same `compile`. */
export function statementOf(prepared: PreparedPlan, compile: (plan: Plan) => Statement): Statement {
  prepared.statement ??= compile(prepared.plan)
  return prepared.statement
}

const largestQuestion = 4000

function keyOf(access: Access, { name, raw }: Question): string | undefined {
  const meaning = access.meaning?.()
  if (meaning === undefined) return undefined
  for (const value of Object.values(raw)) if (typeof value !== 'string') return undefined
  const text = JSON.stringify(raw)
  if (text.length > largestQuestion || mayNameVariables.test(text)) return undefined
  return `${meaning} ${name} ${text}`
}

/** A variable begins with `$`, which JSON within the JSON may also write as an escape. */
const mayNameVariables = /\$|\\\\u/

type Memory = { readonly kept: BoundedMemory<PreparedPlan>; readonly once: Set<string> }

const memoryOf = oncePer((_catalog: Catalog): Memory => ({ kept: openBoundedMemory(bounds), once: new Set() }))

/** A guess at objects and statement of a plan: about ten times the text of its question, and never little. */
const bounds = {
  maxBytes: 16_000_000,
  maxEntryBytes: 64_000,
  sizeOf: (_plan: PreparedPlan, key: string) => 8000 + 10 * key.length,
}

function remember(once: Set<string>, key: string): void {
  if (once.size >= 2000) once.clear()
  once.add(key)
}
