import { describe, expect, it } from 'vitest'
import type { Role } from '../../src/access/store.ts'
import { AppError } from '../../src/errors.ts'
import { decideAcceptance } from '../../src/features/accounts/auth/decisions.ts'
import type { Membership } from '../../src/features/accounts/auth/queries.ts'
import type { Invite } from '../../src/features/accounts/membership/membership.ts'
import {
  decideInvitedRole,
  decideInvitedTenant,
  decideSwitch,
  inviteeRefusal,
} from '../../src/features/accounts/tenants/decisions.ts'

const role = (name: string, more: Partial<Role> = {}): Role => ({
  id: `r-${name}`,
  name,
  description: null,
  isTenantSpecific: false,
  canInviteRoleIds: null,
  ...more,
})
const manager = role('manager', { canInviteRoleIds: ['r-user', 'r-administrator', 'r-public'], isTenantSpecific: true })
const inviter = { admin: false, role: manager, tenantId: 't1' }
const administrator = { admin: true, role: role('administrator'), tenantId: undefined }

function statusOf(work: () => unknown): number | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    if (error instanceof AppError) return error.status
    throw error
  }
}

describe('inviting', () => {
  it('gives only roles that the own role may invite to, and never administrator or public', () => {
    expect(decideInvitedRole(inviter, role('user')).name).toBe('user')
    for (const wanted of [role('administrator'), role('public'), role('editor'), undefined])
      expect(statusOf(() => decideInvitedRole(inviter, wanted))).toBe(403)
  })

  it('lets administrators give any role but public, and tells them which are unknown', () => {
    expect(decideInvitedRole(administrator, role('administrator')).name).toBe('administrator')
    for (const wanted of [role('public'), undefined])
      expect(statusOf(() => decideInvitedRole(administrator, wanted))).toBe(404)
  })

  it('is into the own tenant, for others only where tenants do not bind the caller', () => {
    const free = { ...inviter, role: role('manager') }
    expect(decideInvitedTenant(inviter, undefined, false)).toBe('t1')
    expect(statusOf(() => decideInvitedTenant(inviter, 't2', false))).toBe(403)
    expect(decideInvitedTenant(free, 't2', false)).toBe('t2')
    expect(statusOf(() => decideInvitedTenant(free, 't2', true))).toBe(403)
    expect(decideInvitedTenant(administrator, 't2', true)).toBe('t2')
    expect(statusOf(() => decideInvitedTenant(administrator, undefined, false))).toBe(400)
  })

  it('is refused for members and for those who are invited already', () => {
    expect(inviteeRefusal({ isMember: false, isInvited: false })).toBeUndefined()
    expect(inviteeRefusal({ isMember: true, isInvited: true })?.message).toBe('User is already a member of this tenant')
    expect(inviteeRefusal({ isMember: false, isInvited: true })?.status).toBe(400)
  })
})

describe('accepting an invitation', () => {
  const invite: Invite = {
    id: 'i1',
    email: 'ada@example.com',
    roleId: 'r-user',
    tenantId: 't1',
    tenantName: 'One',
    userExists: true,
  }
  const roles = new Map([['r-user', role('user')]])

  it('is for the address that it was sent to', () => {
    expect(decideAcceptance(invite, 'ada@example.com', roles)).toEqual({ invite, role: role('user') })
    expect(statusOf(() => decideAcceptance(invite, 'bob@example.com', roles))).toBe(403)
    expect(statusOf(() => decideAcceptance(invite, undefined, roles))).toBe(403)
  })

  it('is refused when the invitation is over or its role is gone', () => {
    expect(statusOf(() => decideAcceptance(undefined, 'ada@example.com', roles))).toBe(400)
    expect(statusOf(() => decideAcceptance(invite, 'ada@example.com', new Map()))).toBe(400)
  })
})

describe('switching the tenant', () => {
  const member = (tenantId: string | null): Membership => ({
    userRoleId: `ur-${tenantId}`,
    tenantId,
    role: role('user'),
    tenant: tenantId === null ? null : { id: tenantId, name: tenantId },
  })
  const memberships = [member('t1'), member('t2'), member(null)]

  it('finds the membership by tenant or by its own id, in any case', () => {
    expect(decideSwitch(memberships, { tenantId: 'T2', userRoleId: undefined })?.tenantId).toBe('t2')
    expect(decideSwitch(memberships, { tenantId: undefined, userRoleId: 'UR-t1' })?.tenantId).toBe('t1')
  })

  it('finds none at a tenant of others, and refuses a membership that does not fit', () => {
    expect(decideSwitch(memberships, { tenantId: 't3', userRoleId: undefined })).toBeUndefined()
    expect(statusOf(() => decideSwitch(memberships, { tenantId: 't2', userRoleId: 'ur-t1' }))).toBe(403)
    expect(statusOf(() => decideSwitch(memberships, { tenantId: undefined, userRoleId: 'ur-null' }))).toBe(400)
    expect(statusOf(() => decideSwitch(memberships, { tenantId: undefined, userRoleId: undefined }))).toBe(400)
  })
})
