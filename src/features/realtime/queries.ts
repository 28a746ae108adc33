import { type Reader, sql } from '../../db/sql.ts'

/** What the server offers to realtime, and how much of it is taken. */
export type ServerState = {
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
export function serverState(db: Reader, publication: string): Promise<ServerState> {
  return db.one<ServerState>(sql.unsafe`
    select current_setting('wal_level') as "walLevel",
      current_setting('max_replication_slots')::int as "maxReplicationSlots",
      current_setting('max_wal_senders')::int as "maxWalSenders",
      (select count(*)::int from pg_replication_slots) as "slotsInUse",
      (select count(*)::int from pg_stat_get_wal_senders()) as "sendersInUse",
      (select rolreplication or rolsuper from pg_roles where rolname = current_user) as "mayReplicate",
      exists(select from pg_publication where pubname = ${publication}) as published`)
}

/** Whether the table of a collection still has a primary key in the database. */
export async function hasPrimaryKey(db: Reader, collection: string): Promise<boolean> {
  const { found } = await db.one<{ found: boolean }>(sql.unsafe`
    select exists(select from pg_index i join pg_class c on c.oid = i.indrelid
      where c.relname = ${collection} and c.relnamespace = 'public'::regnamespace and i.indisprimary) as found`)
  return found
}
