import { setTimeout as delay } from 'node:timers/promises'

export type WaitOptions = {
  /** Milliseconds until it fails; default 40 seconds: only a test that fails anyway waits that long. */
  timeout?: number
  /** Named in the failure. */
  what?: string
}

/** Milliseconds. */
const [shortestPause, longestPause] = [10, 100]

/**
 * Asks until the answer is truthy, and returns it. An exception counts as "not yet" and is shown on failure. The longer it
 * lasts, the less often it asks, so that asking takes nothing of what is waited for.
 */
export async function waitFor<T>(condition: () => T | Promise<T>, options: WaitOptions = {}): Promise<Truthy<T>> {
  const { timeout = 40_000, what = condition.toString() } = options
  const limit = performance.now() + timeout
  let last: unknown
  let pause = shortestPause
  while (performance.now() < limit) {
    try {
      const answer = await condition()
      if (answer) return answer as Truthy<T>
      last = answer
    } catch (error) {
      last = error
    }
    await delay(pause)
    pause = Math.min(longestPause, pause * 1.15)
  }
  throw new Error(`waited ${timeout} ms in vain for ${what}; last: ${String(last)}`, { cause: last })
}

/** Asks again for as long as the answer is a refusal by admission, as clients of a busy machine do. */
export async function untilAdmitted<Answer extends { readonly status: number; readonly body: any }>(
  ask: () => Promise<Answer>,
): Promise<Answer> {
  for (;;) {
    const answer = await ask()
    if (answer.status !== 503 || (answer.body.code ?? answer.body.error.code) !== 'OVERLOADED') return answer
    await delay(shortestPause)
  }
}

type Truthy<T> = Exclude<T, undefined | null | false | 0 | ''>
