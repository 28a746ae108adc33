import { setTimeout as delay } from 'node:timers/promises'

const limitMs = 30_000

/** Asks until the answer is neither undefined nor false, and returns it. Fails after 30 seconds, saying what it waited for. */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
): Promise<T> {
  for (const limit = performance.now() + limitMs; performance.now() < limit; await delay(20)) {
    const answer = await ask()
    if (answer !== undefined && answer !== false) return answer
  }
  throw new Error(`waited ${limitMs / 1000} s in vain for ${what}`)
}
