/**
 * The WAL as a source of wakeups: logical decoding over a temporary slot that lives and dies with its connection, so it
 * can never hold back the database's disk. It says which transaction has committed; the events are read from the log.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { ConnectionOptions as TlsOptions } from 'node:tls'
import type { Client, ClientConfig, QueryConfig } from 'pg'
import type { LogicalReplicationService, PgoutputPlugin } from 'pg-logical-replication'
import type { Logger } from 'pino'
import { pauseAfter } from '../adapters/retry.ts'
import { Connection } from '../db/connection.ts'
import { onFirstUse } from '../language/once.ts'
import { publicationName } from './log.ts'
import type { LogDb } from './log-reader.ts'

const replication = onFirstUse<typeof import('pg-logical-replication')>('pg-logical-replication')

export type Wal = {
  status(): WalStatus
  close(): Promise<void>
}

type WalStatus = {
  /** `starting` until the first attempt has ended, `down` after one that failed or a loss. */
  readonly state: 'starting' | 'live' | 'down'
  /** Why it is not live. */
  readonly reason: string | undefined
  /** The temporary slot, while it is live. */
  readonly slot?: string | undefined
}

type WalOptions = {
  /** Only to end the server's side of a connection that is stuck while its slot is being created. */
  db: LogDb
  directUrl: string
  tls?: TlsOptions | undefined
  log: Logger
  /**
   * Called for every committed transaction that appended events, perhaps a moment before they are visible, with the
   * lower 32 bits of its id.
   */
  onCommit: (xid: number) => void
  /** Called when the connection went live or was lost. */
  onChange: () => void
}

/**
 * Connects, and reconnects for ever. Creating a slot waits for every transaction that is writing at that moment, so it
 * may take long to go live; nothing depends on it.
 */
export function openWal(options: WalOptions): Wal {
  const { log, onChange } = options
  const closing = new AbortController()
  let status: WalStatus = { state: 'starting', reason: 'connecting' }
  const turn = (next: WalStatus) => {
    if (next.state !== status.state || next.reason !== status.reason) log.info(next, 'the feed’s connection to the WAL')
    status = next
    onChange()
  }
  const keepListening = async () => {
    let failures = 0
    while (!closing.signal.aborted) {
      const error = await listen(options, closing.signal, {
        onSlot: () => status.state === 'starting' && turn({ state: 'starting', reason: creatingSlot }),
        onLive: (slot) => {
          failures = 0
          turn({ state: 'live', reason: undefined, slot })
        },
      })
      if (closing.signal.aborted) return
      turn({ state: 'down', reason: error.message })
      failures += 1
      await delay(pauseAfter(failures, backoff), undefined, { signal: closing.signal }).catch(ignoreAbort)
    }
  }
  const ended = keepListening()
  return {
    status: () => status,
    close: async () => {
      closing.abort()
      await ended
      status = { state: 'down', reason: 'closed' }
    },
  }
}

const creatingSlot = 'the replication slot is being created, which waits for running transactions to end'
const backoff = { firstMs: 100, longestMs: 5000 }
const pingMs = 1000
const silentMs = 5000

type SlotCallbacks = { onSlot: () => void; onLive: (slot: string) => void }

/** One connection, from connecting to its end; answers why it ended. */
async function listen(options: WalOptions, signal: AbortSignal, { onSlot, onLive }: SlotCallbacks): Promise<Error> {
  const service = openService({
    connectionString: options.directUrl,
    ...(options.tls === undefined ? {} : { ssl: options.tls }),
    application_name: 'daybook feed',
    connectionTimeoutMillis: 5000,
  })
  const slot = `svc_realtime_${process.pid}_${randomBytes(4).toString('hex')}`
  let backend: number | undefined
  let failure: Error | undefined
  let heardAt = performance.now()
  const plugin = commitPlugin((pid) => {
    signal.throwIfAborted()
    backend = pid
    onSlot()
  })
  service.on('start', () => {
    heardAt = performance.now()
    onLive(slot)
  })
  service.on('data', (_lsn, xid: number | undefined) => {
    heardAt = performance.now()
    if (xid !== undefined) options.onCommit(xid)
  })
  service.on('heartbeat', (lsn, _time, shouldRespond) => {
    heardAt = performance.now()
    if (shouldRespond) void service.acknowledge(byteBefore(lsn))
  })
  service.on('error', (error) => {
    failure ??= error
  })
  const stop = () => service.stop()
  const ping = setInterval(() => {
    if (service.isStop()) return
    if (performance.now() - heardAt > silentMs) {
      failure ??= new Error(`the server has been silent for ${silentMs} ms`)
      void stop()
    } else void service.acknowledge(byteBefore(service.lastLsn()), true)
  }, pingMs)
  // While it is still connecting there is nothing to end yet: the plugin will find the signal aborted.
  const abort = () => {
    if (backend !== undefined) void endBackend(options, backend).then(stop)
  }
  signal.addEventListener('abort', abort, { once: true })
  try {
    signal.throwIfAborted()
    await service.subscribe(plugin, slot)
  } catch (error) {
    failure = error as Error
  } finally {
    clearInterval(ping)
    signal.removeEventListener('abort', abort)
    await service.stop()
  }
  return failure ?? new Error('the replication connection ended')
}

/**
 * Nothing is acknowledged but when we say so. The connection's errors are heard from its first moment: the library
 * begins a little after it is up, and one that comes in between would end the process.
 */
function openService(config: ClientConfig): LogicalReplicationService {
  const service = new (replication().LogicalReplicationService)(config, {
    acknowledge: { auto: false, timeoutSeconds: 0 },
  })
  const connect = async () => {
    await service.stop()
    const client = new Connection({ ...config, replication: 'database' } as ClientConfig)
    client.on('error', (error) => service.emit('error', error))
    Object.assign(service, { _client: client })
    await client.connect()
    const { connection } = client as Client & { connection: unknown }
    Object.assign(service, { _connection: connection })
    return [client, connection]
  }
  return Object.assign(service, { client: connect })
}

/**
 * pgoutput over a slot that it creates itself, reduced to one word per transaction: `parse` answers the transaction id at
 * its commit and undefined before. Rows are not looked at: none can be too many, or of a type that is not understood.
 */
function commitPlugin(beforeSlot: (backendPid: number) => void): PgoutputPlugin {
  const plugin = new (replication().PgoutputPlugin)({ protoVersion: 1, publicationNames: [publicationName] })
  const { start } = plugin
  let xid: number | undefined
  return Object.assign(plugin, {
    start: async (client: Client, slot: string) => {
      const { rows } = await client.query({
        text: `select pg_backend_pid() as pid, exists(select from pg_publication where pubname = '${publicationName}') as published`,
        query_timeout: silentMs,
      } as QueryConfig)
      if (!rows[0].published) throw new Error(`the publication ${publicationName} does not exist`)
      beforeSlot(Number(rows[0].pid))
      await client.query(`CREATE_REPLICATION_SLOT "${slot}" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'nothing')`)
      return start.call(plugin, client, slot, '0/0')
    },
    parse: (message: Buffer) => {
      if (message[0] === begin) xid = message.readUInt32BE(xidInBegin)
      return message[0] === commit ? xid : undefined
    },
  })
}

/** Message types of pgoutput; of Begin: after the type, the commit's LSN and its time, 8 bytes each. */
const begin = 'B'.charCodeAt(0)
const commit = 'C'.charCodeAt(0)
const xidInBegin = 17

/**
 * The library confirms the byte after the one it is given. A server that shuts down waits until exactly what it has
 * sent is confirmed, and would wait for ever.
 */
function byteBefore(lsn: string): string {
  const [upper, lower] = lsn.split('/').map((part) => BigInt(`0x${part}`)) as [bigint, bigint]
  const position = (upper << 32n) + lower
  const before = position === 0n ? 0n : position - 1n
  return `${(before >> 32n).toString(16)}/${(before & 0xffff_ffffn).toString(16)}`
}

/** Closing a socket does not wake a server process that waits for other transactions; it would keep a WAL sender busy. */
async function endBackend({ db, log }: WalOptions, pid: number): Promise<void> {
  try {
    await db.query('select pg_terminate_backend($1)', [pid])
  } catch (error) {
    log.warn({ err: error, pid }, 'a replication connection could not be ended')
  }
}

function ignoreAbort(error: Error): void {
  if (error.name !== 'AbortError') throw error
}
