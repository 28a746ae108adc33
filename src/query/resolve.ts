/**
 * resolve: names become objects of the catalog, the caller's grants, row rules and tenant are ANDed in. The only place
 * that makes a {@link Plan} or a {@link ResolvedFilter}, so neither exists without them.
 *
 * Errors: 404 unknown collection, 403 no grant, 400 everything that does not resolve.
 */

import type { Catalog, Collection, Field, Relation } from '../catalog/catalog.ts'
import type { Config } from '../config/config.ts'
import { type Action, errors } from '../errors.ts'
import type { Access } from './access.ts'
import { MAX_CURSOR_ROWS, quoted } from './guards.ts'
import { findOperator, type Operand, type OperatorExtension } from './operators.ts'
import type { Filter, ListQuery } from './parse.ts'
import { type Past, parsePoint } from './past.ts'
import {
  ALWAYS,
  allOf,
  type Keyset,
  NEVER,
  type PlanContent,
  type Predicate,
  type Search,
  type SortTerm,
  type TimeUse,
} from './plan.ts'
import { resolveFields, resolveGrouping, resolveGroupSort } from './resolve-fields.ts'
import { resolveFilter } from './resolve-filter.ts'
import { isKeyTerm, readPageCursor, resolveSearch, resolveSort } from './resolve-sort.ts'
import {
  accessView,
  type ResolveContext,
  requireGrant,
  resolveStored,
  rowRule,
  type TenantRules,
} from './resolve-view.ts'
import type { VariableScope } from './variables.ts'
import { readableColumns, type View } from './view.ts'

declare const resolved: unique symbol

/** A query that may run: only resolve.ts can make one. */
export type Plan = PlanContent & { readonly [resolved]: true }

/** A condition on the rows of `collection` that has passed the caller's access. */
export type ResolvedFilter = ConditionContent & { readonly [resolved]: true }

type ConditionContent = {
  readonly collection: Collection
  readonly predicate: Predicate
  /** Every collection that it reads; a change in one may change what matches. */
  readonly collections: ReadonlySet<string>
  /** The columns of `collection` that rules in it name. */
  readonly ruled: ReadonlySet<string>
}

/** Settings that decide what a query means. `multiTenant`: see {@link TenantRules}. */
export type ResolveEnv = {
  /** Value of `$NOW`. */
  readonly now: Date
  readonly multiTenant: TenantRules
  /** COUNT_BY_DEFAULT. */
  readonly countByDefault: boolean
  /** QUERY_DEFAULT_LIMIT, where it applies. */
  readonly defaultLimit?: number | undefined
  /** QUERY_MAX_LIMIT. */
  readonly maxLimit?: number | undefined
  /** DATABASE_POSTGIS. */
  readonly postgis: boolean
  /** DATABASE_VECTOR. */
  readonly vector: boolean
}

/** Rows when a page is asked for without a limit, by its number or by a cursor. */
const DEFAULT_PAGE_SIZE = 10

/** A list, or with aggregate or groupBy a list of groups. */
export function resolveList(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  query: ListQuery,
  env: ResolveEnv,
): Plan {
  const { collection, view, context, rule } = open(catalog, access, collectionName, query, env)
  const search = resolveSearch(query, view)
  const grouping = resolveGrouping(query, view)
  const sort = grouping ? resolveGroupSort(query.sort, grouping) : resolveSort(query, search, view)
  const page = window(query, env)
  return plan({
    collection,
    selection: grouping ? emptySelection(collection) : selectionOf(query, view),
    where: allOf([rule, resolveFilter(query.filter, view), ...searched(search)]),
    sort,
    ...page,
    keyset: resolveKeyset(query, collection, sort, page.limit),
    // Who asks for no rows asks for their number.
    count: query.count ?? (query.limit === 0 || env.countByDefault),
    grouping,
    past: resolvePast(query.asOf, context),
    collections: context.collections,
    slots: context.slots,
    time: timeUse(context),
  })
}

/** One item by its primary key; accepts fields, relConditions and filter. 400 for an id of the wrong type. */
export function resolveOne(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  id: string,
  query: ListQuery,
  env: ResolveEnv,
): Plan {
  return ofItem(resolveAny(catalog, access, collectionName, query, env), id)
}

/** As {@link resolveOne}, before it is known which item: a plan of all that could be asked for. */
export function resolveAny(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  query: ListQuery,
  env: ResolveEnv,
): Plan {
  const { collection, view, context, rule } = open(catalog, access, collectionName, query, env)
  return plan({
    collection,
    selection: selectionOf(query, view),
    where: allOf([rule, resolveFilter(query.filter, view)]),
    sort: [],
    limit: undefined,
    offset: 0,
    keyset: undefined,
    count: false,
    grouping: undefined,
    past: resolvePast(query.asOf, context),
    collections: context.collections,
    slots: context.slots,
    time: timeUse(context),
  })
}

/** The plan for one of its items. 400 for an id of the wrong type. */
export const ofItem = (any: Plan, id: string): Plan =>
  plan({ ...any, where: allOf([hasId(any.collection, id), any.where]) })

/** The plan where values of then that do not fit their columns of today are null; of the past only. */
export const asFits = (any: Plan): Plan =>
  any.past === undefined ? any : plan({ ...any, past: { ...any.past, images: 'fitting' } })

/** The plan with other operands in its slots (template.ts). */
export const withOperands = (any: Plan, operands: ReadonlyMap<Operand, Operand>): Plan =>
  plan({ ...any, where: withOperandsIn(any.where, operands) })

function withOperandsIn(predicate: Predicate, operands: ReadonlyMap<Operand, Operand>): Predicate {
  switch (predicate.kind) {
    case 'and':
    case 'or':
      return { ...predicate, of: predicate.of.map((part) => withOperandsIn(part, operands)) }
    case 'not':
      return { ...predicate, of: withOperandsIn(predicate.of, operands) }
    case 'exists':
      return { ...predicate, where: withOperandsIn(predicate.where, operands) }
    case 'test':
      return { ...predicate, operand: operands.get(predicate.operand) ?? predicate.operand }
    default:
      return predicate
  }
}

type ConditionOptions = {
  /** Soft-deleted rows pass too, as when one is restored. */
  readonly includeDeleted?: boolean
  /** A request's own filter, ANDed inside the rule and checked against the caller's read grant. */
  readonly filter?: Filter | undefined
}

/**
 * The condition on rows that the caller may use in this way: the grant's conditions, the tenant, soft delete.
 * Undefined: every row does. 403 without a grant.
 */
export function resolveCondition(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  action: Action,
  env: ResolveEnv,
  options: ConditionOptions = {},
): ResolvedFilter | undefined {
  const collection = requireCollection(catalog, collectionName)
  const context = contextOf(catalog, access, env, options.includeDeleted ?? false)
  const rule = rowRule(collection, action, requireGrant(collection, action, context), context)
  const asked = options.filter === undefined ? ALWAYS : resolveFilter(options.filter, accessView(collection, context))
  const predicate = allOf([rule, asked])
  if (predicate.kind === 'always') return undefined
  context.collections.add(collection.name)
  const ruled = context.ruled.get(collection.name) ?? new Set()
  const content: ConditionContent = { collection, predicate, collections: context.collections, ruled }
  return content as ResolvedFilter
}

/** The columns that `*` gives the caller, in column order. 403 without a read grant. */
export function readableFields(catalog: Catalog, access: Access, collectionName: string): readonly Field[] {
  const context = contextOf(catalog, access, noSettings, false)
  return readableColumns(accessView(requireCollection(catalog, collectionName), context))
}

/** The columns that are shown at the end of a path of relations; undefined where the caller may not follow it. */
export function columnsBehind(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  path: readonly string[],
): readonly Field[] | undefined {
  const context = contextOf(catalog, access, noSettings, false)
  let view: View | undefined = accessView(requireCollection(catalog, collectionName), context)
  for (const name of path) {
    const relation: Relation | undefined = view?.collection.relations.get(name)
    view = relation && view?.enter(relation)?.view
  }
  return view && readableColumns(view)
}

/** The columns that `fields` gives the caller. 400 for unknown names and for relations, 403 for what is not granted. */
export function requestedFields(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  fields: readonly string[],
): readonly Field[] {
  const view = accessView(requireCollection(catalog, collectionName), contextOf(catalog, access, noSettings, false))
  const { columns, nested } = resolveFields({ fields, relConditions: undefined, ignored: new Set() }, view)
  if (nested.length > 0)
    throw errors.badQuery(`fields: relations of ${quoted(collectionName)} are not part of a change`)
  return columns
}

/** Throws 400 or 403 with what is wrong in a permission condition that is about to be stored. */
export function checkConditions(
  catalog: Catalog,
  access: Access,
  collectionName: string,
  conditions: unknown,
  env: ResolveEnv,
): void {
  const collection = requireCollection(catalog, collectionName)
  resolveStored(conditions, collection, contextOf(catalog, access, env, false))
}

/** Where variables of default values are looked up (see `resolveDefaults`). */
export const variableScope = (catalog: Catalog, access: Access, now: Date): VariableScope => ({
  catalog,
  access,
  now,
  ofRequest: false,
})

/** Enough to ask what may be read; no condition is resolved with it. */
export const noSettings: ResolveEnv = {
  now: new Date(0),
  multiTenant: { enabled: false, strict: true, ignored: new Set() },
  countByDefault: false,
  postgis: false,
  vector: false,
}

const plan = (content: PlanContent): Plan => content as Plan

function open(catalog: Catalog, access: Access, collectionName: string, query: ListQuery, env: ResolveEnv) {
  const collection = requireCollection(catalog, collectionName)
  const context = contextOf(catalog, access, env, !query.paranoid)
  const view = accessView(collection, context)
  const rule = rowRule(collection, 'read', requireGrant(collection, 'read', context), context)
  return { collection, view, context, rule }
}

function requireCollection(catalog: Catalog, name: string): Collection {
  const collection = catalog.collections.get(name)
  if (collection === undefined) throw errors.unknownCollection(name)
  return collection
}

function contextOf(catalog: Catalog, access: Access, env: ResolveEnv, includeDeleted: boolean): ResolveContext {
  const extensions = new Set<OperatorExtension>()
  if (env.postgis) extensions.add('postgis')
  if (env.vector) extensions.add('vector')
  return {
    catalog,
    access,
    now: env.now,
    tenants: env.multiTenant,
    extensions,
    includeDeleted,
    collections: new Set(),
    ruled: new Map(),
    slots: [],
    time: { uses: 0, tests: [] },
  }
}

/** Call it last. */
function timeUse({ now, time: { uses, tests } }: ResolveContext): TimeUse | undefined {
  return uses === 0 ? undefined : { at: now, tests: uses === tests.length ? tests : undefined }
}

function selectionOf(query: ListQuery, view: View) {
  const ignored = new Set(query.aggregate.map(({ alias }) => alias))
  return resolveFields({ fields: query.fields ?? ['*'], relConditions: query.relConditions, ignored }, view)
}

const emptySelection = (collection: Collection) => ({ collection, columns: [], nested: [] })

function searched(search: Search | undefined): Predicate[] {
  if (search === undefined) return []
  return search.words.length === 0 ? [NEVER] : [{ kind: 'search', search }]
}

function hasId({ primaryKey }: Collection, id: string): Predicate {
  const { operator } = findOperator('eq')!
  const operand = operator.read(id, primaryKey, 'id')
  return { kind: 'test', left: { column: primaryKey, up: 0, cast: undefined }, operator, operand }
}

/** Where a page by cursor begins; undefined for lists without one. 400 where there is no such place. */
function resolveKeyset(
  query: ListQuery,
  collection: Collection,
  sort: readonly SortTerm[],
  limit: number | undefined,
): Keyset | undefined {
  const { cursor, page, offset } = query
  if (cursor === undefined) return undefined
  if (page !== undefined || offset !== undefined) throw errors.badQuery('cursor: cannot be used with page or offset')
  if (!sort.every(isKeyTerm)) throw errors.badQuery('cursor: the list must be sorted by fields')
  if (limit === undefined || limit < 1 || limit > MAX_CURSOR_ROWS)
    throw errors.badQuery(`cursor: the limit must be 1 to ${MAX_CURSOR_ROWS}`)
  return { after: cursor === '' ? undefined : readPageCursor(cursor, collection, sort) }
}

/** Call it last: everything that the statement reads is read as of then. 400 for a collection without a history. */
function resolvePast(asOf: string | undefined, { catalog, collections, ruled }: ResolveContext): Past | undefined {
  if (asOf === undefined) return undefined
  const read = [...collections].map((name) => catalog.collections.get(name)!)
  const unlogged = read.find(({ logged }) => !logged)
  if (unlogged !== undefined) throw errors.badQuery(`asOf: ${unlogged.name} has no history`)
  return { point: parsePoint(asOf), collections: read, images: 'whole', ruled }
}

/** limit, page and offset as the rows to skip and to take; `page` wins over `offset`, -1 takes all. */
function window(
  query: ListQuery,
  { maxLimit, defaultLimit }: ResolveEnv,
): { limit: number | undefined; offset: number } {
  const asked = query.limit ?? limitOf(query, isGrouped(query) ? undefined : defaultLimit)
  const size = asked === -1 ? undefined : asked
  const limit = maxLimit === undefined ? size : Math.min(size ?? maxLimit, maxLimit)
  const paged = query.page !== undefined && size !== undefined
  const offset = paged ? (query.page! - 1) * limit! : query.page === undefined ? (query.offset ?? 0) : 0
  if (!Number.isSafeInteger(offset)) throw errors.badQuery('page: too far')
  return { limit, offset }
}

/** Where the query names none. */
function limitOf({ page, cursor }: ListQuery, byDefault: number | undefined): number {
  if (cursor !== undefined) return Math.min(byDefault ?? DEFAULT_PAGE_SIZE, MAX_CURSOR_ROWS)
  return byDefault ?? (page === undefined ? -1 : DEFAULT_PAGE_SIZE)
}

const isGrouped = ({ aggregate, groupBy }: ListQuery): boolean => aggregate.length > 0 || groupBy.length > 0

/** The part of a query's meaning that the configuration and the clock of a request decide. */
export const resolveEnv = ({ config, clock }: { readonly config: Config; clock(): Date }): ResolveEnv =>
  envOf(config, clock())

/** The same at a given time. */
export function envOf(config: Config, now: Date): ResolveEnv {
  return {
    now,
    multiTenant: {
      enabled: config.tenancy.enabled,
      strict: config.tenancy.strictIsolation,
      ignored: new Set(config.tenancy.ignoredTables),
    },
    countByDefault: config.query.countByDefault,
    maxLimit: config.query.maxLimit,
    postgis: config.database.postgis,
    vector: config.database.vector,
  }
}
