/**
 * The feed: what is appended to the log, while it happens. Every subscriber follows the log itself, round after round
 * from its own cursor, so there is no buffer to overflow and no seam between catching up and being live. Only the wakeup
 * that says "look now" has two sources: the WAL, and a clock where the WAL is not available.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { ConnectionOptions as TlsOptions } from 'node:tls'
import type { Logger } from 'pino'
import { retryTransient } from '../adapters/retry.ts'
import {
  type Cursor,
  encodeCursor,
  includesSnapshot,
  isVisible,
  parseSnapshot,
  type Snapshot,
  widenXid,
} from './cursor.ts'
import { openWal, type Wal } from './feed-wal.ts'
import { currentCursor, type LogDb, type LogEvent, type LogPage, pullRound } from './log-reader.ts'

export type Feed = {
  /**
   * Delivers every event after `from`, without gap or repeat, in batches of at most 1000, per record in the order of the
   * writes. The next batch waits for the promise of `onEvents`. `resume` is the encoded cursor after the batch.
   */
  subscribe(from: Cursor | 'now', onEvents: OnEvents, onError: (reason: 'resync') => void): Subscription
  status(): FeedStatus
  /** Ends all subscriptions and the replication connection. */
  close(): Promise<void>
}

type OnEvents = (batch: readonly LogEvent[], resume: string) => void | Promise<void>

export type Subscription = {
  /** Resolves with the encoded cursor from which events will be delivered; for `now`, when now is. */
  readonly started: Promise<string>
  /** No batch begins after this; one that is being handled may finish. */
  close(): void
}

type FeedStatus = {
  /** Where wakeups come from: `starting` is polling until the first attempt to read the WAL has ended. */
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

type Follower = {
  db: LogDb
  tail: Tail
  log: Logger
  from: Cursor | 'now'
  onEvents: OnEvents
  onError: (reason: 'resync') => void
  onEnd: () => void
}

function follow({ db, tail, log, from, onEvents, onError, onEnd }: Follower): Subscription {
  let open = true
  const begin = async () => (from === 'now' ? tail.untilDone(() => currentCursor(db)) : from)
  const beginning = begin()
  const started = beginning.then(encodeCursor)
  const deliver = async () => {
    await started
    let cursor = await beginning
    while (open) {
      const { page, wakeup } = await tail.read(cursor)
      if (page.resync) throw new Error('the cursor is older than the log')
      if (page.events.length > 0 && open) await onEvents(page.events, encodeCursor(page.cursor))
      cursor = page.cursor
      if (!page.more && open) await tail.next(wakeup)
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
  return { started, close }
}

/**
 * The shared end of the log: all subscribers of a process read through it, so those that are at the same place share one
 * statement, and those that are elsewhere are led to the same place. It also holds the wakeups that they wait for.
 */
type Tail = {
  /** The page after a cursor; tries until the database answers, rejects only when closed. */
  read(cursor: Cursor): Promise<PageRead>
  /** Resolves when there has been a wakeup after that one, or the tail was closed. */
  next(wakeup: number): Promise<void>
  /** Wakes for a committed transaction (the lower half of its id), again and again until its events are visible. */
  expect(xid: number): void
  wake(): void
  /** Repeats work that fails, with growing pauses; rejects only when the tail is closed. */
  untilDone<Result>(work: () => Promise<Result>): Promise<Result>
  /** Milliseconds beyond the planned interval since the log was last read to its end. */
  lagMs(): number
  close(): void
}

/** `wakeup`: the number of the last one before it was read. */
type PageRead = { readonly page: LogPage; readonly wakeup: number }

type TailOptions = {
  db: LogDb
  log: Logger
  /** How long to wait for a wakeup before looking all the same, milliseconds; asked at every wait. */
  intervalMs: () => number
}

function openTail({ db, log, intervalMs }: TailOptions): Tail {
  const wakeups = openWakeups(intervalMs)
  const closing = new AbortController()
  const pages = openPageMemory()
  const end = openEnd(wakeups.wake)
  const rest = openRest(closing.signal)
  const untilDone = <Result>(work: () => Promise<Result>): Promise<Result> =>
    retryTransient(work, {
      backoff,
      signal: closing.signal,
      onRetry: (error, pauseMs) => log.warn({ err: error, retryInMs: pauseMs }, 'the log could not be read'),
    })
  const read = async (cursor: Cursor): Promise<PageRead> => {
    const known = end.known()
    const upTo = placeToMeet(cursor, known)
    if (upTo !== undefined)
      return { page: await untilDone(() => pullRound(db, cursor, { upTo, limit })), wakeup: known.wakeup }
    await rest()
    const before = wakeups.count()
    const page = await untilDone(() => pullRound(db, cursor, { limit }))
    end.reached(page, before)
    return { page, wakeup: before }
  }
  return {
    read: (cursor) => pages.get(encodeCursor(cursor), () => read(cursor)),
    next: wakeups.after,
    expect: end.expect,
    wake: wakeups.wake,
    untilDone,
    lagMs: () => Math.max(0, Math.round(performance.now() - end.known().readAt - intervalMs())),
    close: () => {
      closing.abort()
      wakeups.close()
    },
  }
}

/** Events per page: a bound on memory, whatever the size of a transaction. */
const limit = 1000
const restMs = 3
const backoff = { firstMs: 50, longestMs: 2000 }

/** Under load every commit wakes: a short rest makes batches of them instead of a statement for each. */
function openRest(signal: AbortSignal): () => Promise<void> {
  let lastRead = 0
  return async () => {
    const wait = lastRead + restMs - performance.now()
    lastRead = performance.now() + Math.max(0, wait)
    if (wait > 0) await delay(wait, undefined, { signal })
  }
}

/** How far anybody has read, and the commits that are announced but not visible there yet. */
function openEnd(wake: () => void) {
  const awaited = new Set<bigint>()
  let known = { snapshot: undefined as Snapshot | undefined, text: '', wakeup: 0, readAt: performance.now() }
  let retryMs = shortestRetryMs
  return {
    known: () => known,
    reached: (page: LogPage, wakeup: number) => {
      const text = page.cursor.upTo ?? page.cursor.snapshot
      const snapshot = parseSnapshot(text)!
      if (known.snapshot === undefined || includesSnapshot(snapshot, known.snapshot))
        known = { snapshot, text, wakeup, readAt: performance.now() }
      for (const xid of awaited) if (isVisible(xid, snapshot)) awaited.delete(xid)
      retryMs = awaited.size === 0 ? shortestRetryMs : Math.min(retryMs * 2, longestRetryMs)
      if (awaited.size > 0) setTimeout(wake, retryMs)
    },
    expect: (half: number) => {
      if (known.snapshot === undefined) return
      const xid = widenXid(half, known.snapshot.xmax)
      if (isVisible(xid, known.snapshot)) return
      if (awaited.size < mostAwaited) awaited.add(xid)
      wake()
    },
  }
}

/** A commit reaches the WAL a moment before it is visible, with synchronous replication a long one. */
const shortestRetryMs = 1
const longestRetryMs = 20
/** More than this many commits not yet visible are left to the interval. */
const mostAwaited = 1000

type End = { readonly snapshot: Snapshot | undefined; readonly text: string }

/** A subscriber between rounds that lags behind the others ends the round where they are, to share their pages then. */
function placeToMeet(cursor: Cursor, end: End): string | undefined {
  const { snapshot: from, upTo } = cursor
  if (upTo !== undefined || end.snapshot === undefined || from === end.text) return undefined
  return includesSnapshot(end.snapshot, parseSnapshot(from)!) ? end.text : undefined
}

/**
 * The last pages by the cursor they follow; all who ask while one is being read share it. A page that leads nowhere is
 * forgotten: while nothing is written the cursor stays the same, and must be read again.
 */
function openPageMemory() {
  const pages = new Map<string, Promise<PageRead>>()
  const sizes: { key: string; events: number }[] = []
  let events = 0
  const remember = (key: string, page: LogPage) => {
    if (page.resync || encodeCursor(page.cursor) === key) return void pages.delete(key)
    sizes.push({ key, events: page.events.length })
    events += page.events.length
    while (events > mostEvents || sizes.length > mostPages) {
      const oldest = sizes.shift()!
      events -= oldest.events
      pages.delete(oldest.key)
    }
  }
  return {
    get: (key: string, read: () => Promise<PageRead>): Promise<PageRead> => {
      const known = pages.get(key)
      if (known !== undefined) return known
      const reading = read()
      pages.set(key, reading)
      reading.then(
        ({ page }) => remember(key, page),
        () => pages.delete(key),
      )
      return reading
    },
  }
}

const mostEvents = 4000
const mostPages = 64

/** Wakes when asked to, and after an interval without that while a reader waits. */
function openWakeups(intervalMs: () => number) {
  let count = 0
  let closed = false
  let timer: NodeJS.Timeout | undefined
  let waiting: (() => void)[] = []
  const wake = () => {
    count += 1
    clearTimeout(timer)
    timer = undefined
    const woken = waiting
    waiting = []
    for (const goOn of woken) goOn()
  }
  return {
    count: () => count,
    wake,
    after: (wakeup: number): Promise<void> => {
      if (count > wakeup || closed) return Promise.resolve()
      timer ??= setTimeout(wake, intervalMs())
      return new Promise((resolve) => waiting.push(resolve))
    },
    close: () => {
      closed = true
      wake()
    },
  }
}
