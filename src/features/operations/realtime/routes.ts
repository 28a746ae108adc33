import type { TSchema } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import type { Catalog, Collection, RealtimeAction, SchemaJson } from '../../../catalog/catalog.ts'
import { knownDefinitions, withSchema } from '../../../catalog/definitions.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads, ReservedReads } from '../../../db/pools.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Feed } from '../../../events/feed.ts'
import { publicationName } from '../../../events/log.ts'
import type { Actor } from '../../../events/types.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { type Declaration, route } from '../../../http/route.ts'
import { Count, closed, NullableText, OneOf, Text } from '../../../http/shapes.ts'
import { shown } from '../../../language/text.ts'
import { changeSchemas } from '../../data/schemas/schemas.ts'

/** The endpoints under /realtime (docs/realtime.md). Emits: schema.changed. `feed` is undefined where the channel is off. */
export function realtimeRoutes(app: App, deps: Reads & Writes & CurrentCatalog, feed: Feed | undefined): void {
  app.get('/realtime/status', statusRoute, async () => ({ data: await realtimeStatus(deps, feed) }))
  app.get('/realtime/config', configRoute, async () => ({ data: await replicationConfig(deps) }))
  app.get('/realtime/collections', listRoute, async () => ({ data: enabledCollections(deps) }))
  app.get('/realtime/collections/:collection', readRoute, async ({ params }) => ({
    data: collectionSetting(deps, params.collection),
  }))
  app.post('/realtime/collections/:collection/enable', enableRoute, async (request) => {
    const done = await enableCollection(deps, actorOf(request), request.params.collection, request.body)
    return { data: { ...done, walAvailable: feed?.status().source === 'wal' } }
  })
  app.post('/realtime/collections/:collection/disable', disableRoute, async (request) => ({
    data: await disableCollection(deps, actorOf(request), request.params.collection),
  }))
  app.patch('/realtime/collections/:collection', changeRoute, async (request) => ({
    data: await changeActions(deps, actorOf(request), request.params.collection, request.body.actions),
  }))
  // Every process follows the definitions by itself; both only make sure of it at once.
  app.post('/realtime/reload', reloadRoute('Make sure that this process knows the realtime configuration'), async () =>
    reloaded('Realtime configuration reloaded'),
  )
  app.post('/realtime/initialize', reloadRoute('Make sure that the realtime channel is open'), async () => {
    if (feed === undefined) throw errors.badBody('The realtime channel is off: set SOCKET_ENABLED=true')
    return reloaded('Realtime initialized')
  })

  async function reloaded(message: string) {
    await deps.catalog.reload()
    return { data: { message, status: await realtimeStatus(deps, feed) } }
  }
}

const data = <Shape extends TSchema>(shape: Shape) => ({ 200: Type.Object({ data: shape }) })

const declared = <const D extends Omit<Declaration, 'tag' | 'scope'>>(declaration: D) =>
  route({ tag: 'Realtime', scope: 'admin', errors: 'realtime', ...declaration })

const CollectionParams = Type.Object({ collection: Text('products') })

const needsActions = 'actions is required and must be an array'

/** Which changes of a collection the realtime channel carries. */
type RealtimeConfig = {
  readonly enabled: true
  readonly actions: RealtimeAction[]
  /** Kept because clients set it. The log has every row whole before and after, so nothing depends on it. */
  readonly replicaIdentityFull?: boolean
}

const validActions = ['insert', 'update', 'delete'] as const satisfies readonly RealtimeAction[]

/** The collections that have realtime on, by name. */
function enabledCollections({ catalog }: CurrentCatalog): { collection: string; config: RealtimeConfig }[] {
  const all = [...catalog.current().collections.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  return all.flatMap((collection) => {
    const config = configOf(collection)
    return config === null ? [] : [{ collection: collection.name, config }]
  })
}

/** One collection's setting; 404 for an unknown collection. */
function collectionSetting(deps: CurrentCatalog, name: string) {
  const config = configOf(knownCollection(deps, name))
  return { collection: name, enabled: config !== null, config }
}

/**
 * Switches realtime on. 400 for a table without a primary key, 403 for collections that only the platform writes and those without history, 404 for an unknown one.
 */
async function enableCollection(
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
async function disableCollection(deps: Reads & Writes & CurrentCatalog, actor: Actor, name: string) {
  knownCollection(deps, name)
  await store(deps, actor, name, false)
  return { message: `Realtime disabled for collection: ${name}`, collection: name }
}

/** Which changes are sent from now on. 400 where realtime is off. */
async function changeActions(
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

/** Collections that only the platform writes are its own, and collections without a log have no events. */
async function refuseUnfit({ db }: Reads, { name, logged, writable }: Collection): Promise<void> {
  if (!logged || !writable) throw new AppError(403, `Realtime cannot be enabled for collection: ${name}`)
  if (!(await hasPrimaryKey(db, name))) throw errors.badBody(`Collection ${name} has no primary key`)
}

/** Whether the table of a collection still has a primary key in the database. */
async function hasPrimaryKey(db: Reader, collection: string): Promise<boolean> {
  const { found } = await db.one<{ found: boolean }>(sql`
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

const Actions = Type.Array(OneOf(validActions), {
  description: 'Which changes are told.',
  examples: [['insert', 'update']],
  refusal: {
    enum: (given: unknown) =>
      `Invalid action: ${strangeActionOf(given).slice(0, 64)}. Valid actions are: ${validActions.join(', ')}`,
    otherwise: needsActions,
  },
})

/** The first that is none. */
const strangeActionOf = (given: unknown): string =>
  shown((given as unknown[]).find((action) => !(validActions as readonly unknown[]).includes(action)))

const ConfigShape = Type.Object({
  enabled: Type.Literal(true),
  actions: Type.Array(OneOf(validActions)),
  replicaIdentityFull: Type.Optional(Type.Boolean()),
})
const EnabledShape = Type.Array(Type.Object({ collection: Text('products'), config: ConfigShape }))
const ReplicationShape = Type.Object({
  walLevel: Text('logical'),
  maxReplicationSlots: Count(10),
  maxWalSenders: Count(10),
  isConfigured: Type.Boolean(),
  issues: Type.Array(Text("wal_level is 'replica', it must be 'logical'")),
})
const StatusShape = Type.Object({
  initialized: Type.Boolean({ description: 'The channel of this process is open.' }),
  connected: Type.Boolean({ description: 'Its feed follows the WAL.' }),
  walAvailable: Type.Boolean(),
  isWalLeader: Type.Boolean(),
  enabledCollections: EnabledShape,
  publicationName: Text('daybook'),
  slotName: NullableText('daybook_feed_7'),
  replicationConfig: ReplicationShape,
})

const statusRoute = declared({ summary: 'Read the state of the realtime channel', response: data(StatusShape) })
const configRoute = declared({
  summary: 'Check whether the database can announce changes by its WAL',
  response: data(ReplicationShape),
})
const listRoute = declared({ summary: 'List the collections with realtime', response: data(EnabledShape) })
const readRoute = declared({
  summary: 'Read whether a collection has realtime',
  params: CollectionParams,
  response: data(
    Type.Object({
      collection: Text('products'),
      enabled: Type.Boolean(),
      config: Type.Union([ConfigShape, Type.Null()]),
    }),
  ),
})
const enableRoute = declared({
  summary: 'Switch realtime on for a collection',
  params: CollectionParams,
  body: Type.Object(
    {
      actions: Type.Optional(Actions),
      replicaIdentityFull: Type.Optional(Type.Boolean({ refusal: 'replicaIdentityFull must be a boolean' })),
    },
    closed,
  ),
  response: data(
    Type.Object({
      message: Text('Realtime enabled for collection: products'),
      collection: Text('products'),
      config: ConfigShape,
      replicaIdentityFull: Type.Boolean(),
      walAvailable: Type.Boolean(),
    }),
  ),
})
const disableRoute = declared({
  summary: 'Switch realtime off for a collection',
  description: 'Subscriptions to it end.',
  params: CollectionParams,
  response: data(
    Type.Object({ message: Text('Realtime disabled for collection: products'), collection: Text('products') }),
  ),
})
const changeRoute = declared({
  summary: 'Choose which changes of a collection are told',
  params: CollectionParams,
  body: Type.Object({ actions: Actions }),
  response: data(
    Type.Object({
      message: Text('Realtime configuration updated for collection: products'),
      collection: Text('products'),
      config: ConfigShape,
    }),
  ),
})
const reloadRoute = (summary: string) =>
  declared({
    summary,
    response: data(Type.Object({ message: Text('Realtime configuration reloaded'), status: StatusShape })),
  })

/** Whether the server is set up for change capture from its WAL, and what is in the way. */
type ReplicationConfig = {
  readonly walLevel: string
  readonly maxReplicationSlots: number
  readonly maxWalSenders: number
  readonly isConfigured: boolean
  readonly issues: readonly string[]
}

async function replicationConfig({ reserved }: ReservedReads): Promise<ReplicationConfig> {
  const state = await serverState(reserved, publicationName)
  const { walLevel, maxReplicationSlots, maxWalSenders } = state
  const issues = issuesOf(state)
  return { walLevel, maxReplicationSlots, maxWalSenders, isConfigured: issues.length === 0, issues }
}

/**
 * `GET /realtime/status`, of the process that answers. `initialized`: its channel is open. `connected` and `walAvailable`:
 * its feed follows the WAL. Every process has a feed of its own, so `isWalLeader` says no more than that. `slotName` is
 * the temporary slot's, null while there is none: no slot outlives its connection.
 */
async function realtimeStatus(deps: ReservedReads & CurrentCatalog, feed: Feed | undefined) {
  const status = feed?.status()
  const isLive = status?.source === 'wal'
  return {
    initialized: feed !== undefined,
    connected: isLive,
    walAvailable: isLive,
    isWalLeader: isLive,
    enabledCollections: enabledCollections(deps),
    publicationName,
    slotName: status?.slot ?? null,
    replicationConfig: await replicationConfig(deps),
  }
}

/** A slot or sender that our own processes hold is one that works. */
function issuesOf(state: ServerState): string[] {
  const { walLevel, maxReplicationSlots, maxWalSenders, slotsInUse, sendersInUse, mayReplicate, published } = state
  return [
    ...(walLevel === 'logical' ? [] : [`wal_level is '${walLevel}', it must be 'logical'`]),
    ...(slotsInUse < maxReplicationSlots ? [] : [`all ${maxReplicationSlots} replication slots are in use`]),
    ...(sendersInUse < maxWalSenders ? [] : [`all ${maxWalSenders} WAL senders are in use`]),
    ...(mayReplicate ? [] : ['the database role has no REPLICATION attribute']),
    ...(published ? [] : [`the publication ${publicationName} does not exist`]),
  ]
}

/** The server's resources for realtime, and their use. */
type ServerState = {
  readonly walLevel: string
  readonly maxReplicationSlots: number
  readonly maxWalSenders: number
  readonly slotsInUse: number
  readonly sendersInUse: number
  /** Whether the role may replicate. */
  readonly mayReplicate: boolean
  readonly published: boolean
}

/** The state that the replication connection meets; `publication` is the name of the log's. */
function serverState(db: Reader, publication: string): Promise<ServerState> {
  return db.one<ServerState>(sql`
    select current_setting('wal_level') as "walLevel",
      current_setting('max_replication_slots')::int as "maxReplicationSlots",
      current_setting('max_wal_senders')::int as "maxWalSenders",
      (select count(*)::int from pg_replication_slots) as "slotsInUse",
      (select count(*)::int from pg_stat_get_wal_senders()) as "sendersInUse",
      (select rolreplication or rolsuper from pg_roles where rolname = current_user) as "mayReplicate",
      exists(select from pg_publication where pubname = ${publication}) as published`)
}
