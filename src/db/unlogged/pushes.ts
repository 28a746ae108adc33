import { rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/*
 * Pushes to sockets: no state at all, but a NOTIFY, which the read-only pools could send as well and a hook sends in its
 * transaction.
 */

const pushSql = `select pg_notify('svc_push', part) from unnest($1::text[]) part`

/** Tells all web processes, at once or with the commit of a transaction. */
export async function notifySockets(rt: UnloggedWrites, tx: Tx | undefined, parts: readonly string[]): Promise<void> {
  if (tx === undefined) await run(rt, pushSql, [parts])
  else await tx.any(rawQuery(pushSql, [parts]))
}
