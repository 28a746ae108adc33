import { array, assert, constantFrom, nat, property, record, string } from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  awaitsWord,
  compareText,
  type LiveInput,
  type LiveRow,
  type LiveState,
  noRows,
  orderOf,
  stepLive,
  viewOf,
} from '../../clients/live-step.ts'

const keyOf = ({ id }: LiveRow) => String(id)
const stateOf = (inputs: readonly LiveInput[], state: LiveState = noRows) =>
  inputs.reduce((before, input) => stepLive(before, input, keyOf), state)
const shownBy = (inputs: readonly LiveInput[]) => viewOf(stateOf(inputs), [], undefined)

const open = { id: 'a', status: 'open', price: '1.00', author: { id: 'x' } }
const snapshot: LiveInput = { kind: 'snapshot', rows: [open] }
const update = (row: LiveRow, write = 1): LiveInput => ({ kind: 'wrote', write, key: 'a', row, isNew: false })
const create = (row: LiveRow, write = 1): LiveInput => ({ kind: 'wrote', write, key: keyOf(row), row, isNew: true })
const done = (write = 1): LiveInput => ({ kind: 'done', write })

/** All orders of some inputs. */
function ordersOf(inputs: readonly LiveInput[]): LiveInput[][] {
  if (inputs.length === 0) return [[]]
  return inputs.flatMap((one, at) => ordersOf(inputs.toSpliced(at, 1)).map((rest) => [one, ...rest]))
}

describe('a write that is shown at once', () => {
  it('leaves nothing of a row that it takes out of the query, whichever comes first', () => {
    for (const order of ordersOf([{ kind: 'removed', key: 'a' }, done()]))
      expect(shownBy([snapshot, update({ status: 'done' }), ...order])).toEqual([])
    expect(shownBy([snapshot, update({ status: 'done' }), { kind: 'removed', key: 'a' }])).toEqual([])
  })

  it('gives way to the row as the server has it, whichever comes first', () => {
    const row = { ...open, price: '7.00' }
    for (const order of ordersOf([{ kind: 'changed', row }, done()]))
      expect(shownBy([snapshot, update({ price: 7, author: { name: 'nested' } }), ...order])).toEqual([row])
  })

  it('of rows that nobody has told of makes none', () => {
    expect(shownBy([update({ status: 'open' }), done()])).toEqual([])
    expect(shownBy([create({ id: 'a', status: 'open' }), update({ status: 'late' }, 2)])).toEqual([
      { id: 'a', status: 'late' },
    ])
  })

  it('is shown with those after it until the server has told of each', () => {
    const first = { ...open, status: 'first' }
    const writes = [snapshot, update({ status: 'first' }), update({ status: 'second' }, 2)]
    const told = [...writes, { kind: 'changed', row: first } as const, done(), done(2)]
    expect(shownBy(told)).toMatchObject([{ status: 'second' }])
    const second = { ...open, status: 'second', price: '2.00' }
    expect(shownBy([...told, { kind: 'changed', row: second }])).toEqual([second])
  })

  it('is dropped where the server, asked for everything, has no word about it', () => {
    const made = [snapshot, create({ id: 'b', status: 'elsewhere' }), done()]
    expect(shownBy(made)).toHaveLength(2)
    expect(awaitsWord(stateOf(made))).toBe(true)
    // What is asked for before it is done says nothing about it.
    expect(shownBy([...made.slice(0, 2), { kind: 'asked' }, done(), { kind: 'caught up' }])).toHaveLength(2)
    expect(shownBy([...made, { kind: 'caught up' }])).toHaveLength(2)
    const asked = stateOf([...made, { kind: 'asked' }])
    expect(awaitsWord(asked)).toBe(false)
    expect(viewOf(stateOf([{ kind: 'caught up' }], asked), [], undefined)).toEqual([open])
  })

  it('is known by the key that the server has made', () => {
    const row = { id: '1', status: 'open' }
    const wrote = create({ id: 'made here', status: 'open' })
    const answered: LiveInput = { kind: 'done', write: 1, row }
    for (const order of ordersOf([{ kind: 'changed', row: { ...row, price: '0.00' } }, answered]))
      expect(shownBy([wrote, ...order])).toEqual([{ ...row, price: '0.00' }])
  })
})

describe('rows in order', () => {
  const sorted = (
    values: readonly unknown[],
    sort: string,
    numbers: readonly string[],
    told?: Parameters<typeof orderOf>[2],
  ) => {
    const rows = values.map((value, id) => ({ id, value }))
    const state = stateOf([{ kind: 'snapshot', rows }])
    return viewOf(state, orderOf([sort], numbers, told), undefined).map(({ value }) => value)
  }

  it('are compared as numbers where the server says that they are, exactly, also before they are known as text', () => {
    const values = [
      '10.00',
      '9.50',
      9.75,
      '-0.25',
      '-0.5',
      null,
      'NaN',
      '12345678901234567890.1',
      '12345678901234567890.05',
    ]
    const ordered = [
      '-0.5',
      '-0.25',
      '9.50',
      9.75,
      '10.00',
      '12345678901234567890.05',
      '12345678901234567890.1',
      'NaN',
      null,
    ]
    expect(sorted(values, 'value', ['value'])).toEqual(ordered)
    expect(sorted(values, '-value', ['value'])).toEqual(ordered.toReversed())
    expect(sorted(['9007199254740993', 9007199254740991], 'value', ['value'])).toEqual([
      9007199254740991,
      '9007199254740993',
    ])
  })

  it('are compared as the server compares text: by code points', () => {
    assert(
      property(string({ unit: 'grapheme' }), string({ unit: 'grapheme' }), (a, b) => {
        expect(Math.sign(compareText(a, b))).toBe(Buffer.compare(Buffer.from(a), Buffer.from(b)))
      }),
    )
    expect(sorted(['a', 'Z', 'ä', 'z', '\u{1f600}', '\uff5e'], 'value', [])).toEqual([
      'Z',
      'a',
      'z',
      'ä',
      '\uff5e',
      '\u{1f600}',
    ])
  })

  it('are compared as the server compares without case: each code point by its own small letter', () => {
    const told = { orders: { value: 'caseless' } } as const
    expect(sorted(['\u0391\u03a3', '\u03b1\u03c3', '\u03b1\u03c2'], '-value', [], told)).toEqual([
      '\u0391\u03a3',
      '\u03b1\u03c3',
      '\u03b1\u03c2',
    ])
    expect(sorted(['\u0130', 'I', 'i', 'ia', 'h'], 'value', [], told)).toEqual(['h', '\u0130', 'I', 'i', 'ia'])
  })

  it('are compared as dates where the server says that they are: first by the year, of any length', () => {
    const told = { orders: { value: 'date' } } as const
    const ordered = [
      '-infinity',
      '0044-03-15 BC',
      '0005-01-01 BC',
      '0005-02-01 BC',
      '0099-01-01',
      '1969-12-31T23:59:59.999Z',
      '9999-12-31',
      '10000-01-01',
      '10000-01-02T00:00:00.000Z',
      '123456-01-01',
      'infinity',
      null,
    ]
    expect(sorted(ordered.toReversed(), 'value', [], told)).toEqual(ordered)
  })

  it('are compared as text where they are text of digits', () => {
    expect(sorted(['9', '10'], 'value', [])).toEqual(['10', '9'])
  })
})

/*
 * A server whose rows match while they are `open`: it tells of commits in their order, and answers each write at any time
 * after its commit. Others write too.
 */
const statuses = ['open', 'open too', 'done'] as const
const matches = (row: LiveRow | undefined) => row !== undefined && row.status !== 'done'

type Act = { readonly own: boolean; readonly key: string; readonly status: string | undefined }

/** What a commit makes the server tell: nothing, where nothing that matches has changed. */
function commit(table: Map<string, LiveRow>, { key, status }: Act, version: number): LiveInput | undefined {
  const before = table.get(key)
  if (before?.status === status) return undefined
  const row = status === undefined ? undefined : { id: key, status, version }
  if (row === undefined) table.delete(key)
  else table.set(key, row)
  if (matches(row)) return { kind: 'changed', row: row! }
  return matches(before) ? { kind: 'removed', key } : undefined
}

const act = record({
  own: constantFrom(true, true, false),
  key: constantFrom('a', 'b'),
  status: constantFrom(...statuses, undefined),
})

describe('in any order of messages and answers', () => {
  it('only whole rows are shown, and in the end those of the server', () => {
    assert(
      property(array(act, { maxLength: 6 }), array(nat(), { minLength: 40, maxLength: 40 }), (acts, choices) => {
        const table = new Map<string, LiveRow>()
        const inputs = scheduleOf(table, acts, choices)
        let state = noRows
        for (const input of inputs) {
          state = stepLive(state, input, keyOf)
          for (const row of viewOf(state, [], undefined)) expect(row).toMatchObject({ id: expect.any(String) })
        }
        const last = stateOf([{ kind: 'asked' }, { kind: 'caught up' }], state)
        expect(last.pending).toEqual([])
        expect(new Set(viewOf(last, [], undefined))).toEqual(new Set([...table.values()].filter(matches)))
      }),
    )
  })
})

/** One of the possible orders: an own write is shown, is committed, is told of and is answered. */
function scheduleOf(table: Map<string, LiveRow>, acts: readonly Act[], choices: readonly number[]): LiveInput[] {
  const waiting = acts.map((one, write) => ({ one, write }))
  const sent: typeof waiting = []
  const messages: LiveInput[] = []
  const answers: LiveInput[] = []
  const inputs: LiveInput[] = []
  const move = () => {
    const { one, write } = waiting.shift()!
    if (one.own) {
      const { key, status } = one
      const row = status === undefined ? undefined : { ...(!table.has(key) && { id: key }), status }
      inputs.push({ kind: 'wrote', write, key, row, isNew: row?.id !== undefined })
    }
    sent.push({ one, write })
  }
  const settle = (at: number) => {
    const [{ one, write }] = sent.splice(at % sent.length, 1) as [(typeof sent)[number]]
    const told = commit(table, one, write)
    if (told !== undefined) messages.push(told)
    if (one.own) answers.push({ kind: 'done', write })
  }
  for (let n = 0; waiting.length + sent.length + messages.length + answers.length > 0; n += 1) {
    const choice = choices[n % choices.length]!
    const possible = [
      ...(waiting.length > 0 ? [move] : []),
      ...(sent.length > 0 ? [() => settle(choice)] : []),
      ...(messages.length > 0 ? [() => inputs.push(messages.shift()!)] : []),
      ...(answers.length > 0 ? [() => inputs.push(answers.splice(choice % answers.length, 1)[0]!)] : []),
    ]
    possible[choice % possible.length]!()
  }
  return inputs
}
