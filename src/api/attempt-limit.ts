import type { Counters } from './counters.ts'
import { openWindows, type Verdict, verdictOf, type Window } from './windows.ts'

/** What an attempt is counted against. */
export type Budget = { readonly key: string; readonly limit: number }

export type AttemptLimit = (budgets: readonly Budget[]) => Promise<Verdict>

const rememberedAtMost = 50_000

/** `own`: how often this process has counted here. Whoever counted, the counter has come to that much. */
type Attempts = Window & { readonly own: number }

/**
 * Counts an attempt against all its budgets at once, in the shared counters: at most `limit` per window pass, however
 * many processes are asked at the same time. What is known to be used up is refused from memory, so a flood costs
 * nothing but its first requests.
 *
 * Rejects when nobody can count: an attempt that is not counted is not made.
 */
export function openAttemptLimit(counters: Counters, windowMs: number): AttemptLimit {
  const windows = openWindows<Attempts>(rememberedAtMost)

  const usedUp = (budgets: readonly Budget[]): Verdict[] =>
    budgets.flatMap(({ key, limit }) => {
      const window = windows.live(key)
      return window !== undefined && window.count >= limit ? [verdictOf(limit, window, false)] : []
    })

  const count = async (budgets: readonly Budget[]): Promise<Verdict[]> => {
    const additions = () =>
      budgets.map(({ key }) => {
        const known = windows.live(key)
        const remainingMs = known === undefined ? windowMs : known.endsAt - performance.now()
        return { key, add: 1, atLeast: known?.count ?? 0, windowMs: remainingMs }
      })
    const counts = await counters.add(additions)
    return budgets.map(({ key, limit }, i) => {
      const { count, remainingMs } = counts[i]!
      const known = windows.live(key)
      const own = (known?.own ?? 0) + 1
      const highest = Math.max(count, known?.count ?? 0, own)
      const window = windows.begin(key, { count: highest, own, endsAt: performance.now() + remainingMs })
      return verdictOf(limit, window, count <= limit)
    })
  }

  return async (budgets) => {
    const refusals = usedUp(budgets)
    return tightest(refusals.length > 0 ? refusals : await count(budgets))
  }
}

/** The one that refuses, for the longest; else the one that will refuse first. */
function tightest(verdicts: readonly Verdict[]): Verdict {
  return verdicts.reduce((a, b) => {
    if (a.allowed !== b.allowed) return a.allowed ? b : a
    if (a.allowed) return b.remaining < a.remaining ? b : a
    return b.resetMs > a.resetMs ? b : a
  })
}
