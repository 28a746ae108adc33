import type { Catalog } from '../../../catalog/catalog.ts'
import type { Config } from '../../../config/config.ts'
import type { Reader } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { positionOfEventId } from '../../../events/log.ts'
import { isUuid } from '../../../language/text.ts'
import type { Access } from '../../../query/access.ts'
import { readableFields, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { inTransaction, isScoped, isTenanted, type Requester } from '../items/items.ts'
import { applyPlan, clearedOf } from './apply.ts'
import { largestUndo, lockAll, type PlannedRow, pastOfLog, planUndo, type Reason, type UndoPlan } from './plan.ts'
import {
  causedBy,
  type EventChoice,
  factsSeen,
  imagesWithin,
  isRequestId,
  mayReadLog,
  type Outline,
  outlineOf,
  rowsWithin,
  transactionAt,
  type UndoReads,
  type UndoWrites,
} from './queries.ts'

export { isProtected } from './plan.ts'
export { type LoadedRows, nowOfTenant, type RestorablePart, type TenantRows, type UndoWrites } from './queries.ts'
export {
  type LoadedState,
  type PastState,
  type RestoreChoices,
  type RestoredPart,
  restoreState,
  type StateReport,
} from './restore.ts'

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
}

/** The effects of an undo, made or planned, as far as the caller may read the rows. */
type UndoReport = {
  readonly plan: string
  readonly counts: readonly CollectionCount[]
  readonly rows: readonly ShownRow[]
  readonly conflicts: readonly Conflict[]
  readonly notUndone: UndoPlan['notUndone']
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
  const chosen = await choose(deps.db, access, request)
  if (request.dryRun === true) {
    const { plan } = await planned(deps, deps.db, requester, chosen)
    return reportOf(deps, deps.db, access, plan)
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
    const report = await reportOf(deps, tx, access, plan, (row) => isRefused(row, isForced(row)))
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
    await applyPlan(deps, run, written, pastOfLog(outline.first!), clearedOf)
    const forced = rows.filter(({ reasons }) => reasons.length > 0).length
    scope.events.push({ type: 'history.undone', data: { ...nameOf(request), rows: written.length, forced } })
    return report
  })
}

/** Which events are meant. 400 unless exactly one way of choosing them is used. */
async function choose(db: Reader, access: Access, request: UndoRequest): Promise<EventChoice> {
  const { requestId, position, actor, include } = request
  if ([requestId, position, actor].filter((way) => way !== undefined).length !== 1)
    throw errors.badBody('Request body must have one of requestId, position and actor')
  if (actor !== undefined) return chosenUser(access, actor, request)
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

function chosenUser(access: Access, actor: string, { from, to, collections, include }: UndoRequest): EventChoice {
  if (!isUuid(actor)) throw errors.badBody('actor must be the id of a user')
  if (from === undefined || to === undefined) throw errors.badBody('actor needs from and to')
  if (Date.parse(from) >= Date.parse(to)) throw errors.badBody('from must be before to')
  // Counts tell what somebody did: that is the log's to tell.
  if (actor.toLowerCase() !== access.userId && !mayReadLog(access)) throw errors.actionDenied('read', 'svc_AuditLog')
  return { by: 'user', userId: actor, from, to, collections, withCaused: include === 'caused' }
}

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
  const outline = await outlineOf(db, chosen, factsSeen(deps, access))
  if (outline.events === 0 && outline.facts.length === 0) {
    if (chosen.by === 'requests') throw unknownRequest(chosen.requests[0]!)
    if (chosen.by === 'transaction') throw unknownPosition()
    throw new AppError(404, 'The log has no changes of this user in this time')
  }
  requireOwnTenant(deps.catalog.current(), access, deps.config, outline)
  if (outline.rows > largestUndo)
    throw new AppError(413, `At most ${largestUndo} rows can be undone at once`, { details: { rows: outline.rows } })
  return outline
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
  { rows, notUndone, token }: UndoPlan,
  isConflict = ({ reasons }: PlannedRow) => reasons.length > 0,
): Promise<UndoReport> {
  const shown: ShownRow[] = []
  const conflicts: Conflict[] = []
  const counts: CollectionCount[] = []
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
    for (const row of list.filter(isSeen).slice(0, largestList - shown.length))
      shown.push(shownRow(row, (name) => names.has(name)))
    for (const row of inConflict.filter(isSeen).slice(0, largestList - conflicts.length))
      conflicts.push({
        collection: collection.name,
        id: row.id,
        reasons: row.reasons.map((reason) => withoutUnseen(access, reason, names)),
      })
  }
  return { plan: token, counts, rows: shown, conflicts, notUndone }
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
