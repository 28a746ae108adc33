/** The TASK_CONCURRENCY places of a process: taken by the tasks that it runs and by handlers that run some themselves. */
export type Places = {
  free(): number
  taken(): number
  take(): Place
  /** Resolves when none is taken. */
  idle(): Promise<void>
}

export type Place = { free(): void }

export function openPlaces(concurrency: number, onFree: () => void): Places {
  const taken = new Set<Place>()
  let waiting: (() => void)[] = []
  return {
    free: () => Math.max(0, concurrency - taken.size),
    taken: () => taken.size,
    take() {
      const place = {
        free() {
          if (!taken.delete(place)) return
          onFree()
          if (taken.size > 0) return
          for (const resolve of waiting) resolve()
          waiting = []
        },
      }
      taken.add(place)
      return place
    },
    idle: () => (taken.size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
  }
}
