/** Aggregated lists: one grouped query, computed once for both the rows and their number. */
import { type Compiling, clause, columnSql, conditions, whereSql } from './compile-predicate.ts'
import { columnsRead, createJoins, type Joins, selectionSql } from './compile-select.ts'
import type { Aggregate, DatePart, Grouping, GroupKey, PlanContent, Selection } from './plan.ts'
import { exactNumberSql, wholeNumberSql, wireSql } from './projection.ts'
import { ident, literal } from './sql.ts'

/**
 * A query of the groups: columns k1, k2, … for the keys, a1, a2, … for the aggregates, and r for the first row where
 * something of it is shown that the keys do not tell.
 */
export function groupsSql(plan: PlanContent, grouping: Grouping, compiling: Compiling): string {
  const joins = createJoins(['t'], compiling)
  const keys = grouping.keys.map((key) => `${keySql(key, grouping.timezone, joins, compiling)} as ${key.name}`)
  const primaryKey = columnSql(plan.collection.primaryKey.name, 't')
  const aggregates = grouping.aggregates.map((each) => `${aggregateSql(each, primaryKey, joins)} as ${each.name}`)
  const isRead = grouping.detail !== undefined && keyRowSql(grouping) === undefined
  const first = isRead ? [`${firstRowSql(plan)} as r`] : []
  const list = [...keys, ...aggregates, ...first].join(', ')
  const where = whereSql(plan.where, ['t'], compiling)
  const by = clause(
    'group by',
    grouping.keys.map((_, i) => String(i + 1)),
    ', ',
  )
  const grouped = `select ${list} from ${ident(plan.collection.name)} t${joins.sql()}${where}${by}`
  return havingSql(grouped, grouping, compiling)
}

/** A query of `object`, each group of `page` (ordered and cut, called g) as JSON, in order. */
export function groupObjectsSql(plan: PlanContent, grouping: Grouping, page: string, compiling: Compiling): string {
  const object = objectSql(grouping, compiling)
  if (grouping.detail === undefined) return `select ${object} as object from (${page}) g`
  // A join need not keep the order of the page.
  return `select ${object} as object from (${page}) g${detailSql(plan, grouping, grouping.detail, compiling)}${groupOrderSql(plan)}`
}

/** ORDER BY of groups called g. */
export function groupOrderSql({ sort }: PlanContent): string {
  const terms = sort.flatMap(({ by, direction }) =>
    by.kind === 'output' ? [`g.${by.name}${direction === 'desc' ? ' desc' : ''}`] : [],
  )
  return clause('order by', terms, ', ')
}

function keySql({ path, part }: GroupKey, timezone: string | undefined, joins: Joins, { params }: Compiling): string {
  const column = columnSql(path.column.name, joins.alias(path.steps))
  if (part === undefined) return column
  if (path.column.kind === 'date') return partSql(part, `${column}::timestamp`)
  if (path.column.kind !== 'datetime') return partSql(part, column)
  const zone = timezone === undefined ? `'UTC'` : params.bind(timezone, 'text')
  return partSql(part, `${column} at time zone ${zone}`)
}

const partSql = (part: DatePart, time: string): string =>
  part === 'yearmonth' ? `to_char(${time}, 'YYYY-MM')` : `extract(${part} from ${time})::integer`

function aggregateSql({ fn, path }: Aggregate, primaryKey: string, joins: Joins): string {
  if (path === undefined) return 'count(*)'
  const column = columnSql(path.column.name, joins.alias(path.steps))
  switch (fn) {
    case 'distinct':
      return `count(distinct ${column})`
    case 'avg':
      return `avg(${column})::double precision`
    case 'array_agg':
      return `coalesce(json_agg(${wireSql(column, path.column)} order by ${primaryKey}), '[]')`
    default:
      return `${fn}(${column})`
  }
}

/** The first row of a group by primary key. PostgreSQL has no min(uuid); its text has the same order in this collation. */
function firstRowSql({ collection: { primaryKey } }: PlanContent): string {
  const column = columnSql(primaryKey.name, 't')
  return primaryKey.kind === 'uuid' ? `min(${column}::text collate "C")::uuid` : `min(${column})`
}

/**
 * The group g as a row of the collection, where its keys have every column that the detail reads: the related records
 * then hang on the groups alone, and no row of the collection is read a second time.
 */
function keyRowSql({ keys, detail }: Grouping): string | undefined {
  const columns = new Map(keys.filter(isOwnColumn).map(({ name, path }) => [path.column.name, name]))
  const read = detail === undefined ? [] : columnsRead(detail).map(({ name }) => name)
  if (!read.every((name) => columns.has(name))) return undefined
  return `select ${read.map((name) => `g.${columns.get(name)} as ${ident(name)}`).join(', ')}`
}

const isOwnColumn = ({ path, part }: GroupKey): boolean => part === undefined && path.steps.length === 0

function havingSql(grouped: string, { having }: Grouping, compiling: Compiling): string {
  const kept = conditions(having, ['g'], compiling)
  return kept.length === 0 ? grouped : `select * from (${grouped}) g${clause('where', kept)}`
}

/** Names chosen by the request travel as parameters. */
function objectSql({ keys, aggregates, detail }: Grouping, { params }: Compiling): string {
  const members = [
    ...keys.flatMap((key) => key.keys.map((name) => `${literal(name)}, ${keyValueSql(key)}`)),
    ...aggregates.map((aggregate) => `${params.bind(aggregate.alias, 'text')}, ${aggregateValueSql(aggregate)}`),
    ...(detail?.columns ?? []).map(({ name }) => `${literal(name)}, ${columnSql(name, 'd')}`),
    ...(detail?.nested ?? []).map(
      ({ step }) => `${literal(step.relation.name)}, ${columnSql(step.relation.name, 'd')}`,
    ),
  ]
  return `json_build_object(${members.join(', ')})`
}

const keyValueSql = ({ name, part, path }: GroupKey): string =>
  part === undefined ? wireSql(`g.${name}`, path.column) : `g.${name}`

/**
 * Numbers stay numbers as long as a double holds every digit of them, also those of Decimal columns
 * (`spec/items.md` §9); all else has its usual form.
 */
function aggregateValueSql({ name, fn, path }: Aggregate): string {
  const value = `g.${name}`
  if (path === undefined || (fn !== 'sum' && fn !== 'min' && fn !== 'max')) return value
  const { kind } = path.column
  if (kind === 'decimal') return exactNumberSql(value)
  if (fn === 'sum') return kind === 'float' ? value : wholeNumberSql(value)
  return wireSql(value, path.column)
}

function detailSql({ collection }: PlanContent, grouping: Grouping, detail: Selection, compiling: Compiling): string {
  const list = selectionSql(detail, ['t'], compiling)
  const keyRow = keyRowSql(grouping)
  if (keyRow !== undefined) return ` cross join lateral (select ${list} from (${keyRow}) t) d`
  const isFirst = `${columnSql(collection.primaryKey.name, 't')} = g.r`
  return ` left join lateral (select ${list} from ${ident(collection.name)} t where ${isFirst}) d on true`
}
