import { createHash } from 'node:crypto'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { identityCollections, writersOf } from '../../../catalog/system-collections.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { LastingEffect } from '../items/items.ts'
import { withConflicts } from './conflicts.ts'
import { changesOf, type LoggedRow } from './logged-rows.ts'
import { withMoves } from './moves.ts'
import {
  isFollowing,
  type PastRows,
  type PlannedRow,
  pastOfLog,
  positionsOf,
  type Reason,
  type RowDraft,
} from './planned-rows.ts'
import {
  type EventChoice,
  type LoggedFact,
  lockRows,
  type Outline,
  rowsNow,
  touchedRows,
  type UndoReads,
} from './queries.ts'
import { isPutBack, type LoggedChange, laterOf, type Reversal, reversalOf } from './reversal.ts'

/** Rows of one undo, or of one restore: they are planned in memory and written in one transaction. */
export const largestUndo = 100_000

/** The reverse of what was chosen, row by row, with what speaks against it. Reads only; nothing here is forced. */
export type UndoPlan = {
  readonly rows: readonly PlannedRow[]
  /** Changes and facts that stay, and what has left the database. */
  readonly notUndone: readonly (LoggedFact | ExcludedRows | LastingEffect)[]
  /** Equal for equal plans. */
  readonly token: string
}

/** Rows that are never undone, and those that named content which is gone. */
export type ExcludedRows = {
  readonly collection: string
  readonly rows: number
  readonly reason: 'protected' | 'dropped' | 'content gone'
}

export async function planUndo(
  deps: UndoReads,
  db: Reader,
  chosen: EventChoice,
  { facts, first }: Outline,
): Promise<UndoPlan> {
  if (first === null) return { rows: [], notUndone: facts, token: tokenOf([]) }
  const logged = await changesOf(db, deps.catalog.current(), chosen, first)
  const past = pastOfLog(first)
  const { rows, kept } = await planReversals(deps, db, reversalsOf(logged), past)
  const checked = await withConflicts(db, deps.catalog.current(), rows, past)
  const lasting = await lastingEffects(deps, db, logged, first)
  return { rows: checked, notUndone: [...kept, ...lasting, ...facts], token: tokenOf(checked) }
}

/** The reversal of one row. */
export type RowReversal = {
  readonly collection: string
  readonly id: string
  readonly reversal: Reversal | undefined
  /** It was in a collection of this name that was dropped, whatever has the name today. */
  readonly isDropped?: boolean
}

export const reversalsOf = (logged: readonly LoggedRow[]): readonly RowReversal[] =>
  logged.map(({ collection, id, changes }) => ({
    collection,
    id,
    reversal: reversalOf(changes),
    isDropped: changes.length === 0,
  }))

/** Rows with what speaks against each alone, and those that stay. With `compared` every row is looked at. */
export async function planReversals(
  deps: UndoReads,
  db: Reader,
  reversals: readonly RowReversal[],
  past: PastRows,
  { compared = false } = {},
): Promise<{ readonly rows: readonly PlannedRow[]; readonly kept: readonly ExcludedRows[] }> {
  const { collections } = deps.catalog.current()
  const rows: PlannedRow[] = []
  const kept: ExcludedRows[] = []
  for (const [name, list] of Map.groupBy(reversals, ({ collection }) => collection)) {
    const collection = collections.get(name)
    const there = collection === undefined ? [] : list.filter(({ isDropped }) => isDropped !== true)
    const dropped = list.length - there.length
    if (dropped > 0) kept.push({ collection: name, rows: dropped, reason: 'dropped' })
    if (collection === undefined || there.length === 0) continue
    if (isProtected(name)) kept.push({ collection: name, rows: there.length, reason: 'protected' })
    else {
      const planned = await planCollection(deps, db, collection, there, { past, compared })
      rows.push(...planned.rows)
      if (planned.gone > 0) kept.push({ collection: name, rows: planned.gone, reason: 'content gone' })
    }
  }
  return { rows, kept }
}

async function lastingEffects(
  { systemRules }: UndoReads,
  db: Reader,
  logged: readonly LoggedRow[],
  since: string,
): Promise<readonly LastingEffect[]> {
  const positions = logged.flatMap(({ changes }) =>
    changes.flatMap(({ position, isUndone }) => (isUndone ? [position] : [])),
  )
  const effects: LastingEffect[] = []
  for (const { lasting } of systemRules.values())
    if (lasting !== undefined) effects.push(...(await lasting(db, { positions, since })))
  return effects
}

/** In one order, so that two who undo do not wait for each other. */
export async function lockAll(tx: Tx, { collections }: Catalog, chosen: EventChoice): Promise<void> {
  for (const { collection: name, ids } of await touchedRows(tx, chosen)) {
    const collection = collections.get(name)
    if (collection !== undefined && !isProtected(name)) await lockRows(tx, collection, ids)
  }
}

/** Credentials, sessions, the log and what the platform alone writes. */
export const isProtected = (name: string): boolean =>
  identityCollections.has(name) || name === 'svc_AuditLog' || writersOf(name, 'update') === 'nobody'

/** `inTrash`: others have marked the row as deleted since, or its undo would only mark it and it is marked already. */
type ReversalDraft = {
  readonly id: string
  readonly reversal: Reversal
  readonly inTrash?: 'since' | 'already' | undefined
}

async function planCollection(
  deps: UndoReads,
  db: Reader,
  collection: Collection,
  list: readonly RowReversal[],
  { past, compared }: Comparison,
): Promise<{ readonly rows: readonly PlannedRow[]; readonly gone: number }> {
  const drafts = list.flatMap(({ id, reversal }) => (reversal === undefined ? [] : [{ id, reversal }]))
  const left = await comparedWithNow(db, collection, drafts, { past, compared })
  const all = left.flatMap((draft) => draftOf(collection, draft, past) ?? [])
  const rows = await withContent(deps, db, all, past)
  return { rows: await withMoves(db, collection, rows, past), gone: all.length - rows.length }
}

type Comparison = { readonly past: PastRows; readonly compared: boolean }

/** Without the rows that named something which is gone (409 of the collection's own rule), and with what the others take. */
async function withContent(
  deps: UndoReads,
  db: Reader,
  drafts: readonly RowDraft[],
  past: PastRows,
): Promise<readonly RowDraft[]> {
  const [{ collection } = { collection: undefined }] = drafts
  const { restores, serversOwn } = (collection && deps.systemRules.get(collection.name)) ?? {}
  if (restores === undefined) return drafts
  const isOwn = ([name]: readonly [string, string]) => serversOwn?.has(name) === true
  const kept: RowDraft[] = []
  for (const draft of drafts) {
    // Where several changes are undone, the row was whole before the first of them.
    const [was] =
      draft.action === 'create'
        ? [draft.image!]
        : [...new Set([...draft.fields].filter(isOwn).map(([, p]) => p))].sort(byNumber)
    if (draft.action === 'delete' || was === undefined) kept.push(draft)
    else {
      const version = (await past.at(db, collection!, { fields: past.fields(collection!) }, [was])).get(was)!.shown
      try {
        kept.push({ ...draft, restoring: await restores(deps, version, undefined) })
      } catch (error) {
        if (!(error instanceof AppError) || error.status !== 409) throw error
        if (past.hasContent(version)) kept.push(draft)
      }
    }
  }
  return kept
}

const byNumber = (a: string, b: string): number => Number(BigInt(a) - BigInt(b))

/**
 * Reversals without what is so already: where others wrote the row since, or it was deleted and made again, its values are
 * looked at. The rest of the rows need no look: what the log says of them is what they are.
 */
async function comparedWithNow(
  db: Reader,
  collection: Collection,
  drafts: readonly ReversalDraft[],
  { past, compared }: Comparison,
): Promise<readonly ReversalDraft[]> {
  // A row that was made in the trash is as deleted as its undo would make it.
  const mayBeMarked = ({ action }: Reversal) => action === 'delete' && collection.paranoid
  const isLookedAt = (reversal: Reversal) => {
    const { since, isRemade, image, action } = reversal
    return (
      action !== 'create' && (compared || since.size > 0 || isRemade || image !== undefined || mayBeMarked(reversal))
    )
  }
  const some = drafts.filter(({ reversal }) => isLookedAt(reversal) && !reversal.isErased)
  const fields = past.fields(collection)
  const positions = some.flatMap(({ reversal }) => positionsOf(reversal))
  const now = await rowsNow(
    db,
    collection,
    fields,
    some.map(({ id }) => id),
  )
  const before = await past.at(db, collection, { fields }, positions)
  const isBack = await fieldsPutBack(db, collection, some, now, past)
  return drafts.flatMap((draft) => {
    const { id, reversal } = draft
    const isOthers = (name: string) => (reversal.isRemade || reversal.since.has(name)) && !isBack(id, name)
    if (!isLookedAt(reversal) || reversal.isErased) return [draft]
    const values = now.get(id) ?? {}
    const isMarked = collection.paranoid && values.deletedAt != null
    if (reversal.action === 'delete') {
      const since = new Set([...reversal.since].filter(isOthers))
      const isRemade = reversal.isRemade && fields.some(({ name }) => isOthers(name))
      const inTrash = isMarked ? 'already' : undefined
      return [{ id, reversal: { ...reversal, since, isRemade }, inTrash }]
    }
    const wasAt = new Map(fields.flatMap(({ name }) => asPair(name, reversal.fields.get(name) ?? reversal.image)))
    const differs = ([name, position]: [string, string]) => {
      const was = before.get(position)
      // What does not fit is null in the row as it was, but it was another value.
      const isOther = was?.exact[name] !== values[name] || was?.misfits.includes(name) === true
      return isOther && was?.younger.includes(name) !== true
    }
    const changed = new Map([...wasAt].filter(differs))
    const hidden = reversal.image === undefined || past.holdsHidden(collection) ? [] : hiddenFields(collection)
    const rest = [
      ...[...reversal.fields].filter(([name]) => !wasAt.has(name)),
      ...hidden.map((name) => [name, reversal.image!] as const),
    ]
    const since = new Set([...changed.keys()].filter(isOthers))
    const left = new Map([...changed, ...rest])
    if (left.size === 0 && reversal.dropped.size === 0) return []
    const isTrashed = isMarked && isOthers('deletedAt') && !left.has('deletedAt')
    const inTrash = isTrashed ? 'since' : undefined
    return [{ id, reversal: { ...reversal, fields: left, image: undefined, since }, inTrash }]
  })
}

/** Tells which fields of which rows have what the undone changes left, since all that others wrote later was undone. */
async function fieldsPutBack(
  db: Reader,
  collection: Collection,
  drafts: readonly ReversalDraft[],
  now: Awaited<ReturnType<typeof rowsNow>>,
  past: PastRows,
): Promise<(id: string, name: string) => boolean> {
  const fields = past.fields(collection)
  // A field that somebody wrote last has no undone value: only the others are read.
  const candidates = drafts.flatMap(({ id, reversal: { changes, since, isRemade } }) => {
    if (!changes.some(({ isByUndo }) => isByUndo)) return []
    const names = fields.flatMap(({ name }) => (isRemade || since.has(name) ? [name] : []))
    const all = names.map((name) => ({ id, name, later: laterOf(changes, name) }))
    return all.filter(({ later }) => later.at(-1)?.isByUndo === true)
  })
  const names = new Set(candidates.map(({ name }) => name))
  const positions = candidates.flatMap(({ later }) =>
    later.flatMap(({ action, position }) => (action === 'create' ? [] : [position])),
  )
  const before = await past.at(db, collection, { fields: fields.filter(({ name }) => names.has(name)) }, [
    ...new Set(positions),
  ])
  // A row that is not there has no value, which is another one than null.
  const valueBefore = ({ position }: LoggedChange, name: string) => {
    const was = before.get(position)
    return was?.misfits.includes(name) === true ? Symbol() : was?.exact[name]
  }
  const found = new Set<string>()
  for (const { id, name, later } of candidates) {
    const written = later.map(({ action, isByUndo }, index) => {
      const next = later[index + 1]
      const value = next === undefined ? now.get(id)?.[name] : valueBefore(next, name)
      return { value: action === 'delete' ? undefined : value, isByUndo }
    })
    if (isPutBack(valueBefore(later[0]!, name), written)) found.add(`${name} ${id}`)
  }
  return (id, name) => found.has(`${name} ${id}`)
}

const asPair = (name: string, position: string | undefined): [string, string][] =>
  position === undefined ? [] : [[name, position]]

/** Undefined where nothing of it is to be undone. */
function draftOf(
  collection: Collection,
  { id, reversal, inTrash }: ReversalDraft,
  past: PastRows,
): RowDraft | undefined {
  const { action, image, isErased, since, isRemade, dropped, changes } = reversal
  const newest = changes.findLast(({ isUndone }) => isUndone)?.position
  const own = { collection, id, newest, image: action === 'create' ? image : undefined }
  if (isErased) return { ...own, image: undefined, action: 'none', fields: new Map(), reasons: [{ reason: 'erased' }] }
  const deleted: RowDraft = { ...own, action: 'none', fields: new Map(), reasons: [{ reason: 'deleted' }] }
  if (action === 'create' && image === undefined) return deleted
  if (inTrash === 'already') return { ...deleted, reasons: [] }
  const settable = new Set(past.fields(collection).map(({ name }) => name))
  const asked = action === 'delete' ? [] : [...reversal.fields].filter(([name]) => !isUnasked(collection, name))
  const fields = new Map(asked.filter(([name]) => settable.has(name) && name !== collection.primaryKey.name))
  const lost =
    action === 'create'
      ? past.holdsHidden(collection)
        ? []
        : hiddenFields(collection)
      : lostOf(action, asked, settable, dropped)
  const changed = [...since].filter(
    (name) => !isFollowing(collection, name) && (action === 'delete' || fields.has(name)),
  )
  const reasons: Reason[] = [
    ...(changed.length > 0 || (isRemade && action === 'delete')
      ? [{ reason: 'changed', fields: changed.sort() } as const]
      : []),
    ...(lost.length > 0 ? [lostReason(collection, action, lost.sort())] : []),
  ]
  if (action === 'update' && fields.size === 0 && lost.length === 0) return undefined
  if (inTrash === 'since') return deleted
  return { ...own, action: action === 'update' && fields.size === 0 ? 'none' : action, fields, reasons }
}

/** Columns that no undo has to set; of a row that soft delete, switched off since, has brought back, there is no mark to take away. */
const isUnasked = (collection: Collection, name: string): boolean =>
  isFollowing(collection, name) || (name === 'deletedAt' && !collection.fields.has(name))

/** What an update would have to write, and has no column for: that of then is gone, even where another has its name. */
function lostOf(
  action: Reversal['action'],
  asked: readonly (readonly [string, string])[],
  settable: ReadonlySet<string>,
  dropped: ReadonlySet<string>,
): string[] {
  const missing = asked.map(([name]) => name).filter((name) => !settable.has(name))
  return action === 'update' ? [...new Set([...missing, ...dropped])] : missing
}

/** No row can be made again without a column that must have a value. */
function lostReason({ fields }: Collection, action: Reversal['action'], lost: readonly string[]): Reason {
  const isNeeded = (name: string) => fields.get(name)?.nullable === false && fields.get(name)?.default === undefined
  return { reason: 'lost', fields: lost, ...(action === 'create' && lost.some(isNeeded) && { required: true }) }
}

const hiddenFields = ({ fields }: Collection): string[] =>
  [...fields.values()].filter(({ hidden }) => hidden).map(({ name }) => name)

function tokenOf(rows: readonly PlannedRow[]): string {
  const hash = createHash('sha256')
  for (const { collection, id, action, image, fields, reasons } of rows)
    hash.update(`${JSON.stringify([collection.name, id, action, image ?? null, [...fields].sort(), reasons])}\n`)
  return hash.digest('base64url')
}
