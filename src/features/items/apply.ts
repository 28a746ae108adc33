import type { Collection, Relation } from '../../catalog/catalog.ts'
import { rawQuery } from '../../db/sql.ts'
import { projectionSql } from '../../query/compile-rows.ts'
import { ident } from '../../query/sql.ts'
import { openWrite, type WriteContext } from './context.ts'
import { passwordChanged, setPasswords } from './credentials.ts'
import { meetsHooks, noteWritten } from './hooking.ts'
import { guardInserts, guardRow, guardRows } from './identities.ts'
import { applyLinks } from './links.ts'
import { type Cell, readPayload, type WriteAction } from './payload.ts'
import { openProblems, relationalError, unknownItem } from './problems.ts'
import { keyCell, type Run, runWrite, withCells } from './run.ts'
import { clearedOf, type Member, matched, type Owner, ownerOf, removeRows, restOf, rowsOfSet } from './sets.ts'
import { type Changed, insertStatement, recheckStatement, updateStatement } from './statements.ts'
import type { ChildSet, Element, Tree } from './tree.ts'
import { changedId, type Versions } from './versions.ts'

/**
 * Writes a row with everything that hangs on it: first the rows it points at, then itself, then the rows that point at
 * it. The id is the JSON text of its key. Its row rule is checked at the end, because the rule may look at those rows.
 */
export async function applyTree(
  run: Run,
  tree: Tree,
  given: readonly Cell[] = [],
  ifMatch?: Versions,
): Promise<string> {
  const keys: Cell[] = []
  for (const { relation, tree: parent } of tree.parents)
    keys.push(...(await keysTo(run, tree.context.collection, relation, parent)))
  const id = await writeRow(run, tree, withCells(tree.cells, [...keys, ...given]), ifMatch)
  for (const set of tree.sets) await applySet(run, tree, set, id)
  if (tree.sets.length > 0) await recheck(run, tree, id)
  return id
}

/** Writes the rows a tree points at, and gives the cells that do. */
async function keysTo(run: Run, own: Collection, relation: Relation, parent: Tree): Promise<readonly Cell[]> {
  const { foreignKey, discriminator } = relation
  const key = keyCell(own.fields.get(foreignKey)!, await targetKey(run, relation, parent))
  return discriminator === undefined
    ? [key]
    : [key, keyCell(own.fields.get(discriminator.column)!, discriminator.value)]
}

/** What a foreign key holds of a row just written: its primary key, or another unique column of it. */
async function targetKey(run: Run, { targetKey: name }: Relation, parent: Tree): Promise<unknown> {
  const { collection } = parent.context
  const id = await applyTree(run, parent)
  const { primaryKey, fields } = collection
  if (name === primaryKey.name) return JSON.parse(id)
  const { value, pgType } = keyCell(primaryKey, JSON.parse(id))
  const { key } = await run.tx.one<{ key: unknown }>(
    rawQuery(
      `select to_jsonb(${projectionSql(fields.get(name)!, 't')}) as key from ${ident(collection.name)} t where t.${ident(primaryKey.name)} = $1::${pgType}`,
      [value],
    ),
  )
  return key
}

async function writeRow(run: Run, tree: Tree, cells: readonly Cell[], ifMatch?: Versions): Promise<string> {
  const { context, id, references, sortsLast } = tree
  const hasSets = tree.sets.length > 0
  if (id === undefined) guardInserts(run, context, [cells])
  const guarded = id === undefined ? undefined : await guardRow(run, tree, cells)
  const all = withCells(cells, guarded?.cells ?? [])
  const write =
    id === undefined
      ? insertStatement(context, [{ cells, references, sortsLast }], { checked: !hasSets })
      : updateStatement(context, [id], { cells: all, references }, { checked: !hasSets, locked: hasSets, ifMatch })
  const written = changedId('update', await runWrite<Changed>(run, write, tree))
  if (id !== undefined && setPasswords(context.collection, cells)) await passwordChanged(run, written)
  await guarded?.after()
  noteTree(run, tree, written)
  return written
}

/** Lets the hooks of its collection hear of a row that was written. */
export function noteTree(run: Run, { context, previous }: Tree, id: string): void {
  noteWritten(run, { collection: context.collection, action: context.action, id, previous })
}

async function recheck(run: Run, { context }: Tree, id: string): Promise<void> {
  const check = recheckStatement(context, String(JSON.parse(id)))
  if (check !== undefined) await runWrite(run, check)
}

/**
 * Makes a relation hold exactly these rows: what is missing is let go or deleted, existing rows are taken over and
 * changed, new ones created. Rows that the caller can neither see nor change stay where they are.
 */
async function applySet(run: Run, tree: Tree, set: ChildSet, parentId: string): Promise<void> {
  if (set.relation.kind === 'belongsToMany') {
    const ids: Member[] = []
    for (const element of set.elements) ids.push(await memberOf(run, element))
    return applyLinks(run, tree, set, parentId, ids)
  }
  const owner = ownerOf(set, parentId)
  const present = tree.id === undefined ? [] : await rowsOfSet(run, set, owner)
  const { kept, elements } = matched(set, present)
  const left = await removeRows(
    run,
    set,
    owner,
    present.filter(({ key }) => !kept.has(key)),
  )
  await updateEach(run, set, left, clearedOf(owner))
  await takeOver(
    run,
    set,
    owner,
    elements.filter(({ id, tree: changes }) => changes === undefined && !kept.has(id!)),
  )
  for (const element of elements) await changeRow(run, set, owner, element, kept)
  await createRows(run, set, owner, elements)
}

/** The other end of a many-to-many link: named by its id, or written first. */
async function memberOf(run: Run, { id, tree, label }: Element): Promise<Member> {
  if (tree === undefined) return { id: id!, label, isOwn: false }
  return { id: String(JSON.parse(await applyTree(run, tree))), label, isOwn: true }
}

/** Points rows that were not in the set at their new parent, which is an update of them. */
async function takeOver(run: Run, set: ChildSet, owner: Owner, elements: readonly Element[]): Promise<void> {
  const { target } = set
  if (elements.length === 0) return
  const context = openWrite(run.rt, run.writer, target.name, 'update', { asPart: true })
  if (meetsHooks(run.rt, context)) return updateEach(run, set, elements, owner)
  const { cells } = readPayload(context, owner.payload, { trusted: true })
  const ids = [...new Set(elements.map(({ id }) => id!))]
  const { cells: all, after } = await guardRows(run, context, ids, cells)
  const taken = await runWrite(run, updateStatement(context, ids, { cells: all, references: new Map() }))
  await after()
  if (taken.length === ids.length) return
  const found = new Set(taken.map(({ id }) => String(JSON.parse(id))))
  const missing = elements.filter(({ id }) => !found.has(id!))
  throw relationalError(missing.map(({ label }) => ({ field: label, message: unknownItem('update') })))
}

/** Rows with hooks are changed one by one: each hook may make of its row what the caller may. */
async function updateEach(
  run: Run,
  set: ChildSet,
  rows: readonly Pick<Element, 'id' | 'label'>[],
  owner: Owner,
): Promise<void> {
  for (const { id, label } of rows) {
    const context = openWrite(run.rt, run.writer, set.target.name, 'update', { asPart: true })
    const tree = await set.planUpdate(id!, {}, label)
    if (tree.previous === undefined) throw relationalError([{ field: label, message: unknownItem('update') }])
    await applyTree(run, tree, ownedCells(context, owner))
  }
}

async function changeRow(
  run: Run,
  set: ChildSet,
  owner: Owner,
  element: Element,
  kept: ReadonlySet<string>,
): Promise<void> {
  const { id, tree, label } = element
  if (id === undefined) return
  const rest = tree === undefined && kept.has(id) ? restOf(set, element) : {}
  const changes = Object.keys(rest).length === 0 ? tree : await set.planUpdate(id, rest, label)
  if (changes === undefined) return
  const context = openWrite(run.rt, run.writer, set.target.name, 'update', { asPart: true })
  await applyTree(run, changes, kept.has(id) ? [] : ownedCells(context, owner))
}

/** Plain rows of one set are one statement. */
async function createRows(
  run: Run,
  { target, label }: ChildSet,
  owner: Owner,
  elements: readonly Element[],
): Promise<void> {
  const trees = elements.flatMap(({ tree }) => (tree === undefined || tree.id !== undefined ? [] : [tree]))
  if (trees.length === 0) return
  const context = openWrite(run.rt, run.writer, target.name, 'create', { asPart: true })
  const cells = ownedCells(context, owner)
  const isPlain = trees.every(({ parents, sets }) => parents.length === 0 && sets.length === 0)
  if (!isPlain) {
    for (const tree of trees) await applyTree(run, tree, cells)
    return
  }
  const rows = trees.map((tree) => ({ ...tree, cells: withCells(tree.cells, cells) }))
  guardInserts(
    run,
    context,
    rows.map((row) => row.cells),
  )
  const place = { label: `${label}.`, aliases: trees[0]!.aliases, rows }
  const ids = await runWrite(run, insertStatement(context, rows), place)
  for (const [index, { id }] of ids.entries()) noteTree(run, trees[index]!, id)
}

/** The columns that make a row one of the parent's; the caller must be allowed to write them. */
function ownedCells(context: WriteContext & { action: WriteAction }, owner: Owner): readonly Cell[] {
  // Its other columns are read elsewhere, so that they are missing here is no problem.
  const { cells } = readPayload(context, owner.payload, { trusted: true, problems: openProblems() })
  return cells.filter(({ field }) => Object.hasOwn(owner.payload, field.name))
}
