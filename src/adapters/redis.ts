import type { Redis as Client } from 'ioredis'
import type { Logger } from 'pino'
import { onFirstUse } from '../language/once.ts'

const ioredis = onFirstUse<typeof import('ioredis')>('ioredis')

/** A Redis that may be away at any time: whatever is asked of it is answered or rejected within about a second. */
export type Redis = {
  /** One command, e.g. `call('set', key, value, 'px', 1000)`. */
  call(command: string, ...values: readonly Value[]): Promise<unknown>
  /** A Lua script, which Redis runs as a whole or not at all. */
  run(script: string, keys: readonly string[], values: readonly Value[]): Promise<unknown>
  close(): void
}

type Value = string | number

const longestWaitMs = 250
const longestConnectMs = 1000
const longestSilenceMs = 2000
const longestPauseMs = 1000

/**
 * Connects with the first command, and for ever again after a loss. Nothing of Redis is worth waiting for: a command
 * that is not answered in `waitMs` (default 250) is rejected, and so is every one in the second after such a failure,
 * unasked. A command that Redis answers with an error (a wrong command) is rejected with it and pauses nothing.
 */
export function openRedis(url: string, log: Logger, waitMs = longestWaitMs): Redis {
  const client = connectRedis(url, log, waitMs)
  let connected: Promise<void> | undefined
  let pausedUntil = 0
  const bounded = async (ask: () => Promise<unknown>): Promise<unknown> => {
    if (performance.now() < pausedUntil) throw new Error('Redis did not answer a moment ago')
    try {
      connected ??= client.connect()
      await connected.catch(() => undefined)
      return await ask()
    } catch (error) {
      if ((error as Error).name !== 'ReplyError') pausedUntil = performance.now() + longestPauseMs
      throw error
    }
  }
  return {
    call: (command, ...values) => bounded(() => client.call(command, ...values)),
    run: (script, keys, values) => bounded(() => client.eval(script, keys.length, ...keys, ...values)),
    close: () => client.disconnect(),
  }
}

/**
 * A connection that has not been opened yet, for libraries that bring their own commands. Commands without a line are
 * rejected, not queued; those that a lost line leaves open are rejected, not repeated. Its errors are logged, once for
 * each time that it is away.
 */
export function connectRedis(url: string, log: Logger, waitMs = longestWaitMs): Client {
  const client = new (ioredis().Redis)(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: longestConnectMs,
    commandTimeout: waitMs,
    socketTimeout: longestSilenceMs,
    retryStrategy: (attempt) => Math.min(50 * attempt, longestPauseMs),
  })
  let away = false
  client.on('error', (error: Error) => {
    if (!away) log.warn({ err: error }, 'Redis is away')
    away = true
  })
  client.on('ready', () => {
    if (away) log.info('Redis is back')
    away = false
  })
  return client
}
