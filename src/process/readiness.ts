import { setTimeout as delay } from 'node:timers/promises'
import type { Failures } from '../adapters/failures.ts'
import { reasonInWords } from '../db/errors.ts'

/** How a part of a process is, as `GET /ready` shows it: to anybody, so a reason names no host and quotes nothing. */
export type PartCheck = { readonly ok: boolean; readonly reason?: string; readonly [more: string]: unknown }

/** A probe gives up after a few seconds, and would not learn what is wrong. */
const timeoutMs = 5000

/** The end of the time for all that one request looks at. */
type Deadline = Promise<PartCheck>

export function readyDeadline(): Deadline {
  return delay(timeoutMs, { ok: false, reason: `no answer within ${timeoutMs} ms` }, { ref: false })
}

/** What `look` finds; what it throws is told in full in the log, and in a few words in the answer. */
export async function checkPart(
  failures: Failures,
  deadline: Deadline,
  look: () => Promise<object>,
): Promise<PartCheck> {
  try {
    const found: PartCheck = await Promise.race([look().then((more) => ({ ok: true, ...more })), deadline])
    if (found.ok) failures.worked()
    return found
  } catch (error) {
    failures.failed(error)
    return { ok: false, reason: reasonInWords(error) }
  }
}
