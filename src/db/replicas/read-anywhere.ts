import type { Database, Reads } from '../pools.ts'
import { anybody } from './read-your-writes.ts'
import type { ReplicaReads } from './replicas.ts'
import type { WalPosition } from './wal.ts'

/** The reader: a user, or anybody without one. */
export type AnyReader = { readonly userId: string | undefined }

type AnywhereOptions<T> = {
  /** All transactions before this one must be there. */
  readonly horizon?: bigint | undefined
  /** Gets what the replica had replayed before it was asked; not called where the primary is. */
  readonly servedBy?: ((replayed: WalPosition) => void) | undefined
  /** Gets a result that came too late to be wanted. */
  readonly discard?: (result: T) => void
}

/**
 * Runs a read that nothing is decided by: on a read replica where one may answer, else on the primary. Never for who
 * somebody is or may, for what a write depends on, nor for cursors of the log, whose snapshots are the primary's. `work` may
 * be run twice.
 */
export function readAnywhere<T>(
  { db, replicas }: Reads & ReplicaReads,
  { userId }: AnyReader,
  work: (db: Database) => Promise<T>,
  { horizon, servedBy, discard }: AnywhereOptions<T> = {},
): Promise<T> {
  if (replicas === undefined) return work(db)
  return replicas.read(db, { caller: userId ?? anybody, horizon, servedBy }, work, discard)
}

/**
 * Everything that these callers read after this, at any process, shows what the primary shows now. To be awaited before they are
 * answered that they have written, or given a cursor, or told to read again. Nothing to do without replicas.
 */
export async function readFromNowOn({ replicas }: ReplicaReads, ...readers: readonly AnyReader[]): Promise<void> {
  await replicas?.note(...new Set(readers.map(({ userId }) => userId ?? anybody)))
}
