/**
 * The shared end of the log: all subscribers of a process read through it, so those who are at the same place share one
 * statement, and those who are elsewhere are led to the same place. It also holds the bell they wait for.
 */
import { setTimeout as delay } from 'node:timers/promises'
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
import { type LogDb, type Page, pullRound } from './log-reader.ts'

export type Tail = {
  /** The page after a cursor; tries until the database answers, rejects only when closed. */
  read(cursor: Cursor): Promise<Reading>
  /** Resolves when the bell has rung again since the reading that `rung` came with, or the tail was closed. */
  next(rung: number): Promise<void>
  /** Rings for a committed transaction (the lower half of its id), again and again until its events are visible. */
  expect(xid: number): void
  /** Rings. */
  wake(): void
  /** Repeats work that fails, with growing pauses; rejects only when the tail is closed. */
  untilDone<Result>(work: () => Promise<Result>): Promise<Result>
  /** Milliseconds beyond the planned interval since the log was last read to its end. */
  lagMs(): number
  close(): void
}

export type Reading = { readonly page: Page; readonly rung: number }

export type TailOptions = {
  db: LogDb
  log: Logger
  /** How long to wait for the bell before looking all the same, milliseconds; asked at every wait. */
  intervalMs: () => number
}

export function openTail({ db, log, intervalMs }: TailOptions): Tail {
  const bell = openBell(intervalMs)
  const closing = new AbortController()
  const pages = openPageMemory()
  const awaited = new Set<bigint>()
  let end = { snapshot: undefined as Snapshot | undefined, text: '', rung: 0, readAt: performance.now() }
  let lastRead = 0
  let patience = shortestRetryMs

  const untilDone = <Result>(work: () => Promise<Result>): Promise<Result> =>
    retryTransient(work, {
      backoff,
      signal: closing.signal,
      onRetry: (error, pauseMs) => log.warn({ err: error, retryInMs: pauseMs }, 'the log could not be read'),
    })

  const read = async (cursor: Cursor): Promise<Reading> => {
    const upTo = placeToMeet(cursor, end)
    if (upTo !== undefined)
      return { page: await untilDone(() => pullRound(db, cursor, { upTo, limit })), rung: end.rung }
    await rest()
    const rung = bell.count()
    const page = await untilDone(() => pullRound(db, cursor, { limit }))
    reached(page, rung)
    return { page, rung }
  }

  /** Under load every commit rings: a short rest makes batches of them instead of a statement for each. */
  const rest = async () => {
    const wait = lastRead + restMs - performance.now()
    lastRead = performance.now() + Math.max(0, wait)
    if (wait > 0) await delay(wait, undefined, { signal: closing.signal })
  }

  const reached = (page: Page, rung: number) => {
    const text = page.cursor.upTo ?? page.cursor.snapshot
    const snapshot = parseSnapshot(text)!
    if (end.snapshot === undefined || includesSnapshot(snapshot, end.snapshot))
      end = { snapshot, text, rung, readAt: performance.now() }
    for (const xid of awaited) if (isVisible(xid, snapshot)) awaited.delete(xid)
    patience = awaited.size === 0 ? shortestRetryMs : Math.min(patience * 2, longestRetryMs)
    if (awaited.size > 0) setTimeout(bell.ring, patience)
  }

  return {
    read: (cursor) => pages.get(encodeCursor(cursor), () => read(cursor)),
    next: (rung) => bell.after(rung),
    expect: (half) => {
      if (end.snapshot === undefined) return
      const xid = widenXid(half, end.snapshot.xmax)
      if (isVisible(xid, end.snapshot)) return
      if (awaited.size < mostAwaited) awaited.add(xid)
      bell.ring()
    },
    wake: bell.ring,
    untilDone,
    lagMs: () => Math.max(0, Math.round(performance.now() - end.readAt - intervalMs())),
    close: () => {
      closing.abort()
      bell.close()
    },
  }
}

/** Events per page: a bound on memory, whatever the size of a transaction. */
const limit = 1000
const restMs = 3
const backoff = { firstMs: 50, longestMs: 2000 }
/** A commit reaches the WAL a moment before it is visible, with synchronous replication a long one. */
const shortestRetryMs = 1
const longestRetryMs = 20
/** More than this many commits not yet visible are left to the interval. */
const mostAwaited = 1000

type End = { readonly snapshot: Snapshot | undefined; readonly text: string }

/** Who is between rounds and behind the others ends the round where they are, to share their reading from there on. */
function placeToMeet(cursor: Cursor, end: End): string | undefined {
  const { snapshot: from, upTo } = cursor
  if (upTo !== undefined || end.snapshot === undefined || from === end.text) return undefined
  return includesSnapshot(end.snapshot, parseSnapshot(from)!) ? end.text : undefined
}

/**
 * The last pages by the cursor they follow; who asks while one is being read shares it. A page that leads nowhere is
 * forgotten: while nothing is written the cursor stays the same, and must be read again.
 */
function openPageMemory() {
  const pages = new Map<string, Promise<Reading>>()
  const sizes: { key: string; events: number }[] = []
  let events = 0
  const remember = (key: string, page: Page) => {
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
    get: (key: string, read: () => Promise<Reading>): Promise<Reading> => {
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

/** Rings when told to, and when nobody has rung for the interval while somebody waits. */
function openBell(intervalMs: () => number) {
  let count = 0
  let closed = false
  let timer: NodeJS.Timeout | undefined
  let waiting: (() => void)[] = []
  const ring = () => {
    count += 1
    clearTimeout(timer)
    timer = undefined
    const woken = waiting
    waiting = []
    for (const wake of woken) wake()
  }
  return {
    count: () => count,
    ring,
    after: (rung: number): Promise<void> => {
      if (count > rung || closed) return Promise.resolve()
      timer ??= setTimeout(ring, intervalMs())
      return new Promise((resolve) => waiting.push(resolve))
    },
    close: () => {
      closed = true
      ring()
    },
  }
}
