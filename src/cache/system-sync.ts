import { hash } from 'node:crypto'
import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import type { AccessStore } from '../features/permissions/store.ts'
import type { SettingsStore } from '../features/settings/store.ts'
import { openRemoteRedis } from './shared-store.ts'

export type SystemSyncOptions = {
  config: Config
  log: Logger
  access: AccessStore
  settings: SettingsStore
}

/**
 * A second way, beside NOTIFY, to hear that permissions, roles or settings have changed: their digest in Redis or Upstash.
 * Who has read others than it says replaces it, and everybody looks at it every SYSTEM_CACHE_SYNC_INTERVAL seconds. With
 * the notification connection cut, a change counts after that time instead of after SYSTEM_CACHE_TTL. What the rules are
 * is always read from the database, so nothing that Redis loses or brings back can grant anything.
 *
 * Does nothing where the system cache is in memory alone.
 */
export function openSystemSync({ config, log, access, settings }: SystemSyncOptions): { close(): Promise<void> } {
  const { systemCache } = config
  const remote = openRemoteRedis(config, systemCache, log)
  if (remote === undefined) return { close: async () => undefined }
  const key = `daybook:system:${databaseName(config)}`
  const digest = () => digestOf(access, settings)
  let closed = false

  const tell = async () => {
    await remote.run(`redis.call('set', KEYS[1], ARGV[1])`, [key], [digest()])
  }
  const look = async () => {
    if (closed || (await remote.get(key)) === digest()) return
    await Promise.all([access.reload(), settings.reload()])
    await tell()
  }
  const beside = (work: () => Promise<void>) => () =>
    void work().catch((error: unknown) => log.debug({ err: error }, 'the system cache could not be compared'))

  const timer = setInterval(beside(look), systemCache.syncIntervalSeconds * 1000).unref()
  access.onChange(beside(tell))
  settings.onChange(beside(tell))
  return {
    close: async () => {
      closed = true
      clearInterval(timer)
      remote.close()
    },
  }
}

function digestOf(access: AccessStore, settings: SettingsStore): string {
  const { roles, permissions, acls } = access.current()
  return hash('sha256', JSON.stringify([[...roles], [...permissions], [...acls], settings.all()]), 'base64url')
}

/** Processes of one installation may reach their database by different addresses; its name they have in common. */
const databaseName = ({ database }: Config): string =>
  database.url === undefined ? '' : new URL(database.url).pathname.slice(1)
