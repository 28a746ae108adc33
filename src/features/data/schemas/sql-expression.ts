/**
 * Finds the reason to refuse a parsed SQL expression in a definition. Pure. Only parts that are known to be harmless
 * pass: a node, a member of a node or a name that is not listed is refused, also one that a later version of PostgreSQL
 * adds.
 */
import type { ParsedStatement, ParseTree } from '../../../adapters/sql-parser.ts'
import { coreFunctions, coreTypes, extensionFunctions, extensionTypes, operators } from './sql-names.ts'

/** The columns that an expression may refer to: those of its row, none in a default; it may not read `secret` ones. */
export type ExpressionRow = {
  readonly table: string
  readonly columns: ReadonlySet<string>
  readonly secret: ReadonlySet<string>
}

/** Why the statements of `select (text)` are not one allowed expression; undefined when they are. */
export function expressionRefusal(statements: readonly ParsedStatement[], row: ExpressionRow): string | undefined {
  const [statement, ...more] = statements
  if (statement === undefined || more.length > 0 || statement.kind !== 'SelectStmt') return 'is not one expression'
  const { targetList = [], limitOption: _limit, op: _op, ...clauses } = statement.tree
  const [{ ResTarget: target = {} } = {}, ...others] = targetList as ParseTree[]
  const { val, location: _location, ...named } = target as ParseTree
  const isAlone = others.length === 0 && Object.keys(clauses).length === 0 && Object.keys(named).length === 0
  return isAlone ? nodeRefusal(val, row) : 'is not one expression'
}

/** Says why a member's value is refused; undefined when it is fine. */
type Rule = (value: unknown, row: ExpressionRow) => string | undefined

const anything: Rule = () => undefined
const node: Rule = (value, row) => nodeRefusal(value, row)
const nodes: Rule = (value, row) => firstRefusal(value as unknown[], (each) => nodeRefusal(each, row))
const oneOf =
  (refusal: (value: string) => string, ...values: readonly string[]): Rule =>
  (value) =>
    values.includes(String(value)) ? undefined : refusal(String(value))

/** The members of the nodes that may be there. Everything a node is about is listed; absent ones are zero or none. */
const known: Readonly<Record<string, Readonly<Record<string, Rule>>>> = {
  A_ArrayExpr: { elements: nodes, list_start: anything, list_end: anything },
  A_Const: { ival: anything, fval: anything, boolval: anything, sval: anything, bsval: anything, isnull: anything },
  A_Expr: {
    kind: oneOf(
      (kind) => `uses an expression of kind ${kind}`,
      'AEXPR_OP',
      'AEXPR_OP_ANY',
      'AEXPR_OP_ALL',
      'AEXPR_DISTINCT',
      'AEXPR_NOT_DISTINCT',
      'AEXPR_NULLIF',
      'AEXPR_IN',
      'AEXPR_LIKE',
      'AEXPR_ILIKE',
      'AEXPR_SIMILAR',
      'AEXPR_BETWEEN',
      'AEXPR_NOT_BETWEEN',
      'AEXPR_BETWEEN_SYM',
      'AEXPR_NOT_BETWEEN_SYM',
    ),
    name: operatorRefusal,
    lexpr: node,
    rexpr: node,
    rexpr_list_start: anything,
    rexpr_list_end: anything,
  },
  A_Indices: { is_slice: anything, lidx: node, uidx: node },
  A_Indirection: { arg: node, indirection: subscriptsRefusal },
  BoolExpr: { boolop: anything, args: nodes },
  BooleanTest: { booltesttype: anything, arg: node },
  CaseExpr: { arg: node, args: nodes, defresult: node },
  CaseWhen: { expr: node, result: node },
  CoalesceExpr: { args: nodes },
  CollateClause: { arg: node, collname: collationRefusal },
  ColumnRef: { fields: columnRefusal },
  FuncCall: { funcname: functionRefusal, args: nodes, funcformat: anything },
  JsonIsPredicate: { expr: node, format: anything, item_type: anything, unique_keys: anything },
  List: { items: nodes },
  MinMaxExpr: { op: anything, args: nodes },
  NamedArgExpr: { name: anything, argnumber: anything, arg: node },
  NullTest: { nulltesttype: anything, arg: node },
  RowExpr: { args: nodes, row_format: anything },
  SQLValueFunction: {
    op: oneOf(
      (op) => `uses ${op.replace('SVFOP_', '')}`,
      'SVFOP_CURRENT_DATE',
      'SVFOP_CURRENT_TIME',
      'SVFOP_CURRENT_TIME_N',
      'SVFOP_CURRENT_TIMESTAMP',
      'SVFOP_CURRENT_TIMESTAMP_N',
      'SVFOP_LOCALTIME',
      'SVFOP_LOCALTIME_N',
      'SVFOP_LOCALTIMESTAMP',
      'SVFOP_LOCALTIMESTAMP_N',
    ),
    typmod: anything,
  },
  TypeCast: { arg: node, typeName: typeRefusal },
}

/** The users' names for the kinds that are refused most. */
const namesOfKinds: Readonly<Record<string, string>> = {
  SubLink: 'a subquery',
  ParamRef: 'a parameter',
  XmlExpr: 'XML',
  XmlSerialize: 'XML',
  GroupingFunc: 'GROUPING',
  SetToDefault: 'DEFAULT',
}

const namesOfMembers: Readonly<Record<string, string>> = {
  over: 'a window',
  func_variadic: 'VARIADIC',
  agg_star: 'an aggregate',
  agg_distinct: 'an aggregate',
  agg_order: 'an aggregate',
  agg_filter: 'an aggregate',
  agg_within_group: 'an aggregate',
}

function nodeRefusal(value: unknown, row: ExpressionRow): string | undefined {
  const [[kind, members] = ['nothing', {}], ...more] = Object.entries(Object(value))
  const rules = more.length === 0 && Object.hasOwn(known, kind) ? known[kind]! : undefined
  if (rules === undefined) return `uses ${namesOfKinds[kind] ?? kind}`
  return firstRefusal(Object.entries(members as ParseTree), ([name, member]) => {
    if (name === 'location') return undefined
    if (!Object.hasOwn(rules, name)) return `uses ${namesOfMembers[name] ?? `${kind}.${name}`}`
    return rules[name]!(member, row)
  })
}

function firstRefusal<T>(values: readonly T[], refusal: (value: T) => string | undefined): string | undefined {
  for (const value of values) {
    const found = refusal(value)
    if (found !== undefined) return found
  }
  return undefined
}

/** The parts of a qualified name; undefined where one is no name, such as the star of `t.*`. */
function partsOf(value: unknown): readonly string[] | undefined {
  const parts = (value as ParseTree[]).map((part) => part.String?.sval as string | undefined)
  return parts.includes(undefined) ? undefined : (parts as string[])
}

/** BETWEEN is parsed as an operator of that name. */
const spelledOperators: ReadonlySet<string> = new Set([
  'BETWEEN',
  'NOT BETWEEN',
  'BETWEEN SYMMETRIC',
  'NOT BETWEEN SYMMETRIC',
])

function operatorRefusal(value: unknown): string | undefined {
  const parts = partsOf(value) ?? []
  const isOwn = parts.length === 1 || (parts.length === 2 && parts[0] === 'pg_catalog')
  const name = parts.at(-1) ?? ''
  if (isOwn && (operators.has(name) || spelledOperators.has(name))) return undefined
  return `uses the operator ${parts.join('.')}, which is not on the list`
}

function functionRefusal(value: unknown): string | undefined {
  const parts = partsOf(value) ?? []
  if (isListed(parts, coreFunctions, extensionFunctions) || isListed(parts, coreTypes, extensionTypes)) return undefined
  return `calls ${parts.join('.')}(), which is not on the list of functions`
}

function typeRefusal(value: unknown, row: ExpressionRow): string | undefined {
  const {
    names = [],
    typmods = [],
    arrayBounds: _bounds,
    typemod: _typemod,
    location: _location,
    ...more
  } = Object(value)
  const parts = partsOf(names) ?? []
  if (Object.keys(more).length === 0 && isListed(parts, coreTypes, extensionTypes)) return nodes(typmods, row)
  return `uses the type ${parts.join('.')}, which is not on the list of types`
}

/** Extensions may be in any schema that is not PostgreSQL's. */
function isListed(parts: readonly string[], core: ReadonlySet<string>, others: ReadonlySet<string>): boolean {
  const [schema, name = schema ?? '', ...more] = parts
  if (more.length > 0) return false
  if (parts.length === 1) return core.has(name) || others.has(name)
  return schema === 'pg_catalog' ? core.has(name) : others.has(name) && !schema!.startsWith('pg_')
}

function collationRefusal(value: unknown): string | undefined {
  const parts = partsOf(value) ?? []
  const isOwn = parts.length === 1 || (parts.length === 2 && parts[0] === 'pg_catalog')
  return isOwn ? undefined : `uses the collation ${parts.join('.')}`
}

/** PostgreSQL reads `note.f`, where `note` has no column `f`, as a call of `f` with the whole row. */
function columnRefusal(value: unknown, { table, columns, secret }: ExpressionRow): string | undefined {
  const parts = partsOf(value)
  if (parts === undefined) return 'refers to a whole row'
  const [name = '', ...qualifiers] = parts.toReversed()
  const isOwn = qualifiers.length === 0 || (qualifiers.length === 1 && qualifiers[0] === table)
  if (isOwn && secret.has(name)) return `reads the hidden field ${name} of a system collection`
  if (isOwn && columns.has(name)) return undefined
  const meant = [...columns].find((column) => column.toLowerCase() === name.toLowerCase())
  const hint = meant === undefined ? '' : `: did you mean "${meant}", in double quotes`
  return `names an unknown field ${parts.join('.')}${hint}`
}

/** `(value).f` reads a part of a composite value, or calls `f` with it. */
function subscriptsRefusal(value: unknown, row: ExpressionRow): string | undefined {
  const parts = value as ParseTree[]
  return parts.every((part) => part.A_Indices !== undefined) ? nodes(parts, row) : 'refers to a part of a value by name'
}
