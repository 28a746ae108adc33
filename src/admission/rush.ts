import { lightAskedSoFar } from './asker.ts'
import { noRush, type Rush, rushStep } from './step.ts'

/** How much that is light is asked for in this process. */
export function rushNow(): Rush {
  rush = rushStep(rush, { now: performance.now(), asked: lightAskedSoFar() })
  return rush
}

let rush: Rush = noRush
