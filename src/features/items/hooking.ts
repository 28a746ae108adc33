import { AsyncLocalStorage } from 'node:async_hooks'
import type { Collection } from '../../catalog/catalog.ts'
import { isStalePlan } from '../../db/errors.ts'
import { type Reader, rawQuery, type Tx } from '../../db/sql.ts'
import { projectionList } from '../../query/compile-rows.ts'
import { isObject } from '../../query/guards.ts'
import { createParams, ident } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'
import type { HookEvent } from '../hooks/hooks.ts'
import { accountabilityOf } from './accountability.ts'
import { type ChangeAction, ruleSql, type WriteContext, type Writer } from './context.ts'
import { relationBehind } from './references.ts'
import type { Run, Scope } from './run.ts'
import { keyCondition, projection } from './statements.ts'

/**
 * Where items meet the hooks of extensions (realtime facts §5, docs/extensions.md). What a hook returns is read like
 * the caller's own request; a collection without hooks never comes here beyond {@link meetsHooks}.
 */

/** A row in its wire form, without hidden fields. */
export type Document = Readonly<Record<string, unknown>>

/** A row of which hooks are to hear when the transaction has committed. */
export type Written = {
  readonly writer: Writer
  readonly collection: Collection
  readonly action: ChangeAction
  /** JSON text. */
  readonly id: string
  /** The row as it was; undefined for a new one. */
  readonly previous: Document | undefined
}

/** SQL for hooks; before a change it is part of the transaction, else it can only read. */
export type HookDb = { query<Row>(text: string, values?: readonly unknown[]): Promise<readonly Row[]> }

/** Whether writing these payloads can meet a hook: of the collection, or of one whose rows come through a relation. */
export function meetsHooks(
  { hooks }: Runtime,
  { collection, action }: Pick<WriteContext, 'collection' | 'action'>,
  payloads: readonly unknown[] = [],
): boolean {
  if (hooks.isEmpty()) return false
  return isHooked(hooks, collection.name, action) || payloads.some((payload) => holdsRows(collection, payload))
}

/**
 * Runs the before-hooks of one row that is about to be created or (with `id`) changed, and gives the payload to go on
 * with. An existing row is locked and shown to them as it is. Of a row that the caller may not update they don't hear;
 * the statement refuses it.
 */
export async function beforeRow(
  { rt, run }: { readonly rt: Runtime; readonly run: Run | undefined },
  context: WriteContext & { readonly action: 'create' | 'update' },
  payload: unknown,
  id: string | undefined,
): Promise<{ readonly payload: unknown; readonly previous: Document | undefined }> {
  const { collection, action } = context
  if (!isHooked(rt.hooks, collection.name, action)) return { payload, previous: undefined }
  if (run === undefined) throw new Error(`${collection.name} has hooks: it is written in a transaction`)
  const [found] = id === undefined ? [] : await lockedDocuments(run, context, [id])
  const isMissing = id !== undefined && found === undefined
  if (isMissing || !isObject(payload)) return { payload, previous: undefined }
  const existing = found && { id: JSON.parse(found.id), previousDocument: found.document }
  // A copy: the operation may be run again, and then begins with what the caller sent.
  const left = await tellBefore(run, `items.${action}`, collection, { data: structuredClone(payload), ...existing })
  return { payload: left.data, previous: found?.document }
}

/** Runs the before-hooks of rows that are about to be deleted; gives the rows as they are. */
export async function beforeGone(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
): Promise<ReadonlyMap<string, Document>> {
  const { collection } = context
  if (!isHooked(run.rt.hooks, collection.name, 'delete')) return new Map()
  const found = await lockedDocuments(run, context, ids)
  for (const { id, document } of found)
    await tellBefore(run, 'items.delete', collection, { id: JSON.parse(id), document })
  return new Map(found.map(({ id, document }) => [id, document]))
}

/** Notes a row that was written, for the hooks that hear of it afterwards. */
export function noteWritten(run: Run, written: Omit<Written, 'writer'>): void {
  const { hooks } = run.rt
  if (!hooks.isEmpty() && hooks.has(written.collection.name, `items.${written.action}.after`))
    run.scope.written.push({ ...written, writer: run.writer })
}

/** What is to be told when the transaction has committed, with the rows as they are at its end. */
export async function afterwards(rt: Runtime, { tx, written }: Scope): Promise<readonly (() => Promise<void>)[]> {
  const kept = written.filter(({ action }) => action !== 'delete')
  const documents = new Map<Collection, ReadonlyMap<string, Document>>()
  for (const [collection, rows] of Map.groupBy(kept, (row) => row.collection))
    documents.set(collection, await documentsOf(tx, collection, [...new Set(rows.map(({ id }) => id))]))
  return written.map(({ writer, collection, action, id, previous }) => async () => {
    const now = documents.get(collection)?.get(id) ?? null
    const rows = action === 'delete' ? { document: previous } : { document: now, previousDocument: previous }
    await tellAfter(rt, writer, `items.${action}.after`, collection.name, { id: JSON.parse(id), ...rows })
  })
}

/** Runs the before-hooks of a read. */
export async function beforeRead<Members extends { readonly query: Record<string, unknown> }>(
  rt: Runtime,
  writer: Writer,
  event: 'items.read' | 'items.read.one',
  collection: string,
  members: Members,
): Promise<Members> {
  const db = writer.scope === undefined ? readingDb(rt) : writingDb(writer.scope)
  const context = { ...members, collection, accountability: accountabilityOf(rt, writer), db }
  return nested(rt, writer.scope, () => rt.hooks.before(event, context))
}

/** Runs after-hooks; they can change nothing any more. */
export async function tellAfter(
  rt: Runtime,
  writer: Writer,
  event: HookEvent,
  collection: string,
  members: object,
): Promise<void> {
  const context = { ...members, collection, accountability: accountabilityOf(rt, writer), db: readingDb(rt) }
  await nested(rt, writer.scope?.isOver === false ? writer.scope : undefined, () => rt.hooks.after(event, context))
}

/** The transaction that the hook which asks is part of; undefined outside of before-hooks. Throws when it is over. */
export function scopeOfHook(rt: Runtime): Scope | undefined {
  const inside = ambient.getStore()
  if (inside?.rt !== rt || inside.scope === undefined) return undefined
  if (inside.scope.isOver) throw new Error('the operation is over: a hook must await what it begins')
  return inside.scope
}

/** Runs code of an extension so that all it does with its context belongs to this transaction. */
export function insideScope<Result>(rt: Runtime, scope: Scope, work: () => Promise<Result>): Promise<Result> {
  return nested(rt, scope, work)
}

export function readingDb({ db }: Runtime): HookDb {
  return { query: (text, values) => runOwn(db, text, values) }
}

export function writingDb(scope: Scope): HookDb {
  return {
    query: async (text, values) => {
      if (scope.isOver) throw new Error('the transaction is over: a hook must await what it begins')
      return runOwn(scope.tx, text, values)
    },
  }
}

/** A name that is not there is the extension's mistake, not a sign of a catalog that has changed. */
async function runOwn<Row>(reader: Reader, text: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
  try {
    return await reader.any<Row>(rawQuery(text, values))
  } catch (error) {
    if (!isStalePlan(error)) throw error
    throw Object.assign(new Error(`SQL of an extension failed: ${(error as Error).message}`), { code: 'EXTENSION_SQL' })
  }
}

function isHooked(hooks: Runtime['hooks'], collection: string, action: ChangeAction): boolean {
  return hooks.has(collection, `items.${action}`) || hooks.has(collection, `items.${action}.after`)
}

/** Whether a payload has more in it than the row itself. */
function holdsRows(collection: Collection, payload: unknown): boolean {
  if (!isObject(payload)) return false
  return Object.entries(payload).some(
    ([key, value]) =>
      typeof value === 'object' &&
      value !== null &&
      (collection.relations.has(key) || relationBehind(collection, key, payload) !== undefined),
  )
}

type Ambient = { readonly rt: Runtime; readonly depth: number; readonly scope: Scope | undefined }

const ambient = new AsyncLocalStorage<Ambient>()
const deepest = 16

/** What a hook does can meet hooks again, but not without end. */
function nested<Result>(rt: Runtime, scope: Scope | undefined, work: () => Promise<Result>): Promise<Result> {
  const depth = (ambient.getStore()?.depth ?? 0) + 1
  if (depth > deepest) throw new RangeError(`hooks that cause each other are more than ${deepest} deep`)
  return ambient.run({ rt, depth, scope }, work)
}

async function tellBefore<Members extends object>(
  { rt, writer, scope }: Run,
  event: HookEvent,
  { name }: Collection,
  members: Members,
): Promise<Members> {
  const db = writingDb(scope)
  const context = { ...members, collection: name, accountability: accountabilityOf(rt, writer), db, transaction: db }
  return nested(rt, scope, () => rt.hooks.before(event, context))
}

type Found = { readonly id: string; readonly document: Document }

/** The rows with these keys that the caller may change so, kept from other writers until the end. */
function lockedDocuments(run: Run, context: WriteContext, ids: readonly string[]): Promise<readonly Found[]> {
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
): Promise<readonly Found[]> {
  const shown = [...collection.fields.values()].filter(({ hidden }) => !hidden)
  const document = `(select row_to_json(o.*) from (select ${projectionList(shown, 't')}) o) as document`
  const text = `select ${projection(collection)}, ${document} from ${ident(collection.name)} t where ${where}`
  return tx.any<Found>(rawQuery(text, values))
}
