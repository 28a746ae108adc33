/**
 * A database as the statements that make it again: those before its rows come, so that they can be copied in, and those after,
 * so that indexes are built once and no trigger takes restored rows for new ones. Pure.
 */
import { quoteText } from '../../../db/sql.ts'
import type {
  Constraint,
  DatabaseRelation,
  Dependency,
  Objects,
  Sequence,
  TableColumn,
  TableIndex,
  TableTrigger,
  UserType,
} from './objects.ts'

export type DatabaseDefinition = {
  readonly extensions: readonly { readonly name: string; readonly schema: string }[]
  readonly before: readonly string[]
  readonly after: readonly string[]
  /** For roles that may not be there: each with its statement. */
  readonly grants: readonly { readonly role: string; readonly statement: string }[]
}

/** The omitted parts of a backup, for the person who restores it. */
export function notesOf({ leftOut, indexes, publications }: Objects): readonly string[] {
  return [
    ...leftOut.map((schema) => `schema ${schema} belongs to another role and is left out`),
    ...publications.map((name) => `publication ${name} is left out`),
    ...indexes.flatMap(({ valid, ident }) => (valid ? [] : [`index ${ident} is invalid and is left out`])),
  ]
}

export function definitionOf(objects: Objects): DatabaseDefinition {
  const { schemas, relations, sequences, constraints, indexes, triggers, rules, statistics } = objects
  return {
    extensions: objects.extensions,
    before: [
      ...schemas.flatMap(({ name, plainName }) => (plainName === 'public' ? [] : [`create schema ${name}`])),
      ...inOrder(nodesOf(objects), edgesOf(objects)).flatMap(({ statements }) => statements),
      ...relations.flatMap(({ bound, parent, ident }) =>
        bound === null ? [] : [`alter table only ${parent} attach partition ${ident} ${bound}`],
      ),
      ...sequences.flatMap(({ ident, ownedBy }) =>
        ownedBy === null ? [] : [`alter sequence ${ident} owned by ${ownedBy}`],
      ),
    ],
    after: [
      ...constraints.filter(({ kind }) => kind !== 'f').map(constraintSql),
      ...indexes.flatMap(({ definition, valid }) => (definition === null || !valid ? [] : [definition])),
      ...indexes.flatMap(({ parent, ident }) =>
        parent === null ? [] : [`alter index ${parent} attach partition ${ident}`],
      ),
      ...indexes.flatMap(roleOfIndexSql),
      ...relations.flatMap(({ ident, kind, replicaIdentity }) =>
        (kind === 'r' || kind === 'p') && (replicaIdentity === 'f' || replicaIdentity === 'n')
          ? [`alter table only ${ident} replica identity ${replicaIdentity === 'f' ? 'full' : 'nothing'}`]
          : [],
      ),
      ...constraints.filter(({ kind }) => kind === 'f').map(constraintSql),
      ...statistics.map(({ definition }) => definition),
      ...rules.map(({ definition }) => definition),
      ...triggers.flatMap(triggerSql),
      ...relations.flatMap(({ kind, populated, ident }) =>
        kind === 'm' && populated ? [`refresh materialized view ${ident}`] : [],
      ),
      ...objects.comments.flatMap(({ kind, identity, text }) => {
        const word = commentWords[kind]
        return word === undefined ? [] : [`comment on ${word} ${identity} is ${quoteText(text)}`]
      }),
      ...objects.withoutPublic.map(({ kind, identity }) => `revoke all on ${kind} ${identity} from public`),
    ],
    grants: objects.grants.flatMap(({ kind, identity, column, role, privileges, grantable }) => {
      const on = column === null ? (grantWords[kind] ?? '') : ''
      const what = privileges.map((name) => (column === null ? name : `${name} (${column})`)).join(', ')
      const statement = `grant ${what} on ${on} ${identity} to ${role ?? 'public'}${grantable ? ' with grant option' : ''}`
      return [{ role: role ?? 'public', statement }]
    }),
  }
}

/** Everything whose statements depend on each other. */
function nodesOf(objects: Objects): DefinitionNode[] {
  const columnsOf = Map.groupBy(objects.columns, ({ relation }) => relation)
  const identities = new Map(
    objects.sequences.flatMap((one) => (one.identityOf === null ? [] : [[one.identityOf, one]])),
  )
  const columns = (oid: string) => columnsOf.get(oid) ?? []
  const defaults = objects.relations.flatMap((relation) =>
    columns(relation.oid).flatMap((column) =>
      column.expression !== null && column.generated === '' ? [defaultNode(relation, column)] : [],
    ),
  )
  return [
    ...objects.types.map((type) => ({ key: `pg_type ${type.oid}`, statements: [typeSql(type, columns)] })),
    ...objects.sequences.flatMap((one) =>
      one.identityOf === null ? [{ key: `pg_class ${one.oid}`, statements: [sequenceSql(one)] }] : [],
    ),
    ...objects.relations.map((relation) => ({
      key: `pg_class ${relation.oid}`,
      statements: relationSql(relation, columns(relation.oid), identities),
    })),
    ...objects.routines.map(({ oid, definition }) => ({ key: `pg_proc ${oid}`, statements: [definition] })),
    ...defaults,
  ]
}

/** By what PostgreSQL calls objects. */
const commentWords: Readonly<Record<string, string>> = {
  table: 'table',
  view: 'view',
  'materialized view': 'materialized view',
  index: 'index',
  sequence: 'sequence',
  'table column': 'column',
  'view column': 'column',
  'materialized view column': 'column',
  'composite type column': 'column',
  function: 'function',
  procedure: 'procedure',
  type: 'type',
  domain: 'domain',
  'table constraint': 'constraint',
  trigger: 'trigger',
  schema: 'schema',
}

const grantWords: Readonly<Record<string, string>> = {
  table: 'table',
  view: 'table',
  'materialized view': 'table',
  sequence: 'sequence',
  function: 'function',
  procedure: 'procedure',
  type: 'type',
  domain: 'domain',
  schema: 'schema',
}

const withOptions = (options: readonly string[], toast: readonly string[]): string => {
  const all = [...options, ...toast.map((option) => `toast.${option}`)].map((option) => {
    const at = option.indexOf('=')
    return `${option.slice(0, at)} = ${quoteText(option.slice(at + 1)).trim()}`
  })
  return all.length === 0 ? '' : ` with (${all.join(', ')})`
}

function relationSql(
  relation: DatabaseRelation,
  columns: readonly TableColumn[],
  identities: ReadonlyMap<string, Sequence>,
): string[] {
  const { ident, kind, definition, unlogged, partitionKey } = relation
  const options = withOptions(relation.options ?? [], relation.toastOptions ?? [])
  const query = definition?.replace(/;\s*$/, '')
  const names = columns.map(({ name }) => name).join(', ')
  if (kind === 'v') return [`create view ${ident} (${names})${options} as ${query}`]
  if (kind === 'm') return [`create materialized view ${ident} (${names})${options} as ${query} with no data`]
  const lines = columns.map((column) => columnSql(column, identities.get(`${relation.oid} ${column.name}`)))
  const partitioned = partitionKey === null ? '' : ` partition by ${partitionKey}`
  return [
    `create ${unlogged ? 'unlogged ' : ''}table ${ident} (\n  ${lines.join(',\n  ')}\n)${partitioned}${options}`,
    ...columns.flatMap((column) => columnSettingsSql(ident, column)),
  ]
}

function columnSql(column: TableColumn, sequence: Sequence | undefined): string {
  const { name, type, collation, notNull, identity, generated, expression } = column
  return [
    `${name} ${type}`,
    collation === null ? '' : ` collate ${collation}`,
    generated === '' ? '' : ` generated always as (${expression}) ${generated === 's' ? 'stored' : 'virtual'}`,
    notNull ? ' not null' : '',
    identity === ''
      ? ''
      : ` generated ${identity === 'a' ? 'always' : 'by default'} as identity (sequence name ${sequence!.ident} ${sequenceOptions(sequence!)})`,
  ].join('')
}

const storages: Readonly<Record<string, string>> = { p: 'plain', e: 'external', m: 'main', x: 'extended' }
const compressions: Readonly<Record<string, string>> = { p: 'pglz', l: 'lz4' }

function columnSettingsSql(ident: string, { name, storage, compression, statistics, options }: TableColumn): string[] {
  const set = (what: string) => `alter table only ${ident} alter column ${name} set ${what}`
  return [
    ...(storage === null ? [] : [set(`storage ${storages[storage]}`)]),
    ...(compression === null ? [] : [set(`compression ${compressions[compression]}`)]),
    ...(statistics === null ? [] : [set(`statistics ${statistics}`)]),
    ...(options === null ? [] : [set(`(${options.join(', ')})`)]),
  ]
}

const sequenceOptions = ({ start, increment, min, max, cache, cycle }: Sequence): string =>
  `start with ${start} increment by ${increment} minvalue ${min} maxvalue ${max} cache ${cache}${cycle ? ' cycle' : ''}`

const sequenceSql = (sequence: Sequence): string =>
  `create ${sequence.unlogged ? 'unlogged ' : ''}sequence ${sequence.ident} as ${sequence.type} ${sequenceOptions(sequence)}`

function typeSql(type: UserType, columns: (relation: string) => readonly TableColumn[]): string {
  const { ident, kind, labels, parts, base, collation, fallback, notNull, constraints, relation } = type
  switch (kind) {
    case 'e':
      return `create type ${ident} as enum (${(labels ?? []).map((label) => quoteText(label)).join(', ')})`
    case 'r':
      return `create type ${ident} as range (${parts!.join(', ')})`
    case 'c': {
      const members = columns(relation!).map(
        ({ name, type, collation }) => `${name} ${type}${collation === null ? '' : ` collate ${collation}`}`,
      )
      return `create type ${ident} as (${members.join(', ')})`
    }
    case 'd':
      return [
        `create domain ${ident} as ${base}`,
        collation === null ? '' : ` collate ${collation}`,
        fallback === null ? '' : ` default ${fallback}`,
        notNull ? ' not null' : '',
        ...(constraints ?? []).map((constraint) => ` ${constraint}`),
      ].join('')
  }
}

/** A key of a partitioned table is made without those of its partitions, which are made as their own and then attached. */
function constraintSql({ ident, name, kind, definition }: Constraint): string {
  const only = kind === 'p' || kind === 'u' || kind === 'x' ? 'only ' : ''
  return `alter table ${only}${ident} add constraint ${name} ${definition}`
}

function roleOfIndexSql({ table, name, clustered, replicaIdentity }: TableIndex): string[] {
  return [
    ...(clustered ? [`alter table ${table} cluster on ${name}`] : []),
    ...(replicaIdentity ? [`alter table only ${table} replica identity using index ${name}`] : []),
  ]
}

const enablings: Readonly<Record<string, string>> = {
  D: 'disable trigger',
  R: 'enable replica trigger',
  A: 'enable always trigger',
}

function triggerSql({ ident, name, definition, enabled }: TableTrigger): string[] {
  const enabling = enablings[enabled]
  return [definition, ...(enabling === undefined ? [] : [`alter table ${ident} ${enabling} ${name}`])]
}

/** An object made by one statement or a few, with the key by which others depend on it. */
type DefinitionNode = { readonly key: string; readonly statements: readonly string[] }

function defaultNode({ ident }: DatabaseRelation, { name, expression, expressionOid }: TableColumn): DefinitionNode {
  const statement = `alter table only ${ident} alter column ${name} set default ${expression}`
  return { key: `pg_attrdef ${expressionOid}`, statements: [statement] }
}

/** Dependencies between nodes: each by its key, on keys. */
function edgesOf(objects: Objects): ReadonlyMap<string, readonly string[]> {
  const types = new Map(objects.typeMakers.map(([oid, catalog, maker]) => [oid, `${catalog} ${maker}`]))
  const composites = new Map(objects.types.flatMap(({ relation, oid }) => (relation === null ? [] : [[relation, oid]])))
  const rules = new Map(objects.ruleOwners)
  const checks = new Map(objects.domainChecks)
  const generated = new Map(
    objects.columns.flatMap(({ expressionOid, generated, relation }) =>
      expressionOid !== null && generated !== '' ? [[expressionOid, relation]] : [],
    ),
  )
  const keyOf = (catalog: string, oid: string): string | undefined => {
    switch (catalog) {
      case 'pg_class': {
        const type = composites.get(oid)
        return type === undefined ? `pg_class ${oid}` : `pg_type ${type}`
      }
      case 'pg_type':
        return types.get(oid)
      case 'pg_rewrite':
        return rules.has(oid) ? `pg_class ${rules.get(oid)}` : undefined
      case 'pg_constraint':
        return checks.has(oid) ? `pg_type ${checks.get(oid)}` : undefined
      case 'pg_attrdef':
        return generated.has(oid) ? `pg_class ${generated.get(oid)}` : `pg_attrdef ${oid}`
      default:
        return `${catalog} ${oid}`
    }
  }
  const defaults: Dependency[] = objects.columns.flatMap(({ expressionOid, generated, relation }) =>
    expressionOid !== null && generated === '' ? [['pg_attrdef', expressionOid, 'pg_class', relation] as const] : [],
  )
  const edges = new Map<string, Set<string>>()
  for (const [catalog, oid, on, onOid] of [...objects.dependencies, ...defaults]) {
    const [from, to] = [keyOf(catalog, oid), keyOf(on, onOid)]
    if (from === undefined || to === undefined || from === to) continue
    edges.set(from, (edges.get(from) ?? new Set()).add(to))
  }
  return new Map([...edges].map(([from, to]) => [from, [...to]]))
}

/** Each after what it depends on, else in the order given. A circle is cut where it was entered: its statement then says so. */
function inOrder(
  nodes: readonly DefinitionNode[],
  edges: ReadonlyMap<string, readonly string[]>,
): readonly DefinitionNode[] {
  const byKey = new Map(nodes.map((node) => [node.key, node]))
  const done = new Set<string>()
  const ordered: DefinitionNode[] = []
  const visit = (first: DefinitionNode): void => {
    // Not by recursion: views stand on views without end.
    const stack: { readonly node: DefinitionNode; next: number }[] = [{ node: first, next: 0 }]
    done.add(first.key)
    while (stack.length > 0) {
      const top = stack.at(-1)!
      const on = (edges.get(top.node.key) ?? [])[top.next]
      top.next += 1
      if (on === undefined) {
        ordered.push(top.node)
        stack.pop()
        continue
      }
      const node = byKey.get(on)
      if (node === undefined || done.has(on)) continue
      done.add(on)
      stack.push({ node, next: 0 })
    }
  }
  for (const node of nodes) if (!done.has(node.key)) visit(node)
  return ordered
}
