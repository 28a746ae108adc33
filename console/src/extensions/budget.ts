/** How much a frame may say: a pure step, so that no frame can keep the console busy. */
export type Budget = {
  /** Messages that it may still send at once. */
  readonly left: number
  /** When that was reckoned, in milliseconds. */
  readonly at: number
  /** Calls that are not answered yet. */
  readonly inFlight: number
}

export const limits = { burst: 300, perSecond: 60, inFlight: 16 } as const

export const fresh = (now: number): Budget => ({ left: limits.burst, at: now, inFlight: 0 })

/** `busy` refuses a call, `flood` ends the connection. */
export type Verdict = 'go' | 'busy' | 'flood'

/** A message has come. Only a call that may `go` counts as in flight. */
export function heard({ left, at, inFlight }: Budget, now: number, isCall: boolean): readonly [Budget, Verdict] {
  const earned = (Math.max(0, now - at) / 1000) * limits.perSecond
  const rest = Math.min(limits.burst, left + earned) - 1
  const next = { left: Math.max(0, rest), at: now, inFlight }
  if (rest < 0) return [next, 'flood']
  if (!isCall) return [next, 'go']
  return inFlight >= limits.inFlight ? [next, 'busy'] : [{ ...next, inFlight: inFlight + 1 }, 'go']
}

/** A call was answered. */
export const answered = (budget: Budget): Budget => ({ ...budget, inFlight: budget.inFlight - 1 })
