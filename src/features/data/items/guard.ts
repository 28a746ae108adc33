import { errors } from '../../../errors.ts'
import {
  type Cell,
  type GuardedChange,
  type RowChange,
  type Run,
  rulesOf,
  type WriteContext,
  withCells,
} from './context.ts'
import type { Tree } from './plan.ts'

/** Calls the guards of collections that have one, see {@link Guard} in context.ts, before the statements that write. */

/** Whether a change has to pass a guard, and so needs a transaction. */
export function isGuarded(context: WriteContext, action: 'update' | 'delete', cells: readonly Cell[] = []): boolean {
  return rulesOf(context)?.guard?.applies(action, cells) === true
}

/** Decides on changes of rows with these keys; its answers in the same order. 403 for the first that is refused. */
async function guardUpdates(
  run: Run,
  context: WriteContext,
  changes: readonly RowChange[],
): Promise<readonly GuardedChange[]> {
  const guard = rulesOf(context)?.guard
  if (guard?.updates === undefined || !changes.some(({ cells }) => guard.applies('update', cells)))
    return changes.map(() => unguarded)
  return guard.updates(run, context, changes)
}

/** The same for rows that are changed alike by one statement, with all cells that it writes. */
export async function guardRows(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
  cells: readonly Cell[],
): Promise<GuardedChange> {
  const rows = ids.map((id) => ({ id, cells }))
  const guarded = await guardUpdates(run, context, rows)
  const more = guarded.flatMap((one) => one.cells)
  const after = async () => {
    for (const one of guarded) await one.after()
  }
  return { cells: withCells(cells, more), after }
}

/** Decides on new rows. 403 for the first that is refused, and for one that would be in the trash from the start. */
export function guardInserts(
  run: Pick<Run, 'deps' | 'requester'>,
  context: WriteContext,
  rows: readonly { readonly cells: readonly Cell[] }[],
): void {
  if (rows.some(({ cells }) => isMadeDeleted(context, cells))) throw errors.fieldDenied('create', 'deletedAt')
  const inserts = rulesOf(context)?.guard?.inserts
  if (inserts !== undefined)
    inserts(
      run,
      rows.map(({ cells }) => cells),
    )
}

/** Decides on the end of rows; what it gives is to be done after they were deleted. 403 where one is refused. */
export async function guardDelete(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
): Promise<() => Promise<void>> {
  const guard = rulesOf(context)?.guard
  if (guard?.deletes === undefined || ids.length === 0 || !guard.applies('delete', [])) return nothing
  return guard.deletes(run, context, ids)
}

/**
 * Decides on all changes of existing rows within trees, one query for each collection, before the first of them is
 * written. The run to go on with knows the answers.
 */
export async function guardTrees(run: Run, trees: readonly Tree[]): Promise<Run> {
  const changes = trees.flatMap(changesWithin)
  if (changes.length === 0) return run
  const answers = new Map<Tree, GuardedChange>()
  for (const group of Map.groupBy(changes, ({ context }) => context.collection).values()) {
    const rows = group.map(({ id, cells }) => ({ id: id!, cells }))
    const guarded = await guardUpdates(run, group[0]!.context, rows)
    for (const [index, tree] of group.entries()) answers.set(tree, guarded[index]!)
  }
  const known = { ...run }
  answersOf.set(known, answers)
  return known
}

/**
 * Whether a new row would be marked as deleted. Only administrators create such: the rule of all others leaves out deleted
 * rows, whatever fields their permission opens.
 */
export function isMadeDeleted(
  { access, collection }: Pick<WriteContext, 'access' | 'collection'>,
  cells: readonly Cell[],
): boolean {
  if (access.admin || !collection.paranoid) return false
  return cells.some(({ field, value }) => field.name === 'deletedAt' && value !== null)
}

/** The answer for one row of a tree, with the cells that it is written with. */
export async function guardRow(run: Run, tree: Tree, cells: readonly Cell[]): Promise<GuardedChange> {
  const known = answersOf.get(run)?.get(tree)
  // Cells that rows beside it have added were not asked about.
  if (known !== undefined && cells === tree.cells) return known
  const [guarded] = await guardUpdates(run, tree.context, [{ id: tree.id!, cells }])
  return guarded!
}

const answersOf = new WeakMap<Run, ReadonlyMap<Tree, GuardedChange>>()
const nothing = async () => undefined
const unguarded: GuardedChange = { cells: [], after: nothing }

function changesWithin(tree: Tree): readonly Tree[] {
  const parents = tree.parents.map((parent) => parent.tree)
  const elements = tree.sets.flatMap((set) => set.elements.flatMap((element) => element.tree ?? []))
  const own = tree.id !== undefined && isGuarded(tree.context, 'update', tree.cells) ? [tree] : []
  return [...own, ...[...parents, ...elements].flatMap(changesWithin)]
}
