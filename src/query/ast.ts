/**
 * What a request, a report, a permission row or a subscription asks for, in its own words: every name is still a
 * string and nothing is known to exist. `parse` builds it, `resolve` is its only reader (design §7).
 */

/** A row filter (`spec/items.md` §5). */
export type Filter =
  | { readonly kind: 'and' | 'or'; readonly of: readonly Filter[] }
  | { readonly kind: 'not'; readonly of: Filter }
  | FilterEntry

/**
 * One `path: value` member. Whether an object value holds operators or, for a relation, again a filter, depends on
 * what the path names, so it is kept as it came.
 */
export type FilterEntry = { readonly kind: 'entry'; readonly path: string; readonly value: unknown }

export type Direction = 'asc' | 'desc'

export type SortKey =
  | { readonly kind: 'path'; readonly path: string; readonly direction: Direction }
  | { readonly kind: 'distance'; readonly column: string; readonly target: unknown; readonly direction: Direction }
  | {
      readonly kind: 'vectorDistance'
      readonly column: string
      readonly vector: unknown
      readonly metric: string
      readonly direction: Direction
    }

/** One member of `aggregate`: `alias: { function, field }`. */
export type AggregateEntry = { readonly alias: string; readonly fn: string; readonly field: string }

/** The whole query of a list, a single item or a report (`spec/items.md` §2). It has no privileged member. */
export type ListQuery = {
  readonly fields: readonly string[] | undefined
  readonly filter: Filter | undefined
  readonly sort: readonly SortKey[]
  /** -1: every row; 0: none, only the count. */
  readonly limit: number | undefined
  /** From 1. */
  readonly page: number | undefined
  /** Ignored when `page` is given. */
  readonly offset: number | undefined
  /** Where the page begins: empty text for the first one. */
  readonly cursor: string | undefined
  readonly search: string | undefined
  readonly searchFields: readonly string[] | undefined
  readonly sortByRelevance: boolean
  readonly aggregate: readonly AggregateEntry[]
  readonly groupBy: readonly string[]
  /** A filter over aggregate aliases and group keys. */
  readonly having: Filter | undefined
  /** `{ relation: filter }` for the nested rows. */
  readonly relConditions: Readonly<Record<string, unknown>> | undefined
  /** False: soft-deleted rows are included. */
  readonly paranoid: boolean
  /** Overrides COUNT_BY_DEFAULT. */
  readonly count: boolean | undefined
  /** IANA name for date buckets; UTC when absent. */
  readonly timezone: string | undefined
  /** A cursor or an ISO time: the rows as they were then (past.ts). */
  readonly asOf: string | undefined
}
