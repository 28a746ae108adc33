import { describe, expect, it } from 'vitest'
import {
  afterSeen,
  type Cursor,
  cursorAt,
  encodeCursor,
  eventCursors,
  includesSnapshot,
  isVisible,
  parseCursor,
  parseSnapshot,
  widenXid,
} from '../../src/events/cursor.ts'

const cursors: Cursor[] = [
  cursorAt('700:700:@0a1b2c3d.1'),
  cursorAt('700:712:700,705,711@0a1b2c3d.1F'),
  {
    kind: 'snapshot',
    snapshot: '700:712:700',
    upTo: '720:730:725',
    position: '9223372036854775807',
    lineage: '0a1b2c3d.1',
  },
  {
    kind: 'event',
    snapshot: '700:712:700',
    upTo: '4294967297:18446744073709551615:4294967297',
    position: '1',
    lineage: '',
  },
]

describe('a cursor', () => {
  it.each(cursors)('survives its encoding: %o', (cursor) => {
    expect(parseCursor(encodeCursor(cursor))).toEqual(cursor)
  })

  it('is safe in a URL', () => {
    for (const cursor of cursors) expect(encodeCursor(cursor)).toMatch(/^[\w-]+$/)
  })

  it('is short, however many transactions were running', () => {
    const many = `700000000:700000100:${Array.from({ length: 100 }, (_, i) => 700_000_000 + i)}`
    expect(encodeCursor({ kind: 'event', snapshot: many, upTo: many, position: '5' }).length).toBeLessThan(600)
  })

  it('of an event is the place of its round, after what else its holder has seen', () => {
    const cursor = eventCursors('700:700:', '712:720:712,715', '0a1b2c3d.1')('5')
    const place = { kind: 'event', upTo: '712:720:712,715', position: '5', lineage: '0a1b2c3d.1' }
    expect(parseCursor(cursor)).toEqual({ ...place, snapshot: '700:700:' })
    const seen = parseSnapshot('708:710:708,709')!
    expect(parseCursor(afterSeen(cursor, seen))).toEqual({ ...place, snapshot: '708:710:708,709' })
  })
})

it('from before there were lineages belongs to none', () => {
  const old = Buffer.from('s/700:700://0').toString('base64url')
  expect(parseCursor(old)).toEqual({ ...cursorAt('700:700:'), lineage: '' })
})

describe('parseCursor refuses', () => {
  const encoded = (text: string) => Buffer.from(text).toString('base64url')
  it.each([
    ['nothing', undefined],
    ['another type', 7],
    ['an array', ['e/7:7:/8:8:/2']],
    ['the empty string', ''],
    ['plain text', 's/812:812://5'],
    ['base64 with padding', `${encoded('s/812:812://5')}==`],
    ['a newline after it', `${encoded('s/812:812://5')}\n`],
    ['an unknown kind', encoded('x/812:812://5')],
    ['a missing part', encoded('e/812:812:/5')],
    ['one part too many', encoded('s/812:812://5/6')],
    ['an event without a round', encoded('e/812:812://5')],
    ['a negative transaction', encoded('s/-812:812://5')],
    ['transaction zero', encoded('s/0:812://5')],
    ['a transaction beyond 64 bits', encoded('s/812:18446744073709551616://5')],
    ['a number that is no transaction', encoded('s/812:4294967296://5')],
    ['a position beyond bigint', encoded('s/812:812://9223372036854775808')],
    ['a position with SQL', encoded("s/812:812://5' or true --")],
    ['a snapshot that ends before it begins', encoded('s/9:7://0')],
    ['a running transaction before xmin', encoded('s/7:9:-1//0')],
    ['a running transaction at xmax', encoded('s/7:9:2//0')],
    ['a running transaction far away', encoded('s/7:9:zzzzzzzzzzz//0')],
    ['a trailing comma', encoded('s/7:9:0,//0')],
    ['an end of the round that is no snapshot', encoded('s/7:9:0/8/0')],
    ['a huge one', encoded(`s/7:9:${'0,'.repeat(40_000)}0//0`)],
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
