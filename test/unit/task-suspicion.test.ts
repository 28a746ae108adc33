import { expect, it } from 'vitest'
import { isSuspect, openSuspicion } from '../../src/workers/tasks/suspicion.ts'

const first = (type: string) => ({ type, retry_count: 0 })

it('begins when a first attempt breaks and ends after five that did not', () => {
  const suspicion = openSuspicion()
  expect(suspicion.note(first('a'), false)).toBeUndefined()
  expect(suspicion.types()).toEqual([])
  expect(suspicion.note(first('a'), true)).toBe('began')
  for (let n = 0; n < 4; n += 1) expect(suspicion.note(first('a'), false)).toBeUndefined()
  expect(suspicion.note(first('a'), true)).toBeUndefined()
  for (let n = 0; n < 4; n += 1) expect(suspicion.note(first('a'), false)).toBeUndefined()
  expect(suspicion.types()).toEqual(['a'])
  expect(suspicion.note(first('a'), false)).toBe('ended')
  expect(suspicion.types()).toEqual([])
})

it('knows each type for itself, and blames none for the repetitions of one task', () => {
  const suspicion = openSuspicion()
  expect(suspicion.note({ type: 'a', retry_count: 1 }, true)).toBeUndefined()
  expect(suspicion.note(first('b'), true)).toBe('began')
  for (let n = 0; n < 9; n += 1) suspicion.note({ type: 'b', retry_count: 1 }, false)
  expect(suspicion.types()).toEqual(['b'])
  expect(isSuspect(first('b'), suspicion.types())).toBe(true)
  expect(isSuspect(first('a'), suspicion.types())).toBe(false)
  expect(isSuspect({ type: 'a', retry_count: 1 }, suspicion.types())).toBe(true)
})
