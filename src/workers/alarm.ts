/** A bell that is heard by the next who waits, also when it rang before. */
export function openAlarm() {
  let rung = false
  let awake: (() => void) | undefined
  const ring = () => {
    rung = true
    awake?.()
  }
  /** Until it rings, at most `ms`. */
  const wait = async (ms: number | undefined) => {
    if (!rung) {
      let timer: NodeJS.Timeout | undefined
      await new Promise<void>((resolve) => {
        awake = resolve
        if (ms !== undefined) timer = setTimeout(resolve, ms)
      })
      clearTimeout(timer)
    }
    rung = false
  }
  return { ring, wait }
}

/** Waits for the end of something, at most `ms`. */
export async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, over])
  clearTimeout(timer)
}
