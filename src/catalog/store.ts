import type { Logger } from 'pino'
import { isMismatch, isNameMissing, isStalePlan } from '../db/errors.ts'
import type { Listener } from '../db/listener.ts'
import { inRounds } from '../db/rounds.ts'
import { type Reader, sql } from '../db/sql.ts'
import { AppError, errors } from '../errors.ts'
import type { Catalog, CatalogOptions, CollectionDefinition, SchemaJson } from './catalog.ts'
import { compileCatalog } from './compile.ts'
import { fromStored } from './definitions.ts'

/** The process's copy of the catalog, swapped as a whole when a definition changes in any process. */
export type CatalogStore = {
  current(): Catalog
  /** Reads the definitions; the promise resolves when `current()` is at least as new as this call. */
  reload(): Promise<Catalog>
  /** As `reload`, but only looks whether something has changed; for names this process does not know. */
  reloadIfStale(): Promise<Catalog>
  /** Called with the old and the new catalog after each swap. */
  onChange(handler: (before: Catalog, after: Catalog) => void): void
}

/** The collections as they are now. */
export type CurrentCatalog = { readonly catalog: CatalogStore }

/**
 * Loads the catalog and keeps it in step by NOTIFY; a lost notification connection leads to a reload. `options` are
 * those of every change of the catalog, or tables and catalog would not fit.
 */
export async function openCatalog(
  db: Reader,
  listener: Listener | undefined,
  log: Logger,
  options: CatalogOptions = {},
): Promise<CatalogStore> {
  let stamp = await readStamp(db)
  let current = compileCatalog(await readDefinitions(db), options)
  const handlers: ((before: Catalog, after: Catalog) => void)[] = []

  const load = async () => {
    // Read before the definitions: a change in between makes the stamp look stale, never fresh.
    const seen = await readStamp(db)
    const next = compileCatalog(await readDefinitions(db), options)
    const before = current
    if (next.version !== before.version) {
      current = next
      for (const handler of handlers) handler(before, next)
    }
    stamp = seen
    return current
  }
  // A read that is under way may have missed the change that a call is about.
  const reload = inRounds<never, Catalog>(load)
  const reloadIfStale = async () => ((await readStamp(db)) === stamp ? current : reload())
  const reloadSoon = () => {
    reload().catch((error: unknown) => log.error({ err: error }, 'the catalog could not be reloaded'))
  }
  listener?.on('svc_catalog', reloadSoon)
  listener?.onReconnect(reloadSoon)
  return { current: () => current, reload, reloadIfStale, onChange: (handler) => handlers.push(handler) }
}

/** Runs `read` once more when another process has changed a table under its plan. */
export async function withFreshPlan<T>(catalog: CatalogStore, read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    if (!isStalePlan(error)) throw error
    await catalog.reload()
    return read()
  }
}

/** How often a request follows collections that change under it before it asks the client to come back. */
const attempts = 5

/**
 * Runs `work` again when it failed for what another process's change of a collection explains: a name this process does
 * not know yet, or a plan of a table that has changed. For the rim, where nothing is committed when that shows and the
 * input can be read again: routes, calls of extensions, requests of sockets. 503 when the changes do not stop,
 * 500 when there are none and a table or column is missing all the same.
 */
export async function withFreshCatalog<T>(
  catalog: Pick<CatalogStore, 'current' | 'reloadIfStale'>,
  work: () => Promise<T>,
): Promise<T> {
  let hasChanged = false
  for (let attempt = 1; ; attempt += 1) {
    const { version } = catalog.current()
    try {
      return await work()
    } catch (error) {
      const isStale = isStalePlan(error)
      if (!isStale && !namesUnknown(error)) throw error
      const { version: now } = await catalog.reloadIfStale()
      hasChanged ||= now !== version
      if (now === version && !isStale) throw error
      if (attempt < attempts) continue
      if (!hasChanged && isNameMissing(error)) throw errors.tableDiffers(error)
      // A mismatch that comes with the same collections each time is the statement's own.
      throw isMismatch(error) && !hasChanged ? error : Object.assign(errors.unavailable(), { cause: error })
    }
  }
}

function namesUnknown(error: unknown): boolean {
  return error instanceof AppError && (error.code === 'UNKNOWN_COLLECTION' || error.code === 'BAD_QUERY')
}

/** Of every row: a transaction that began before the last one, and committed after it, has a lower number. */
async function readStamp(db: Reader): Promise<string> {
  const { stamp } = await db.one<{ stamp: string }>(
    sql`select coalesce(md5(string_agg("collectionName" || ' ' || xmin, ',' order by "collectionName")), '') as stamp
      from "svc_SchemaDefinition"`,
  )
  return stamp
}

/** The stored definitions as they were declared, in name order. A schema that has not changed since is the same object. */
export async function readDefinitions(db: Reader): Promise<readonly CollectionDefinition[]> {
  const rows = await db.any<{ readonly collectionName: string; readonly stored: string }>(
    sql`select "collectionName", schema::text as stored from "svc_SchemaDefinition" order by "collectionName"`,
  )
  const before = lastRead
  lastRead = new Map(
    rows.map(({ collectionName, stored }) => {
      const known = before.get(collectionName)
      return [collectionName, known?.stored === stored ? known : { stored, schema: fromStored(JSON.parse(stored)) }]
    }),
  )
  return [...lastRead].map(([collectionName, { schema }]) => ({ collectionName, schema }))
}

/** Most changes are of one definition among many, which the compiler then knows. */
let lastRead: ReadonlyMap<string, { readonly stored: string; readonly schema: SchemaJson }> = new Map()
