import type { Catalog, Collection, RealtimeAction, SchemaJson } from '../../../catalog/catalog.ts'
import { knownDefinitions, withSchema } from '../../../catalog/definitions.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { changeSchemas } from '../../data/schemas/schemas.ts'

/** Which changes of a collection the realtime channel carries. */
type RealtimeConfig = {
  readonly enabled: true
  readonly actions: RealtimeAction[]
  /** Kept because clients set it. The log has every row whole before and after, so nothing depends on it. */
  readonly replicaIdentityFull?: boolean
}

export const validActions = ['insert', 'update', 'delete'] as const satisfies readonly RealtimeAction[]

/** The collections that have realtime on, by name. */
export function enabledCollections({ catalog }: CurrentCatalog): { collection: string; config: RealtimeConfig }[] {
  const all = [...catalog.current().collections.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  return all.flatMap((collection) => {
    const config = configOf(collection)
    return config === null ? [] : [{ collection: collection.name, config }]
  })
}

/** One collection's setting; 404 for an unknown collection. */
export function collectionSetting(deps: CurrentCatalog, name: string) {
  const config = configOf(knownCollection(deps, name))
  return { collection: name, enabled: config !== null, config }
}

/**
 * Switches realtime on. 400 for a table without a primary key, 403 for collections of secrets and those without history, 404 for an unknown one.
 */
export async function enableCollection(
  deps: Reads & Writes & CurrentCatalog,
  actor: Actor,
  name: string,
  { actions = validActions, replicaIdentityFull = false }: RealtimeChange,
) {
  const config: RealtimeConfig = {
    enabled: true,
    actions: inOrder(actions),
    ...(replicaIdentityFull && { replicaIdentityFull }),
  }
  await refuseUnfit(deps, knownCollection(deps, name))
  await store(deps, actor, name, config)
  return { message: `Realtime enabled for collection: ${name}`, collection: name, config, replicaIdentityFull }
}

/** Switches realtime off: subscriptions to the collection end. */
export async function disableCollection(deps: Reads & Writes & CurrentCatalog, actor: Actor, name: string) {
  knownCollection(deps, name)
  await store(deps, actor, name, false)
  return { message: `Realtime disabled for collection: ${name}`, collection: name }
}

/** Which changes are sent from now on. 400 where realtime is off. */
export async function changeActions(
  deps: Reads & Writes & CurrentCatalog,
  actor: Actor,
  name: string,
  actions: readonly RealtimeAction[],
) {
  const before = configOf(knownCollection(deps, name))
  if (before === null) throw errors.badBody(`Realtime is not enabled for collection: ${name}`)
  const config: RealtimeConfig = { ...before, actions: inOrder(actions) }
  await store(deps, actor, name, config)
  return { message: `Realtime configuration updated for collection: ${name}`, collection: name, config }
}

type RealtimeChange = {
  readonly actions?: readonly RealtimeAction[] | undefined
  readonly replicaIdentityFull?: boolean | undefined
}

const inOrder = (actions: readonly RealtimeAction[]): RealtimeAction[] =>
  validActions.filter((action) => actions.includes(action))

/** Null where realtime is off. */
function configOf({ realtime, logged, definition }: Collection): RealtimeConfig | null {
  if (!realtime.enabled || !logged) return null
  const stored = definition.schema.realtime
  const isFull = typeof stored === 'object' && stored?.replicaIdentityFull === true
  const actions = validActions.filter((action) => realtime.actions.has(action))
  return { enabled: true, actions, ...(isFull && { replicaIdentityFull: true }) }
}

function knownCollection({ catalog }: CurrentCatalog, name: string): Collection {
  const collection = catalog.current().collections.get(name)
  if (collection === undefined) throw new AppError(404, `Collection ${name} not found`, { code: 'UNKNOWN_COLLECTION' })
  return collection
}

/** Collections with secrets belong to the system, and collections without a log have no events. */
async function refuseUnfit({ db }: Reads, { name, logged, writable }: Collection): Promise<void> {
  if (!logged || !writable) throw new AppError(403, `Realtime cannot be enabled for collection: ${name}`)
  if (!(await hasPrimaryKey(db, name))) throw errors.badBody(`Collection ${name} has no primary key`)
}

/** Whether the table of a collection still has a primary key in the database. */
async function hasPrimaryKey(db: Reader, collection: string): Promise<boolean> {
  const { found } = await db.one<{ found: boolean }>(sql.unsafe`
    select exists(select from pg_index i join pg_class c on c.oid = i.indrelid
      where c.relname = ${collection} and c.relnamespace = 'public'::regnamespace and i.indisprimary) as found`)
  return found
}

async function store(
  deps: Reads & Writes,
  actor: Actor,
  name: string,
  realtime: SchemaJson['realtime'],
): Promise<void> {
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, name)
    return withSchema(definitions, name, { ...definitions.get(name)!, realtime } as SchemaJson)
  }
  await changeSchemas(deps, actor, { message: 'Error updating schema', edit })
}
