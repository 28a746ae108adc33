/**
 * The second door for writes (design §6): statements for state that is no event and that nobody asks the log about.
 * Every one of them is listed here, each a conditional statement of its own, so two processes may run it at once.
 */

import type { Runtime } from '../runtime.ts'
import { sql, type Tx } from './sql.ts'
import { statementName } from './statement-names.ts'
import { writePoolOf } from './write-pool.ts'

// Sessions

/** Moves the end of a live session to `seconds` from now, at most once a day (auth facts §1, sliding expiry). */
export async function extendSession(rt: Runtime, sessionId: string, seconds: number): Promise<void> {
  await run(
    rt,
    `update "svc_Sessions" set "expiresAt" = now() + make_interval(secs => $2), "updatedAt" = now()
     where id = $1 and "expiresAt" > now() and "updatedAt" < now() - interval '1 day'`,
    [sessionId, seconds],
  )
}

/** Notes that a user was here, at most every five minutes. */
export async function touchLastAccess(rt: Runtime, userId: string): Promise<void> {
  await run(
    rt,
    `update "svc_User" set "lastAccess" = now()
     where id = $1 and ("lastAccess" is null or "lastAccess" < now() - interval '5 minutes')`,
    [userId],
  )
}

async function run<Row>(rt: Runtime, text: string, values: readonly unknown[]): Promise<Row[]> {
  return writePoolOf(rt).hot.run(text, values, statementName(text)) as Promise<Row[]>
}

// One-time secrets of mails. They ride in the transaction that claims the mail, so that a mail whose claim is committed
// has its secret; hence they take a Tx.

export type SecretRow = {
  /** `{purpose}:{email}`: one live row each. */
  readonly identifier: string
  /** SHA-256 of the secret in hex. */
  readonly hash: string
  /** From now, by the database's clock. */
  readonly lifetimeSeconds: number
}

/** Lets one transaction after the other decide which secret of an identifier is the newest. */
export async function lockSecret(tx: Tx, identifier: string): Promise<void> {
  await tx.any(sql.unsafe`select pg_advisory_xact_lock(hashtextextended(${`secret of ${identifier}`}, 0))`)
}

/** Makes this the only secret of its identifier. */
export async function replaceSecret(tx: Tx, { identifier, hash, lifetimeSeconds }: SecretRow): Promise<void> {
  await tx.any(sql.unsafe`
    with gone as (delete from "svc_Verification" where identifier = ${identifier})
    insert into "svc_Verification" (identifier, value, "expiresAt")
    values (${identifier}, ${hash}, now() + make_interval(secs => ${lifetimeSeconds}))`)
}

/** Starts the lifetime of an unused secret anew; false when it was used or replaced. */
export async function renewSecret(tx: Tx, { identifier, hash, lifetimeSeconds }: SecretRow): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    update "svc_Verification" set "expiresAt" = now() + make_interval(secs => ${lifetimeSeconds}), "updatedAt" = now()
    where identifier = ${identifier} and value = ${hash} returning id`)
  return rows.length > 0
}
