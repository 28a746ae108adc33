import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveCondition } from '../../../query/resolve.ts'
import { createParams } from '../../../query/sql.ts'
import { keyCondition, ruleSql, type WriteContext } from '../../data/items/items.ts'
import type { Described } from './metadata.ts'

/** The columns of a row for the place of its content and its owner. */
export type FileRow = {
  readonly id: string
  readonly storage: string
  readonly storage_folder: string | null
  readonly filename: string
  readonly tenant_Id: string | null
  readonly userCreated_Id: string | null
  readonly size: string | number
  /** What an entity tag of the row names it by (see `Versions` of items). */
  readonly version: string
}

const columns = 'id, storage, storage_folder, filename, "tenant_Id", "userCreated_Id", size, xmin::text as version'

/** The row, where the caller may change it so. */
export async function changeableFile(db: Reader, context: WriteContext, id: string): Promise<FileRow | undefined> {
  const params = createParams()
  const where = `${keyCondition(context.collection, [id], params)} and ${ruleSql(context, 't', params)}`
  return db.maybeOne<FileRow>(rawQuery(`select ${columns} from "svc_File" t where ${where}`, params.values))
}

/** Whether there is such a row that the caller may read. */
export async function isReadableFile(
  db: Reader,
  { catalog, collection, access, env }: WriteContext,
  id: string,
): Promise<boolean> {
  if (!access.admin && access.grant(collection.name, 'read') === undefined) return false
  const params = createParams()
  const rule = resolveCondition(catalog, access, collection.name, 'read', env)
  const where = `${keyCondition(collection, [id], params)} and ${rule === undefined ? 'true' : compileCondition(rule, 't', params)}`
  return (await db.maybeOne(rawQuery(`select id from "svc_File" t where ${where}`, params.values))) !== undefined
}

/** The row as it is, until the end of the transaction. */
export function lockedFile(tx: Tx, id: string): Promise<(FileRow & Described) | undefined> {
  const described = 'type, "typeProven", metadata::text as metadata'
  return tx.maybeOne<FileRow & Described>(
    rawQuery(`select ${columns}, ${described} from "svc_File" where id = $1 for update`, [id]),
  )
}

/** The total size of each tenant's files in each service; null for those without a tenant. */
export async function usageOfTenants({ db }: Reads): Promise<readonly Usage[]> {
  const rows = await db.any<Omit<Usage, 'files' | 'bytes'> & { files: string; bytes: string }>(sql`
    select nullif(tenant, '00000000-0000-0000-0000-000000000000') as "tenant_Id", storage, sum(files)::text as files, sum(bytes)::text as bytes
    from "svc_FileUsage" group by tenant, storage having sum(files) > 0 order by sum(bytes) desc, tenant, storage`)
  return rows.map((row) => ({ ...row, files: Number(row.files), bytes: Number(row.bytes) }))
}

type Usage = {
  readonly tenant_Id: string | null
  readonly storage: string
  readonly files: number
  readonly bytes: number
}

/** The total size of a tenant's files, in bytes. */
export async function usedBytes({ db }: { readonly db: Reader }, tenant: string): Promise<number> {
  const { bytes } = await db.one<{ bytes: string | number }>(
    sql`select coalesce(sum(bytes), 0)::text as bytes from "svc_FileUsage" where tenant = ${tenant}::uuid`,
  )
  return Number(bytes)
}

/** The same in a transaction that adds to it, after those that added before: two cannot both be the last. */
export async function usedBytesNow(tx: Tx, tenant: string): Promise<number> {
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended('svc_FileUsage ' || ${tenant}, 0))`)
  return usedBytes({ db: tx }, tenant)
}

/** The tenant of a row that this transaction has written. */
export async function tenantOf(tx: Tx, id: string): Promise<string | null> {
  const { tenant } = await tx.one<{ tenant: string | null }>(
    sql`select "tenant_Id" as tenant from "svc_File" where id = ${id}::uuid`,
  )
  return tenant
}
