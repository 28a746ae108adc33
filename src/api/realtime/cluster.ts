import type { Server } from 'socket.io'
import type { Logs } from '../../adapters/logger.ts'
import { openRedis, type Redis } from '../../adapters/redis.ts'
import { type Fanout, openFanout } from '../../adapters/socket-fanout.ts'
import type { Configuration } from '../../config/config.ts'

/**
 * The other web processes, as far as custom rooms are concerned (ADR 24): with SOCKET_REDIS_ENABLED their sockets share
 * rooms; without it a process has rooms of its own. Changes, notifications, pushes and the progress of tasks need none of
 * this: they come through PostgreSQL.
 */
export type Cluster = {
  /** Undefined where every process is alone. */
  readonly shared: { readonly redis: Redis; readonly prefix: string } | undefined
  /** For the constructor of the socket server. */
  readonly options: { readonly adapter?: Fanout['adapter'] }
  /** Calls the others' handler of that name. Nothing is sent while Redis is away. */
  notify(io: Server, name: string, ...values: readonly unknown[]): void
  /** The answers of the other processes' handlers that come in time. */
  ask(io: Server, name: string, ...values: readonly unknown[]): Promise<readonly unknown[]>
  /** Called when messages of others may have been missed. */
  onReconnect(handler: () => void): void
  close(): void
}

const answersWithinMs = 2500
/** Scripts are few and small; what is slow is a busy machine. */
const redisWaitMs = 1000

export function openCluster({ config: { realtime }, log }: Configuration & Logs): Cluster {
  if (!realtime.redisEnabled) return alone
  const url = realtime.redisUrl!
  const redis = openRedis(url, log, redisWaitMs)
  const fanout = openFanout(url, realtime.redisKey, log)
  return {
    shared: { redis, prefix: `${realtime.redisKey}:` },
    options: { adapter: fanout.adapter },
    notify: (io, name, ...values) => void io.serverSideEmit(name, ...values),
    ask: (io, name, ...values) => {
      const { promise, resolve } = Promise.withResolvers<readonly unknown[]>()
      // There is no answer while Redis is away.
      const timeout = setTimeout(() => resolve([]), answersWithinMs)
      io.serverSideEmit(name, ...values, (_error: unknown, answers: readonly unknown[] = []) => resolve(answers))
      return promise.finally(() => clearTimeout(timeout))
    },
    onReconnect: fanout.onReconnect,
    close: () => {
      fanout.close()
      redis.close()
    },
  }
}

const alone: Cluster = {
  shared: undefined,
  options: {},
  notify: () => undefined,
  ask: async () => [],
  onReconnect: () => undefined,
  close: () => undefined,
}
