/**
 * The feed: what is appended to the log, while it happens (design §5). Every subscriber follows the log itself, round
 * after round from its own cursor, so there is no buffer to overflow and no seam between catching up and being live.
 * Only the bell that says "look now" has two sources: the WAL, and a clock where the WAL is not available.
 */
import type { ConnectionOptions as TlsOptions } from 'node:tls'
import type { Logger } from 'pino'
import { type Cursor, encodeCursor } from './cursor.ts'
import { openTail, type Tail } from './feed-tail.ts'
import { openWal, type Wal } from './feed-wal.ts'
import { currentCursor, type LogDb, type LogEvent } from './log-reader.ts'

export type Feed = {
  /**
   * Delivers every event after `from`, without gap or repeat, in batches of at most 1000, per record in the order of the
   * writes. The next batch waits for the promise of `onEvents`. `resume` is the encoded cursor behind the batch.
   */
  subscribe(from: Cursor | 'now', onEvents: OnEvents, onError: (reason: 'resync') => void): Subscription
  status(): FeedStatus
  /** Ends all subscriptions and the replication connection. */
  close(): Promise<void>
}

export type OnEvents = (batch: readonly LogEvent[], resume: string) => void | Promise<void>

export type Subscription = {
  /** Resolves with the encoded cursor from which events will be delivered; for `now`, when now is. */
  readonly started: Promise<string>
  /** The encoded cursor behind the last batch that was handled; undefined until started. */
  cursor(): string | undefined
  /** No batch begins after this; one that is being handled may finish. */
  close(): void
}

export type FeedStatus = {
  /** What rings: `starting` is polling until the first attempt to read the WAL has ended. */
  readonly source: 'wal' | 'poll' | 'starting'
  /** For how many milliseconds longer than planned the log has not been read to its end. */
  readonly lagMs: number
  readonly walAvailable: boolean
  /** Why the WAL is not read. */
  readonly reason: string | undefined
  /** The temporary replication slot, while the WAL is read. */
  readonly slot?: string | undefined
}

export type FeedOptions = {
  /** Reads of the log; the primary. */
  db: LogDb
  /** Address for the replication connection: a direct one, no transaction pooler. */
  directUrl: string
  tls?: TlsOptions | undefined
  log: Logger
  /** REALTIME_WAL_CONSUMER_ENABLED. */
  walEnabled: boolean
  /** How often to look while the WAL is not read, milliseconds. */
  pollIntervalMs?: number
}

/** Opens the feed; it polls until the replication connection is up, and again whenever that is lost. */
export function openFeed(options: FeedOptions): Feed {
  const { db, directUrl, tls, log, walEnabled, pollIntervalMs = 20 } = options
  const wal: Wal | undefined = walEnabled
    ? openWal({ db, directUrl, tls, log, onCommit: (xid) => tail.expect(xid), onChange: () => tail.wake() })
    : undefined
  const intervalMs = () => (wal?.status().state === 'live' ? safetyNetMs : pollIntervalMs)
  const tail = openTail({ db, log, intervalMs })
  const open = new Set<Subscription>()
  return {
    subscribe: (from, onEvents, onError) => {
      const subscription = follow({ db, tail, log, from, onEvents, onError, onEnd: () => open.delete(subscription) })
      open.add(subscription)
      return subscription
    },
    status: () => ({ ...sourceOf(wal), lagMs: open.size === 0 ? 0 : tail.lagMs() }),
    close: async () => {
      for (const subscription of [...open]) subscription.close()
      tail.close()
      await wal?.close()
    },
  }
}

/** While the WAL is read, the log is looked at this often all the same: a long decoding must not delay small events. */
const safetyNetMs = 250

function sourceOf(wal: Wal | undefined): Omit<FeedStatus, 'lagMs'> {
  if (wal === undefined)
    return { source: 'poll', walAvailable: false, reason: 'REALTIME_WAL_CONSUMER_ENABLED is false' }
  const { state, reason, slot } = wal.status()
  const source = { starting: 'starting', live: 'wal', down: 'poll' } as const
  return { source: source[state], walAvailable: state === 'live', reason, ...(slot !== undefined && { slot }) }
}

type Following = {
  db: LogDb
  tail: Tail
  log: Logger
  from: Cursor | 'now'
  onEvents: OnEvents
  onError: (reason: 'resync') => void
  onEnd: () => void
}

function follow({ db, tail, log, from, onEvents, onError, onEnd }: Following): Subscription {
  let open = true
  let behind: Cursor | undefined
  const start = async () => {
    behind = from === 'now' ? await tail.untilDone(() => currentCursor(db)) : from
    return encodeCursor(behind)
  }
  const started = start()
  const deliver = async () => {
    await started
    let cursor = behind!
    while (open) {
      const { page, rung } = await tail.read(cursor)
      if (page.resync) throw new Error('the cursor is older than the log')
      if (page.events.length > 0 && open) await onEvents(page.events, encodeCursor(page.cursor))
      behind = cursor = page.cursor
      if (!page.more && open) await tail.next(rung)
    }
  }
  const fail = (error: unknown) => {
    if (!open) return
    close()
    log.warn({ err: error }, 'a subscription to the feed ended, its subscriber has to read the state again')
    onError('resync')
  }
  const close = () => {
    open = false
    onEnd()
  }
  deliver().catch(fail)
  return {
    started,
    cursor: () => (behind === undefined ? undefined : encodeCursor(behind)),
    close,
  }
}
