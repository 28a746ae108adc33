/** Runs work so that no more than `atOnce` of it is under way; the rest waits its turn. */
export type Gate = <Result>(work: () => Promise<Result>) => Promise<Result>

export function openGate(atOnce: number): Gate {
  const turns: (() => void)[] = []
  let running = 0
  return async (work) => {
    if (running >= atOnce) await new Promise<void>((resolve) => turns.push(resolve))
    else running += 1
    try {
      return await work()
    } finally {
      const next = turns.shift()
      if (next === undefined) running -= 1
      else next()
    }
  }
}
