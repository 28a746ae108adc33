/**
 * A plan is a query after `resolve`: catalog objects and typed parameter values, nothing else. `compile` is a pure
 * function of it.
 *
 * Words: a *step* follows one relation, a *predicate* is a resolved filter, a *rule* is the predicate that the
 * caller's permissions put on rows, a *selection* is what is returned of a row.
 */
import type { Collection, Field, Relation } from '../catalog/catalog.ts'
import type { TypedValue, ValueType } from '../catalog/values.ts'
import type { Operand, Operator } from './operators.ts'
import type { Direction } from './parse.ts'
import type { Past } from './past.ts'

/** The part of a field that decides how it is compared; aggregates and casts have one too. */
export type Column = Pick<Field, 'name' | 'kind' | 'pgType' | 'element'> & { readonly nullable: boolean }

/** A column of the row that `up` enclosing steps back is the current one. */
export type ColumnRef = {
  readonly column: Column
  readonly up: number
  readonly cast: ValueType | undefined
}

/** A value of the request's filter, and the operand that it has become: a slot of the plan (template.ts). */
export type Slot = {
  readonly raw: unknown
  readonly operator: Operator
  readonly type: ValueType
  /** As in `Operator.read`. */
  readonly label: string
  readonly operand: Operand
}

/** From a row of `source` to the rows of `target` that the caller may see. */
export type Step = {
  readonly relation: Relation
  readonly source: Collection
  readonly target: Collection
  readonly through: Collection | undefined
  /** Evaluated on the target row. */
  readonly rule: Predicate
  /** Whether soft-deleted rows of the link table count. */
  readonly includeDeleted: boolean
}

/** A column at the end of a chain of steps (none: the row's own). */
export type ColumnPath = { readonly steps: readonly Step[]; readonly column: Column }

/**
 * How a plan depends on the time. Its answer is the same at every time from `at` until a test changes its outcome for some
 * row; `tests` are all that name the time, undefined where it may be used in another way.
 */
export type TimeUse = { readonly at: Date; readonly tests: readonly TimeTest[] | undefined }

/** A comparison of a moment or a day in rows of `collection` with `$NOW`, so many milliseconds later. */
export type TimeTest = {
  readonly collection: Collection
  readonly test: Predicate & { readonly kind: 'test' }
  readonly shiftMs: number
  /** Undefined for days, whose tests change their outcomes at midnight only. */
  readonly comparison: '<' | '<=' | '>' | '>=' | undefined
}

export type Predicate =
  | { readonly kind: 'always' | 'never' }
  | { readonly kind: 'and' | 'or'; readonly of: readonly Predicate[] }
  | { readonly kind: 'not'; readonly of: Predicate }
  | { readonly kind: 'test'; readonly left: ColumnRef; readonly operator: Operator; readonly operand: Operand }
  | {
      readonly kind: 'compare'
      readonly left: ColumnRef
      /** An SQL comparison operator. */
      readonly comparison: string
      readonly steps: readonly Step[]
      readonly right: ColumnRef
    }
  | { readonly kind: 'exists'; readonly step: Step; readonly where: Predicate }
  | { readonly kind: 'search'; readonly search: Search }

/** Full-text search over the concatenated columns, which must hold every word; without words nothing is found. */
export type Search = { readonly columns: readonly ColumnPath[]; readonly words: readonly SearchWord[] }

/** A word is found as it is written or by its stem; all words of a search have a stem, or none has. */
export type SearchWord = {
  /** A regular expression. */
  readonly pattern: string
  /** A `to_tsquery` text. */
  readonly query: string | undefined
}

/** The output of a row, in order. */
export type Selection = {
  readonly collection: Collection
  readonly columns: readonly Field[]
  readonly nested: readonly NestedSelection[]
}

export type NestedSelection = {
  readonly step: Step
  readonly selection: Selection
  /** The request's relConditions. */
  readonly where: Predicate
  /** Junction rows are restricted to these values of the discriminator (many-to-any). */
  readonly only: { readonly column: string; readonly values: readonly string[] } | undefined
}

export type SortTerm = { readonly by: SortBy; readonly direction: Direction }

export type SortBy =
  | { readonly kind: 'path'; readonly path: ColumnPath }
  | { readonly kind: 'relevance'; readonly search: Search }
  | { readonly kind: 'distance'; readonly column: Column; readonly longitude: number; readonly latitude: number }
  | { readonly kind: 'vectorDistance'; readonly column: Column; readonly operator: string; readonly vector: TypedValue }
  | { readonly kind: 'output'; readonly name: string }

/** A part of a date: text that names its year, too, `2024-05` or `2024-W05`, or a number. */
export type DatePart = TextPart | 'year' | 'month' | 'day' | 'hour' | 'minute' | 'week' | 'dow' | 'isodow'

type TextPart = 'yearmonth' | 'yearweek'

/** The parts that are text, each as a format of PostgreSQL. ISO weeks have years of their own, which begin on a Monday. */
export const TEXT_PARTS: Readonly<Record<TextPart, string>> = { yearmonth: 'YYYY-MM', yearweek: 'IYYY-"W"IW' }

export const isTextPart = (part: DatePart): part is TextPart => Object.hasOwn(TEXT_PARTS, part)

/** One groupBy entry; `keys` are the members it becomes in every row. */
export type GroupKey = {
  /** Generated name inside the statement: k1, k2, … */
  readonly name: string
  readonly path: ColumnPath
  readonly part: DatePart | undefined
  readonly keys: readonly string[]
}

export type AggregateFunction = 'count' | 'sum' | 'avg' | 'min' | 'max' | 'distinct' | 'array_agg'

export type Aggregate = {
  /** Generated name inside the statement: a1, a2, … */
  readonly name: string
  /** The request's output name; travels as a parameter. */
  readonly alias: string
  readonly fn: AggregateFunction
  /** Undefined: `*`. */
  readonly path: ColumnPath | undefined
}

export type Grouping = {
  readonly keys: readonly GroupKey[]
  readonly aggregates: readonly Aggregate[]
  readonly having: Predicate
  readonly timezone: string | undefined
  /** Of the first row of each group: own columns and relations that a report asks for beside the group. */
  readonly detail: Selection | undefined
}

/** `after`: the values of the sort terms in the row before the page; undefined for the first page. */
export type Keyset = { readonly after: readonly TypedValue[] | undefined }

/** The content of a plan; the brand that makes it one is put on in resolve.ts only. */
export type PlanContent = {
  readonly collection: Collection
  readonly selection: Selection
  readonly where: Predicate
  readonly sort: readonly SortTerm[]
  /** Undefined: every row. */
  readonly limit: number | undefined
  readonly offset: number
  /** Set where the page begins after a row instead of after `offset` rows; every sort term is then a path. */
  readonly keyset: Keyset | undefined
  readonly count: boolean
  readonly grouping: Grouping | undefined
  /** Undefined: the present. */
  readonly past: Past | undefined
  /** Every collection that the statement reads: cache tags and realtime dependencies. */
  readonly collections: ReadonlySet<string>
  /** The values of the request's filter, in its order. */
  readonly slots: readonly Slot[]
  /** Undefined where it means the same at every time. */
  readonly time: TimeUse | undefined
}

export const ALWAYS: Predicate = { kind: 'always' }
export const NEVER: Predicate = { kind: 'never' }

/** Conjunction without the members that say nothing. */
export function allOf(predicates: readonly Predicate[]): Predicate {
  const said = predicates.flatMap((p) => (p.kind === 'and' ? p.of : p.kind === 'always' ? [] : [p]))
  if (said.some((p) => p.kind === 'never')) return NEVER
  return said.length === 1 ? said[0]! : said.length === 0 ? ALWAYS : { kind: 'and', of: said }
}

/** Disjunction; of nothing: never. */
export function anyOf(predicates: readonly Predicate[]): Predicate {
  const possible = predicates.flatMap((p) => (p.kind === 'or' ? p.of : p.kind === 'never' ? [] : [p]))
  if (possible.some((p) => p.kind === 'always')) return ALWAYS
  return possible.length === 1 ? possible[0]! : possible.length === 0 ? NEVER : { kind: 'or', of: possible }
}

export function negate(predicate: Predicate): Predicate {
  switch (predicate.kind) {
    case 'always':
      return NEVER
    case 'never':
      return ALWAYS
    case 'not':
      return predicate.of
    default:
      return { kind: 'not', of: predicate }
  }
}

/** The parts of a predicate that must all hold. */
export const conjunctsOf = (predicate: Predicate): readonly Predicate[] =>
  predicate.kind === 'and' ? predicate.of : predicate.kind === 'always' ? [] : [predicate]

/** Whether evaluating it may end the statement with an error, on a value of a row or on an operand that only PostgreSQL understands. */
export function mayFail(predicate: Predicate): boolean {
  switch (predicate.kind) {
    case 'always':
    case 'never':
    case 'search':
      return false
    case 'test':
      return predicate.operator.mayFail === true || castMayFail(predicate.left.cast)
    case 'compare':
      return castMayFail(predicate.left.cast) || castMayFail(predicate.right.cast)
    case 'and':
    case 'or':
      return predicate.of.some(mayFail)
    case 'not':
      return mayFail(predicate.of)
    case 'exists':
      return mayFail(predicate.step.rule) || mayFail(predicate.where)
  }
}

/** Every value has a text; for all other types there are values that they do not have. */
export const castMayFail = (cast: ValueType | undefined): boolean => cast !== undefined && cast.kind !== 'text'

export const isToMany = (relation: Relation): boolean =>
  relation.kind === 'hasMany' || relation.kind === 'belongsToMany' || relation.kind === 'polymorphic'

/**
 * The collections that the relations of a condition lead to, junctions and their rules included. Its own one is
 * among them only where a relation leads back to it: a change there is then a change of other rows, too.
 */
export function relatedCollections({ predicate }: { readonly predicate: Predicate }): ReadonlySet<string> {
  return new Set(collectionsOf(predicate))
}

function collectionsOf(predicate: Predicate): string[] {
  switch (predicate.kind) {
    case 'always':
    case 'never':
    case 'test':
      return []
    case 'and':
    case 'or':
      return predicate.of.flatMap(collectionsOf)
    case 'not':
      return collectionsOf(predicate.of)
    case 'compare':
      return predicate.steps.flatMap(collectionsOfStep)
    case 'exists':
      return [...collectionsOfStep(predicate.step), ...collectionsOf(predicate.where)]
    case 'search':
      return predicate.search.columns.flatMap(({ steps }: ColumnPath) => steps.flatMap(collectionsOfStep))
  }
}

/** Whether one of the tests is a part of the predicate, or of a rule on its way. */
export function includesTest(predicate: Predicate, tests: ReadonlySet<Predicate>): boolean {
  const inStep = ({ rule }: Step): boolean => includesTest(rule, tests)
  switch (predicate.kind) {
    case 'always':
    case 'never':
      return false
    case 'test':
      return tests.has(predicate)
    case 'and':
    case 'or':
      return predicate.of.some((part) => includesTest(part, tests))
    case 'not':
      return includesTest(predicate.of, tests)
    case 'compare':
      return predicate.steps.some(inStep)
    case 'exists':
      return inStep(predicate.step) || includesTest(predicate.where, tests)
    case 'search':
      return predicate.search.columns.some(({ steps }) => steps.some(inStep))
  }
}

function collectionsOfStep({ target, through, rule }: Step): string[] {
  return [target.name, ...(through === undefined ? [] : [through.name]), ...collectionsOf(rule)]
}
