import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  hasLongNumber,
  hasLongNumbers,
  knowing,
  longNumber,
  parseJson,
  writeJson,
} from '../../src/language/exact-json.ts'

describe('the texts of numbers', () => {
  it.each([
    ['12345678901234567.89', true],
    ['-12345678901234567.89', true],
    ['0.1000000000000000055', true],
    ['9007199254740993', true],
    ['9007199254740992', true],
    ['9007199254740991', false],
    ['0.30000000000000004', false],
    ['13.404953999999975', false],
    ['1.1000000000000000000000', false],
    ['000000000000000000'.replace(/^0+/, '0.00000000000000000000'), false],
    ['1e-400', true],
    ['1E-0400', true],
    ['1.5e-323', false],
    ['1.55e-323', true],
    ['123456789012345678e-3', true],
    ['1e300', false],
    ['1e-20', false],
  ])('%s is remembered: %s', (text, isLong) => {
    for (const json of [text, `[${text}]`, `{"a": ${text}}`, `[1,\n${text}]`, `{"x":"y","a":{"b":[${text}, 2]}}`])
      expect(hasLongNumber(json), json).toBe(isLong)
    const list = parseJson(`[${text}]`) as unknown[]
    expect(list).toEqual([Number(text)])
    expect(longNumber(list, 0)).toBe(isLong ? text : undefined)
  })

  it.each([
    '"12345678901234567890"',
    '{"12345678901234567890":1}',
    '{"id":"1234567e-4123-4123-8123-123456789012"}',
    '{"at":"2026-11-29T13:52:48.123Z"}',
    '"1e-400"',
  ])('%s has none', (json) => {
    expect(hasLongNumber(json)).toBe(false)
  })

  it('are found wherever they begin', () => {
    for (let at = 0; at < 70; at += 1) {
      const json = `${' '.repeat(at)}[1234567890123456.1]`
      expect(longNumber(parseJson(json) as object, 0)).toBe('1234567890123456.1')
    }
  })

  it('are those of the last member of a name, and of no member that has been replaced', () => {
    const twice = parseJson('{"a":12345678901234567890,"a":12345678901234567891,"b":1}') as Record<string, unknown>
    expect(longNumber(twice, 'a')).toBe('12345678901234567891')
    twice.a = 5
    expect(longNumber(twice, 'a')).toBeUndefined()
    expect(longNumber(parseJson('{"a":12345678901234567890,"a":1}') as object, 'a')).toBeUndefined()
  })

  it('do not reach a prototype', () => {
    const value = parseJson('{"__proto__":{"a":12345678901234567890},"constructor":12345678901234567891}') as object
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
    expect(longNumber(value, 'constructor')).toBe('12345678901234567891')
    expect(longNumber({}, 'constructor')).toBeUndefined()
  })

  it('take no longer than their length asks for', () => {
    const many = `[${Array.from({ length: 1000 }, () => `0.${'0'.repeat(1000)}1`)}]`
    expect(writeJson(parseJson(many))).toBe(many)
  })
})

it('a copy knows of long numbers where it is told of them', () => {
  const value = parseJson('{"a":12345678901234567890,"b":[12345678901234567891]}') as Record<string, unknown>
  expect(hasLongNumbers(value)).toBe(true)
  expect(hasLongNumbers({ ...value })).toBe(false)
  expect(writeJson(knowing({ ...value }, value))).toBe('{"a":12345678901234567890,"b":[12345678901234567891]}')
  expect(writeJson(knowing({ c: value.b }))).toBe('{"c":[12345678901234567891]}')
  expect(hasLongNumbers(knowing({ c: 1 }))).toBe(false)
})

it('what is written is what was read, of any number', () => {
  const digits = (least: number, most: number) =>
    fc.string({ unit: fc.constantFrom(...'0123456789'), minLength: least, maxLength: most })
  const number = fc
    .tuple(fc.boolean(), digits(1, 30), digits(0, 30), fc.option(fc.integer({ min: -340, max: 250 })))
    .map(([isNegative, whole, fraction, exponent]) => {
      const start = whole.replace(/^0+(?=\d)/, '')
      return `${isNegative ? '-' : ''}${start}${fraction && `.${fraction}`}${exponent === null ? '' : `e${exponent}`}`
    })
  fc.assert(
    fc.property(fc.array(number), (numbers) => {
      const list = parseJson(`{"a":[${numbers}]}`) as { a: number[] }
      expect(list).toEqual(JSON.parse(`{"a":[${numbers}]}`))
      numbers.forEach((text, at) => {
        const known = longNumber(list.a, at)
        if (known === undefined) expect(exact(String(list.a[at]))).toEqual(exact(text))
        else expect(known).toBe(text)
      })
      expect(writeJson(parseJson(writeJson(list)))).toBe(writeJson(list))
    }),
  )
})

/** A decimal as a whole number and a power of ten, by another way than the code has. */
function exact(text: string): readonly [bigint, number] {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d*))?(?:e([+-]?\d+))?$/i.exec(text)!
  let value = BigInt(`${whole}${fraction}`)
  let power = Number(exponent) - fraction.length
  if (value === 0n) return [0n, 0]
  while (value % 10n === 0n) [value, power] = [value / 10n, power + 1]
  return [sign === '-' ? -value : value, power]
}
