import { describe, expect, it } from 'vitest'
import { compileCondition } from '../../../src/query/compile.ts'
import { resolveCondition } from '../../../src/query/resolve.ts'
import { createParams } from '../../../src/query/sql.ts'
import { admin, env, role, T1 } from './support/access.ts'
import { catalog } from './support/catalog.ts'
import { listOf, refusal } from './support/compiled.ts'

const ALL = { fields: ['*', '*.*'] }
const everything = Object.fromEntries(
  [...catalog.collections.keys()].flatMap((name) => [
    [name, ALL],
    [`${name}:update`, ALL],
  ]),
)
const specific = role({ grants: everything, tenantId: T1, tenantSpecific: true })
const general = role({ grants: everything, tenantId: T1 })
const stranger = role({ grants: everything })
const lost = role({ grants: everything, tenantSpecific: true })

const tenants = (more: Partial<(typeof env)['multiTenant']> = {}) => ({
  multiTenant: { enabled: true, strict: true, ignored: new Set<string>(), ...more },
})

function ruleOf(collection: string, action: 'read' | 'update' = 'read', access = specific, more = tenants()) {
  const condition = resolveCondition(catalog, access, collection, action, { ...env, ...more })
  return condition && compileCondition(condition, 't', createParams())
}

describe('tenant scope', () => {
  it.each([
    ['orders', 'read', 't."tenant_Id" = $1::uuid'],
    ['orders', 'update', 't."tenant_Id" = $1::uuid'],
    ['untenanted', 'read', 'false'],
    [
      'svc_User',
      'read',
      'exists (select 1 from "svc_UserRole" q1 where q1."user_Id" = t."id" and q1."tenant_Id" = $1::uuid)',
    ],
    ['svc_UserRole', 'read', 't."tenant_Id" = $1::uuid'],
    ['svc_File', 'read', '(t."tenant_Id" = $1::uuid or t."isPublic" = $2::boolean)'],
    ['svc_File', 'update', 't."tenant_Id" = $1::uuid'],
    ['svc_Template', 'read', '(t."tenant_Id" = $1::uuid or t."tenant_Id" is null)'],
    ['svc_Template', 'update', 't."tenant_Id" = $1::uuid'],
    ['svc_Settings', 'read', undefined],
  ] as const)('of %s to %s', (collection, action, sql) => {
    expect(ruleOf(collection, action)).toBe(sql)
  })

  it('binds everyone but administrators when strict, tenant-specific roles otherwise', () => {
    const loose = tenants({ strict: false })
    expect(ruleOf('orders', 'read', general)).toBe('t."tenant_Id" = $1::uuid')
    expect(ruleOf('orders', 'read', general, loose)).toBeUndefined()
    expect(ruleOf('orders', 'read', specific, loose)).toBe('t."tenant_Id" = $1::uuid')
    expect(ruleOf('orders', 'read', admin)).toBeUndefined()
  })

  it('leaves a role without a tenant the rows without one', () => {
    expect(ruleOf('orders', 'read', stranger)).toBe('t."tenant_Id" is null')
    expect(ruleOf('svc_File', 'read', stranger)).toBe('(t."tenant_Id" is null or t."isPublic" = $1::boolean)')
  })

  it('refuses a tenant-specific role without a tenant', () => {
    expect(refusal(() => ruleOf('orders', 'read', lost))).toMatchObject({
      status: 403,
      message: 'Tenant context required but not provided',
    })
  })

  it('is off in a single-tenant installation and for ignored collections', () => {
    expect(ruleOf('orders', 'read', specific, tenants({ enabled: false }))).toBeUndefined()
    expect(ruleOf('orders', 'read', specific, tenants({ ignored: new Set(['orders']) }))).toBeUndefined()
  })

  it('holds for related rows, subqueries, sorts and aggregates', () => {
    const scoped = (query: Record<string, unknown>) =>
      listOf({ collection: 'orders', access: specific, env: tenants(), query }).text
    for (const query of [
      { fields: ['client.name'] },
      { filter: { 'client.name': 'x' } },
      { sort: 'client.name' },
      { groupBy: ['client.name'] },
      { search: 'x', searchFields: ['client.name'] },
    ]) {
      expect(scoped(query)).toMatch(/q\d+\."tenant_Id" = \$\d+::uuid/)
    }
  })

  it('of a junction without a tenant is that of its parent', () => {
    const fields = ['id', 'blocks.id']
    const env = tenants({ ignored: new Set(['notes']) })
    expect(listOf({ access: specific, env, query: { fields } }).text).not.toContain('false')
    expect(ruleOf('notes_blocks_junction')).toBe('false')
  })
})
