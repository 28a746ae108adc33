import { describe, expect, it, onTestFinished } from 'vitest'
import { draftValue } from '../../console/src/pages/data/draft.ts'
import { parseValue, textOf } from '../../console/src/pages/data/values.ts'

describe('times in the console', () => {
  const at = { kind: 'datetime' } as const
  /** As a browser there has it, until the test has ended. */
  const in_ = (zone: string) => {
    const before = process.env.TZ
    process.env.TZ = zone
    onTestFinished(() => {
      if (before === undefined) delete process.env.TZ
      else process.env.TZ = before
    })
  }

  it('are of the zone of the browser, unless another is written', () => {
    in_('America/New_York')
    for (const [text, value] of [
      ['2026-04-01T00:00', '2026-04-01T04:00:00.000Z'],
      ['2026-04-01 09:30:15', '2026-04-01T13:30:15.000Z'],
      ['2026-04-01T00:00:00.25Z', '2026-04-01T00:00:00.250Z'],
      ['2026-04-01t00:00z', '2026-04-01T00:00:00.000Z'],
      ['2026-04-01 02:00+02', '2026-04-01T00:00:00.000Z'],
      ['2026-04-01 02:00 +0230', '2026-03-31T23:30:00.000Z'],
    ] as const)
      expect([text, parseValue(at, text)]).toEqual([text, value])
    expect(textOf(at, '2026-04-01T04:00:00.000Z')).toBe('2026-04-01T00:00:00')
    // Without a zone a stored text is one of UTC: so the server reads it.
    expect(textOf(at, '2026-04-01T04:00')).toBe('2026-04-01T00:00:00')
    expect(textOf(at, '2026-04-01')).toBe('2026-03-31T20:00:00')
  })

  it('stay in the hour that clocks show twice, where only other parts of them change', () => {
    in_('Europe/Berlin')
    const second = '2026-10-25T01:30:00.000Z'
    const first = '2026-10-25T00:30:00.000Z'
    expect([textOf(at, first), textOf(at, second)]).toEqual(['2026-10-25T02:30:00', '2026-10-25T02:30:00'])
    for (const before of [first, second])
      expect(parseValue(at, '2026-10-25T02:45', before)).toBe(before.replace(':30', ':45'))
    expect(draftValue({ ...at, element: undefined }, { text: '2026-10-25T02:45' }, second)).toBe(
      '2026-10-25T01:45:00.000Z',
    )
    // Elsewhere there is one such time only.
    expect(parseValue(at, '2026-07-01T09:00', second)).toBe('2026-07-01T07:00:00.000Z')
    expect(parseValue(at, '2026-10-25T02:45')).toBe('2026-10-25T00:45:00.000Z')
    expect(parseValue(at, '2026-10-25T02:45', null)).toBe('2026-10-25T00:45:00.000Z')
    expect(parseValue(at, '2026-10-25T02:45+01:00', first)).toBe('2026-10-25T01:45:00.000Z')
  })

  it('are refused where they are not written as ISO 8601 has them', () => {
    for (const kind of ['datetime', 'datetime without zone'] as const)
      for (const text of [
        '01.02.2026',
        '31.01.2026',
        '1',
        '2026-04-01',
        '2026-02-30T00:00',
        '2026-04-01T25:00',
        'soon',
      ])
        expect(() => parseValue({ kind }, text), text).toThrow(
          'This must be a date and a time, such as 2026-01-31 09:00.',
        )
    const local = { kind: 'datetime without zone' } as const
    expect(parseValue(local, '2026-04-01 09:00')).toBe('2026-04-01T09:00:00Z')
    expect(parseValue(local, '2026-04-01T09:00:00.000Z')).toBe('2026-04-01T09:00:00.000Z')
    expect(() => parseValue(local, '2026-04-01 09:00+02:00')).toThrow('without a zone')
  })
})
