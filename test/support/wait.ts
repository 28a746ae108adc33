import { setTimeout as delay } from 'node:timers/promises'

export type WaitOptions = {
  /** Milliseconds until it fails; default {@link longestWaitMs}. */
  timeout?: number
  /** Named in the failure. */
  what?: string
}

/**
 * Milliseconds after which what a test waits for will not come any more, also on a machine that others keep busy. Only a test that
 * fails anyway waits that long, so nothing is won by less.
 */
export const longestWaitMs = 100_000

/** Milliseconds. */
const [shortestPause, longestPause] = [10, 100]

/**
 * Asks until the answer is truthy, and returns it. An exception counts as "not yet" and is shown on failure. The longer it
 * lasts, the less often it asks, so that asking takes nothing of what is waited for.
 */
export async function waitFor<T>(condition: () => T | Promise<T>, options: WaitOptions = {}): Promise<Truthy<T>> {
  const { timeout = longestWaitMs, what = condition.toString() } = options
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

type StatusAndBody = { readonly status: number; readonly body: any }
/** As `inject` of a web process in this process gives it. */
type Injected = { readonly statusCode: number; readonly body: string }

/**
 * Milliseconds: a refusal says to come back in a second. For as long another process may still count the attempt that was none.
 */
const longerThanRefused = 1500

/**
 * Asks again for as long as the answer is a refusal by admission, as clients of a busy machine do. For requests beside each other that
 * need a hash: a slow machine turns some of them away, before they count as an attempt.
 */
export async function untilAdmitted<Answer extends StatusAndBody | Injected>(
  ask: () => Promise<Answer>,
): Promise<Answer> {
  for (;;) {
    const answer = await ask()
    if (!wasTurnedAway(answer)) return answer
    await delay(longerThanRefused)
  }
}

function wasTurnedAway(answer: StatusAndBody | Injected): boolean {
  const { status, body } = 'statusCode' in answer ? { status: answer.statusCode, body: answer.body } : answer
  if (status !== 503) return false
  const { code, error } = typeof body === 'string' ? JSON.parse(body) : body
  return (code ?? error.code) === 'OVERLOADED'
}

type Truthy<T> = Exclude<T, undefined | null | false | 0 | ''>
