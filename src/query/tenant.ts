/** Tenant scoping (`spec/permissions.md` §7): which rows belong to the caller's tenant. */
import type { Collection } from '../catalog/catalog.ts'
import { type Action, AppError } from '../errors.ts'
import type { Access } from './access.ts'
import type { Filter } from './ast.ts'

export type TenantRules = {
  /** MULTI_TENANT. */
  readonly enabled: boolean
  /** STRICT_TENANT_ISOLATION: only the administrator escapes. */
  readonly strict: boolean
  /** TENANT_IGNORED_TABLES. */
  readonly ignored: ReadonlySet<string>
}

/** System collections whose rows without a tenant are everybody's defaults, to read. */
const SHARED_DEFAULTS = new Set(['svc_Template', 'svc_Settings', 'svc_Notification'])

/** System collections whose tenant is that of a related row. */
const VIA: ReadonlyMap<string, string> = new Map([
  ['svc_User', 'userRoles.tenant_Id'],
  ['svc_WorkflowExecutionLog', 'execution.tenant_Id'],
  ['svc_Block', 'page.tenant_Id'],
])

/**
 * The filter that keeps a caller inside its tenant; undefined where none is needed, `nothing` where a row cannot be
 * attributed to a tenant. 403 for a tenant-specific role without a tenant.
 */
export function tenantFilter(
  collection: Collection,
  action: Action,
  access: Access,
  rules: TenantRules,
): Filter | 'nothing' | undefined {
  const scoped = rules.enabled && !access.admin && (access.tenantSpecific || rules.strict)
  if (!scoped || rules.ignored.has(collection.name)) return undefined
  const path = tenantPath(collection)
  if (path === undefined) return collection.system ? undefined : 'nothing'
  if (access.tenantId === undefined && access.tenantSpecific) {
    throw new AppError(403, 'Tenant context required but not provided')
  }
  const own = entry(path, access.tenantId ?? null)
  return action === 'read' ? { kind: 'or', of: [own, ...readableByAll(collection)] } : own
}

function tenantPath(collection: Collection): string | undefined {
  return VIA.get(collection.name) ?? (collection.fields.has('tenant_Id') ? 'tenant_Id' : undefined)
}

function readableByAll(collection: Collection): Filter[] {
  if (collection.name === 'svc_File') return [entry('isPublic', true)]
  return SHARED_DEFAULTS.has(collection.name) ? [entry('tenant_Id', null)] : []
}

const entry = (path: string, value: unknown): Filter => ({ kind: 'entry', path, value })
