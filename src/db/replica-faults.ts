import { AppError } from '../errors.ts'
import { isConnectionLoss, isStalePlan, sqlState } from './errors.ts'

/**
 * Whether a read that failed on a replica may succeed on the primary: the replica is lost or full, replaying a change got
 * in its way, or a table is not yet, or no longer, what the statement expects. Not a statement that took too long: it had
 * all the time that it may have.
 */
export function isReplicaFault(error: unknown): boolean {
  const state = sqlState(error)
  if (state !== undefined) return faults.has(state) || faults.has(state.slice(0, 2)) || isStalePlan(error)
  return isConnectionLoss(error) || (error instanceof AppError && error.status === 503)
}

/** SQLSTATEs and classes of them. */
const faults: ReadonlySet<string> = new Set([
  '08', // connection
  '40', // conflict with recovery, deadlock with it
  '53', // too many connections, no memory, no disk
  '58', // a file is missing or unreadable
  'XX', // internal, corrupted data
  '55000', // recovery is in progress
  '55P03', // lock not available: replay holds it
  '57P01', // shut down
  '57P02', // crashed
  '57P03', // starting up
  '57P04', // the database was dropped
  'SV416', // a moment that has not come here yet
])
