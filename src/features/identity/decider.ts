import type { Access } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'
import { isScoped } from '../items/tenant.ts'
import { assignableRoles } from '../permissions/assignable.ts'
import type { Decider } from './decision.ts'

/** A caller as decisions about identities see it. */
export function deciderOf(rt: Runtime, access: Access): Decider {
  const { admin, userId, byKey = false, roleId, tenantId = null } = access
  const rules = rt.access.current()
  return {
    userId,
    admin,
    byKey,
    tenant: isScoped(access, rt.config) ? { id: tenantId } : undefined,
    assignable: assignableRoles(rules, rules.roles.get(roleId), admin),
  }
}

/** Whether a caller can write any membership at all. */
export function mayAssignRoles(rt: Runtime, access: Access): boolean {
  return access.admin || deciderOf(rt, access).assignable.size > 0
}
