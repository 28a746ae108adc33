/** Bringing a part of the database back to what it was: whole collections, or the rows of a tenant, from the log or a backup. */
import type { Collection, Field } from '../../../catalog/catalog.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { parsePoint } from '../../../query/past.ts'
import { inTransaction, type Requester } from '../items/items.ts'
import { applyPlan, clearedOf } from './apply.ts'
import {
  type ExcludedRows,
  isProtected,
  largestUndo,
  lockAll,
  type PastRows,
  type PlannedRow,
  pastOfLog,
  planReversals,
  type Reason,
  type RowReversal,
  reversalsOf,
  settableFields,
  withReferences,
} from './plan.ts'
import {
  changesOf,
  differencesFrom,
  type EventChoice,
  type LoadedRows,
  lockRows,
  outlineOf,
  type RestorablePart,
  requireReached,
  rowsLoaded,
  type UndoReads,
  type UndoWrites,
} from './queries.ts'

/** The part to bring back: `name` stands in the log. */
export type RestoredPart = RestorablePart & { readonly what: 'collection' | 'tenant'; readonly name: string }

/** Which state: that of a moment (a time or a cursor) by the log, or rows that `load` puts into tables of the transaction. */
export type PastState =
  | { readonly by: 'log'; readonly at: string }
  | { readonly by: 'backup'; readonly load: (tx: Tx) => Promise<LoadedState> }

export type LoadedState = {
  readonly at: string
  readonly tables: readonly LoadedRows[]
  /** Whether the backup has the content that a row of then names. */
  readonly hasContent: PastRows['hasContent']
}

export type RestoreChoices = {
  /** Writes nothing. */
  readonly dryRun: boolean
  /** Relations to what is gone become null, where they may. */
  readonly setNull: boolean
  /** Rows that cannot come back are left as they are. */
  readonly skip: boolean
  /** Deletes rows that others refer to, and does without what the log does not hold. */
  readonly force: boolean
}

export type StateReport = {
  readonly at: string
  readonly by: PastState['by']
  readonly counts: readonly {
    readonly collection: string
    readonly create: number
    readonly update: number
    readonly delete: number
    readonly skipped: number
    readonly conflicts: number
  }[]
  /** The conflicts that no choice resolves; the first 1,000. */
  readonly conflicts: readonly RowConflict[]
  /** Rows that stay as they are. */
  readonly kept: readonly ExcludedRows[]
  /** Rows outside of the part that restored ones refer to. They are never written. */
  readonly shared: readonly { readonly collection: string; readonly ids: readonly string[] }[]
  /** Whether it was, or could be, done so. */
  readonly isRefused: boolean
}

type RowConflict = { readonly collection: string; readonly id: string; readonly reasons: readonly Reason[] }

const largestList = 1000

/**
 * Writes what differs from the state as ordinary changes of the requester, in one transaction, which the log can undo like any
 * other. Rows outside of the part are read only. Answers what it did, or would do: with conflicts it does nothing.
 *
 * @throws {AppError} 410 where the log does not reach back, 404 for a collection that is not there, 413 for too many rows
 */
export async function restoreState(
  deps: UndoWrites,
  requester: Requester,
  part: RestoredPart,
  state: PastState,
  choices: RestoreChoices,
): Promise<StateReport> {
  requireWritable(deps, part)
  try {
    return await inTransaction(deps, requester, async (run) => {
      const { tx, scope } = run
      const { rows, past, kept, at } = await planState(deps, tx, part, state)
      const { left, skipped } = choices.skip ? await withoutImpossible(deps, tx, rows) : { left: rows, skipped: [] }
      const report = reportOf(part, { rows: left, skipped, kept }, { at, by: state.by, choices })
      if (choices.dryRun || report.isRefused) throw new NothingWritten(report)
      const written = left.filter(({ action }) => action !== 'none')
      if (written.length === 0) return report
      await applyPlan(deps, run, written, past, clearedOf)
      const { what, name: restored } = part
      scope.events.push({ type: 'history.restored', data: { restored, what, at, by: state.by, rows: written.length } })
      return report
    })
  } catch (error) {
    if (error instanceof NothingWritten) return error.report
    throw error
  }
}

/** Ends a transaction of which nothing shall remain. */
class NothingWritten extends Error {
  readonly report: StateReport
  constructor(report: StateReport) {
    super('nothing was written')
    this.report = report
  }
}

function requireWritable({ catalog }: UndoReads, { collections, what }: RestoredPart): void {
  if (what === 'tenant') return
  for (const name of collections) {
    const collection = catalog.current().collections.get(name)
    if (collection === undefined) throw new AppError(404, `There is no collection ${name}`)
    if (isProtected(name) || !collection.logged)
      throw new AppError(409, `${name} is not brought back by itself: its rows are credentials, definitions or the log`)
  }
}

type Planned = {
  readonly rows: readonly PlannedRow[]
  readonly kept: readonly ExcludedRows[]
  readonly past: PastRows
  readonly at: string
}

async function planState(deps: UndoReads, tx: Tx, part: RestorablePart, state: PastState): Promise<Planned> {
  const found =
    state.by === 'log'
      ? await fromLog(deps, tx, part, state.at)
      : await fromBackup(deps, tx, part, await state.load(tx))
  const { rows, kept } = await planReversals(deps, tx, found.reversals, found.past, { compared: true })
  return { ...found, rows: await withReferences(tx, deps.catalog.current(), rows), kept }
}

type Found = { readonly reversals: readonly RowReversal[]; readonly past: PastRows; readonly at: string }

/** Everything since the moment is to be undone, by any actor. */
async function fromLog(deps: UndoReads, tx: Tx, part: RestorablePart, at: string): Promise<Found> {
  const point = parsePoint(at)
  await requireReached(tx, point)
  const chosen: EventChoice = { by: 'point', point, part }
  const before = await outlineOf(tx, chosen)
  requireFew(before.rows)
  await lockAll(tx, deps.catalog.current(), chosen)
  // The snapshot shows all changes that others made until their rows were locked.
  const { first, rows } = await outlineOf(tx, chosen)
  requireFew(rows)
  if (first === null) return { reversals: [], past: pastOfLog(new Date().toISOString()), at }
  return { reversals: reversalsOf(await changesOf(tx, chosen, first)), past: pastOfLog(first), at }
}

async function fromBackup(
  deps: UndoReads,
  tx: Tx,
  part: RestorablePart,
  { at, tables, hasContent }: LoadedState,
): Promise<Found> {
  const { collections } = deps.catalog.current()
  const byName = new Map(tables.map((table) => [table.collection, table]))
  const past: PastRows = {
    fields: (collection) => held(collection, byName.get(collection.name)),
    holdsHidden,
    hasContent,
    at: (db, { name }, fields, ids) => rowsLoaded(db, collections.get(name)!, byName.get(name)!, fields, ids),
  }
  const reversals: RowReversal[] = []
  for (const table of tables) {
    const collection = collections.get(table.collection)!
    const fields = past.fields(collection)
    await lockFound(tx, collection, await differencesFrom(tx, collection, table, fields, part))
    const differences = await differencesFrom(tx, collection, table, fields, part)
    reversals.push(
      ...differences.map(({ id, action }) => ({ collection: collection.name, id, reversal: whole(id, action) })),
    )
    requireFew(reversals.length)
  }
  return { reversals, past, at }
}

/** Hidden fields of the platform are also sealed or hashed when they are written. */
const holdsHidden = ({ system }: Collection): boolean => !system

const held = (collection: Collection, table: LoadedRows | undefined): readonly Field[] =>
  settableFields(collection).filter(
    ({ name, hidden }) => table?.columns.has(name) === true && (!hidden || holdsHidden(collection)),
  )

const lockFound = (tx: Tx, collection: Collection, list: readonly { readonly id: string }[]): Promise<void> =>
  lockRows(
    tx,
    collection,
    list.map(({ id }) => id),
  )

/** A row as a whole is what it was. */
const whole = (id: string, action: 'create' | 'update' | 'delete'): RowReversal['reversal'] => ({
  action,
  image: action === 'delete' ? undefined : id,
  fields: new Map(),
  since: new Set(),
  isRemade: false,
  isErased: false,
})

function requireFew(rows: number): void {
  if (rows > largestUndo)
    throw new AppError(413, `At most ${largestUndo} rows can be brought back at once, and these are ${rows}`)
}

/** Leaves out what cannot come back, and then what cannot without that, and so on. */
async function withoutImpossible(
  deps: UndoReads,
  db: Reader,
  rows: readonly PlannedRow[],
): Promise<{ readonly left: readonly PlannedRow[]; readonly skipped: readonly PlannedRow[] }> {
  let left = rows
  const skipped: PlannedRow[] = []
  for (;;) {
    const impossible = left.filter(isImpossible)
    if (impossible.length === 0) return { left, skipped }
    skipped.push(...impossible)
    const possible = left.filter((row) => !isImpossible(row)).map(withoutRelations)
    left = await withReferences(db, deps.catalog.current(), possible)
  }
}

const isImpossible = ({ action, reasons }: PlannedRow): boolean =>
  action === 'none' || reasons.some((reason) => 'required' in reason && reason.required === true)

const withoutRelations = (row: PlannedRow): PlannedRow => ({
  ...row,
  reasons: row.reasons.filter(({ reason }) => reason !== 'reference gone' && reason !== 'referenced'),
})

const isAnswered = (reason: Reason, { setNull, force }: RestoreChoices): boolean => {
  if ('required' in reason && reason.required === true) return false
  return reason.reason === 'reference gone'
    ? setNull
    : force && reason.reason !== 'erased' && reason.reason !== 'deleted'
}

type PartRows = {
  readonly rows: readonly PlannedRow[]
  readonly skipped: readonly PlannedRow[]
  readonly kept: readonly ExcludedRows[]
}
type RestoreSource = { readonly at: string; readonly by: PastState['by']; readonly choices: RestoreChoices }

function reportOf(
  part: RestorablePart,
  { rows, skipped, kept }: PartRows,
  { at, by, choices }: RestoreSource,
): StateReport {
  const open = ({ reasons }: PlannedRow) => reasons.filter((reason) => !isAnswered(reason, choices))
  const inConflict = rows.filter((row) => open(row).length > 0)
  const names = [...new Set([...rows, ...skipped].map(({ collection }) => collection.name))].sort()
  const counts = names.map((name) => {
    const own = rows.filter(({ collection }) => collection.name === name)
    const count = (wanted: string) => own.filter(({ action }) => action === wanted).length
    return {
      collection: name,
      create: count('create'),
      update: count('update'),
      delete: count('delete'),
      skipped: skipped.filter(({ collection }) => collection.name === name).length,
      conflicts: inConflict.filter(({ collection }) => collection.name === name).length,
    }
  })
  const conflicts = inConflict
    .slice(0, largestList)
    .map((row) => ({ collection: row.collection.name, id: row.id, reasons: open(row) }))
  return { at, by, counts, conflicts, kept, shared: sharedBy(part, rows), isRefused: inConflict.length > 0 }
}

function sharedBy({ collections }: RestorablePart, rows: readonly PlannedRow[]): StateReport['shared'] {
  const named = new Map<string, Set<string>>()
  for (const { move, reasons } of rows) {
    const gone = new Set(reasons.flatMap((reason) => (reason.reason === 'reference gone' ? reason.fields : [])))
    for (const [column, { place }] of move.needs) {
      const name = place.slice(0, place.indexOf('.'))
      if (collections.includes(name) || gone.has(column)) continue
      const ids = named.get(name) ?? new Set()
      named.set(name, ids.add(place.slice(place.indexOf(' ') + 1)))
    }
  }
  return [...named].sort().map(([collection, ids]) => ({ collection, ids: [...ids].sort() }))
}
