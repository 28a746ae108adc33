import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import type { Logger } from 'pino'
import { pauseAfter } from '../adapters/retry.ts'
import type { Config } from '../config/config.ts'
import { Connection } from './connection.ts'
import { isConnectionLoss } from './errors.ts'
import { type Database, directUrl, statementName, tlsOptions, withoutSslMode } from './pools.ts'
import { leaveLease, renewLease } from './unlogged/processes.ts'

/** The channels of the platform; payloads are short keys, never data, but for what sockets are pushed (features/messaging/rooms/rooms.ts). */
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
  'svc_workflows',
  'svc_executions',
  'svc_execution',
] as const
type Channel = (typeof channels)[number]

/**
 * The one LISTEN connection of a process. It reconnects for ever; every cache is flushed on reconnect, because what was
 * sent in between is lost.
 */
export type Listener = {
  /** Of this process, a new one at every start. */
  readonly id: string
  /** Whether this process answers from memory while it is live, and others wait for it (leases.ts). */
  readonly leased: boolean
  on(channel: Channel, handler: (payload: string) => void): void
  /** Called with what other processes {@link notify} this one. */
  onNotified(handler: (payload: string) => void): void
  /** Called when the connection is lost: the server may have crashed. */
  onLost(handler: () => void): void
  /** Called after every reconnect, not after the first connect. */
  onReconnect(handler: () => void): void
  /**
   * True while no news is good news: a question sent within the last second has been answered, on a connection that has
   * proved to hear. Everything that was committed before that question has been handed to the handlers. Ask anew after
   * every wait: the process may have been stopped meanwhile.
   */
  isLive(): boolean
  /** Notifies one process, over the connection that hears: after everything heard so far has been handled. */
  notify(id: string, payload: string): Promise<void>
  close(): Promise<void>
}

/** The connection that hears NOTIFY. */
export type Listening = { readonly listener: Listener }

type ListenerOptions = {
  readonly config: Config
  readonly log: Logger
  /** Sends the proof that this connection hears, by another one. */
  readonly db: Database
  readonly leased: boolean
}

/** For how long a question counts, from when it was sent. */
export const liveForMs = 1000
const heartbeatMs = 400
/** Until the connection has proved that it hears. */
const firstHeartbeatMs = 20
/** After so many requests for proof it counts as one that does not hear. */
export const proofsAsked = 20
const backoff = { firstMs: 100, longestMs: 5000 }

/** By both clocks: one of them stands still while the machine sleeps, the other one may be set. */
export type ClockMoment = { readonly ms: number; readonly wallMs: number }

/** Whether a connection hears notifications. */
export type HearingState = {
  /** How often it was asked to prove that it hears, from 1 when it was made; 0 when it has. */
  readonly proofs: number
  /** When the last question was sent that was answered after the proof. */
  readonly asked: ClockMoment | undefined
  /** Operators were warned, of whichever connection of the process. */
  readonly warned: boolean
}

type ListenerInput =
  /** It is time for a heartbeat. */
  | { readonly is: 'due' }
  /** Another connection has sent the proof; and it has been heard. */
  | { readonly is: 'sent' | 'heard' }
  /** `isProof`: the question was sent when it was known to hear. */
  | { readonly is: 'answered' | 'eased'; readonly asked: ClockMoment; readonly isProof: boolean }
  /** The database has refused a statement, by a connection that is still there. */
  | { readonly is: 'refused' }
  | { readonly is: 'lost' }

type ListenerEffect =
  | { readonly do: 'prove' | 'warn' }
  | { readonly do: 'ask'; readonly isProof: boolean }
  /** Lets the commits of this connection return before they are on disk. */
  | { readonly do: 'ease'; readonly asked: ClockMoment }
  | { readonly do: 'wait'; readonly ms: number }

export const unheard: HearingState = { proofs: 1, asked: undefined, warned: false }

/** Nothing counts before the connection has heard what another one said: behind a pooler it never does. */
export function step(hearing: HearingState, input: ListenerInput): readonly [HearingState, readonly ListenerEffect[]] {
  switch (input.is) {
    case 'due':
      return [hearing, [hearing.proofs > 0 ? { do: 'prove' } : { do: 'ask', isProof: true }]]
    case 'sent': {
      if (hearing.proofs === 0) return [hearing, [{ do: 'ask', isProof: true }]]
      const next = { ...hearing, proofs: hearing.proofs + 1 }
      const [warned, effects] = next.proofs === proofsAsked ? warn(next) : [next, []]
      return [warned, [...effects, { do: 'ask', isProof: false }]]
    }
    case 'heard':
      return [{ ...hearing, proofs: 0 }, []]
    case 'answered':
      if (!input.isProof) return [hearing, [wait(hearing)]]
      if (hearing.asked === undefined) return [hearing, [{ do: 'ease', asked: input.asked }]]
      return [{ ...hearing, asked: input.asked }, [wait(hearing)]]
    case 'eased':
      return [{ ...hearing, asked: input.asked }, [wait(hearing)]]
    case 'refused': {
      const [next, effects] = warn(hearing)
      return [next, [...effects, wait(hearing)]]
    }
    case 'lost':
      return [{ ...unheard, warned: hearing.warned }, []]
  }
}

const warn = (hearing: HearingState): readonly [HearingState, readonly ListenerEffect[]] =>
  hearing.warned ? [hearing, []] : [{ ...hearing, warned: true }, [{ do: 'warn' }]]

const wait = ({ proofs }: HearingState): ListenerEffect => ({
  do: 'wait',
  ms: proofs > 0 && proofs < proofsAsked ? firstHeartbeatMs : heartbeatMs,
})

/** Whether no news is good news at that moment. */
export function isLiveAt({ asked }: HearingState, ms: number, wallMs: number): boolean {
  return asked !== undefined && ms - asked.ms < liveForMs && Math.abs(wallMs - asked.wallMs) < liveForMs
}

type Shell = ListenerOptions & {
  readonly id: string
  readonly handlers: Map<string, ((payload: string) => void)[]>
  readonly lossHandlers: (() => void)[]
  readonly reconnectHandlers: (() => void)[]
  client: pg.Client | undefined
  hearing: HearingState
  /** The end of what the connection is asked: one statement at a time, as a client of pg has no queue. */
  turn: Promise<unknown>
  timer: NodeJS.Timeout | undefined
  closed: boolean
}

/** Connects (fails if the first attempt fails) and keeps listening. Needs a direct address: DATABASE_DIRECT_URL. */
export async function openListener(options: ListenerOptions): Promise<Listener> {
  const { leased, log } = options
  const id = randomUUID()
  const hearers = { handlers: new Map(), lossHandlers: [], reconnectHandlers: [] }
  const begun = { client: undefined, hearing: unheard, turn: Promise.resolve(), timer: undefined, closed: false }
  const shell: Shell = { ...options, id, ...hearers, ...begun }
  const on = (channel: string, handler: (payload: string) => void) =>
    void shell.handlers.set(channel, [...(shell.handlers.get(channel) ?? []), handler])
  await connect(shell)
  void beat(shell)
  return {
    id,
    leased,
    on,
    onNotified: (handler) => on(ownChannel(id), handler),
    onLost: (handler) => shell.lossHandlers.push(handler),
    onReconnect: (handler) => shell.reconnectHandlers.push(handler),
    isLive: () => isLiveAt(shell.hearing, performance.now(), Date.now()),
    notify: async (to, payload) => {
      const statement = { text: 'select pg_notify($1, $2)', values: [ownChannel(to), payload] }
      if (shell.client !== undefined) await query(shell, shell.client, statement)
    },
    close: async () => {
      shell.closed = true
      const last = shell.client
      const left = leased && last !== undefined ? query(shell, last, { text: leaveLease, values: [id] }) : undefined
      forgetConnection(shell)
      await left?.catch((error: unknown) => log.debug({ err: error }, 'a lease stays'))
      await last?.end()
    },
  }
}

async function connect(shell: Shell): Promise<void> {
  const { config, log, id, handlers } = shell
  const own = ownChannel(id)
  const client = new Connection({
    connectionString: withoutSslMode(directUrl(config)),
    ssl: tlsOptions(config, directUrl(config)),
    application_name: 'daybook listen',
    connectionTimeoutMillis: 5000,
    query_timeout: liveForMs * 2,
  })
  client.on('notification', ({ channel, payload = '' }) => {
    if (channel === own && payload === proof) take(shell, { is: 'heard' })
    else for (const handler of handlers.get(channel) ?? []) handler(payload)
  })
  client.on('error', (error) => lose(shell, client, error))
  client.on('end', () => lose(shell, client, new Error('connection ended')))
  try {
    await client.connect()
    await client.query([...channels, own].map((channel) => `listen "${channel}"`).join('; '))
  } catch (error) {
    client.end().catch((cause: unknown) => log.debug({ err: cause }, 'closing a connection that was not made failed'))
    throw error
  }
  shell.client = client
}

const proof = 'heard?'

const ownChannel = (id: string): string => `svc_process_${id}`

function query(shell: Shell, client: pg.Client, statement: pg.QueryConfig): Promise<unknown> {
  const answer = shell.turn.then(() => client.query(statement))
  shell.turn = answer.catch(() => undefined)
  return answer
}

function take(shell: Shell, input: ListenerInput): readonly ListenerEffect[] {
  const [hearing, effects] = step(shell.hearing, input)
  shell.hearing = hearing
  return effects
}

async function beat(shell: Shell): Promise<void> {
  const { client } = shell
  if (client === undefined || shell.closed) return
  try {
    await perform(shell, client, take(shell, { is: 'due' }))
  } catch (error) {
    if (isConnectionLoss(error) || isTimeout(error)) return lose(shell, client, error as Error)
    if (client === shell.client) await perform(shell, client, take(shell, { is: 'refused' }), error)
  }
}

async function perform(
  shell: Shell,
  client: pg.Client,
  effects: readonly ListenerEffect[],
  cause?: unknown,
): Promise<void> {
  for (const effect of effects) {
    const input = await carryOut(shell, client, effect, cause)
    // Answers of a lost connection say nothing of the next one.
    if (input !== undefined && client === shell.client) await perform(shell, client, take(shell, input))
  }
}

/** The result of an effect. */
async function carryOut(
  shell: Shell,
  client: pg.Client,
  effect: ListenerEffect,
  cause: unknown,
): Promise<ListenerInput | undefined> {
  const { db, log, id } = shell
  switch (effect.do) {
    case 'prove':
      await db.run('select pg_notify($1, $2)', [ownChannel(id), proof])
      return { is: 'sent' }
    case 'ask': {
      const asked = now()
      await query(shell, client, shell.leased && effect.isProof ? renewal(shell) : { text: 'select 1' })
      return { is: 'answered', asked, isProof: effect.isProof }
    }
    case 'ease':
      // A crash of the server loses less than the five seconds for which a lease is looked for.
      await query(shell, client, { text: 'set synchronous_commit to off' })
      return { is: 'eased', asked: effect.asked, isProof: true }
    case 'warn':
      log.warn({ err: cause }, 'notifications cannot be relied on: is DATABASE_DIRECT_URL past any pooler?')
      return undefined
    case 'wait':
      if (!shell.closed) shell.timer = setTimeout(() => void beat(shell), effect.ms)
      return undefined
  }
}

function renewal({ config, id }: Shell): pg.QueryConfig {
  const isNamed = config.database.preparedStatements
  return { text: renewLease, values: [id], ...(isNamed && { name: statementName(renewLease) }) }
}

function lose(shell: Shell, lost: pg.Client, error: Error): void {
  const { log } = shell
  if (lost !== shell.client || shell.closed) return
  forgetConnection(shell)
  log.warn({ err: error }, 'the notification connection was lost')
  for (const handler of shell.lossHandlers) handler()
  lost.end().catch((cause: unknown) => log.debug({ err: cause }, 'closing a lost connection failed'))
  void reconnect(shell, 1)
}

function forgetConnection(shell: Shell): void {
  shell.client = undefined
  shell.turn = Promise.resolve()
  take(shell, { is: 'lost' })
  clearTimeout(shell.timer)
}

async function reconnect(shell: Shell, attempt: number): Promise<void> {
  const { log } = shell
  await new Promise((resolve) => setTimeout(resolve, pauseAfter(attempt, backoff)).unref())
  if (shell.closed) return
  try {
    await connect(shell)
    // Before anything counts again, what was kept is forgotten: this process missed what was said in between.
    for (const handler of shell.reconnectHandlers) handler()
    log.info('the notification connection is back')
    void beat(shell)
  } catch (error) {
    log.debug({ err: error }, 'the notification connection is still down')
    void reconnect(shell, attempt + 1)
  }
}

const now = (): ClockMoment => ({ ms: performance.now(), wallMs: Date.now() })

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}
