/**
 * The second door for writes (design §6): statements for state that is no event and that nobody asks the log about.
 * Every one of them is listed here, each a conditional statement of its own, so two processes may run it at once.
 */

import type { RepeatableRequest } from '../events/types.ts'
import type { Runtime } from '../runtime.ts'
import { sql, type Tx } from './sql.ts'
import { statementName } from './statement-names.ts'
import { writePoolOf } from './write-pool.ts'

// Sessions. Those that open and end one ride in the transaction of the event that says so; hence they take a Tx.

export type SessionOrigin = {
  readonly tokenHash: string
  readonly seconds: number
  readonly ip: string
  readonly userAgent: string | null
}

export type NewSession = SessionOrigin & {
  readonly userId: string
  readonly roleId: string
  readonly tenantId: string | null
  readonly type: string
  /** The hash that the caller's password was checked against. */
  readonly passwordHash: string | null
}

/**
 * Opens a session; false when the account was suspended or its password changed since it was checked. The lock keeps
 * both from happening before the session can be seen, so a password reset that changes the user's row first and then
 * deletes the sessions misses none.
 */
export async function insertSession(tx: Tx, session: NewSession): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    insert into "svc_Sessions" (token, "user_Id", "role_Id", "tenant_Id", "expiresAt", "ipAddress", "userAgent", type)
    select ${session.tokenHash}, u.id, ${session.roleId}::uuid, ${session.tenantId}::uuid,
           now() + make_interval(secs => ${session.seconds}), ${session.ip}, ${session.userAgent}, ${session.type}
    from "svc_User" u
    where u.id = ${session.userId} and u.status = 'active' and u.password is not distinct from ${session.passwordHash}
    for share
    returning id`)
  return rows.length === 1
}

/**
 * Ends a live session and opens its successor, in one statement: of any number at the same time exactly one gets
 * through. False when the session has ended already. Locks the user like `insertSession`.
 */
export async function replaceSession(tx: Tx, sessionId: string, roleId: string, next: SessionOrigin): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    with owner as materialized (
      select u.id from "svc_User" u join "svc_Sessions" s on s."user_Id" = u.id
      where s.id = ${sessionId} and u.status = 'active' for share of u),
    ended as (
      delete from "svc_Sessions" s using owner
      where s.id = ${sessionId} and s."user_Id" = owner.id and s."expiresAt" > now() returning s.*)
    insert into "svc_Sessions" (token, "user_Id", "role_Id", "tenant_Id", "expiresAt", "ipAddress", "userAgent", type)
    select ${next.tokenHash}, "user_Id", ${roleId}::uuid, "tenant_Id", now() + make_interval(secs => ${next.seconds}),
           ${next.ip}, ${next.userAgent}, type
    from ended
    returning id`)
  return rows.length === 1
}

/** False when it had ended before. */
export async function deleteSession(tx: Tx, sessionId: string): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`delete from "svc_Sessions" where id = ${sessionId} returning id`)
  return rows.length === 1
}

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

/**
 * Uses up the newest secret of a purpose and gives the address it was sent to; undefined when it is unknown, used,
 * expired or replaced. One conditional statement: of any number of simultaneous uses one succeeds.
 */
export async function consumeSecret(tx: Tx, purpose: string, hash: string): Promise<string | undefined> {
  const prefix = `${purpose}:`
  const consumed = await tx.maybeOne<{ email: string }>(sql.unsafe`
    delete from "svc_Verification" v
    where v.value = ${hash} and starts_with(v.identifier, ${prefix}) and v."expiresAt" > now()
      and not exists (
        select from "svc_Verification" newer
        where newer.identifier = v.identifier and (newer."createdAt", newer.id) > (v."createdAt", v.id))
    returning substr(v.identifier, char_length(${prefix}) + 1) as email`)
  return consumed?.email
}

// Idempotency keys. What a commit came to rides in its own transaction, so that it is known if and only if it happened;
// hence those take a Tx.

/** How long a request may be repeated. */
const repeatableHours = 24

type EarlierCommit = { readonly fingerprint: string; readonly result: unknown }

/**
 * Takes the place of the request's next commit, or gives what is there. Of any number of transactions at the same time
 * one gets through, the others wait until it has ended and then find its result (or, if it failed, the next gets through).
 */
export async function reserveCommit(
  tx: Tx,
  { caller, key, fingerprint, commits }: RepeatableRequest,
): Promise<EarlierCommit | undefined> {
  const reserved = await tx.any(sql.unsafe`
    insert into "svc_IdempotencyKey" as k (caller, key, step, fingerprint, "expiresAt")
    values (${caller}, ${key}, ${commits}, ${fingerprint}, now() + make_interval(hours => ${repeatableHours}))
    on conflict (caller, key, step) do update
      set fingerprint = excluded.fingerprint, "expiresAt" = excluded."expiresAt",
          result = null, status = null, "contentType" = null, body = null
      where k."expiresAt" <= now()
    returning step`)
  if (reserved.length > 0) return undefined
  const { fingerprint: earlier, result } = await tx.one<{ fingerprint: string; result: string }>(sql.unsafe`
    select fingerprint, result from "svc_IdempotencyKey" where caller = ${caller} and key = ${key} and step = ${commits}`)
  return { fingerprint: earlier, result: (JSON.parse(result) as { value?: unknown }).value }
}

/** Notes what the reserved commit came to. */
export async function rememberCommit(tx: Tx, request: RepeatableRequest, value: unknown): Promise<void> {
  const { caller, key, commits } = request
  await tx.any(sql.unsafe`
    update "svc_IdempotencyKey" set result = ${JSON.stringify({ value })}
    where caller = ${caller} and key = ${key} and step = ${commits}`)
}

export type StoredAnswer = { readonly status: number; readonly contentType: string | null; readonly body: string }

/** What is known of a key: which request it stands for, and its answer once there is one. */
export async function findRepeatable(
  rt: Runtime,
  { caller, key }: Pick<RepeatableRequest, 'caller' | 'key'>,
): Promise<{ readonly fingerprint: string; readonly answer: StoredAnswer | undefined } | undefined> {
  const [row] = await run<StoredAnswer & { fingerprint: string; status: number | null }>(
    rt,
    `select fingerprint, status, "contentType", body from "svc_IdempotencyKey"
     where caller = $1 and key = $2 and step = 0 and "expiresAt" > now()`,
    [caller, key],
  )
  if (row === undefined) return undefined
  const { fingerprint, status, contentType, body } = row
  return { fingerprint, answer: status === null ? undefined : { status, contentType, body } }
}

/**
 * Keeps the answer to a request that has committed, and gives the one that counts: the first. Ends a few expired keys on
 * the way, so that the table stays as large as its last day without anybody's help.
 */
export async function storeAnswer(
  rt: Runtime,
  { caller, key }: RepeatableRequest,
  { status, contentType, body }: StoredAnswer,
): Promise<StoredAnswer> {
  const [stored] = await run<StoredAnswer>(
    rt,
    `with expired as (${expiredKeysSql('limit 10')})
     update "svc_IdempotencyKey"
     set status = coalesce(status, $3), "contentType" = case when status is null then $4 else "contentType" end,
         body = coalesce(body, $5)
     where caller = $1 and key = $2 and step = 0
     returning status, "contentType", body`,
    [caller, key, status, contentType, body],
  )
  return stored ?? { status, contentType, body }
}

/** For the cleanup worker; gives how many were deleted. */
export async function deleteExpiredKeys(rt: Runtime, atMost: number): Promise<number> {
  const rows = await run(rt, `${expiredKeysSql('limit $1')} returning 1`, [atMost])
  return rows.length
}

function expiredKeysSql(limit: string): string {
  return `delete from "svc_IdempotencyKey" where ctid in (
    select ctid from "svc_IdempotencyKey" where "expiresAt" <= now() order by "expiresAt" ${limit} for update skip locked)`
}

// Counters of the rate limits, each the number of something in a window that begins with its first.

export type Addition = {
  readonly key: string
  readonly add: number
  /** What the counter is known to have come to already, wherever it was counted. */
  readonly atLeast: number
  /** Until the window's end, where one has to begin. */
  readonly windowMs: number
}

export type Count = { readonly key: string; readonly count: number; readonly remainingMs: number }

/**
 * Adds to counters and gives what they have come to: of any number at the same time no two see the same count. Rows are
 * taken in the order of their keys, so statements that share some wait for each other and never in a circle.
 */
export async function addToCounters(rt: Runtime, additions: readonly Addition[]): Promise<Count[]> {
  return run<Count>(
    rt,
    `insert into "svc_RateLimit" as c (key, count, added, "endsAt")
     select key, floor + added, added, now() + ms * interval '1 ms'
     from unnest($1::text[], $2::int[], $3::int[], $4::float8[]) a (key, added, floor, ms) order by key
     on conflict (key) do update set
       count = case when c."endsAt" > now() then greatest(c.count + excluded.added, excluded.count)
                    else excluded.count end,
       added = excluded.added,
       "endsAt" = case when c."endsAt" > now() then c."endsAt" else excluded."endsAt" end
     returning key, count::float8 as count, (extract(epoch from "endsAt" - now()) * 1000)::float8 as "remainingMs"`,
    [
      additions.map(({ key }) => key),
      additions.map(({ add }) => add),
      additions.map(({ atLeast }) => atLeast),
      additions.map(({ windowMs }) => windowMs),
    ],
  )
}

/** Removes some of the counters whose window is over; those that somebody is just counting on stay. */
export async function deleteEndedCounters(rt: Runtime, atMost: number): Promise<void> {
  await run(
    rt,
    `delete from "svc_RateLimit" where key in (
       select key from "svc_RateLimit" where "endsAt" <= now() order by "endsAt" limit $1 for update skip locked)`,
    [atMost],
  )
}

async function run<Row>(rt: Runtime, text: string, values: readonly unknown[]): Promise<Row[]> {
  return writePoolOf(rt).hot.run(text, values, statementName(text)) as Promise<Row[]>
}
