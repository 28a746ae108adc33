import { describe, expect, it } from 'vitest'
import { checkIdentifier } from '../../src/catalog/identifiers.ts'

const refusal = (name: unknown) => {
  try {
    checkIdentifier('field name', name)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

describe('a name of a field or collection', () => {
  it.each([
    ...['__proto__', 'constructor', 'prototype'].map((name) => [name, 'JavaScript']),
    ...['tableoid', 'ctid', 'xmin', 'xmax', 'cmin', 'cmax'].map((name) => [name, 'PostgreSQL']),
  ])('%s is refused as reserved by %s', (name, owner) => {
    expect(refusal(name)).toBe(`Invalid field name: ${owner} reserves the name ${name}`)
  })

  it.each(['a b', '9th', 'ü', 'a-b', 'a.b', '', 7])('%j is refused by the grammar', (name) => {
    expect(refusal(name)).toBe('Invalid field name: letters, digits and underscore only, not starting with a digit')
  })

  it.each(['toString', 'oid', 'select', 'CTID', '_x'])('%s is taken', (name) => {
    expect(refusal(name)).toBeUndefined()
  })
})
