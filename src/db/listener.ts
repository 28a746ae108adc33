import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { Connection } from './connection.ts'
import { isConnectionLoss } from './errors.ts'
import { type Database, directUrl, tlsOptions, withoutSslMode } from './pools.ts'
import { statementName } from './statement-names.ts'
import { leaveLease, renewLease } from './unlogged/leases.ts'

/** The channels of the platform; payloads are short keys, never data, but for what sockets are pushed (features/rooms/push.ts). */
const channels = [
  'svc_catalog',
  'svc_access',
  'svc_settings',
  'svc_sessions',
  'svc_leases',
  'svc_jobs',
  'svc_tasks',
  'svc_progress',
  'svc_push',
] as const
export type Channel = (typeof channels)[number]

/**
 * The one LISTEN connection of a process. It reconnects for ever; whoever keeps a cache flushes it on reconnect,
 * because what was sent in between is lost.
 */
export type Listener = {
  /** Of this process, a new one at every start. */
  readonly id: string
  /** Whether this process answers from memory while it is live, and others wait for it (leases.ts). */
  readonly leased: boolean
  on(channel: Channel, handler: (payload: string) => void): void
  /** Called with what other processes {@link tell} this one. */
  onTold(handler: (payload: string) => void): void
  /** Called after every reconnect, not after the first connect. */
  onReconnect(handler: () => void): void
  /**
   * True while no news is good news: a question sent within the last second has been answered, on a connection that has
   * proved to hear. Everything that was committed before that question has been handed to the handlers. Ask anew after
   * every wait: the process may have been stopped meanwhile.
   */
  isLive(): boolean
  /** Tells one process, over the connection that hears: after everything heard so far has been handled. */
  tell(id: string, payload: string): Promise<void>
  close(): Promise<void>
}

/** The connection that hears NOTIFY. */
export type Listening = { readonly listener: Listener }

export type ListenerOptions = {
  readonly config: Config
  readonly log: Logger
  /** Sends the proof that this connection hears, by another one. */
  readonly db: Database
  readonly leased: boolean
}

/** For how long a question counts, from when it was sent. */
export const liveForMs = 1000
const heartbeatMs = 400

/** Connects (fails if the first attempt fails) and keeps listening. Needs a direct address: DATABASE_DIRECT_URL. */
export async function openListener({ config, log, db, leased }: ListenerOptions): Promise<Listener> {
  const id = randomUUID()
  const isNamed = config.database.preparedStatements
  const own = ownChannel(id)
  const handlers = new Map<string, ((payload: string) => void)[]>()
  const reconnectHandlers: (() => void)[] = []
  let client: pg.Client | undefined
  /** How often the connection was asked to prove that it hears, since it was made; 0 when it has. */
  let deaf = 1
  let question: Moment | undefined
  let told = false
  let closed = false
  let timer: NodeJS.Timeout | undefined

  const on = (channel: string, handler: (payload: string) => void) =>
    void handlers.set(channel, [...(handlers.get(channel) ?? []), handler])

  let turn: Promise<unknown> = Promise.resolve()
  /** One statement at a time: heartbeats and what is told come when they come, and a client of pg has no queue. */
  const query = (on: pg.Client, statement: pg.QueryConfig): Promise<unknown> => {
    const answer = turn.then(() => on.query(statement))
    turn = answer.catch(() => undefined)
    return answer
  }

  const connect = async () => {
    const next = new Connection({
      connectionString: withoutSslMode(directUrl(config)),
      ssl: tlsOptions(config, directUrl(config)),
      application_name: 'daybook listen',
      connectionTimeoutMillis: 5000,
      query_timeout: liveForMs * 2,
    })
    next.on('notification', ({ channel, payload = '' }) => {
      if (channel === own && payload === proof) deaf = 0
      else for (const handler of handlers.get(channel) ?? []) handler(payload)
    })
    next.on('error', (error) => lose(next, error))
    next.on('end', () => lose(next, new Error('connection ended')))
    try {
      await next.connect()
      await next.query([...channels, own].map((channel) => `listen "${channel}"`).join('; '))
    } catch (error) {
      next.end().catch((cause: unknown) => log.debug({ err: cause }, 'closing a connection that was not made failed'))
      throw error
    }
    client = next
  }

  const beat = async () => {
    const current = client
    if (current === undefined || closed) return
    try {
      await ask(current)
    } catch (error) {
      if (isConnectionLoss(error) || isTimeout(error)) return lose(current, error as Error)
      notLive(error)
    }
    if (current === client) timer = setTimeout(beat, deaf > 0 && deaf < patience ? firstHeartbeatMs : heartbeatMs)
  }

  /** Nothing counts before the connection has heard what another one said: behind a pooler it never does. */
  const ask = async (current: pg.Client) => {
    if (deaf > 0) await db.run('select pg_notify($1, $2)', [own, proof])
    if (deaf > 0 && ++deaf === patience) notLive(undefined)
    const asked = now()
    const hears = deaf === 0
    const renewal = { text: renewLease, values: [id], ...(isNamed && { name: statementName(renewLease) }) }
    await query(current, leased && hears ? renewal : { text: 'select 1' })
    // What is lost when the server crashes is less than the five seconds for which a lease is looked for.
    if (hears && question === undefined) await query(current, { text: 'set synchronous_commit to off' })
    if (hears && current === client) question = asked
  }

  const notLive = (error: unknown) => {
    if (!told) log.warn({ err: error }, 'notifications cannot be relied on: is DATABASE_DIRECT_URL past any pooler?')
    told = true
  }

  const lose = (lost: pg.Client, error: Error) => {
    if (lost !== client || closed) return
    forgetConnection()
    log.warn({ err: error }, 'the notification connection was lost')
    lost.end().catch((cause: unknown) => log.debug({ err: cause }, 'closing a lost connection failed'))
    void reconnect(100)
  }

  const forgetConnection = () => {
    client = undefined
    turn = Promise.resolve()
    question = undefined
    deaf = 1
    clearTimeout(timer)
  }

  const reconnect = async (delay: number): Promise<void> => {
    await new Promise((resolve) => setTimeout(resolve, delay).unref())
    if (closed) return
    try {
      await connect()
      // Before anything counts again, what was kept is forgotten: nobody heard what was said in between.
      for (const handler of reconnectHandlers) handler()
      log.info('the notification connection is back')
      void beat()
    } catch (error) {
      log.debug({ err: error }, 'the notification connection is still down')
      void reconnect(Math.min(delay * 2, 5000))
    }
  }

  await connect()
  void beat()
  return {
    id,
    leased,
    on,
    onTold: (handler) => on(own, handler),
    onReconnect: (handler) => reconnectHandlers.push(handler),
    isLive: () => question !== undefined && isWithin(question, liveForMs),
    tell: async (to, payload) => {
      if (client !== undefined)
        await query(client, { text: 'select pg_notify($1, $2)', values: [ownChannel(to), payload] })
    },
    close: async () => {
      closed = true
      const last = client
      const left = leased && last !== undefined ? query(last, { text: leaveLease, values: [id] }) : undefined
      forgetConnection()
      await left?.catch((error: unknown) => log.debug({ err: error }, 'a lease stays'))
      await last?.end()
    },
  }
}

const firstHeartbeatMs = 20
const patience = 20
const proof = 'heard?'

function ownChannel(id: string): string {
  return `svc_process_${id}`
}

type Moment = { readonly ms: number; readonly wallMs: number }

function now(): Moment {
  return { ms: performance.now(), wallMs: Date.now() }
}

/** By both clocks: one of them stands still while the machine sleeps, the other one may be set. */
function isWithin({ ms, wallMs }: Moment, limitMs: number): boolean {
  return performance.now() - ms < limitMs && Math.abs(Date.now() - wallMs) < limitMs
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}
