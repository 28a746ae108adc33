import { describe, expect, it } from 'vitest'
import { conditionOf, partOf } from '../../src/features/files/assets/delivery.ts'

const modified = new Date('2026-03-14T09:26:53.589Z')
const shown = 'Sat, 14 Mar 2026 09:26:53 GMT'
const earlier = 'Sat, 14 Mar 2026 09:26:52 GMT'
const tag = '"abc"'
const validators = { tag, modified }

describe('conditions of a read', () => {
  it.each([
    ['no condition', {}, undefined],
    ['the tag that it has', { 'if-none-match': tag }, 304],
    ['the tag among others, weakened by a proxy', { 'if-none-match': '"x", W/"abc"' }, 304],
    ['any tag', { 'if-none-match': '*' }, 304],
    ['another tag, although the date is right', { 'if-none-match': '"x"', 'if-modified-since': shown }, undefined],
    ['the time of its version', { 'if-modified-since': shown }, 304],
    ['an earlier time', { 'if-modified-since': earlier }, undefined],
    ['no date', { 'if-modified-since': 'yesterday' }, undefined],
    ['this version only', { 'if-match': tag }, undefined],
    ['another version only', { 'if-match': '"x"' }, 412],
    ['this version only, weakly, which is no proof', { 'if-match': 'W/"abc"' }, 412],
    ['any version', { 'if-match': '*' }, undefined],
    ['nothing newer', { 'if-unmodified-since': earlier }, 412],
    ['nothing newer than it is', { 'if-unmodified-since': shown }, undefined],
    ['this version only, which it has', { 'if-match': tag, 'if-none-match': tag }, 304],
  ])('with %s', (_name, headers, status) => expect(conditionOf(headers, validators)).toBe(status))
})

describe('parts', () => {
  const part = (range: string, size = 100, more = {}) => partOf({ range, ...more }, validators, size)

  it.each([
    ['bytes=0-9', { start: 0, end: 9, size: 100 }],
    ['bytes=90-', { start: 90, end: 99, size: 100 }],
    ['bytes=90-4711', { start: 90, end: 99, size: 100 }],
    ['bytes=-10', { start: 90, end: 99, size: 100 }],
    ['bytes=-4711', { start: 0, end: 99, size: 100 }],
    ['BYTES=5-5', { start: 5, end: 5, size: 100 }],
    ['bytes=100-', 'unsatisfiable'],
    ['bytes=99999999999999999999-', 'unsatisfiable'],
    ['bytes=-0', 'unsatisfiable'],
    // These ask for nothing that is a single range, so the whole answers them.
    ['bytes=9-0', undefined],
    ['bytes=0-1,5-6', undefined],
    ['bytes=-', undefined],
    ['bytes=a-b', undefined],
    ['rows=0-9', undefined],
    ['', undefined],
  ])('%s', (range, expected) => expect(part(range)).toEqual(expected))

  it('has none of nothing', () => {
    expect(part('bytes=0-', 0)).toBe('unsatisfiable')
    expect(part('bytes=-5', 0)).toBe('unsatisfiable')
  })

  it.each([
    ['the tag', tag, true],
    ['another tag', '"x"', false],
    ['a weak tag', 'W/"abc"', false],
    ['the date', shown, true],
    ['a later date', 'Sat, 14 Mar 2026 09:26:54 GMT', false],
  ])('belongs to the version that If-Range names by %s', (_name, ifRange, isPart) =>
    expect(part('bytes=0-9', 100, { 'if-range': ifRange })).toEqual(
      isPart ? { start: 0, end: 9, size: 100 } : undefined,
    ),
  )
})
