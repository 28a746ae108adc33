import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isUuid } from '../../../language/uuid.ts'
import {
  membershipsOf,
  moveSession,
  type Person,
  personBody,
  roleAndPermissions,
  type SessionType,
  tenantBody,
} from '../auth/auth.ts'
import { findTenant, type TenantWrites } from '../membership/membership.ts'
import { type AtTenant, decideSwitch, isAtTenant } from './decisions.ts'
import type { SwitchBody } from './schema.ts'

/** 400 outside multi-tenant mode. */
export function checkMultiTenant({ config }: Configuration): void {
  if (!config.tenancy.enabled) throw new AppError(400, 'Multi-tenant mode is not enabled')
}

/** The tenants where the caller has a role, in the order of joining, with what the caller is there. */
export async function listTenants(rt: Reads & CurrentCatalog, request: FastifyRequest) {
  const memberships = await membershipsOf(rt.db, rt.catalog.current(), signedIn(request.caller).userId)
  return {
    tenants: memberships.filter(isAtTenant).map(({ tenant, userRoleId, role }) => ({
      ...tenant,
      userRole_Id: userRoleId,
      role: { id: role.id, name: role.name, app_access: role.app_access ?? null },
    })),
  }
}

/**
 * Goes on at another tenant of the caller's: its session there replaces the one it was called with.
 *
 * @throws {AppError} 400 without a tenant to go to, 403 for one where the caller has no role or over the limit of the
 *   session type asked for, 404 for an unknown one
 */
export async function switchTenant(
  rt: TenantWrites,
  request: FastifyRequest,
  { tenant_Id, userRole_Id, authType }: Static<typeof SwitchBody>,
) {
  const membership = await chosenMembership(rt, request, tenant_Id, userRole_Id)
  return enterTenant(rt, request, membership, authType)
}

/** Replaces the caller's session by one with this role; the answer of everything that signs somebody in. */
async function enterTenant(
  rt: TenantWrites,
  request: FastifyRequest,
  { tenantId, tenant, role, userRoleId }: AtTenant,
  type: SessionType | undefined,
) {
  const { userId, user } = signedIn(request.caller)
  const actor = actorOf(request, { userId, tenantId, role })
  const token = await commit(rt, actor, async (tx) => ({
    result: await moveSession(rt, tx, request, { roleId: role.id, tenantId, type }),
    events: [{ type: 'auth.tenant_switched', data: { userId, tenantId } }],
  }))
  const about = { user: personBody(user as Person), ...roleAndPermissions(rt, role), tenant: tenantBody(rt, tenant) }
  return { token, body: { ...about, userRole_Id: userRoleId } }
}

async function chosenMembership(
  rt: Reads & CurrentCatalog,
  request: FastifyRequest,
  tenantId: string | undefined,
  userRoleId: string | undefined,
): Promise<AtTenant> {
  const memberships = await membershipsOf(rt.db, rt.catalog.current(), signedIn(request.caller).userId)
  const chosen = decideSwitch(memberships, { tenantId, userRoleId })
  if (chosen === undefined) throw await noMembership(rt, tenantId!)
  return chosen
}

async function noMembership(rt: Reads & CurrentCatalog, tenantId: string): Promise<AppError> {
  const exists = isUuid(tenantId) && (await findTenant(rt.db, rt.catalog.current(), tenantId)) !== undefined
  return exists ? new AppError(403, 'Access denied for specified tenant') : new AppError(404, 'Tenant not found')
}
