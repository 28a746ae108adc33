/**
 * What a migration would stop while it runs. Every finding names the lock that is held, what waits for it, and a way
 * to the same end that nobody has to wait for. Pure: what it must know of the database comes with the {@link Subject}.
 */
import { type ParsedStatement, parseSql, SqlSyntaxError, type Tree } from '../../adapters/sql-parser.ts'
import { alterTableFindings } from './lint-alter-table.ts'
import { type Found, objectOf, type Script, type Subject, tableOf } from './lint-rules.ts'

export type Finding = Found & {
  /** Place of the statement among all that were given, from 1. */
  readonly statement: number
  readonly sql: string
}

/**
 * The findings of a script's statements, in their order. Tables that the script itself creates are nobody's yet, so
 * what happens to them is no finding. A text that does not parse is one, of rule `syntax`.
 */
export async function lintSql(texts: readonly string[], subject: Subject): Promise<readonly Finding[]> {
  const script: Script = { subject, created: new Set() }
  const findings: Finding[] = []
  let statement = 0
  for (const text of texts)
    for (const one of await statementsOf(text)) {
      statement += 1
      const found = 'problem' in one ? [one.problem] : findingsOf(one, script)
      findings.push(...found.map((each) => ({ ...each, statement, sql: 'problem' in one ? text.trim() : one.text })))
    }
  return findings
}

async function statementsOf(text: string): Promise<readonly (ParsedStatement | { problem: Found })[]> {
  try {
    return await parseSql(text)
  } catch (error) {
    if (!(error instanceof SqlSyntaxError)) throw error
    const problem: Found = {
      rule: 'syntax',
      object: '',
      lock: 'none',
      why: error.message,
      safeWay: 'Mend the statement.',
    }
    return [{ problem }]
  }
}

type Kind = (tree: Tree, script: Script) => readonly Found[]

const kinds: Readonly<Record<string, Kind>> = {
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
    const isFull = options.some(({ DefElem }: Tree) => DefElem.defname === 'full')
    return isFull
      ? ofTables(
          rels.map((rel: Tree) => ({ RangeVar: rel.VacuumRelation.relation })),
          script,
          'vacuum-full',
        )
      : []
  },
  ClusterStmt: ({ relation }, script) =>
    ofTables(relation === undefined ? [] : [{ RangeVar: relation }], script, 'cluster'),
  ReindexStmt: ({ relation, params = [] }, script) =>
    params.some(({ DefElem }: Tree) => DefElem.defname === 'concurrently')
      ? []
      : ofTables(relation === undefined ? [] : [{ RangeVar: relation }], script, 'reindex'),
  UpdateStmt: wholeTableFindings,
  DeleteStmt: wholeTableFindings,
}

const findingsOf = ({ kind, tree }: ParsedStatement, script: Script): readonly Found[] =>
  kinds[kind]?.(tree, script) ?? []

function indexFindings({ relation, concurrent = false }: Tree, { created, subject }: Script): Found[] {
  const table = tableOf(relation)
  if (created.has(table)) return []
  if (!concurrent) return [objectOf('index-not-concurrent', table)]
  return subject.inTransaction ? [objectOf('concurrent-in-transaction', table)] : []
}

function renameFindings({ renameType, relation, subname }: Tree, { created, subject }: Script): Found[] {
  if (relation === undefined || created.has(tableOf(relation))) return []
  const table = tableOf(relation)
  if (renameType === 'OBJECT_COLUMN')
    return [objectOf('rename-column', `${table}.${subname}`, subject.usesOf(table, subname))]
  return renameType === 'OBJECT_TABLE' ? [objectOf('rename-table', table, subject.usesOf(table))] : []
}

function dropFindings({ removeType, objects, concurrent = false }: Tree, { created, subject }: Script): Found[] {
  // Functions and the like are named in another way, and nobody waits for them.
  if (removeType !== 'OBJECT_INDEX' && removeType !== 'OBJECT_TABLE') return []
  const names: string[] = objects.map(nameOf)
  if (removeType === 'OBJECT_INDEX') return concurrent ? [] : names.map((name) => objectOf('drop-index', name))
  return names.filter((name) => !created.has(name)).map((name) => objectOf('drop-table', name, subject.usesOf(name)))
}

/** The last part of a qualified name. */
const nameOf = (object: Tree): string => object.List.items.at(-1).String.sval

function ofTables(relations: readonly Tree[], { created }: Script, rule: Parameters<typeof objectOf>[0]): Found[] {
  const names = relations.map(({ RangeVar }) => tableOf(RangeVar)).filter((name) => !created.has(name))
  return names.map((name) => objectOf(rule, name))
}

function wholeTableFindings({ relation, whereClause }: Tree, { created }: Script): Found[] {
  const table = tableOf(relation)
  return whereClause !== undefined || created.has(table) ? [] : [objectOf('whole-table-write', table)]
}
