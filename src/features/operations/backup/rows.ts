/** Which rows a backup has, and the statements that copy them out and in. */
import { logSchema, logTable } from '../../../catalog/log-triggers.ts'
import { quoteText, type Reader, rawQuery } from '../../../db/sql.ts'
import { includesSnapshot, parseSnapshot } from '../../../events/cursor.ts'
import type { DatabaseRelation, Objects, TableColumn } from './objects.ts'

/** A table whose rows are copied. */
type CopiedTable = {
  readonly name: string
  readonly copyOut: string
  readonly copyIn: string
  /** Its approximate size in the database; for the progress. */
  readonly bytes: number
}

/**
 * Rows that stand for something which is not in a backup: processes that run, counts of the last minutes, places in the WAL of
 * this server, content that is half written, to be removed or can be made again, and mails with secrets that work.
 */
const withoutRows = [
  ...['svc_Lease', 'svc_TaskLock', 'svc_WriteMark', 'svc_RateLimit', 'svc_DevelopmentMail', 'svc_Hold'],
  ...['svc_Upload', 'svc_FileRemoval', 'svc_FileVariant'],
]

/** Waiting work comes first: what was written last stands at the end of the log anyway. */
export async function copiedTables(db: Reader, { relations, columns }: Objects): Promise<readonly CopiedTable[]> {
  const columnsOf = Map.groupBy(columns, ({ relation }) => relation)
  const renumbering = renumberingOf(await snapshotsIn(db, relations))
  const log = relations.find(({ schema, name }) => schema === 'public' && name === logTable)
  return relations.flatMap((relation) => {
    const isPlatforms = relation.schema === 'public' && withoutRows.includes(relation.name)
    if (relation.kind !== 'r' || isPlatforms) return []
    const stored = (columnsOf.get(relation.oid) ?? []).filter(({ generated }) => generated === '')
    const isLog = log !== undefined && relation.parent === log.ident
    return [copied(relation, stored, valuesIn(relation, isLog, renumbering))]
  })
}

function copied(
  relation: DatabaseRelation,
  columns: readonly TableColumn[],
  values: Readonly<Record<string, string>>,
): CopiedTable {
  const { ident, bytes } = relation
  const names = columns.map(({ name }) => name).join(', ')
  const list = columns.length === 0 ? '' : ` (${names})`
  const selected = columns.map(({ name, plainName }) => values[plainName] ?? `t.${name}`).join(', ')
  const from = Object.keys(values).length === 0 ? `${ident}${list}` : `(select ${selected} from only ${ident} t)`
  return {
    name: ident,
    copyOut: `copy ${from} to stdout`,
    copyIn: `copy ${ident}${list} from stdin with (freeze)`,
    bytes,
  }
}

/** Expressions in the place of columns. */
function valuesIn(
  { schema, name }: DatabaseRelation,
  isLog: boolean,
  renumbering: Renumbering,
): Readonly<Record<string, string>> {
  if (isLog) return { xid: renumbering.event('t.xid'), horizon: `'${firstNumber}'::xid8` }
  if (schema !== logSchema) return {}
  const snapshots = (...columns: readonly string[]) =>
    Object.fromEntries(columns.map((column) => [column, renumbering.snapshot(`t."${column}"`)]))
  switch (name) {
    case 'consumer':
      return {
        ...snapshots('snapshot', 'upTo'),
        ...{ token: 'null::uuid', holder: 'null::text', leaseUntil: 'null::timestamptz' },
        // The log does not reach back to its place: what was removed is not numbered anew.
        state: `case when pg_snapshot_xmin(t.snapshot) <= (select removed from ${logSchema}.floor) then 'stopped' else t.state end`,
      }
    case 'seal_state':
      return snapshots('from', 'upTo', 'sweep')
    case 'floor':
      return { removed: `'0'::xid8` }
    default:
      return {}
  }
}

/** The number of the oldest transactions; no server gives out one so small. */
const firstNumber = 3

/**
 * Numbers of transactions are a server's own. Events get new ones, as few as say the same of every place that is kept: the
 * first for what all have seen, and one more for each place that had not. They are smaller than any that a server gives out,
 * so they are visible wherever the backup is restored, and each place goes on exactly where it was.
 */
type Renumbering = { event(xid: string): string; snapshot(expression: string): string }

function renumberingOf(snapshots: readonly string[]): Renumbering {
  const ordered = snapshots.toSorted((a, b) => {
    const [left, right] = [parseSnapshot(a)!, parseSnapshot(b)!]
    if (includesSnapshot(right, left) !== includesSnapshot(left, right)) return includesSnapshot(right, left) ? -1 : 1
    return left.xmax < right.xmax ? -1 : left.xmax > right.xmax ? 1 : 0
  })
  const literal = (snapshot: string) => `'${snapshot}'::pg_snapshot`
  // Where one does not hold all of the one before it, that one counts for less: its reader meets an event again, and misses none.
  const unseen = ordered
    .map((snapshot, i) => `when not pg_visible_in_snapshot(XID, ${literal(snapshot)}) then '${firstNumber + i + 1}'`)
    .toReversed()
  const numbers = ordered.map((snapshot, i) => {
    const next = firstNumber + i + 1
    return `when '${snapshot}' then '${next}:${next}:'`
  })
  return {
    event: (xid) =>
      unseen.length === 0
        ? `'${firstNumber}'::xid8`
        : `(case ${unseen.join(' ').replaceAll('XID', xid)} else '${firstNumber}' end)::xid8`,
    snapshot: (expression) =>
      numbers.length === 0 ? expression : `(case ${expression}::text ${numbers.join(' ')} end)::pg_snapshot`,
  }
}

const places = [
  ['consumer', 'snapshot'],
  ['consumer', 'upTo'],
  ['seal_state', 'from'],
  ['seal_state', 'upTo'],
  ['seal_state', 'sweep'],
] as const

async function snapshotsIn(db: Reader, relations: readonly DatabaseRelation[]): Promise<readonly string[]> {
  const tables = new Set(relations.flatMap(({ schema, name }) => (schema === logSchema ? [name] : [])))
  const parts = places
    .filter(([table]) => tables.has(table))
    .map(
      ([table, column]) =>
        `select "${column}"::text as snapshot from ${logSchema}."${table}" where "${column}" is not null`,
    )
  if (parts.length === 0) return []
  const rows = await db.any<{ snapshot: string }>(rawQuery(parts.join(' union ')))
  return rows.map(({ snapshot }) => snapshot)
}

/** Where a sequence is. Not bound to any snapshot: read after the rows, it is beyond all of them. */
export type SequencePlace = { readonly ident: string; readonly last: string; readonly called: boolean }

export async function sequencePlaces(db: Reader, { sequences }: Objects): Promise<readonly SequencePlace[]> {
  const found: SequencePlace[] = []
  for (const { ident } of sequences) {
    const { last, called } = await db.one<{ last: string; called: boolean }>(
      rawQuery(`select last_value::text as last, is_called as called from ${ident}`),
    )
    found.push({ ident, last, called })
  }
  return found
}

export const setSequenceSql = ({ ident, last, called }: SequencePlace): string =>
  `select setval(${quoteText(ident)}::regclass, ${BigInt(last)}, ${called})`
