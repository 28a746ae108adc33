import type { Catalog } from '../../catalog/catalog.ts'
import type { Database } from '../../db/pools.ts'
import type { SessionType } from '../../db/unlogged/sessions.ts'
import { oncePer } from '../../once-per.ts'
import { type PrincipalRow, principalSql } from '../permissions/permissions.ts'

export type SessionRow = PrincipalRow & {
  id: string
  type: SessionType
  extendable: boolean
  idle: boolean
  remainingMs: number
}

/** A live session and whom it stands for; undefined when it is not live. */
export async function readSession(db: Database, catalog: Catalog, tokenHash: string): Promise<SessionRow | undefined> {
  const text = sessionSql(catalog)
  const [row] = await db.run<SessionRow>(text, [tokenHash], 'prepared')
  return row
}

/** A session counts with the role that its user has at its tenant now: demotion and removal act at once. */
const sessionSql = oncePer(
  (catalog: Catalog) => `
    select s.id, s.type, s."user_Id" as "userId", s."tenant_Id" as "tenantId", ${principalSql(catalog)},
      s."updatedAt" < now() - interval '1 day' as extendable,
      coalesce(s."lastUsedAt", s."createdAt") < now() - interval '5 minutes' as idle,
      (extract(epoch from s."expiresAt" - now()) * 1000)::float8 as "remainingMs"
    from "svc_Sessions" s
    join "svc_User" u on u.id = s."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = s."tenant_Id"
    where s.token = $1 and s."expiresAt" > now()`,
)
