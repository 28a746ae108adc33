import { describe, expect, it } from 'vitest'
import { rowCounter } from '../../console/src/pages/data/row-counter.ts'

describe('rows of an export', () => {
  const counted = (format: 'csv' | 'json', text: string, size: number) => {
    const count = rowCounter(format)
    const bytes = new TextEncoder().encode(text)
    let rows = 0
    for (let at = 0; at < bytes.length; at += size) rows = count(bytes.subarray(at, at + size))
    return rows
  }

  it('are counted however they are cut into chunks', () => {
    const csv = 'name,note\r\na,"two\nlines, ""quoted"""\r\nb,\r\n'
    const json = JSON.stringify([{ a: '}{"\\' }, { b: [{ c: {} }] }, {}])
    for (const size of [1, 2, 3, 7, 1000])
      expect([counted('csv', csv, size), counted('json', json, size)]).toEqual([2, 3])
    expect([counted('csv', 'name\r\n', 3), counted('json', '[]', 1)]).toEqual([0, 0])
  })
})
