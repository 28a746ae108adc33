/** Rows as JSON: own columns, and each relation as a subquery that yields one finished JSON value. */
import type { Collection, Field } from '../catalog/catalog.ts'
import {
  type Compiling,
  clause,
  columnSql,
  conditions,
  documentSql,
  joinPath,
  joinStep,
  parenthesised,
  searchSql,
} from './compile-predicate.ts'
import { isToMany, type NestedSelection, type Selection, type SortTerm, type Step } from './plan.ts'
import { columnsShown, projectionSql } from './projection.ts'
import { ident, literal } from './sql.ts'

/** The select list of a selection over the row `rows.at(-1)`. */
export function selectionSql(selection: Selection, rows: readonly string[], compiling: Compiling): string {
  const columns = selection.columns.map((field) => `${projectionSql(field, rows.at(-1)!)} as ${ident(field.name)}`)
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

function nestedSql(child: NestedSelection, rows: readonly string[], compiling: Compiling): string {
  const { step, selection, where, only } = child
  const join = joinStep(step, rows, compiling)
  const inner = [...rows, join.alias]
  const kept = [...join.on, ...conditions(where, inner, compiling), ...onlySql(only, join.alias)]
  const list = selectionSql(selection, inner, compiling)
  const query = `select ${list} from ${join.from}${clause('where', kept)}`
  if (isToMany(step.relation)) {
    const ordered = `${query} order by ${naturalOrder(step.target, join.alias)}`
    return `(select coalesce(json_agg(o.*), '[]') from (${ordered}) o)`
  }
  const single = isUnique(step) ? query : `${query} order by ${naturalOrder(step.target, join.alias)} limit 1`
  return `(select row_to_json(o.*) from (${single}) o)`
}

const onlySql = (only: NestedSelection['only'], alias: string): string[] =>
  only === undefined ? [] : [`${columnSql(only.column, alias)} in (${only.values.map(literal).join(', ')})`]

/** The order of nested rows: as sorted by hand, else by primary key. */
function naturalOrder(collection: Collection, alias: string): string {
  const { primaryKey } = collection
  const byHand = collection.sortEnabled && collection.fields.has('sort') ? [columnSql('sort', alias)] : []
  return [...byHand, columnSql(primaryKey.name, alias)].join(', ')
}

/** Whether the step leads to one row at most by a constraint, not only by intent. */
function isUnique({ relation, target }: Step): boolean {
  if (isToMany(relation)) return false
  const key = relation.kind === 'belongsTo' ? relation.targetKey : relation.foreignKey
  return key === target.primaryKey.name || target.fields.get(key)?.unique === true
}

/** Left joins that several expressions of a statement share, by path. */
export type Joins = { readonly sql: () => string; readonly alias: (steps: readonly Step[]) => string }

export function createJoins(rows: readonly string[], compiling: Compiling): Joins {
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
  compiling: Compiling,
): { readonly joins: string; readonly order: string } {
  const { joins, keys } = sortKeysSql(sort, rows, compiling)
  return { joins, order: orderClause(sort, keys) }
}

/** The expressions that rows are ordered by, and the joins that they need. */
export function sortKeysSql(
  sort: readonly SortTerm[],
  rows: readonly string[],
  compiling: Compiling,
): { readonly joins: string; readonly keys: readonly string[] } {
  const joins = createJoins(rows, compiling)
  const keys = sort.map((term) => sortKeySql(term, rows, joins, compiling))
  return { joins: joins.sql(), keys }
}

export function orderClause(sort: readonly SortTerm[], keys: readonly string[]): string {
  const terms = sort.map(({ direction }, i) => `${keys[i]}${direction === 'desc' ? ' desc' : ''}`)
  return clause('order by', terms, ', ')
}

function sortKeySql({ by, direction }: SortTerm, rows: readonly string[], joins: Joins, compiling: Compiling): string {
  const row = rows.at(-1)!
  switch (by.kind) {
    case 'output':
      return columnSql(by.name, row)
    case 'relevance':
      return `ts_rank(${documentSql(by.search, rows, compiling)}, ${searchSql(by.search, compiling)})`
    case 'distance': {
      const point = [by.longitude, by.latitude].map((n) => compiling.params.bind(n, 'double precision')).join(', ')
      return `${columnSql(by.column.name, row)}::geography <-> ST_SetSRID(ST_MakePoint(${point}), 4326)::geography`
    }
    case 'vectorDistance':
      return `${columnSql(by.column.name, row)} ${by.operator} ${compiling.params.bind(by.vector.value, by.vector.pgType)}`
    case 'path': {
      const { steps, column } = by.path
      if (steps.every(isUnique)) return columnSql(column.name, joins.alias(steps))
      // Of several related rows the first in the direction of the sort decides: the least, or the greatest.
      const join = joinPath(steps, rows, compiling)
      const key = columnSql(column.name, join.alias)
      return `(select ${key} from ${join.from}${clause('where', join.on)} order by ${key} ${direction} nulls last limit 1)`
    }
  }
}
