import { type Reader, rawQuery, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* The backups that were made by the schedule, and how they ended. */

export async function noteBackup(deps: UnloggedWrites, id: string, place: string): Promise<void> {
  await run(deps, 'insert into svc_log.backup (id, place) values ($1, $2)', [id, place])
}

export async function noteBackupEnd(
  deps: UnloggedWrites,
  id: string,
  { bytes, error }: { readonly bytes?: number; readonly error?: string },
): Promise<void> {
  await run(deps, `update svc_log.backup set "endedAt" = clock_timestamp(), bytes = $2, error = $3 where id = $1`, [
    id,
    bytes ?? null,
    error ?? null,
  ])
}

type LastBackup = {
  /** Of the newest one that is whole; null where there is none. */
  readonly hours: number | null
  readonly place: string | null
  /** Since the first one was begun. */
  readonly sinceHours: number | null
  /** Why the newest one has failed, if it has. */
  readonly error: string | null
}

export function lastBackup(db: Reader): Promise<LastBackup> {
  return db.one<LastBackup>(
    rawQuery(`select extract(epoch from now() - good."endedAt")::float8 / 3600 as hours, good.place,
        (select extract(epoch from now() - min("startedAt"))::float8 / 3600 from svc_log.backup) as "sinceHours",
        (select error from svc_log.backup order by "startedAt" desc limit 1) as error
      from (select 1) one left join lateral (
        select "endedAt", place from svc_log.backup where bytes is not null order by "endedAt" desc limit 1) good on true`),
  )
}
