import { describe, expect, it } from 'vitest'
import { SortBody } from '../../src/features/data/items/declarations.ts'
import { readAs } from '../../src/http/shapes.ts'

describe('the body of a sort', () => {
  it.each([
    [undefined, 'Missing item ID to sort'],
    [[], 'Missing item ID to sort'],
    ['text', 'Missing item ID to sort'],
    [{}, 'Missing item ID to sort'],
    [{ item: '', to: 2 }, 'Missing item ID to sort'],
    [{ item: null, to: 2 }, 'Missing item ID to sort'],
    [{ item: 1 }, 'Missing target ID to sort to'],
    [{ item: 1, to: '' }, 'Missing target ID to sort to'],
    [{ item: 1, to: 2, mode: 'under' }, 'mode must be before or after'],
    [{ item: 1, to: 2, mode: 7 }, 'mode must be before or after'],
  ])('%j is refused: %s', (body, message) => {
    expect(() => readAs(SortBody, body)).toThrow(expect.objectContaining({ status: 400, message }))
  })

  it('takes any other id, and no mode for before', () => {
    expect(readAs(SortBody, { item: 0, to: false, mode: null })).toEqual({ item: 0, to: false })
    expect(readAs(SortBody, { item: 'a', to: { odd: true }, mode: 'after' })).toMatchObject({ mode: 'after' })
  })
})
