import { describe, expect, it } from 'vitest'
import { type Move, orderOf } from '../../src/features/data/undo/order.ts'
import { isPutBack, type LoggedChange, laterOf, reversalOf } from '../../src/features/data/undo/reversal.ts'

/** `U` undone, `N` not, `B` not and put back by another undo; `create`, `delete`, or the fields of an update, with `-` those dropped since. Positions count from 1. */
const changes = (...told: string[]): LoggedChange[] =>
  told.map((line, index) => {
    const [who, what, ...fields] = line.split(' ')
    const action = what === 'create' || what === 'delete' ? what : 'update'
    const named = [what!, ...fields].filter((name) => name !== 'erased')
    return {
      position: String(index + 1),
      action,
      fields: action === 'update' ? named.filter((name) => !name.startsWith('-')) : [],
      dropped: named.flatMap((name) => (name.startsWith('-') ? [name.slice(1)] : [])),
      isErased: fields.includes('erased'),
      isUndone: who === 'U',
      isByUndo: who === 'B',
    }
  })

const shown = (...told: string[]) => {
  const reversal = reversalOf(changes(...told))
  if (reversal === undefined) return undefined
  const { action, image, fields, dropped, since, isRemade, isErased } = reversal
  return [
    action,
    ...(image === undefined ? [] : [`as before ${image}`]),
    ...[...fields].map(([name, position]) => `${name} as before ${position}`),
    ...[...dropped].map((name) => `${name} dropped`),
    ...(since.size === 0 ? [] : [`others wrote ${[...since]}`]),
    ...(isRemade ? ['remade'] : []),
    ...(isErased ? ['erased'] : []),
  ].join(', ')
}

describe('reversals of some changes of a row', () => {
  it.each([
    [['U a'], 'update, a as before 1'],
    [['U a b', 'U a'], 'update, a as before 1, b as before 1'],
    [['U create'], 'delete'],
    [['U delete'], 'create, as before 1'],
    [['U create', 'U a', 'U delete'], undefined],
    [['U a', 'U delete'], 'create, as before 2, a as before 1'],
    [['U delete', 'U create'], 'update, as before 1'],
  ])('%j', (told, reversal) => expect(shown(...told)).toBe(reversal))

  it.each([
    [['U a', 'N b'], 'update, a as before 1, others wrote b'],
    [['U a', 'N a'], 'update, a as before 1, others wrote a'],
    // Values that others had overwritten before are theirs.
    [['U a', 'N a', 'U a'], 'update, a as before 3'],
    [['U a', 'N a', 'U delete'], 'create, as before 3'],
    [['U create', 'N a'], 'delete, others wrote a'],
    [['U create', 'N delete'], undefined],
    [['U a', 'N delete'], 'create, a as before 1, remade'],
    [['U delete', 'N create'], 'update, as before 1, remade'],
    [['U delete', 'N create', 'U a'], 'update, a as before 3'],
    [['U a', 'N delete', 'N create'], 'update, a as before 1, remade'],
    [['U a erased'], 'update, a as before 1, erased'],
    [['U -a b'], 'update, b as before 1, a dropped'],
    // A field made again under the name is another one.
    [['U -a', 'N a'], 'update, a dropped, others wrote a'],
    [['U -a', 'U a'], 'update, a as before 2, a dropped'],
    [['U -a', 'U delete'], 'create, as before 2, a dropped'],
    [['U delete', 'N create', 'N -a'], 'update, as before 1, remade'],
  ])('%j among changes of others', (told, reversal) => expect(shown(...told)).toBe(reversal))
})

describe('a field since the undone changes', () => {
  it.each([
    [['U a', 'N b', 'N a', 'B a'], '3 4'],
    [['U a', 'N a', 'U a', 'N b', 'N a'], '5'],
    [['U create', 'N a', 'N delete', 'B create'], '2 3 4'],
    [['U b'], ''],
  ])('%j', (told, later) =>
    expect(
      laterOf(changes(...told), 'a')
        .map(({ position }) => position)
        .join(' '),
    ).toBe(later),
  )

  /** Values in their order, those that an undo wrote in brackets; `-` is a row that is not there. */
  it.each([
    ['1', true],
    ['1 2', false],
    ['1 2 (1)', true],
    ['1 2 3 (2) (1)', true],
    ['1 2 1 (2) (1)', true],
    ['1 - (1)', true],
    ['1 2 - (2)', false],
    ['1 2 1', false],
    ['1 2 1 3 (1)', false],
    ['1 (2) (1)', true],
    ['1 (2)', false],
  ])('is what they left: %s %s', (told, isBack) => {
    const [left, ...later] = told.split(' ')
    const written = later.map((value) => ({ value: value.replace(/[()]/g, ''), isByUndo: value.startsWith('(') }))
    expect(isPutBack(left, written)).toBe(isBack)
  })
})

const move = (action: Move['action'], more: Partial<Move> = {}): Move => ({
  action,
  offers: [],
  leaves: [],
  needs: new Map(),
  releases: new Map(),
  takes: [],
  frees: [],
  ...more,
})
const takes = (place: string, nullable?: string) => [{ place, nullable }]
const needs = (column: string, place: string, canWait = false, holds = false) =>
  new Map([[column, { place, canWait, holds }]])

describe('the order in which rows are written', () => {
  const waves = (...moves: Move[]) => orderOf(moves)?.map((wave) => wave.map((step) => step.move))

  it('creates what is referred to first', () =>
    expect(waves(move('create', { offers: ['b'], needs: needs('f', 'a') }), move('create', { offers: ['a'] }))).toEqual(
      [[1], [0]],
    ))

  it('gives a value back before it is referred to, and after what holds the present one', () => {
    const referred = move('update', { offers: ['a'], leaves: ['b'] })
    expect(waves(move('update', { needs: needs('f', 'a'), releases: needs('f', 'b') }), referred)).toEqual([[1], [0]])
    expect(waves(referred, move('update', { releases: needs('f', 'b', false, true) }))).toEqual([[1], [0]])
  })

  it('deletes what refers first, after what lets go', () =>
    expect(
      waves(
        move('delete', { offers: ['a'] }),
        move('delete', { offers: ['b'], releases: needs('f', 'a') }),
        move('update', { releases: needs('f', 'b') }),
      ),
    ).toEqual([[2], [1], [0]]))

  it('frees unique values before they are taken', () =>
    expect(waves(move('create', { takes: takes('u') }), move('delete', { frees: ['u'] }))).toEqual([[1], [0]]))

  it('opens a circle by a column that may be null, and sets it last', () => {
    const circle = [
      move('create', { offers: ['a'], needs: needs('f', 'b', true) }),
      move('create', { offers: ['b'], needs: needs('g', 'a') }),
    ]
    expect(orderOf(circle)).toEqual([
      [{ move: 0, without: ['f'] }],
      [{ move: 1, without: [] }],
      [{ move: 0, without: [], only: ['f'] }],
    ])
  })

  it('has rows of a circle let go before they are deleted, by a column that may be null', () => {
    const circle = [
      move('delete', { offers: ['a'], releases: needs('f', 'b') }),
      move('delete', { offers: ['b'], releases: needs('g', 'a', true) }),
    ]
    expect(orderOf(circle)).toEqual([
      [{ move: 1, without: ['g'], only: ['g'] }],
      [{ move: 0, without: [] }],
      [{ move: 1, without: [] }],
    ])
  })

  it('swaps unique values by null, and not where they may not be null', () => {
    const swap = (nullable?: string) => [
      move('update', { frees: ['x'], takes: takes('y', nullable) }),
      move('update', { frees: ['y'], takes: takes('x', nullable) }),
    ]
    expect(orderOf(swap('code'))).toEqual([
      [{ move: 0, without: ['code'] }],
      [{ move: 1, without: [] }],
      [{ move: 0, without: [], only: ['code'] }],
    ])
    expect(orderOf(swap())).toBeUndefined()
  })

  it('gives up where no column of a circle may be null', () =>
    expect(
      waves(
        move('create', { offers: ['a'], needs: needs('f', 'b') }),
        move('create', { offers: ['b'], needs: needs('g', 'a') }),
      ),
    ).toBeUndefined())

  it('gives up where no column of rows that go may be null', () =>
    expect(
      waves(
        move('delete', { offers: ['a'], releases: needs('f', 'b') }),
        move('delete', { offers: ['b'], releases: needs('g', 'a') }),
      ),
    ).toBeUndefined())

  it('lets a row point at itself', () =>
    expect(waves(move('create', { offers: ['a'], needs: needs('f', 'a') }))).toEqual([[0]]))
})
