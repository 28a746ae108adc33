import type { Weight } from './step.ts'

/** What is thought of work whose cost nobody has seen yet. */
export type Presumed = 'cheap' | 'heavy'

/**
 * Runs that hold a place for longer are slow. Milliseconds. Of what is cheap to most it takes more to doubt it: a machine
 * that is busy with other things makes everything slow.
 */
const slowMs: Readonly<Record<Presumed, number>> = { heavy: 100, cheap: 1000 }
/** What has been quick before, or is of a kind that mostly is, may be slow for so long before that counts. */
const graceMs = 1000
/** The average of what may be heavy and never is. Milliseconds. */
const quickMs = 50

/** How long work of one shape takes. */
export type Cost = {
  /** The recent average; undefined before the first end. */
  readonly ms: number | undefined
  /** When a quick run ended last. */
  readonly quickAt: number | undefined
  /** Since when every run has been slow. */
  readonly slowSince: number | undefined
}

export const unknownCost: Cost = { ms: undefined, quickAt: undefined, slowSince: undefined }

/** After a run. One quick run is proof: the load of others makes work slower, and nothing makes it faster. */
export function afterRun(cost: Cost, presumed: Presumed, startedAt: number, now: number): Cost {
  const ms = now - startedAt
  const average = cost.ms === undefined ? ms : cost.ms + (ms - cost.ms) * (ms < cost.ms ? 0.5 : 0.2)
  if (ms <= slowMs[presumed]) return { ms: average, quickAt: now, slowSince: undefined }
  return { ...duringRun(cost, presumed, startedAt, now), ms: average }
}

/** While a run lasts: it is as slow as it is old. */
export function duringRun(cost: Cost, presumed: Presumed, startedAt: number, now: number): Cost {
  if (now - startedAt <= slowMs[presumed] || cost.slowSince !== undefined) return cost
  return { ...cost, slowSince: Math.max(startedAt, cost.quickAt ?? startedAt) }
}

/** What is presumed heavy never counts as cheap, however quick it is: it may become slow all at once. */
export function weightOf({ ms, quickAt, slowSince }: Cost, presumed: Presumed, now: number): Weight {
  const grace = quickAt !== undefined || presumed === 'cheap' ? graceMs : 0
  if (slowSince !== undefined && now - slowSince >= grace) return presumed === 'heavy' ? 'heavy' : 'doubtful'
  if (presumed === 'cheap') return 'cheap'
  return slowSince === undefined && ms !== undefined && ms <= quickMs ? 'quick' : 'doubtful'
}
