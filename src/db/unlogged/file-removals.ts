import { rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { nothingHeldSql } from './holds.ts'
import { run } from './run.ts'

/*
 * Content to remove when it is due, unless a row names it by then (docs/decisions/0043). A writer of content that no
 * row names yet holds it by a row that is not due. A row with attempts is being removed, and can be held no more.
 */

/** Content by its place: a key of a storage service. */
export type ContentKey = { readonly storage: string; readonly key: string }

/** Holds content for so long; false where it is being removed. */
export async function holdContent(
  deps: UnloggedWrites,
  { storage, key }: ContentKey,
  seconds: number,
): Promise<boolean> {
  const rows = await run(
    deps,
    `insert into "svc_FileRemoval" as r (storage, key, "dueAt") values ($1, $2, now() + make_interval(secs => $3))
     on conflict (storage, key) do update set "dueAt" = greatest(r."dueAt", excluded."dueAt") where r.attempts = 0
     returning 1`,
    [storage, key, seconds],
  )
  return rows.length === 1
}

/** Begins the time of a hold anew; false when it is over. */
export async function renewHold(deps: UnloggedWrites, { storage, key }: ContentKey, seconds: number): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_FileRemoval" set "dueAt" = now() + make_interval(secs => $3)
     where storage = $1 and key = $2 and attempts = 0 and "dueAt" > now() returning 1`,
    [storage, key, seconds],
  )
  return rows.length === 1
}

/** Forgets content that is not there any more, and what was made of it. */
export async function forgetContent(deps: UnloggedWrites, { storage, key }: ContentKey): Promise<void> {
  await run(
    deps,
    `with variants as (delete from "svc_FileVariant" where storage = $1 and original = $2)
     delete from "svc_FileRemoval" where storage = $1 and key = $2`,
    [storage, key],
  )
}

/** Lets go of content that a row names from this transaction on; false when the hold is over. */
export async function releaseContent(tx: Tx, { storage, key }: ContentKey): Promise<boolean> {
  const rows = await tx.any(
    rawQuery(
      `delete from "svc_FileRemoval"
       where storage = $1 and key = $2 and attempts = 0 and "dueAt" > clock_timestamp() returning 1`,
      [storage, key],
    ),
  )
  return rows.length === 1
}

/** Has content removed so long from now, unless that was decided before. */
export async function scheduleRemoval(tx: Tx, contents: readonly ContentKey[], seconds: number): Promise<void> {
  await tx.any(rawQuery(`${scheduleSql} on conflict (storage, key) do nothing`, scheduled(contents, seconds)))
}

/** The same, and sooner where it was to be later. */
export async function hastenRemoval(tx: Tx, contents: readonly ContentKey[], seconds: number): Promise<void> {
  await tx.any(
    rawQuery(
      `${scheduleSql} on conflict (storage, key) do update set "dueAt" = least(r."dueAt", excluded."dueAt")`,
      scheduled(contents, seconds),
    ),
  )
}

const scheduleSql = `
  insert into "svc_FileRemoval" as r (storage, key, "dueAt")
  select distinct storage, key, now() + make_interval(secs => $3) from unnest($1::text[], $2::text[]) c (storage, key)
  order by storage, key`

const scheduled = (contents: readonly ContentKey[], seconds: number) => [
  contents.map(({ storage }) => storage),
  contents.map(({ key }) => key),
  seconds,
]

/** Content to be removed now, with the keys of what was made of it. */
export type RemovableContent = ContentKey & { readonly variants: readonly string[]; readonly attempts: number }

/**
 * Takes content that is due and that no row names; nobody can hold it from then on. Content that a row names is forgotten
 * here. One that is not forgotten in time is due again: in two minutes, then later and later, up to an hour.
 */
export function claimDueContent(deps: UnloggedWrites, atMost: number): Promise<RemovableContent[]> {
  return run(
    deps,
    `with due as (
       select storage, key from "svc_FileRemoval" where "dueAt" <= now() and ${nothingHeldSql}
       order by "dueAt" limit $1 for update skip locked),
     named as (
       select d.storage, d.key from due d where exists (
         select from "svc_File" f where f.storage = d.storage and f.filename = regexp_replace(d.key, '^.*/', '')
           and coalesce(f.storage_folder, '') = regexp_replace(d.key, '(^|/)[^/]*$', ''))),
     forgotten as (
       delete from "svc_FileRemoval" r using named n where r.storage = n.storage and r.key = n.key)
     update "svc_FileRemoval" r
     set attempts = r.attempts + 1, "dueAt" = now() + least(interval '1 hour', interval '1 minute' * 2 ^ least(r.attempts + 1, 10))
     from due d where r.storage = d.storage and r.key = d.key
       and not exists (select from named n where n.storage = r.storage and n.key = r.key)
     returning r.storage, r.key, r.attempts,
       array(select v.key from "svc_FileVariant" v where v.storage = r.storage and v.original = r.key) as variants`,
    [atMost],
  ) as Promise<RemovableContent[]>
}
