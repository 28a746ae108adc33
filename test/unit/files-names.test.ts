import { describe, expect, it } from 'vitest'
import { shownName } from '../../src/features/files/files/names.ts'

describe('the name of a file', () => {
  it.each([
    [`${'漢'.repeat(90)}.pdf`, `${'漢'.repeat(83)}.pdf`],
    [`${'x'.repeat(252)}.pdf`, `${'x'.repeat(251)}.pdf`],
    [`${'x'.repeat(300)}.tar.gz`, `${'x'.repeat(252)}.gz`],
    // A flag of two code points, whole or not at all.
    [`${'x'.repeat(246)}🇵🇪.txt`, `${'x'.repeat(246)}.txt`],
    [`${'x'.repeat(243)}🇵🇪.txt`, `${'x'.repeat(243)}🇵🇪.txt`],
    // No extension, but part of a name.
    ['漢'.repeat(90), '漢'.repeat(85)],
    [`x.${'y'.repeat(300)}`, `x.${'y'.repeat(253)}`],
    [`.${'y'.repeat(300)}`, `.${'y'.repeat(254)}`],
    [`${'x'.repeat(300)}.`, 'x'.repeat(255)],
    ['../a/b.txt', 'b.txt'],
    ['\u0000', 'file'],
    // One character, for a reader.
    [`e${'\u0301'.repeat(300)}.txt`, 'file.txt'],
  ])('%s is shown as %s', (name, shown) => {
    expect(shownName(name)).toBe(shown)
    expect(Buffer.byteLength(shownName(name))).toBeLessThanOrEqual(255)
  })
})
