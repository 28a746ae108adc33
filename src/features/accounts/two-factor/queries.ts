import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import type { Challenge } from '../../../db/unlogged/secrets.ts'

/** Whether a user must be asked for a second factor. */
export async function hasSecondFactor(db: Reader, userId: string): Promise<boolean> {
  const { found } = await db.one<{ found: boolean }>(sql.unsafe`
    select exists(select from "svc_TwoFactor" where "user_Id" = ${userId} and enabled) as found`)
  return found
}

/** A challenge that can still be answered, without counting a try. */
export function findChallenge(db: Reader, identifier: string): Promise<Challenge | undefined> {
  return db.maybeOne<Challenge>(sql.unsafe`
    select identifier, "user_Id" as "userId", data from "svc_Challenge"
    where identifier = ${identifier} and "expiresAt" > now()`)
}

type Enrolment = {
  /** Sealed. */
  readonly secret: string
  readonly enabled: boolean
  /** Too many wrong codes: for now none counts. */
  readonly locked: boolean
  /** Wrong codes in a row. */
  readonly failures: number
  /** Milliseconds since 1970 by the database's clock. */
  readonly now: number
}

/** A user's enrolment, held until the transaction ends, so that codes of one user are checked one after the other. */
export function lockEnrolment(tx: Tx, userId: string): Promise<Enrolment | undefined> {
  return tx.maybeOne<Enrolment>(sql.unsafe`
    select secret, enabled, coalesce("lockedUntil" > clock_timestamp(), false) as locked, failures,
      (extract(epoch from clock_timestamp()) * 1000)::float8 as now
    from "svc_TwoFactor" where "user_Id" = ${userId} for update`)
}

type NewEnrolment = {
  readonly userId: string
  /** Sealed. */
  readonly secret: string
  /** Keyed hashes. */
  readonly backupCodes: readonly string[]
}

/** Begins an enrolment, or begins it anew; false when a finished one is there. */
export async function beginEnrolment(tx: Tx, { userId, secret, backupCodes }: NewEnrolment): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    insert into "svc_TwoFactor" as f ("user_Id", secret, "backupCodes")
    values (${userId}, ${secret}, ${sql.jsonb(backupCodes as never)})
    on conflict ("user_Id") do update
      set secret = excluded.secret, "backupCodes" = excluded."backupCodes", "lastStep" = null, "updatedAt" = now()
      where not f.enabled
    returning id`)
  return rows.length === 1
}

/** Finishes an enrolment; false when that was done already. Its code is used up. */
export async function finishEnrolment(tx: Tx, userId: string, step: number): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    update "svc_TwoFactor" set enabled = true, "lastStep" = ${step}, "updatedAt" = now()
    where "user_Id" = ${userId} and not enabled returning id`)
  return rows.length === 1
}

/** Uses up every code up to the step; false when this one is used up already. */
export async function acceptStep(tx: Tx, userId: string, step: number): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    update "svc_TwoFactor" set "lastStep" = ${step}, failures = 0, "lockedUntil" = null
    where "user_Id" = ${userId} and enabled and ("lastStep" is null or "lastStep" < ${step}) returning id`)
  return rows.length === 1
}

/** Uses a backup code up; false when none of the hashes is one that is left. */
export async function acceptBackupCode(tx: Tx, userId: string, hashes: readonly string[]): Promise<boolean> {
  const wanted = sql.array([...hashes], 'text')
  const rows = await tx.any(sql.unsafe`
    update "svc_TwoFactor"
    set "backupCodes" = "backupCodes" - ${wanted}, failures = 0, "lockedUntil" = null, "updatedAt" = now()
    where "user_Id" = ${userId} and enabled and "backupCodes" ?| ${wanted} returning id`)
  return rows.length === 1
}

/** Replaces a secret that was sealed with the previous key. */
export async function resealSecret(tx: Tx, userId: string, secret: string): Promise<void> {
  await tx.any(sql.unsafe`update "svc_TwoFactor" set secret = ${secret} where "user_Id" = ${userId}`)
}

/** Counts a wrong code, and locks the account for these seconds; a new challenge changes nothing about that. */
export async function countWrongCode(tx: Tx, userId: string, lockSeconds: number | null): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_TwoFactor"
    set failures = failures + 1, "lockedUntil" = clock_timestamp() + make_interval(secs => ${lockSeconds}::float8)
    where "user_Id" = ${userId}`)
}

/** Ends an enrolment, finished or not; undefined when there is none, or the password is another one by now. */
export async function deleteEnrolment(
  tx: Tx,
  userId: string,
  passwordHash: string | null,
): Promise<{ enabled: boolean } | undefined> {
  return tx.maybeOne<{ enabled: boolean }>(sql.unsafe`
    delete from "svc_TwoFactor" f using "svc_User" u
    where f."user_Id" = ${userId} and u.id = f."user_Id" and u.password is not distinct from ${passwordHash}
    returning f.enabled`)
}
