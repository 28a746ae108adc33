/** How long to wait before the next attempt, milliseconds. */
export type BackoffOptions = { readonly firstMs: number; readonly longestMs: number }

export type Backoff = {
  /** Runs this later, each time after twice as long; what was to run before does not. */
  later(run: () => void): void
  /** An attempt has succeeded: the next wait is short again. */
  reset(): void
  /** Nothing runs any more. */
  cancel(): void
}

export function openBackoff({ firstMs, longestMs }: BackoffOptions): Backoff {
  let failures = 0
  let timer: ReturnType<typeof setTimeout> | undefined
  const cancel = () => clearTimeout(timer)
  return {
    later: (run) => {
      cancel()
      const wait = Math.min(longestMs, firstMs * 2 ** failures)
      failures += 1
      // All clients lose a server at the same moment; they shall not all come back at the same one.
      timer = setTimeout(run, wait * (0.5 + Math.random() / 2))
    },
    reset: () => {
      failures = 0
    },
    cancel,
  }
}
