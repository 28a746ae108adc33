/** A timer waits no longer: those of a machine that sleeps stand still. Milliseconds. */
const longestWaitMs = 60_000

/**
 * After an attempt that has failed: so soon that one whose answer was lost is repeated while the server still answers it.
 * Milliseconds.
 */
const longestPauseMs = 20_000

/** A credential is renewed when a quarter of its life is left. */
export const renewAt = 0.75

/** Milliseconds since 1970. */
export type Life = { readonly begins: number; readonly ends: number }

export type Renewal = {
  /** The credential may be another one by now, or the machine has slept. */
  look(): void
  close(): void
}

/**
 * Calls `renew` before the life of a credential ends, although nobody asks for it. `present`: the credential, told apart by its
 * name; undefined where there is none, or none that ends.
 */
export function openRenewal(
  present: () => { readonly name: string; readonly life: Life } | undefined,
  renew: () => Promise<unknown>,
): Renewal {
  let watched: string | undefined
  let dueAt = 0
  let timer: ReturnType<typeof setTimeout> | undefined
  let isClosed = false
  const look = () => {
    clearTimeout(timer)
    const credential = isClosed ? undefined : present()
    if (credential === undefined) {
      watched = undefined
      return
    }
    const { name, life } = credential
    const now = Date.now()
    if (name !== watched) dueAt = firstDue(life, now)
    watched = name
    if (now >= dueAt) {
      // Unless it succeeds.
      dueAt = now + pauseOf(life)
      void renew().then(look, look)
      return
    }
    timer = setTimeout(look, Math.min(dueAt - now, longestWaitMs))
    // In Node a session keeps no process from ending.
    ;(timer as { unref?(): void }).unref?.()
  }
  look()
  return {
    look,
    close() {
      isClosed = true
      clearTimeout(timer)
    },
  }
}

/** Not all tabs at one moment; and not at once, however wrong the clock is, since requests renew what they need. */
function firstDue(life: Life, now: number): number {
  const { begins, ends } = life
  const span = ends - begins
  const soonest = now < ends ? Math.min(span / 10, (ends - now) / 2) : pauseOf(life)
  return Math.max(begins + span * (renewAt + Math.random() / 10), now + soonest)
}

/** After an attempt that has failed. */
const pauseOf = ({ begins, ends }: Life): number =>
  Math.min(longestPauseMs, (ends - begins) / 20) * (0.75 + Math.random() / 2)
