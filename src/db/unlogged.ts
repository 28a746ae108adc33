/**
 * The second door for writes (design §6): statements for state that is no event and that nobody asks the log about.
 * Every one of them is listed here, each a conditional statement of its own, so two processes may run it at once.
 */

import type { RepeatableRequest } from '../events/types.ts'
import type { Runtime } from '../runtime.ts'
import { rawQuery, type SqlFragment, sql, type Tx } from './sql.ts'
import { statementName } from './statement-names.ts'
import { walEndSql } from './wal.ts'
import { type CallerKey, floor } from './write-marks.ts'
import { writePoolOf } from './write-pool.ts'

// Sessions. Those that open and end one ride in the transaction of the event that says so; hence they take a Tx.

/** What a client said of itself when it signed in; sessions of type `default` have no limit. */
export type SessionType = 'default' | 'web' | 'mobile'

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
  readonly type: SessionType
  /** The hash that the caller's password was checked against; undefined when it was something else that was checked. */
  readonly passwordHash: string | null | undefined
}

/**
 * Opens a session; false when the account was suspended or its password changed since it was checked. The lock keeps
 * both from happening before the session can be seen, so a password reset that changes the user's row first and then
 * deletes the sessions misses none.
 */
export async function insertSession(tx: Tx, session: NewSession): Promise<boolean> {
  const samePassword =
    session.passwordHash === undefined
      ? sql.fragment`true`
      : sql.fragment`u.password is not distinct from ${session.passwordHash}`
  const rows = await tx.any(sql.unsafe`
    insert into "svc_Sessions" (token, "user_Id", "role_Id", "tenant_Id", "expiresAt", "ipAddress", "userAgent", type)
    select ${session.tokenHash}, u.id, ${session.roleId}::uuid, ${session.tenantId}::uuid,
           now() + make_interval(secs => ${session.seconds}), ${session.ip}, ${session.userAgent}, ${session.type}
    from "svc_User" u
    where u.id = ${session.userId} and u.status = 'active' and ${samePassword}
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

/** Ends the sessions of a user but for one, all without. Change the user's row first (see `insertSession`). */
export async function deleteOtherSessions(tx: Tx, userId: string, kept: string | undefined): Promise<void> {
  await tx.any(sql.unsafe`
    delete from "svc_Sessions" where "user_Id" = ${userId} and id is distinct from ${kept ?? null}::uuid`)
}

/** Ends a live session and tells its type; undefined when it had ended before. */
export async function takeSession(tx: Tx, sessionId: string): Promise<{ type: SessionType } | undefined> {
  return tx.maybeOne<{ type: SessionType }>(sql.unsafe`
    delete from "svc_Sessions" where id = ${sessionId} and "expiresAt" > now() returning type`)
}

/** False when it had ended before. */
export async function deleteSession(tx: Tx, sessionId: string): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`delete from "svc_Sessions" where id = ${sessionId} returning id`)
  return rows.length === 1
}

/** Ends live sessions of a user, all or the one with this id; the ids of those that had not ended before. */
export async function deleteSessionsOf(tx: Tx, userId: string, sessionId?: string): Promise<readonly string[]> {
  const which = sessionId === undefined ? sql.fragment`` : sql.fragment`and id = ${sessionId}`
  const rows = await tx.any<{ id: string }>(sql.unsafe`
    delete from "svc_Sessions" where "user_Id" = ${userId} and "expiresAt" > now() ${which} returning id`)
  return rows.map(({ id }) => id)
}

/** For the cleanup worker; gives how many expired ones were deleted. */
export async function deleteExpiredSessions(rt: Runtime, atMost: number): Promise<number> {
  const rows = await run(
    rt,
    `delete from "svc_Sessions" where id in (
       select id from "svc_Sessions" where "expiresAt" <= now() order by "expiresAt" limit $1 for update skip locked)
     returning id`,
    [atMost],
  )
  return rows.length
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

/** Notes that a session was used, at most every five minutes. */
export async function touchSession(rt: Runtime, sessionId: string): Promise<void> {
  await run(
    rt,
    `update "svc_Sessions" set "lastUsedAt" = now()
     where id = $1 and coalesce("lastUsedAt", "createdAt") < now() - interval '5 minutes'`,
    [sessionId],
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
  /** As `hashOneTime` makes it. */
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

/** Makes the secrets of these identifiers worthless. Lock the user's row first, as whoever uses one of them does. */
export async function deleteSecrets(tx: Tx, identifiers: readonly string[]): Promise<void> {
  await tx.any(
    sql.unsafe`delete from "svc_Verification" where identifier = any(${sql.array([...identifiers], 'text')})`,
  )
}

export type Consumption = {
  readonly purpose: string
  readonly hash: string
  /** Whose it must be. */
  readonly email: string | undefined
}

/**
 * Uses up the newest secret of a purpose and gives the address it was sent to; undefined when it is unknown, used,
 * expired or replaced. One conditional statement: of any number of simultaneous uses one succeeds.
 */
export async function consumeSecret(tx: Tx, wanted: Consumption): Promise<string | undefined> {
  const consumed = await tx.maybeOne<{ email: string }>(sql.unsafe`${consumption(wanted, sql.fragment`true`)}`)
  return consumed?.email
}

/** How many codes may be wrong before the next is not even looked at, within a quarter of an hour (quality A-19). */
const triesPerAccount = 5
const triesPerClient = 10
const triesWithoutAccount = 1000

export type CodeTry = Consumption & {
  /** Who tries: an IP address or network. */
  readonly client: string
}

/** `wrong` also for the right code of an account whose tries are used up. */
export type CodeOutcome =
  | { readonly state: 'consumed'; readonly email: string }
  | { readonly state: 'wrong' | 'needs-email' }
  | { readonly state: 'blocked'; readonly retryAfterSeconds: number }

/**
 * Like `consumeSecret`, for a secret that is short enough to be guessed. One statement pays a try of the client, then one
 * of the account (without `email`: one of those that all guessers share), then looks at the code. So however many guess at
 * once, no guess is free; the caller must commit after a wrong one too. The right one gets its tries back.
 *
 * The account's tries are not renewed by a newer code: asking for codes must not buy guesses.
 */
export async function consumeCode(tx: Tx, wanted: CodeTry): Promise<CodeOutcome> {
  const client = `client ${wanted.client}`
  const account = wanted.email === undefined ? undefined : accountKey(`${wanted.purpose}:${wanted.email}`)
  const shared = account ?? 'without account'
  const found = await tx.one<{ email: string | null; mayTry: boolean; hadTries: boolean; waitSeconds: number }>(
    sql.unsafe`
    with client as (${payment(client, triesPerClient, sql.fragment`select`)}),
      shared as (${payment(shared, account === undefined ? triesWithoutAccount : triesPerAccount, sql.fragment`select from client`)}),
      consumed as (${consumption(wanted, sql.fragment`exists (select from shared) and ${hasTriesLeft}`)})
    select (select email from consumed) as email, exists (select from client) as "mayTry",
      exists (select from shared) as "hadTries",
      coalesce((select ceil(extract(epoch from "endsAt" - now()))::int from "svc_CodeTry" where key = ${client}), 1) as "waitSeconds"`,
  )
  if (found.email !== null) {
    await giveBack(tx, [client, shared], accountKey(`${wanted.purpose}:${found.email}`))
    return { state: 'consumed', email: found.email }
  }
  if (!found.mayTry) return { state: 'blocked', retryAfterSeconds: Math.max(1, found.waitSeconds) }
  return { state: found.hadTries || account !== undefined ? 'wrong' : 'needs-email' }
}

function accountKey(identifier: string): string {
  return `account ${identifier}`
}

/** For a code without `email`: the tries of the account that it opens count all the same. */
const hasTriesLeft = sql.fragment`not exists (
  select from "svc_CodeTry" t where t.key = 'account ' || v.identifier and t."left" = 0 and t."endsAt" > now())`

/** Takes one try of a key; no row when none is left. `source` gives a row if it shall be taken at all. */
function payment(key: string, triesAtMost: number, source: SqlFragment) {
  return sql.fragment`
    insert into "svc_CodeTry" as t (key, "left", "endsAt")
    select ${key}, ${triesAtMost - 1}, now() + interval '15 minutes' from (${source}) paid
    on conflict (key) do update
      set "left" = case when t."endsAt" > now() then t."left" - 1 else excluded."left" end,
          "endsAt" = case when t."endsAt" > now() then t."endsAt" else excluded."endsAt" end
      where t."left" > 0 or t."endsAt" <= now()
    returning 1`
}

/**
 * Whoever had the right code is no guesser; it also shows that the account's owner is back. Another one who tries the same
 * account now waits for the code that this one has: waiting for its try would be a circle.
 */
async function giveBack(tx: Tx, keys: readonly string[], account: string): Promise<void> {
  await tx.any(sql.unsafe`
    with owner as (
      delete from "svc_CodeTry" where key in (
        select key from "svc_CodeTry" where key = ${account} for update skip locked))
    update "svc_CodeTry" set "left" = "left" + 1 where key = any(${sql.array([...keys], 'text')}) and key <> ${account}`)
}

function consumption({ purpose, hash, email }: Consumption, condition: SqlFragment) {
  const prefix = `${purpose}:`
  const whose =
    email === undefined
      ? sql.fragment`starts_with(v.identifier, ${prefix})`
      : sql.fragment`v.identifier = ${prefix + email}`
  return sql.fragment`
    delete from "svc_Verification" v
    where v.value = ${hash} and ${whose} and v."expiresAt" > now() and ${condition}
      and not exists (
        select from "svc_Verification" newer
        where newer.identifier = v.identifier and (newer."createdAt", newer.id) > (v."createdAt", v.id))
    returning substr(v.identifier, char_length(${prefix}) + 1) as email`
}

// Challenges: what somebody was asked and has five minutes to answer. They ride in the transactions of the sign-ins that
// they are part of; hence they take a Tx.

/** By the database's clock (spec: Limits). */
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

/** Notes that an API key was used, at most every five minutes. */
export async function touchApiKey(rt: Runtime, keyId: string): Promise<void> {
  await run(
    rt,
    `update "svc_ApiKey" set "lastUsedAt" = now()
     where id = $1 and ("lastUsedAt" is null or "lastUsedAt" < now() - interval '5 minutes')`,
    [keyId],
  )
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

// What is over and was not removed by whoever came next.

const expired = {
  // A day late: a mail that is tried again may still renew its secret.
  secrets: ['svc_Verification', `"expiresAt" < now() - interval '1 day'`],
  'code tries': ['svc_CodeTry', '"endsAt" <= now()'],
  challenges: ['svc_Challenge', '"expiresAt" <= now()'],
  'idempotency keys': ['svc_IdempotencyKey', '"expiresAt" <= now()'],
  'rate limits': ['svc_RateLimit', '"endsAt" <= now()'],
  'task locks': ['svc_TaskLock', `"expiresAt" < now() - interval '1 day'`],
} as const

export type Expiring = keyof typeof expired
export const expiringKinds = Object.keys(expired) as readonly Expiring[]

/** For the cleanup worker; gives how many were deleted. Rows that somebody is using stay for the next time. */
export async function deleteExpired(rt: Runtime, what: Expiring, atMost: number): Promise<number> {
  const [table, condition] = expired[what]
  const rows = await run(
    rt,
    `delete from "${table}" where ctid = any (array(
       select ctid from "${table}" where ${condition} limit $1 for update skip locked)) returning 1`,
    [atMost],
  )
  return rows.length
}

// Claims of mails: who is sending one, and that it lives.

/** Begins the time of a claim anew; false when it was lost. */
export async function renewMailClaim(rt: Runtime, emailLogId: string, claimToken: string): Promise<boolean> {
  const rows = await run(
    rt,
    `update "svc_EmailLog" set "claimedAt" = now() where id = $1 and "claimToken" = $2 returning 1`,
    [emailLogId, claimToken],
  )
  return rows.length === 1
}

// The development inbox: mails that nobody sends, with the secrets in them. It has no rows in production.

export type DevelopmentMail = {
  readonly emailLogId: string
  readonly subject: string
  readonly html: string
  readonly text: string
}

const developmentMailsKept = 500

/** Keeps a mail as it would have been sent, once, and forgets the oldest of very many. */
export async function keepDevelopmentMail(rt: Runtime, mail: DevelopmentMail): Promise<void> {
  await run(
    rt,
    `with old as (
       delete from "svc_DevelopmentMail"
       where "keptAt" < (select "keptAt" from "svc_DevelopmentMail" order by "keptAt" desc offset $5 limit 1))
     insert into "svc_DevelopmentMail" ("emailLogId", subject, html, text) values ($1, $2, $3, $4)
     on conflict ("emailLogId") do update
       set subject = excluded.subject, html = excluded.html, text = excluded.text, "keptAt" = now()`,
    [mail.emailLogId, mail.subject, mail.html, mail.text, developmentMailsKept],
  )
}

// Tasks: signs of life and progress of running attempts, and who runs which schedule. Outcomes are events, these are not.

type Attempt = { readonly id: number; readonly token: string }

/**
 * Notes that these attempts are alive and gives the ids of those that still own their task. A row that is locked is being
 * written by its own attempt and need not be touched.
 */
export async function touchTasks(rt: Runtime, attempts: readonly Attempt[]): Promise<ReadonlySet<number>> {
  const rows = await run<{ id: number }>(
    rt,
    `with claim as (select * from unnest($1::int[], $2::uuid[]) c (id, token)),
     owned as (
       select t.id from "svc_Tasks" t join claim c on c.id = t.id and c.token = t.attempt_token
       where t.task_status = 'Running'),
     free as (
       select t.id from "svc_Tasks" t join claim c on c.id = t.id and c.token = t.attempt_token
       where t.task_status = 'Running' for update of t skip locked),
     touched as (update "svc_Tasks" t set heartbeat_at = now() from free where t.id = free.id)
     select id from owned`,
    [attempts.map(({ id }) => id), attempts.map(({ token }) => token)],
  )
  return new Set(rows.map(({ id }) => id))
}

/**
 * Stores how far an attempt is and tells the web processes. False when it could not be stored now: the attempt has lost
 * its task, or is just writing.
 */
export async function storeProgress(
  rt: Runtime,
  { id, token }: Attempt,
  { share, message }: { readonly share: number; readonly message: string | null },
): Promise<boolean> {
  const rows = await run(
    rt,
    `with free as (
       select id from "svc_Tasks" where id = $1 and attempt_token = $2 for update skip locked),
     stored as (
       update "svc_Tasks" t set progress = $3, progress_message = $4 from free where t.id = free.id returning t.id)
     select pg_notify('svc_progress', id::text) from stored`,
    [id, token, share, message],
  )
  return rows.length > 0
}

/** Tells the web processes that a task which has reported progress has come to its end. */
export async function tellTaskEnded(rt: Runtime, id: number): Promise<void> {
  await run(rt, `select pg_notify('svc_progress', $1::text)`, [String(id)])
}

export type Slot = { readonly id: string; readonly now: Date; readonly nextAt: Date }

/** Makes a schedule known. Its next moment stays as it is unless the expression is new. */
export async function registerSchedule(rt: Runtime, id: string, cron: string, nextAt: Date): Promise<void> {
  await run(
    rt,
    `insert into "svc_TaskSchedule" as s (id, cron, "nextAt") values ($1, $2, $3)
     on conflict (id) do update set cron = excluded.cron, "nextAt" = excluded."nextAt" where s.cron <> excluded.cron`,
    [id, cron, nextAt],
  )
}

/** When these schedules are due, and what time the database has. */
export async function scheduleSlots(rt: Runtime, ids: readonly string[]): Promise<readonly Slot[]> {
  return run<Slot>(rt, `select id, "nextAt", now() as now from "svc_TaskSchedule" where id = any($1::text[])`, [ids])
}

/** Moves a due schedule on; of any number of processes one is told true. */
export async function takeSlot(rt: Runtime, { id, nextAt }: Slot, next: Date): Promise<boolean> {
  const rows = await run(
    rt,
    `update "svc_TaskSchedule" set "nextAt" = $3
     where id = $1 and "nextAt" = $2::timestamptz and "nextAt" <= now() returning id`,
    [id, nextAt, next],
  )
  return rows.length > 0
}

/** Takes a lock, or one's own for longer; false while somebody else holds it. */
export async function takeLock(rt: Runtime, name: string, holder: string, seconds: number): Promise<boolean> {
  const rows = await run(
    rt,
    `insert into "svc_TaskLock" as l (name, holder, "expiresAt") values ($1, $2, now() + make_interval(secs => $3))
     on conflict (name) do update set holder = excluded.holder, "expiresAt" = excluded."expiresAt"
       where l.holder = excluded.holder or l."expiresAt" <= now()
     returning name`,
    [name, holder, seconds],
  )
  return rows.length > 0
}

/** False when somebody else holds it by now. */
export async function dropLock(rt: Runtime, name: string, holder: string): Promise<boolean> {
  const rows = await run(rt, `delete from "svc_TaskLock" where name = $1 and holder = $2 returning name`, [
    name,
    holder,
  ])
  return rows.length > 0
}

// Leases (leases.ts). They are held by the connection that listens, which runs these two by itself.

/** Holds or renews the lease of the process `$1`. */
export const renewLease = `
    insert into "svc_Lease" (id, "seenAt") values ($1, clock_timestamp())
    on conflict (id) do update set "seenAt" = excluded."seenAt"`

/** Gives up the lease of the process `$1`, and forgets those that were never given up. */
export const leaveLease = `
    delete from "svc_Lease" where id = $1 or "seenAt" < clock_timestamp() - interval '1 hour'`

// Pushes to sockets: no state at all, but a NOTIFY, which the read-only pools could send as well and a hook sends in its
// transaction.

const pushSql = `select pg_notify('svc_push', part) from unnest($1::text[]) part`

/** Tells all web processes, at once or with the commit of a transaction. */
export async function notifySockets(rt: Runtime, tx: Tx | undefined, parts: readonly string[]): Promise<void> {
  if (tx === undefined) await run(rt, pushSql, [parts])
  else await tx.any(rawQuery(pushSql, [parts]))
}

// Write marks: what replicas must have replayed before they answer a caller (write-marks.ts). Written in the order of the
// callers, of which the floor is the last, or processes that write the same ones could wait for each other.

/** Notes where the log ends, for callers whose writes have committed. */
export async function storeWriteMarks(rt: Runtime, callers: readonly CallerKey[]): Promise<void> {
  await run(
    rt,
    `insert into "svc_WriteMark" as m (caller, position)
     select c, ${walEndSql} from unnest($1::text[]) c order by c
     on conflict (caller) do update
       set position = greatest(m.position, excluded.position), "notedAt" = excluded."notedAt"`,
    [callers],
  )
}

/** Raises the floor to the marks of more than a minute ago and deletes them: what is that far behind serves nobody. */
export async function forgetWriteMarks(rt: Runtime): Promise<void> {
  await run(
    rt,
    `with old as (
       select caller, position from "svc_WriteMark"
       where caller <> $1 and "notedAt" < clock_timestamp() - interval '1 minute' order by caller for update skip locked),
     raised as (
       update "svc_WriteMark" m set position = greatest(m.position, (select max(position) from old))
       where m.caller = $1 and exists (select from old) returning 1)
     delete from "svc_WriteMark" where caller in (select caller from old) and exists (select from raised)`,
    [floor],
  )
}

async function run<Row>(rt: Runtime, text: string, values: readonly unknown[]): Promise<Row[]> {
  return writePoolOf(rt).hot.run(text, values, statementName(text)) as Promise<Row[]>
}
