import { describe, expect, it } from 'vitest'
import {
  type Action,
  brokenIn,
  type Editing,
  isDirty,
  opened,
  readFlow,
  statesAfter,
  step,
} from '../../console/src/pages/workflows/flow.ts'
import { kinds, readValue, shownValue } from '../../console/src/pages/workflows/kinds.ts'
import { layoutOf, nodeSize } from '../../console/src/pages/workflows/layout.ts'
import { readFlow as readStored, topology } from '../../src/features/work/workflows/flow.ts'
import { nodeTypes } from '../../src/features/work/workflows/nodes.ts'
import { chain, flowOf, node } from '../support/flows.ts'

const done = (state: Editing, ...actions: readonly Action[]) => actions.reduce(step, state)
const edgesOf = ({ flow }: Editing) =>
  flow.edges.map(({ source, target, sourceHandle, targetHandle }) =>
    [source, sourceHandle, target, targetHandle].filter((one) => one !== undefined).join(' '),
  )
const looped = flowOf(
  [node('each', 'loop'), node('make', 'service')],
  [
    ['start', 'each'],
    ['each', 'make', 'loop'],
  ],
)

describe('the editor of workflows', () => {
  it('adds what follows the selected node by its first free handle, and takes it back as one', () => {
    const state = done(
      opened(readFlow(flowOf([], []))),
      { do: 'select', id: 'start' },
      { do: 'add', type: 'condition' },
      { do: 'add', type: 'http' },
      { do: 'select', id: 'condition-1' },
      { do: 'add', type: 'http' },
    )
    expect(edgesOf(state)).toEqual(['start condition-1', 'condition-1 true http-1', 'condition-1 false http-2'])
    expect(state.selected).toBe('http-2')
    const back = done(state, { do: 'undo' })
    expect(back.flow.nodes.map(({ id }) => id)).toEqual(['start', 'condition-1', 'http-1'])
    expect(edgesOf(back)).toHaveLength(2)
    expect(back.selected).toBeUndefined()
    expect(done(back, { do: 'redo' }).flow).toEqual(state.flow)
  })

  it('comes back to a loop at its end, and makes no other circle', () => {
    const begun = opened(readFlow(looped))
    const closed = done(begun, { do: 'connect', source: 'make', handle: 'done', target: 'each' })
    expect(edgesOf(closed).at(-1)).toBe('make each loop-end')
    expect(topology(readStored(closed.flow, [])).circle).toEqual([])
    for (const [source, target, words] of [
      ['make', 'start', 'Nothing leads into the trigger.'],
      ['make', 'make', 'A node does not lead to itself.'],
      ['start', 'each', 'start leads there already.'],
    ] as const) {
      const refused = done(begun, { do: 'connect', source, handle: 'done', target })
      expect([refused.refusal, refused.flow]).toEqual([words, begun.flow])
    }
    const straight = opened(readFlow(chain(node('a', 'http'), node('b', 'http'))))
    const circle = done(straight, { do: 'connect', source: 'b', handle: 'done', target: 'a' })
    expect([circle.refusal, circle.flow]).toEqual([
      'a comes before b: a circle would never end. Use a loop.',
      straight.flow,
    ])
  })

  it('removes a node with its edges, and one edge alone', () => {
    const begun = opened(readFlow(looped))
    const without = done(begun, { do: 'select', id: 'each' }, { do: 'remove', id: 'each' })
    expect([without.flow.nodes.map(({ id }) => id), edgesOf(without), without.selected]).toEqual([
      ['start', 'make'],
      [],
      undefined,
    ])
    expect(edgesOf(done(begun, { do: 'disconnect', edge: 'e0' }))).toEqual(['each loop make'])
  })

  it('takes back a word and a move as a whole, however many steps each took', () => {
    const begun = opened(readFlow(looped))
    const write = (value: string): Action => ({ do: 'change', id: 'make', name: 'collection', value })
    const typed = done(begun, write('o'), write('or'), { do: 'change', id: 'make', name: 'itemId', value: '1' })
    expect(typed.past).toHaveLength(2)
    expect(done(typed, { do: 'undo' }).flow.nodes[2]!.data).toEqual({ collection: 'or' })
    expect(done(typed, { do: 'undo' }, { do: 'undo' }).flow).toBe(begun.flow)
    const { places } = layoutOf(begun.flow)
    const move = (x: number): Action => ({ do: 'move', id: 'make', to: { x, y: 100 }, places })
    const moved = done(begun, move(500), move(700), { do: 'rest' }, move(701))
    expect(moved.past).toHaveLength(2)
    // Where the others were seen, they stay.
    expect([...layoutOf(moved.flow).places]).toEqual(
      [...places].map(([id, at]) => [id, id === 'make' ? { x: 701, y: 100 } : at]),
    )
    expect(done(moved, { do: 'arrange' }).flow.nodes.some(({ position }) => position)).toBe(false)
  })

  it('keeps a text that is no value with its node, as something to save, until it is one or the option is another', () => {
    const begun = opened(readFlow(looped))
    const write = (value: unknown): Action => ({ do: 'change', id: 'make', name: 'data', value })
    const broken = { node: 'make', name: 'data', text: '{', error: 'This is no JSON' }
    const typed = done(begun, { do: 'type', broken }, { do: 'select', id: 'each' })
    expect(brokenIn(typed)).toEqual([{ ...broken, of: undefined }])
    expect([isDirty(begun), isDirty(typed)]).toEqual([false, true])
    expect(brokenIn(done(typed, { do: 'type', broken: { ...broken, text: '{"' } }))).toMatchObject([{ text: '{"' }])
    // The same value as before it is typed, or none.
    expect(brokenIn(done(typed, write(undefined)))).toEqual([])
    expect(brokenIn(done(typed, write({}), { do: 'undo' }))).toEqual([])
    expect(brokenIn(done(typed, { do: 'replace', id: 'make', data: { data: 1 } }))).toEqual([])
    expect(brokenIn(done(typed, { do: 'remove', id: 'make' }))).toEqual([])
    expect(brokenIn(done(typed, { do: 'load', flow: begun.flow }))).toEqual([])
  })

  it('keeps what it does not know, and leaves out what is no node or edge', () => {
    const stored = {
      viewport: { zoom: 2 },
      nodes: [{ id: 'a', type: 'x', width: 9, data: { own: 1 } }, { id: 5 }, null],
      edges: [
        { source: 'a', target: 'a', style: 'red' },
        { source: 'a', target: 'gone' },
      ],
    }
    expect(readFlow(stored)).toEqual({
      viewport: { zoom: 2 },
      nodes: [stored.nodes[0]],
      edges: [{ ...stored.edges[0], id: 'edge-1' }],
    })
    for (const none of [null, 5, [], { nodes: 5 }]) expect(readFlow(none)).toMatchObject({ nodes: [], edges: [] })
  })
})

describe('the canvas', () => {
  it('puts each node right of what leads to it, none over another, branches in the order of their handles', () => {
    const flow = readFlow(
      flowOf(
        [node('if', 'condition'), node('no', 'http'), node('yes', 'http'), node('end', 'http')],
        [
          ['start', 'if'],
          ['if', 'no', 'false'],
          ['if', 'yes', 'true'],
          ['if', 'end', 'done'],
          ['no', 'if', undefined, 'condition-end'],
        ],
      ),
    )
    const { places, lines, width, height } = layoutOf(flow)
    const x = (id: string) => places.get(id)!.x
    expect(x('start') < x('if') && x('if') < x('no')).toBe(true)
    const column = ['yes', 'no', 'end'].map((id) => places.get(id)!)
    expect(new Set(column.map((at) => at.x)).size).toBe(1)
    for (const [above, below] of [column.slice(0, 2), column.slice(1)])
      expect(below!.y - above!.y).toBeGreaterThanOrEqual(nodeSize.height)
    expect(lines).toHaveLength(5)
    for (const { x: left, y } of places.values())
      expect(left + nodeSize.width <= width && y + nodeSize.height <= height).toBe(true)
    expect(layoutOf(readFlow({})).places.size).toBe(0)
  })
})

describe('kinds of nodes', () => {
  it('are those of the server, which takes every word that is offered', () => {
    expect(Object.keys(kinds).sort()).toEqual(Object.keys(nodeTypes).sort())
    for (const [type, { options }] of Object.entries(kinds))
      for (const { name, form } of options)
        for (const word of typeof form === 'object' ? form : []) {
          const found: string[] = []
          const conditions = [{ field: 'a', operator: '==', value: 1 }]
          nodeTypes[type]!.check({ conditions, [name]: word }, (message) => found.push(message))
          expect(found.filter((message) => message.includes('must be'))).toEqual([])
        }
  })

  it('are written as JSON or text, and templates stay as they are', () => {
    expect(readValue('json', '{"a": 1}')).toEqual({ a: 1 })
    expect(readValue('json', ' {{ outputs.a }} ')).toBe(' {{ outputs.a }} ')
    expect(() => readValue('json', '{"a": ')).toThrow(/no JSON/)
    expect(() => readValue('number', 'ten')).toThrow(/number/)
    expect(readValue('number', '{{ trigger.n }}')).toBe('{{ trigger.n }}')
    expect(['5', 'a@example.com', '["a"]', ' '].map((text) => readValue('value', text))).toEqual([
      5,
      'a@example.com',
      ['a'],
      undefined,
    ])
    expect([shownValue('json', { a: 1 }), shownValue('text', undefined), shownValue('value', ['a'])]).toEqual([
      '{\n  "a": 1\n}',
      '',
      '["a"]',
    ])
  })
})

it('shows each node as it was last', () => {
  const at = (nodeId: string, status: string) => ({ nodeId, status })
  expect([...statesAfter([at('a', 'failed'), at('a', 'success'), at('b', 'running'), at('c', 'skipped')])]).toEqual([
    ['a', 'completed'],
    ['b', 'running'],
  ])
})
