/** Runs one step of the story: it has held when `run` resolves. */
export type Step = <T>(title: string, run: (see: See) => Promise<T>) => Promise<T>

/** Says what was seen on the way. */
export type See = (what: string) => void

/** Shows every step when it is over: its title, with ✓ when it has held, and under it what was seen. */
export function showSteps(say: (text: string) => void): Step {
  return async (title, run) => {
    const seen: string[] = []
    const show = (mark: string) => say([`${mark} ${title}`, ...seen.map((what) => `    ${what}`)].join('\n'))
    try {
      const result = await run((what) => seen.push(what))
      show('✓')
      return result
    } catch (error) {
      show('✗')
      throw error
    }
  }
}
