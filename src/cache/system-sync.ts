import { hash } from 'node:crypto'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { openRemoteRedis } from './shared-store.ts'

/** Something that every process keeps in memory, read from the database. */
export type SyncedStore = {
  /** All of it, as a value that JSON can hold; equal wherever the same rows were read. */
  value(): unknown
  reload(): Promise<void>
  onChange(handler: () => void): void
}

type SystemSyncOptions = { config: Config; log: Logger; synced: readonly SyncedStore[] }

/**
 * A second way, beside NOTIFY, to hear that permissions, roles or settings have changed: their digest in Redis or Upstash.
 * A process that has read others replaces it, and every process looks at it each SYSTEM_CACHE_SYNC_INTERVAL seconds. With
 * the notification connection cut, a change counts after that time instead of after SYSTEM_CACHE_TTL. The rules themselves
 * are always read from the database, so nothing that Redis loses or brings back can grant anything.
 *
 * Does nothing where the system cache is in memory alone.
 */
export function openSystemSync({ config, log, synced }: SystemSyncOptions): { close(): Promise<void> } {
  const { systemCache } = config
  const remote = openRemoteRedis(config, systemCache, log)
  if (remote === undefined) return { close: async () => undefined }
  const key = `daybook:system:${databaseName(config)}`
  const digest = () => digestOf(synced)
  let closed = false

  const publish = async () => {
    await remote.run(`redis.call('set', KEYS[1], ARGV[1])`, [key], [digest()])
  }
  const look = async () => {
    if (closed || (await remote.get(key)) === digest()) return
    await Promise.all(synced.map((one) => one.reload()))
    await publish()
  }
  const beside = (work: () => Promise<void>) => () =>
    void work().catch((error: unknown) => log.debug({ err: error }, 'the system cache could not be compared'))

  const timer = setInterval(beside(look), systemCache.syncIntervalSeconds * 1000).unref()
  for (const one of synced) one.onChange(beside(publish))
  return {
    close: async () => {
      closed = true
      clearInterval(timer)
      remote.close()
    },
  }
}

const digestOf = (synced: readonly SyncedStore[]): string =>
  hash('sha256', JSON.stringify(synced.map((one) => one.value())), 'base64url')

/** Processes of one installation may reach their database by different addresses; its name they have in common. */
const databaseName = ({ database }: Config): string =>
  database.url === undefined ? '' : new URL(database.url).pathname.slice(1)
