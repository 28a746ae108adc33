import { describe, expect, it } from 'vitest'
import { sessionLimit } from '../../src/features/accounts/auth/decisions.ts'

const role = 'r1'
const settings = (roles: unknown, defaults: unknown = { web: 7 }) => ({ roles: { [role]: roles }, default: defaults })

describe('the limit of sessions of a type', () => {
  it.each([
    ['nothing anywhere', null, null, -1],
    ['the default', null, { default: { web: 3 } }, 3],
    ['the role over the default', null, settings({ web: 2 }), 2],
    ['the user over the role', { web: 1 }, settings({ web: 2 }), 1],
    ['0 of the user', { web: 0 }, settings({ web: 2 }), 0],
    ['-1 of the user', { web: -1 }, settings({ web: 2 }), -1],
    ['null of the user', { web: null }, settings({ web: 2 }), 2],
    ['only the other type of the user', { mobile: 1 }, settings({ web: 2 }), 2],
    ['null of the role', null, settings({ web: null }), 7],
    ['only another role', null, { roles: { r2: { web: 2 } }, default: { web: 7 } }, 7],
    ['null of the default', null, { default: { web: null } }, -1],
    ['a text', { web: '1' }, settings({ web: 2 }), 2],
    ['a fraction', { web: 1.5 }, settings({ web: 2 }), 2],
    ['below -1', { web: -2 }, settings({ web: 2 }), 2],
    ['not a number', { web: Number.NaN }, settings({ web: 2 }), 2],
    ['lists in the place of objects', [1], { roles: [], default: [3] }, -1],
    ['texts in the place of objects', 'x', 'default', -1],
    ['members that every object has', null, { roles: {}, default: {} }, -1],
  ])('with %s', (_what, user, limits, expected) => {
    expect(sessionLimit({ user, settings: limits }, role, 'web')).toBe(expected)
  })

  it('takes no member of the prototype for a role', () => {
    expect(sessionLimit({ user: null, settings: { roles: {}, default: { web: 4 } } }, 'constructor', 'web')).toBe(4)
  })
})
