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
 * Takes content that is due and that no row names; no upload can hold it from then on. Content that a row names is forgotten
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

/*
 * Content derived from files, such as smaller images. It can be made again, so the log need not have it. A row is
 * there before the content is written; `size` is 0 until that is whole.
 */

/** A variant, and the content that it is made of. */
type NewVariant = { readonly storage: string; readonly key: string; readonly original: string }

/** Since when it is being written; text, because it has to be given back exactly. */
export type VariantClaim = NewVariant & { readonly since: string }

/** Longer than making anything takes: the process that began it was killed. */
const abandonedAfter = '2 minutes'

/**
 * Takes it upon the caller to write the content of a variant. Undefined where it is written already, another process writes it,
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

/** Notes that the content is whole. False where the claim is gone: the content then has no owner. */
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

/* Resumable uploads: content that comes in parts, over several requests and to several processes. */

type NewUpload = {
  readonly id: string
  readonly userId: string
  readonly tenantId: string | undefined
  readonly length: number
  readonly metadata: Readonly<Record<string, string>>
  readonly storage: string
  readonly expiresInSeconds: number
}

export type UploadRow = {
  readonly id: string
  readonly length: number
  readonly offset: number
  readonly metadata: Readonly<Record<string, string>>
  readonly storage: string
  /** Keys of the parts that are stored, in order. */
  readonly parts: readonly string[]
  /** The file that it has become. */
  readonly fileId: string | null
  readonly isClaimed: boolean
  readonly expiresAt: Date
}

const columns = `id, length::float8 as length, "offset"::float8 as "offset", metadata, storage, parts, "file_Id" as "fileId",
  coalesce("claimedUntil" > now(), false) as "isClaimed", "expiresAt"`

/** Its end; null tenants are equal. */
const whose = `"user_Id" = $2 and tenant is not distinct from $3::uuid and "expiresAt" > now()`

export async function insertUpload(deps: UnloggedWrites, upload: NewUpload): Promise<UploadRow> {
  const { id, userId, tenantId, length, metadata, storage, expiresInSeconds } = upload
  const [row] = await run<UploadRow>(
    deps,
    `insert into "svc_Upload" (id, "user_Id", tenant, length, metadata, storage, "expiresAt")
     values ($1, $2, $3, $4, $5::jsonb, $6, now() + make_interval(secs => $7)) returning ${columns}`,
    [id, userId, tenantId ?? null, length, JSON.stringify(metadata), storage, expiresInSeconds],
  )
  return row!
}

/** Unfinished uploads: the number of the user's, and the bytes of all of the tenant. */
export async function openUploads(
  deps: UnloggedWrites,
  { userId, tenantId }: Pick<UploadKey, 'userId' | 'tenantId'>,
): Promise<{ readonly ofUser: number; readonly bytesOfTenant: number }> {
  const [row] = await run<{ ofUser: number; bytesOfTenant: number }>(
    deps,
    `select count(*) filter (where "user_Id" = $1)::int as "ofUser",
       coalesce(sum(length) filter (where tenant = $2::uuid), 0)::float8 as "bytesOfTenant"
     from "svc_Upload" where "file_Id" is null and "expiresAt" > now() and ("user_Id" = $1 or tenant = $2::uuid)`,
    [userId, tenantId ?? null],
  )
  return row!
}

/** An upload as its creator finds it, at the same tenant; other users do not find it. */
export type UploadKey = { readonly id: string; readonly userId: string; readonly tenantId: string | undefined }

const keyValues = ({ id, userId, tenantId }: UploadKey) => [id, userId, tenantId ?? null]

export async function findUpload(deps: UnloggedWrites, key: UploadKey): Promise<UploadRow | undefined> {
  const [row] = await run<UploadRow>(
    deps,
    `select ${columns} from "svc_Upload" where id = $1 and ${whose}`,
    keyValues(key),
  )
  return row
}

/** Takes an upload for so long, to add to it at this offset; undefined where another request has it, or it is elsewhere. */
export async function claimUpload(
  deps: UnloggedWrites,
  key: UploadKey,
  { offset, token, seconds }: { readonly offset: number; readonly token: string; readonly seconds: number },
): Promise<UploadRow | undefined> {
  const [row] = await run<UploadRow>(
    deps,
    `update "svc_Upload" set claim = $5, "claimedUntil" = now() + make_interval(secs => $6)
     where id = $1 and ${whose} and "offset" = $4 and coalesce("claimedUntil" <= now(), true) returning ${columns}`,
    [...keyValues(key), offset, token, seconds],
  )
  return row
}

/** Holds the claim for longer; false when it is lost. */
export async function renewUploadClaim(
  deps: UnloggedWrites,
  id: string,
  token: string,
  seconds: number,
): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_Upload" set "claimedUntil" = now() + make_interval(secs => $3) where id = $1 and claim = $2 returning 1`,
    [id, token, seconds],
  )
  return rows.length === 1
}

/** Adds stored parts; false when the claim is lost. */
export async function addUploadParts(
  deps: UnloggedWrites,
  {
    id,
    token,
    parts,
    size,
  }: { readonly id: string; readonly token: string; readonly parts: readonly string[]; readonly size: number },
): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_Upload" set parts = parts || $3::text[], "offset" = "offset" + $4 where id = $1 and claim = $2 returning 1`,
    [id, token, parts, size],
  )
  return rows.length === 1
}

export async function leaveUpload(deps: UnloggedWrites, id: string, token: string): Promise<void> {
  await run(deps, `update "svc_Upload" set claim = null, "claimedUntil" = null where id = $1 and claim = $2`, [
    id,
    token,
  ])
}

/** Notes the file that an upload has become, in the transaction that makes it; false when the claim is lost. */
export async function endUpload(tx: Tx, id: string, token: string): Promise<boolean> {
  const rows = await tx.any(
    rawQuery(`update "svc_Upload" set "file_Id" = id where id = $1 and claim = $2 and "file_Id" is null returning 1`, [
      id,
      token,
    ]),
  )
  return rows.length === 1
}

/** Gives the parts of an upload that is given up; undefined where it is not there, or a request is adding to it. */
export async function removeUpload(deps: UnloggedWrites, key: UploadKey): Promise<readonly string[] | undefined> {
  const [row] = await run<{ parts: readonly string[] }>(
    deps,
    `delete from "svc_Upload" where id = $1 and ${whose} and coalesce("claimedUntil" <= now(), true) returning parts`,
    keyValues(key),
  )
  return row?.parts
}
