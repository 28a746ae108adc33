import { type Reader, rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/*
 * Work that is held back for a while. `effects`: everything that reaches beyond the installation or begins by itself
 * (mails, webhooks, schedules, workflows, tasks), in a copy of an installation until an operator says otherwise.
 * `content …`: the removal of content that a backup has yet to read; such a hold ends by itself when the backup does
 * not renew it.
 */

const effects = 'effects'

/** A condition: neither effects nor content are held. */
export const nothingHeldSql = `not exists (select from "svc_Hold" where until > now())`

/** For a database of a program that had none. */
export const holdTableSql = `create table if not exists "svc_Hold" (
    name text primary key,
    since timestamptz not null default now(),
    until timestamptz not null default 'infinity'
  )`

export async function areEffectsHeld(db: Reader): Promise<boolean> {
  const { held } = await db.one<{ held: boolean }>(
    rawQuery(`select exists (select from "svc_Hold" where name = $1 and until > now()) as held`, [effects]),
  )
  return held
}

/** In the transaction of a restore, before any process can see the database. */
export async function holdEffects(tx: Tx): Promise<void> {
  await tx.any(rawQuery('insert into "svc_Hold" (name) values ($1) on conflict do nothing', [effects]))
}

/** False where nothing was held. */
export async function resumeEffects(deps: UnloggedWrites): Promise<boolean> {
  return (await run(deps, 'delete from "svc_Hold" where name = $1 returning name', [effects])).length > 0
}

/** Of the backup `$1`, for `$2` seconds from now. */
export const holdContentSql = `insert into "svc_Hold" as h (name, until) values ('content ' || $1, now() + make_interval(secs => $2))
  on conflict (name) do update set until = excluded.until`
export const releaseContentSql = `delete from "svc_Hold" where name = 'content ' || $1 or name like 'content %' and until < now()`

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
