import { type Caller, type PrincipalRow, principalSql } from '../../../access/principal.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { type CurrentCatalog, withFreshPlan } from '../../../catalog/store.ts'
import type { ParamValue } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { oncePer } from '../../../language/once.ts'
import type { Statement } from '../../../query/sql.ts'

/** The columns of a row that describe its content. */
export type AssetRow = {
  readonly id: string
  readonly storage: string
  readonly folder: string | null
  readonly filename: string
  readonly type: string
  readonly typeProven: boolean
  readonly size: number
  readonly hash: string | null
  readonly width: number | null
  readonly height: number | null
  readonly name: string
  readonly isPublic: boolean
  readonly tenantId: string | null
  /** Milliseconds. */
  readonly modified: number
  /** Whether the rule that was asked for lets the caller read it. */
  readonly readable: boolean
}

/** The row of a file, whoever may read it, and whether a rule on `t` holds for it; the rule's values begin with the id. */
export async function assetRow(deps: Reads & CurrentCatalog, rule: Statement): Promise<AssetRow | undefined> {
  const text = `select t.id, t.storage, t.storage_folder as folder, t.filename, t.type, t."typeProven" is true as "typeProven",
      t.size::float8 as size, t.hash, t.width, t.height, coalesce(nullif(t."originalFilename", ''), nullif(t.title, ''), t.filename) as name,
      t."isPublic" is true as "isPublic", t."tenant_Id" as "tenantId",
      (extract(epoch from coalesce(t."updatedAt", t."createdAt")) * 1000)::float8 as modified, (${rule.text}) is true as readable
    from "svc_File" t where t.id = $1`
  return withFreshPlan(deps.catalog, async () => (await deps.db.run<AssetRow>(text, rule.values, 'prepared'))[0])
}

/** The row of svc_UserRole that gives a caller the role, at its tenant where there are tenants. */
export async function membershipId(
  { db, config }: Reads & Configuration,
  { userId, role, tenantId }: Pick<Caller, 'userId' | 'role' | 'tenantId'>,
): Promise<string | undefined> {
  const values: ParamValue[] = [userId ?? null, role.id, tenantId ?? null, config.tenancy.enabled]
  const [row] = await db.run<{ id: string }>(
    `select id from "svc_UserRole" where "user_Id" = $1::uuid and "role_Id" = $2::uuid
       and (not $4::boolean or "tenant_Id" is not distinct from $3::uuid) order by id limit 1`,
    values,
    'prepared',
  )
  return row?.id
}

/** The principal of a membership now; undefined if it has ended or its user is not active. */
export async function principalRow(
  deps: Reads & CurrentCatalog,
  membership: string,
): Promise<PrincipalRow | undefined> {
  return withFreshPlan(deps.catalog, async () => {
    const [row] = await deps.db.run<PrincipalRow>(
      principalOfMembership(deps.catalog.current()),
      [membership],
      'prepared',
    )
    return row
  })
}

const principalOfMembership = oncePer(
  (catalog: Catalog) => `
    select ur."user_Id" as "userId", ur."tenant_Id" as "tenantId", ${principalSql(catalog)}
    from "svc_UserRole" ur
    join "svc_User" u on u.id = ur."user_Id" and u.status = 'active'
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where ur.id = $1::uuid`,
)

/** The bytes of a variant; undefined where it is not whole, or not there. */
export async function variantSize({ db }: Reads, storage: string, key: string): Promise<number | undefined> {
  const [row] = await db.run<{ size: number }>(
    `select size::float8 as size from "svc_FileVariant" where storage = $1 and key = $2 and size > 0`,
    [storage, key],
    'prepared',
  )
  return row?.size
}
