import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compareVersions, isInitialRelease, isVersion } from '../../src/adapters/version-order.ts'

describe('versions', () => {
  const inOrder = [
    '0.1.0-alpha',
    '0.1.0-alpha.1',
    '0.1.0-alpha.7',
    '0.1.0-alpha.10',
    '0.1.0-alpha.beta',
    '0.1.0-beta',
    '0.1.0-rc.1',
    '0.1.0',
    '0.1.0+build.1',
    '0.2.0',
    '0.10.0',
    '1.0.0',
    '20241224.0.0',
    '20241224',
    '20241224_add_column',
    '20241224_001_add_column',
    '20241224_002_add_column',
    '20241224_2_b',
    '20241224_010_add_column',
    '20241224103000_b',
    '202412241030_first',
    '20241224103001_a',
    '20250101_a',
    'not a version',
  ]

  it('have one order, whatever order they come in', () => {
    fc.assert(
      fc.property(fc.shuffledSubarray(inOrder, { minLength: inOrder.length }), (shuffled) => {
        expect(shuffled.sort(compareVersions)).toEqual(inOrder)
      }),
    )
  })

  const version = fc.oneof(
    fc.stringMatching(/^\d{1,2}\.\d{1,2}\.\d{1,2}(-[a-z0-9]{1,3}(\.[1-9])?)?$/),
    fc.stringMatching(/^2024(0[1-9])(0[1-9])(\d{2}){0,3}(_\d{1,3})?(_[a-z]{1,3})?$/),
    fc.string({ maxLength: 5 }),
  )

  it('are ordered totally: exactly one of two different ones is first, and the order carries over', () => {
    fc.assert(
      fc.property(version, version, version, (a, b, c) => {
        const sign = Math.sign(compareVersions(a, b))
        expect(sign + Math.sign(compareVersions(b, a))).toBe(0)
        expect(sign === 0).toBe(a === b)
        if (sign < 0 && compareVersions(b, c) < 0) expect(compareVersions(a, c)).toBeLessThan(0)
      }),
    )
  })

  it.each(['0.1.0-alpha.7', '1.0.0+b', '20241224_001_add_column', '20241224', '20241224103000_x-y'])(
    'accept %s',
    (text) => expect(isVersion(text)).toBe(true),
  )

  it.each([
    '',
    'v1.0.0',
    ' 1.0.0',
    '1.0',
    '01.0.0',
    '2024',
    '20241224_../x',
    '20241224/x',
    '20241224_x\0',
    `20241224_${'x'.repeat(100)}`,
  ])('refuse %j', (text) => expect(isVersion(text)).toBe(false))

  it('tell releases of the program', () => {
    expect(['0.4.2', '0.4.2-rc.1', '1.0.0', '20241224'].map(isInitialRelease)).toEqual([true, false, false, false])
  })
})
