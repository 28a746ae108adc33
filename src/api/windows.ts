/** What this process knows of a counter, until the end of its window. */
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

/** What a limit says to one request. */
export type Verdict = {
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly resetMs: number
}

export function verdictOf(limit: number, { count, endsAt }: Window, allowed: boolean): Verdict {
  return { allowed, limit, remaining: Math.max(0, limit - count), resetMs: Math.max(0, endsAt - performance.now()) }
}
