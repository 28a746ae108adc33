import { describe, expect, it } from 'vitest'
import type { Role } from '../../src/access/store.ts'
import { AppError } from '../../src/errors.ts'
import {
  chooseMembership,
  decideAddressConfirmation,
  decideAddressRequest,
  decideAskedRole,
  decideMove,
  decideOwnership,
  decidePassword,
  decidePasswordChange,
  decideRedemption,
  decideRefresh,
  decideRegisteredRole,
  endingOf,
  mayBeMailedAgain,
  mayRepeat,
  sessionRefusal,
  signInRefusal,
} from '../../src/features/accounts/auth/decisions.ts'
import type { Account, Membership } from '../../src/features/accounts/auth/queries.ts'
import { lockSeconds } from '../../src/features/accounts/proofs/proofs.ts'

const ada: Account = {
  id: 'u1',
  email: 'ada@example.com',
  firstName: 'Ada',
  lastName: null,
  status: 'active',
  emailVerified: true,
  password: 'hash',
}
const lax = { requireEmailVerification: false }
const strict = { requireEmailVerification: true }
const role = (name: string): Role => ({
  id: `r-${name}`,
  name,
  description: null,
  isTenantSpecific: false,
  canInviteRoleIds: null,
})
const member = (tenantId: string | null): Membership => ({
  userRoleId: `ur-${tenantId}`,
  tenantId,
  role: role('user'),
  tenant: tenantId === null ? null : { id: tenantId, name: tenantId },
})

function refusalOf(work: () => unknown): { status: number; message: string } {
  try {
    work()
  } catch (error) {
    if (error instanceof AppError) return { status: error.status, message: error.message }
    throw error
  }
  throw new Error('nothing was refused')
}

describe('signing in with a password', () => {
  it('lets in the holder of an active account with the right password', () => {
    expect(decidePassword(ada, true, strict)).toEqual({ account: ada })
  })

  it('refuses an unknown address and a wrong password alike, and records only the known account', () => {
    const unknown = decidePassword(undefined, false, lax)
    const wrong = decidePassword(ada, false, lax)
    expect(unknown).toMatchObject({ refusal: { status: 400, message: 'Incorrect password.' }, events: [] })
    expect(wrong).toMatchObject({ refusal: { status: 400, message: 'Incorrect password.' } })
    expect(wrong).toHaveProperty('events', [{ type: 'auth.login_failed', data: { userId: 'u1' } }])
  })

  it('never lets in an account that is not there, whatever the comparison said', () => {
    expect(decidePassword(undefined, true, lax)).toHaveProperty('refusal.status', 400)
  })

  it('says what stands against an account only to a caller who knows its password', () => {
    const suspended = { ...ada, status: 'suspended' }
    expect(decidePassword(suspended, false, lax)).toHaveProperty('refusal.message', 'Incorrect password.')
    expect(decidePassword(suspended, true, lax)).toMatchObject({
      refusal: { status: 403, message: 'Account is suspended' },
      events: [],
    })
  })

  it('asks for a verified address only where the configuration does', () => {
    const unverified = { ...ada, emailVerified: false }
    expect(signInRefusal(unverified, lax)).toBeUndefined()
    expect(signInRefusal(unverified, strict)?.status).toBe(403)
    expect(signInRefusal({ ...unverified, status: 'deleted' }, lax)?.message).toBe('Account is deleted')
  })
})

describe('the membership of a session', () => {
  const both = [member('t1'), member('t2')]

  it('is the oldest one, or the one at the tenant that was asked for, in any case', () => {
    expect(chooseMembership(both, undefined, true)).toBe(both[0])
    expect(chooseMembership(both, 'T2', true)).toBe(both[1])
  })

  it('ignores the tenant outside multi-tenant mode', () => {
    expect(chooseMembership([member(null)], 't9', false)).toEqual(member(null))
  })

  it('is refused where there is none', () => {
    const none = { status: 403, message: 'No role is assigned to this account' }
    expect(refusalOf(() => chooseMembership([], undefined, true))).toEqual(none)
    const elsewhere = { status: 403, message: 'Access denied for specified tenant' }
    expect(refusalOf(() => chooseMembership(both, 't3', true))).toEqual(elsewhere)
  })
})

describe('the limit of a session type', () => {
  it('refuses the session over it, and every one where it is 0', () => {
    expect(sessionRefusal(2, 'web', 1)).toBeUndefined()
    expect(sessionRefusal(2, 'web', 2)?.message).toContain('Maximum web session limit (2) reached')
    expect(sessionRefusal(2, 'web', 3)?.status).toBe(403)
    expect(sessionRefusal(0, 'mobile', 0)?.message).toBe('Mobile sessions are not allowed')
  })

  it('never refuses where there is none', () => {
    expect(sessionRefusal(-1, 'web', 1000)).toBeUndefined()
  })
})

describe('the one-time secret of a mail', () => {
  const consumed = { state: 'consumed', email: 'ada@example.com' } as const

  it('opens the active account of the address it was mailed to', () => {
    expect(decideRedemption(consumed, ada, 'no')).toEqual({ holder: ada })
  })

  it('opens nothing for another address, a suspended account, or none', () => {
    for (const holder of [
      { ...ada, email: 'bob@example.com' },
      { ...ada, email: null },
      { ...ada, status: 'suspended' },
    ])
      expect(decideRedemption(consumed, holder, 'no')).toMatchObject({ refusal: { status: 400 }, failed: true })
    expect(decideRedemption(consumed, undefined, 'no')).toMatchObject({ refusal: { message: 'no' }, failed: true })
  })

  it('is refused as a failed attempt when wrong, for known and unknown addresses', () => {
    expect(decideRedemption({ state: 'wrong' }, ada, 'no')).toMatchObject({ refusal: { status: 400 }, failed: true })
  })

  it('is refused with a time to wait after too many attempts, and that is no further one', () => {
    const blocked = decideRedemption({ state: 'blocked', retryAfterSeconds: 90 }, ada, 'no')
    expect(blocked).toMatchObject({ refusal: { status: 429, headers: { 'retry-after': '90' } }, failed: false })
    expect(decideRedemption({ state: 'needs-email' }, ada, 'no')).toMatchObject({
      refusal: { status: 400, message: 'Email is required' },
      failed: false,
    })
  })
})

describe('the proof of an address', () => {
  it('ends the credentials of an account whose address was not proven', () => {
    const { account, credentialsEnd, events } = decideOwnership({ ...ada, emailVerified: false })
    expect(account).toEqual({ ...ada, password: null })
    expect(credentialsEnd).toBe(true)
    expect(events.map(({ type }) => type)).toEqual(['auth.email_verified', 'auth.unverified_credentials_dropped'])
  })

  it('changes nothing where the address was proven before', () => {
    expect(decideOwnership(ada)).toEqual({ account: ada, credentialsEnd: false, events: [] })
  })

  it('is asked for again only of active accounts without one, and not soon after another mail', () => {
    const state = { id: 'u1', email: 'ada@example.com', emailVerified: false, status: 'active' }
    expect(mayBeMailedAgain(state, false)).toBe(true)
    expect(mayBeMailedAgain(state, true)).toBe(false)
    expect(mayBeMailedAgain({ ...state, emailVerified: true }, false)).toBe(false)
    expect(mayBeMailedAgain({ ...state, status: 'suspended' }, false)).toBe(false)
    expect(mayBeMailedAgain(undefined, false)).toBe(false)
  })
})

describe('the role of a new account', () => {
  const roles = ['administrator', 'public', 'user', 'editor'].map(role)

  it('is the configured one, and never the administrator', () => {
    expect(decideRegisteredRole(roles, 'user').name).toBe('user')
    for (const name of ['administrator', 'gone'])
      expect(refusalOf(() => decideRegisteredRole(roles, name)).status).toBe(503)
  })

  it('may be asked for among the allowed names, but neither administrator nor public', () => {
    expect(decideAskedRole(roles, 'editor', ['editor']).name).toBe('editor')
    for (const name of ['user', 'administrator', 'public', 'gone']) {
      const allowed = ['editor', 'administrator', 'public', 'gone']
      expect(refusalOf(() => decideAskedRole(roles, name, allowed)).status).toBe(400)
    }
  })
})

describe('wrong codes of a second factor', () => {
  it('lock the account with every fifth, each time for twice as long, four hours at most', () => {
    expect([1, 2, 3, 4, 6, 9].map(lockSeconds)).toEqual([null, null, null, null, null, null])
    expect([5, 10, 15, 20, 25, 30, 500].map(lockSeconds)).toEqual([900, 1800, 3600, 7200, 14_400, 14_400, 14_400])
  })
})

describe('asking for another address', () => {
  const known = { checked: ada, locked: ada, hasAskedRecently: false, wasMailedRecently: false, isTaken: false }
  const decide = (more: Partial<Parameters<typeof decideAddressRequest>[0]>, genericResponses = false) =>
    decideAddressRequest({ ...known, ...more }, { genericResponses })

  it('mails the new address', () => {
    expect(decide({})).toBe(true)
  })

  it('takes a password or address that was changed meanwhile for a wrong password', () => {
    for (const locked of [undefined, { ...ada, password: 'other' }, { ...ada, email: 'eve@example.com' }])
      expect(refusalOf(() => decide({ locked, wasMailedRecently: true, isTaken: true }))).toEqual({
        status: 400,
        message: 'Current password is incorrect',
      })
  })

  it('is refused shortly after another mail, whether the address is taken or not', () => {
    for (const isTaken of [false, true])
      for (const recent of [{ wasMailedRecently: true }, { hasAskedRecently: true }])
        expect(refusalOf(() => decide({ ...recent, isTaken })).status).toBe(429)
  })

  it('mails an address no more shortly after another mail, and does not show it, where no answer may tell of accounts', () => {
    expect(decide({ wasMailedRecently: true }, true)).toBe(false)
    for (const isTaken of [false, true])
      expect(refusalOf(() => decide({ hasAskedRecently: true, isTaken }, true)).status).toBe(429)
  })

  it('shows that an address is taken only where answers may', () => {
    expect(refusalOf(() => decide({ isTaken: true }))).toEqual({ status: 400, message: 'User already exists' })
    expect(decide({ isTaken: true }, true)).toBe(false)
  })
})

describe('confirming another address', () => {
  const email = 'ada@example.org'
  const known = { userId: 'u1', email, asked: email, isUsed: false, status: 'active', isTaken: false }

  it('gives the account the address, which is verified by that', () => {
    expect(decideAddressConfirmation(known)).toEqual([
      { type: 'auth.email_changed', data: { userId: 'u1' } },
      { type: 'auth.email_verified', data: { userId: 'u1' } },
    ])
  })

  it('is refused once the link is used or replaced, or the account is not active, before the address is looked at', () => {
    for (const more of [{ isUsed: true }, { asked: 'other@example.org' }, { asked: undefined }, { status: 'banned' }])
      expect(refusalOf(() => decideAddressConfirmation({ ...known, isTaken: true, ...more })).status).toBe(400)
    expect(refusalOf(() => decideAddressConfirmation({ ...known, isTaken: true })).status).toBe(409)
  })
})

describe('another password', () => {
  it('is for the account whose password was checked, as long as it is current', () => {
    const events = [{ type: 'auth.password_change', data: { userId: 'u1' } }]
    expect(decidePasswordChange({ checked: { password: 'hash' }, locked: ada })).toEqual({ account: ada, events })
    const stale = [{ ...ada, password: 'of another change' }, { ...ada, password: null }, undefined]
    for (const locked of stale)
      expect(refusalOf(() => decidePasswordChange({ checked: { password: 'hash' }, locked }))).toEqual({
        status: 400,
        message: 'Current password is incorrect',
      })
  })

  it('is given by an administrator to any user', () => {
    const bare = { ...ada, password: null }
    expect(decidePasswordChange({ locked: bare }).account).toBe(bare)
    expect(refusalOf(() => decidePasswordChange({ locked: undefined }))).toEqual({
      status: 404,
      message: 'User not found',
    })
  })
})

describe('another token for a session', () => {
  const over = { status: 401, message: 'Invalid or expired token' }

  const renewed = { sessionToken: 't', userId: 'u1', userRoleId: 'ur', isUnused: true, ageMs: 59_999 }

  it('opens one session, whose token simultaneous calls get too', () => {
    const events = [{ type: 'auth.refresh', data: { userId: 'u1' } }]
    expect(decideRefresh('u1', { userRoleId: 'ur' }, undefined)).toEqual({ session: { userRoleId: 'ur' }, events })
    expect(decideRefresh('u1', undefined, renewed)).toEqual({ session: renewed, events: [] })
    expect(refusalOf(() => decideRefresh('u1', undefined, undefined))).toEqual(over)
    expect(refusalOf(() => decideRefresh('u1', undefined, { ...renewed, isUnused: false }))).toEqual(over)
  })

  it('is given again for a minute to the user whose it is, until somebody uses it', () => {
    expect(mayRepeat('u1', renewed)).toBe(true)
    expect(mayRepeat('u1', undefined)).toBe(false)
    expect(mayRepeat('u2', renewed)).toBe(false)
    expect(mayRepeat('u1', { ...renewed, isUnused: false })).toBe(false)
    expect(mayRepeat('u1', { ...renewed, ageMs: 60_000 })).toBe(false)
  })

  it('at another tenant counts to the limit of its type only where that was asked for', () => {
    expect(decideMove({ type: 'web' }, undefined)).toEqual({ type: 'web', isLimited: false })
    expect(decideMove({ type: 'web' }, 'web')).toEqual({ type: 'web', isLimited: true })
    expect(decideMove({ type: 'default' }, 'mobile')).toEqual({ type: 'mobile', isLimited: true })
    expect(refusalOf(() => decideMove(undefined, 'web'))).toEqual(over)
  })

  it('is over by a logout where it was the own one', () => {
    expect(endingOf('u1', 's1', 's1')).toEqual({ type: 'auth.logout', data: { userId: 'u1' } })
    const ended = { type: 'auth.session_ended', data: { userId: 'u1', sessionId: 's1' } }
    expect(['s2', undefined].map((current) => endingOf('u1', 's1', current))).toEqual([ended, ended])
  })
})
