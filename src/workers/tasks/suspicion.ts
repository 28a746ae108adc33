import type { ClaimedTask } from '../../features/tasks/tasks.ts'

/**
 * Which tasks are likely to break the process that they run in, as one worker knows: repetitions of what broke, and all
 * of a type while one of its last five first attempts here broke. What was thrown breaks nothing.
 */
export type Suspicion = {
  /** The types of which every task is suspected. */
  types(): readonly string[]
  /** Takes an attempt into account; tells when that changes what is thought of its type. */
  note(task: Pick<ClaimedTask, 'type' | 'retry_count'>, isBroken: boolean): 'began' | 'ended' | undefined
}

const goodOnesNeeded = 5

export function openSuspicion(): Suspicion {
  /** How many first attempts of a suspected type must still end well. */
  const missing = new Map<string, number>()
  return {
    types: () => [...missing.keys()],
    note({ type, retry_count }, isBroken) {
      // One bad task that is tried again and again says nothing about the others.
      if (retry_count > 0) return undefined
      const before = missing.get(type)
      const now = isBroken ? goodOnesNeeded : (before ?? 0) - 1
      if (now > 0) missing.set(type, now)
      else missing.delete(type)
      if (missing.has(type) === (before !== undefined)) return undefined
      return isBroken ? 'began' : 'ended'
    },
  }
}

/** The same question about one task that the statements ask (features/tasks/queries.ts). */
export function isSuspect({ type, retry_count }: Pick<ClaimedTask, 'type' | 'retry_count'>, types: readonly string[]) {
  return retry_count > 0 || types.includes(type)
}
