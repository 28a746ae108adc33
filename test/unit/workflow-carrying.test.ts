import { describe, expect, it } from 'vitest'
import { carryingTo } from '../../src/features/work/workflows/carrying.ts'
import { graphOf, readFlow } from '../../src/features/work/workflows/flow.ts'
import type { KeptNode } from '../../src/features/work/workflows/queries.ts'
import { begin, goOn, step } from '../../src/features/work/workflows/step.ts'
import { chain, flowOf, node } from '../support/flows.ts'

const effect = (id: string, type = 'service') => node(id, type, { operation: 'read', collection: 'c', url: 'x' })
const beginning = { trigger: { list: [1, 2] }, variables: {}, execution: { id: 'x' } }

/** The rows that an execution of a flow keeps whose effects fail at these places. */
function rowsOf(flow: object, failing: readonly string[] = []): readonly KeptNode[] {
  const graph = graphOf(readFlow(flow, []))
  const rows: KeptNode[] = []
  let [state, commands] = begin(graph, beginning)
  for (;;) {
    for (const command of commands)
      if (command.kind === 'note')
        rows.push({
          ...{ seq: command.seq, step: command.step, nodeId: command.node.id, nodeType: command.node.type },
          ...(command.error === undefined
            ? { status: 'success', outputData: command.output, errorMessage: null }
            : { status: 'failed', outputData: null, errorMessage: command.error }),
        })
    const last = commands.at(-1)!
    if (last.kind === 'pause') [state, commands] = goOn(graph, state)
    else if (last.kind === 'run')
      [state, commands] = step(
        graph,
        state,
        failing.includes(last.step) ? { error: 'no' } : { output: { did: last.step } },
      )
    else return rows
  }
}

/** Places as names; or what is refused, and for which nodes. */
function carried(ran: readonly KeptNode[], flow: object) {
  const carrying = carryingTo(graphOf(readFlow(flow, [])), { ...beginning, ran })
  let turn = carrying.next()
  while (turn.done !== true) turn = carrying.next()
  const { value } = turn
  if ('refusal' in value) return [value.refusal, ...value.nodes]
  return value.carried.map((seq) => ran.find((row) => row.seq === seq)!.step)
}

const [a, b, c] = [effect('a'), effect('b'), effect('c')]
const failedAtB = rowsOf(chain(a, b, c), ['b'])

describe('results that go to another version', () => {
  it('are those before the node that failed, whatever follows it', () => {
    expect(carried(failedAtB, chain(a, b, c))).toEqual(['a'])
    expect(carried(failedAtB, chain(a, b, effect('d'), c))).toEqual(['a'])
    expect(carried(failedAtB, chain(a, b))).toEqual(['a'])
  })

  it('are the same where the node that failed is another under its id', () => {
    expect(carried(failedAtB, chain(a, effect('b', 'http')))).toEqual(['a'])
    expect(carried(failedAtB, chain(a, node('b', 'variable', { variables: {} }), c))).toEqual(['a'])
  })

  it('need every node that has run, with its type', () => {
    expect(carried(failedAtB, chain(effect('other'), c))).toEqual([
      'The current version lacks nodes that have run: a, b',
      ...['a', 'b'],
    ])
    expect(carried(failedAtB, chain(effect('a', 'http'), b))).toEqual([
      'Nodes that have run are of another type in the current version: a',
      'a',
    ])
  })

  it('need their order, and no node between them that has not run', () => {
    expect(carried(failedAtB, chain(b, a))).toEqual([
      'The current version would run b before a, which ran without it',
      ...['b', 'a'],
    ])
    for (const between of [effect('new'), node('new', 'variable', { variables: {} })])
      expect(carried(failedAtB, chain(a, between, b))).toEqual([
        'The current version would run new before b, which ran without it',
        ...['new', 'b'],
      ])
    const within = flowOf(
      [a, node('new', 'try'), b],
      [
        ['start', 'a'],
        ['a', 'new'],
        ['new', 'b', 'try'],
      ],
    )
    expect(carried(failedAtB, within)).toEqual([
      'The current version would run new before b, which ran without it',
      ...['new', 'b'],
    ])
    expect(carried(rowsOf(within, ['b']), chain(a, b, node('new', 'try')))).toEqual([
      'The current version would run b in another body than it has run in',
      'b',
    ])
  })

  it('need a way to the node that failed', () => {
    const apart = flowOf([a, b], [['start', 'a']])
    expect(carried(failedAtB, apart)).toEqual([
      'The current version would be complete before nodes that have run: b',
      'b',
    ])
    const computing = (mapping: object) => chain(a, node('sum', 'aggregate', mapping), b)
    const fine = computing({ operation: 'count', arraySource: 'trigger.list' })
    expect(carried(rowsOf(fine, ['b']), computing({ operation: 'count', arraySource: 'trigger.none' }))).toEqual([
      'The current version would fail at sum, which has run',
      'sum',
    ])
  })

  it('leave out what only computes: the other version computes it anew', () => {
    const computing = (value: string) => chain(a, node('text', 'transform', { mapping: { is: value } }), b)
    const ran = rowsOf(computing('trigger.x'), ['b'])
    expect(ran.map(({ step }) => step)).toEqual(['start', 'a', 'text', 'b'])
    expect(carried(ran, computing('trigger.list'))).toEqual(['a'])
    // Of an execution that was cancelled before it had computed them again.
    const without = ran.filter(({ step }) => step === 'a')
    expect(carried(without, computing('trigger.list'))).toEqual(['a'])
  })

  it('follow a condition that decides otherwise only as far as it decides the same', () => {
    const deciding = (value: number) =>
      flowOf(
        [node('if', 'condition', { conditions: [{ field: 'trigger.list.0', operator: 'equals', value }] }), a, b],
        [
          ['start', 'if'],
          ['if', 'a', 'true'],
          ['if', 'b', 'false'],
        ],
      )
    const ran = rowsOf(deciding(1), ['a'])
    expect(carried(ran, deciding(1))).toEqual([])
    expect(carried(ran, deciding(2))).toEqual([
      'The current version would run b before a, which ran without it',
      ...['b', 'a'],
    ])
  })

  it('hold in loops, and where a failure was caught', () => {
    const looping = flowOf(
      [node('loop', 'loop', { arraySource: 'trigger.list' }), node('try', 'try'), a, b, c],
      [
        ['start', 'loop'],
        ['loop', 'try', 'loop'],
        ['try', 'a', 'try'],
        ['try', 'b', 'catch'],
        ['loop', 'c', 'done'],
      ],
    )
    const ran = rowsOf(looping, ['a@0', 'c'])
    expect(carried(ran, looping)).toEqual(['a@0', 'b@0', 'a@1'])
    const uncaught = flowOf(
      [node('loop', 'loop', { arraySource: 'trigger.list' }), node('try', 'try'), a, b, c],
      [
        ['start', 'loop'],
        ['loop', 'a', 'loop'],
        ['a', 'try'],
        ['try', 'b', 'try'],
        ['loop', 'c', 'done'],
      ],
    )
    expect(carried(ran, uncaught)).toEqual(['The current version would run a in another body than it has run in', 'a'])
    expect(carried(ran.slice(0, 2), looping)).toEqual(['a@0'])
  })

  it('end at a node that was begun, and no more', () => {
    const begun = failedAtB.map((row) => (row.step === 'b' ? { ...row, status: 'pending' as const } : row))
    expect(carried(begun, chain(a, b))).toEqual(['a'])
    expect(carried(begun, chain(a, c))).toEqual(['The current version lacks nodes that have run: b', 'b'])
  })

  it('are none of an execution that has not begun, and all of one that stopped between nodes', () => {
    expect(carried([], chain(c))).toEqual([])
    expect(carried(failedAtB.slice(0, 2), chain(a, c))).toEqual(['a'])
    const long = chain(...Array.from({ length: 400 }, (_, i) => effect(`n${i}`)))
    expect(carried(rowsOf(long, ['n399']), long)).toHaveLength(399)
  })
})
