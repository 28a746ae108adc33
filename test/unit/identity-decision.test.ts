import { describe, expect, it } from 'vitest'
import { assignableRoles, mayAssign } from '../../src/access/access.ts'
import type { AccessRules, Role } from '../../src/access/store.ts'
import { AppError } from '../../src/errors.ts'
import {
  type Decider,
  decideMembership,
  decideNewUser,
  decideTenantRemoval,
  decideUserChange,
  decideUserRemoval,
  type IdentityField,
  identityFields,
  type RoleAssignment,
} from '../../src/features/accounts/identity/decision.ts'

const manager: Decider = {
  userId: 'manager',
  admin: false,
  byKey: false,
  byCookie: false,
  tenant: { id: 'one' },
  assignable: new Set(['member', 'editor']),
}
const admin: Decider = { ...manager, userId: 'admin', admin: true, tenant: undefined, assignable: new Set() }
const platform: Decider = { ...admin, userId: undefined }
const nobody: Decider = { ...manager, userId: undefined }

const at = (roleId: string, tenantId: string | null = 'one'): RoleAssignment => ({ roleId, tenantId })
const inReach = [at('member')]

function outcome(decide: () => unknown): unknown {
  try {
    return decide() ?? 'allowed'
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return `${error.status} ${error.code}`
  }
}

const change = (
  decider: Decider,
  userId: string,
  changed: readonly IdentityField[],
  memberships: readonly RoleAssignment[] = inReach,
  vouches = false,
) => outcome(() => decideUserChange(decider, { userId, memberships, changed, vouches }))

const nothing = { unverified: false, sessionsEnd: false }
const newAddress = { unverified: true, sessionsEnd: true }
const refused = '403 IDENTITY_PROTECTED'

it('a new user has a proven address only by an administrator’s word', () => {
  for (const by of [manager, nobody]) expect(outcome(() => decideNewUser(by, { vouches: true }))).toBe(refused)
  for (const by of [admin, platform]) expect(outcome(() => decideNewUser(by, { vouches: true }))).toBe('allowed')
  expect(outcome(() => decideNewUser(manager, { vouches: false }))).toBe('allowed')
})

describe('a change of another user', () => {
  it.each<[string, readonly RoleAssignment[], unknown]>([
    ['without a role', [], nothing],
    ['in a role that may be assigned', inReach, nothing],
    ['in a role that may not', [at('owner')], refused],
    ['in two roles of which one may not be assigned', [at('member'), at('owner')], refused],
    ['at another tenant, too', [at('member'), at('member', 'two')], refused],
    ['at no tenant', [at('member', null)], refused],
  ])('%s', (_what, memberships, expected) => {
    for (const field of identityFields.filter((name) => name !== 'email'))
      expect([field, change(manager, 'other', [field], memberships)]).toEqual([field, expected])
    expect(change(manager, 'other', ['email'], memberships)).toEqual(expected === nothing ? newAddress : expected)
    expect(outcome(() => decideUserRemoval(manager, { userId: 'other', memberships }))).toEqual(
      expected === nothing ? 'allowed' : expected,
    )
  })

  it('is not kept inside a tenant where there are none', () => {
    const everywhere = { ...manager, tenant: undefined }
    expect(change(everywhere, 'other', ['status'], [at('member'), at('editor', 'two')])).toEqual(nothing)
    expect(change(everywhere, 'other', ['status'], [at('owner')])).toBe(refused)
  })

  it('is nothing when no field gets another value, for anybody', () => {
    for (const decider of [manager, admin, nobody, { ...manager, byKey: true }])
      expect(change(decider, decider.userId ?? 'other', [], [at('owner')])).toEqual(nothing)
  })

  it('is never that of a caller without an account', () => {
    expect(change(nobody, 'other', ['status'], [])).toBe(refused)
    expect(outcome(() => decideUserRemoval(nobody, { userId: 'other', memberships: [] }))).toBe(refused)
  })

  it('is any for administrators and the platform; only they vouch for an address', () => {
    for (const decider of [admin, platform, { ...admin, byKey: true }]) {
      expect(change(decider, 'other', ['status', 'password'], [at('owner', 'two')])).toEqual(nothing)
      expect(change(decider, 'other', ['email'], [at('owner')])).toEqual(newAddress)
      expect(change(decider, 'other', ['email'], [at('owner')], true)).toEqual({ unverified: false, sessionsEnd: true })
    }
    expect(change(manager, 'other', ['email', 'emailVerified'], inReach, true)).toEqual(newAddress)
    expect(change(manager, 'other', ['emailVerified'], inReach, true)).toBe(refused)
    expect(change(manager, 'other', ['emailVerified'], inReach)).toEqual(nothing)
  })
})

describe('a change of the own account', () => {
  it('of the address goes by a confirmation, for every user', () => {
    for (const decider of [manager, admin])
      expect(change(decider, decider.userId!, ['email'], [])).toBe('403 EMAIL_CHANGE_NEEDS_CONFIRMATION')
  })

  it('of the password is no write of the row by cookie, which scripts of the origin hold, too', () => {
    const browser = { ...manager, byCookie: true }
    expect(change(browser, 'manager', ['password'], [at('member')])).toBe('403 FRESH_PROOF_REQUIRED')
    expect(change(browser, 'manager', ['status'], [at('member')])).toEqual(nothing)
    expect(change(browser, 'other', ['password'])).toEqual(nothing)
  })

  it('is of password and status, not of what others say', () => {
    expect(change(manager, 'manager', ['password', 'status'], [at('owner')])).toEqual(nothing)
    for (const field of ['emailVerified', 'role_Id', 'tenant_Id'] as const)
      expect(change(manager, 'manager', [field])).toBe(refused)
    expect(change(admin, 'admin', ['emailVerified'])).toEqual(nothing)
    expect(outcome(() => decideUserRemoval(manager, { userId: 'manager', memberships: [at('owner')] }))).toBe('allowed')
  })

  it('is none with an API key', () => {
    for (const decider of [manager, admin].map((one) => ({ ...one, byKey: true }))) {
      for (const field of identityFields)
        expect(change(decider, decider.userId!, [field])).toBe('403 API_KEY_NOT_ACCEPTED')
      expect(outcome(() => decideUserRemoval(decider, { userId: decider.userId!, memberships: [] }))).toBe(
        '403 API_KEY_NOT_ACCEPTED',
      )
    }
  })
})

describe('a membership', () => {
  const of = (roleId: string, tenantId: string | null = 'one', userId = 'other') => ({ roleId, tenantId, userId })
  const decide = (decider: Decider, before?: ReturnType<typeof of>, after?: ReturnType<typeof of>) =>
    outcome(() => decideMembership(decider, { before, after }))
  const no = '403 ROLE_NOT_ASSIGNABLE'

  it.each<[string, ReturnType<typeof of> | undefined, ReturnType<typeof of> | undefined, string]>([
    ['is given', undefined, of('member'), 'allowed'],
    ['is changed', of('member'), of('editor'), 'allowed'],
    ['is taken', of('member'), undefined, 'allowed'],
    ['is not given in another role', undefined, of('owner'), no],
    ['is not changed to another role', of('member'), of('owner'), no],
    ['is not changed from another role', of('owner'), of('member'), no],
    ['is not taken from another role', of('owner'), undefined, no],
    ['is not given at another tenant', undefined, of('member', 'two'), no],
    ['is not moved to another tenant', of('member'), of('member', 'two'), no],
    ['is not moved to another user', of('member'), of('member', 'one', 'third'), no],
  ])('%s', (_what, before, after, expected) => {
    expect(decide(manager, before, after)).toBe(expected)
    expect(decide(admin, before, after)).toBe('allowed')
    expect(decide(nobody, before, after)).toBe(no)
  })

  it('of the own user is not changed with an API key', () => {
    const byKey = { ...manager, byKey: true }
    expect(decide(byKey, of('member', 'one', 'manager'), of('editor', 'one', 'manager'))).toBe(
      '403 API_KEY_NOT_ACCEPTED',
    )
    expect(decide(byKey, of('member'), undefined)).toBe('allowed')
  })

  it('ends with its tenant, if all of them may end', () => {
    const remove = (decider: Decider, ...memberships: RoleAssignment[]) =>
      outcome(() => decideTenantRemoval(decider, memberships))
    expect([remove(manager, at('member')), remove(manager), remove(admin, at('owner'))]).toEqual(
      Array.from({ length: 3 }, () => 'allowed'),
    )
    expect([remove(manager, at('member'), at('owner')), remove(manager, at('member', 'two')), remove(nobody)]).toEqual(
      Array.from({ length: 3 }, () => refused),
    )
  })
})

describe('the roles that a user may assign', () => {
  const role = (id: string, canInviteRoleIds: unknown = null, name = id) => ({ id, name, canInviteRoleIds }) as Role
  const owner = role('o', ['m', 'a', 'p', 'gone', 'o'])
  const roles = [role('m'), owner, role('a', null, 'administrator'), role('p', null, 'public')]
  const rules = { roles: new Map(roles.map((one) => [one.id, one])) } as unknown as AccessRules

  it('are those it may invite to, never administrator or public', () => {
    expect([...assignableRoles(rules, owner, false)]).toEqual(['m', 'o'])
    expect([...assignableRoles(rules, role('x', 'm'), false)]).toEqual([])
    expect([...assignableRoles(rules, undefined, false)]).toEqual([])
  })

  it('are all but public for administrators', () => {
    expect([...assignableRoles(rules, roles[2], true)]).toEqual(['m', 'o', 'a'])
    expect(mayAssign({ admin: true, role: roles[2]! }, roles[3]!)).toBe(false)
  })
})
