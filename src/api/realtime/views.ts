import type { Catalog } from '../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import { clientError, isDataError } from '../../db/errors.ts'
import type { FeedReads } from '../../db/pools.ts'
import { AppError, errors, inFull } from '../../errors.ts'
import { type Cursor, parseCursor } from '../../events/cursor.ts'
import type { LogEvent } from '../../events/log-reader.ts'
import {
  type ChangeView,
  changedRows,
  definitionOf,
  type EventScope,
  movesSight,
  placeOf,
  type RuleSources,
  ruleSources,
  unscoped,
  type Viewers,
  type VisibleChange,
  viewOf,
} from '../../features/data/changes/changes.ts'
import { notifications } from '../../features/messaging/notifications/notifications.ts'
import type { Access } from '../../query/access.ts'
import { type Filter, parseListQuery, readBoolean } from '../../query/parse.ts'
import { readableFields, requestedFields, resolveEnv } from '../../query/resolve.ts'
import type { RealtimeReads } from '../capabilities.ts'
import { refuseUnknownMembers } from '../parameters.ts'
import { readMessage } from './messages.ts'

/*
 * The view of a subscriber: its request, compiled with its rights, and the messages of a batch of events.
 */

/** The payload of `subscribe` (docs/realtime.md); compiling validates it. */
export type SubscribeRequest = {
  readonly collection: string
  readonly since: Cursor | undefined
  /** The rows come first, unless the log still reaches back to `since`. */
  readonly snapshot: boolean
  readonly filter: Filter | undefined
  readonly fields: readonly string[] | undefined
}

/** A query's reason is in its details, for which the answers of sockets have no place. */
export function inOneMessage<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof AppError ? oneMessageOf(error) : error
  }
}

/** A refusal with its reason in its message; other errors as they are. */
export function oneMessageOf(error: AppError, code?: string): AppError {
  const { status, details } = error
  return typeof details === 'string'
    ? new AppError(status, inFull(error), { ...(code !== undefined && { code }), cause: error })
    : error
}

/**
 * The answer where a row cannot be compared as a filter or rule asks for, such as a text that a cast cannot make a number
 * of; undefined for other errors.
 */
export function unfitView(error: unknown): AppError | undefined {
  if (!isDataError(error)) return undefined
  return oneMessageOf(errors.badQuery(clientError(error)!.details))
}

const subscribeMembers = ['collection', 'since', 'snapshot', 'filter', 'fields']

/**
 * Throws AppError 400 for anything but `{collection, since?, snapshot?, filter?, fields?}`: whoever misspells `filter` would
 * follow every row.
 */
export function readSubscribeRequest(request: unknown): SubscribeRequest {
  const message = readMessage('subscribe', request)
  const { collection, since, snapshot, filter, fields } = message
  refuseUnknownMembers(message, subscribeMembers)
  const query = parseListQuery({ filter, fields })
  return {
    collection,
    since: since === undefined || since === null ? undefined : parseCursor(since),
    snapshot: readBoolean('snapshot', snapshot) ?? false,
    filter: query.filter,
    fields: query.fields,
  }
}

/**
 * Whether a subscriber gets the rows of a read only. Tenants are always apart, and so are people's notifications; a request
 * for a part of the rows or for the rows themselves is scoped too; other row rules only with REALTIME_ROW_LEVEL_SCOPING.
 */
export function scopesRows({ config }: Configuration, { collection, filter, snapshot }: ScopeOf): boolean {
  if (config.realtime.rowLevelScoping || config.tenancy.enabled) return true
  return collection === notifications || filter !== undefined || snapshot
}

type ScopeOf = Pick<SubscribeRequest, 'collection' | 'filter' | 'snapshot'>

/** A subscribe request compiled for what its subscriber may read; good as long as the catalog and that access are. */
export type CompiledView = ChangeView & {
  readonly catalog: Catalog
  /** Distinguishes what subscribers with one text see. */
  readonly key: string
  /** Its values depend on the time: `$NOW` is in the filter or in a rule. */
  readonly timed: boolean
}

/** Throws 403 for what the subscriber may not read, 400 for what does not exist, in the words of `/items`. */
export function compileView(
  deps: Clock & Configuration & CurrentCatalog,
  access: Access,
  request: SubscribeRequest,
): CompiledView {
  const [early, late] = [viewAt(deps, access, request, moments[0]), viewAt(deps, access, request, moments[1])]
  const key = JSON.stringify(early.values)
  return { ...early, catalog: deps.catalog.current(), key, timed: key !== JSON.stringify(late.values) }
}

/** The same view as of now, where it depends on the time. */
export function viewNow(
  deps: Clock & Configuration & CurrentCatalog,
  access: Access,
  request: SubscribeRequest,
  view: CompiledView,
): CompiledView {
  if (!view.timed) return view
  const { text, values } = viewAt(deps, access, request, deps.clock())
  return { ...view, text, values, key: JSON.stringify(values) }
}

/** Two different ones; what is compiled for both alike does not depend on the time. */
const moments = [new Date('2000-01-01T00:00:00Z'), new Date('2001-02-03T04:05:06.789Z')] as const

function viewAt(
  deps: Clock & Configuration & CurrentCatalog,
  access: Access,
  request: SubscribeRequest,
  now: Date,
): ChangeView {
  const catalog = deps.catalog.current()
  const collection = catalog.collections.get(request.collection)
  if (collection === undefined) throw new AppError(403, 'No permission to subscribe to this collection')
  const fields = fieldsOf(catalog, access, request)
  const env = { ...resolveEnv(deps), now }
  return viewOf({ catalog, access, collection, fields, env, scoped: scopesRows(deps, request), filter: request.filter })
}

/** 400 for a filter that follows a relation to rows whose changes are not recorded: the client's copy would go stale. */
export function refuseUnrecorded(
  deps: RealtimeReads,
  access: Access,
  { collection: name, filter }: SubscribeRequest,
): void {
  const catalog = deps.catalog.current()
  const collection = catalog.collections.get(name)
  if (filter === undefined || collection === undefined) return
  const { collections } = ruleSources(catalog, deps.access.current(), access, collection, resolveEnv(deps), filter)
  const unlogged = [...collections].find((one) => catalog.collections.get(one)?.logged === false)
  if (unlogged !== undefined) throw new AppError(400, `Changes of ${unlogged} are not recorded`)
}

/** Those asked for, and always the primary key: without it a change is of no row. */
export function fieldsOf(catalog: Catalog, access: Access, { collection, fields }: SubscribeRequest) {
  if (fields === undefined) return readableFields(catalog, access, collection)
  const asked = requestedFields(catalog, access, collection, fields)
  const { primaryKey } = catalog.collections.get(collection)!
  return asked.includes(primaryKey) ? asked : [primaryKey, ...asked]
}

/** Where a batch of events happened. */
export function touchedBy(batch: readonly LogEvent[]): EventScope {
  const changes = batch.filter(({ type }) => type === 'data')
  return {
    collections: new Set(changes.map(({ entity }) => entity)),
    rows: new Set(changes.map(({ entity, entityId }) => placeOf(entity, entityId))),
  }
}

/** Watches what decides elsewhere on what a subscriber sees. Both throw where its rule makes no sense any more. */
export type ScopeWatch = {
  /** Whether a batch may have moved or altered rows in its sight without an event of them. */
  isMovedBy(touched: EventScope): boolean
  /** The collections without which no batch does; undefined where every batch does. */
  collections(): readonly string[] | undefined
}

/**
 * Watches the definition of the collection, and what the subscriber's row rule and filter read elsewhere where they scope
 * its rows. They are resolved once per catalog; another access needs another watch.
 */
export function watchScope(deps: RealtimeReads, access: Access, request: SubscribeRequest): ScopeWatch {
  const scoped = scopesRows(deps, request)
  let known: { catalog: Catalog; sources: RuleSources } | undefined
  const sources = (): RuleSources | undefined => {
    const catalog = deps.catalog.current()
    const collection = catalog.collections.get(request.collection)
    if (collection === undefined) return undefined
    if (known?.catalog !== catalog) {
      const read = scoped
        ? ruleSources(catalog, deps.access.current(), access, collection, resolveEnv(deps), request.filter)
        : unscoped
      const definitions = [collection.name, ...read.collections].map(definitionOf)
      known = { catalog, sources: { ...read, rows: [...read.rows, ...definitions] } }
    }
    return known.sources
  }
  // Not with the first batch, which may be that of thousands.
  sources()
  return {
    isMovedBy: (touched) => {
      const known = sources()
      return known === undefined || movesSight(known, touched)
    },
    collections: () => {
      const known = sources()
      return known && [...known.collections, ...known.rows.map(({ collection }) => collection)]
    },
  }
}

/** A message to a client: name `{collection}:{action}`. */
export type Message = { readonly name: string; readonly xid: bigint; readonly body: { readonly cursor: string } }

/** A message and who gets it, as numbers of viewers from 0. */
type SeenMessage = { readonly message: Message; readonly viewers: readonly number[] }

type SeenChanges = {
  readonly messages: readonly SeenMessage[]
  /** False where events have been erased: what they changed, no message says. */
  readonly isWhole: boolean
}

/** One statement's worth of images; a batch of large rows must not be held whole. */
const rowsAtOnce = 250
/** A view that takes longer would hold up everybody's changes. */
const longestMs = 10_000

/** Events in parts that one statement may evaluate. */
export function* partsOf(events: readonly LogEvent[]): Generator<readonly LogEvent[]> {
  for (let i = 0; i < events.length; i += rowsAtOnce) yield events.slice(i, i + rowsAtOnce)
}

/**
 * The messages of a part, in its order, for viewers who share a view and have own values: one statement for all of them
 * (ADR 23).
 */
export async function changesSeen(
  deps: FeedReads & CurrentCatalog,
  collectionName: string,
  view: ChangeView,
  viewers: Viewers,
  part: readonly LogEvent[],
): Promise<SeenChanges> {
  const events = new Map(part.map((event) => [event.position, event]))
  const rows = await changedRows(deps.feedDb, view, viewers, [...events.keys()], AbortSignal.timeout(longestMs))
  const messages = rows.flatMap((row) => messagesOf(deps, collectionName, events.get(row.position)!, row))
  return { messages, isWhole: rows.length === part.length }
}

const actionNames = { create: 'insert', update: 'update', delete: 'delete' } as const

function messagesOf({ catalog }: CurrentCatalog, name: string, event: LogEvent, row: VisibleChange): SeenMessage[] {
  const collection = catalog.current().collections.get(name)
  if (collection === undefined) return []
  const { action, position, createdAt: timestamp, cursor } = event
  const message = (as: string, data: unknown, to: readonly number[]): SeenMessage[] => {
    if (to.length === 0) return []
    const body = { action: as, collection: name, data, timestamp, cursor, position }
    return [{ message: { name: `${name}:${as}`, xid: BigInt(event.xid), body }, viewers: to.map((n) => n - 1) }]
  }
  const isWanted = collection.realtime.actions.has(actionNames[action as keyof typeof actionNames])
  if (action === 'delete') return isWanted ? message('delete', JSON.parse(row.data), row.was_visible) : []
  // A row that has left a subscriber's scope is gone for it: only its id may still be shown.
  const stillSee = new Set(row.visible)
  const left = row.was_visible.filter((n) => !stillSee.has(n))
  const removed = message('remove', { [collection.primaryKey.name]: JSON.parse(row.key) }, left)
  return isWanted ? [...message(action, JSON.parse(row.data), row.visible), ...removed] : removed
}
