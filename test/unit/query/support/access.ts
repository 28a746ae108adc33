import type { Access, Grant, VariableName } from '../../../../src/query/access.ts'
import type { ResolveEnv } from '../../../../src/query/resolve.ts'

export const U1 = '00000000-0000-4000-8000-000000000001'
export const U2 = '00000000-0000-4000-8000-000000000002'
export const T1 = '00000000-0000-4000-8000-0000000000a1'
export const T2 = '00000000-0000-4000-8000-0000000000a2'

export const env: ResolveEnv = {
  now: new Date('2024-05-10T12:00:00.000Z'),
  multiTenant: { enabled: false, strict: true, ignored: new Set() },
  countByDefault: true,
  postgis: false,
  vector: false,
}

const EVERYTHING: Grant = { fields: null, conditions: null, relConditions: null, defaultValues: null }

export const admin: Access = {
  admin: true,
  roleId: 'administrator',
  userId: U1,
  tenantId: undefined,
  tenantSpecific: false,
  grant: () => undefined,
  variable: (name) => (name === 'CURRENT_USER' ? U1 : undefined),
}

export type Role = {
  /** By collection; each grant is for reading unless its key ends in `:update` and the like. */
  grants: Record<string, Partial<Grant>>
  userId?: string
  tenantId?: string
  tenantSpecific?: boolean
  variables?: (name: VariableName, path: readonly string[]) => unknown
}

/** A caller with these grants and no others. */
export function role({ grants, userId, tenantId, tenantSpecific = false, variables }: Role): Access {
  const byKey = new Map(Object.entries(grants))
  return {
    admin: false,
    roleId: 'some-role',
    userId,
    tenantId,
    tenantSpecific,
    grant: (collection, action) => {
      const grant = byKey.get(action === 'read' ? collection : `${collection}:${action}`)
      return grant && { ...EVERYTHING, ...grant }
    },
    variable: variables ?? ((name, path) => (name === 'CURRENT_USER' && path.length === 0 ? userId : undefined)),
  }
}
