import { describe, expect, it } from 'vitest'
import { checkScope, hasScope, type RequiredScope } from '../../src/access/scopes.ts'

describe('scopes', () => {
  const required: RequiredScope[] = ['none', 'read', 'write', 'admin']

  it.each([
    [undefined, ['none', 'read', 'write', 'admin']],
    ['none', ['none']],
    ['read', ['none', 'read']],
    ['write', ['none', 'read', 'write']],
    ['admin', ['none', 'read', 'write', 'admin']],
  ] as const)('of a caller with %s allow %j', (scope, allowed) => {
    expect(required.filter((one) => hasScope({ scope }, one))).toEqual(allowed)
  })

  it('refuse with the words of RFC 6750', () => {
    expect(() => checkScope({ scope: 'read' }, 'write')).toThrow(
      expect.objectContaining({
        status: 403,
        code: 'INSUFFICIENT_SCOPE',
        headers: { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' },
      }),
    )
  })
})
