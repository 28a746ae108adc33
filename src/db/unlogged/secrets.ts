import { type SqlFragment, sql, type Tx } from '../sql.ts'

/*
 * One-time secrets of mails. They ride in the transaction that claims the mail, so that a mail whose claim is committed
 * has its secret; hence they take a Tx.
 */

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
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended(${`secret of ${identifier}`}, 0))`)
}

/** Makes this the only secret of its identifier. */
export async function replaceSecret(tx: Tx, { identifier, hash, lifetimeSeconds }: SecretRow): Promise<void> {
  await tx.any(sql`
    with gone as (delete from "svc_Verification" where identifier = ${identifier})
    insert into "svc_Verification" (identifier, value, "expiresAt")
    values (${identifier}, ${hash}, now() + make_interval(secs => ${lifetimeSeconds}))`)
}

/** Starts the lifetime of an unused secret anew; false when it was used or replaced. */
export async function renewSecret(tx: Tx, { identifier, hash, lifetimeSeconds }: SecretRow): Promise<boolean> {
  const rows = await tx.any(sql`
    update "svc_Verification" set "expiresAt" = now() + make_interval(secs => ${lifetimeSeconds}), "updatedAt" = now()
    where identifier = ${identifier} and value = ${hash} returning id`)
  return rows.length > 0
}

/** Makes the secrets of these identifiers worthless. Lock the user's row first, as the use of one of them does. */
export async function deleteSecrets(tx: Tx, identifiers: readonly string[]): Promise<void> {
  await tx.any(sql`delete from "svc_Verification" where identifier = any(${sql.array(identifiers, 'text')})`)
}

export type Consumption = {
  readonly purpose: string
  readonly hash: string
  /** The address that it must belong to. */
  readonly email: string | undefined
}

/**
 * Uses up the newest secret of a purpose and gives the address it was sent to; undefined when it is unknown, used,
 * expired or replaced. One conditional statement: of any number of simultaneous uses one succeeds.
 */
export async function consumeSecret(tx: Tx, wanted: Consumption): Promise<string | undefined> {
  const consumed = await tx.maybeOne<{ email: string }>(sql`${consumption(wanted, sql`true`)}`)
  return consumed?.email
}

/** How many codes may be wrong before the next is not even looked at, within a quarter of an hour. */
const triesPerAccount = 5
const triesPerClient = 10
const triesWithoutAccount = 1000

type CodeTry = Consumption & {
  /** The IP address or network that tries. */
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
    sql`
    with client as (${payment(client, triesPerClient, sql`select`)}),
      shared as (${payment(shared, account === undefined ? triesWithoutAccount : triesPerAccount, sql`select from client`)}),
      consumed as (${consumption(wanted, sql`exists (select from shared) and ${hasTriesLeft}`)})
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
const hasTriesLeft = sql`not exists (
  select from "svc_CodeTry" t where t.key = 'account ' || v.identifier and t."left" = 0 and t."endsAt" > now())`

/** Takes one try of a key; no row when none is left. `source` gives a row if it shall be taken at all. */
function payment(key: string, triesAtMost: number, source: SqlFragment) {
  return sql`
    insert into "svc_CodeTry" as t (key, "left", "endsAt")
    select ${key}, ${triesAtMost - 1}, now() + interval '15 minutes' from (${source}) paid
    on conflict (key) do update
      set "left" = case when t."endsAt" > now() then t."left" - 1 else excluded."left" end,
          "endsAt" = case when t."endsAt" > now() then t."endsAt" else excluded."endsAt" end
      where t."left" > 0 or t."endsAt" <= now()
    returning 1`
}

/**
 * The one with the right code is no guesser; it also shows that the account's owner is back. Another one who tries the same
 * account now waits for the code that this one has: waiting for its try would be a circle.
 */
async function giveBack(tx: Tx, keys: readonly string[], account: string): Promise<void> {
  await tx.any(sql`
    with owner as (
      delete from "svc_CodeTry" where key in (
        select key from "svc_CodeTry" where key = ${account} for update skip locked))
    update "svc_CodeTry" set "left" = "left" + 1 where key = any(${sql.array(keys, 'text')}) and key <> ${account}`)
}

function consumption({ purpose, hash, email }: Consumption, condition: SqlFragment) {
  const prefix = `${purpose}:`
  const whose = email === undefined ? sql`starts_with(v.identifier, ${prefix})` : sql`v.identifier = ${prefix + email}`
  return sql`
    delete from "svc_Verification" v
    where v.value = ${hash} and ${whose} and v."expiresAt" > now() and ${condition}
      and not exists (
        select from "svc_Verification" newer
        where newer.identifier = v.identifier and (newer."createdAt", newer.id) > (v."createdAt", v.id))
    returning substr(v.identifier, char_length(${prefix}) + 1) as email`
}

/*
 * Challenges: what a user was asked and has five minutes to answer. They ride in the transactions of the sign-ins that
 * they are part of; hence they take a Tx.
 */

/** By the database's clock. */
const challengeSeconds = 300

export type Challenge = {
  /** `{purpose}:{subject or hash}`: a challenge of one purpose answers no other one. */
  readonly identifier: string
  /** The user it belongs to; null when it is not known yet. */
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
  await tx.any(sql`
    with expired as (
      delete from "svc_Challenge" where identifier <> ${identifier} and identifier in (
        select identifier from "svc_Challenge" where "expiresAt" <= now()
        order by "expiresAt" limit 10 for update skip locked))
    insert into "svc_Challenge" as c (identifier, "user_Id", data, "expiresAt")
    values (${identifier}, ${userId}::uuid, ${sql.jsonb(data)}, now() + make_interval(secs => ${seconds}))
    on conflict (identifier) do update
      set "user_Id" = excluded."user_Id", data = excluded.data, attempts = 0, "expiresAt" = excluded."expiresAt"`)
}

/**
 * Counts a try to answer; false when the challenge is gone or its tries are used up. Holds it until the transaction
 * ends, so that simultaneous tries come one after the other.
 */
export async function attemptChallenge(tx: Tx, identifier: string, triesAtMost: number): Promise<boolean> {
  const rows = await tx.any(sql`
    update "svc_Challenge" set attempts = attempts + 1
    where identifier = ${identifier} and attempts < ${triesAtMost} and "expiresAt" > now() returning identifier`)
  return rows.length === 1
}

/** Uses a challenge up; undefined when it is unknown, used or expired. Of simultaneous calls one gets it. */
export async function takeChallenge(tx: Tx, identifier: string): Promise<Challenge['data'] | undefined> {
  const taken = await tx.maybeOne<Pick<Challenge, 'data'>>(sql`
    delete from "svc_Challenge" where identifier = ${identifier} and "expiresAt" > now() returning data`)
  return taken?.data
}

/** Ends what a user was asked and has not answered. */
export async function deleteChallengesOf(tx: Tx, userId: string): Promise<void> {
  await tx.any(sql`delete from "svc_Challenge" where "user_Id" = ${userId}::uuid`)
}
