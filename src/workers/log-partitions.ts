import { openDirectSession } from '../db/migrate.ts'
import { rawQuery } from '../db/sql.ts'
import { ensurePartitionsSql } from '../events/log-table.ts'
import type { Runtime } from '../runtime.ts'

const monthsAhead = 3

/** Creates the log's partitions of the coming months. Needs a session that may change tables. */
export async function ensureLogPartitions(rt: Runtime): Promise<void> {
  const session = await openDirectSession(rt.config)
  try {
    for (const statement of ensurePartitionsSql(monthsAhead)) await session.any(rawQuery(statement))
  } finally {
    await session.close()
  }
}
