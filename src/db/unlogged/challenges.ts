import { sql, type Tx } from '../sql.ts'

/*
 * Challenges: what somebody was asked and has five minutes to answer. They ride in the transactions of the sign-ins that
 * they are part of; hence they take a Tx.
 */

/** By the database's clock. */
const challengeSeconds = 300

export type Challenge = {
  /** `{purpose}:{subject or hash}`: a challenge of one purpose answers no other one. */
  readonly identifier: string
  /** Whose it is; null when nobody has said yet. */
  readonly userId: string | null
  readonly data: Readonly<Record<string, unknown>>
}

/**
 * Takes the place of an earlier challenge of the same identifier, for `seconds` from now. Ends a few expired ones on the
 * way.
 */
export async function insertChallenge(
  tx: Tx,
  { identifier, userId, data }: Challenge,
  seconds = challengeSeconds,
): Promise<void> {
  await tx.any(sql.unsafe`
    with expired as (
      delete from "svc_Challenge" where identifier <> ${identifier} and identifier in (
        select identifier from "svc_Challenge" where "expiresAt" <= now()
        order by "expiresAt" limit 10 for update skip locked))
    insert into "svc_Challenge" as c (identifier, "user_Id", data, "expiresAt")
    values (${identifier}, ${userId}::uuid, ${sql.jsonb(data as never)}, now() + make_interval(secs => ${seconds}))
    on conflict (identifier) do update
      set "user_Id" = excluded."user_Id", data = excluded.data, attempts = 0, "expiresAt" = excluded."expiresAt"`)
}

/**
 * Counts a try to answer; false when the challenge is gone or its tries are used up. Holds it until the transaction
 * ends, so that simultaneous tries come one after the other.
 */
export async function attemptChallenge(tx: Tx, identifier: string, triesAtMost: number): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    update "svc_Challenge" set attempts = attempts + 1
    where identifier = ${identifier} and attempts < ${triesAtMost} and "expiresAt" > now() returning identifier`)
  return rows.length === 1
}

/** Uses a challenge up; undefined when it is unknown, used or expired. Of simultaneous calls one gets it. */
export async function takeChallenge(tx: Tx, identifier: string): Promise<Challenge['data'] | undefined> {
  const taken = await tx.maybeOne<Pick<Challenge, 'data'>>(sql.unsafe`
    delete from "svc_Challenge" where identifier = ${identifier} and "expiresAt" > now() returning data`)
  return taken?.data
}

/** Ends what a user was asked and has not answered. */
export async function deleteChallengesOf(tx: Tx, userId: string): Promise<void> {
  await tx.any(sql.unsafe`delete from "svc_Challenge" where "user_Id" = ${userId}::uuid`)
}
