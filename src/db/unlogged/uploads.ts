import { rawQuery, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

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

/** An upload as its creator finds it, at the same tenant; it exists for nobody else. */
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

/** Takes an upload for so long, to add to it at this offset; undefined where somebody else has it, or it is elsewhere. */
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

/** Gives the parts of an upload that is given up; undefined where it is not there, or somebody is adding to it. */
export async function removeUpload(deps: UnloggedWrites, key: UploadKey): Promise<readonly string[] | undefined> {
  const [row] = await run<{ parts: readonly string[] }>(
    deps,
    `delete from "svc_Upload" where id = $1 and ${whose} and coalesce("claimedUntil" <= now(), true) returning parts`,
    keyValues(key),
  )
  return row?.parts
}
