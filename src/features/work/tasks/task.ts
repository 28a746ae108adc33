import type { Actor } from '../../../events/types.ts'
import { systemActor } from '../../../events/types.ts'

/**
 * A row of svc_Tasks goes `Not started` → `Running` → `Completed` | `Error`. Its runner holds the
 * token of the attempt. Recording anything needs that token, so an attempt that was given up on (its process stood still, the
 * time was over, somebody set the row back) changes nothing any more.
 */

/** The actor that the log names. */
export const tasksActor: Actor = { ...systemActor, userAgent: 'daybook tasks' }

/** One attempt of a task, with all that its handler is told. */
export type ClaimedTask = {
  readonly id: number
  readonly type: string
  readonly token: string
  readonly data: unknown
  readonly tenant_Id: string | null
  readonly userCreated_Id: string | null
  readonly attachment_id: string | null
  /** ISO 8601. */
  readonly scheduled_time: string
  /** 0 for the first attempt. */
  readonly retry_count: number
  readonly max_retries: number
  /** Stable over all attempts, for whoever is told something outside of the database. */
  readonly idempotencyKey: string
  /** The tenant has lost the user who created the task. */
  readonly creatorLeft: boolean
}

/** The proof that an attempt may still write. */
export type AttemptClaim = Pick<ClaimedTask, 'id' | 'token'>

/** Why a task of a tenant ends in Error when its creator does not belong to the tenant any more. */
export const creatorLeftMessage = 'The user who created the task is not in its tenant any more'

/** Tasks further ahead than this are not listed. */
export const windowHours = 4

const longestMessage = 2000

/** The content of `error_data`; a thrown value may be anything, and may even throw when it is read. */
export function messageOf(thrown: unknown): string {
  try {
    const message = thrown instanceof Error ? thrown.message || thrown.name : String(thrown)
    return storable(message)
  } catch {
    return 'something was thrown that cannot be shown'
  }
}

/** Text that a JSON column can hold. */
function storable(text: string): string {
  return text.replaceAll('\0', '').slice(0, longestMessage).toWellFormed()
}

const longestResult = 1_000_000

/**
 * The JSON text of what a handler returned; null for nothing.
 *
 * @throws {TypeError} when it cannot be stored: a cycle, a BigInt, more than a million characters
 */
export function resultJson(result: unknown): string | null {
  const json = JSON.stringify(result)
  if (json === undefined) return null
  if (json.length > longestResult) throw new TypeError(`the result is longer than ${longestResult} characters`)
  return json
}

/** A report of a handler; the share that is done is kept between 0 and 1. */
export type TaskProgress = { readonly share: number; readonly message: string | null }

/** @throws {TypeError} when `share` is no number */
export function progressOf(share: unknown, message: unknown): TaskProgress {
  if (typeof share !== 'number' || Number.isNaN(share)) throw new TypeError('progress is a number from 0 to 1')
  const text = message === undefined || message === null ? null : storable(String(message)).slice(0, 255)
  return { share: Math.min(1, Math.max(0, share)), message: text }
}
