import { describe, expect, it } from 'vitest'
import type { SchemaJson } from '../../src/catalog/catalog.ts'
import { compileCatalog } from '../../src/catalog/compile.ts'
import { ruleProblems } from '../../src/catalog/validate.ts'

const field = (type: string, validate: object, more: object = {}) => {
  const schema: SchemaJson = { fields: { a: { type, validate, ...more } } }
  return compileCatalog([{ collectionName: 'thing', schema }])
    .collections.get('thing')!
    .fields.get('a')!
}
const messages = (type: string, validate: object, value: unknown, more?: object) =>
  ruleProblems(field(type, validate, more), value).map(({ message }) => message)

describe('rules', () => {
  it.each<[type: string, validate: object, good: unknown[], bad: [unknown, string][]]>([
    ['Integer', { min: 5 }, [5, '6', null, undefined, 'no number', {}], [[4, 'Value 4 is less than minimum 5']]],
    ['Decimal', { max: '1.5' }, ['1.5', 1], [['1.51', 'Value 1.51 is greater than maximum 1.5']]],
    ['BigInt', { max: 10 }, ['10'], [['9223372036854775807', 'Value 9223372036854775807 is greater than maximum 10']]],
    ['Double', { isInt: true }, [1, '2'], [[1.5, 'must be an integer']]],
    ['Double', { isInt: false }, [1.5], []],
    [
      'String',
      { notEmpty: true },
      ['a', 0],
      [
        ['', 'cannot be empty'],
        [' \n', 'cannot be empty'],
      ],
    ],
    [
      'String',
      { len: [2, 3] },
      ['ab', '😀😀😀', 12],
      [
        ['a', 'must be at least 2 characters long'],
        ['abcd', 'must be at most 3 characters long'],
      ],
    ],
    ['String', { len: [2] }, ['abcdefgh'], [['a', 'must be at least 2 characters long']]],
    [
      'String',
      { isEmail: true },
      ['a@b.co', 'a.b+c@d.e.museum'],
      [
        ['a@b', 'Invalid email format'],
        ['@b.co', 'Invalid email format'],
        ['a b@c.de', 'Invalid email format'],
        ['a@b..co', 'Invalid email format'],
        ['a@b.co\n', 'Invalid email format'],
        [`a@${'b'.repeat(260)}.co`, 'Invalid email format'],
      ],
    ],
    [
      'String',
      { isUrl: true },
      ['https://a.b/c?d=e', 'http://localhost:3000'],
      [
        ['a.b', 'Invalid URL format'],
        ['javascript:alert(1)', 'Invalid URL format'],
        ['http://', 'Invalid URL format'],
      ],
    ],
    ['String', { isIP: true }, ['127.0.0.1', '::1'], [['256.1.1.1', 'Invalid IP format']]],
    ['String', { isUUID: true }, ['0b1f6a5e-3c1d-4b5e-8d8f-2f6d0c9a7b11'], [['0b1f6a5e', 'Invalid UUID format']]],
    ['String', { is: '^[a-z]+$' }, ['abc'], [['ABC', 'does not match required pattern']]],
    ['String', { matches: ['^[a-z]+$', 'i'] }, ['ABC'], [['1', 'does not match required pattern']]],
    ['String', { is: '\\d{3}' }, ['ab123c'], [['12', 'does not match required pattern']]],
    ['String', { is: '^\\p{L}\\u0021$' }, ['é!'], [['é', 'does not match required pattern']]],
    [
      'Array_Integer',
      { min: 0, max: 9 },
      [[0, 9, null], []],
      [[[1, 10], 'Array element [1]: Value 10 is greater than maximum 9']],
    ],
    [
      'Range_Integer',
      { max: 9 },
      [{ lower: 1, upper: 9 }, { lower: null }],
      [[{ lower: 1, upper: 10 }, 'Upper bound: Value 10 is greater than maximum 9']],
    ],
    ['Integer', { min: { args: [5], msg: 'too young' } }, [5], [[4, 'too young']]],
  ])('%s %j', (type, validate, good, bad) => {
    for (const value of good) expect(messages(type, validate, value)).toEqual([])
    for (const [value, message] of bad) expect(messages(type, validate, value)).toEqual([message])
  })

  it('are told with field, value and rule; a hidden value is not', () => {
    expect(ruleProblems(field('Integer', { min: 5 }), 4)).toEqual([
      { field: 'a', message: 'Value 4 is less than minimum 5', value: 4, rule: 'min' },
    ])
    const [problem] = ruleProblems(field('String', { isEmail: true }, { hidden: true }), 'secret')
    expect(problem).toMatchObject({ value: undefined, rule: 'isEmail' })
  })

  it('take time in proportion to the value, whatever the pattern', () => {
    const evil = field('String', { is: '^(a+)+$' })
    expect(ruleProblems(evil, `${'a'.repeat(1999)}!`)).toHaveLength(1)
    expect(ruleProblems(evil, 'a'.repeat(2000))).toEqual([])
    expect(messages('String', { is: 'a' }, 'a'.repeat(2001))).toEqual([
      'must be at most 2000 characters long for its pattern',
    ])
  })
})

describe('ranges', () => {
  it.each<[type: string, lower: unknown, upper: unknown, isBroken: boolean]>([
    ['Range_Integer', 1, 1, false],
    ['Range_Integer', 2, 1, true],
    ['Range_Integer', null, 1, false],
    ['Range_Decimal', '10', '9.5', true],
    ['Range_Double', 1e21, 1e20, true],
    ['Range_Date', '2024-01-02', '2024-01-01', true],
    ['Range_Date', '2024-01-01', '10000-01-01', false],
    ['Range_Date', '10000-01-01', '9999-12-31', true],
    ['Range_Date', '0044-03-15 BC', '0043-03-15 BC', false],
    ['Range_Date', '0001-01-01', '0001-12-31 BC', true],
    ['Range_Date', '300000-01-01', '5874897-01-01', false],
    ['Range_Date', '2024-01-01', 'infinity', false],
    ['Range_Date', '2024-01-01', '-infinity', true],
    ['Range_DateTime', '9999-12-31T23:00:00Z', '10000-01-01T04:59:59.000Z', false],
    ['Range_DateTime', '294276-01-01', '10000-01-01', true],
    ['Range_DateTime_NO_TZ', '10000-01-01T00:00:00.000Z', '9999-12-31T23:59:59Z', true],
    ['Range_DateTime_NO_TZ', '2024-01-01T10:00:00', '2024-01-01T10:00', false],
    ['Range_Decimal', '9007199254740993', '9007199254740992', true],
    ['Range_Time_NO_TZ', '22:00', '24:00', false],
    ['Range_DateTime', '2024-01-01T00:00:00+02:00', '2023-12-31T22:00:00Z', false],
    ['Range_DateTime', '2024-01-01 00:00:00+02', '2023-12-31T21:59:59', true],
    ['Range_DateTime', '2024-01-01', '2024-01-01T00:00:00-0100', false],
    ['Range_DateTime', 'nonsense', '2024-01-01', false],
    ['Range_Time_NO_TZ', '10:00', '09:30:00', true],
    ['Range_Time', '10:00+02', '09:30+00', false],
  ])('%s from %j to %j', (type, lower, upper, isBroken) => {
    expect(messages(type, {}, { lower, upper })).toEqual(isBroken ? ['Lower bound cannot exceed upper bound'] : [])
  })

  it('are left to the type when they are none', () => {
    for (const value of ['x', 5, [1, 2], {}]) expect(messages('Range_Integer', { min: 1 }, value)).toEqual([])
  })
})
