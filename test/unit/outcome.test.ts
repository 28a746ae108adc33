import { expect, it } from 'vitest'
import { endingOf, type TransactionStatus } from '../../src/events/commit.ts'

it.each<[TransactionStatus['status'], boolean, ReturnType<typeof endingOf>]>([
  ['committed', true, 'committed'],
  ['aborted', true, 'aborted'],
  ['in progress', true, undefined],
  ['future', true, 'unknown'],
  [null, true, 'unknown'],
  ['committed', false, 'unknown'],
  ['aborted', false, 'aborted'],
  ['in progress', false, 'aborted'],
  ['future', false, 'aborted'],
  [null, false, 'unknown'],
])('of a transaction that is %s, in the same life of the server: %s, is said: %s', (status, isSameLife, ending) => {
  expect(endingOf({ status, isSameLife })).toBe(ending)
})
