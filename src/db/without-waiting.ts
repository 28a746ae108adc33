import type { Database, Reads, ReservedReads } from './pools.ts'

/**
 * The read-only pool of the routes while it has a connection to spare, else the reserved one: for the short statements
 * about who somebody is, which must be answered while slow reads hold all the others.
 */
export function withoutWaiting({ db, reserved }: Reads & ReservedReads): Database {
  const { options, totalCount, idleCount, waitingCount } = db.pool
  return waitingCount < idleCount + options.max - totalCount ? db : reserved
}
