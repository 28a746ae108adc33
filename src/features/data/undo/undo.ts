import { requireLogFields } from '../../../access/log-fields.ts'
import type { Catalog, Collection, Field } from '../../../catalog/catalog.ts'
import type { Config } from '../../../config/config.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { positionOfEventId } from '../../../events/log.ts'
import { isUuid } from '../../../language/text.ts'
import type { Access } from '../../../query/access.ts'
import { parsePoint } from '../../../query/past.ts'
import { readableFields, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { inTransaction, isScoped, isTenanted, type Requester } from '../items/items.ts'
import { applyPlan, clearedOf, requireUndoable } from './apply.ts'
import { withConflicts } from './conflicts.ts'
import { changesOf } from './logged-rows.ts'
import {
  type ExcludedRows,
  isProtected,
  largestUndo,
  lockAll,
  planReversals,
  planUndo,
  type RowReversal,
  reversalsOf,
  type UndoPlan,
} from './plan.ts'
import { isSettled, type PastRows, type PlannedRow, pastOfLog, type Reason, settableFields } from './planned-rows.ts'
import {
  causedBy,
  columnsMadeBySql,
  differencesFrom,
  type EventChoice,
  eventsSeen,
  imagesWithin,
  isRequestId,
  type LoadedRows,
  type LogSight,
  lockRows,
  sightOf as logSightOf,
  type Outline,
  outlineOf,
  type RestorablePart,
  requireReached,
  rowsLoaded,
  rowsWithin,
  transactionAt,
  type UndoReads,
  type UndoWrites,
  wasThere,
} from './queries.ts'

export { isProtected } from './plan.ts'
export type { LoadedRows, RestorablePart, TenantRows, UndoWrites } from './queries.ts'

/** The choice of an undo and its options; see `UndoBody` in routes.ts. */
type UndoRequest = {
  readonly requestId?: string
  readonly position?: string | number
  readonly actor?: string
  readonly from?: string
  readonly to?: string
  readonly collections?: readonly string[]
  readonly include?: 'caused'
  readonly dryRun?: boolean
  readonly plan?: string
  readonly force?: readonly { readonly collection: string; readonly id: string | number }[]
  readonly limit?: number
}

/** The effects of an undo, made or planned, as far as the caller may read the rows. */
type UndoReport = {
  readonly plan: string
  readonly counts: readonly CollectionCount[]
  readonly rows: readonly ShownRow[]
  readonly conflicts: readonly Conflict[]
  readonly notUndone: UndoPlan['notUndone']
  /** How many entries each list leaves out; where the request limits them. */
  readonly more?: Readonly<Record<'rows' | 'conflicts' | 'notUndone', number>>
}

type CollectionCount = {
  readonly collection: string
  readonly create: number
  readonly update: number
  readonly delete: number
  readonly conflicts: number
}
type ShownRow = {
  readonly collection: string
  readonly id: string
  readonly action: PlannedRow['action']
  readonly fields?: readonly string[]
}
type Conflict = { readonly collection: string; readonly id: string; readonly reasons: readonly Reason[] }

/** Of rows and of conflicts; the counts say how many there are. */
const largestList = 1000

/**
 * `POST /log/undo`: writes the reverse of all that a request, a transaction or a user did, in one transaction, as the caller's
 * own changes, or with `dryRun` says what it would write. Fields that others have changed since are left alone: then the
 * whole is refused (409 `UNDO_CONFLICT`), but for the rows of `force`.
 *
 * @throws {AppError} 404 for what the log does not hold, 403 for what the caller may not do and for what concerns another
 *   tenant, 409 `PLAN_CHANGED` where the plan is not the one of `plan`, 409 `NOTHING_TO_UNDO`, 413 for more than 100,000 rows
 */
export async function undo(deps: UndoWrites, requester: Requester, request: UndoRequest): Promise<UndoReport> {
  const { access } = requester
  const chosen = await choose(deps, access, request)
  if (request.dryRun === true) {
    const { plan, outline } = await planned(deps, deps.db, requester, chosen)
    if (outline.first !== null)
      await requireUndoable({ deps, db: deps.db, requester, past: pastOfLog(outline.first) }, plan.rows)
    return reportOf(deps, deps.db, access, plan, request)
  }
  return inTransaction(deps, requester, async (run) => {
    const { tx, scope } = run
    await outlined(deps, tx, requester, chosen)
    await lockAll(tx, deps.catalog.current(), chosen)
    // The snapshot shows all changes that others made until their rows were locked; they can make no more.
    const { plan, outline } = await planned(deps, tx, requester, chosen)
    const { token, rows } = plan
    if (request.plan !== undefined && request.plan !== token)
      throw new AppError(409, 'The changes to undo have changed since the plan was made: make a new plan', {
        code: 'PLAN_CHANGED',
      })
    const isForced = forcedOf(request)
    const report = await reportOf(deps, tx, access, plan, request, (row) => isRefused(row, isForced(row)))
    if (rows.some((row) => isRefused(row, isForced(row))))
      throw new AppError(409, 'Some rows cannot be undone: they have changed since, or the log does not hold them', {
        code: 'UNDO_CONFLICT',
        details: report,
      })
    const written = rows.filter(({ action }) => action !== 'none')
    if (written.length === 0)
      throw new AppError(409, 'There is nothing to undo: the rows are as they were', {
        code: 'NOTHING_TO_UNDO',
        details: report,
      })
    await applyPlan(deps, run, rows, pastOfLog(outline.first!), clearedOf)
    const forced = rows.filter(({ reasons }) => reasons.length > 0).length
    scope.events.push({ type: 'history.undone', data: { ...nameOf(request), rows: written.length, forced } })
    return report
  })
}

/** Which events are meant. 400 unless exactly one way of choosing them is used. */
async function choose(deps: UndoReads, access: Access, request: UndoRequest): Promise<EventChoice> {
  const { db } = deps
  const { requestId, position, actor, include } = request
  if ([requestId, position, actor].filter((way) => way !== undefined).length !== 1)
    throw errors.badBody('Request body must have one of requestId, position and actor')
  if (actor !== undefined) return chosenUser(deps, access, actor, request)
  const withCaused = async (requests: readonly string[]) =>
    include === 'caused' ? [...requests, ...(await causedBy(db, requests))] : requests
  if (requestId !== undefined) {
    if (!isRequestId(requestId)) throw unknownRequest(requestId)
    return { by: 'requests', requests: await withCaused([requestId.toLowerCase()]) }
  }
  const at = positionOf(String(position))
  const transaction = at === undefined ? undefined : await transactionAt(db, at)
  if (transaction === undefined) throw unknownPosition()
  const caused = include === 'caused' ? await causedBy(db, transaction.requests) : []
  return { by: 'transaction', xid: transaction.xid, only: transaction.only, requests: caused }
}

function chosenUser(
  deps: UndoReads,
  access: Access,
  actor: string,
  { from, to, collections, include }: UndoRequest,
): EventChoice {
  if (!isUuid(actor)) throw errors.badBody('actor must be the id of a user')
  if (from === undefined || to === undefined) throw errors.badBody('actor needs from and to')
  if (Date.parse(from) >= Date.parse(to)) throw errors.badBody('from must be before to')
  const sight = actor.toLowerCase() === access.userId ? undefined : sightOfOthers(deps, access)
  return { by: 'user', userId: actor, from, to, collections, withCaused: include === 'caused', sight }
}

/** Counts and rows tell what a user did, and when: that is the log's to tell. */
function sightOfOthers(deps: UndoReads, access: Access): LogSight {
  const sight = logSightOf(deps, access)
  requireLogFields(sight.names, toldOfUsers)
  return sight
}

const toldOfUsers = ['userId', 'createdAt', 'entity', 'entityId', 'action']

/** Of an event by its position or its id. */
export function positionOf(text: string): string | undefined {
  if (/^\d{1,18}$/.test(text)) return text
  return positionOfEventId(text)
}

const unknownPosition = () => new AppError(404, 'The log has no event at this position')

export const unknownRequest = (id: string): AppError =>
  new AppError(404, 'The log has no such request', {
    details: `${isUuid(id) ? 'its changes may have been removed by retention' : 'an id that a client chose is looked up by GET /log/requests?requestId='}`,
  })

/** The undone part as the event names it. */
function nameOf({ requestId, position, actor, from, to }: UndoRequest) {
  if (requestId !== undefined) return { undone: requestId.toLowerCase(), by: 'request' } as const
  if (actor === undefined) return { undone: positionOf(String(position))!, by: 'transaction' } as const
  return { undone: actor.toLowerCase(), by: 'user', from: from!, to: to! } as const
}

async function planned(
  deps: UndoReads,
  db: Reader,
  { access }: Requester,
  chosen: EventChoice,
): Promise<{ readonly plan: UndoPlan; readonly outline: Outline }> {
  const outline = await outlined(deps, db, { access }, chosen)
  return { plan: await planUndo(deps, db, chosen, outline), outline }
}

/** Refuses what the log does not hold, what is too much, and what concerns other tenants. */
async function outlined(
  deps: UndoReads,
  db: Reader,
  { access }: Pick<Requester, 'access'>,
  chosen: EventChoice,
): Promise<Outline> {
  const outline = await outlineOf(db, chosen, eventsSeen(deps, access))
  if (!isKnown(outline, chosen, access)) {
    if (chosen.by === 'requests') throw unknownRequest(chosen.requests[0]!)
    if (chosen.by === 'transaction') throw unknownPosition()
    throw new AppError(404, 'The log has no changes of this user in this time')
  }
  requireOwnTenant(deps.catalog.current(), access, deps.config, outline)
  if (outline.rows > largestUndo)
    throw new AppError(413, `At most ${largestUndo} rows can be undone at once`, { details: { rows: outline.rows } })
  return outline
}

/**
 * Whether the log has what was chosen, as far as the caller is told. A position can be guessed, other than the id of a request: it stands for
 * something if the log shows that to the caller, or the history of a collection that it may read does.
 */
function isKnown({ events, facts, isSeen, owners }: Outline, { by }: EventChoice, access: Access): boolean {
  if (facts.length > 0 || by !== 'transaction') return events + facts.length > 0
  return events > 0 && (isSeen || owners.some(({ collection }) => mayRead(access, collection)))
}

/** Callers who are kept inside a tenant undo nothing of a request that also concerned others. */
function requireOwnTenant({ collections }: Catalog, access: Access, config: Config, { owners }: Outline): void {
  if (!isScoped(access, config)) return
  const isOthers = owners.some(({ collection: name, tenant }) => {
    const collection = collections.get(name)
    const mustHaveOne = collection !== undefined && isTenanted(collection, config)
    return tenant === null ? mustHaveOne : tenant !== access.tenantId
  })
  if (isOthers) throw new AppError(403, 'These changes concern another tenant')
}

function forcedOf({ force = [] }: UndoRequest): (row: PlannedRow) => boolean {
  const forced = new Set(force.map(({ collection, id }) => `${collection} ${String(id).toLowerCase()}`))
  return ({ collection, id }) => forced.has(`${collection.name} ${id.toLowerCase()}`)
}

const isRefused = ({ reasons }: PlannedRow, isForced: boolean): boolean =>
  reasons.some((reason) => !isForced || ('required' in reason && reason.required === true))

/** Rows that the caller may not read are only counted. */
async function reportOf(
  deps: UndoReads,
  db: Reader,
  access: Access,
  { rows: planned, notUndone, token }: UndoPlan,
  { limit }: Pick<UndoRequest, 'limit'>,
  isConflict = ({ reasons }: PlannedRow) => reasons.length > 0,
): Promise<UndoReport> {
  const rows = planned.filter((row) => !isSettled(row))
  const shown: ShownRow[] = []
  const conflicts: Conflict[] = []
  const counts: CollectionCount[] = []
  const most = limit ?? largestList
  const more = { rows: 0, conflicts: 0, notUndone: Math.max(0, notUndone.length - most) }
  for (const [collection, list] of Map.groupBy(rows, (row) => row.collection)) {
    const inConflict = list.filter(isConflict)
    const count = (wanted: string) => list.filter(({ action }) => action === wanted).length
    counts.push({
      collection: collection.name,
      create: count('create'),
      update: count('update'),
      delete: count('delete'),
      conflicts: inConflict.length,
    })
    const sight = await sightOf(deps, db, access, list)
    if (sight === undefined) continue
    const { isSeen, names } = sight
    const [seen, seenConflicts] = [list.filter(isSeen), inConflict.filter(isSeen)]
    more.rows += seen.length
    more.conflicts += seenConflicts.length
    for (const row of seen.slice(0, most - shown.length)) shown.push(shownRow(row, (name) => names.has(name)))
    for (const row of seenConflicts.slice(0, most - conflicts.length))
      conflicts.push({
        collection: collection.name,
        id: row.id,
        reasons: row.reasons.map((reason) => withoutUnseen(access, reason, names)),
      })
  }
  const report = { plan: token, counts, rows: shown, conflicts, notUndone }
  if (limit === undefined) return report
  more.rows -= shown.length
  more.conflicts -= conflicts.length
  return { ...report, notUndone: notUndone.slice(0, most), more }
}

function shownRow({ collection, id, action, fields }: PlannedRow, isSeen: (name: string) => boolean): ShownRow {
  const names = [...fields.keys()].filter(isSeen).sort()
  return { collection: collection.name, id, action, ...(action === 'update' && { fields: names }) }
}

function withoutUnseen(access: Access, reason: Reason, names: ReadonlySet<string>): Reason {
  if ('fields' in reason)
    return { ...reason, fields: access.admin ? reason.fields : reason.fields.filter((n) => names.has(n)) }
  if (reason.reason !== 'referenced' || access.admin) return reason
  const by = reason.by.filter(({ collection }) => mayRead(access, collection))
  return { ...reason, by }
}

const mayRead = (access: Access, collection: string): boolean =>
  access.admin || access.grant(collection, 'read') !== undefined

/** Which rows of a collection the caller may read, as they are or as they will be again; undefined where none. */
async function sightOf(deps: UndoReads, db: Reader, access: Access, rows: readonly PlannedRow[]) {
  const { collection } = rows[0]!
  if (!mayRead(access, collection.name)) return undefined
  const catalog = deps.catalog.current()
  const names = new Set(readableFields(catalog, access, collection.name).map(({ name }) => name))
  const rule = resolveCondition(catalog, access, collection.name, 'read', resolveEnv(deps), { includeDeleted: true })
  const there = rows.filter(({ image }) => image === undefined).map(({ id }) => id)
  const seen = await rowsWithin(db, collection, rule, there)
  const images = await imagesWithin(
    db,
    collection,
    rule,
    rows.flatMap(({ image }) => (image === undefined ? [] : [image])),
  )
  const isSeen = ({ id, image }: PlannedRow) => (image === undefined ? seen.has(id) : images.has(image))
  return { names, isSeen }
}

/* Bringing a part of the database back to what it was: whole collections, or the rows of a tenant. */

/** The part to bring back: `name` stands in the log, `called` in messages. */
export type RestoredPart = RestorablePart & {
  readonly what: 'collection' | 'tenant'
  readonly name: string
  readonly called: string
}

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

const mostSkippedListed = 1000

/**
 * Writes what differs from the state as ordinary changes of the requester, in one transaction, which the log can undo like any
 * other. Rows outside of the part are read only. Answers what it did, or would do: with conflicts it does nothing.
 *
 * @throws {AppError} 410 where the log does not reach back, 404 for a part that is not there or was not then, 413 for too many rows,
 *   400 where a value no longer fits its field; all of them in a dry run too
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
      const { left, skipped } = choices.skip
        ? await withoutImpossible(deps, tx, rows, past)
        : { left: rows, skipped: [] }
      const report = stateReportOf(part, { rows: left, skipped, kept }, { at, by: state.by, choices })
      if (report.isRefused) throw new NothingWritten(report)
      const written = left.filter(({ action }) => action !== 'none')
      if (choices.dryRun) {
        // Content that only the backup has is not there in a dry run, and without it no row that names it is allowed.
        const isWhole = ({ collection, restoring }: PlannedRow) =>
          restoring !== undefined || deps.systemRules.get(collection.name)?.restores === undefined
        await requireUndoable({ deps, db: tx, requester, past }, written.filter(isWhole))
        throw new NothingWritten(report)
      }
      if (written.length === 0) return report
      await applyPlan(deps, run, left, past, clearedOf)
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

async function planState(deps: UndoReads, tx: Tx, part: RestoredPart, state: PastState): Promise<Planned> {
  const found =
    state.by === 'log'
      ? await fromLog(deps, tx, part, state.at)
      : await fromBackup(deps, tx, part, await state.load(tx))
  const { rows, kept } = await planReversals(deps, tx, found.reversals, found.past, { compared: true })
  return { ...found, rows: await withConflicts(tx, deps.catalog.current(), rows, found.past), kept }
}

type Found = { readonly reversals: readonly RowReversal[]; readonly past: PastRows; readonly at: string }

/** Everything since the moment is to be undone, by any actor. */
async function fromLog(deps: UndoReads, tx: Tx, part: RestoredPart, at: string): Promise<Found> {
  const point = parsePoint(at)
  await requireReached(tx, point)
  // All of its rows are younger than it is, and would have to go.
  if (!(await wasThere(tx, point, part))) throw new AppError(404, `${part.called} did not exist at ${at}`)
  const chosen: EventChoice = { by: 'point', point, part }
  const before = await outlineOf(tx, chosen)
  requireFew(before.rows)
  await lockAll(tx, deps.catalog.current(), chosen)
  // The snapshot shows all changes that others made until their rows were locked.
  const { first, rows } = await outlineOf(tx, chosen)
  requireFew(rows)
  if (first === null) return { reversals: [], past: pastOfLog(new Date().toISOString()), at }
  const logged = await changesOf(tx, deps.catalog.current(), chosen, first)
  return { reversals: reversalsOf(logged), past: pastOfLog(first), at }
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
    madeBySql: async (db, collection) => {
      const loaded = byName.get(collection.name)?.columns
      return (await columnsMadeBySql(db, collection)).filter(({ name }) => loaded?.has(name) === true)
    },
    at: (db, { name }, columns, ids) => rowsLoaded(db, collections.get(name)!, byName.get(name)!, columns, ids),
    // What is in neither the backup nor the database was not there then; of other tenants' rows the backup says nothing.
    dangling: async (_, { name }, references) => (part.tenant === undefined && byName.has(name) ? references : []),
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
  dropped: new Set(),
  since: new Set(),
  isRemade: false,
  isErased: false,
  changes: [],
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
  past: PastRows,
): Promise<{ readonly left: readonly PlannedRow[]; readonly skipped: readonly PlannedRow[] }> {
  let left = rows
  const skipped: PlannedRow[] = []
  for (;;) {
    const impossible = left.filter(isImpossible)
    if (impossible.length === 0) return { left, skipped }
    skipped.push(...impossible)
    const possible = left.filter((row) => !isImpossible(row)).map(withoutRelations)
    left = await withConflicts(db, deps.catalog.current(), possible, past)
  }
}

const isImpossible = ({ action, reasons }: PlannedRow): boolean =>
  (action === 'none' && reasons.length > 0) ||
  reasons.some((reason) => 'required' in reason && reason.required === true)

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

function stateReportOf(
  part: RestorablePart,
  { rows, skipped, kept }: PartRows,
  { at, by, choices }: RestoreSource,
): StateReport {
  const open = ({ reasons }: PlannedRow) => reasons.filter((reason) => !isAnswered(reason, choices))
  const inConflict = rows.filter((row) => open(row).length > 0)
  const told = rows.filter((row) => !isSettled(row))
  const names = [...new Set([...told, ...skipped].map(({ collection }) => collection.name))].sort()
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
    .slice(0, mostSkippedListed)
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
