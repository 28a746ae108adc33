import type { Tree } from '../../adapters/sql-parser.ts'
import { type Found, objectOf, type Script, type Subject, tableOf } from './lint-rules.ts'
import { isRewritten, typeText } from './lint-types.ts'

/** The findings of one ALTER TABLE, whose commands are judged one by one. */
export function alterTableFindings({ relation, cmds, objtype }: Tree, { subject }: Script): Found[] {
  if (objtype !== 'OBJECT_TABLE') return []
  const table = tableOf(relation)
  return (cmds as { AlterTableCmd: Tree }[]).flatMap(({ AlterTableCmd: command }) =>
    commandFindings(command, table, subject),
  )
}

function commandFindings(command: Tree, table: string, subject: Subject): Found[] {
  const { subtype, name, def } = command
  switch (subtype) {
    case 'AT_AddColumn':
      return columnFindings(def.ColumnDef, table)
    case 'AT_DropColumn':
      return [objectOf('drop-column', `${table}.${name}`, subject.usesOf(table, name))]
    case 'AT_SetNotNull':
      return subject.isCheckedNotNull(table, name) ? [] : [objectOf('set-not-null', `${table}.${name}`)]
    case 'AT_AlterColumnType':
      return typeFindings(def.ColumnDef, table, name, subject)
    case 'AT_AddConstraint':
      return constraintFindings(def.Constraint, table)
    case 'AT_SetLogged':
    case 'AT_SetUnLogged':
    case 'AT_SetTableSpace':
      return [objectOf('set-persistence', table)]
    default:
      return []
  }
}

function columnFindings({ colname, typeName, constraints = [] }: Tree, table: string): Found[] {
  const object = `${table}.${colname}`
  const all: Tree[] = constraints.map((one: { Constraint: Tree }) => one.Constraint)
  const has = (contype: string) => all.find((constraint) => constraint.contype === contype)
  const defaults = has('CONSTR_DEFAULT')
  const isStored = /serial$/.test(typeText(typeName)) || has('CONSTR_IDENTITY') || has('CONSTR_GENERATED')
  const ofColumn = isStored
    ? [objectOf('stored-column', object)]
    : defaults === undefined
      ? has('CONSTR_NOTNULL') || has('CONSTR_PRIMARY')
        ? [objectOf('add-required-column', object)]
        : []
      : mayBeVolatile(defaults.raw_expr)
        ? [objectOf('volatile-default', object)]
        : []
  return [...ofColumn, ...all.flatMap((constraint) => constraintFindings(constraint, table, defaults !== undefined))]
}

/** On a new column without values, references and checks have nothing to look at. */
function constraintFindings(constraint: Tree, table: string, hasValues = true): Found[] {
  const { contype, skip_validation: skipsValidation = false, indexname } = constraint
  if (contype === 'CONSTR_FOREIGN' && !skipsValidation && hasValues) return [objectOf('add-foreign-key', table)]
  if (contype === 'CONSTR_CHECK' && !skipsValidation && hasValues) return [objectOf('add-check', table)]
  const isIndexed = ['CONSTR_UNIQUE', 'CONSTR_PRIMARY', 'CONSTR_EXCLUSION'].includes(contype)
  return isIndexed && indexname === undefined ? [objectOf('add-unique', table)] : []
}

function typeFindings(
  { typeName, raw_default: using }: Tree,
  table: string,
  column: string,
  subject: Subject,
): Found[] {
  const present = subject.columnType(table, column)
  const isSame = using === undefined && present !== undefined && !isRewritten(present, typeText(typeName))
  return isSame ? [] : [objectOf('type-change', `${table}.${column}`)]
}

/** Functions that give every row of a statement the same value. Any other one is taken for volatile. */
const steady = new Set([
  'now',
  'transaction_timestamp',
  'statement_timestamp',
  'current_setting',
  'lower',
  'upper',
  'to_timestamp',
  'date_trunc',
  'make_interval',
  'jsonb_build_object',
  'jsonb_build_array',
  'timezone',
])

function mayBeVolatile(expression: unknown): boolean {
  if (Array.isArray(expression)) return expression.some(mayBeVolatile)
  if (expression === null || typeof expression !== 'object') return false
  const { FuncCall: call, ...others } = expression as Tree
  if (call === undefined) return Object.values(others).some(mayBeVolatile)
  return !steady.has(call.funcname.at(-1).String.sval) || mayBeVolatile(call.args ?? [])
}
