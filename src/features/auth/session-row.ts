import type { Logger } from 'pino'
import type { Catalog } from '../../catalog/catalog.ts'
import type { Database } from '../../db/pools.ts'
import type { SessionType } from '../../db/unlogged/sessions.ts'
import { oncePer } from '../../once-per.ts'
import { relatedPathsOf } from '../permissions/permissions.ts'
import { loadRelated, type Related } from '../permissions/related.ts'
import type { AccessRules, Role } from '../permissions/store.ts'
import { standingSql } from './own-row.ts'

/** Who somebody is, as one statement saw it. Rows are in wire form, without hidden fields. */
export type Standing = {
  readonly userId: string
  /** Undefined outside multi-tenant mode. */
  readonly tenantId: string | undefined
  readonly role: Role
  readonly user: Row
  readonly userRole: Row
  readonly tenant: Row | undefined
  /** The rules that say what it may do, and what their variables over relations stand for. */
  readonly rules: AccessRules
  readonly related: Related
}

type Row = Readonly<Record<string, unknown>>

/** What a statement with `standingSql` finds. */
export type StandingRow = {
  userId: string
  tenantId: string | null
  role: Role
  user: Row
  userRole: Row
  tenant: Row | null
}

/** Adds what the role's rules need to know of the user; one more statement where they follow relations. */
export async function standingOf(
  db: Database,
  rules: AccessRules,
  multiTenant: boolean,
  { tenantId, tenant, ...same }: StandingRow,
  log: Logger,
): Promise<Standing> {
  const paths = relatedPathsOf(rules, same.role.id)
  const related = await loadRelated(db, rules.catalog, paths, String(same.userRole.id), log)
  return {
    ...same,
    tenantId: multiTenant ? (tenantId ?? undefined) : undefined,
    tenant: multiTenant ? (tenant ?? undefined) : undefined,
    rules,
    related,
  }
}

export type SessionRow = StandingRow & {
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
    select s.id, s.type, s."user_Id" as "userId", s."tenant_Id" as "tenantId", ${standingSql(catalog)},
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
