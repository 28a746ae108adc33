import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import { goneSignal } from '../../admission/asker.ts'
import type { Config } from '../../config/config.ts'
import { Connection, streamOf } from '../connection.ts'
import { type Line, openLine, settingsOf } from '../poolers/line.ts'
import { lookAtLine } from '../poolers/poolers.ts'
import { type Database, openDatabase, openPool, type PgClient, tlsOptions, withoutOwnParameters } from '../pools.ts'
import { databaseIdentitySql, type WalPosition, walReplayedSql } from './write-positions.ts'

/** The last answer of a replica about itself. */
type ReplicaState =
  | { readonly isUp: true; readonly standby: boolean; readonly replayed: WalPosition; readonly identity: string }
  | { readonly isUp: false; readonly reason: string }

/** A standby of the primary, watched all the time. */
export type Replica = {
  /** Its place in DATABASE_READ_REPLICA_URLS, from 1: addresses are secrets. */
  readonly place: number
  state(): ReplicaState
  /** Connections that are in use or waited for. */
  load(): number
  /**
   * Runs a read. When the replica is lost meanwhile it rejects at once, however long the line stays silent; `discard`
   * gets what comes all the same.
   */
  use<T>(work: (db: Database) => Promise<T>, discard?: (result: T) => void): Promise<T>
  close(): Promise<void>
}

type ReplicaOptions = { config: Config; log: Logger; name: string; url: string; place: number }

/** How often a replica is asked. */
export const watchIntervalMs = 200
/** A replica that takes longer to say how it is counts as lost. */
const timeoutMs = 1000
const longestPauseMs = 5000

/** Opens a replica; it need not be there yet. */
export function openReplica({ config, log, name, url, place }: ReplicaOptions): Replica {
  const { readReplicaPoolMax: max, ...database } = config.database
  const line = openLine({ named: database.preparedStatements, log })
  const pool = openPool({
    config,
    log,
    line,
    max,
    readOnly: true,
    name: `${name} replica ${place}`,
    url,
    idleMs: database.readReplicaPoolIdleMs,
    acquireMs: database.readReplicaPoolAcquireMs,
    evictMs: database.readReplicaPoolEvictMs,
  })
  // Reads that a replica fails are asked of the primary.
  const db = openDatabase(pool, { log, logSql: database.logging, onLoss: 'fail', ends: goneSignal })
  const connections = new Set<pg.PoolClient>()
  pool.on('connect', (client) => connections.add(client))
  pool.on('remove', (client) => connections.delete(client))
  const running = new Set<(error: Error) => void>()

  const lose = (reason: string) => {
    const error = replicaLost(reason)
    for (const reject of running) reject(error)
    // A connection that hangs would keep its place in the pool.
    for (const connection of connections) streamOf(connection).destroy(error)
  }
  const watcher = openWatch({ config, log, name, url, place }, { line, lose })

  return {
    place,
    state: watcher.state,
    load: () => pool.totalCount - pool.idleCount + pool.waitingCount,
    use: async (work, discard) => {
      const lost = Promise.withResolvers<never>()
      running.add(lost.reject)
      const result = work(db)
      try {
        return await Promise.race([result, lost.promise])
      } catch (error) {
        result.then(discard, () => undefined)
        throw error
      } finally {
        running.delete(lost.reject)
      }
    },
    close: async () => {
      await watcher.close()
      await pool.end()
    },
  }
}

type WatchedLine = { readonly line: Line; readonly lose: (reason: string) => void }

/** Asks a replica again and again how it is, on a connection of its own. */
function openWatch({ config, log, name, url, place }: ReplicaOptions, { line, lose }: WatchedLine) {
  const stopped = new AbortController()
  let state: ReplicaState = { isUp: false, reason: 'not asked yet' }
  let isAway = false

  const onLost = (reason: string) => {
    if (!isAway) log.warn({ replica: place, reason }, 'a read replica is away')
    isAway = true
    state = { isUp: false, reason }
    lose(reason)
  }

  const watch = async () => {
    let client: PgClient | undefined
    let pause = watchIntervalMs
    while (!stopped.signal.aborted) {
      try {
        if (client === undefined) {
          line.found(await lookAtLine({ config, url, timeoutMs }))
          client = await connect({ config, name, url }, onLost)
        }
        const next = await ask(client)
        if (isAway) log.info({ replica: place }, 'a read replica is back')
        isAway = false
        state = next
        pause = watchIntervalMs
      } catch (error) {
        onLost((error as Error).message)
        drop(client, log)
        client = undefined
        pause = Math.min(pause * 2, longestPauseMs)
      }
      await delay(pause, undefined, { signal: stopped.signal, ref: false }).catch(() => undefined)
    }
    await client?.end()
  }
  const watching = watch()

  return {
    state: () => state,
    close: async () => {
      stopped.abort()
      await watching
    },
  }
}

type Address = Pick<ReplicaOptions, 'config' | 'name' | 'url'>

/** The connection that asks; its end is the first that is heard of a replica's. */
async function connect({ config, name, url }: Address, onLost: (reason: string) => void): Promise<PgClient> {
  const { ofAddress } = settingsOf(url, { transactionTimeoutMs: config.database.transactionTimeoutMs, readOnly: true })
  const client = new Connection({
    connectionString: withoutOwnParameters(url),
    ssl: tlsOptions(config, url),
    application_name: `daybook ${name} watch`,
    ...(ofAddress !== undefined && { options: ofAddress }),
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  })
  client.on('error', (error) => onLost(error.message))
  await client.connect()
  return client
}

async function ask(client: PgClient): Promise<ReplicaState> {
  const { rows } = await client.query(
    `select pg_is_in_recovery() as standby, ${walReplayedSql}::text as replayed, ${databaseIdentitySql} as identity`,
  )
  const { standby, replayed, identity } = rows[0]
  return { isUp: true, standby, replayed: BigInt(replayed ?? 0), identity }
}

/** Ends a connection that may not answer any more. */
function drop(client: PgClient | undefined, log: Logger): void {
  if (client === undefined) return
  streamOf(client).destroy()
  client.end().catch((error: unknown) => log.debug({ err: error }, 'closing a lost connection failed'))
}

function replicaLost(reason: string): Error {
  return Object.assign(new Error(`the read replica was lost: ${reason}`), { code: 'ECONNRESET' })
}
