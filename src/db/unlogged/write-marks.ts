import type { UnloggedWrites } from '../sql.ts'
import { walEndSql } from '../wal.ts'
import { type CallerKey, floor } from '../write-marks.ts'
import { run } from './run.ts'

/*
 * Write marks: what replicas must have replayed before they answer a caller (write-marks.ts). Written in the order of the
 * callers, of which the floor is the last, or processes that write the same ones could wait for each other.
 */

/** Notes where the log ends, for callers whose writes have committed. */
export async function storeWriteMarks(rt: UnloggedWrites, callers: readonly CallerKey[]): Promise<void> {
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
export async function forgetWriteMarks(rt: UnloggedWrites): Promise<void> {
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
