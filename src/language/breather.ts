import { setImmediate as nextTurn } from 'node:timers/promises'

/** How long one request may keep all others waiting. Milliseconds. */
const longestTurnMs = 10

/**
 * To be called between the pieces of long work that waits for nothing: after ten milliseconds it lets others have their
 * turn.
 */
export function breather(): () => Promise<void> | undefined {
  let since = performance.now()
  return () => {
    if (performance.now() - since < longestTurnMs) return undefined
    return nextTurn().then(() => {
      since = performance.now()
    })
  }
}
