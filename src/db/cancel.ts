import pg from 'pg'
import { clientGone } from '../admission/asker.ts'
import { sqlState } from './errors.ts'

/**
 * Runs a statement that ends when `signal` aborts: its query is cancelled and the work fails with 499. It does not
 * settle before the server has dealt with the cancellation, so that the next borrower of the connection cannot be hit.
 */
export function cancellable<T>(
  client: pg.ClientBase,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  return cancelledBy(signal, () => cancelQuery(client), work)
}

/** As {@link cancellable}, where `cancel` reaches the connection in another way. */
export async function cancelledBy<T>(
  signal: AbortSignal | undefined,
  cancel: () => Promise<void>,
  work: () => Promise<T>,
): Promise<T> {
  if (signal === undefined) return work()
  if (signal.aborted) throw clientGone()
  const cancellation = openCancellation(signal, cancel)
  try {
    return await work()
  } catch (error) {
    throw cancellation.hasBegun() && sqlState(error) === '57014' ? clientGone(error) : error
  } finally {
    await cancellation.close()
  }
}

/**
 * Work that waits for its turn, and says when it begins. If `signal` aborts before, this fails at once with 499, and the
 * work fails where it would begin.
 */
export async function whileStaying<T>(
  signal: AbortSignal | undefined,
  work: (begin: () => void) => Promise<T>,
): Promise<T> {
  if (signal === undefined) return work(() => undefined)
  if (signal.aborted) throw clientGone()
  const left = Promise.withResolvers<never>()
  const leave = () => left.reject(clientGone())
  const stay = () => signal.removeEventListener('abort', leave)
  signal.addEventListener('abort', leave, { once: true })
  const begin = () => {
    if (signal.aborted) throw clientGone()
    stay()
  }
  try {
    return await Promise.race([work(begin), left.promise])
  } finally {
    stay()
  }
}

/** The cancellation of one statement, if it comes to that. */
export type Cancellation = {
  hasBegun(): boolean
  /** To be called when the statement is answered: settles when the server has dealt with the cancellation, or rejects as it failed. */
  close(): Promise<void>
}

/** Cancels a statement that is under way when `signal` aborts, or at once where it has. */
export function openCancellation(signal: AbortSignal | undefined, cancel: () => Promise<void>): Cancellation {
  let cancelled: Promise<void> | undefined
  const begin = () => {
    cancelled = cancel()
    // Reported by `close`; the statement may still be running when it fails.
    cancelled.catch(() => undefined)
  }
  if (signal?.aborted) begin()
  else signal?.addEventListener('abort', begin, { once: true })
  return {
    hasBegun: () => cancelled !== undefined,
    close: async () => {
      signal?.removeEventListener('abort', begin)
      await cancelled
    },
  }
}

/** Members of a connection that pg does not declare. */
type ConnectionMembers = {
  readonly processID: number
  readonly secretKey: number
  readonly host: string
  readonly port: number
  readonly ssl: pg.ConnectionConfig['ssl']
}
type CancelConnection = pg.Connection & {
  connect(port: number | string, host?: string): void
  cancel(processId: number, secretKey: number): void
}

const timeoutMs = 5_000

/**
 * Cancels what the connection runs, in the protocol's own way: over a second connection that the server closes when it
 * has sent the signal. Goes through poolers, where the process that pg knows is not the server's.
 */
export function cancelQuery(client: pg.ClientBase): Promise<void> {
  const { processID, secretKey, host, port, ssl } = client as unknown as ConnectionMembers
  const connection = new pg.Connection({ ssl }) as CancelConnection
  return new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('timeout exceeded when a query was cancelled')), timeoutMs)
    const settle = (error?: Error) => {
      clearTimeout(timer)
      if (error === undefined) resolve()
      else reject(error)
    }
    connection.once(ssl ? 'sslconnect' : 'connect', () => connection.cancel(processID, secretKey))
    // Later errors find the promise settled.
    connection.on('error', settle)
    connection.once('end', () => settle())
    if (host.startsWith('/')) connection.connect(`${host}/.s.PGSQL.${port}`)
    else connection.connect(port, host)
  }).finally(() => connection.stream.destroy())
}
