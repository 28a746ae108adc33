import { describe, expect, it } from 'vitest'
import {
  type Cursor,
  cursorAt,
  encodeCursor,
  includesSnapshot,
  isVisible,
  parseCursor,
  parseSnapshot,
  snapshotOf,
  widenXid,
} from '../../src/events/cursor.ts'

const cursors: Cursor[] = [
  cursorAt('700:700:'),
  cursorAt('700:712:700,705,711'),
  { kind: 'snapshot', snapshot: '700:712:700', upTo: '720:730:725', position: '9223372036854775807' },
  { kind: 'event', horizon: '18446744073709551615', position: '1' },
]

describe('a cursor', () => {
  it.each(cursors)('survives its encoding: %o', (cursor) => {
    expect(parseCursor(encodeCursor(cursor))).toEqual(cursor)
  })

  it('is safe in a URL', () => {
    for (const cursor of cursors) expect(encodeCursor(cursor)).toMatch(/^[\w-]+$/)
  })

  it('of an event stands for "everything before its horizon has been read"', () => {
    expect(snapshotOf({ kind: 'event', horizon: '812', position: '5' })).toBe('812:812:')
  })
})

describe('parseCursor refuses', () => {
  const encoded = (text: string) => Buffer.from(text).toString('base64url')
  it.each([
    ['nothing', undefined],
    ['another type', 7],
    ['an array', ['e/1/2']],
    ['the empty string', ''],
    ['plain text', 'e/812/5'],
    ['base64 with padding', `${encoded('e/812/5')}==`],
    ['a newline behind it', `${encoded('e/812/5')}\n`],
    ['an unknown kind', encoded('x/812/5')],
    ['a missing part', encoded('e/812')],
    ['one part too many', encoded('e/812/5/6')],
    ['a negative horizon', encoded('e/-812/5')],
    ['horizon zero', encoded('e/0/5')],
    ['a horizon beyond 64 bits', encoded('e/18446744073709551616/5')],
    ['a horizon that is no transaction', encoded('e/4294967296/5')],
    ['a position beyond bigint', encoded('e/812/9223372036854775808')],
    ['a position with SQL', encoded("e/812/5' or true --")],
    ['a snapshot that ends before it begins', encoded('s/9:7://0')],
    ['a running transaction before xmin', encoded('s/7:9:6//0')],
    ['a running transaction at xmax', encoded('s/7:9:9//0')],
    ['running transactions out of order', encoded('s/7:19:12,9//0')],
    ['a trailing comma', encoded('s/7:9:7,//0')],
    ['an end of the round that is no snapshot', encoded('s/7:9:7/8/0')],
    ['a huge one', encoded(`s/7:9:${'7,'.repeat(40_000)}7//0`)],
  ])('%s', (_, value) => {
    expect(() => parseCursor(value)).toThrow(expect.objectContaining({ status: 400, message: 'Invalid cursor' }))
  })
})

describe('a snapshot', () => {
  const snapshot = parseSnapshot('10:20:12,15')!

  it.each([
    [9n, true],
    [10n, true],
    [12n, false],
    [14n, true],
    [15n, false],
    [19n, true],
    [20n, false],
    [21n, false],
  ])('shows transaction %s: %s', (xid, visible) => {
    expect(isVisible(xid, snapshot)).toBe(visible)
  })

  it.each([
    ['10:20:12,15', '10:20:12,15', true],
    ['12:25:12', '10:20:12,15', true],
    ['25:25:', '10:20:12,15', true],
    ['10:20:12,15', '12:25:12', false],
    // 14 was visible before and is running here: no later snapshot of the same server looks like this.
    ['12:25:12,14', '10:20:12,15', false],
    ['12:25:12,20', '10:20:12,15', true],
  ])('%s includes %s: %s', (later, earlier, included) => {
    expect(includesSnapshot(parseSnapshot(later)!, parseSnapshot(earlier)!)).toBe(included)
  })
})

describe('half a transaction id is widened to the one nearest by', () => {
  const epoch = 2n ** 32n
  it.each([
    [800, 790n, 800n],
    [780, 790n, 780n],
    [800, epoch + 790n, epoch + 800n],
    [5, epoch - 10n, epoch + 5n],
    [4294967290, epoch + 10n, epoch - 6n],
    [4294967290, 5n * epoch, 5n * epoch - 6n],
    [3, 3n, 3n],
    [4000000000, 10n, 4000000000n],
  ])('%s near %s is %s', (half, near, whole) => {
    expect(widenXid(half, near)).toBe(whole)
  })
})
