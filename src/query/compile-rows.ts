/**
 * The parts of a statement: predicates as conditions, rows as JSON (own columns, and each relation as a subquery that
 * yields one finished JSON value), and their order.
 */
import type { Collection, Field, Kind, Relation } from '../catalog/catalog.ts'
import { baseType, castSql, elementType, type ValueType } from '../catalog/values.ts'
import {
  type ColumnPath,
  type ColumnRef,
  castMayFail,
  conjunctsOf,
  isToMany,
  mayFail,
  type NestedSelection,
  type Predicate,
  type Search,
  type SearchWord,
  type Selection,
  type SortTerm,
  type Step,
} from './plan.ts'
import { type Dependencies, ident, literal, type Params } from './sql.ts'

/* Predicates. Nothing here wraps an indexed column, so indexes stay usable. */

/** State of one statement under construction. */
export type CompilerState = {
  readonly params: Params
  /** A table alias that is new in the statement, q1, q2, …, for rows of the collection. */
  readonly alias: (collection: Collection | undefined) => string
  /** The column of a row. Nothing else names a column of a table, so `dependsOn` holds all that is read. */
  readonly column: (name: string, row: string) => string
  /** The shown form of a field is read. */
  readonly show: (field: Field, row: string) => void
  readonly dependsOn: Dependencies
}

/** `rows`: the collections of the aliases that the statement begins with; `g` are groups, whose columns are outputs. */
export function startCompiling(params: Params, rows: Readonly<Record<string, Collection>>): CompilerState {
  const tables = new Map<string, Collection | undefined>(Object.entries(rows))
  const collections = new Set(Object.values(rows).map(({ name }) => name))
  const unlogged = new Set<string>()
  const read = (name: string, row: string) => {
    const collection = tables.get(row)
    const field = collection?.fields.get(name)
    if (row !== GROUPS && field?.unlogged !== false) unlogged.add(`${collection?.name ?? ''}.${name}`)
  }
  let count = 0
  return {
    params,
    alias: (collection) => {
      count += 1
      const alias = `q${count}`
      tables.set(alias, collection)
      if (collection !== undefined) collections.add(collection.name)
      return alias
    },
    column: (name, row) => {
      read(name, row)
      return `${row}.${ident(name)}`
    },
    show: (field, row) => {
      for (const name of columnsShown(field)) read(name, row)
      // Its function reads other tables.
      if (field.shownBy !== undefined) unlogged.add(`${tables.get(row)?.name}.${field.name}`)
    },
    dependsOn: { collections, unlogged },
  }
}

/** The alias of groups (compile.ts). */
const GROUPS = 'g'

/** The condition on the row `rows.at(-1)`; the aliases before it are the rows around it. */
function predicateSql(predicate: Predicate, rows: readonly string[], compiling: CompilerState): string {
  switch (predicate.kind) {
    case 'always':
      return 'true'
    case 'never':
      return 'false'
    case 'and':
    case 'or':
      return `(${predicate.of.map((part) => predicateSql(part, rows, compiling)).join(` ${predicate.kind} `)})`
    case 'not':
      return `not (${predicateSql(predicate.of, rows, compiling)})`
    case 'test':
      return testSql(predicate, rows, compiling)
    case 'compare':
      return compareSql(predicate, rows, compiling)
    case 'exists':
      return existsSql(predicate.step, predicate.where, rows, compiling)
    case 'search':
      return searchSql(predicate.search, rows, compiling)
  }
}

/** `where …` with the leading space; nothing where every row passes. */
export function whereSql(predicate: Predicate, rows: readonly string[], compiling: CompilerState): string {
  return clause('where', conditions(predicate, rows, compiling))
}

/** The conjunction as its members; those that may fail come after the others, see {@link conditionsAfter}. */
export function conditions(predicate: Predicate, rows: readonly string[], compiling: CompilerState): string[] {
  return conditionsAfter([], predicate, rows, compiling)
}

/**
 * A conjunction, as its members, after conditions that must hold as well. PostgreSQL evaluates conditions in the order that it finds
 * cheapest, so one that fails on some values, such as a cast, would tell by its error of rows that the others keep from the caller. Only
 * `case` has an order: with it these are evaluated on rows that pass all others.
 */
function conditionsAfter(
  certain: readonly string[],
  predicate: Predicate,
  rows: readonly string[],
  compiling: CompilerState,
): string[] {
  const parts = conjunctsOf(predicate).map((part) => ({
    sql: predicateSql(part, rows, compiling),
    fails: mayFail(part),
  }))
  const sqlOf = (fails: boolean) => parts.filter((part) => part.fails === fails).map(({ sql }) => sql)
  const [safe, failing] = [[...certain, ...sqlOf(false)], sqlOf(true)]
  const before = safe.length > 0 ? safe : failing.splice(0, 1)
  return failing.length === 0 ? before : [...before, onlyWhere(before, failing.join(' and '), 'false')]
}

/** An SQL expression that is evaluated only where the conditions hold. */
const onlyWhere = (hold: readonly string[], sql: string, otherwise: string): string =>
  `case when ${hold.join(' and ')} then ${sql} else ${otherwise} end`

export const clause = (keyword: string, parts: readonly string[], separator = ' and '): string =>
  parts.length === 0 ? '' : ` ${keyword} ${parts.join(separator)}`

/** How the rows of a step's target hang on a source row. */
type Join = {
  readonly alias: string
  readonly from: string
  /** Correlation with the source row, then the rule. */
  readonly on: readonly string[]
  /** The same of every step of a path. */
  readonly everyOn: readonly string[]
}

function joinStep(step: Step, rows: readonly string[], compiling: CompilerState): Join {
  const source = rows.at(-1)!
  const alias = compiling.alias(step.target)
  const rule = conditions(step.rule, [...rows, alias], compiling)
  const table = `${ident(step.target.name)} ${alias}`
  if (step.relation.kind !== 'belongsToMany') {
    const on = [...correlation(step, source, alias, compiling), ...rule]
    return { alias, from: table, on, everyOn: on }
  }
  const link = compiling.alias(step.through)
  const targetKey = compiling.column(step.target.primaryKey.name, alias)
  const from = `${ident(step.relation.through!)} ${link} join ${table} on ${targetKey} = ${compiling.column(step.relation.otherKey!, link)}`
  const on = [...linkConditions(step, source, link, compiling), ...rule]
  return { alias, from, on, everyOn: on }
}

/** A scalar subquery or join that reads the far end of a path: `build` gets the last alias. */
function joinPath(steps: readonly Step[], rows: readonly string[], compiling: CompilerState): Join {
  const [first, ...rest] = steps
  const join = joinStep(first!, rows, compiling)
  if (rest.length === 0) return join
  const inner = joinPath(rest, [...rows, join.alias], compiling)
  return {
    alias: inner.alias,
    from: `${join.from} join ${parenthesised(inner.from)} on ${inner.on.join(' and ')}`,
    on: join.on,
    everyOn: [...join.on, ...inner.everyOn],
  }
}

/** A join of its own must be parenthesised before it is joined. */
const parenthesised = (from: string): string => (from.includes(' join ') ? `(${from})` : from)

function correlation(
  { relation, source }: Step,
  sourceAlias: string,
  alias: string,
  compiling: CompilerState,
): string[] {
  if (relation.kind !== 'belongsTo') {
    const key = `${compiling.column(relation.foreignKey, alias)} = ${compiling.column(source.primaryKey.name, sourceAlias)}`
    return [key, ...discriminated(relation, alias, compiling)]
  }
  const key = `${compiling.column(relation.targetKey, alias)} = ${compiling.column(relation.foreignKey, sourceAlias)}`
  return [key, ...discriminated(relation, sourceAlias, compiling)]
}

const discriminated = ({ discriminator }: Relation, alias: string, compiling: CompilerState): string[] =>
  discriminator === undefined
    ? []
    : [`${compiling.column(discriminator.column, alias)} = ${literal(discriminator.value)}`]

function linkConditions(
  { relation, source, through, includeDeleted }: Step,
  sourceAlias: string,
  link: string,
  compiling: CompilerState,
): string[] {
  const key = `${compiling.column(relation.foreignKey, link)} = ${compiling.column(source.primaryKey.name, sourceAlias)}`
  return through?.paranoid && !includeDeleted ? [key, `${compiling.column('deletedAt', link)} is null`] : [key]
}

function testSql(test: Predicate & { kind: 'test' }, rows: readonly string[], compiling: CompilerState): string {
  const { left, operator, operand } = test
  const placeholders = operand.values.map(({ value, pgType }) => compiling.params.bind(value, pgType))
  return operator.sql(referenceSql(left, rows, compiling), placeholders, operand.variant, left.cast ?? left.column)
}

function referenceSql({ column, up, cast }: ColumnRef, rows: readonly string[], compiling: CompilerState): string {
  return castSql(compiling.column(column.name, rows.at(-1 - up)!), column, cast)
}

function compareSql(test: Predicate & { kind: 'compare' }, rows: readonly string[], compiling: CompilerState): string {
  const left = referenceSql(test.left, rows, compiling)
  if (test.steps.length === 0) return `${left} ${test.comparison} ${referenceSql(test.right, rows, compiling)}`
  const { column, up, cast } = test.right
  const join = joinPath(test.steps, rows.slice(0, rows.length - up), compiling)
  const value = castSql(compiling.column(column.name, join.alias), column, cast)
  // PostgreSQL may turn this subquery into a join, whose conditions have no order either.
  const right = castMayFail(cast) ? onlyWhere(join.everyOn, value, 'null') : value
  return `${left} ${test.comparison} any (select ${right} from ${join.from}${clause('where', join.on)})`
}

function existsSql(step: Step, where: Predicate, rows: readonly string[], compiling: CompilerState): string {
  const join = joinStep(step, rows, compiling)
  const kept = conditionsAfter(join.on, where, [...rows, join.alias], compiling)
  return `exists (select 1 from ${join.from}${clause('where', kept)})`
}

/**
 * Whether the text of a search's columns holds every word. `offset 0` has the text made once in each row, and its stems, too:
 * those for a single word only where its pattern has found nothing.
 */
function searchSql(search: Search, rows: readonly string[], compiling: CompilerState): string {
  const { words } = search
  const isSharing = words.length > 1 && words[0]!.query !== undefined
  const stems = isSharing ? 'stems' : stemsSql('body')
  const found = words.map((word) => wordSql(word, stems, compiling))
  const body = `(select ${documentSql(search, rows, compiling)} as body offset 0) d`
  const document = isSharing ? `(select body, ${stemsSql('body')} as stems from ${body} offset 0) d` : body
  return `exists (select from ${document} where ${found.join(' and ')})`
}

function wordSql({ pattern, query }: SearchWord, stems: string, { params }: CompilerState): string {
  const isWritten = `body ~* ${params.bind(pattern, 'text')}`
  return query === undefined ? isWritten : `(${isWritten} or ${stems} @@ (select ${querySql(query, params)}))`
}

/** No word in common makes no order: 0. */
function relevanceSql(search: Search, rows: readonly string[], compiling: CompilerState): string {
  const query = search.words.flatMap((word) => word.query ?? []).join(' & ')
  if (query === '') return '0::real'
  return `ts_rank(${stemsSql(documentSql(search, rows, compiling))}, ${querySql(query, compiling.params)})`
}

const stemsSql = (text: string): string => `to_tsvector('english', ${text})`

const querySql = (query: string, params: Params): string => `to_tsquery('english', ${params.bind(query, 'text')})`

/**
 * The text of a search's columns. Beyond a megabyte of words PostgreSQL gives up on the whole statement. The collation is
 * named because that of a column may take nothing but ASCII for letters, or refuse patterns.
 */
function documentSql({ columns }: Search, rows: readonly string[], compiling: CompilerState): string {
  const texts = columns.map((path) => `coalesce(${textSql(path, rows, compiling)}, '')`)
  return `left(${texts.length === 0 ? `''` : texts.join(` || ' ' || `)}, 200000) collate "default"`
}

function textSql({ steps, column }: ColumnPath, rows: readonly string[], compiling: CompilerState): string {
  const text = (alias: string) => `${compiling.column(column.name, alias)}${column.kind === 'uuid' ? '::text' : ''}`
  if (steps.length === 0) return text(rows.at(-1)!)
  const join = joinPath(steps, rows, compiling)
  const value = steps.some(({ relation }) => isToMany(relation))
    ? `string_agg(${text(join.alias)}, ' ')`
    : text(join.alias)
  return `(select ${value} from ${join.from}${clause('where', join.on)})`
}

/* Rows and their order. */

/** The select list of a selection over the row `rows.at(-1)`. */
export function selectionSql(selection: Selection, rows: readonly string[], compiling: CompilerState): string {
  const row = rows.at(-1)!
  const columns = selection.columns.map((field) => {
    compiling.show(field, row)
    return `${projectionSql(field, row)} as ${ident(field.name)}`
  })
  const nested = selection.nested.map(
    (child) => `${nestedSql(child, rows, compiling)} as ${ident(child.step.relation.name)}`,
  )
  return [...columns, ...nested].join(', ')
}

/** Every column that the select list reads from the row, in catalog order. */
export function columnsRead({ collection, columns, nested }: Selection): readonly Field[] {
  const names = new Set(columns.flatMap(columnsShown))
  for (const { step } of nested) for (const name of keysRead(step)) names.add(name)
  return [...collection.fields.values()].filter((field) => names.has(field.name))
}

function keysRead({ relation, source }: Step): string[] {
  if (relation.kind !== 'belongsTo') return [source.primaryKey.name]
  return relation.discriminator === undefined
    ? [relation.foreignKey]
    : [relation.foreignKey, relation.discriminator.column]
}

function nestedSql(child: NestedSelection, rows: readonly string[], compiling: CompilerState): string {
  const { step, selection, where, only } = child
  const join = joinStep(step, rows, compiling)
  const inner = [...rows, join.alias]
  const kept = [...conditionsAfter(join.on, where, inner, compiling), ...onlySql(only, join.alias, compiling)]
  const list = selectionSql(selection, inner, compiling)
  const query = `select ${list} from ${join.from}${clause('where', kept)}`
  if (isToMany(step.relation)) {
    const ordered = `${query} order by ${naturalOrder(step.target, join.alias, compiling)}`
    return `(select coalesce(json_agg(o.*), '[]') from (${ordered}) o)`
  }
  const single = isUnique(step)
    ? query
    : `${query} order by ${naturalOrder(step.target, join.alias, compiling)} limit 1`
  return `(select row_to_json(o.*) from (${single}) o)`
}

const onlySql = (only: NestedSelection['only'], alias: string, compiling: CompilerState): string[] =>
  only === undefined ? [] : [`${compiling.column(only.column, alias)} in (${only.values.map(literal).join(', ')})`]

/** The order of nested rows: as sorted by hand, else by primary key. */
function naturalOrder(collection: Collection, alias: string, compiling: CompilerState): string {
  const { primaryKey } = collection
  const byHand = collection.sortEnabled && collection.fields.has('sort') ? [compiling.column('sort', alias)] : []
  return [...byHand, compiling.column(primaryKey.name, alias)].join(', ')
}

/** Whether the step leads to one row at most by a constraint, not only by intent. */
function isUnique({ relation, target }: Step): boolean {
  if (isToMany(relation)) return false
  const key = relation.kind === 'belongsTo' ? relation.targetKey : relation.foreignKey
  return key === target.primaryKey.name || target.fields.get(key)?.unique === true
}

/** Left joins that several expressions of a statement share, by path. */
export type Joins = { readonly sql: () => string; readonly alias: (steps: readonly Step[]) => string }

export function createJoins(rows: readonly string[], compiling: CompilerState): Joins {
  const texts: string[] = []
  const aliases = new Map<string, string>()
  const aliasOf = (steps: readonly Step[]): string => {
    const last = steps.at(-1)
    if (last === undefined) return rows.at(-1)!
    const key = steps.map((step) => step.relation.name).join('.')
    const known = aliases.get(key)
    if (known !== undefined) return known
    const join = joinStep(last, [...rows.slice(0, -1), aliasOf(steps.slice(0, -1))], compiling)
    texts.push(` left join ${parenthesised(join.from)} on ${join.on.join(' and ')}`)
    aliases.set(key, join.alias)
    return join.alias
  }
  return { sql: () => texts.join(''), alias: aliasOf }
}

/** ORDER BY of rows, and the joins that it needs. */
export function orderSql(
  sort: readonly SortTerm[],
  rows: readonly string[],
  compiling: CompilerState,
): { readonly joins: string; readonly order: string } {
  const { joins, keys } = sortKeysSql(sort, rows, compiling)
  return { joins, order: orderClause(sort, keys) }
}

/** The expressions that rows are ordered by, and the joins that they need. */
export function sortKeysSql(
  sort: readonly SortTerm[],
  rows: readonly string[],
  compiling: CompilerState,
): { readonly joins: string; readonly keys: readonly string[] } {
  const joins = createJoins(rows, compiling)
  const keys = sort.map((term) => sortKeySql(term, rows, joins, compiling))
  return { joins: joins.sql(), keys }
}

export function orderClause(sort: readonly SortTerm[], keys: readonly string[]): string {
  const terms = sort.map(({ direction }, i) => `${keys[i]}${direction === 'desc' ? ' desc' : ''}`)
  return clause('order by', terms, ', ')
}

function sortKeySql(
  { by, direction }: SortTerm,
  rows: readonly string[],
  joins: Joins,
  compiling: CompilerState,
): string {
  const row = rows.at(-1)!
  switch (by.kind) {
    case 'output':
      return compiling.column(by.name, row)
    case 'relevance':
      return relevanceSql(by.search, rows, compiling)
    case 'distance': {
      const point = [by.longitude, by.latitude].map((n) => compiling.params.bind(n, 'double precision')).join(', ')
      return `${compiling.column(by.column.name, row)}::geography <-> ST_SetSRID(ST_MakePoint(${point}), 4326)::geography`
    }
    case 'vectorDistance':
      return `${compiling.column(by.column.name, row)} ${by.operator} ${compiling.params.bind(by.vector.value, by.vector.pgType)}`
    case 'path': {
      const { steps, column } = by.path
      if (steps.every(isUnique)) return compiling.column(column.name, joins.alias(steps))
      // Of several related rows the first in the direction of the sort decides: the least, or the greatest.
      const join = joinPath(steps, rows, compiling)
      const key = compiling.column(column.name, join.alias)
      return `(select ${key} from ${join.from}${clause('where', join.on)} order by ${key} ${direction} nulls last limit 1)`
    }
  }
}

/*
 * Columns as JSON: DateTime `2024-05-01T10:00:00.000Z` in UTC, BigInt a number within ±(2⁵³−1) else a string, Decimal a
 * string, ranges as objects, geometry as GeoJSON, vectors as arrays. Columns that row_to_json already writes that way
 * pass as they are.
 */

/** The expression for a field of the row `alias`. */
export const projectionSql = (field: Field, alias: string): string => wireSql(shownSql(field, alias), field)

/** Every column of the row that the expression of a field reads. */
const columnsShown = (field: Field): readonly string[] => field.shownBy?.arguments ?? [field.sameAs ?? field.name]

const shownSql = ({ name, sameAs, shownBy }: Field, alias: string): string => {
  const column = (of: string) => `${alias}.${ident(of)}`
  return shownBy === undefined
    ? column(sameAs ?? name)
    : `${shownBy.function}(${shownBy.arguments.map(column).join(', ')})`
}

/** `expression as "name"` for each field, for a select list. */
export const projectionList = (fields: readonly Field[], alias: string): string =>
  fields.map((field) => `${projectionSql(field, alias)} as ${ident(field.name)}`).join(', ')

/** The JSON form of any expression of a column's type. */
export function wireSql(expression: string, type: ValueType): string {
  return WIRE[type.kind]?.(expression, type) ?? expression
}

/** A whole number of any size as a JSON number within ±(2⁵³−1), else as a string. */
export function wholeNumberSql(x: string): string {
  return `case when ${x} between -${SAFE_INTEGER} and ${SAFE_INTEGER} then to_json(${x}) else to_json(${x}::text) end`
}

/** A numeric as a JSON number where 15 digits write it, which every double gives back as they were, else as a string. */
export const exactNumberSql = (x: string): string =>
  `case when length(ltrim(translate(${x}::text, '-.', ''), '0')) <= 15 then to_json(${x}) else to_json(${x}::text) end`

const SAFE_INTEGER = '9007199254740991'

const WIRE: Partial<Record<Kind, (expression: string, type: ValueType) => string>> = {
  datetime: (x) => `to_char(${x} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
  datetime_no_tz: (x) => `to_char(${x}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
  bigint: wholeNumberSql,
  decimal: (x) => `${x}::text`,
  array: arraySql,
  range: rangeSql,
  geometry: (x) => `ST_AsGeoJSON(${x})::json`,
  geography: (x) => `ST_AsGeoJSON(${x})::json`,
  vector: (x, type) => `${x}${baseType(type.pgType) === 'sparsevec' ? '::vector' : ''}::text::json`,
}

/** Element kinds whose arrays row_to_json writes in the elements' own form need nothing. */
function arraySql(x: string, type: ValueType): string {
  const element = elementType(type)
  if (WIRE[element.kind] === undefined) return x
  const elements = `select coalesce(json_agg(${wireSql('e.v', element)} order by e.n), '[]')`
  return `case when ${x} is null then null else (${elements} from unnest(${x}) with ordinality e(v, n)) end`
}

/** Bounds alone would not tell an empty range, which has none, from one that holds everything. */
function rangeSql(x: string, type: ValueType): string {
  const element = elementType(type)
  const bound = (name: string) =>
    boundSql(element.kind === 'float' ? `${name}(${x})::float8` : `${name}(${x})`, element)
  return (
    `case when ${x} is null then null when isempty(${x}) then json_build_object('empty', true) ` +
    `else json_build_object('lower', ${bound('lower')}, 'upper', ${bound('upper')}, ` +
    `'lowerInclusive', lower_inc(${x}), 'upperInclusive', upper_inc(${x})) end`
  )
}

/** Null is no bound, so a bound that a value of its kind cannot show keeps its words: `infinity`, and years before the first. */
function boundSql(x: string, element: ValueType): string {
  const { kind } = element
  if (kind !== 'datetime' && kind !== 'datetime_no_tz') return wireSql(x, element)
  const local = kind === 'datetime' ? `${x} at time zone 'UTC'` : x
  return `coalesce(${wireSql(x, element)} || case when ${local} < '0001-01-01' then ' BC' else '' end, ${x}::text)`
}
