import type { Collection } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { parameterType, readValue } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { sqlState } from '../../../db/errors.ts'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { systemAccess } from '../../../query/access.ts'
import { compileCondition, compileOne } from '../../../query/compile.ts'
import { isObject } from '../../../query/guards.ts'
import { type Filter, parseListQuery, parseUntrustedFilter } from '../../../query/parse.ts'
import { type ResolvedFilter, resolveEnv, resolveOne } from '../../../query/resolve.ts'
import { createParams, ident, type Params, rowOfJson } from '../../../query/sql.ts'

/**
 * A stored condition, part by part: what each compares, with which value, what the item has there, and whether it holds. Each
 * part is compiled and asked of PostgreSQL as the whole rule is, so the parts cannot disagree with it.
 */
export type Term =
  | {
      readonly kind: 'all' | 'any' | 'not'
      readonly holds: boolean | null
      readonly terms: readonly Term[]
    }
  | {
      readonly kind: 'test'
      /** Dotted, from the collection. */
      readonly path: string
      /** As stored: a value or operators. */
      readonly stored: unknown
      /** The same with variables replaced. */
      readonly resolved: unknown
      /** The item's values at the path: one, or those of all related rows. Null where they cannot be shown. */
      readonly actual: readonly unknown[] | null
      readonly holds: boolean | null
    }

/** A part of a condition and its text as a condition of its own. */
type Test = { readonly filter: Filter; readonly stored: unknown; readonly parts: readonly Test[] }

/** A stored row, or one that is made up. */
type ExplainedItem = { readonly id: string } | { readonly record: Readonly<Record<string, unknown>> }

type Ways = {
  /** A part as the row rule of the same caller; undefined where it lets every row through. */
  condition(part: unknown): ResolvedFilter | undefined
  resolved(stored: unknown): unknown
  /** The item's values, by path. */
  readonly values: ReadonlyMap<string, readonly unknown[]>
}

/** More parts of one rule than this are not asked one by one. */
const partsAtMost = 200

export function testsIn(conditions: unknown): Test {
  return testOf(simple(parseUntrustedFilter(conditions)))
}

/** Without the groups of one that the parser makes. */
function simple(filter: Filter): Filter {
  if (filter.kind === 'entry') return filter
  if (filter.kind === 'not') return { kind: 'not', of: simple(filter.of) }
  const of = filter.of.map(simple)
  return of.length === 1 ? of[0]! : { kind: filter.kind, of }
}

function testOf(filter: Filter): Test {
  const parts = filter.kind === 'entry' ? operatorsOf(filter) : filter.kind === 'not' ? [filter.of] : filter.of
  return { filter, stored: storedOf(filter), parts: parts.map(testOf) }
}

/** Several operators on one path are so many tests, unless they are about related rows, where one row must meet all. */
function operatorsOf(filter: Filter): readonly Filter[] {
  if (filter.kind !== 'entry' || !isObject(filter.value) || filter.path.includes('.')) return []
  const names = Object.keys(filter.value)
  if (names.length < 2 || names.includes('cast') || !names.every((name) => comparisons.has(name))) return []
  return Object.entries(filter.value).map(([name, value]) => ({ ...filter, value: { [name]: value } }))
}

const comparisons = new Set(['eq', 'ne', 'gt', 'gte', 'lt', 'lte', 'in', 'notIn', 'like', 'iLike', 'isNull', 'between'])

function storedOf(filter: Filter): unknown {
  switch (filter.kind) {
    case 'entry':
      return { [filter.path]: filter.value }
    case 'not':
      return { NOT: storedOf(filter.of) }
    default:
      return { [filter.kind === 'and' ? 'AND' : 'OR']: filter.of.map(storedOf) }
  }
}

/** The parts with their answers for an item; without one nothing holds or fails. */
export async function termsOf(
  deps: Reads,
  collection: Collection,
  test: Test,
  item: ExplainedItem | undefined,
  ways: Ways,
): Promise<Term> {
  const all = flat(test)
  const answers = item === undefined || all.length > partsAtMost ? [] : await ask(deps, collection, all, item, ways)
  const holds = new Map(all.map((one, i) => [one, answers[i] ?? null]))
  const termOf = (one: Test): Term => {
    const { filter, parts } = one
    if (filter.kind === 'entry' && parts.length === 0)
      return {
        kind: 'test',
        path: filter.path,
        stored: filter.value,
        resolved: ways.resolved(filter.value),
        actual: ways.values.get(filter.path) ?? null,
        holds: holds.get(one)!,
      }
    const kind = filter.kind === 'or' ? 'any' : filter.kind === 'not' ? 'not' : 'all'
    return { kind, holds: holds.get(one)!, terms: parts.map(termOf) }
  }
  return termOf(test)
}

const flat = (test: Test): readonly Test[] => [test, ...test.parts.flatMap(flat)]

async function ask(
  { db }: Reads,
  collection: Collection,
  tests: readonly Test[],
  item: ExplainedItem,
  ways: Ways,
): Promise<readonly (boolean | null)[]> {
  const params = createParams()
  const columns = tests.map(({ stored }) => {
    const condition = ways.condition(stored)
    return condition === undefined ? 'true' : `coalesce(${compileCondition(condition, 't', params)}, false)`
  })
  const text = `select json_build_array(${columns.join(', ')}) as answers from ${sourceOf(collection, item, params)}`
  try {
    const row = await db.maybeOne<{ answers: boolean[] }>(rawQuery(text, params.values))
    return row?.answers ?? []
  } catch (error) {
    if ('record' in item && sqlState(error)?.startsWith('22')) throw unfit(error)
    throw error
  }
}

const unfit = (cause: unknown): AppError =>
  new AppError(400, 'record: a value does not fit its field', { code: 'BAD_QUERY', cause })

/** The item as a row that is called `t`. */
function sourceOf(collection: Collection, item: ExplainedItem, params: Params): string {
  const table = ident(collection.name)
  if ('id' in item) {
    const { primaryKey } = collection
    const id = params.bind(readValue(item.id, primaryKey, 'id').value, parameterType(primaryKey))
    return `${table} t where t.${ident(primaryKey.name)} = ${id}`
  }
  const unknown = Object.keys(item.record).find((name) => !collection.fields.has(name))
  if (unknown !== undefined)
    throw errors.badQuery(`record: ${JSON.stringify(unknown)} is not a field of the collection`)
  return `${rowOfJson(collection.name, params.bind(JSON.stringify(item.record), 'jsonb'))} t`
}

/**
 * The item's values at the paths of the tests, whatever the caller may read: for administrators, without hidden fields.
 */
export async function readValuesOf(
  deps: Reads & Configuration & Clock & CurrentCatalog,
  collection: Collection,
  test: Test,
  item: ExplainedItem | undefined,
): Promise<Ways['values']> {
  if (item === undefined) return new Map()
  const paths = new Set(flat(test).flatMap(({ filter }) => (filter.kind === 'entry' ? [filter.path] : [])))
  if ('record' in item)
    return new Map([...paths].flatMap((path) => (path in item.record ? [[path, [item.record[path]]] as const] : [])))
  const values = new Map<string, readonly unknown[]>()
  for (const path of paths) {
    const found = await valueAt(deps, collection, path, item.id)
    if (found !== undefined) values.set(path, found)
  }
  return values
}

/** Shown of many related rows. */
const valuesAtMost = 20

/** Undefined for paths that are no plain fields. */
async function valueAt(
  deps: Reads & Configuration & Clock & CurrentCatalog,
  collection: Collection,
  path: string,
  id: string,
): Promise<readonly unknown[] | undefined> {
  try {
    const query = parseListQuery({ fields: [path] })
    const plan = resolveOne(deps.catalog.current(), systemAccess, collection.name, id, query, resolveEnv(deps))
    const { text, values } = compileOne(plan)
    const [row] = await deps.db.run<{ data: string | null }>(text, values)
    const tree: unknown = row?.data == null ? null : JSON.parse(row.data)
    const found = valuesAt(tree, path.split('.'))
    return found.every((value) => !isObject(value)) ? found.slice(0, valuesAtMost) : undefined
  } catch (error) {
    // A path with operators of its own, such as a JSON path or a date bucket, has no value to show.
    if (error instanceof AppError) return undefined
    throw error
  }
}

function valuesAt(node: unknown, [head, ...rest]: readonly string[]): readonly unknown[] {
  if (Array.isArray(node) && head !== undefined) return node.flatMap((one) => valuesAt(one, [head, ...rest]))
  if (head === undefined || node === null || node === undefined) return [node ?? null]
  return isObject(node) ? valuesAt(node[head], rest) : [null]
}
