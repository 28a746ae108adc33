/** Predicates as SQL conditions. Nothing here wraps an indexed column, so indexes stay usable. */
import type { Relation } from '../catalog/catalog.ts'
import { castSql } from './casts.ts'
import { type ColumnPath, type ColumnRef, isToMany, type Predicate, type Search, type Step } from './plan.ts'
import { ident, literal, type Params } from './sql.ts'

/** State of one statement under construction. */
export type Compiling = {
  readonly params: Params
  /** A table alias that is new in the statement: q1, q2, … */
  readonly alias: () => string
}

export function startCompiling(params: Params): Compiling {
  let count = 0
  return {
    params,
    alias: () => {
      count += 1
      return `q${count}`
    },
  }
}

/** The condition on the row `rows.at(-1)`; the aliases before it are the rows around it. */
export function predicateSql(predicate: Predicate, rows: readonly string[], compiling: Compiling): string {
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
      return `${documentSql(predicate.search, rows, compiling)} @@ ${searchSql(predicate.search, compiling)}`
  }
}

/** `where …` with the leading space; nothing where every row passes. */
export function whereSql(predicate: Predicate, rows: readonly string[], compiling: Compiling): string {
  return clause('where', conditions(predicate, rows, compiling))
}

/** The conjunction as its members. */
export function conditions(predicate: Predicate, rows: readonly string[], compiling: Compiling): string[] {
  if (predicate.kind === 'always') return []
  if (predicate.kind !== 'and') return [predicateSql(predicate, rows, compiling)]
  return predicate.of.map((part) => predicateSql(part, rows, compiling))
}

export const clause = (keyword: string, parts: readonly string[], separator = ' and '): string =>
  parts.length === 0 ? '' : ` ${keyword} ${parts.join(separator)}`

export const columnSql = (name: string, alias: string): string => `${alias}.${ident(name)}`

/** How the rows of a step's target hang on a source row. */
export type Join = {
  readonly alias: string
  readonly from: string
  /** Correlation with the source row, then the rule. */
  readonly on: readonly string[]
}

export function joinStep(step: Step, rows: readonly string[], compiling: Compiling): Join {
  const source = rows.at(-1)!
  const alias = compiling.alias()
  const rule = conditions(step.rule, [...rows, alias], compiling)
  const table = `${ident(step.target.name)} ${alias}`
  if (step.relation.kind !== 'belongsToMany') {
    return { alias, from: table, on: [...correlation(step, source, alias), ...rule] }
  }
  const link = compiling.alias()
  const targetKey = columnSql(step.target.primaryKey.name, alias)
  const from = `${ident(step.relation.through!)} ${link} join ${table} on ${targetKey} = ${columnSql(step.relation.otherKey!, link)}`
  return { alias, from, on: [...linkConditions(step, source, link), ...rule] }
}

/** A scalar subquery or join that reads the far end of a path: `build` gets the last alias. */
export function joinPath(steps: readonly Step[], rows: readonly string[], compiling: Compiling): Join {
  const [first, ...rest] = steps
  const join = joinStep(first!, rows, compiling)
  if (rest.length === 0) return join
  const behind = joinPath(rest, [...rows, join.alias], compiling)
  return {
    alias: behind.alias,
    from: `${join.from} join ${parenthesised(behind.from)} on ${behind.on.join(' and ')}`,
    on: join.on,
  }
}

/** A join of its own must be parenthesised before it is joined. */
export const parenthesised = (from: string): string => (from.includes(' join ') ? `(${from})` : from)

function correlation({ relation, source }: Step, sourceAlias: string, alias: string): string[] {
  if (relation.kind !== 'belongsTo') {
    const key = `${columnSql(relation.foreignKey, alias)} = ${columnSql(source.primaryKey.name, sourceAlias)}`
    return [key, ...discriminated(relation, alias)]
  }
  const key = `${columnSql(relation.targetKey, alias)} = ${columnSql(relation.foreignKey, sourceAlias)}`
  return [key, ...discriminated(relation, sourceAlias)]
}

const discriminated = ({ discriminator }: Relation, alias: string): string[] =>
  discriminator === undefined ? [] : [`${columnSql(discriminator.column, alias)} = ${literal(discriminator.value)}`]

function linkConditions({ relation, source, through, includeDeleted }: Step, sourceAlias: string, link: string) {
  const key = `${columnSql(relation.foreignKey, link)} = ${columnSql(source.primaryKey.name, sourceAlias)}`
  return through?.paranoid && !includeDeleted ? [key, `${columnSql('deletedAt', link)} is null`] : [key]
}

function testSql(test: Predicate & { kind: 'test' }, rows: readonly string[], compiling: Compiling): string {
  const { left, operator, operand } = test
  const placeholders = operand.values.map(({ value, pgType }) => compiling.params.bind(value, pgType))
  return operator.sql(referenceSql(left, rows), placeholders, operand.variant, left.cast ?? left.column)
}

function referenceSql({ column, up, cast }: ColumnRef, rows: readonly string[]): string {
  return castSql(columnSql(column.name, rows.at(-1 - up)!), column, cast)
}

function compareSql(test: Predicate & { kind: 'compare' }, rows: readonly string[], compiling: Compiling): string {
  const left = referenceSql(test.left, rows)
  if (test.steps.length === 0) return `${left} ${test.comparison} ${referenceSql(test.right, rows)}`
  const { column, up, cast } = test.right
  const join = joinPath(test.steps, rows.slice(0, rows.length - up), compiling)
  const right = castSql(columnSql(column.name, join.alias), column, cast)
  return `${left} ${test.comparison} any (select ${right} from ${join.from}${clause('where', join.on)})`
}

function existsSql(step: Step, where: Predicate, rows: readonly string[], compiling: Compiling): string {
  const join = joinStep(step, rows, compiling)
  const inner = conditions(where, [...rows, join.alias], compiling)
  return `exists (select 1 from ${join.from}${clause('where', [...join.on, ...inner])})`
}

/** The tsvector of a search's columns. Beyond a megabyte of words PostgreSQL gives up on the whole statement. */
export function documentSql({ columns }: Search, rows: readonly string[], compiling: Compiling): string {
  const texts = columns.map((path) => `coalesce(${textSql(path, rows, compiling)}, '')`)
  return `to_tsvector('english', left(${texts.length === 0 ? `''` : texts.join(` || ' ' || `)}, 200000))`
}

export const searchSql = ({ query }: Search, { params }: Compiling): string =>
  `to_tsquery('english', ${params.bind(query, 'text')})`

function textSql({ steps, column }: ColumnPath, rows: readonly string[], compiling: Compiling): string {
  const text = (alias: string) => `${columnSql(column.name, alias)}${column.kind === 'uuid' ? '::text' : ''}`
  if (steps.length === 0) return text(rows.at(-1)!)
  const join = joinPath(steps, rows, compiling)
  const value = steps.some(({ relation }) => isToMany(relation))
    ? `string_agg(${text(join.alias)}, ' ')`
    : text(join.alias)
  return `(select ${value} from ${join.from}${clause('where', join.on)})`
}
