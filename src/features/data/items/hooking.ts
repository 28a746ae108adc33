import { AsyncLocalStorage } from 'node:async_hooks'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { isDeepStrictEqual } from 'node:util'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { isStalePlan, severalStatements } from '../../../db/errors.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { commit } from '../../../events/commit.ts'
import { type Actor, consequenceOf } from '../../../events/types.ts'
import { systemAccess } from '../../../query/access.ts'
import { projectionList } from '../../../query/compile-rows.ts'
import { isObject } from '../../../query/guards.ts'
import { plainQuery, readBoolean } from '../../../query/parse.ts'
import { createParams, ident } from '../../../query/sql.ts'
import type { HookEvent, ItemHooks } from '../hooks/hooks.ts'
import {
  type ChangeAction,
  type Document,
  type ItemReads,
  type ItemWrites,
  nameActor,
  noteNamed,
  type OpenTransaction,
  type Requester,
  type Run,
  type WriteContext,
  type WrittenRow,
} from './context.ts'
import { relationOfColumn } from './foreign-keys.ts'
import { readList, readVersion, type Via } from './reads.ts'
import { keyCondition, projection, ruleSql } from './statements.ts'

/**
 * Runs the hooks of extensions around items (docs/extensions.md). The result of a hook is read like the caller's own
 * request. A collection without hooks gets no further than {@link meetsHooks}.
 */

/** SQL for hooks; before a change it is part of the transaction, else it can only read. */
export type HookDb = { query<Row>(text: string, values?: readonly unknown[]): Promise<readonly Row[]> }

/** Whether writing these payloads can meet a hook: of the collection, or of one whose rows come through a relation. */
export function meetsHooks(
  { hooks }: ItemHooks,
  { collection, action }: Pick<WriteContext, 'collection' | 'action'>,
  payloads: readonly unknown[] = [],
): boolean {
  if (hooks.isEmpty()) return false
  return isHooked(hooks, collection.name, action) || payloads.some((payload) => holdsRows(collection, payload))
}

/**
 * Whether rows are hooked and written one by one: the hooks before a change see the rows of the request before theirs. What
 * is nested in a row is written one by one as it is.
 */
export function goesOneByOne(
  { hooks }: ItemHooks,
  { collection, action }: Pick<WriteContext, 'collection' | 'action'>,
  payloads: readonly unknown[] = [],
): boolean {
  if (hooks.isEmpty()) return false
  return hooks.has(collection.name, `items.${action}`) || payloads.some((payload) => holdsRows(collection, payload))
}

/**
 * Runs the before-hooks of one row that is about to be created or (with `id`) changed, and gives the payload to go on
 * with; undefined without hooks. An existing row is locked and shown to them as it is. They are not notified of a row
 * that the caller may not update; the statement refuses it.
 */
export function beforeRow(
  { deps, run }: { readonly deps: ItemHooks; readonly run: Run | undefined },
  context: WriteContext & { readonly action: 'create' | 'update' },
  payload: unknown,
  id: string | undefined,
): Promise<HookedRow> | undefined {
  const { collection, action } = context
  if (deps.hooks.isEmpty() || !isHooked(deps.hooks, collection.name, action)) return undefined
  if (run === undefined) throw new Error(`${collection.name} has hooks: it is written in a transaction`)
  return hookedRow(run, context, payload, id)
}

/** A payload after its hooks, and the row before the change; undefined for a new one. */
type HookedRow = { readonly payload: unknown; readonly previous: Document | undefined }

async function hookedRow(
  run: Run,
  context: WriteContext & { readonly action: 'create' | 'update' },
  payload: unknown,
  id: string | undefined,
): Promise<HookedRow> {
  const { collection, action } = context
  const [found] = id === undefined ? [] : await lockedDocuments(run, context, [id])
  const isMissing = id !== undefined && found === undefined
  if (isMissing || !isObject(payload)) return { payload, previous: undefined }
  if (found !== undefined) readAfter.set(found.document, run.scope.written.length)
  const existing = found && { id: JSON.parse(found.id), previousDocument: found.document }
  // A copy: the operation may be run again, and then begins with what the caller sent.
  const shown = structuredClone(shownToHooks(context))
  const data = { ...structuredClone(payload), ...shown }
  const left = await notifyBefore(run, `items.${action}`, collection, { data, ...existing })
  return { payload: withoutShown(context, left.data), previous: found?.document }
}

/** What the platform adds to a payload by itself. An undo brings values back that are nobody's to look at again. */
function shownToHooks({ platform, defaults, isUndo }: WriteContext): Readonly<Record<string, unknown>> {
  return isUndo === true ? {} : { ...defaults, ...platform }
}

/** What a hook leaves as it was shown is not the caller's to set, and what only the platform sets is no hook's either. */
function withoutShown(context: WriteContext, data: unknown): unknown {
  const shown = Object.entries(shownToHooks(context))
  if (shown.length === 0 || !isObject(data)) return data
  const { platform = {} } = context
  const own = shown.filter(([name, value]) => Object.hasOwn(platform, name) || isDeepStrictEqual(data[name], value))
  const names = new Set(own.map(([name]) => name))
  return Object.fromEntries(Object.entries(data).filter(([name]) => !names.has(name)))
}

/** Runs the before-hooks of rows that are about to be deleted; gives the rows as they are. */
export async function beforeGone(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
): Promise<ReadonlyMap<string, Document>> {
  const { collection } = context
  if (!isHooked(run.deps.hooks, collection.name, 'delete')) return new Map()
  const found = await lockedDocuments(run, context, ids)
  for (const { document } of found) readAfter.set(document, run.scope.written.length)
  for (const { id, document } of found)
    await notifyBefore(run, 'items.delete', collection, { id: JSON.parse(id), document })
  return new Map(found.map(({ id, document }) => [id, document]))
}

/** Notes a row that was written, for the hooks that are notified afterwards. */
export function noteWritten(run: Run, written: Omit<WrittenRow, 'requester'>): void {
  const { hooks } = run.deps
  if (!hooks.isEmpty() && hooks.has(written.collection.name, `items.${written.action}.after`))
    run.scope.written.push({ ...written, requester: run.requester })
}

/**
 * The notifications to send when the transaction has committed, with each row as its write left it: as the next write of the
 * same row found it, or as it is at the end.
 */
export async function afterwards(
  deps: Reads & CurrentAccess & ItemHooks,
  { tx, written }: Pick<OpenTransaction, 'tx' | 'written'>,
): Promise<readonly (() => Promise<void>)[]> {
  const kept = written.filter(({ action }) => action !== 'delete')
  const documents = new Map<Collection, ReadonlyMap<string, Document>>()
  for (const [collection, rows] of Map.groupBy(kept, (row) => row.collection))
    documents.set(collection, await documentsOf(tx, collection, [...new Set(rows.map(({ id }) => id))]))
  const found = foundByNext(written)
  return written.map(({ requester, collection, action, id, previous }, index) => async () => {
    const now = found[index] ?? documents.get(collection)?.get(id) ?? null
    const rows = action === 'delete' ? { document: previous } : { document: now, previousDocument: previous }
    await notifyAfter(deps, requester, `items.${action}.after`, collection.name, { id: JSON.parse(id), ...rows })
  })
}

/** Each row as the next write of it found it; undefined where there is none, or it had looked at the row before this write. */
function foundByNext(written: readonly WrittenRow[]): readonly (Document | undefined)[] {
  const next = new Map<string, Document>()
  return [...written.entries()]
    .toReversed()
    .map(([index, { collection, id, previous }]) => {
      const key = `${collection.name} ${id}`
      const found = next.get(key)
      if (previous !== undefined) next.set(key, previous)
      return found !== undefined && readAfter.get(found)! > index ? found : undefined
    })
    .toReversed()
}

/** How many rows of the transaction were written when a row was read for its hooks. */
const readAfter = new WeakMap<Document, number>()

/** Runs the before-hooks of a read. */
async function beforeRead<Members extends { readonly query: Record<string, unknown> }>(
  deps: Reads & CurrentAccess & ItemHooks,
  requester: Requester,
  event: 'items.read' | 'items.read.one',
  collection: string,
  members: Members,
): Promise<Members> {
  const { scope } = requester
  const db = scope === undefined ? readingDb(deps) : writingDb(scope)
  const hook = inHook(requester)
  const context = { ...members, collection, accountability: accountabilityOf(deps, hook), db }
  const left = await nested(deps, scope, hook.actor, () => deps.hooks.before(event, context))
  if (scope !== undefined) await nameActor(scope.tx, requester.actor)
  return left
}

/** Runs after-hooks; they can change nothing any more. */
async function notifyAfter(
  deps: Reads & CurrentAccess & ItemHooks,
  requester: Requester,
  event: HookEvent,
  collection: string,
  members: object,
): Promise<void> {
  const hook = inHook(requester)
  const scope = requester.scope?.isOver === false ? requester.scope : undefined
  const context = { ...members, collection, accountability: accountabilityOf(deps, hook), db: readingDb(deps) }
  await nested(deps, scope, hook.actor, () => deps.hooks.after(event, context))
  if (scope !== undefined) await nameActor(scope.tx, requester.actor)
}

/** In whose name hooks act: to the log a request of its own, the same one for all that the changes of a requester lead to. */
function inHook(requester: Requester): Requester {
  const actor = hookActors.get(requester.actor) ?? consequenceOf(requester.actor, 'hook')
  hookActors.set(requester.actor, actor)
  return { ...requester, actor }
}

const hookActors = new WeakMap<Actor, Actor>()

/**
 * Runs `work` in the transaction that the requester takes part in, or in one of its own; hooks are notified of what was
 * written after its commit. `work` may be run again after a serialization conflict, and so may the hooks before it.
 */
export async function inTransaction<Result>(
  deps: ItemWrites,
  requester: Requester,
  work: (run: Run) => Promise<Result>,
): Promise<Result> {
  const { scope } = requester
  if (scope !== undefined) {
    await nameActor(scope.tx, requester.actor)
    return work({ deps, requester, tx: scope.tx, scope })
  }
  let notifications: readonly (() => Promise<void>)[] = []
  const result = await commit(deps, requester.actor, async (tx) => {
    const own: OpenTransaction = { tx, actor: requester.actor, written: [], events: [], isOver: false }
    noteNamed(tx, requester.actor)
    try {
      const done = await work({ deps, requester, tx, scope: own })
      notifications = await afterwards(deps, own)
      return { result: done, events: own.events }
    } finally {
      own.isOver = true
    }
  })
  for (const notify of notifications) await notify()
  return result
}

/** The transaction that the hook which asks is part of; undefined outside of before-hooks. Throws when it is over. */
export function scopeOfHook(deps: object): OpenTransaction | undefined {
  const inside = ambient.getStore()
  if (inside?.deps !== deps || inside.scope === undefined) return undefined
  if (inside.scope.isOver) throw new Error('the operation is over: a hook must await what it begins')
  return inside.scope
}

/** Runs code of an extension so that all it does with its context belongs to this transaction. */
export function insideScope<Result>(
  deps: object,
  scope: OpenTransaction,
  work: () => Promise<Result>,
): Promise<Result> {
  return nested(deps, scope, scope.actor, work)
}

/** The actor of changes that the running hook makes; undefined outside of hooks. */
export function actorOfHook(deps: object): Actor | undefined {
  const inside = ambient.getStore()
  return inside?.deps === deps ? inside.actor : undefined
}

export function readingDb({ db }: Reads): HookDb {
  return { query: (text, values) => runOwn(db, text, values) }
}

export function writingDb(scope: OpenTransaction): HookDb {
  return {
    query: async (text, values) => {
      if (scope.isOver) throw new Error('the transaction is over: a hook must await what it begins')
      // A plain read is not worth a round trip more.
      if (!/^\s*select\s/i.test(text)) await nameActor(scope.tx, ambient.getStore()?.actor ?? scope.actor)
      return runOwn(scope.tx, text, values)
    },
  }
}

/** A name that is not there is the extension's mistake, not a sign of a catalog that has changed. */
async function runOwn<Row>(reader: Reader, text: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
  try {
    const rows: readonly Row[] | undefined = await reader.any<Row>(rawQuery(text, values))
    if (rows === undefined) throw severalStatements()
    return rows
  } catch (error) {
    if (!isStalePlan(error)) throw error
    throw Object.assign(new Error(`SQL of an extension failed: ${(error as Error).message}`), { code: 'EXTENSION_SQL' })
  }
}

function isHooked(hooks: ItemHooks['hooks'], collection: string, action: ChangeAction): boolean {
  return hooks.has(collection, `items.${action}`) || hooks.has(collection, `items.${action}.after`)
}

/** Whether a payload has more in it than the row itself. */
function holdsRows(collection: Collection, payload: unknown): boolean {
  if (!isObject(payload)) return false
  return Object.entries(payload).some(
    ([key, value]) =>
      typeof value === 'object' &&
      value !== null &&
      (collection.relations.has(key) || relationOfColumn(collection, key, payload) !== undefined),
  )
}

type Ambient = {
  readonly deps: object
  readonly depth: number
  readonly scope: OpenTransaction | undefined
  readonly actor: Actor
}

const ambient = new AsyncLocalStorage<Ambient>()
const deepest = 16

/** A hook's own changes can meet hooks again, but only to a limited depth. */
function nested<Result>(
  deps: object,
  scope: OpenTransaction | undefined,
  actor: Actor,
  work: () => Promise<Result>,
): Promise<Result> {
  const depth = (ambient.getStore()?.depth ?? 0) + 1
  if (depth > deepest) throw new RangeError(`hooks that cause each other are more than ${deepest} deep`)
  return ambient.run({ deps, depth, scope, actor }, work)
}

async function notifyBefore<Members extends object>(
  { deps, requester, scope }: Run,
  event: HookEvent,
  { name }: Collection,
  members: Members,
): Promise<Members> {
  const db = writingDb(scope)
  const hook = inHook(requester)
  const context = { ...members, collection: name, accountability: accountabilityOf(deps, hook), db, transaction: db }
  const left = await nested(deps, scope, hook.actor, () => deps.hooks.before(event, context))
  await nameActor(scope.tx, requester.actor)
  return left
}

type FoundDocument = { readonly id: string; readonly document: Document }

/** The rows with these keys that the caller may change so, kept from other writers until the end. */
function lockedDocuments(run: Run, context: WriteContext, ids: readonly string[]): Promise<readonly FoundDocument[]> {
  const params = createParams()
  const where = `${keyCondition(context.collection, ids, params)} and ${ruleSql(context, 't', params)}`
  return find(run.tx, context.collection, `${where} for update of t`, params)
}

async function documentsOf(tx: Tx, collection: Collection, ids: readonly string[]) {
  const params = createParams()
  const keys = ids.map((id) => String(JSON.parse(id)))
  const found = await find(tx, collection, keyCondition(collection, keys, params), params)
  return new Map(found.map(({ id, document }) => [id, document]))
}

function find(
  tx: Tx,
  collection: Collection,
  where: string,
  { values }: ReturnType<typeof createParams>,
): Promise<readonly FoundDocument[]> {
  const shown = [...collection.fields.values()].filter(({ hidden }) => !hidden)
  const document = `(select row_to_json(o.*) from (select ${projectionList(shown, 't')}) o) as document`
  const text = `select ${projection(collection)}, ${document} from ${ident(collection.name)} t where ${where}`
  return tx.any<FoundDocument>(rawQuery(text, values))
}

/** The answer of {@link listItems}, however long it is, in one piece. */
export const wholeText = async (list: string | Readable): Promise<string> =>
  typeof list === 'string' ? list : text(list)

/**
 * As `readList`, with the hooks of the collection around it. They are given the query as plain values and may give
 * another one, which is still the caller's to read. Where a hook wants to see the result it is read whole, however long.
 * With `changesCursor=true` the answer ends with the cursor from which `GET /changes` goes on (docs/changes.md).
 */
export async function listItems(
  deps: ItemReads,
  reader: Requester,
  collection: string,
  raw: Record<string, unknown>,
  via: Pick<Via, 'replicaFor' | 'recorder' | 'defaultLimit'> = {},
): Promise<string | Readable> {
  const { hooks } = deps
  const query = await hookedQuery(deps, reader, collection, raw)
  const tx = reader.scope?.tx
  // Inside a transaction that writes there is no place in the log to go on from yet.
  const marked = tx === undefined && readBoolean('changesCursor', raw.changesCursor) === true
  const list = await readList(deps, reader.access, collection, query, { ...via, tx, marked })
  if (!hooks.has(collection, 'items.read.after')) return list
  const body = await wholeText(list)
  await notifyAfter(deps, reader, 'items.read.after', collection, { query, result: JSON.parse(body) })
  return body
}

/** The query of a list after its hooks: the caller's own if there are none. */
export async function hookedQuery(
  deps: ItemReads,
  reader: Requester,
  collection: string,
  raw: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  if (!deps.hooks.has(collection, 'items.read') || !isReadable(deps, reader, collection)) return raw
  const { query } = await beforeRead(deps, reader, 'items.read', collection, { query: plainQuery(raw) })
  return query
}

/** As `readVersion`, with the hooks of the collection around it. */
export async function readItem(
  deps: ItemReads,
  reader: Requester,
  collection: string,
  id: string,
  raw: Record<string, unknown>,
  via: Pick<Via, 'replicaFor' | 'recorder'> = {},
): Promise<{ readonly body: string; readonly version: string | undefined }> {
  const { hooks } = deps
  const { access, scope } = reader
  const { query } =
    hooks.has(collection, 'items.read.one') && isReadable(deps, reader, collection)
      ? await beforeRead(deps, reader, 'items.read.one', collection, { id, query: plainQuery(raw) })
      : { query: raw }
  const item = await readVersion(deps, access, collection, id, query, { ...via, tx: scope?.tx })
  if (hooks.has(collection, 'items.read.one.after'))
    await notifyAfter(deps, reader, 'items.read.one.after', collection, {
      id,
      query,
      document: JSON.parse(item.body).data,
    })
  return item
}

/** Hooks are not notified of what is refused anyway: unknown collections, and those that the caller may not read. */
function isReadable(deps: CurrentCatalog, { access }: Requester, collection: string): boolean {
  if (!deps.catalog.current().collections.has(collection)) return false
  return access.admin || access.grant(collection, 'read') !== undefined
}

/** The caller, as extensions see it. A copy: what an extension does to it changes nothing. */
export type Accountability = {
  /** The user's own row without hidden fields; null for callers without a session. */
  readonly user: Readonly<Record<string, unknown>> | null
  readonly role: Readonly<Record<string, unknown>> | null
  /** The stored permissions of the role. */
  readonly permissions: readonly Readonly<Record<string, unknown>>[]
  /** The id of the tenant that the caller works in. */
  readonly tenant: string | null
  readonly ipaddress: string | null
}

/** Null for the platform itself. */
export function accountabilityOf(deps: CurrentAccess, requester: Requester): Accountability | null {
  const { access, actor, user } = requester
  if (access === systemAccess) return null
  const { roles, permissions } = deps.access.current()
  const accountability = structuredClone({
    user: user ?? (access.userId === undefined ? null : { id: access.userId }),
    role: roles.get(access.roleId) ?? null,
    permissions: permissions.get(access.roleId) ?? [],
    tenant: access.tenantId ?? null,
    ipaddress: actor.ip ?? null,
  })
  requesters.set(accountability, requester)
  return accountability
}

/**
 * The requester that an accountability was made for. Rights are never read from the members, so that they cannot be used to
 * get more: an object that is not ours is refused.
 */
export function requesterFor(accountability: Accountability): Requester {
  const requester = requesters.get(accountability)
  if (requester === undefined)
    throw new TypeError('accountability must be the very object that the platform handed out')
  return requester
}

const requesters = new WeakMap<Accountability, Requester>()
