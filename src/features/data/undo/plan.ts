import { createHash } from 'node:crypto'
import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { identityCollections, writersOf } from '../../../catalog/system-collections.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import type { LastingEffect, Restoration } from '../items/items.ts'
import type { Move } from './order.ts'
import {
  changesOf,
  type EventChoice,
  type LoggedFact,
  type LoggedRow,
  lockRows,
  type Outline,
  type PastReference,
  type ReferringColumn,
  type RowBefore,
  referencesDangling,
  rowsBefore,
  rowsHolding,
  rowsNow,
  rowsReferring,
  touchedRows,
  type UndoReads,
  valuesMissing,
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

export type PlannedRow = {
  readonly collection: Collection
  readonly id: string
  /** `none`: there is nothing that could be done, or without reasons (see `isSettled`) nothing left to do. */
  readonly action: 'create' | 'update' | 'delete' | 'none'
  /** The event before which all values were so; only of a row to be created. */
  readonly image: string | undefined
  /** Columns to be set to what they were before these events, by name. */
  readonly fields: ReadonlyMap<string, string>
  readonly reasons: readonly Reason[]
  /** The restoration of parts outside of the database that the row names. */
  readonly restoring?: Restoration | undefined
  readonly move: Move
  /** Columns that come back to a row that is gone, as it was before already. */
  readonly dangling?: ReadonlySet<string> | undefined
}

/** A conflict with later changes, and whether it can be forced. */
export type Reason =
  /** Others have written these fields since, or made the row again with other values. */
  | { readonly reason: 'changed'; readonly fields: readonly string[] }
  /** Others have deleted it since. */
  | { readonly reason: 'deleted' }
  /** The log does not hold these fields: they are hidden, or no longer there. */
  | { readonly reason: 'lost'; readonly fields: readonly string[]; readonly required?: true }
  /** The log's images of it were erased. */
  | { readonly reason: 'erased' }
  /** Rows that are not undone refer to it. */
  | { readonly reason: 'referenced'; readonly by: readonly { readonly collection: string; readonly rows: number }[] }
  /** The row that these fields referred to is gone. */
  | { readonly reason: 'reference gone'; readonly fields: readonly string[]; readonly required: boolean }
  /** A row in the trash, or one that is only marked, has the unique values of these fields. */
  | { readonly reason: 'taken'; readonly fields: readonly string[]; readonly required: true }

/** Columns that follow the writer of now, or other columns of the row: no undo has to set them. */
function isFollowing({ fields, timestamps, usertrack }: Collection, name: string): boolean {
  const { generated, sameAs } = fields.get(name) ?? {}
  const isWriters = (timestamps && name === 'updatedAt') || (usertrack && name === 'userUpdated_Id')
  return isWriters || generated !== undefined || sameAs !== undefined
}

/** Columns that the server has set, and that come back as they were. */
export const isServers = ({ timestamps, usertrack }: Collection, name: string): boolean =>
  (timestamps && name === 'createdAt') || (usertrack && name === 'userCreated_Id')

/** Columns that the log holds and a write can set. */
const storedFields = oncePer((collection: Collection): readonly Field[] =>
  [...collection.fields.values()].filter(({ name, hidden }) => !hidden && !isFollowing(collection, name)),
)

/** Rows as they were, by their places: the log's images before its events, or rows that were taken out of a backup. */
export type PastRows = {
  /** Columns that it holds and a write can set. */
  readonly fields: (collection: Collection) => readonly Field[]
  readonly holdsHidden: (collection: Collection) => boolean
  /** Whether content that rows of then name, and that is gone, comes back with them. */
  readonly hasContent: (version: Readonly<Record<string, unknown>>) => boolean
  readonly at: (
    db: Reader,
    collection: Collection,
    fields: readonly Field[],
    places: readonly string[],
  ) => Promise<ReadonlyMap<string, RowBefore>>
  /** Which of these references to rows that are gone led nowhere at their places already. */
  readonly dangling: (
    db: Reader,
    collection: Collection,
    references: readonly PastReference[],
  ) => Promise<readonly PastReference[]>
}

/** The log: places are positions of events, none of them written before `first`. */
export const pastOfLog = (first: string): PastRows => ({
  fields: storedFields,
  holdsHidden: () => false,
  hasContent: () => false,
  at: (db, collection, fields, places) => rowsBefore(db, collection, fields, places, first),
  dangling: referencesDangling,
})

/** Columns that a write can set, those too that the log does not hold. */
export const settableFields = oncePer((collection: Collection): readonly Field[] => {
  const stored = new Set(storedFields(collection))
  return [...collection.fields.values()].filter(
    (field) => stored.has(field) || (field.hidden && field.generated === undefined && field.sameAs === undefined),
  )
})

export async function planUndo(
  deps: UndoReads,
  db: Reader,
  chosen: EventChoice,
  { facts, first }: Outline,
): Promise<UndoPlan> {
  if (first === null) return { rows: [], notUndone: facts, token: tokenOf([]) }
  const logged = await changesOf(db, chosen, first)
  const past = pastOfLog(first)
  const { rows, kept } = await planReversals(deps, db, reversalsOf(logged), past)
  const checked = await withReferences(db, deps.catalog.current(), rows, past)
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

type RowDraft = Omit<PlannedRow, 'move'>

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
      const version = (await past.at(db, collection!, past.fields(collection!), [was])).get(was)!.shown
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
  const before = await past.at(db, collection, fields, positions)
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
    if (left.size === 0) return []
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
  const before = await past.at(
    db,
    collection,
    fields.filter(({ name }) => names.has(name)),
    [...new Set(positions)],
  )
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

/** The events before which the row had the values that come back. */
export const positionsOf = ({ image, fields }: Pick<Reversal, 'image' | 'fields'>): readonly string[] => [
  ...new Set([...fields.values(), ...(image === undefined ? [] : [image])]),
]

/** Undefined where nothing of it is to be undone. */
function draftOf(
  collection: Collection,
  { id, reversal, inTrash }: ReversalDraft,
  past: PastRows,
): RowDraft | undefined {
  const { action, image, isErased, since, isRemade } = reversal
  const own = { collection, id, image: action === 'create' ? image : undefined }
  if (isErased) return { ...own, image: undefined, action: 'none', fields: new Map(), reasons: [{ reason: 'erased' }] }
  const deleted: RowDraft = { ...own, action: 'none', fields: new Map(), reasons: [{ reason: 'deleted' }] }
  if (action === 'create' && image === undefined) return deleted
  if (inTrash === 'already') return { ...deleted, reasons: [] }
  const settable = new Set(past.fields(collection).map(({ name }) => name))
  const asked = action === 'delete' ? [] : [...reversal.fields].filter(([name]) => !isFollowing(collection, name))
  const fields = new Map(asked.filter(([name]) => settable.has(name) && name !== collection.primaryKey.name))
  const lost =
    action === 'create'
      ? past.holdsHidden(collection)
        ? []
        : hiddenFields(collection)
      : asked.map(([name]) => name).filter((name) => !settable.has(name))
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

/** No row can be made again without a column that must have a value. */
function lostReason({ fields }: Collection, action: Reversal['action'], lost: readonly string[]): Reason {
  const isNeeded = (name: string) => fields.get(name)?.nullable === false && fields.get(name)?.default === undefined
  return { reason: 'lost', fields: lost, ...(action === 'create' && lost.some(isNeeded) && { required: true }) }
}

const hiddenFields = ({ fields }: Collection): string[] =>
  [...fields.values()].filter(({ hidden }) => hidden).map(({ name }) => name)

/** Looks at what rows refer to and which unique values they have, before and after, which decides their order. */
async function withMoves(
  db: Reader,
  collection: Collection,
  drafts: readonly RowDraft[],
  past: PastRows,
): Promise<PlannedRow[]> {
  const references = referencesOf(collection)
  const uniques = uniquesOf(collection)
  const names = new Set([
    ...references.flatMap(({ foreignKey, discriminator }) => [
      foreignKey,
      ...(discriminator === undefined ? [] : [discriminator.column]),
    ]),
    ...uniques.flat(),
  ])
  const isConcerned = (draft: RowDraft) =>
    draft.action === 'create' || isDeletion(draft) || [...draft.fields.keys()].some((name) => names.has(name))
  const fields = storedFields(collection).filter(({ name }) => names.has(name))
  const some = fields.length === 0 ? [] : drafts.filter(isConcerned)
  const there = some.filter((draft) => draft.action === 'update' || isDeletion(draft))
  const now = await rowsNow(
    db,
    collection,
    fields,
    there.map(({ id }) => id),
  )
  const positions = some.filter((draft) => !isDeletion(draft)).flatMap(positionsOf)
  const before = await past.at(db, collection, fields, positions)
  return drafts.map((draft) => {
    const current = now.get(draft.id) ?? {}
    const then = Object.fromEntries(
      fields.map(({ name }) => {
        const position = draft.fields.get(name) ?? draft.image
        return [name, position === undefined ? current[name] : before.get(position)?.exact[name]]
      }),
    )
    return { ...draft, move: moveOf(draft, { references, uniques, current, then }) }
  })
}

/** Whether a row goes by its undo, or is marked; or would be marked but is so already, which others may still depend on. */
const isDeletion = (row: RowDraft): boolean => row.action === 'delete' || isSettled(row)

/** Whether a row is what its undo would make of it. */
export const isSettled = ({ action, reasons }: RowDraft): boolean => action === 'none' && reasons.length === 0

type RowValues = Readonly<Record<string, string | null | undefined>>

function moveOf(
  draft: RowDraft,
  parts: {
    readonly references: readonly Relation[]
    readonly uniques: readonly (readonly string[])[]
    readonly current: RowValues
    readonly then: RowValues
  },
): Move {
  const { references, uniques, current, then } = parts
  const { collection, id, fields, image } = draft
  const action = isDeletion(draft) ? 'delete' : draft.action
  const comes = action === 'create'
  const goes = action === 'delete' && !collection.paranoid
  const key = place(collection.name, collection.primaryKey.name, id)
  const single = (values: RowValues, isWanted: (name: string) => boolean = () => true) =>
    uniques.flatMap(([name, ...more]) =>
      more.length > 0 || values[name!] == null || !isWanted(name!)
        ? []
        : [place(collection.name, name!, values[name!]!)],
    )
  const mayBeNull = (name: string) => collection.fields.get(name)!.nullable
  const referring = (values: RowValues, isWanted: (name: string) => boolean): Move['needs'] =>
    new Map(
      references.flatMap(({ foreignKey, discriminator, target, targetKey, constraint, onUpdate }) => {
        const value = values[foreignKey]
        const isOther = discriminator !== undefined && values[discriminator.column] !== discriminator.value
        if (value == null || isOther || !isWanted(foreignKey)) return []
        const holds = constraint && (onUpdate === 'RESTRICT' || onUpdate === 'NO ACTION')
        const was = constraint ? undefined : (fields.get(foreignKey) ?? image)
        const need = { place: place(target, targetKey, value), canWait: mayBeNull(foreignKey), holds, was }
        return [[foreignKey, need] as const]
      }),
    )
  const isSet = (name: string) => comes || fields.has(name)
  const unique = (values: RowValues, isWanted: (names: readonly string[]) => boolean) =>
    uniques.flatMap((names) => {
      const key = names.map((name) => values[name])
      const isNull = key.some((value) => value == null)
      if (isNull || !isWanted(names)) return []
      const nullable = names.find((name) => isSet(name) && mayBeNull(name))
      return [{ place: uniquePlace(collection, names, JSON.stringify(key)), nullable }]
    })
  const touches = (names: readonly string[]) => names.some((name) => fields.has(name))
  const changes = (name: string) => action === 'update' && fields.has(name)
  return {
    action: action === 'none' ? 'update' : action,
    offers: comes ? [key, ...single(then)] : goes ? [key, ...single(current)] : single(then, changes),
    leaves: single(current, changes),
    needs: action === 'delete' ? new Map() : referring(then, isSet),
    marks: action === 'delete' && !goes ? [key, ...single(current)] : [],
    releases: action === 'create' ? new Map() : referring(current, (name) => action === 'delete' || fields.has(name)),
    takes: action === 'delete' ? [] : unique(then, (names) => comes || touches(names)),
    frees: comes ? [] : unique(current, (names) => goes || touches(names)).map(({ place }) => place),
  }
}

const place = (collection: string, column: string, value: string): string => `${collection}.${column} ${value}`

/** To-one relations that the database or the platform keeps. */
const referencesOf = oncePer((collection: Collection): readonly Relation[] =>
  [...collection.relations.values()].filter(
    ({ kind, constraint, discriminator }) => kind === 'belongsTo' && (constraint || discriminator !== undefined),
  ),
)

/** Columns that are unique together, but for the key. */
const uniquesOf = oncePer((collection: Collection): readonly (readonly string[])[] => {
  const { fields, indexes, definition } = collection
  const single = [...fields.values()]
    .filter(({ unique, primaryKey }) => unique && !primaryKey)
    .map(({ name }) => [name])
  const together = (definition.schema.constraints ?? []).flatMap((rule) =>
    rule.type === 'unique' ? [rule.fields] : [],
  )
  const indexed = indexes.filter(({ unique }) => unique).map((index) => index.fields)
  return [...single, ...together, ...indexed].filter((names) => names.every((name) => fields.has(name)))
})

/** Adds what speaks against rows because of others: rows that refer to what goes, and what is gone that a row refers to. */
export async function withReferences(
  db: Reader,
  catalog: Catalog,
  rows: readonly PlannedRow[],
  past: PastRows,
): Promise<readonly PlannedRow[]> {
  const more = new Map<PlannedRow, Reason[]>()
  const add = (row: PlannedRow, reason: Reason) => more.set(row, [...(more.get(row) ?? []), reason])
  await findReferring(db, catalog, rows, add)
  const dangling = await findMissing(db, catalog, rows, past, add)
  await findTaken(db, rows, add)
  return rows.map((row) =>
    more.has(row) || dangling.has(row)
      ? { ...row, reasons: [...row.reasons, ...(more.get(row) ?? [])], dangling: dangling.get(row) }
      : row,
  )
}

type Add = (row: PlannedRow, reason: Reason) => void

async function findReferring(db: Reader, catalog: Catalog, rows: readonly PlannedRow[], add: Add): Promise<void> {
  const going = goingOf(rows)
  if (going.size === 0) return
  const planned = new Map(rows.map((row) => [`${row.collection.name} ${row.id}`, row]))
  const found = new Map<PlannedRow, Map<string, number>>()
  const collections = new Set([...going.values()].map(({ collection }) => collection.name))
  for (const { reference, relation } of referencesTo(catalog, collections)) {
    const prefix = place(relation.target, relation.targetKey, '')
    const values = [...going.keys()].filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length))
    for (const { id, value } of await rowsReferring(db, reference, values)) {
      const other = planned.get(`${reference.collection.name} ${id}`)
      if (other?.fields.has(reference.column.name)) continue
      // A row that is only marked still refers; whether that keeps the other one is the relation's to say.
      if (other !== undefined && isDeletion(other) && !(reference.collection.paranoid && isKept(reference, relation)))
        continue
      const row = going.get(prefix + value)!
      const counts = found.get(row) ?? new Map<string, number>()
      counts.set(reference.collection.name, (counts.get(reference.collection.name) ?? 0) + 1)
      found.set(row, counts)
    }
  }
  for (const [row, counts] of found)
    add(row, { reason: 'referenced', by: [...counts].map(([collection, count]) => ({ collection, rows: count })) })
}

/** Rows that go, by their places: those that are deleted, and of those that are marked the ones that a cascade takes. */
function goingOf(rows: readonly PlannedRow[]): ReadonlyMap<string, PlannedRow> {
  const going = new Map<string, PlannedRow>()
  for (const row of rows) if (row.action === 'delete') for (const offered of row.move.offers) going.set(offered, row)
  const isTaken = ({ collection, move }: PlannedRow) =>
    referencesOf(collection).some(({ constraint, onDelete, foreignKey }) => {
      const released = move.releases.get(foreignKey)
      return constraint && onDelete === 'CASCADE' && released !== undefined && going.has(released.place)
    })
  let left = rows.filter(({ move }) => (move.marks ?? []).length > 0)
  for (let size = -1; size < going.size; ) {
    size = going.size
    const [taken, others] = [left.filter(isTaken), left.filter((row) => !isTaken(row))]
    for (const row of taken) for (const mark of row.move.marks!) going.set(mark, row)
    left = others
  }
  return going
}

/** Whether a row that is referred to by this cannot go. */
const isKept = ({ column }: ReferringColumn, { constraint, onDelete }: Relation): boolean =>
  constraint && (onDelete === 'RESTRICT' || onDelete === 'NO ACTION' || (onDelete === 'SET NULL' && !column.nullable))

function referencesTo(
  { collections }: Catalog,
  targets: ReadonlySet<string>,
): { readonly reference: ReferringColumn; readonly relation: Relation }[] {
  return [...collections.values()].flatMap((collection) =>
    referencesOf(collection).flatMap((relation) => {
      const column = collection.fields.get(relation.foreignKey)
      if (!targets.has(relation.target) || column === undefined) return []
      return [{ reference: { collection, column, where: relation.discriminator }, relation }]
    }),
  )
}

/** Answers the columns that come back to rows that were gone already, by row. */
async function findMissing(
  db: Reader,
  catalog: Catalog,
  rows: readonly PlannedRow[],
  past: PastRows,
  add: Add,
): Promise<ReadonlyMap<PlannedRow, ReadonlySet<string>>> {
  const offered = new Set(rows.flatMap(({ action, move }) => (action === 'delete' ? [] : move.offers)))
  const gone = new Set(rows.flatMap(({ action, move }) => (action === 'delete' ? move.offers : move.leaves)))
  const wanted = rows.flatMap((row) =>
    [...row.move.needs].flatMap(([column, need]) => (offered.has(need.place) ? [] : [{ row, column, need }])),
  )
  const dangling = new Set<string>()
  const byTarget = Map.groupBy(wanted, ({ need }) => need.place.slice(0, need.place.indexOf(' ') + 1))
  for (const [prefix, list] of byTarget) {
    const [target, targetKey] = prefix.trim().split('.') as [string, string]
    const collection = catalog.collections.get(target)!
    const values = list.map(({ need }) => need.place.slice(prefix.length))
    const missing = await valuesMissing(db, collection, collection.fields.get(targetKey)!, values)
    for (const value of missing) gone.add(prefix + value)
    const free = list.flatMap(({ need: { place, was } }) =>
      was === undefined || !gone.has(place) ? [] : [{ value: place.slice(prefix.length), place: was }],
    )
    // Links to any collection lead nowhere where a cascade of the database took what they led to, and come back so.
    if (free.length > 0 && targetKey === collection.primaryKey.name)
      for (const { value, place } of await past.dangling(db, collection, free))
        dangling.add(`${place} ${prefix}${value}`)
  }
  const missing = wanted.filter(({ need }) => gone.has(need.place))
  const [asBefore, since] = [true, false].map((was) =>
    missing.filter(({ need }) => dangling.has(`${need.was} ${need.place}`) === was),
  )
  const lacking = Map.groupBy(since!, ({ row }) => row)
  for (const [row, list] of lacking)
    add(row, {
      reason: 'reference gone',
      fields: list.map(({ column }) => column),
      required: list.some(({ need }) => !need.canWait),
    })
  const left = Map.groupBy(asBefore!, ({ row }) => row)
  return new Map([...left].map(([row, list]) => [row, new Set(list.map(({ column }) => column))]))
}

/** Rows that are marked keep their unique values. */
async function findTaken(db: Reader, rows: readonly PlannedRow[], add: Add): Promise<void> {
  const freed = new Set(rows.flatMap(({ move }) => move.frees))
  for (const [collection, list] of Map.groupBy(rows, (row) => row.collection)) {
    if (!collection.paranoid) continue
    const marks = list.filter(isDeletion).map(({ id }) => id)
    for (const names of uniquesOf(collection)) {
      const prefix = uniquePlace(collection, names, '')
      const wanted = list.flatMap((row) =>
        row.move.takes.flatMap(({ place }) =>
          place.startsWith(prefix) && !freed.has(place) ? [{ row, place, key: place.slice(prefix.length) }] : [],
        ),
      )
      const fields = names.map((name) => collection.fields.get(name)!)
      const keys = wanted.map(({ key }) => JSON.parse(key) as string[])
      const held = new Map((await rowsHolding(db, collection, fields, keys, marks)).map(({ key, id }) => [key, id]))
      for (const { row, key } of wanted)
        if (held.has(key) && held.get(key) !== row.id) add(row, { reason: 'taken', fields: names, required: true })
    }
  }
}

const uniquePlace = ({ name }: Collection, names: readonly string[], key: string): string =>
  `unique ${name} ${names} ${key}`

function tokenOf(rows: readonly PlannedRow[]): string {
  const hash = createHash('sha256')
  for (const { collection, id, action, image, fields, reasons } of rows)
    hash.update(`${JSON.stringify([collection.name, id, action, image ?? null, [...fields].sort(), reasons])}\n`)
  return hash.digest('base64url')
}
