import type { Collection, Relation } from '../../catalog/catalog.ts'
import { rawQuery } from '../../db/sql.ts'
import { createParams, ident, type Params } from '../../query/sql.ts'
import { openWrite, type WriteContext } from './context.ts'
import { beforeRow, noteWritten } from './hooking.ts'
import { guardInserts } from './identities.ts'
import { readPayload } from './payload.ts'
import { openProblems } from './problems.ts'
import { type Reference, referenceOf } from './references.ts'
import { deleteRows } from './removal.ts'
import { keyCell, type Run, runWrite, withCells } from './run.ts'
import { type Member, seenSql } from './sets.ts'
import { insertStatement, projection, type Row } from './statements.ts'
import type { ChildSet, Tree } from './tree.ts'

/**
 * Makes a direct many-to-many relation link exactly these items: rows of the collection between are deleted and created,
 * each by that collection's own permission (or the parent's, where it is a junction). Links that stay are not touched,
 * nor are links to items that the caller cannot see.
 */
export async function applyLinks(
  run: Run,
  tree: Tree,
  { relation, target, label }: ChildSet,
  parentId: string,
  members: readonly Member[],
): Promise<void> {
  const link: Link = {
    relation,
    target,
    parentId,
    through: run.rt.catalog.current().collections.get(relation.through!)!,
  }
  const present = tree.id === undefined ? [] : await linksOf(run, link)
  const wanted = new Map(members.map((member) => [member.id, member]))
  const gone = present.filter(({ end, seen }) => seen && !wanted.has(end)).map(({ id }) => String(JSON.parse(id)))
  if (gone.length > 0) {
    const context = openWrite(run.rt, run.writer, link.through.name, 'delete', { asPart: true })
    await deleteRows(run, context, gone)
  }
  for (const { end } of present) wanted.delete(end)
  await addLinks(run, link, label, [...wanted.values()])
}

type Link = {
  readonly relation: Relation
  readonly target: Collection
  readonly parentId: string
  readonly through: Collection
}

type PresentLink = { readonly id: string; readonly end: string; readonly seen: boolean }

async function linksOf(run: Run, { relation, target, parentId, through }: Link): Promise<readonly PresentLink[]> {
  const params = createParams()
  const parent = keyCell(through.fields.get(relation.foreignKey)!, JSON.parse(parentId))
  const kept = through.paranoid ? ' and l."deletedAt" is null' : ''
  return run.tx.any<PresentLink>(
    rawQuery(
      `select ${projection(through, 'l')}, l.${ident(relation.otherKey!)}::text as end, ${endSeen(run, relation, target, params)} as seen
       from ${ident(through.name)} l
       where l.${ident(relation.foreignKey)} = ${params.bind(parent.value, parent.pgType)}${kept}`,
      params.values,
    ),
  )
}

function endSeen(run: Run, relation: Relation, target: Collection, params: Params): string {
  const seen = seenSql(run, target, params)
  if (seen === 'true' || seen === 'false') return seen
  const key = `t.${ident(target.primaryKey.name)} = l.${ident(relation.otherKey!)}`
  return `exists(select 1 from ${ident(target.name)} t where ${key} and ${seen})`
}

async function addLinks(run: Run, link: Link, label: string, members: readonly Member[]): Promise<void> {
  if (members.length === 0) return
  const { relation, parentId, through } = link
  const context = openWrite(run.rt, run.writer, through.name, 'create', { asPart: true })
  const named = members.some(({ isOwn }) => !isOwn)
    ? referenceOf(context, endOf(link), { byRelation: true })
    : undefined
  const rows: LinkRow[] = []
  for (const { id, isOwn, label: place } of members) {
    const ends = { [relation.foreignKey]: JSON.parse(parentId), [relation.otherKey!]: id }
    const { payload } = await beforeRow({ rt: run.rt, run }, context, ends, undefined)
    const references = new Map<string, Reference>()
    if (!isOwn && named !== undefined) references.set(relation.otherKey!, named)
    rows.push(linkRow(context, { ends, payload, references, label: `${place}.` }))
  }
  guardInserts(
    run,
    context,
    rows.map((row) => row.cells),
  )
  const ids = await runWrite(run, insertStatement(context, rows), {
    label: label.slice(0, -relation.name.length),
    rows,
  })
  for (const { id } of ids) noteWritten(run, { collection: through, action: 'create', id, previous: undefined })
}

/** What is linked is the request's to say; what hooks put beside it is read like a payload. */
function linkRow(
  context: WriteContext & { readonly action: 'create' },
  { ends, payload, references, label }: NewLink,
): LinkRow {
  const own = readPayload(context, ends, { trusted: true, problems: openProblems() })
  const beside = readPayload(context, payload, { filled: new Set(Object.keys(ends)), label })
  const cells = own.cells.filter(({ field }) => Object.hasOwn(ends, field.name))
  return {
    ...beside,
    label,
    cells: withCells(beside.cells, cells),
    references: new Map([...beside.references, ...references]),
  }
}

type LinkRow = Row & { readonly label: string }

type NewLink = {
  readonly ends: Readonly<Record<string, unknown>>
  readonly payload: unknown
  readonly references: Map<string, Reference>
  /** Where in the request the other end stands. */
  readonly label: string
}

/** The relation from the row between to the item that it links; nothing but our own check says whether that is there. */
function endOf({ relation, target }: Link): Relation {
  return {
    ...relation,
    kind: 'belongsTo',
    foreignKey: relation.otherKey!,
    targetKey: target.primaryKey.name,
    through: undefined,
    otherKey: undefined,
    constraint: false,
  }
}
