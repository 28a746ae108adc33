import type { Logger } from 'pino'
import type { Logs } from '../adapters/logger.ts'
import { openRedis, type Redis } from '../adapters/redis.ts'
import type { Configuration } from '../config/config.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import { type Addition, addToCounters, type Count, deleteEndedCounters } from '../db/unlogged/requests.ts'

/** A counter that an attempt is counted against. */
export type Budget = {
  readonly key: string
  readonly limit: number
  /** An attempt that succeeds takes nothing of it. One that is not made after all takes nothing of any budget. */
  readonly isGivenBack: boolean
}

export type Attempt = LimitVerdict & {
  /**
   * To be called after a success, or where the attempt was not made after all; returns the tries left. Rejects when no store can
   * count: then the attempt stays counted.
   */
  giveBack(why: ReasonToGiveBack): Promise<LimitVerdict>
}

type ReasonToGiveBack = 'success' | 'not made'

export type AttemptLimit = (budgets: readonly Budget[]) => Promise<Attempt>

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
 * a process; clients that have made less than a tenth of their requests are counted by this process alone.
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

/** Another process may have given something back since then. Milliseconds. */
const trustedMs = 1000

/** `own`: how often this process has counted here. The counter has come to that much, with the counts of others. */
type WindowCount = Window & { readonly own: number; readonly seenAt: number }
type CounterStep = { readonly key: string; readonly add: number; readonly window: string }

/**
 * Counts an attempt against all its budgets at once, in the shared counters: at most `limit` per window are made and
 * not given back, however many processes are asked at the same time. A budget that is known to be used up refuses from
 * memory for a second, so a flood costs each process a question a second.
 *
 * Attempts that are given back have a counter of their own beside that of all. Both only grow, so a process that has
 * older values than another, or lost them with Redis, takes no count back.
 *
 * Rejects when neither store can count: an attempt that is not counted is not made.
 */
export function openAttemptLimit(counters: Counters, windowMs: number): AttemptLimit {
  const book = openBook(counters, windowMs)
  return async (budgets) => {
    const refusals = book.usedUp(budgets)
    if (refusals.length > 0) return { ...tightest(refusals), giveBack: async () => tightest(refusals) }
    const verdicts = await book.count(budgets)
    const endsAt = book.endOf(budgets)
    const verdict = tightest(verdicts)
    if (!verdict.allowed) await book.giveBack(budgets, endsAt, 'not made')
    return {
      ...verdict,
      giveBack: async (why) => {
        await book.giveBack(budgets, endsAt, why)
        return tightest(budgets.map((budget, i) => book.knownOf(budget, true) ?? verdicts[i]!))
      },
    }
  }
}

/** The shared counters of attempts, as far as this process knows them. */
function openBook(counters: Counters, windowMs: number) {
  const windows = openWindows<WindowCount>(rememberedAtMost)
  const add = (steps: readonly CounterStep[]) => addSteps(counters, windows, windowMs, steps)

  const knownOf = ({ key, limit }: Budget, allowed: boolean): LimitVerdict | undefined => {
    const made = windows.live(key)
    if (made === undefined) return undefined
    const back = windows.live(backOf(key))?.count ?? 0
    return verdictOf(limit, { count: made.count - back, endsAt: made.endsAt }, allowed)
  }

  return {
    knownOf,
    /** The refusals that need no question. */
    usedUp: (budgets: readonly Budget[]): LimitVerdict[] =>
      budgets.flatMap((budget) => {
        const known = knownOf(budget, false)
        if (known === undefined || known.remaining > 0) return []
        return performance.now() - windows.live(budget.key)!.seenAt < trustedMs ? [known] : []
      }),
    count: async (budgets: readonly Budget[]): Promise<LimitVerdict[]> => {
      const counted = await add([
        ...budgets.map(({ key }) => ({ key, add: 1, window: key })),
        ...budgets.map(({ key }) => ({ key: backOf(key), add: 0, window: key })),
      ])
      return budgets.map((budget, i) => {
        const made = counted[i]! - counted[budgets.length + i]!
        return knownOf(budget, made <= budget.limit) ?? verdictOf(budget.limit, ended, true)
      })
    },
    endOf: (budgets: readonly Budget[]): number =>
      Math.min(...budgets.map(({ key }) => windows.live(key)?.endsAt ?? 0)),
    /** Of windows that are not over: in the next one it was never counted. */
    giveBack: async (budgets: readonly Budget[], endsAt: number, why: ReasonToGiveBack): Promise<void> => {
      if (performance.now() >= endsAt) return
      const open = budgets.filter(({ isGivenBack }) => isGivenBack || why === 'not made')
      if (open.length > 0) await add(open.map(({ key }) => ({ key: backOf(key), add: 1, window: key })))
    },
  }
}

/** Adds to the shared counters and notes what they say. */
async function addSteps(
  counters: Counters,
  windows: ReturnType<typeof openWindows<WindowCount>>,
  windowMs: number,
  steps: readonly CounterStep[],
): Promise<number[]> {
  const additions = () =>
    steps.map(({ key, add, window }) => {
      const endsAt = windows.live(window)?.endsAt
      const remainingMs = endsAt === undefined ? windowMs : endsAt - performance.now()
      return { key, add, atLeast: windows.live(key)?.count ?? 0, windowMs: remainingMs }
    })
  const counts = await counters.add(additions)
  return steps.map(({ key, add }, i) => {
    const { count, remainingMs } = counts[i]!
    const known = windows.live(key)
    const own = (known?.own ?? 0) + add
    const seenAt = performance.now()
    const highest = Math.max(count, known?.count ?? 0, own)
    windows.begin(key, { count: highest, own, seenAt, endsAt: seenAt + remainingMs })
    return count
  })
}

const backOf = (key: string) => `${key} back`
/** A window that was over before its counter was told. */
const ended: Window = { count: 0, endsAt: 0 }

/** The one that refuses, for the longest; else the one that will refuse first. */
function tightest(verdicts: readonly LimitVerdict[]): LimitVerdict {
  return verdicts.reduce((a, b) => {
    if (a.allowed !== b.allowed) return a.allowed ? b : a
    if (a.allowed) return b.remaining < a.remaining ? b : a
    return b.resetMs > a.resetMs ? b : a
  })
}

/** Counters that all processes share. */
type Counters = {
  /**
   * Adds to counters of different keys; what each has come to, in the same order. `additions` is asked again when the
   * other store has to count. Rejects when neither can.
   */
  add(additions: () => readonly Addition[]): Promise<Count[]>
  close(): Promise<void>
}

/**
 * In Redis where one is configured, in PostgreSQL otherwise and whenever Redis fails to answer. Each addition says what
 * its counter is known to have come to, so the store that takes over goes on from there, not from zero.
 */
export function openCounters(deps: UnloggedWrites & Configuration & Logs): Counters {
  const { redisUrl } = deps.config.rateLimit
  const postgres = postgresCounters(deps)
  if (redisUrl === undefined) return postgres
  const redis = openRedis(redisUrl, deps.log)
  let away = false
  return {
    add: async (additions) => {
      try {
        const counts = await addInRedis(redis, additions())
        away = false
        return counts
      } catch (error) {
        if (!away) deps.log.warn({ err: error }, 'Redis cannot count for the rate limits: PostgreSQL does')
        away = true
        return postgres.add(additions)
      }
    },
    close: async () => {
      redis.close()
      await postgres.close()
    },
  }
}

const cleaningEveryMs = 10_000
const cleanedAtMost = 5000

/** Counting also cleans up, now and then and beside the request. */
function postgresCounters(deps: UnloggedWrites & Logs): Counters {
  let cleanedAt = performance.now()
  let cleaning: Promise<void> | undefined
  const clean = () => {
    if (performance.now() - cleanedAt < cleaningEveryMs) return
    cleanedAt = performance.now()
    cleaning = deleteEndedCounters(deps, cleanedAtMost).catch((error: unknown) =>
      deps.log.warn({ err: error }, 'counters of the rate limits could not be cleaned up'),
    )
  }
  return {
    add: async (current) => {
      clean()
      const additions = current()
      const found = new Map((await addToCounters(deps, additions)).map((count) => [count.key, count]))
      return additions.map(({ key }) => found.get(key)!)
    },
    close: async () => cleaning,
  }
}

const keyPrefix = 'daybook:limit:'

async function addInRedis(redis: Redis, additions: readonly Addition[]): Promise<Count[]> {
  const values = additions.flatMap(({ add, atLeast, windowMs }) => [add, atLeast, Math.max(1, Math.ceil(windowMs))])
  const keys = additions.map(({ key }) => keyPrefix + key)
  const counts = (await redis.run(addScript, keys, values)) as [count: number, remainingMs: number][]
  return additions.map(({ key }, i) => ({ key, count: counts[i]![0], remainingMs: counts[i]![1] }))
}

/** The same as the statement in db/unlogged/requests.ts. */
const addScript = `
local counts = {}
for i, key in ipairs(KEYS) do
  local add, floor, ms = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local left = redis.call('pttl', key)
  local count = left > 0 and tonumber(redis.call('get', key)) or 0
  count = math.max(count, floor) + add
  if left > 0 then
    redis.call('set', key, count, 'keepttl')
  else
    left = ms
    redis.call('set', key, count, 'px', ms)
  end
  counts[i] = { count, left }
end
return counts`

/** A counter as this process knows it, until the end of its window. */
type Window = {
  count: number
  /** By `performance.now()`, which no change of the clock moves. */
  endsAt: number
}

type Windows<Known extends Window> = {
  /** Undefined when there is none or it is over. */
  live(key: string): Known | undefined
  begin(key: string, window: Known): Known
}

/** Remembers the newest of them; a client without one begins anew, or with what the shared counter says. */
export function openWindows<Known extends Window = Window>(atMost: number): Windows<Known> {
  const windows = new Map<string, Known>()
  return {
    live: (key) => {
      const window = windows.get(key)
      return window !== undefined && performance.now() < window.endsAt ? window : undefined
    },
    begin: (key, window) => {
      windows.delete(key)
      windows.set(key, window)
      if (windows.size > atMost) windows.delete(windows.keys().next().value!)
      return window
    },
  }
}

/** The verdict of a limit on one request. */
export type LimitVerdict = {
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly resetMs: number
}

function verdictOf(limit: number, { count, endsAt }: Window, allowed: boolean): LimitVerdict {
  return { allowed, limit, remaining: Math.max(0, limit - count), resetMs: Math.max(0, endsAt - performance.now()) }
}
