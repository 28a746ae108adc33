import type { Logs } from '../adapters/logger.ts'
import { openRedis, type Redis } from '../adapters/redis.ts'
import type { Configuration } from '../config/config.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import { type Addition, addToCounters, type Count, deleteEndedCounters } from '../db/unlogged/counters.ts'

/** Counters that all processes share. */
export type Counters = {
  /**
   * Adds to counters of different keys; what each has come to, in the same order. `additions` is asked again when another
   * one has to count. Rejects when nobody can.
   */
  add(additions: () => readonly Addition[]): Promise<Count[]>
  close(): Promise<void>
}

/**
 * In Redis where one is configured, in PostgreSQL otherwise and whenever Redis fails to answer. Each addition says what
 * its counter is known to have come to, so whoever takes over goes on from there and not from nothing.
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

/** The same as the statement in db/unlogged/counters.ts. */
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
export type Window = {
  count: number
  /** By `performance.now()`, which no change of the clock moves. */
  endsAt: number
}

type Windows<Known extends Window> = {
  /** Undefined when there is none or it is over. */
  live(key: string): Known | undefined
  begin(key: string, window: Known): Known
}

/** Remembers the newest of them; who has none begins anew, or with what the shared counter says. */
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

export function verdictOf(limit: number, { count, endsAt }: Window, allowed: boolean): LimitVerdict {
  return { allowed, limit, remaining: Math.max(0, limit - count), resetMs: Math.max(0, endsAt - performance.now()) }
}
