import { rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/*
 * Content that is removed when it is due, unless a row names it by then (docs/decisions/0043). Whoever writes content that
 * no row names yet holds it by a row that is not due.
 */

/** Content by its place: a key of a storage service. */
export type Content = { readonly storage: string; readonly key: string }

/** Holds content for so long; waits for whoever is removing it just now. */
export async function holdContent(rt: UnloggedWrites, { storage, key }: Content, seconds: number): Promise<void> {
  await run(
    rt,
    `insert into "svc_FileRemoval" as r (storage, key, "dueAt") values ($1, $2, now() + make_interval(secs => $3))
     on conflict (storage, key) do update set "dueAt" = greatest(r."dueAt", excluded."dueAt")`,
    [storage, key, seconds],
  )
}

/** Begins the time of a hold anew; false when it is over. */
export async function renewHold(rt: UnloggedWrites, { storage, key }: Content, seconds: number): Promise<boolean> {
  const rows = await run(
    rt,
    `update "svc_FileRemoval" set "dueAt" = now() + make_interval(secs => $3)
     where storage = $1 and key = $2 and "dueAt" > now() returning 1`,
    [storage, key, seconds],
  )
  return rows.length === 1
}

/** Forgets content that is not there any more. */
export async function forgetContent(rt: UnloggedWrites, { storage, key }: Content): Promise<void> {
  await run(rt, `delete from "svc_FileRemoval" where storage = $1 and key = $2`, [storage, key])
}

/** Lets go of content that a row names from this transaction on; false when the hold is over. */
export async function releaseContent(tx: Tx, { storage, key }: Content): Promise<boolean> {
  const rows = await tx.any(
    rawQuery(
      `delete from "svc_FileRemoval" where storage = $1 and key = $2 and "dueAt" > clock_timestamp() returning 1`,
      [storage, key],
    ),
  )
  return rows.length === 1
}

/** Has content removed so long from now, or earlier where that was decided already. */
export async function scheduleRemoval(tx: Tx, contents: readonly Content[], seconds: number): Promise<void> {
  await tx.any(
    rawQuery(
      `insert into "svc_FileRemoval" (storage, key, "dueAt")
       select distinct storage, key, now() + make_interval(secs => $3) from unnest($1::text[], $2::text[]) c (storage, key)
       order by storage, key
       on conflict (storage, key) do nothing`,
      [contents.map(({ storage }) => storage), contents.map(({ key }) => key), seconds],
    ),
  )
}
