import type { Config } from '../config/config.ts'
import type { LineFacts } from '../db/line.ts'
import { poolShares, workerConnections } from '../db/pools.ts'
import { workersWithWork } from '../workers/names.ts'
import { type Finding, ok, warning } from './finding.ts'
import type { ServerFacts } from './server.ts'

const listening = 1
/** Of the cleanup worker, for locks and partitions. */
const direct = 1
const crowded = 0.8

/** Most connections that one web process and one worker of each kind open together. */
export function connectionsOfEach(config: Config): number {
  const { database, realtime } = config
  const of = (shares: Readonly<Record<string, number>>) =>
    Object.values(shares).reduce((sum, share) => sum + share, listening)
  const web = of(poolShares(database.poolMax, realtime.enabled))
  const worker = of(poolShares(Math.min(workerConnections, database.poolMax), false))
  return web + workersWithWork(config).length * worker + direct
}

/** Whether the server takes the connections of all processes. WAL senders are counted apart by PostgreSQL. */
export function judgeCapacity(
  config: Config,
  { connectionsAtMost, connectionsOpen }: ServerFacts,
  { isPooled }: Pick<LineFacts, 'isPooled'> = { isPooled: false },
): Finding {
  const needed = connectionsOfEach(config)
  // How many of the server's the pooler takes is its own affair.
  if (isPooled && connectionsOpen <= connectionsAtMost * crowded)
    return ok(
      'connections',
      `one of each process opens up to ${needed} connections, most of them to the pooler; of the server's ${connectionsAtMost}, ${connectionsOpen} are open`,
    )
  const says = `one of each process opens up to ${needed} connections; the server takes ${connectionsAtMost}, ${connectionsOpen} are open`
  const remedy = 'raise max_connections of the server, lower DATABASE_POOL_MAX, or put a pooler in between'
  if (needed > connectionsAtMost) return warning('connections', says, remedy)
  if (connectionsOpen > connectionsAtMost * crowded)
    return warning('connections', `nearly all are in use: ${says}`, remedy)
  return ok('connections', says)
}
