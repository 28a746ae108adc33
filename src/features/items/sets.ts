import type { Collection, Field } from '../../catalog/catalog.ts'
import { rawQuery } from '../../db/sql.ts'
import { AppError, errors } from '../../errors.ts'
import { compileCondition } from '../../query/compile.ts'
import { resolveCondition } from '../../query/resolve.ts'
import { createParams, ident, literal, type Params } from '../../query/sql.ts'
import { isJunction, openWrite, ruleSql, type WriteContext } from './context.ts'
import { meetsHooks } from './hooking.ts'
import { guardRows } from './identities.ts'
import { readPayload } from './payload.ts'
import { resolveEnv } from './reads.ts'
import { deleteRows } from './removal.ts'
import { keyCell, type Run, runWrite } from './run.ts'
import { projection, updateStatement } from './statements.ts'
import type { ChildSet, Element } from './tree.ts'

/** The rows that a to-many relation holds, and which of them a new value of the relation means. */

/** The columns that make a row one of its parent's, as a payload. */
export type Owner = { readonly payload: Readonly<Record<string, unknown>> }

/** The far end of a link. */
export type Member = {
  readonly id: string
  readonly label: string
  /** Written by this request, so it need not be asked whether the caller may see it. */
  readonly isOwn: boolean
}

export type PresentRow = {
  /** The primary key in its stored spelling. */
  readonly key: string
  /** What a junction's row points at, besides its parent: text by column. */
  readonly ends: Readonly<Record<string, string | null>>
  /** Whether the caller may see it, and so could have listed it. */
  readonly seen: boolean
  /** Whether the caller may take it out. */
  readonly mine: boolean
}

export function ownerOf({ relation }: ChildSet, parentId: string): Owner {
  const { foreignKey, discriminator } = relation
  const key = [foreignKey, JSON.parse(parentId)] as const
  const scope = discriminator === undefined ? [] : [[discriminator.column, discriminator.value] as const]
  return { payload: Object.fromEntries([key, ...scope]) }
}

/** The set as it is, without soft-deleted rows. */
export async function rowsOfSet(run: Run, set: ChildSet, owner: Owner): Promise<readonly PresentRow[]> {
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
export function matched(
  set: ChildSet,
  present: readonly PresentRow[],
): { readonly kept: ReadonlySet<string>; readonly elements: readonly Element[] } {
  const here = new Set(present.map(({ key }) => key))
  const kept = new Set(set.elements.flatMap(({ id }) => (id !== undefined && here.has(id) ? [id] : [])))
  if (!isJunction(set.target)) return { kept, elements: set.elements }
  const ends = endColumns(set)
  const free = present.filter(({ key }) => !kept.has(key))
  const elements = set.elements.map((element) => {
    const same = element.id === undefined ? free.findIndex((row) => linksSame(ends, row, element)) : -1
    if (same === -1) return element
    const [{ key }] = free.splice(same, 1) as [PresentRow]
    kept.add(key)
    return { ...element, id: key, tree: undefined }
  })
  return { kept, elements }
}

/** What an element says of a junction's row besides what it links. */
export function restOf(set: ChildSet, { payload }: Element): Readonly<Record<string, unknown>> {
  const columns = new Set(endColumns(set).map(({ name }) => name))
  const relations = [...set.target.relations.values()].filter(({ foreignKey }) => columns.has(foreignKey))
  const linking = new Set([...columns, ...relations.map(({ name }) => name)])
  return Object.fromEntries(Object.entries(payload).filter(([key]) => !linking.has(key)))
}

/**
 * Takes rows out of a set: their foreign key is cleared where it may be null, otherwise, and in junctions, they are
 * deleted. 403 for a row that the caller sees but may not change so; those it does not even see are left alone. Gives
 * the rows whose foreign key is still to be cleared, because hooks want to hear of each.
 */
export async function removeRows(
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
  if (removal.action === 'update' && meetsHooks(run.rt, removal)) return ids.map((id) => ({ id, label: set.label }))
  const gone =
    removal.action === 'delete'
      ? (await deleteRows(run, removal, ids)).length
      : await release(run, removal, clearedOf(owner), ids)
  if (gone !== ids.length) throw errors.itemDenied(removal.action)
  return []
}

/** The same columns, pointing at nothing. */
export function clearedOf({ payload }: Owner): Owner {
  return { payload: Object.fromEntries(Object.keys(payload).map((name) => [name, null])) }
}

async function release(run: Run, context: Removal, { payload }: Owner, ids: readonly string[]): Promise<number> {
  const { cells } = readPayload({ ...context, action: 'update' }, payload)
  const guarded = await guardRows(run, context, ids, cells)
  const released = await runWrite(run, updateStatement(context, ids, { cells: guarded.cells, references: new Map() }))
  await guarded.after()
  return released.length
}

type Removal = WriteContext & { readonly action: 'update' | 'delete' }

/** How rows leave the set, or why they cannot. */
function removalOf({ rt, writer }: Run, { target, relation }: ChildSet): Removal | AppError {
  const isOwned = isJunction(target) || !target.fields.get(relation.foreignKey)!.nullable
  try {
    return openWrite(rt, writer, target.name, isOwned ? 'delete' : 'update', { asPart: true })
  } catch (error) {
    if (error instanceof AppError && error.status === 403) return error
    throw error
  }
}

/**
 * Whether the caller sees the row `t`. A junction's rows are seen where their parent is; of other collections the
 * caller's read permission decides.
 */
export function seenSql({ rt, writer: { access } }: Run, target: Collection, params: Params): string {
  if (access.admin || isJunction(target)) return 'true'
  if (access.grant(target.name, 'read') === undefined) return 'false'
  const condition = resolveCondition(rt.catalog.current(), access, target.name, 'read', resolveEnv(rt))
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

function linksSame(ends: readonly Field[], row: PresentRow, { tree }: Element): boolean {
  if (tree === undefined || tree.parents.length > 0 || ends.length === 0) return false
  return ends.every(({ name, kind }) => {
    const value = tree.cells.find(({ field }) => field.name === name)?.value
    const text = value === undefined || value === null ? undefined : String(value)
    return text !== undefined && (kind === 'uuid' ? text.toLowerCase() : text) === row.ends[name]
  })
}
