import {
  accessOfPrincipal,
  accessOfRole,
  type PrincipalRow,
  principalOf,
  principalSql,
} from '../../../access/principal.ts'
import { type AccessRules, type Role, roleIn } from '../../../access/store.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { type Access, withGrants } from '../../../query/access.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { PermissionReads } from './members.ts'

/** A role by id or name, or a user by id. */
export type Subject = { readonly role: string } | { readonly user: string }

/** The caller that a question is about, as a request of theirs would be seen. */
export type Party = {
  readonly access: Access
  readonly rules: AccessRules
  /** Undefined for a user without one. */
  readonly role: Role | undefined
  readonly user: { readonly id: string; readonly status: string } | undefined
  readonly tenantId: string | undefined
  /** Why there would be no such request at all. */
  readonly blocked?: string
}

/** The party of a question; 404 for an unknown user or role. */
export async function partyOf(
  deps: PermissionReads,
  { who, tenant }: { readonly who: Subject; readonly tenant: string | undefined },
): Promise<Party> {
  const tenantId = tenant?.toLowerCase()
  return 'user' in who ? userParty(deps, who.user, tenantId) : roleParty(deps, who.role, tenantId)
}

/** 404 where there is none. */
export function roleNamed(rules: AccessRules, idOrName: string): Role {
  const role = roleIn(rules, idOrName)
  if (role === undefined) throw new AppError(404, 'Role not found')
  return role
}

async function roleParty(deps: PermissionReads, idOrName: string, tenantId: string | undefined): Promise<Party> {
  const rules = await deps.access.knowing(idOrName)
  const role = roleNamed(rules, idOrName)
  const at = deps.config.tenancy.enabled ? tenantId : undefined
  return { access: accessOfRole(deps, rules, role, at), rules, role, user: undefined, tenantId: at }
}

/** In the role at the tenant, else in the oldest one, as at sign-in. */
async function userParty(deps: PermissionReads, userId: string, tenantId: string | undefined): Promise<Party> {
  const rules = deps.access.current()
  const text = `
    select u.id as "userId", ur."tenant_Id" as "tenantId", u.status, ur.id is not null as "hasRole", ${principalSql(rules.catalog)}
    from "svc_User" u
    left join "svc_UserRole" ur on ur."user_Id" = u.id and ($2::text is null or ur."tenant_Id"::text = $2)
    left join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where u.id::text = $1 order by ur."createdAt", ur.id limit 1`
  const at = deps.config.tenancy.enabled ? (tenantId ?? null) : null
  const row = await deps.db.maybeOne<PrincipalRow & { status: string; hasRole: boolean }>(
    rawQuery(text, [userId.toLowerCase(), at]),
  )
  if (row === undefined) throw new AppError(404, 'User not found')
  const user = { id: row.userId, status: row.status }
  if (!row.hasRole) return nobody(deps, rules, user, at)
  const principal = await principalOf(deps.db, rules, deps.config.tenancy.enabled, row, deps.log)
  const { role, tenantId: actual } = principal
  const blocked = row.status === 'active' ? {} : { blocked: `Account is ${row.status}` }
  return { access: accessOfPrincipal(deps, principal), rules, role, user, tenantId: actual, ...blocked }
}

function nobody(
  deps: CurrentCatalog & CurrentSettings,
  rules: AccessRules,
  user: Party['user'],
  tenantId: string | null,
): Party {
  const blocked = tenantId === null ? 'No role is assigned to this account' : 'Access denied for specified tenant'
  const access = withGrants(accessOfRole(deps, rules, rules.publicRole, undefined), () => undefined)
  return { access, rules, role: undefined, user, tenantId: undefined, blocked }
}
