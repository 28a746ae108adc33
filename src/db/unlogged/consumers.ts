import { rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/*
 * Consumers of the log: where each is, who works for it, and what it has set aside. The statements that belong to a page
 * ride in its transaction; hence those take a Tx.
 */

/** Where a consumer is, as stored: `pg_snapshot` texts and a bigint as text. */
export type StoredCursor = { readonly snapshot: string; readonly upTo: string | null; readonly position: string }

export type HeldConsumer = StoredCursor & {
  readonly name: string
  readonly token: string
  /** Something that was set aside shall be tried again. */
  readonly retries: boolean
}

/** An event that its consumer could not handle. */
type SetAside = { readonly position: string; readonly reason: string }

/** The lock for registering a consumer and for removing events: later removals respect a registered place. */
export const placesLockSql = `pg_advisory_xact_lock(hashtextextended('daybook log consumers', 0))`

/** Why a consumer was stopped: the events that it had yet to read were removed. */
export const logRemoved = 'log removed'

/** Makes consumers known that are not yet; they begin at the snapshot. Gives the names of the new ones. */
export async function registerConsumers(
  deps: UnloggedWrites,
  names: readonly string[],
  snapshot: string,
): Promise<readonly string[]> {
  const rows = await run<{ name: string }>(
    deps,
    `with places as materialized (select ${placesLockSql} as locked)
     insert into svc_log.consumer (name, snapshot)
     select name, $2::pg_snapshot from unnest($1::text[]) name, places where places.locked is not null
     on conflict (name) do nothing returning name`,
    [names, snapshot],
  )
  return rows.map(({ name }) => name)
}

/** Forgets a consumer, so that nothing is kept for it. */
export async function unregisterConsumer(deps: UnloggedWrites, name: string): Promise<void> {
  await run(deps, 'delete from svc_log.consumer where name = $1', [name])
}

/** Takes the consumers that no process works for, each under a token of its own. */
export function claimConsumers(
  deps: UnloggedWrites,
  names: readonly string[],
  holder: string,
  leaseMs: number,
): Promise<readonly HeldConsumer[]> {
  return run<HeldConsumer>(
    deps,
    `update svc_log.consumer c set token = gen_random_uuid(), holder = $2,
       "leaseUntil" = clock_timestamp() + $3::int * interval '1 ms'
     where c.name = any($1::text[]) and c.state = 'running'
       and (c.token is null or c."leaseUntil" < clock_timestamp())
     returning ${heldSql}`,
    [names, holder, leaseMs],
  )
}

/** Begins the time of leases anew and gives those that are still held. */
export function renewConsumers(
  deps: UnloggedWrites,
  held: readonly Pick<HeldConsumer, 'name' | 'token'>[],
  leaseMs: number,
): Promise<readonly HeldConsumer[]> {
  return run<HeldConsumer>(
    deps,
    `update svc_log.consumer c set "leaseUntil" = clock_timestamp() + $3::int * interval '1 ms'
     from unnest($1::text[], $2::uuid[]) lease (name, token)
     where c.name = lease.name and c.token = lease.token and c.state = 'running'
     returning ${heldSql}`,
    [held.map(({ name }) => name), held.map(({ token }) => token), leaseMs],
  )
}

/** Lets the next one begin at once. */
export async function releaseConsumers(
  deps: UnloggedWrites,
  held: readonly Pick<HeldConsumer, 'name' | 'token'>[],
): Promise<void> {
  await run(
    deps,
    `update svc_log.consumer c set token = null, "leaseUntil" = null
     from unnest($1::text[], $2::uuid[]) lease (name, token) where c.name = lease.name and c.token = lease.token`,
    [held.map(({ name }) => name), held.map(({ token }) => token)],
  )
}

const heldSql = `c.name, c.token, c.snapshot::text, c."upTo"::text as "upTo", c.position::text,
  exists (select from svc_log.set_aside s where s.consumer = c.name and s."retryAt" is not null) as retries`

type ConsumerMove = Pick<HeldConsumer, 'name' | 'token'> & { readonly from: StoredCursor; readonly to: StoredCursor }

const moveSql = `update svc_log.consumer
  set snapshot = $3::pg_snapshot, "upTo" = $4::pg_snapshot, position = $5::bigint, "advancedAt" = clock_timestamp()
  where name = $1 and token = $2::uuid and state = 'running'
    and (snapshot::text, coalesce("upTo"::text, ''), position::text) = ($6, coalesce($7, ''), $8)
  returning name`

const moveValues = ({ name, token, from, to }: ConsumerMove) => [
  ...[name, token, to.snapshot, to.upTo, to.position],
  ...[from.snapshot, from.upTo, from.position],
]

/**
 * Moves a consumer from one place to the next, as the last statement of the transaction that handled what is between.
 * False when it is not there any more, or another worker has it.
 */
export async function moveConsumer(tx: Tx, move: ConsumerMove): Promise<boolean> {
  return (await tx.any(rawQuery(moveSql, moveValues(move)))).length === 1
}

/** The same past events that were not wanted. */
export async function moveIdleConsumer(deps: UnloggedWrites, move: ConsumerMove): Promise<boolean> {
  return (await run(deps, moveSql, moveValues(move))).length === 1
}

/** Notes what a consumer could not handle; again for what it could not handle again. */
export async function setEventAside(tx: Tx, name: string, { position, reason }: SetAside): Promise<void> {
  await tx.any(
    rawQuery(
      `insert into svc_log.set_aside as s (consumer, position, reason) values ($1, $2, $3)
       on conflict (consumer, position) do update
         set reason = excluded.reason, attempts = s.attempts + 1, "failedAt" = clock_timestamp(), "retryAt" = null`,
      [name, position, reason],
    ),
  )
}

/** Positions that an operator wants to be tried again. */
export async function positionsToRetry(deps: UnloggedWrites, name: string, atMost: number): Promise<readonly string[]> {
  const rows = await run<{ position: string }>(
    deps,
    `select position::text from svc_log.set_aside where consumer = $1 and "retryAt" is not null
     order by svc_log.set_aside.position limit $2`,
    [name, atMost],
  )
  return rows.map(({ position }) => position)
}

/** Takes an event off what was set aside, in the transaction that handles it; false when another worker has. */
export async function takeSetAside(
  tx: Tx,
  { name, token }: Pick<HeldConsumer, 'name' | 'token'>,
  position: string,
): Promise<boolean> {
  const rows = await tx.any(
    rawQuery(
      `delete from svc_log.set_aside s using svc_log.consumer c
       where s.consumer = $1 and s.position = $3 and c.name = s.consumer and c.token = $2::uuid returning s.position`,
      [name, token, position],
    ),
  )
  return rows.length === 1
}

/** Stops a consumer where it is. `failedPosition`: of the event that it halts at. */
export async function stopConsumer(
  deps: UnloggedWrites,
  { name, token }: Pick<HeldConsumer, 'name' | 'token'>,
  state: 'halted' | 'stopped',
  why: { readonly reason: string; readonly failedPosition?: string },
): Promise<void> {
  await run(
    deps,
    `update svc_log.consumer set state = $3, reason = $4, "failedPosition" = $5::bigint, token = null, "leaseUntil" = null
     where name = $1 and token = $2::uuid`,
    [name, token, state, why.reason, why.failedPosition ?? null],
  )
}

/** Has a consumer go on elsewhere, also if a process works for it or something has stopped it. False when there is none. */
export async function resetConsumer(deps: UnloggedWrites, name: string, to: StoredCursor): Promise<boolean> {
  const rows = await run(
    deps,
    `with places as materialized (select ${placesLockSql} as locked)
     update svc_log.consumer set snapshot = $2::pg_snapshot, "upTo" = $3::pg_snapshot, position = $4::bigint,
       state = 'running', reason = null, "failedPosition" = null, token = null, "leaseUntil" = null,
       "advancedAt" = clock_timestamp()
     from places where name = $1 and places.locked is not null returning name`,
    [name, to.snapshot, to.upTo, to.position],
  )
  return rows.length === 1
}

/** Has a halted consumer go on after the event that it halts at, which is set aside. Gives that event's position. */
export async function skipEvent(deps: UnloggedWrites, name: string): Promise<string | undefined> {
  const [row] = await run<{ position: string }>(
    deps,
    `with halted as (
       select c.name, c."failedPosition" as position, c.reason from svc_log.consumer c
       where c.name = $1 and c.state = 'halted' and c."failedPosition" is not null for update),
     aside as (
       insert into svc_log.set_aside (consumer, position, reason) select name, position, coalesce(reason, '') from halted
       on conflict do nothing)
     update svc_log.consumer c set position = halted.position, state = 'running', reason = null, "failedPosition" = null
     from halted where c.name = halted.name returning halted.position::text`,
    [name],
  )
  return row?.position
}

/** Has events that were set aside tried again; all of them unless positions are given. Gives how many. */
export async function retrySetAside(
  deps: UnloggedWrites,
  name: string,
  positions: readonly string[] | undefined,
): Promise<number> {
  const rows = await run(
    deps,
    `update svc_log.set_aside set "retryAt" = clock_timestamp()
     where consumer = $1 and ($2::bigint[] is null or position = any($2)) returning position`,
    [name, positions ?? null],
  )
  return rows.length
}

/** Forgets events that were set aside: they are never handled. Gives how many. */
export async function forgetSetAside(
  deps: UnloggedWrites,
  name: string,
  positions: readonly string[] | undefined,
): Promise<number> {
  const rows = await run(
    deps,
    `delete from svc_log.set_aside where consumer = $1 and ($2::bigint[] is null or position = any($2)) returning position`,
    [name, positions ?? null],
  )
  return rows.length
}
