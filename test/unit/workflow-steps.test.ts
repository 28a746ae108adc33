import { describe, expect, it } from 'vitest'
import {
  evaluate,
  fill,
  meets,
  parsePath,
  resolve,
  resolveFilter,
  setAt,
  unfilledIn,
} from '../../src/features/work/workflows/expressions.ts'
import { graphOf, readFlow } from '../../src/features/work/workflows/flow.ts'
import { inputOf } from '../../src/features/work/workflows/nodes.ts'
import {
  begin,
  goOn,
  type NodeResult,
  type State,
  type StepCommand,
  step,
} from '../../src/features/work/workflows/step.ts'
import { validate } from '../../src/features/work/workflows/validate.ts'
import { chain, type Edge, flowOf, node } from '../support/flows.ts'

/** Runs a flow; `answer` stands for the nodes that do something. */
function run(
  flow: object,
  answer: (id: string, input: any, step: string) => unknown = (id) => ({ did: id }),
  trigger: unknown = {},
) {
  const graph = graphOf(readFlow(flow, []))
  const ran: string[] = []
  const notes: Extract<StepCommand, { kind: 'note' }>[] = []
  let [state, commands] = begin(graph, { trigger, variables: { v: 1 }, execution: { id: 'x' } })
  const results: NodeResult[] = []
  for (;;) {
    for (const command of commands) if (command.kind === 'note') notes.push(command)
    const last = commands.at(-1)!
    if (last.kind === 'pause') [state, commands] = goOn(graph, state)
    else if (last.kind === 'run') {
      ran.push(last.step)
      let result: NodeResult
      try {
        result = { output: answer(last.node.id, last.input, last.step) }
      } catch (error) {
        result = { error: (error as Error).message }
      }
      results.push(result)
      ;[state, commands] = step(graph, state, result)
    } else return { ran, notes, state: state as State, end: last, results, graph }
  }
}

const effect = (id: string, data: object = {}) => node(id, 'service', { operation: 'read', collection: 'c', ...data })

describe('a flow', () => {
  it('runs its nodes in order, each once, also where paths meet', () => {
    const flow = flowOf(
      [effect('a'), effect('b'), effect('c'), effect('d')],
      [
        ['start', 'a'],
        ['a', 'c'],
        ['a', 'b'],
        ['b', 'd'],
        ['c', 'd'],
      ],
    )
    const { ran, end, state } = run(flow)
    expect(ran).toEqual(['a', 'c', 'b', 'd'])
    expect(end).toEqual({ kind: 'complete' })
    expect(state.outputs).toMatchObject({ start: {}, d: { did: 'd' } })
  })

  it('takes one branch of a condition, comes back and goes on', () => {
    const flow = flowOf(
      [
        node('if', 'condition', { conditions: [{ field: 'trigger.n', operator: '>', value: 3 }], operator: 'AND' }),
        effect('yes'),
        effect('no'),
        effect('then'),
      ],
      [
        ['start', 'if'],
        ['if', 'yes', 'true'],
        ['if', 'no', 'false'],
        ['yes', 'if', undefined, 'condition-end'],
        ['no', 'if', undefined, 'condition-end'],
        ['if', 'then', 'done'],
      ],
    )
    expect(run(flow, undefined, { n: 4 }).ran).toEqual(['yes', 'then'])
    expect(run(flow, undefined, { n: 3 }).ran).toEqual(['no', 'then'])
    expect(validate(flow, around).errors).toEqual([])
  })

  it('goes through a list, with the item in templates, and collects what the body gave', () => {
    const flow = flowOf(
      [
        node('each', 'loop', { arraySource: 'trigger.list' }),
        effect('body', { filter: '{{loop.item}}' }),
        effect('after'),
      ],
      [
        ['start', 'each'],
        ['each', 'body', 'loop'],
        ['body', 'each', undefined, 'loop-end'],
        ['each', 'after', 'done'],
      ],
    )
    const { ran, state } = run(flow, (id, input) => (id === 'body' ? { got: input.filter } : null), { list: [5, 'x'] })
    expect(ran).toEqual(['body@0', 'body@1', 'after'])
    expect(state.outputs.each).toEqual({ results: [{ got: 5 }, { got: 'x' }], total: 2 })
    expect(run(flow, undefined, { list: [] }).ran).toEqual(['after'])
    expect(run(flow, undefined, { list: 7 }).end).toMatchObject({ kind: 'fail', error: { nodeId: 'each' } })
    const many = { list: Array.from({ length: 1001 }, (_, i) => i) }
    expect(run(flow, undefined, many).end).toMatchObject({
      error: { message: '1001 iterations are more than maxIterations (1000)' },
    })
  })

  it('nests loops and conditions; an edge to the end of an outer loop ends what is inside', () => {
    const flow = flowOf(
      [
        node('outer', 'loop', { loopType: 'count', endIndex: 2 }),
        node('inner', 'loop', { loopType: 'count', startIndex: 5, endIndex: 7 }),
        node('if', 'condition', { conditions: [{ field: 'loop.item', operator: '==', value: 5 }] }),
        effect('skip'),
        effect('work'),
      ],
      [
        ['start', 'outer'],
        ['outer', 'inner', 'loop'],
        ['inner', 'if', 'loop'],
        ['if', 'skip', 'true'],
        ['skip', 'inner', undefined, 'loop-end'],
        ['if', 'work', 'false'],
        ['work', 'if', undefined, 'condition-end'],
        ['inner', 'outer', 'done', 'loop-end'],
      ],
    )
    expect(run(flow).ran).toEqual(['skip@0.0', 'work@0.1', 'skip@1.0', 'work@1.1'])
  })

  it('catches what fails, tells where, and goes on; without a try the execution fails', () => {
    const edges: Edge[] = [
      ['start', 'try'],
      ['try', 'bad', 'try'],
      ['bad', 'never'],
      ['try', 'sorry', 'catch'],
      ['try', 'after', 'done'],
    ]
    const nodes = [
      node('try', 'try'),
      effect('bad'),
      effect('never'),
      effect('sorry', { search: '{{ error.message }} in {{error.nodeId}}' }),
      effect('after'),
    ]
    const broken = (id: string, input: any) => {
      if (id === 'bad') throw new Error('no such thing')
      return input.search
    }
    const caught = run(flowOf(nodes, edges), broken)
    expect(caught.ran).toEqual(['bad', 'sorry', 'after'])
    expect(caught.state.outputs).toMatchObject({ sorry: 'no such thing in bad', try: { success: false } })
    expect(run(flowOf(nodes, edges)).state.outputs.try).toEqual({ success: true })
    const alone = run(flowOf([effect('bad')], [['start', 'bad']]), broken)
    expect(alone.end).toEqual({
      kind: 'fail',
      error: { message: 'no such thing', nodeId: 'bad', stack: 'no such thing\n    at service (bad)' },
    })
    // A failure while another is being caught is not caught by the same node.
    expect(run(flowOf(nodes, edges), (id) => (id === 'never' ? 1 : broken('bad', {}))).end).toMatchObject({
      kind: 'fail',
    })
  })

  it('is brought back by its results alone', () => {
    const flow = flowOf(
      [
        node('each', 'loop', { loopType: 'count', endIndex: 3 }),
        effect('body'),
        node('set', 'variable', { variables: { v: '{{loop.index}}' } }),
      ],
      [
        ['start', 'each'],
        ['each', 'body', 'loop'],
        ['body', 'set'],
      ],
    )
    const first = run(flow, (_, __, at) => ({ at }))
    let i = 0
    const again = run(flow, () => (first.results[i++] as { output: unknown }).output)
    expect(again.state).toEqual(first.state)
    expect(first.state.variables).toEqual({ v: 2 })
    expect(again.notes).toEqual(first.notes)
    const places = first.notes.map(({ seq }) => seq)
    expect(places).toEqual([...new Set(places)].sort((x, y) => x - y))
  })

  it('ends where it has no end', () => {
    const flow = flowOf(
      [
        node('a', 'loop', { loopType: 'count', endIndex: 10_000, maxIterations: 10_000 }),
        node('b', 'loop', { loopType: 'count', endIndex: 10_000, maxIterations: 10_000 }),
        node('v', 'variable', { variables: { x: 1 } }),
      ],
      [
        ['start', 'a'],
        ['a', 'b', 'loop'],
        ['b', 'v', 'loop'],
      ],
    )
    expect(run(flow).end).toMatchObject({
      kind: 'fail',
      error: { message: expect.stringMatching(/^more than 50000 nodes/) },
    })
  })

  it('holds, makes and compares no more than a process can bear', () => {
    const big = 'x'.repeat(900_000)
    const failing = (...nodes: { readonly id: string }[]) =>
      run(chain(...nodes), undefined, { big, list: Array(40_000).fill('y') })
    // Each time around twice as long.
    const doubling = flowOf(
      [
        node('each', 'loop', { loopType: 'count', endIndex: 100 }),
        node('grow', 'variable', { variables: { text: '{{variables.text}}{{variables.text}}{{trigger.big}}' } }),
      ],
      [
        ['start', 'each'],
        ['each', 'grow', 'loop'],
      ],
    )
    const grown = run(doubling, undefined, { big: 'y' })
    expect(grown.end).toMatchObject({
      kind: 'fail',
      error: { nodeId: 'grow', message: expect.stringMatching(/larger than|more than/) },
    })
    const many = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`v${i}`, '{{trigger.big}}']))
    for (const one of [
      node('n', 'variable', { variables: { v: '{{trigger.big}}'.repeat(1000) } }),
      node('n', 'variable', { variables: many }),
      node('n', 'transform', { mapping: many }),
      node('n', 'variable', { variables: { two: ['{{trigger.big}}', '{{trigger.big}}'] } }),
      node('n', 'filter', {
        arraySource: 'trigger.list',
        conditions: [{ field: 'current', operator: 'in', value: '{{trigger.list}}' }],
      }),
      node('n', 'filter', {
        arraySource: 'trigger.list',
        conditions: [{ field: 'trigger.list', operator: 'contains', value: 'z' }],
      }),
      effect('n', { data: many }),
    ])
      expect(failing(one).end, JSON.stringify(one).slice(0, 100)).toMatchObject({
        kind: 'fail',
        error: { nodeId: 'n' },
      })
    // The results of nodes are held until the end, and so are those of each iteration.
    const collecting = flowOf(
      [node('each', 'loop', { loopType: 'count', endIndex: 100 }), effect('read')],
      [
        ['start', 'each'],
        ['each', 'read', 'loop'],
      ],
    )
    const collected = run(collecting, () => ({ big }))
    expect(collected.end).toMatchObject({
      kind: 'fail',
      error: { message: expect.stringContaining('holds more than') },
    })
    expect(collected.ran.length).toBeLessThan(40)
    const caught = flowOf(
      [node('try', 'try'), node('n', 'variable', { variables: many }), effect('sorry')],
      [
        ['start', 'try'],
        ['try', 'n', 'try'],
        ['try', 'sorry', 'catch'],
      ],
    )
    expect(run(caught, undefined, { big })).toMatchObject({ end: { kind: 'complete' }, ran: ['sorry'] })
  })

  it('nests a hundred deep', () => {
    const depth = 100
    const nodes = Array.from({ length: depth }, (_, i) => node(`l${i}`, 'loop', { loopType: 'count', endIndex: 1 }))
    const edges = nodes.map((_, i): Edge => (i === 0 ? ['start', 'l0'] : [`l${i - 1}`, `l${i}`, 'loop']))
    const { ran, end } = run(flowOf([...nodes, effect('inmost')], [...edges, [`l${depth - 1}`, 'inmost', 'loop']]))
    expect(end).toEqual({ kind: 'complete' })
    expect(ran).toEqual([`inmost@${Array(depth).fill(0).join('.')}`])
  })

  it('maps, filters and reckons without asking anybody', () => {
    const flow = flowOf(
      [
        node('keep', 'filter', {
          arraySource: '{{trigger.orders}}',
          conditions: [{ field: 'total', operator: 'greater_than', value: '{{trigger.least}}' }],
        }),
        node('sum', 'aggregate', { arraySource: 'outputs.keep.items', operation: 'sum', field: 'total' }),
        node('map', 'transform', {
          transformType: 'mapping',
          mapping: {
            'order.sum': 'outputs.sum.result',
            text: 'the {{outputs.keep.count}}',
            fixed: 'plain words',
            none: 'trigger.no',
          },
        }),
      ],
      [
        ['start', 'keep'],
        ['keep', 'sum'],
        ['sum', 'map'],
      ],
    )
    const orders = [{ total: 5 }, { total: '7' }, { total: null }, { total: 1 }]
    const { ran, state } = run(flow, undefined, { orders, least: 2 })
    expect(ran).toEqual([])
    expect(state.outputs).toMatchObject({
      keep: { count: 2 },
      sum: { result: 12 },
      map: { order: { sum: 12 }, text: 'the 2', fixed: 'plain words', none: null },
    })
  })
})

describe('an aggregate', () => {
  const of = (operation: string, list: readonly unknown[]) => {
    const flow = flowOf([node('a', 'aggregate', { arraySource: 'trigger.list', operation })], [['start', 'a']])
    const { state, end } = run(flow, undefined, { list })
    return end.kind === 'complete' ? (state.outputs.a as { result: unknown }).result : end
  }

  it.each([
    ['max', ['2026-01-01', '2026-05-01', null], '2026-05-01'],
    ['min', ['2026-01-01', '', '2026-05-01'], '2026-01-01'],
    ['min', ['10', '9'], 9],
    ['max', [], null],
    ['sum', ['1.50', 2, null], 3.5],
  ])('%s of %j is %j', (operation, list, result) => {
    expect(of(operation, list)).toEqual(result)
  })

  it.each([
    ['sum', ['1,50', 2], '"1,50" is no number'],
    ['average', [1, {}], '{} is no number'],
    ['max', ['2026-01-01', 5], '"2026-01-01" is no number'],
    ['sum', [1, ' '], '" " is no number'],
  ])('%s of %j fails', (operation, list, error) => {
    expect(of(operation, list)).toMatchObject({ kind: 'fail', error: { message: error, nodeId: 'a' } })
  })
})

describe('expressions', () => {
  const scope = { trigger: { a: { 'b c': [1, { d: null }] }, s: 'x' }, outputs: { 'node-1': { data: 5 } } }

  it('name own members and nothing else', () => {
    expect(resolve(`{{ trigger.a['b c'][0] }}`, scope)).toBe(1)
    expect(resolve(`{{outputs['node-1'].data}}{{ outputs.node-1.data }}`, scope)).toBe('55')
    expect(resolve('{{trigger.a}} {{nothing.here}}', scope)).toBe('{"b c":[1,{"d":null}]} {{nothing.here}}')
    for (const evil of [
      'trigger.constructor',
      'trigger.__proto__',
      'trigger.a.hasOwnProperty',
      'trigger.s.length',
      `this.constructor.constructor('return process')()`,
      'trigger.a.toString.call',
      'globalThis.process',
      'trigger[0',
      '`$' + '{trigger.s}`',
      'trigger.s; process.exit()',
    ]) {
      expect(resolve(`{{${evil}}}`, scope), evil).toBe(`{{${evil}}}`)
      expect(evaluate(evil, scope), evil).toBeUndefined()
    }
    expect(resolve('{{trigger.x}}', { trigger: Object.create({ x: 'inherited' }) })).toBe('{{trigger.x}}')
    expect(parsePath('a..b')).toBeUndefined()
    expect(resolve({ deep: ['{{trigger.s}}'] }, scope)).toEqual({ deep: ['x'] })
  })

  it.each([
    ['100.0000', 100, true],
    ['100.0000', '100', true],
    [100, '1e2', false],
    ['-0.0', 0, true],
    ['12345678901234567890.10', '12345678901234567890.1', true],
    ['12345678901234567890', '12345678901234567891', false],
    ['007', '7', false],
    ['1.5', 1.51, false],
    ['100', '100 %', false],
  ])('compare %j with %j by value: %s', (left, right, isSame) => {
    const meetsBy = (operator: string, value: unknown) => meets([{ operator }], 'AND', () => ({ left, right: value }))
    expect(meetsBy('equals', right)).toBe(isSame)
    expect(meetsBy('not_equals', right)).toBe(!isSame)
    expect(meetsBy('in', ['x', right])).toBe(isSame)
  })

  it('leave null out of texts for people, and tell what names nothing', () => {
    const mail = node('m', 'email', { to: 'a@b.example', subject: '{{trigger.none}}|{{trigger.s}}', body: '' })
    const given = { trigger: { none: null, s: 'x' } }
    expect(inputOf('email', { ...mail.data }, given)).toMatchObject({ subject: '|x' })
    expect(fill('{{trigger.none}}, {{trigger.lost}} {{trigger.lost}}', given)).toBe(
      ', {{trigger.lost}} {{trigger.lost}}',
    )
    expect(unfilledIn('{{trigger.none}}, {{trigger.lost}} {{trigger.lost}}', given)).toEqual(['trigger.lost'])
    expect(resolve('{"n": {{trigger.none}}}', given)).toBe('{"n": null}')
  })

  it('set no prototypes', () => {
    for (const name of ['__proto__', 'constructor', 'prototype'])
      expect(() => setAt({}, ['a', name, 'polluted'], 1)).toThrow(TypeError)
    expect(({} as any).polluted).toBeUndefined()
  })

  it.each([
    [5, '==', '5', true],
    [null, 'equals', undefined, true],
    ['b', '>', 'a', true],
    ['10', '>', '9', true],
    [null, '<', 5, false],
    ['', '>=', 0, false],
    [[1, 2], 'contains', '2', true],
    ['workflow', 'starts_with', 'work', true],
    [{}, 'is_empty', null, true],
    [0, 'is_empty', null, false],
    ['b', 'in', 'a, b', true],
    ['c', 'not_in', ['a'], true],
    [1, 'constructor', 1, false],
    [1, 'no such operator', 1, false],
  ])('%j %s %j is %s', (left, operator, right, expected) => {
    expect(meets([{ operator }], 'AND', () => ({ left, right }))).toBe(expected)
  })
})

const around = {
  catalog: { collections: new Map([['c', {}]]) } as never,
  scriptsRefusal: 'no scripts',
  extensionNodes: new Map(),
  refusalOf: () => undefined,
}

describe('validation', () => {
  const said = (flow: object, trigger?: object) =>
    validate(flow, around, trigger as never).errors.map(({ nodeId, message }) => `${nodeId ?? '-'}: ${message}`)

  it('tells all that is wrong at once, each with its node', () => {
    const flow = flowOf(
      [
        node('h', 'http', { method: 'BREW' }),
        node('s', 'script', { script: 'return 1' }),
        effect('alone'),
        node('x', 'wat'),
        effect('loop1'),
        effect('loop2'),
      ],
      [
        ['start', 'h'],
        ['start', 's'],
        ['loop1', 'loop2'],
        ['loop2', 'loop1'],
        ['h', 'x'],
      ],
    )
    expect(said(flow)).toEqual([
      'x: There is no node type wat',
      'start: The trigger must have exactly one outgoing edge',
      'alone: The node has no incoming edge',
      'loop1: The node cannot be reached from the trigger',
      'loop2: The node cannot be reached from the trigger',
      'loop1: The node is part of a circle, or after one',
      'loop2: The node is part of a circle, or after one',
      'h: url is missing',
      'h: method must be one of GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS',
      's: no scripts',
    ])
    expect(said({ nodes: [], edges: [] })).toEqual(['-: A workflow needs exactly one trigger node'])
    expect(said({ nodes: [node('a', 'trigger'), node('a', 'delay')], edges: [{ source: 'a', target: 'b' }] })).toEqual(
      expect.arrayContaining(['a: There are several nodes with the id a']),
    )
    expect(said(7 as never)).toEqual(expect.arrayContaining(['-: flow_data must be an object with nodes and edges']))
  })

  it('doubts a member that a node does not know', () => {
    const read = { operation: 'read', collection: 'c', filtre: { state: 'new' }, label: 'Read' }
    const { valid, warnings } = validate(chain(node('in', 'service', read)), around)
    expect([valid, warnings.filter(({ code }) => code === 'unknown_member')]).toEqual([
      ...[
        true,
        [
          {
            code: 'unknown_member',
            message: 'The member filtre means nothing here; did you mean filter?',
            nodeId: 'in',
          },
        ],
      ],
    ])
  })

  it('asks whether a list can run, without what only templates will say', () => {
    const lists: unknown[] = []
    const refusalOf = (list: unknown) => {
      lists.push(list)
      return 'no'
    }
    const asked = (type: string, data: object) => {
      const { warnings } = validate(chain(node('n', type, data)), { ...around, refusalOf })
      const told = warnings.filter(({ code }) => code === 'query').map(({ message, nodeId }) => [nodeId, message])
      expect(told).toEqual(lists.length === 0 ? [] : [['n', 'no']])
      return lists.splice(0)
    }
    const read = { operation: 'read', collection: 'c' }
    const filter = {
      OR: [{ a: { eq: '{{trigger.a}}' } }, { b: { gt: 1, lt: '{{trigger.b}}' } }],
      c: { in: ['x', '{{trigger.c}}'] },
      d: { null: true },
      e: { eq: null },
    }
    expect(asked('service', { ...read, filter, sort: '-b', limit: '{{trigger.n}}', page: '', itemId: ' ' })).toEqual([
      {
        collection: 'c',
        query: { filter: { OR: [{ a: {} }, { b: { gt: 1 } }], c: {}, d: { null: true }, e: { eq: null } }, sort: '-b' },
      },
    ])
    expect(asked('service', { ...read, itemId: '{{trigger.id}}', fields: ['a'], filter })).toEqual([
      { collection: 'c', query: { fields: ['a'] } },
    ])
    const sum = { collection: 'c', operation: 'average', field: 'b', groupBy: ['a'], filter: '{{trigger.f}}' }
    expect(asked('stats', sum)).toEqual([
      { collection: 'c', query: { aggregate: { result: { function: 'avg', field: 'b' } }, groupBy: ['a'] } },
    ])
    expect(asked('stats', { ...sum, field: '{{trigger.field}}' })).toEqual([{ collection: 'c', query: {} }])
    expect(asked('file', { operation: 'list', filter: { size: { gt: 1 } } })).toEqual([
      { collection: 'svc_File', query: { filter: { size: { gt: 1 } } } },
    ])
    // With whose rights they run, or on what, is not known.
    for (const other of [{ executeAsAnonymous: true }, { bypassPermissions: true }, { collection: '{{trigger.c}}' }])
      expect(asked('service', { ...read, ...other })).toEqual([])
    expect(asked('service', { operation: 'create', collection: 'c', data: {} })).toEqual([])
  })

  it('doubts an operator that it does not know, and needs one', () => {
    const on = (...conditions: object[]) => {
      const filtering = node('f', 'filter', { arraySource: 'trigger.a', conditions })
      const { errors, warnings } = validate(chain(filtering), around)
      return [errors, warnings].map((all) => all.map(({ message }) => message))
    }
    expect(on({ field: 'a', operator: 'like', value: 1 })).toEqual([
      [],
      ['condition 0 has an unknown operator: it never holds'],
    ])
    expect(on({ field: 'a', operator: '==' }, { field: 'b' })).toEqual([['condition 1 has no operator'], []])
  })

  it('lets a before-hook do nothing that could not be taken back', () => {
    const hook = {
      trigger_type: 'hook',
      trigger_hook_collection: 'c',
      trigger_hook_action: 'items.create',
      options: {},
    }
    const flow = flowOf(
      [node('h', 'http', { url: 'https://x.example' }), node('d', 'delay', { delay: 5 })],
      [
        ['start', 'h'],
        ['h', 'd'],
      ],
    )
    expect(said(flow, hook)).toEqual([
      'h: http: nothing outside can be called before the change is made: use the .after action',
      'd: delay: the change cannot wait: use the .after action',
    ])
    expect(said(flow, { ...hook, trigger_hook_action: 'items.create.after' })).toEqual([])
    expect(
      said(flow, { ...hook, trigger_hook_collection: 'svc_User', trigger_hook_action: 'items.create.after' }),
    ).toEqual(['-: Hooks of system collections cannot trigger workflows'])
    expect(said(flow, { trigger_type: 'schedule', trigger_cron: 'often', options: { timezone: 'Moon/Sea' } })).toEqual([
      expect.stringMatching(/^-: trigger_cron: /),
      '-: options.timezone is no time zone',
    ])
    const options = { webhooksecret: 'stripe', time_zone: 'Europe/Zurich', colour: 'red' }
    expect(said(flow, { trigger_type: 'manual', options })).toEqual([
      '-: options.webhooksecret means nothing: write options.webhookSecret',
      '-: options.time_zone means nothing: write options.timezone',
    ])
  })
})

describe('a filter of a query', () => {
  const scope = {
    trigger: {
      body: { token: 'x', n: 5, list: ['a', 1], none: null, ops: { ne: 'x' }, now: '$NOW', column: '$COL(id)' },
    },
    variables: { filter: { state: { ne: 'y' } }, days: 7 },
  }
  const filled = (filter: unknown) => resolveFilter(filter, scope)

  it('has values where its templates are', () => {
    expect(
      filled({
        ...{ external: '{{trigger.body.token}}', AND: [{ n: { gt: '{{trigger.body.n}}' } }] },
        ...{ state: { in: '{{trigger.body.list}}' }, at: { gt: '$NOW-DAYS_{{variables.days}}' } },
        ...{
          gone: { eq: '{{trigger.body.none}}' },
          title: { contains: 'no {{trigger.body.token}}' },
          own: { isNull: true },
        },
      }),
    ).toEqual({
      ...{ external: 'x', AND: [{ n: { gt: 5 } }], state: { in: ['a', 1] }, at: { gt: '$NOW-DAYS_7' } },
      ...{ gone: { eq: null }, title: { contains: 'no x' }, own: { isNull: true } },
    })
    expect(filled('{{variables.filter}}')).toEqual({ state: { ne: 'y' } })
    expect(filled('{"external":"{{trigger.body.token}}"}')).toEqual({ external: 'x' })
    expect(filled('{"external":"x"}')).toBe('{"external":"x"}')
  })

  it.each([
    [
      { external: '{{trigger.body.ops}}' },
      'filter.external: {{trigger.body.ops}} is neither a value nor a list of values',
    ],
    [{ AND: ['{{trigger.body.ops}}'] }, 'filter.AND.0: {{trigger.body.ops}} is neither a value nor a list of values'],
    [
      { external: '{{trigger.body.none}}' },
      'filter.external: {{trigger.body.none}} is null, which only eq compares with',
    ],
    [{ n: { ne: '{{trigger.body.none}}' } }, 'filter.n.ne: {{trigger.body.none}} is null, which only eq compares with'],
    [{ n: { ne: '{{trigger.body.gone}}' } }, 'filter.n.ne: {{trigger.body.gone}} names nothing'],
    [
      { id: '{{trigger.body.column}}' },
      'filter.id: {{trigger.body.column}} is a variable of the query, which no data may name',
    ],
    [
      { at: { lt: '{{trigger.body.now}}' } },
      'filter.at.lt: {{trigger.body.now}} is a variable of the query, which no data may name',
    ],
    ['{"n":{{trigger.body.ops}}}', 'filter is no JSON: its templates must stand in texts'],
  ])('refuses what is no value: %j', (filter, message) => {
    expect(() => filled(filter)).toThrow(new TypeError(message))
  })
})
