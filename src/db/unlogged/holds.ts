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
