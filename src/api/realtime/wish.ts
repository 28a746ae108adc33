import type { Catalog } from '../../catalog/catalog.ts'
import { AppError } from '../../errors.ts'
import { type Cursor, parseCursor } from '../../events/cursor.ts'
import { type View, viewOf } from '../../features/changes/changed-rows.ts'
import { ruleSources } from '../../features/changes/rule-sources.ts'
import { notifications } from '../../features/notifications/own.ts'
import type { Access } from '../../query/access.ts'
import { resolveEnv } from '../../query/env.ts'
import { isObject } from '../../query/guards.ts'
import { type Filter, parseListQuery, readBoolean } from '../../query/parse.ts'
import { readableFields, requestedFields } from '../../query/resolve.ts'
import type { Runtime } from '../../runtime.ts'

/** What a socket asks for with `subscribe` (docs/realtime.md); that it makes sense is seen when it is compiled. */
export type Wish = {
  readonly collection: string
  readonly since: Cursor | undefined
  /** The rows come first, unless `since` can be gone on from. */
  readonly snapshot: boolean
  readonly filter: Filter | undefined
  readonly fields: readonly string[] | undefined
}

/** A query's reason is in its details, for which the answers of sockets have no place. */
export function inOneMessage<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof AppError && typeof error.details === 'string')
      throw new AppError(error.status, `${error.message}: ${error.details}`, { cause: error })
    throw error
  }
}

/** Throws AppError 400 for anything but `{collection, since?, snapshot?, filter?, fields?}`. */
export function readWish(request: unknown): Wish {
  const { since, snapshot, filter, fields } = isObject(request) ? request : {}
  const query = parseListQuery({ filter, fields })
  return {
    collection: collectionOf(request),
    since: since === undefined || since === null ? undefined : parseCursor(since),
    snapshot: readBoolean('snapshot', snapshot) ?? false,
    filter: query.filter,
    fields: query.fields,
  }
}

/** The collection that a request names. */
export function collectionOf(request: unknown): string {
  const { collection } = isObject(request) ? request : {}
  if (typeof collection !== 'string' || collection.length > 63) throw new AppError(400, 'collection is required')
  return collection
}

/**
 * Tenants are always apart, and so are people's notifications; who asks for a part of the rows or for the rows themselves
 * gets those of a read; other row rules only with REALTIME_ROW_LEVEL_SCOPING.
 */
export function scopesRows({ config }: Runtime, { collection, filter, snapshot }: ScopeOf): boolean {
  if (config.realtime.rowLevelScoping || config.tenancy.enabled) return true
  return collection === notifications || filter !== undefined || snapshot
}

type ScopeOf = Pick<Wish, 'collection' | 'filter' | 'snapshot'>

/** A wish compiled for what its subscriber may read; good as long as the catalog and that access are. */
export type CompiledView = View & {
  readonly catalog: Catalog
  /** Distinguishes what subscribers with one text see. */
  readonly key: string
  /** Its values depend on the time: `$NOW` is in the filter or in a rule. */
  readonly timed: boolean
}

/** Throws 403 for what the subscriber may not read, 400 for what does not exist, in the words of `/items`. */
export function compileView(rt: Runtime, access: Access, wish: Wish): CompiledView {
  const [early, late] = [viewAt(rt, access, wish, moments[0]), viewAt(rt, access, wish, moments[1])]
  const key = JSON.stringify(early.values)
  return { ...early, catalog: rt.catalog.current(), key, timed: key !== JSON.stringify(late.values) }
}

/** The same view as of now, where it depends on the time. */
export function viewNow(rt: Runtime, access: Access, wish: Wish, view: CompiledView): CompiledView {
  if (!view.timed) return view
  const { text, values } = viewAt(rt, access, wish, rt.clock())
  return { ...view, text, values, key: JSON.stringify(values) }
}

/** Two different ones; what is compiled for both alike does not depend on the time. */
const moments = [new Date('2000-01-01T00:00:00Z'), new Date('2001-02-03T04:05:06.789Z')] as const

function viewAt(rt: Runtime, access: Access, wish: Wish, now: Date): View {
  const catalog = rt.catalog.current()
  const collection = catalog.collections.get(wish.collection)
  if (collection === undefined) throw new AppError(403, 'No permission to subscribe to this collection')
  const fields = fieldsOf(catalog, access, wish)
  const env = { ...resolveEnv(rt), now }
  return viewOf({ catalog, access, collection, fields, env, scoped: scopesRows(rt, wish), filter: wish.filter })
}

/** A filter that follows a relation to rows whose changes nobody hears of would let the client's copy go stale: 400. */
export function refuseUnrecorded(rt: Runtime, access: Access, { collection: name, filter }: Wish): void {
  const catalog = rt.catalog.current()
  const collection = catalog.collections.get(name)
  if (filter === undefined || collection === undefined) return
  const { collections } = ruleSources(catalog, rt.access.current(), access, collection, resolveEnv(rt), filter)
  const unlogged = [...collections].find((one) => catalog.collections.get(one)?.logged === false)
  if (unlogged !== undefined) throw new AppError(400, `Changes of ${unlogged} are not recorded`)
}

/** Those asked for, and always the primary key: without it a change is of no row. */
export function fieldsOf(catalog: Catalog, access: Access, { collection, fields }: Wish) {
  if (fields === undefined) return readableFields(catalog, access, collection)
  const asked = requestedFields(catalog, access, collection, fields)
  const { primaryKey } = catalog.collections.get(collection)!
  return asked.includes(primaryKey) ? asked : [primaryKey, ...asked]
}
