import type { Logger } from 'pino'
import { type Counters, type LimitVerdict, openWindows, verdictOf, type Window } from './counters.ts'

export type RequestLimit = {
  /** Counts a request, or refuses it. Does not wait for anything. */
  take(key: string): LimitVerdict
  /** Tells the other processes what they do not know yet; resolves when they can. */
  share(): Promise<void>
  close(): Promise<void>
}

type RequestLimitOptions = { limit: number; windowMs: number; counters: Counters; log: Logger }

/** `unsent`: how much of the count the other processes do not know yet. */
type Requests = Window & { unsent: number }

const rememberedAtMost = 50_000
const shareEveryMs = 250

/**
 * Decides by memory and shares it in the background, in one statement for all clients (docs/decisions/0010). Exact within
 * a process; clients that have made less than a tenth of their requests are nobody's business but this process's.
 */
export function openRequestLimit({ limit, windowMs, counters, log }: RequestLimitOptions): RequestLimit {
  const windows = openWindows<Requests>(rememberedAtMost)
  const sharedFrom = Math.ceil(limit / 10)
  const toShare = new Map<string, Requests>()
  let timer: NodeJS.Timeout | undefined
  let sharing = Promise.resolve()
  let hasFailed = false

  const share = async (): Promise<void> => {
    const entries = [...toShare].filter(([, window]) => window.endsAt > performance.now())
    toShare.clear()
    if (entries.length === 0) return
    const error = await shareCounts(counters, entries)
    if (error !== undefined && !hasFailed)
      log.warn({ err: error }, 'the limit of requests is not shared: each process counts by itself')
    hasFailed = error !== undefined
  }

  const inTurn = (): Promise<void> => {
    timer = undefined
    sharing = sharing.then(share)
    return sharing
  }

  const plan = (key: string, window: Requests) => {
    toShare.set(key, window)
    timer ??= setTimeout(inTurn, Math.min(shareEveryMs, windowMs / 4)).unref()
  }

  return {
    take: (key) => {
      const window =
        windows.live(key) ?? windows.begin(key, { count: 0, unsent: 0, endsAt: performance.now() + windowMs })
      if (window.count >= limit) return verdictOf(limit, window, false)
      window.count += 1
      window.unsent += 1
      if (window.count >= sharedFrom) plan(key, window)
      return verdictOf(limit, window, true)
    },
    share: inTurn,
    close: async () => {
      clearTimeout(timer)
      await sharing
    },
  }
}

/** Adds what is unsent to the shared counters and learns what they say; gives the error where they cannot be reached. */
async function shareCounts(counters: Counters, entries: readonly (readonly [string, Requests])[]): Promise<unknown> {
  const additions = entries.map(([key, window]) => {
    const add = window.unsent
    window.unsent = 0
    const atLeast = window.count - add
    return { key: `requests of ${key}`, add, atLeast, windowMs: window.endsAt - performance.now() }
  })
  try {
    const counts = await counters.add(() => additions)
    entries.forEach(([, window], i) => {
      // Requests that came meanwhile are not in the shared count yet.
      window.count = counts[i]!.count + window.unsent
      window.endsAt = performance.now() + counts[i]!.remainingMs
    })
    return undefined
  } catch (error) {
    entries.forEach(([, window], i) => {
      window.unsent += additions[i]!.add
    })
    return error
  }
}
