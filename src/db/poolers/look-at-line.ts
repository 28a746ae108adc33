import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { type Config, ConfigError } from '../../config/config.ts'
import { isNameError, sqlState } from '../errors.ts'
import { tlsOptions, withoutOwnParameters } from '../pools.ts'
import { type LineFacts, plainLine } from './line.ts'
import { neededSettings, settingsOf } from './session-settings.ts'

type LookOptions = { readonly config: Config; readonly url: string; readonly timeoutMs?: number }

/**
 * Looks at what lies between here and an address, over two connections at most. Rejects when the server can't be reached,
 * and with a ConfigError without the variable's name where transactions do not work.
 */
export async function lookAtLine(options: LookOptions): Promise<LineFacts> {
  const clients: pg.Client[] = []
  const open = async (withOptions: boolean) => {
    const client = clientOf(options, withOptions)
    clients.push(client)
    await client.connect()
    return client
  }
  try {
    const first = await open(true).catch((error: unknown) => {
      if (sqlState(error) !== refusedParameter) throw error
      return undefined
    })
    const seen = first && (await whatArrived(first, options.config))
    if (first !== undefined && seen?.isOwn && seen.arrived) return plainLine
    const kept = await tryOut(first ?? (await open(false)), await open(false))
    return { isPooled: true, keepsSettings: false, ...kept }
  } finally {
    await Promise.all(clients.map(close))
  }
}

/** PgBouncer takes no startup parameters but its own, unless it is told to. */
const refusedParameter = '08P01'
const defaultPatienceMs = 5000

function clientOf({ config, url, timeoutMs = defaultPatienceMs }: LookOptions, withOptions: boolean): pg.Client {
  const { transactionTimeoutMs } = config.database
  const { ofSession, ofAddress } = settingsOf(url, { transactionTimeoutMs, readOnly: true })
  const options = withOptions ? ofSession : ofAddress
  const client = new pg.Client({
    connectionString: withoutOwnParameters(url),
    ssl: tlsOptions(config, url),
    application_name: 'daybook start',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: Math.min(timeoutMs, busyMs),
    ...(options !== undefined && { options }),
  })
  // The next statement rejects; the event without a listener ends the process.
  client.on('error', () => undefined)
  return client
}

/** How long a statement may wait for a session of the pooler before all of them count as taken. */
const busyMs = 2000

/** One whose answer did not come in time would be waited for. */
async function close(client: pg.Client): Promise<void> {
  const { connection } = client as unknown as { connection: { stream: { destroy(): void } } }
  await Promise.race([client.end(), new Promise((resolve) => setTimeout(resolve, 200))])
  connection.stream.destroy()
}

/** A pooler makes up the process that it tells its clients: they need it to cancel, and get others' sessions. */
async function whatArrived(client: pg.Client, config: Config): Promise<{ isOwn: boolean; arrived: boolean }> {
  const { transactionTimeoutMs } = config.database
  const wanted = Object.entries(neededSettings({ transactionTimeoutMs, readOnly: true }))
  const { rows } = await client.query(
    `select pg_backend_pid() as pid,
       (select json_object_agg(lower(name), setting) from pg_settings where lower(name) = any($1)) as settings`,
    [wanted.map(([name]) => name)],
  )
  const { pid, settings } = rows[0]
  const { processID } = client as unknown as { processID: number }
  return { isOwn: pid === processID, arrived: wanted.every(([name, value]) => settings[name] === value) }
}

const rounds = 5

type LineMemory = Pick<LineFacts, 'keepsSessions' | 'keepsNames'>

/**
 * Whether two clients share sessions, and what then becomes of names: one client asks, another one takes a session for a
 * transaction and asks, and while it has it, the first one asks again. Names are new each time: old ones may be there still.
 */
async function tryOut(one: pg.Client, two: pg.Client): Promise<LineMemory> {
  try {
    for (let round = 0; round < rounds; round += 1) {
      // A name of an earlier round may be known to several sessions by now, so that a change of sessions does not show.
      const name = `svc_look_${randomBytes(9).toString('base64url')}`
      const ask = async (client: pg.Client): Promise<number> =>
        (await client.query({ name, text: 'select pg_backend_pid() as pid' })).rows[0].pid
      const first = await ask(one)
      // A second client gets no session while the first one does nothing with its own: they are not shared.
      if (!(await inTime(() => begin(two)))) return { keepsSessions: await inTime(() => ask(one)), keepsNames: false }
      const held = await ask(two)
      if (held === first) return { keepsSessions: false, keepsNames: true }
      let next: number | undefined
      const isAnswered = await inTime(async () => {
        next = await ask(one)
      })
      if (!isAnswered) return { keepsSessions: false, keepsNames: false }
      if (next !== first) return { keepsSessions: false, keepsNames: true }
      await two.query('rollback')
    }
    return { keepsSessions: true, keepsNames: true }
  } catch (error) {
    if (!isNameError(error)) throw error
    return { keepsSessions: false, keepsNames: false }
  }
}

async function begin(client: pg.Client): Promise<void> {
  try {
    await client.query('begin')
  } catch (error) {
    if (isTimeout(error)) throw error
    throw new ConfigError(`a pooler is in between that gives no transactions: ${(error as Error).message}`)
  }
}

async function inTime(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work()
    return true
  } catch (error) {
    if (isTimeout(error)) return false
    throw error
  }
}

/** Whether an answer did not come in time: all sessions of a pooler may be taken for a while. */
export function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}
