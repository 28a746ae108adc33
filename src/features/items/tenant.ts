import type { Collection, Field } from '../../catalog/catalog.ts'
import { AppError } from '../../errors.ts'
import type { Access } from '../../query/access.ts'
import type { PayloadContext } from './payload.ts'

/** Tenants of rows that are written (spec/permissions.md §7). Reading and the rows that may be changed: query/tenant.ts. */

const tenantField = 'tenant_Id'

/** The tenant that everything a scoped caller writes belongs to; null for callers without one. */
export type OwnTenant = { readonly field: Field; readonly id: string | null }

/**
 * Undefined where the caller is free: administrators, roles that are not tenant-specific where isolation is not strict,
 * collections without tenants. 403 for a tenant-specific role without a tenant.
 */
export function ownTenant({ collection, access, config }: PayloadContext): OwnTenant | undefined {
  const field = collection.fields.get(tenantField)
  if (field === undefined || !isScoped(access, config) || !isTenanted(collection, config)) return undefined
  if (access.tenantId === undefined && access.tenantSpecific)
    throw new AppError(403, 'No tenant context available for tenant-specific operation')
  return { field, id: access.tenantId ?? null }
}

/** Whether rows of the collection belong to tenants. */
export function isTenanted({ name, fields }: Collection, { tenancy }: PayloadContext['config']): boolean {
  return tenancy.enabled && fields.has(tenantField) && !tenancy.ignoredTables.includes(name)
}

/** Whether MULTI_TENANT keeps this caller inside a tenant. */
export function isScoped(access: Access, { tenancy }: Pick<PayloadContext, 'config'>['config']): boolean {
  return tenancy.enabled && !access.admin && (access.tenantSpecific || tenancy.strictIsolation)
}

/** The tenant comes from the session alone: a payload may repeat it, never name another (quality T-01). */
export function checkTenant({ action }: PayloadContext, own: Pick<OwnTenant, 'id'>, given: unknown): void {
  const isOwn = given === own.id || (typeof given === 'string' && given.toLowerCase() === own.id?.toLowerCase())
  if (isOwn) return
  throw new AppError(
    403,
    action === 'create' ? 'Cannot operate on data from different tenant' : "Cannot change item's tenant",
  )
}
