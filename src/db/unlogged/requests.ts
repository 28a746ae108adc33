import { type Reads, type ReservedReads, withoutWaiting } from '../pools.ts'
import { sql, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/**
 * A request that its client may repeat with the same `Idempotency-Key`. Each of its commits is remembered with its
 * result, in its own transaction; a repeated request gets these results and does nothing again.
 */
export type RepeatableRequest = {
  readonly caller: string
  readonly key: string
  /** Hash of method, path, query and body: a key stands for one request. */
  readonly fingerprint: string
  /** How many commits it has made so far. */
  commits: number
  /** How many of these had been done before, by the same request when it came earlier. */
  replays: number
  /** Where its answer holds a secret: what is kept of it is sealed. */
  readonly sealing?: KeptSealing | undefined
}

/** Closes what is kept of a request, and opens it again. */
export type KeptSealing = {
  seal(text: string): string
  /** Throws where the key is lost. */
  unseal(kept: string): string
}

/*
 * Idempotency keys. The result of a commit is stored in its own transaction, so that it is known if and only if the
 * commit happened; hence these functions take a Tx.
 */

/** How long a request may be repeated. */
const repeatableHours = 24

type EarlierCommit = { readonly fingerprint: string; readonly result: unknown }

/**
 * Takes the place of the request's next commit, or gives what is there. Of any number of transactions at the same time
 * one gets through, the others wait until it has ended and then find its result (or, if it failed, the next gets through).
 */
export async function reserveCommit(
  tx: Tx,
  { caller, key, fingerprint, commits, sealing }: RepeatableRequest,
): Promise<EarlierCommit | undefined> {
  const later = sql`now() + make_interval(hours => ${repeatableHours})`
  // All commits of a request expire at once: the next request with this key would take one that is left for its own.
  const withFirst = sql`coalesce((select max("expiresAt") from "svc_IdempotencyKey" where caller = ${caller} and key = ${key}), ${later})`
  const expiresAt = commits === 0 ? later : withFirst
  const reserved = await tx.any(sql`
    insert into "svc_IdempotencyKey" as k (caller, key, step, fingerprint, "expiresAt")
    values (${caller}, ${key}, ${commits}, ${fingerprint}, ${expiresAt})
    on conflict (caller, key, step) do update
      set fingerprint = excluded.fingerprint, "expiresAt" = excluded."expiresAt",
          result = null, status = null, "contentType" = null, body = null
      where k."expiresAt" <= now()
    returning step`)
  if (reserved.length > 0) return undefined
  const { fingerprint: earlier, result } = await tx.one<{ fingerprint: string; result: string }>(sql`
    select fingerprint, result from "svc_IdempotencyKey" where caller = ${caller} and key = ${key} and step = ${commits}`)
  // That of another request is nothing that this one could open, or would be given.
  if (earlier !== fingerprint) return { fingerprint: earlier, result: undefined }
  const kept = sealing === undefined ? result : sealing.unseal(result)
  return { fingerprint: earlier, result: (JSON.parse(kept) as { value?: unknown }).value }
}

/** Notes what the reserved commit came to. */
export async function rememberCommit(tx: Tx, request: RepeatableRequest, value: unknown): Promise<void> {
  const { caller, key, commits, sealing } = request
  const result = JSON.stringify({ value })
  await tx.any(sql`
    update "svc_IdempotencyKey" set result = ${sealing === undefined ? result : sealing.seal(result)}
    where caller = ${caller} and key = ${key} and step = ${commits}`)
}

export type StoredAnswer = { readonly status: number; readonly contentType: string | null; readonly body: string }

/** The stored state of a key: which request it stands for, and its answer once there is one. */
export async function findRepeatable(
  deps: Reads & ReservedReads,
  { caller, key, fingerprint: own, sealing }: Omit<RepeatableRequest, 'commits' | 'replays'>,
): Promise<{ readonly fingerprint: string; readonly answer: StoredAnswer | undefined } | undefined> {
  const [row] = await withoutWaiting(deps).run<StoredAnswer & { fingerprint: string; status: number | null }>(
    `select fingerprint, status, "contentType", body from "svc_IdempotencyKey"
     where caller = $1 and key = $2 and step = 0 and "expiresAt" > now()`,
    [caller, key],
  )
  if (row === undefined) return undefined
  const { fingerprint, status, contentType, body } = row
  if (status === null) return { fingerprint, answer: undefined }
  const kept = sealing === undefined || own !== fingerprint ? body : sealing.unseal(body)
  return { fingerprint, answer: { status, contentType, body: kept } }
}

/**
 * Keeps the answer to a request that has committed, and gives the one that counts: the first. Ends a few expired keys on
 * the way, so that the table stays as large as its last day without anybody's help.
 */
export async function storeAnswer(
  deps: UnloggedWrites,
  { caller, key, sealing }: RepeatableRequest,
  { status, contentType, body }: StoredAnswer,
): Promise<StoredAnswer> {
  const [stored] = await run<StoredAnswer>(
    deps,
    `with expired as (${expiredKeysSql('limit 10')})
     update "svc_IdempotencyKey"
     set status = coalesce(status, $3), "contentType" = case when status is null then $4 else "contentType" end,
         body = coalesce(body, $5)
     where caller = $1 and key = $2 and step = 0
     returning status, "contentType", body`,
    [caller, key, status, contentType, sealing === undefined ? body : sealing.seal(body)],
  )
  if (stored === undefined) return { status, contentType, body }
  return sealing === undefined ? stored : { ...stored, body: sealing.unseal(stored.body) }
}

function expiredKeysSql(limit: string): string {
  return `delete from "svc_IdempotencyKey" where ctid in (
    select ctid from "svc_IdempotencyKey" where "expiresAt" <= now() order by "expiresAt" ${limit} for update skip locked)`
}

/* Counters of the rate limits, each the number of something in a window that begins with its first. */

export type Addition = {
  readonly key: string
  readonly add: number
  /** The count that is known already, wherever it was counted. */
  readonly atLeast: number
  /** Until the window's end, where one has to begin. */
  readonly windowMs: number
}

export type Count = { readonly key: string; readonly count: number; readonly remainingMs: number }

/**
 * Adds to counters and gives what they have come to: of any number at the same time no two see the same count. Rows are
 * taken in the order of their keys, so statements that share some wait for each other and never in a circle.
 */
export async function addToCounters(deps: UnloggedWrites, additions: readonly Addition[]): Promise<Count[]> {
  return run<Count>(
    deps,
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

/** Removes some of the counters whose window is over; those that are in use stay. */
export async function deleteEndedCounters(deps: UnloggedWrites, atMost: number): Promise<void> {
  await run(
    deps,
    `delete from "svc_RateLimit" where key in (
       select key from "svc_RateLimit" where "endsAt" <= now() order by "endsAt" limit $1 for update skip locked)`,
    [atMost],
  )
}

/* Rows that are over and were not removed by the next request. */

const expired = {
  // A day late: a mail that is tried again may still renew its secret.
  secrets: ['svc_Verification', `"expiresAt" < now() - interval '1 day'`],
  'code tries': ['svc_CodeTry', '"endsAt" <= now()'],
  challenges: ['svc_Challenge', '"expiresAt" <= now()'],
  'programs that registered': ['svc_OAuthClient', '"expiresAt" <= now()'],
  // As long as a second use may be an attack on what the first one opened.
  'codes of programs': ['svc_OAuthCode', `"expiresAt" < now() - interval '1 day'`],
  'idempotency keys': ['svc_IdempotencyKey', '"expiresAt" <= now()'],
  'rate limits': ['svc_RateLimit', '"endsAt" <= now()'],
  uploads: ['svc_Upload', '"expiresAt" <= now()'],
  'webhook deliveries': [
    'svc_WebhookDelivery',
    `"createdAt" < now() - case when status = 'dead' then interval '30 days' else interval '7 days' end and status <> 'pending'`,
  ],
  'task locks': ['svc_TaskLock', `"expiresAt" < now() - interval '1 day'`],
} as const

type ExpiringKind = keyof typeof expired
export const expiringKinds = Object.keys(expired) as readonly ExpiringKind[]

/** For the cleanup worker; gives how many were deleted. Rows in use stay for the next time. */
export async function deleteExpired(deps: UnloggedWrites, what: ExpiringKind, atMost: number): Promise<number> {
  const [table, condition] = expired[what]
  const rows = await run(
    deps,
    `delete from "${table}" where ctid = any (array(
       select ctid from "${table}" where ${condition} limit $1 for update skip locked)) returning 1`,
    [atMost],
  )
  return rows.length
}
