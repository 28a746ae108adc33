/**
 * Finds the statements of a migration that would stop traffic. Every finding names the held lock, the work that waits
 * for it, and a way to the same end without waiting. Pure: the facts about the database come with the {@link
 * LintSubject}.
 */
import { type ParsedStatement, type ParseTree, parseSql, SqlSyntaxError } from '../../../adapters/sql-parser.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { compileCatalog } from '../../../catalog/compile.ts'
import { readDefinitions } from '../../../catalog/store.ts'
import type { Config } from '../../../config/config.ts'
import type { Reader } from '../../../db/sql.ts'
import { checkedColumns, columnTypes } from './records.ts'

export type MigrationFinding = LintFinding & {
  /** Place of the statement among all that were given, from 1. */
  readonly statement: number
  readonly sql: string
}

/**
 * The findings of a script's statements, in their order. Tables that the script itself creates are not in use yet, so
 * what happens to them is no finding. A text that does not parse is one, of rule `syntax`.
 */
export async function lintSql(texts: readonly string[], subject: LintSubject): Promise<readonly MigrationFinding[]> {
  const script: LintedScript = { subject, created: new Set() }
  const findings: MigrationFinding[] = []
  let statement = 0
  for (const text of texts)
    for (const one of await statementsOf(text)) {
      statement += 1
      const found = 'problem' in one ? [one.problem] : findingsOf(one, script)
      findings.push(...found.map((each) => ({ ...each, statement, sql: 'problem' in one ? text.trim() : one.text })))
    }
  return findings
}

async function statementsOf(text: string): Promise<readonly (ParsedStatement | { problem: LintFinding })[]> {
  try {
    return await parseSql(text)
  } catch (error) {
    if (!(error instanceof SqlSyntaxError)) throw error
    const problem: LintFinding = {
      rule: 'syntax',
      object: '',
      lock: 'none',
      why: error.message,
      safeWay: 'Fix the statement.',
    }
    return [{ problem }]
  }
}

type Linter = (tree: ParseTree, script: LintedScript) => readonly LintFinding[]

const kinds: Readonly<Record<string, Linter>> = {
  CreateStmt: ({ relation }, { created }) => {
    created.add(tableOf(relation))
    return []
  },
  AlterTableStmt: (tree, script) =>
    script.created.has(tableOf(tree.relation)) ? [] : alterTableFindings(tree, script),
  IndexStmt: indexFindings,
  RenameStmt: renameFindings,
  DropStmt: dropFindings,
  TruncateStmt: ({ relations }, script) => ofTables(relations, script, 'truncate'),
  LockStmt: ({ relations }, script) => ofTables(relations, script, 'lock-table'),
  VacuumStmt: ({ options = [], rels = [] }, script) => {
    const isFull = options.some(({ DefElem }: ParseTree) => DefElem.defname === 'full')
    return isFull
      ? ofTables(
          rels.map((rel: ParseTree) => ({ RangeVar: rel.VacuumRelation.relation })),
          script,
          'vacuum-full',
        )
      : []
  },
  ClusterStmt: ({ relation }, script) =>
    ofTables(relation === undefined ? [] : [{ RangeVar: relation }], script, 'cluster'),
  ReindexStmt: ({ relation, params = [] }, script) =>
    params.some(({ DefElem }: ParseTree) => DefElem.defname === 'concurrently')
      ? []
      : ofTables(relation === undefined ? [] : [{ RangeVar: relation }], script, 'reindex'),
  UpdateStmt: wholeTableFindings,
  DeleteStmt: wholeTableFindings,
}

const findingsOf = ({ kind, tree }: ParsedStatement, script: LintedScript): readonly LintFinding[] =>
  kinds[kind]?.(tree, script) ?? []

function indexFindings({ relation, concurrent = false }: ParseTree, { created, subject }: LintedScript): LintFinding[] {
  const table = tableOf(relation)
  if (created.has(table)) return []
  if (!concurrent) return [objectOf('index-not-concurrent', table)]
  return subject.inTransaction ? [objectOf('concurrent-in-transaction', table)] : []
}

function renameFindings(
  { renameType, relation, subname }: ParseTree,
  { created, subject }: LintedScript,
): LintFinding[] {
  if (relation === undefined || created.has(tableOf(relation))) return []
  const table = tableOf(relation)
  if (renameType === 'OBJECT_COLUMN')
    return [objectOf('rename-column', `${table}.${subname}`, subject.usesOf(table, subname))]
  return renameType === 'OBJECT_TABLE' ? [objectOf('rename-table', table, subject.usesOf(table))] : []
}

function dropFindings(
  { removeType, objects, concurrent = false }: ParseTree,
  { created, subject }: LintedScript,
): LintFinding[] {
  // Functions and the like are named in another way, and no other session waits for them.
  if (removeType !== 'OBJECT_INDEX' && removeType !== 'OBJECT_TABLE') return []
  const names: string[] = objects.map(nameOf)
  if (removeType === 'OBJECT_INDEX') return concurrent ? [] : names.map((name) => objectOf('drop-index', name))
  return names.filter((name) => !created.has(name)).map((name) => objectOf('drop-table', name, subject.usesOf(name)))
}

/** The last part of a qualified name. */
const nameOf = (object: ParseTree): string => object.List.items.at(-1).String.sval

function ofTables(
  relations: readonly ParseTree[],
  { created }: LintedScript,
  rule: Parameters<typeof objectOf>[0],
): LintFinding[] {
  const names = relations.map(({ RangeVar }) => tableOf(RangeVar)).filter((name) => !created.has(name))
  return names.map((name) => objectOf(rule, name))
}

function wholeTableFindings({ relation, whereClause }: ParseTree, { created }: LintedScript): LintFinding[] {
  const table = tableOf(relation)
  return whereClause !== undefined || created.has(table) ? [] : [objectOf('whole-table-write', table)]
}

/** The findings of one ALTER TABLE, whose commands are judged one by one. */
function alterTableFindings({ relation, cmds, objtype }: ParseTree, { subject }: LintedScript): LintFinding[] {
  if (objtype !== 'OBJECT_TABLE') return []
  const table = tableOf(relation)
  return (cmds as { AlterTableCmd: ParseTree }[]).flatMap(({ AlterTableCmd: command }) =>
    commandFindings(command, table, subject),
  )
}

function commandFindings(command: ParseTree, table: string, subject: LintSubject): LintFinding[] {
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

function columnFindings({ colname, typeName, constraints = [] }: ParseTree, table: string): LintFinding[] {
  const object = `${table}.${colname}`
  const all: ParseTree[] = constraints.map((one: { Constraint: ParseTree }) => one.Constraint)
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
function constraintFindings(constraint: ParseTree, table: string, hasValues = true): LintFinding[] {
  const { contype, skip_validation: skipsValidation = false, indexname } = constraint
  if (contype === 'CONSTR_FOREIGN' && !skipsValidation && hasValues) return [objectOf('add-foreign-key', table)]
  if (contype === 'CONSTR_CHECK' && !skipsValidation && hasValues) return [objectOf('add-check', table)]
  const isIndexed = ['CONSTR_UNIQUE', 'CONSTR_PRIMARY', 'CONSTR_EXCLUSION'].includes(contype)
  return isIndexed && indexname === undefined ? [objectOf('add-unique', table)] : []
}

function typeFindings(
  { typeName, raw_default: using }: ParseTree,
  table: string,
  column: string,
  subject: LintSubject,
): LintFinding[] {
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
  const { FuncCall: call, ...others } = expression as ParseTree
  if (call === undefined) return Object.values(others).some(mayBeVolatile)
  return !steady.has(call.funcname.at(-1).String.sval) || mayBeVolatile(call.args ?? [])
}

/** Short names of the parser and of SQL for the names that PostgreSQL shows. */
const aliases: Readonly<Record<string, string>> = {
  int2: 'smallint',
  int4: 'integer',
  int: 'integer',
  int8: 'bigint',
  float4: 'real',
  float8: 'double precision',
  bool: 'boolean',
  varchar: 'character varying',
  bpchar: 'character',
  decimal: 'numeric',
  timestamptz: 'timestamp with time zone',
  timestamp: 'timestamp without time zone',
  timetz: 'time with time zone',
  time: 'time without time zone',
  varbit: 'bit varying',
}

/** A type of a parse tree in PostgreSQL's own words, as `format_type` writes it: `character varying(20)`, `integer[]`. */
function typeText({ names, typmods = [], arrayBounds }: ParseTree): string {
  const name: string = names.at(-1).String.sval
  const numbers = typmods.map(({ A_Const: constant }: ParseTree) => String(constant?.ival?.ival ?? 0))
  const written = `${aliases[name] ?? name}${numbers.length === 0 ? '' : `(${numbers.join(',')})`}`
  return arrayBounds === undefined ? written : `${written}[]`
}

type Type = { readonly base: string; readonly numbers: readonly number[]; readonly isArray: boolean }

/** Whether changing a column from one type to the other makes PostgreSQL write the table anew. */
function isRewritten(from: string, to: string): boolean {
  const [before, after] = [readType(from), readType(to)]
  if (before.isArray || after.isArray) return from !== to
  if (before.base === after.base)
    return before.base === 'numeric' ? !holdsNumeric(before, after) : !isWider(before, after)
  return !isSameStorage(before, after)
}

function readType(text: string): Type {
  const [, base = text, numbers = '', brackets = ''] =
    /^([^([]+?)(?:\(([\d,-]+)\))?(?: (?:with|without) time zone)?(\[\])?$/.exec(text) ?? []
  const zone = / (with|without) time zone/.exec(text)?.[0] ?? ''
  const plain = base.includes('time zone') || zone === '' ? base : `${base}${zone}`
  return { base: plain, numbers: numbers === '' ? [] : numbers.split(',').map(Number), isArray: brackets !== '' }
}

/** A length or precision may grow or be taken away. */
function isWider({ base, numbers: [before = fullOf(base)] }: Type, { numbers: [after] }: Type): boolean {
  return after === undefined || (before !== undefined && after >= before)
}

/** Times have six decimals unless it is said otherwise. */
const fullOf = (base: string): number | undefined => (/^time/.test(base) ? 6 : undefined)

function holdsNumeric({ numbers: [precision, scale = 0] }: Type, { numbers: [wider, newScale = 0] }: Type): boolean {
  if (wider === undefined) return true
  return precision !== undefined && wider >= precision && newScale === scale
}

/** Pairs that PostgreSQL stores alike; `text` has no length to check. */
function isSameStorage(before: Type, after: Type): boolean {
  if (before.base === 'character varying' && after.base === 'text') return true
  if (before.base === 'text' && after.base === 'character varying') return after.numbers.length === 0
  return before.base === 'cidr' && after.base === 'inet'
}

/** Reads the linter's facts about a database as it is now. */
export async function readSubject(db: Reader, config: Config): Promise<Omit<LintSubject, 'inTransaction'>> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: config.tenancy.enabled })
  const types = new Map((await columnTypes(db)).map(({ table, column, type }) => [`${table}.${column}`, type]))
  const checked = new Set((await checkedColumns(db)).map(({ table, column }) => `${table}.${column}`))
  return {
    columnType: (table, column) => types.get(`${table}.${column}`),
    isCheckedNotNull: (table, column) => checked.has(`${table}.${column}`),
    usesOf: (table, column) => usesOf(catalog, table, column),
  }
}

/** The parts of the collections that would lose their table or column. */
function usesOf(catalog: Catalog, table: string, column?: string): readonly string[] {
  const collection = catalog.collections.get(table)
  const own = column === undefined ? collection : collection?.fields.get(column)
  const of = column === undefined ? `collection ${table}` : `field ${column} of collection ${table}`
  return own === undefined ? [] : [of]
}

/** The facts that the linter needs about a script's database. */
export type LintSubject = {
  /** Whether the script runs in one transaction, as it does unless it opts out. */
  readonly inTransaction: boolean
  /** The column's present type in PostgreSQL's words, e.g. `character varying(255)`; undefined where there is none. */
  columnType(table: string, column: string): string | undefined
  /** Whether a validated check constraint says already that the column is not null. */
  isCheckedNotNull(table: string, column: string): boolean
  /** The dependents of a table, or of one of its columns: `field title of collection book`, … */
  usesOf(table: string, column?: string): readonly string[]
}

/** A script while it is read. */
type LintedScript = { readonly subject: LintSubject; readonly created: Set<string> }

type Lock = 'none' | 'ROW EXCLUSIVE' | 'SHARE' | 'SHARE ROW EXCLUSIVE' | 'ACCESS EXCLUSIVE'

type LockRule = {
  /** The strongest lock on the table while the statement runs. */
  readonly lock: Lock
  readonly why: string
  readonly safeWay: string
}

/** Every rule. Locks and rewrites are proven against PostgreSQL in `test/integration/migrations-lint.test.ts`. */
export const rules = {
  syntax: { lock: 'none', why: 'The statement does not parse.', safeWay: 'Fix the statement.' },
  'index-not-concurrent': {
    lock: 'SHARE',
    why: 'Writes wait until the whole table is indexed.',
    safeWay: 'CREATE INDEX CONCURRENTLY, in a script that runs without a transaction.',
  },
  'concurrent-in-transaction': {
    lock: 'none',
    why: 'CONCURRENTLY is refused inside a transaction.',
    safeWay: 'Let the script run without a transaction: export const transaction = false.',
  },
  'drop-index': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Reads and writes of the table wait for it, and it waits for the longest of them.',
    safeWay: 'DROP INDEX CONCURRENTLY, in a script that runs without a transaction.',
  },
  'add-required-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Without a default it fails on a table with rows, and old processes that insert fail afterwards.',
    safeWay:
      'Add the column with a constant default, or nullable, fill it in batches, then set it NOT NULL by a validated check.',
  },
  'volatile-default': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'A default that differs by row rewrites the table; reads and writes wait.',
    safeWay: 'Add the column without the default, set the default afterwards, fill existing rows in batches.',
  },
  'stored-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Serial, identity and stored generated columns rewrite the table; reads and writes wait.',
    safeWay: 'Add a plain column, fill it in batches, then attach the sequence or a trigger.',
  },
  'set-not-null': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The whole table is read while reads and writes wait.',
    safeWay:
      'ADD CONSTRAINT … CHECK (column IS NOT NULL) NOT VALID, VALIDATE CONSTRAINT, then SET NOT NULL and drop the check.',
  },
  'type-change': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The table and its indexes are rewritten; reads and writes wait.',
    safeWay: 'Add a second column, write both, fill it in batches, then read the new one and drop the old.',
  },
  'add-foreign-key': {
    lock: 'SHARE ROW EXCLUSIVE',
    why: 'Every row is checked while writes of both tables wait.',
    safeWay: 'ADD CONSTRAINT … NOT VALID, then VALIDATE CONSTRAINT in a later script.',
  },
  'add-check': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Every row is checked while reads and writes wait.',
    safeWay: 'ADD CONSTRAINT … NOT VALID, then VALIDATE CONSTRAINT in a later script.',
  },
  'add-unique': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Its index is built while reads and writes wait.',
    safeWay: 'CREATE UNIQUE INDEX CONCURRENTLY, then ADD CONSTRAINT … USING INDEX.',
  },
  'rename-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Processes that know the old name fail from then on.',
    safeWay: 'Add the new column, write both, move the readers, drop the old one in a later release.',
  },
  'rename-table': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Processes that know the old name fail from then on.',
    safeWay: 'Make the new table and a view of the old name, or rename the collection through the schema API.',
  },
  'drop-column': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Its values are gone, and processes that still name it fail.',
    safeWay: 'Remove every use, release, and drop it in a later migration.',
  },
  'drop-table': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Its rows are gone, and processes that still name it fail.',
    safeWay: 'Remove every use, release, and drop it in a later migration.',
  },
  truncate: {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Reads and writes wait, and the log cannot say which rows are gone.',
    safeWay: 'Delete in batches.',
  },
  'lock-table': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'Other users of the table wait until the transaction ends.',
    safeWay: 'Lock single rows, or take an advisory lock.',
  },
  'vacuum-full': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The table is rewritten; reads and writes wait.',
    safeWay: 'Plain VACUUM; to give space back, rewrite in batches.',
  },
  cluster: {
    lock: 'ACCESS EXCLUSIVE',
    why: 'The table is rewritten; reads and writes wait.',
    safeWay: 'An index that covers the query.',
  },
  reindex: {
    lock: 'SHARE',
    why: 'Writes wait until the indexes are built again.',
    safeWay: 'REINDEX CONCURRENTLY, in a script that runs without a transaction.',
  },
  'set-persistence': {
    lock: 'ACCESS EXCLUSIVE',
    why: 'SET LOGGED, SET UNLOGGED and SET TABLESPACE rewrite the table; reads and writes wait.',
    safeWay: 'Copy into a new table in batches and swap.',
  },
  'whole-table-write': {
    lock: 'ROW EXCLUSIVE',
    why: 'Every row is locked and written twice in one transaction; writers of these rows wait for its end.',
    safeWay: 'Write batches of some thousand rows, each in a transaction of its own.',
  },
} as const satisfies Record<string, LockRule>

type RuleName = keyof typeof rules

type LintFinding = LockRule & { readonly rule: RuleName; readonly object: string }

/** A finding about a table or column; what uses it is named where that is why. */
function objectOf(rule: RuleName, object: string, uses: readonly string[] = []): LintFinding {
  const { lock, why, safeWay } = rules[rule]
  return { rule, object, lock, why: uses.length === 0 ? why : `${why} In use by: ${uses.join(', ')}.`, safeWay }
}

/** The name of a table in a parse tree. */
const tableOf = ({ relname }: ParseTree): string => relname
