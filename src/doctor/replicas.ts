import type { Config } from '../config/config.ts'
import type { Database } from '../db/pools.ts'
import { type Reader, sql } from '../db/sql.ts'
import { lookForLine, openForLooking, placeOf, unreachable } from './connection.ts'
import { type Finding, ok, warning } from './finding.ts'

const longestLagSeconds = 10
const check = 'read replica'

/** Each replica: there, a standby, and not far behind. None where they are not enabled. */
export async function checkReplicas(config: Config): Promise<Finding[]> {
  const { readReplicaEnabled, readReplicaUrls } = config.database
  return readReplicaEnabled ? Promise.all(readReplicaUrls.map((url) => checkReplica(config, url))) : []
}

async function checkReplica(config: Config, url: string): Promise<Finding> {
  let db: Database | undefined
  try {
    db = openForLooking(config, url, await lookForLine(config, url))
    return judgeReplica(placeOf(url), await readReplicaFacts(db))
  } catch (error) {
    return unreachable(check, 'DATABASE_READ_REPLICA_URLS', url, error)
  } finally {
    await db?.pool.end()
  }
}

type ReplicaFacts = { readonly recovering: boolean; readonly lagSeconds: number }

/** A standby that has replayed all it received is not behind, however long nothing was written. */
function readReplicaFacts(db: Reader): Promise<ReplicaFacts> {
  return db.one<ReplicaFacts>(sql.unsafe`
    select pg_is_in_recovery() as recovering,
      case when not pg_is_in_recovery() or pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() then 0
        else coalesce(extract(epoch from now() - pg_last_xact_replay_timestamp()), 0) end::float8 as "lagSeconds"`)
}

export function judgeReplica(place: string, { recovering, lagSeconds }: ReplicaFacts): Finding {
  if (!recovering)
    return warning(
      check,
      `${place} is no standby: it answers what it has itself`,
      'name a streaming standby in DATABASE_READ_REPLICA_URLS',
    )
  if (lagSeconds > longestLagSeconds)
    return warning(
      check,
      `${place} is ${lagSeconds.toFixed(0)} s behind`,
      'look for long queries and a full disk on the standby',
    )
  return ok(check, `${place} is a standby and up to date`)
}
