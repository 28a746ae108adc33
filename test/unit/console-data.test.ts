import { describe, expect, it } from 'vitest'
import { collectionOf } from '../../console/src/app/definition.ts'
import { bulkValue, waysOf } from '../../console/src/pages/data/bulk-value.ts'
import { conflicting } from '../../console/src/pages/data/conflict.ts'
import { draftOf, draftValue, hasLines, mayBeNone, noValue, withBreaksOf } from '../../console/src/pages/data/draft.ts'
import { mergedLinks } from '../../console/src/pages/data/links.ts'
import { changedRow, fieldsToFollow } from '../../console/src/pages/data/live.ts'
import { extentOf, selectionText, toggledAll } from '../../console/src/pages/data/selection.ts'

const fields = {
  name: { type: 'String' },
  category_Id: { type: 'UUID' },
  category: { relType: 'BelongsTo', target: 'category' },
}
const collection = collectionOf({ collectionName: 'engine', schema: { fields } })

describe('a change of a row that a list of the console shows', () => {
  const columns = collection.fields
  const before = { id: 1, name: 'a', category_Id: 'x', category: { name: 'Steam' } }

  it('is asked for with the own columns of the row', () => {
    expect(fieldsToFollow({ key: 'id' }, columns)).toEqual(['id', 'name', 'category_Id'])
  })

  it('keeps the title of a row that it still refers to', () => {
    const change = { id: 1, name: 'b', category_Id: 'x' }
    expect(changedRow(before, change, columns)).toEqual({ row: { ...before, name: 'b' }, isIncomplete: false })
  })

  it('shows another row without the title of the former one, and has it read', () => {
    const change = { id: 1, name: 'a', category_Id: 'y' }
    expect(changedRow(before, change, columns)).toEqual({
      row: { ...before, category_Id: 'y', category: null },
      isIncomplete: true,
    })
    expect(changedRow(before, { ...change, category_Id: null }, columns)).toEqual({
      row: { ...before, category_Id: null, category: null },
      isIncomplete: false,
    })
  })

  it('has a row read of which it lacks a column', () => {
    expect(changedRow(before, { id: 1, category_Id: 'x' }, columns)).toEqual({ row: before, isIncomplete: true })
  })
})

describe('what somebody else has written meanwhile', () => {
  it('is in conflict where both have written the same field differently', () => {
    const base = { name: 'a', stock: 1, list: [1], note: null }
    const met = (mine: object, theirs: object) =>
      conflicting({ base, mine: { ...mine }, theirs: { ...base, ...theirs } })
    expect(met({ name: 'b', stock: 2 }, { name: 'c' })).toEqual(['name'])
    expect(met({ name: 'b' }, { stock: 2 })).toEqual([])
    expect(met({ name: 'b' }, { name: 'b' })).toEqual([])
    expect(met({ list: [2] }, { list: [1] })).toEqual([])
    expect(met({ note: '' }, { note: 'x' })).toEqual(['note'])
  })
})

describe('links that two users have changed', () => {
  it('are those of the other, with what one has added and without what one has taken away', () => {
    expect(mergedLinks([1, 2], [1, 2, 3], [1, 2, 4])).toEqual([1, 2, 4, 3])
    expect(mergedLinks([1, 2], [2], [1, 2, 4])).toEqual([2, 4])
    expect(mergedLinks([1, 2], [1, 2, 3], [1])).toEqual([1, 3])
    expect(mergedLinks([1], [1, 3], [1, 3])).toEqual([1, 3])
    expect(mergedLinks([], [], [5])).toEqual([5])
    expect(mergedLinks(['a'], [], [])).toEqual([])
  })
})

describe('what a control of the console holds', () => {
  const control = (value: string, badInput = false) => draftOf({ value, validity: { badInput } })

  it('is no value where a date lacks a part, and none where it is empty', () => {
    const date = { kind: 'date', element: undefined } as const
    expect(draftValue(date, control('2026-03-14'))).toBe('2026-03-14')
    expect(draftValue(date, control(''))).toBeNull()
    expect(() => draftValue(date, control('', true))).toThrow('This must be a date.')
    expect(() => draftValue({ ...date, kind: 'datetime' }, control('', true))).toThrow(
      'This must be a date and a time.',
    )
    expect(draftValue(date, { text: '', exact: { value: 'x' } })).toBe('x')
  })

  it('is no value where a relation has none, whatever type its key has', () => {
    const text = { kind: 'text', element: undefined } as const
    const [relation] = collection.relations
    expect(draftValue({ ...text, relation }, { text: '', choice: null })).toBeNull()
    expect(draftValue({ ...text, relation }, { text: 'k1' })).toBe('k1')
    expect(draftValue({ ...text, relation: undefined }, { text: '' })).toBe('')
  })

  it('may be no value in place of an empty text, where the field takes none', () => {
    const text = { kind: 'text', isRequired: false } as const
    expect(mayBeNone(text, '')).toBe(true)
    expect([undefined, null, 'a'].map((value) => mayBeNone(text, value))).toEqual([false, false, false])
    expect(mayBeNone({ ...text, isRequired: true }, '')).toBe(false)
    expect(mayBeNone({ ...text, kind: 'integer' }, '')).toBe(false)
    expect(draftValue({ kind: 'text', element: undefined }, noValue)).toBeNull()
  })

  it('keeps the line breaks of a text', () => {
    expect(hasLines({ kind: 'text' }, 'a\nb')).toBe(true)
    expect(hasLines({ kind: 'text' }, 'a b')).toBe(false)
    expect(hasLines({ kind: 'long text' }, '')).toBe(true)
    expect(hasLines({ kind: 'integer' }, '1')).toBe(false)
    expect(withBreaksOf('a\r\nb', 'a\nb\nc')).toBe('a\r\nb\r\nc')
    expect(withBreaksOf('a\nb', 'a\nb\nc')).toBe('a\nb\nc')
  })
})

describe('what many rows are set to', () => {
  const text = { kind: 'text', element: undefined, isRequired: true } as const
  const number = { kind: 'integer', element: undefined, isRequired: false } as const

  it('is nothing until a value is given, or its absence chosen', () => {
    expect(bulkValue(text, 'value', { text: '' })).toBeUndefined()
    expect(bulkValue(number, 'value', { text: '' })).toBeUndefined()
    expect(bulkValue(number, 'value', { text: '5' })).toEqual({ value: 5 })
    expect(bulkValue(number, 'value', { text: 'five' })).toHaveProperty('error')
    expect(bulkValue(text, 'empty', { text: 'typed before' })).toEqual({ value: '' })
    expect(bulkValue(number, 'none', { text: '' })).toEqual({ value: null })
    expect(waysOf(text).map(({ value }) => value)).toEqual(['value', 'empty'])
    expect(waysOf(number).map(({ value }) => value)).toEqual(['value', 'none'])
  })
})

describe('the selected rows of a list', () => {
  const keyOf = (row: Readonly<Record<string, unknown>>) => String(row.id)
  const loaded = [{ id: 1 }, { id: 2 }]
  const all = toggledAll(new Map(), loaded, keyOf)

  it('are the loaded ones after a click on the box above them, and none after a second', () => {
    expect([...all.keys()]).toEqual(['1', '2'])
    expect(toggledAll(all, loaded, keyOf).size).toBe(0)
    expect(toggledAll(new Map([['1', loaded[0]!]]), loaded, keyOf)).toEqual(all)
    expect(toggledAll(all, [...loaded, { id: 3 }], keyOf).size).toBe(3)
    expect([extentOf(0, 9), extentOf(2, 9), extentOf(2, 2)]).toEqual(['none', 'some', 'all'])
  })

  it('are told with the number of all rows where only the loaded ones are selected', () => {
    expect(selectionText(all, loaded, keyOf, 2000)).toBe('2 loaded rows of 2,000 selected')
    expect(selectionText(all, loaded, keyOf, 2)).toBe('2 selected')
    expect(selectionText(new Map([['1', loaded[0]!]]), loaded, keyOf, 2000)).toBe('1 selected')
  })
})
