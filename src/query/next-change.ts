/**
 * An answer that depends on the time is right until a test that names it changes its outcome for some row. The rows say
 * when that is: of those that a test looks at, the one with the least value that the time has not reached yet is next.
 */
import type { Collection } from '../catalog/catalog.ts'
import { conditions, startCompiling } from './compile-rows.ts'
import { allOf, conjunctsOf, includesTest, mayFail, type Predicate, type TimeTest } from './plan.ts'
import type { Plan } from './resolve.ts'
import { createParams, ident, type Params, type Statement, statement } from './sql.ts'

/** When the answer to a plan may become another one although no row changes, in milliseconds since 1970. */
type NextChange = {
  /** Known without looking at rows. */
  readonly atMs: number
  /** One row with `at`, of the rows: a number as text, or null. */
  readonly statement: Statement | undefined
}

/**
 * Undefined where it cannot be told, or only by looking at rows that the plan itself need not look at. The statement may
 * run after the plan's own as long as no row of the plan's collections has changed in between.
 */
export function nextChange({ collection, where, time }: Plan): NextChange | undefined {
  if (time === undefined) return { atMs: NEVER_MS, statement: undefined }
  if (time.tests === undefined) return undefined
  const days = time.tests.filter(({ comparison }) => comparison === undefined)
  const midnights = days.map(({ shiftMs }) => nextMidnight(time.at.getTime() + shiftMs) - shiftMs)
  const atMs = Math.min(NEVER_MS, ...midnights)
  const moments = time.tests.filter((each): each is MomentTest => each.comparison !== undefined)
  const places = moments.map((each) => rowsOf(each, { collection, where, tests: time.tests! }))
  if (!places.every((place) => place !== undefined)) return undefined
  return { atMs, statement: places.length === 0 ? undefined : leastOf(places) }
}

/** A number that JSON can write. */
export const NEVER_MS = Number.MAX_SAFE_INTEGER

type MomentTest = TimeTest & { readonly comparison: NonNullable<TimeTest['comparison']> }

/** The rows whose next crossing is looked for: those of the test's collection that meet a condition. */
type CrossingPlace = MomentTest & { readonly kept: readonly Predicate[] }

type Tested = {
  readonly collection: Collection
  readonly where: Predicate
  readonly tests: readonly TimeTest[]
}

/**
 * Where every row of the answer must pass the test, those that pass the rest of the condition: PostgreSQL finds them as
 * it finds the answer. Elsewhere all rows, if an index has them in order. A part that may fail is left out: it may only meet
 * rows that pass all others, and more rows only make the moment earlier.
 */
function rowsOf(each: MomentTest, { collection, where, tests }: Tested): CrossingPlace | undefined {
  const parts = conjunctsOf(where)
  if (!parts.includes(each.test)) return isOrdered(each) ? { ...each, kept: [] } : undefined
  const timed = new Set<Predicate>(tests.map(({ test }) => test))
  return { ...each, collection, kept: parts.filter((part) => !includesTest(part, timed) && !mayFail(part)) }
}

function isOrdered({ collection, test }: MomentTest): boolean {
  const { name } = test.left.column
  return collection.indexes.some(
    ({ fields, method, whereNotNull }) =>
      method === 'btree' && fields[0] === name && whereNotNull.every((field) => field === name),
  )
}

function leastOf(places: readonly CrossingPlace[]): Statement {
  const params = createParams()
  const compiled = places.map((place) => placeSql(place, params))
  return statement(`select least(${compiled.map(({ sql }) => sql).join(', ')})::text as at`, params.values, {
    collections: new Set(compiled.flatMap(({ dependsOn }) => [...dependsOn.collections])),
    unlogged: new Set(compiled.flatMap(({ dependsOn }) => [...dependsOn.unlogged])),
  })
}

/**
 * The first millisecond at which the time has passed the least value that is still before it. Values have microseconds, and
 * the time is compared with the millisecond that shows them (moments.ts): `<` and `>=` tell that from all later ones, `<=`
 * and `>` from all earlier ones.
 */
function placeSql({ collection, test, comparison, shiftMs, kept }: CrossingPlace, params: Params) {
  const compiling = startCompiling(params, { t: collection })
  const { value, pgType } = test.operand.values[0]!
  const column = compiling.column(test.left.column.name, 't')
  const isPassed = comparison === '<' || comparison === '>='
  const beyond = `${column} ${isPassed ? '>=' : '>'} ${params.bind(value, pgType)}`
  const rows = [...conditions(allOf(kept), ['t'], compiling), beyond].join(' and ')
  const ms = `floor(extract(epoch from min(${column})) * 1000)${isPassed ? ' + 1' : ''}`
  const sql = `(select ${ms} - ${params.bind(shiftMs, 'bigint')} from ${ident(collection.name)} t where ${rows})`
  return { sql, dependsOn: compiling.dependsOn }
}

/** Days are those of UTC, whose days are all equally long. */
const nextMidnight = (ms: number): number => (Math.floor(ms / dayMs) + 1) * dayMs

const dayMs = 86_400_000
