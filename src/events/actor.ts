/** The actor of a change, as the log records it: user, role, program, and the cause (ADR 49). */
import { newId } from '../adapters/ids.ts'
import type { Tx } from '../db/sql.ts'
import type { RepeatableRequest } from '../db/unlogged/requests.ts'

/**
 * The program that acts for a user, where it says so: an assistant, a script, and the tool of it that was used. `scope`: what
 * it may do for the user, where it has a token of its own; what its changes lead to may do no more.
 */
export type Agent = { readonly name: string; readonly tool?: string; readonly scope?: string }

/** By what one request leads to another. */
export const causedBy = ['hook', 'task', 'job', 'workflow', 'webhook'] as const

/** The cause of a change: the request (by the log's id of it) whose hook, task or other consequence it is. */
export type Cause = {
  readonly request: string
  /** 1 for what a request leads to, 2 for what that leads to. */
  readonly depth: number
  readonly by: (typeof causedBy)[number]
  /** The workflows that led to it one after the other, each with the record that it was triggered by. */
  readonly chain?: readonly string[]
  /** The user whose rights it had, where these are not those of the user who triggered it all; null: no user's. */
  readonly as?: string | null
}

/** A longer chain counts as a loop, where programs that users write could make one. */
export const deepestCause = 8

/** The user, role and program that do something. Reaches the log with every change. */
export type Actor = {
  readonly userId: string | undefined
  readonly roleId: string | undefined
  readonly tenantId: string | undefined
  readonly ip: string | undefined
  readonly userAgent: string | undefined
  /** The answer's `x-request-id`, which clients may choose. */
  readonly requestId: string | undefined
  /**
   * The log's own id of what is done together, mostly a request: made by the server, in the order of time (UUIDv7), and
   * nobody else's. All of it is written soon after the time in the id (`requestWindow`), which is how it is found.
   */
  readonly logRequestId?: string | undefined
  readonly agent?: Agent | undefined
  readonly cause?: Cause | undefined
  /** The request itself, to count what is written for it. */
  readonly request?: object | undefined
  /** Set where the request may be repeated without being done twice. */
  readonly repeatable?: RepeatableRequest | undefined
  /** Asked at the beginning of each of its transactions; throws when the actor may not write any more. */
  readonly guard?: ((tx: Tx) => Promise<void>) | undefined
}

/** The platform itself: workers, setup, migrations. */
export const systemActor: Actor = {
  userId: undefined,
  roleId: undefined,
  tenantId: undefined,
  ip: undefined,
  userAgent: 'daybook',
  requestId: undefined,
}

/** The actor as the triggers read it from the setting `svc.actor`; keys as in `log.ts`. */
export function actorJson(actor: Actor): string {
  return JSON.stringify({
    user: actor.userId,
    role: actor.roleId,
    tenant: actor.tenantId,
    ip: actor.ip,
    agent: actor.userAgent?.slice(0, 512),
    request: actor.requestId,
    id: actor.logRequestId,
    by: actor.agent,
    cause: actor.cause,
  })
}

type Caused = { readonly logRequestId?: string | undefined; readonly cause?: Cause | null | undefined }

/** The cause of what an actor's changes lead to; undefined where the log knows no request of the actor. */
export function causeOf({ logRequestId: request, cause }: Caused, by: Cause['by']): Cause | undefined {
  if (request === undefined) return undefined
  return { request, depth: (cause?.depth ?? 0) + 1, by, ...(cause?.chain && { chain: cause.chain }) }
}

/**
 * The actor of what was left to be done later (a job, a task, an execution) with the cause that was kept with it: to the log
 * a request of its own, which has that cause. Without one it is the actor as it is.
 */
export function causedActor(actor: Actor, cause: Cause | undefined): Actor {
  return cause === undefined ? actor : { ...actor, logRequestId: newId(), cause }
}

/**
 * The actor of what an actor's change leads to at once: the same user and program, another request to the log, which has
 * the first one as its cause. Each call makes another request.
 */
export function consequenceOf(actor: Actor, by: Cause['by']): Actor {
  return causedActor({ ...actor, logRequestId: newId() }, causeOf(actor, by))
}
