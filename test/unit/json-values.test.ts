import { expect, it } from 'vitest'
import { decodeText, keepable } from '../../src/http/json-values.ts'

function refusal(text: string): string | undefined {
  try {
    keepable(text, JSON.parse(text), 'It')
    return undefined
  } catch (error) {
    return (error as { code?: string }).code
  }
}

it.each([
  ['"\\ud800"', 'INVALID_TEXT'],
  ['"\\uDFFF"', 'INVALID_TEXT'],
  ['"\\udc00\\ud800"', 'INVALID_TEXT'],
  ['{"a":[{"b":"x\\uD83D"}]}', 'INVALID_TEXT'],
  ['{"\\ud800":1}', 'INVALID_TEXT'],
  ['1e400000', 'NUMBER_TOO_LARGE'],
  ['-1e999', 'NUMBER_TOO_LARGE'],
  ['[1,-1E+400]', 'NUMBER_TOO_LARGE'],
  ['{"a": 1.5e309}', 'NUMBER_TOO_LARGE'],
  [`{"a":${'9'.repeat(309)}}`, 'NUMBER_TOO_LARGE'],
  [`{"a":-${'9'.repeat(5000)}.5}`, 'NUMBER_TOO_LARGE'],
  [`${' '.repeat(1000)}${'2'.repeat(310)}`, 'NUMBER_TOO_LARGE'],
  [`${'9'.repeat(300)}e99`, 'NUMBER_TOO_LARGE'],
  [`${'1'.repeat(200)}.${'1'.repeat(200)}e299`, 'NUMBER_TOO_LARGE'],
])('refuses %s', (text, code) => {
  expect(refusal(text)).toBe(code)
})

it.each([
  '"\\ud83d\\ude00"',
  '"\\\\ud800"',
  '"\\\\\\\\ud800"',
  '"😀"',
  '"\\ufffd"',
  '"1e400000"',
  '" 1e400000"',
  '1e308',
  '1e-400000',
  '-1.7e308',
  '[1e5, 2E+3]',
  `"${'9'.repeat(5000)}"`,
  `0.${'1'.repeat(5000)}`,
  '"3e5d1e99-0000-0000-0000-000000000000"',
  'null',
  '{}',
])('keeps %s', (text) => {
  expect(refusal(text)).toBeUndefined()
})

it('looks at what is nested however deeply', () => {
  expect(refusal(`${'['.repeat(100_000)}1e999${']'.repeat(100_000)}`)).toBe('NUMBER_TOO_LARGE')
})

it('decodes UTF-8 and nothing else', () => {
  expect(decodeText(Buffer.from('aä😀'), 'It')).toBe('aä😀')
  for (const bytes of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0xaf], [0xf5, 0x80, 0x80, 0x80], [0x61, 0x80]])
    expect(() => decodeText(Buffer.from(bytes), 'It')).toThrow('It is not valid UTF-8')
})
