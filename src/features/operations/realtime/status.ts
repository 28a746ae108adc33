import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { ReservedReads } from '../../../db/pools.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import type { Feed } from '../../../events/feed.ts'
import { publicationName } from '../../../events/log.ts'
import { enabledCollections } from './realtime.ts'

/** Whether the server is set up for change capture from its WAL, and what is in the way. */
type ReplicationConfig = {
  readonly walLevel: string
  readonly maxReplicationSlots: number
  readonly maxWalSenders: number
  readonly isConfigured: boolean
  readonly issues: readonly string[]
}

export async function replicationConfig(rt: ReservedReads): Promise<ReplicationConfig> {
  const state = await serverState(rt.reserved, publicationName)
  const { walLevel, maxReplicationSlots, maxWalSenders } = state
  const issues = issuesOf(state)
  return { walLevel, maxReplicationSlots, maxWalSenders, isConfigured: issues.length === 0, issues }
}

/**
 * `GET /realtime/status`, of the process that answers. `initialized`: its channel is open. `connected` and `walAvailable`:
 * its feed follows the WAL. Every process has a feed of its own, so `isWalLeader` says no more than that. `slotName` is
 * the temporary slot's, null while there is none: no slot outlives its connection.
 */
export async function realtimeStatus(rt: ReservedReads & CurrentCatalog, feed: Feed | undefined) {
  const status = feed?.status()
  const isLive = status?.source === 'wal'
  return {
    initialized: feed !== undefined,
    connected: isLive,
    walAvailable: isLive,
    isWalLeader: isLive,
    enabledCollections: enabledCollections(rt),
    publicationName,
    slotName: status?.slot ?? null,
    replicationConfig: await replicationConfig(rt),
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

/** What the server offers to realtime, and how much of it is taken. */
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
  return db.one<ServerState>(sql.unsafe`
    select current_setting('wal_level') as "walLevel",
      current_setting('max_replication_slots')::int as "maxReplicationSlots",
      current_setting('max_wal_senders')::int as "maxWalSenders",
      (select count(*)::int from pg_replication_slots) as "slotsInUse",
      (select count(*)::int from pg_stat_get_wal_senders()) as "sendersInUse",
      (select rolreplication or rolsuper from pg_roles where rolname = current_user) as "mayReplicate",
      exists(select from pg_publication where pubname = ${publication}) as published`)
}
