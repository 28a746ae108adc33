import { type CallerKey, floor, walEndSql } from '../replicas/write-positions.ts'
import { rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/*
 * Read-your-writes: what replicas must have replayed before they answer a caller (replicas/write-positions.ts). Written in the order of the
 * callers, of which the floor is the last, or processes that write the same ones could wait for each other.
 */

/** Notes where the log ends, for callers whose writes have committed. */
export async function storeWritePositions(deps: UnloggedWrites, callers: readonly CallerKey[]): Promise<void> {
  await run(
    deps,
    `insert into "svc_WriteMark" as m (caller, position)
     select c, ${walEndSql} from unnest($1::text[]) c order by c
     on conflict (caller) do update
       set position = greatest(m.position, excluded.position), "notedAt" = excluded."notedAt"`,
    [callers],
  )
}

/** Raises the floor to the positions of more than a minute ago and deletes them: a process that far behind serves no reads. */
export async function forgetWritePositions(deps: UnloggedWrites): Promise<void> {
  await run(
    deps,
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

/* Leases (db/leases.ts). They are held by the connection that listens, which runs these two by itself. */

/** Holds or renews the lease of the process `$1`. */
export const renewLease = `
    insert into "svc_Lease" (id, "seenAt") values ($1, clock_timestamp())
    on conflict (id) do update set "seenAt" = excluded."seenAt"`

/** Gives up the lease of the process `$1`, and forgets those that were never given up. */
export const leaveLease = `
    delete from "svc_Lease" where id = $1 or "seenAt" < clock_timestamp() - interval '1 hour'`

/*
 * Pushes to sockets: no state at all, but a NOTIFY, which the read-only pools could send as well and a hook sends in its
 * transaction.
 */

const pushSql = `select pg_notify('svc_push', part) from unnest($1::text[]) part`

/** Tells all web processes, at once or with the commit of a transaction. */
export async function notifySockets(deps: UnloggedWrites, tx: Tx | undefined, parts: readonly string[]): Promise<void> {
  if (tx === undefined) await run(deps, pushSql, [parts])
  else await tx.any(rawQuery(pushSql, [parts]))
}
