import type { Redis as Client } from 'ioredis'
import type { Logger } from 'pino'
import type { Server } from 'socket.io'
import { onFirstUse } from '../language/once.ts'
import { connectRedis } from './redis.ts'

const redisAdapter = onFirstUse<typeof import('@socket.io/redis-adapter')>('@socket.io/redis-adapter')

/** The channel of socket.io processes to each other through Redis. It may be away: then each of them is alone. */
export type Fanout = {
  readonly adapter: NonNullable<Parameters<Server['adapter']>[0]>
  /** Called when messages of others may have been missed. */
  onReconnect(handler: () => void): void
  close(): void
}

const answersWithinMs = 2000
const pingEveryMs = 5000

/** Connects for ever; nothing of it rejects or throws later on. */
export function openFanout(url: string, key: string, log: Logger): Fanout {
  const publisher = forgiving(connectRedis(url, log, answersWithinMs), log)
  // Of subscriptions none may be dropped because the line is not there yet.
  const lasting = { enableOfflineQueue: true, maxRetriesPerRequest: null, autoResubscribe: true }
  const subscriber = forgiving(publisher.duplicate({ ...lasting, commandTimeout: undefined as never }), log)
  subscriber.on('error', (error) => log.debug({ err: error }, 'the subscription to Redis is broken'))
  for (const client of [publisher, subscriber])
    client.connect().catch((error: unknown) => log.debug({ err: error }, 'Redis is not there yet'))
  // A line that is cut without a word shows only to the side that sends.
  const pings = setInterval(() => void subscriber.ping().catch(() => undefined), pingEveryMs)
  return {
    adapter: redisAdapter().createAdapter(publisher, subscriber, { key, requestsTimeout: answersWithinMs }),
    onReconnect: (handler) => {
      let isFirst = true
      subscriber.on('ready', () => {
        if (!isFirst) handler()
        isFirst = false
      })
    },
    close: () => {
      clearInterval(pings)
      publisher.disconnect()
      subscriber.disconnect()
    },
  }
}

const methods = ['publish', 'subscribe', 'psubscribe', 'unsubscribe', 'punsubscribe'] as const

/** The adapter does not look at the outcome of its commands: an unhandled rejection would end the process. */
function forgiving(client: Client, log: Logger): Client {
  for (const name of methods) {
    const command = client[name].bind(client) as (...values: unknown[]) => Promise<unknown>
    Object.assign(client, {
      [name]: (...values: unknown[]) =>
        command(...values).catch((error: unknown) => log.debug({ err: error, command: name }, 'Redis did not take it')),
    })
  }
  return client
}
