import { expect, it } from 'vitest'
import { nearName } from '../../src/language/text.ts'

const known = ['filter', 'fields', 'sort', 'limit', 'groupBy', 'asOf', 'page']

it.each([
  ['filters', 'filter'],
  ['Filter', 'filter'],
  ['flter', 'filter'],
  ['groupby', 'groupBy'],
  ['LIMIT', 'limit'],
  ['pages', 'page'],
  ['field', 'fields'],
  ['sor', 'sort'],
  ['asof', 'asOf'],
  ['srt', 'sort'],
  ['status', undefined],
  ['name', undefined],
  ['x', undefined],
  ['', undefined],
])('%j was meant to be %j', (name, meant) => {
  expect(nearName(name, known)).toBe(meant)
})

it('prefers the nearer name, and the first of equals', () => {
  expect(nearName('sorts', ['sorted', 'sort'])).toBe('sort')
  expect(nearName('abcd', ['abce', 'abcf'])).toBe('abce')
})
