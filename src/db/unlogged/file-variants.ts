import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/*
 * Content derived from files, such as smaller images. It can be made again, so nobody asks the log about it. A row is
 * there before the content is written; `size` is 0 until that is whole.
 */

/** A variant, and the content that it is made of. */
type NewVariant = { readonly storage: string; readonly key: string; readonly original: string }

/** Since when somebody writes it; text, because it has to be given back exactly. */
export type VariantClaim = NewVariant & { readonly since: string }

/** Longer than anything that is made takes: whoever began it was killed. */
const abandonedAfter = '2 minutes'

/**
 * Takes it upon the caller to write the content of a variant. Undefined where it is written already, somebody else does so,
 * or no row of svc_File names the original any more; that row stays until this has been noted, so what is removed with
 * it is complete.
 */
export async function claimVariant(
  deps: UnloggedWrites,
  { storage, key, original }: NewVariant,
  fileId: string,
): Promise<VariantClaim | undefined> {
  const [row] = await run<{ since: string }>(
    deps,
    `with file as (select from "svc_File" where id = $4::uuid and storage = $1
         and concat_ws('/', nullif(storage_folder, ''), filename) = $3 for key share)
     insert into "svc_FileVariant" as v (storage, key, original) select $1, $2, $3 from file
     on conflict (storage, key) do update set "createdAt" = now()
       where v.size = 0 and v."createdAt" < now() - interval '${abandonedAfter}'
     returning "createdAt"::text as since`,
    [storage, key, original, fileId],
  )
  return row && { storage, key, original, since: row.since }
}

/** Notes that the content is whole. False where the claim is gone: the content then belongs to nobody. */
export async function completeVariant(deps: UnloggedWrites, claim: VariantClaim, size: number): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_FileVariant" set size = $4::bigint where storage = $1 and key = $2 and "createdAt" = $3::timestamptz
     returning key`,
    [claim.storage, claim.key, claim.since, size],
  )
  return rows.length === 1
}

/** For what could not be written, and for content that is gone. */
export async function forgetVariant(
  deps: UnloggedWrites,
  { storage, key }: Pick<NewVariant, 'storage' | 'key'>,
): Promise<void> {
  await run(deps, `delete from "svc_FileVariant" where storage = $1 and key = $2`, [storage, key])
}

/** The oldest variants of one original beyond the limit. */
export async function surplusVariants(
  deps: UnloggedWrites,
  { storage, original }: Pick<NewVariant, 'storage' | 'original'>,
  most: number,
): Promise<readonly string[]> {
  const rows = await run<{ key: string }>(
    deps,
    `select key from "svc_FileVariant" where storage = $1 and original = $2 and size > 0
     order by "createdAt" desc, key offset $3::int`,
    [storage, original, most],
  )
  return rows.map(({ key }) => key)
}
