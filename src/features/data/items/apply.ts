import type { Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { compileCondition } from '../../../query/compile.ts'
import { projectionSql } from '../../../query/compile-rows.ts'
import { resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { createParams, ident, literal, type Params } from '../../../query/sql.ts'
import {
  type Cell,
  isJunction,
  keyCell,
  openProblems,
  placeOf,
  type Run,
  relationalError,
  rulesOf,
  runWrite,
  unknownNested,
  type WriteAction,
  type WriteContext,
  withCells,
} from './context.ts'
import { guardDelete, guardInserts, guardRow, guardRows, guardTrees } from './guard.ts'
import { beforeGone, beforeRow, goesOneByOne, meetsHooks, noteWritten } from './hooking.ts'
import { noTenant, type TenantOfRow, tenantFirst, tenantOf, withTenant } from './nested-tenants.ts'
import { readPayload } from './payload.ts'
import { type ChildSet, type Element, inTurn, openWrite, type Tree, type TreeParent } from './plan.ts'
import { type Reference, referenceOf } from './references.ts'
import {
  allMade,
  type ChangedId,
  changedId,
  deleteStatement,
  insertStatement,
  projection,
  type RowToWrite,
  recheckStatement,
  ruleSql,
  updateStatement,
  type Versions,
} from './statements.ts'

/** Writes planned rows in a transaction: whole trees, the sets and links that hang on them, and deletions. */

/** A statement is made in one go, and no other request has a turn meanwhile. */
export const rowsPerStatement = 2000

/** Creates rows inside a transaction, runs of plain ones in one statement each; ids in the order of the trees. */
export async function createTrees(given: Run, trees: readonly Tree[]): Promise<string[]> {
  const run = await guardTrees(given, trees)
  const ids: string[] = []
  for (let at = 0; at < trees.length; ) {
    const tree = trees[at]!
    const nested = trees.findIndex((other, index) => index >= at && !isPlain(other))
    const end = Math.min(nested === -1 ? trees.length : nested, at + rowsPerStatement)
    const plain = trees.slice(at, end)
    if (plain.length === 0) ids.push(await applyTree(run, tree))
    else {
      guardInserts(run, tree.context, plain)
      const made = allMade(await runWrite(run, insertStatement(tree.context, plain), placeOf(plain)), plain.length)
      for (const [index, { id }] of made.entries()) noteTree(run, plain[index]!, id)
      for (const { id } of made) ids.push(id)
    }
    at += Math.max(plain.length, 1)
  }
  return ids
}

/** Changes existing rows inside a transaction, each with all that hangs on it; ids in the order of the trees. */
export async function updateTrees(given: Run, trees: readonly Tree[], ifMatch?: Versions): Promise<string[]> {
  const run = await guardTrees(given, trees)
  const ids: string[] = []
  for (const tree of trees) ids.push(await applyTree(run, tree, { ifMatch }))
  return ids
}

/** One row and nothing else. */
export const isPlain = ({ parents, sets }: Tree): boolean => parents.length === 0 && sets.length === 0

/** Deletes exactly these rows inside a transaction, with the hooks of their collection around it; 403 otherwise. */
export async function deleteRows(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
  ifMatch?: Versions,
): Promise<readonly ChangedId[]> {
  const { collection } = context
  const documents = await beforeGone(run, context, ids)
  await rulesOf(context)?.beforeDelete?.(run.deps, ids)
  const after = await guardDelete(run, context, ids)
  const gone = await runWrite<ChangedId>(run, deleteStatement(context, ids, { ifMatch }))
  await after()
  for (const { id } of gone)
    if (id !== null) noteWritten(run, { collection, action: 'delete', id, previous: documents.get(id) })
  return gone
}

/**
 * Writes a row with everything that hangs on it: first the rows it points at, then itself, then the rows that point at
 * it. The id is the JSON text of its key. Its row rule is checked at the end, because the rule may look at those rows.
 */
async function applyTree(
  run: Run,
  tree: Tree,
  { given = [], above = noTenant, ifMatch }: ApplyOptions = {},
): Promise<string> {
  const keys: Cell[] = []
  const cells = () => withCells(tree.cells, [...keys, ...given])
  const own = isPlain(tree) ? noTenant : tenantOf(run, tree, cells, above)
  for (const parent of tenantFirst(tree.parents))
    if (parent.isBeside) await applyTree(run, parent.tree, { above: own })
    else keys.push(...(await keysTo(run, tree.context.collection, parent, own)))
  const whole = tree.id === undefined ? await withTenant(tree.context, cells(), above) : cells()
  const id = await writeRow(run, tree, whole, ifMatch)
  for (const set of tree.sets) await applySet(run, tree, set, { id, tenant: own })
  if (tree.sets.length > 0) await recheck(run, tree, id)
  return id
}

type ApplyOptions = {
  /** Columns that the row gets from the one that it is nested in. */
  readonly given?: readonly Cell[]
  /** Of the row that it is nested in. */
  readonly above?: TenantOfRow
  readonly ifMatch?: Versions | undefined
}

/** Writes the rows a tree points at, and gives the cells that do. `above` is the tenant of the row that points. */
async function keysTo(
  run: Run,
  own: Collection,
  { relation, tree }: TreeParent,
  above: TenantOfRow,
): Promise<readonly Cell[]> {
  const { foreignKey, discriminator } = relation
  const key = keyCell(
    own.fields.get(foreignKey)!,
    await targetKey(run, relation, await applyTree(run, tree, { above }), tree.context),
  )
  return discriminator === undefined
    ? [key]
    : [key, keyCell(own.fields.get(discriminator.column)!, discriminator.value)]
}

/** The value of a foreign key to a row just written: its primary key, or another unique column of it. */
async function targetKey(
  run: Run,
  { targetKey: name }: Relation,
  id: string,
  { collection }: WriteContext,
): Promise<unknown> {
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
  if (id === undefined) guardInserts(run, context, [{ cells }])
  const guarded = id === undefined ? undefined : await guardRow(run, tree, cells)
  const all = withCells(cells, guarded?.cells ?? [])
  const write =
    id === undefined
      ? insertStatement(context, [{ cells, references, sortsLast }], { checked: !hasSets })
      : updateStatement(context, [id], { cells: all, references }, { checked: !hasSets, locked: hasSets, ifMatch })
  const written = writtenId(tree, await runWrite<ChangedId>(run, write, tree))
  await guarded?.after()
  noteTree(run, tree, written)
  return written
}

/** A row of a relation that is missing, or that the caller may not change, is a reference that leads nowhere. */
function writtenId({ id, isPart, label, context }: Tree, rows: readonly ChangedId[]): string {
  if (id === undefined) allMade(rows, 1)
  if (isPart && rows.length === 0)
    throw relationalError([{ field: label.slice(0, -1), message: unknownNested(context.collection) }])
  return changedId('update', rows)
}

/** Notes a row that was written for the hooks of its collection. */
function noteTree(run: Run, { context, previous }: Tree, id: string): void {
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
async function applySet(run: Run, tree: Tree, set: ChildSet, parent: SetParent): Promise<void> {
  if (set.relation.kind === 'belongsToMany') {
    const ids: LinkMember[] = []
    for (const element of set.elements) ids.push(await memberOf(run, element, parent))
    return applyLinks(run, tree, set, parent, ids)
  }
  const owner = ownerOf(set, parent)
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
async function memberOf(run: Run, { id, tree, label }: Element, { tenant }: SetParent): Promise<LinkMember> {
  if (tree === undefined) return { id: id!, label, isOwn: false }
  return { id: String(JSON.parse(await applyTree(run, tree, { above: tenant }))), label, isOwn: true }
}

/** The row whose relation is written: its key as JSON text, and what rows in the relation take from it. */
type SetParent = { readonly id: string; readonly tenant: TenantOfRow }

/** Points rows that were not in the set at their new parent, which is an update of them. */
async function takeOver(run: Run, set: ChildSet, owner: Owner, elements: readonly Element[]): Promise<void> {
  const { target } = set
  if (elements.length === 0) return
  const context = openWrite(run.deps, run.requester, target.name, 'update', { asPart: true })
  if (meetsHooks(run.deps, context)) return updateEach(run, set, elements, owner)
  const { cells } = readPayload(context, owner.payload, { trusted: true, relation: owner.relation })
  const ids = [...new Set(elements.map(({ id }) => id!))]
  const { cells: all, after } = await guardRows(run, context, ids, cells)
  const taken = await runWrite(run, updateStatement(context, ids, { cells: all, references: new Map() }))
  await after()
  if (taken.length === ids.length) return
  const found = new Set(taken.map(({ id }) => String(JSON.parse(id))))
  const missing = elements.filter(({ id }) => !found.has(id!))
  throw relationalError(missing.map(({ label }) => ({ field: label, message: unknownNested(target) })))
}

/** Rows with hooks are changed one by one: each hook may make of its row what the caller may. */
async function updateEach(
  run: Run,
  set: ChildSet,
  rows: readonly Pick<Element, 'id' | 'label'>[],
  owner: Owner,
): Promise<void> {
  for (const { id, label } of rows) {
    const context = openWrite(run.deps, run.requester, set.target.name, 'update', { asPart: true })
    const tree = await set.planUpdate(id!, {}, label)
    if (tree.previous === undefined) throw relationalError([{ field: label, message: unknownNested(set.target) }])
    await applyTree(run, tree, { given: ownedCells(context, owner), above: owner.tenant })
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
  const context = openWrite(run.deps, run.requester, set.target.name, 'update', { asPart: true })
  await applyTree(run, changes, { given: kept.has(id) ? [] : ownedCells(context, owner), above: owner.tenant })
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
  const context = openWrite(run.deps, run.requester, target.name, 'create', { asPart: true })
  const given = ownedCells(context, owner)
  if (!trees.every(isPlain)) {
    for (const tree of trees) await applyTree(run, tree, { given, above: owner.tenant })
    return
  }
  const rows = await inTurn(trees, async (tree) => {
    const cells = await withTenant(context, withCells(tree.cells, given), owner.tenant)
    return { ...tree, cells }
  })
  guardInserts(run, context, rows)
  const ids = allMade(await runWrite(run, insertStatement(context, rows), placeOf(rows, `${label}.`)), rows.length)
  for (const [index, { id }] of ids.entries()) noteTree(run, trees[index]!, id)
}

/** The columns that make a row one of the parent's; the caller must be allowed to write them. */
function ownedCells(context: WriteContext & { action: WriteAction }, owner: Owner): readonly Cell[] {
  // Its other columns are read elsewhere, so that they are missing here is no problem.
  const { payload, relation } = owner
  const { cells } = readPayload(context, payload, { trusted: true, relation, problems: openProblems() })
  return cells.filter(({ field }) => Object.hasOwn(payload, field.name))
}

type Owner = {
  /** The relation that the request names. */
  readonly relation: string
  /** The columns that make a row one of its parent's. */
  readonly payload: Readonly<Record<string, unknown>>
  /** The parent's. */
  readonly tenant: TenantOfRow
}

/** The far end of a link. */
type LinkMember = {
  readonly id: string
  readonly label: string
  /** Written by this request, so it need not be asked whether the caller may see it. */
  readonly isOwn: boolean
}

type PresentRow = {
  /** The primary key in its stored spelling. */
  readonly key: string
  /** The rows that a junction's row links, besides its parent: text by column. */
  readonly ends: Readonly<Record<string, string | null>>
  /** Whether the caller may see it, and so could have listed it. */
  readonly seen: boolean
  /** Whether the caller may take it out. */
  readonly mine: boolean
}

function ownerOf({ relation }: ChildSet, { id, tenant }: SetParent): Owner {
  const { foreignKey, discriminator } = relation
  const key = [foreignKey, JSON.parse(id)] as const
  const scope = discriminator === undefined ? [] : [[discriminator.column, discriminator.value] as const]
  return { relation: relation.name, payload: Object.fromEntries([key, ...scope]), tenant }
}

/** The set as it is, without soft-deleted rows. */
async function rowsOfSet(run: Run, set: ChildSet, owner: Owner): Promise<readonly PresentRow[]> {
  const { target } = set
  const params = createParams()
  const columns = Object.entries(owner.payload).map(([name, value]) => {
    const cell = keyCell(target.fields.get(name)!, value)
    return `t.${ident(name)} = ${params.bind(cell.value, cell.pgType)}`
  })
  if (target.paranoid) columns.push('t."deletedAt" is null')
  const ends = endColumns(set).map(({ name }) => `${literal(name)}, t.${ident(name)}::text`)
  const removal = removalOf(run, set)
  const mine = removal instanceof AppError ? 'false' : ruleSql(removal, 't', params)
  const rows = await run.tx.any<Omit<PresentRow, 'key'> & { id: string }>(
    rawQuery(
      `select ${projection(target)}, jsonb_build_object(${ends}) as ends, ${seenSql(run, target, params)} as seen, ${mine} as mine
       from ${ident(target.name)} t where ${columns.join(' and ')}`,
      params.values,
    ),
  )
  return rows.map(({ id, ...row }) => ({ ...row, key: String(JSON.parse(id)) }))
}

/**
 * Which rows stay. A junction's row is the pair it links, so a new one that links what is linked already is that row:
 * its id stays, and only what else it holds is changed.
 */
function matched(
  set: ChildSet,
  present: readonly PresentRow[],
): { readonly kept: ReadonlySet<string>; readonly elements: readonly Element[] } {
  const here = new Set(present.map(({ key }) => key))
  const kept = new Set(set.elements.flatMap(({ id }) => (id !== undefined && here.has(id) ? [id] : [])))
  if (!isJunction(set.target)) return { kept, elements: set.elements }
  const ends = endColumns(set)
  const free = Map.groupBy(present.filter(({ key }) => !kept.has(key)).toReversed(), (row) =>
    linkText(ends.map(({ name }) => row.ends[name] ?? null)),
  )
  const elements = set.elements.map((element) => {
    const link = element.id === undefined ? linkOf(ends, element) : undefined
    const key = link === undefined ? undefined : free.get(link)?.pop()?.key
    if (key === undefined) return element
    kept.add(key)
    return { ...element, id: key, tree: undefined }
  })
  return { kept, elements }
}

/** The members of an element that belong to the junction's row and not to the linked row. */
function restOf(set: ChildSet, { payload }: Element): Readonly<Record<string, unknown>> {
  const columns = new Set(endColumns(set).map(({ name }) => name))
  const relations = [...set.target.relations.values()].filter(({ foreignKey }) => columns.has(foreignKey))
  const linking = new Set([...columns, ...relations.map(({ name }) => name)])
  return Object.fromEntries(Object.entries(payload).filter(([key]) => !linking.has(key)))
}

/**
 * Takes rows out of a set: their foreign key is cleared where it may be null, otherwise, and in junctions, they are
 * deleted. 403 for a row that the caller sees but may not change so; those it does not even see are left alone. Gives
 * the rows whose foreign key is still to be cleared, because hooks are notified of each.
 */
async function removeRows(
  run: Run,
  set: ChildSet,
  owner: Owner,
  rows: readonly PresentRow[],
): Promise<readonly { readonly id: string; readonly label: string }[]> {
  const ids = rows.filter(({ mine }) => mine).map(({ key }) => key)
  const removal = rows.length === 0 ? undefined : removalOf(run, set)
  if (rows.some(({ mine, seen }) => seen && !mine))
    throw removal instanceof AppError ? removal : errors.itemDenied(removal?.action ?? 'update')
  if (ids.length === 0 || removal === undefined || removal instanceof AppError) return []
  if (removal.action === 'update' && meetsHooks(run.deps, removal)) return ids.map((id) => ({ id, label: set.label }))
  const gone =
    removal.action === 'delete'
      ? (await deleteRows(run, removal, ids)).length
      : await release(run, removal, clearedOf(owner), ids)
  if (gone !== ids.length) throw errors.itemDenied(removal.action)
  return []
}

/** The same columns, pointing at nothing. */
function clearedOf({ payload, relation }: Owner): Owner {
  return { relation, payload: Object.fromEntries(Object.keys(payload).map((name) => [name, null])), tenant: noTenant }
}

async function release(
  run: Run,
  context: Removal,
  { payload, relation }: Owner,
  ids: readonly string[],
): Promise<number> {
  const { cells } = readPayload({ ...context, action: 'update' }, payload, { relation })
  const guarded = await guardRows(run, context, ids, cells)
  const released = await runWrite(run, updateStatement(context, ids, { cells: guarded.cells, references: new Map() }))
  await guarded.after()
  return released.length
}

type Removal = WriteContext & { readonly action: 'update' | 'delete' }

/** How rows leave the set, or why they cannot. */
function removalOf({ deps, requester }: Run, { target, relation }: ChildSet): Removal | AppError {
  const isOwned = isJunction(target) || !target.fields.get(relation.foreignKey)!.nullable
  try {
    return openWrite(deps, requester, target.name, isOwned ? 'delete' : 'update', { asPart: true })
  } catch (error) {
    if (error instanceof AppError && error.status === 403) return error
    throw error
  }
}

/**
 * Whether the caller sees the row `t`. A junction's rows are seen where their parent is; of other collections the
 * caller's read permission decides.
 */
function seenSql({ deps, requester: { access } }: Run, target: Collection, params: Params): string {
  if (access.admin || isJunction(target)) return 'true'
  if (access.grant(target.name, 'read') === undefined) return 'false'
  const condition = resolveCondition(deps.catalog.current(), access, target.name, 'read', resolveEnv(deps))
  return condition === undefined ? 'true' : compileCondition(condition, 't', params)
}

/** The columns by which a junction's row says what it links its parent with. */
function endColumns({ target, relation }: ChildSet): readonly Field[] {
  if (!isJunction(target)) return []
  const names = [...target.relations.values()]
    .filter(({ kind, foreignKey }) => kind === 'belongsTo' && foreignKey !== relation.foreignKey)
    .flatMap(({ foreignKey, discriminator }) => [
      foreignKey,
      ...(discriminator === undefined ? [] : [discriminator.column]),
    ])
  const system = new Set(['userCreated_Id', 'userUpdated_Id', 'tenant_Id'])
  return [...new Set(names)].filter((name) => !system.has(name)).map((name) => target.fields.get(name)!)
}

/** What a new row of a junction links; undefined where that is not said in full, or there is nothing that it links. */
function linkOf(ends: readonly Field[], { tree }: Element): string | undefined {
  if (tree === undefined || tree.parents.length > 0 || ends.length === 0) return undefined
  const values = ends.map(({ name, kind }) => {
    const value = tree.cells.find(({ field }) => field.name === name)?.value
    if (value === undefined || value === null) return null
    return kind === 'uuid' ? String(value).toLowerCase() : String(value)
  })
  return values.includes(null) ? undefined : linkText(values)
}

const linkText = (values: readonly (string | null)[]): string => JSON.stringify(values)

/**
 * Makes a direct many-to-many relation link exactly these items: rows of the collection between are deleted and created,
 * each by that collection's own permission (or the parent's, where it is a junction). Links that stay are not touched,
 * nor are links to items that the caller cannot see.
 */
async function applyLinks(
  run: Run,
  tree: Tree,
  { relation, target, label }: ChildSet,
  parent: SetParent,
  members: readonly LinkMember[],
): Promise<void> {
  const link: RelationLink = {
    relation,
    target,
    parent,
    through: run.deps.catalog.current().collections.get(relation.through!)!,
  }
  const present = tree.id === undefined ? [] : await linksOf(run, link)
  const wanted = new Map(members.map((member) => [member.id, member]))
  const gone = present.filter(({ end, seen }) => seen && !wanted.has(end)).map(({ id }) => String(JSON.parse(id)))
  if (gone.length > 0) {
    const context = openWrite(run.deps, run.requester, link.through.name, 'delete', { asPart: true })
    await deleteRows(run, context, gone)
  }
  for (const { end } of present) wanted.delete(end)
  await addLinks(run, link, label, [...wanted.values()])
}

type RelationLink = {
  readonly relation: Relation
  readonly target: Collection
  readonly parent: SetParent
  readonly through: Collection
}

type PresentLink = { readonly id: string; readonly end: string; readonly seen: boolean }

async function linksOf(run: Run, { relation, target, parent, through }: RelationLink): Promise<readonly PresentLink[]> {
  const params = createParams()
  const key = keyCell(through.fields.get(relation.foreignKey)!, JSON.parse(parent.id))
  const kept = through.paranoid ? ' and l."deletedAt" is null' : ''
  return run.tx.any<PresentLink>(
    rawQuery(
      `select ${projection(through, 'l')}, l.${ident(relation.otherKey!)}::text as end, ${endSeen(run, relation, target, params)} as seen
       from ${ident(through.name)} l
       where l.${ident(relation.foreignKey)} = ${params.bind(key.value, key.pgType)}${kept}`,
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

async function addLinks(run: Run, link: RelationLink, label: string, members: readonly LinkMember[]): Promise<void> {
  if (members.length === 0) return
  const context = openWrite(run.deps, run.requester, link.through.name, 'create', { asPart: true })
  const together = goesOneByOne(run.deps, context) ? members.map((member) => [member]) : [members]
  for (const some of together) await linkAll(run, context, link, label, some)
}

async function linkAll(
  run: Run,
  context: WriteContext & { readonly action: 'create' },
  link: RelationLink,
  label: string,
  members: readonly LinkMember[],
): Promise<void> {
  const { relation, parent, through } = link
  const named = members.some(({ isOwn }) => !isOwn)
    ? referenceOf(context, endOf(link), { byRelation: true })
    : undefined
  const rows: LinkRow[] = []
  for (const { id, isOwn, label: place } of members) {
    const ends = { [relation.foreignKey]: JSON.parse(parent.id), [relation.otherKey!]: id }
    const told = await beforeRow({ deps: run.deps, run }, context, ends, undefined)
    const payload = told === undefined ? ends : told.payload
    const references = new Map<string, Reference>()
    if (!isOwn && named !== undefined) references.set(relation.otherKey!, named)
    const row = linkRow(context, { ends, payload, references, label: `${place}.` })
    const cells = await withTenant(context, row.cells, parent.tenant)
    rows.push({ ...row, cells, ends: new Map([[relation.name, place]]) })
  }
  guardInserts(run, context, rows)
  const place = { label: label.slice(0, -relation.name.length), rows }
  const ids = allMade(await runWrite(run, insertStatement(context, rows), place), rows.length)
  for (const { id } of ids) noteWritten(run, { collection: through, action: 'create', id, previous: undefined })
}

/** The ends are the request's to say; members that hooks put beside them are read like a payload. */
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

type LinkRow = RowToWrite & { readonly label: string; readonly ends?: ReadonlyMap<string, string> }

type NewLink = {
  readonly ends: Readonly<Record<string, unknown>>
  readonly payload: unknown
  readonly references: Map<string, Reference>
  /** Where in the request the other end stands. */
  readonly label: string
}

/** The relation from the row between to the item that it links; only our own check says whether that is there. */
function endOf({ relation, target }: RelationLink): Relation {
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
