import pg from 'pg'
import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { directUrl, tlsOptions, withoutSslMode } from './pools.ts'

/** The channels of the platform; payloads are short keys, never data. */
const channels = [
  'svc_catalog',
  'svc_access',
  'svc_settings',
  'svc_sessions',
  'svc_jobs',
  'svc_tasks',
  'svc_progress',
] as const
export type Channel = (typeof channels)[number]

/**
 * The one LISTEN connection of a process. It reconnects for ever; whoever keeps a cache flushes it on reconnect,
 * because what was sent in between is lost.
 */
export type Listener = {
  on(channel: Channel, handler: (payload: string) => void): void
  /** Called after every reconnect, not after the first connect. */
  onReconnect(handler: () => void): void
  /** True while the connection has answered within the last second: only then is no news good news. */
  isLive(): boolean
  close(): Promise<void>
}

const heartbeatMs = 400
const liveForMs = 1000

/** Connects (fails if the first attempt fails) and keeps listening. Needs a direct address: DATABASE_DIRECT_URL. */
export async function openListener(config: Config, log: Logger): Promise<Listener> {
  const handlers = new Map<string, ((payload: string) => void)[]>()
  const reconnectHandlers: (() => void)[] = []
  let client: pg.Client | undefined
  let lastAnswer = 0
  let closed = false
  let timer: NodeJS.Timeout | undefined

  const connect = async () => {
    const next = new pg.Client({
      connectionString: withoutSslMode(directUrl(config)),
      ssl: tlsOptions(config),
      application_name: 'daybook listen',
      keepAlive: true,
      connectionTimeoutMillis: 5000,
      query_timeout: liveForMs * 2,
    })
    next.on('notification', ({ channel, payload }) => {
      for (const handler of handlers.get(channel) ?? []) handler(payload ?? '')
    })
    next.on('error', (error) => lose(next, error))
    next.on('end', () => lose(next, new Error('connection ended')))
    await next.connect()
    await next.query(channels.map((channel) => `listen ${channel}`).join('; '))
    client = next
    lastAnswer = Date.now()
    timer = setTimeout(beat, heartbeatMs)
  }

  const beat = async () => {
    const current = client
    if (current === undefined || closed) return
    try {
      await current.query('select 1')
      lastAnswer = Date.now()
      timer = setTimeout(beat, heartbeatMs)
    } catch (error) {
      lose(current, error as Error)
    }
  }

  const lose = (lost: pg.Client, error: Error) => {
    if (lost !== client || closed) return
    client = undefined
    clearTimeout(timer)
    log.warn({ err: error }, 'the notification connection was lost')
    lost.end().catch((cause: unknown) => log.debug({ err: cause }, 'closing a lost connection failed'))
    void reconnect(100)
  }

  const reconnect = async (delay: number): Promise<void> => {
    await new Promise((resolve) => setTimeout(resolve, delay).unref())
    if (closed) return
    try {
      await connect()
      for (const handler of reconnectHandlers) handler()
      log.info('the notification connection is back')
    } catch (error) {
      log.debug({ err: error }, 'the notification connection is still down')
      void reconnect(Math.min(delay * 2, 5000))
    }
  }

  await connect()
  return {
    on: (channel, handler) => {
      const known = handlers.get(channel)
      if (known) known.push(handler)
      else handlers.set(channel, [handler])
    },
    onReconnect: (handler) => reconnectHandlers.push(handler),
    isLive: () => client !== undefined && Date.now() - lastAnswer < liveForMs,
    close: async () => {
      closed = true
      clearTimeout(timer)
      await client?.end()
    },
  }
}
