import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { type Api, startApi } from '../support/api.ts'
import { chain, type Edge, flowOf, node } from '../support/flows.ts'
import { startReceiver } from '../support/receiver.ts'

/** What existing clients count on: what each node takes and gives, where its handles lead, and what templates become. */

let api: Api
let service: Awaited<ReturnType<typeof openWorkflows>>
let receiver: Awaited<ReturnType<typeof startReceiver>>
let userId: string

beforeAll(async () => {
  api = await startApi({ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' })
  const fields = {
    id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
    state: { type: 'String', allowNull: true },
    total: { type: 'Integer', allowNull: true },
  }
  expect((await api.admin('POST', '/schemas', { collectionName: 'order', schema: { fields } })).status).toBe(201)
  for (const total of [10, 20])
    expect((await api.admin('POST', '/items/order', { state: 'stored', total })).status).toBe(201)
  receiver = await startReceiver()
  receiver.answer = (request, response) =>
    response
      .writeHead(request.headers['x-status'] ? Number(request.headers['x-status']) : 200, {
        'content-type': 'application/json',
      })
      .end('{"answer": 42}')
  ;[{ id: userId }] = await api.sql('select id from "svc_User" limit 1')
  service = await openWorkflows(api.runtime)
})

afterAll(async () => {
  await service?.stop(5000)
  await receiver?.close()
})

let made = 0
const saved = async (flow_data: object): Promise<string> => {
  made += 1
  const row = { id: `c${made}`, name: `c${made}`, status: 'active', flow_data }
  const { status, text } = await api.admin('POST', '/items/svc_Workflow', row)
  expect(status, text).toBe(201)
  return row.id
}
const run = async (flow_data: object, triggerData: object = {}) => {
  const { status, body, text } = await api.admin('POST', `/workflows/${await saved(flow_data)}/test`, { triggerData })
  expect(status, text).toBe(200)
  return (await api.sql('select * from "svc_WorkflowExecution" where id = $1', [body.execution.id]))[0]
}
/** What one node gives. */
const given = async (type: string, data: object, trigger: object = {}) => {
  const { status, errorMessage, result_data } = await run(chain(node('n', type, data)), trigger)
  expect([type, status, errorMessage]).toEqual([type, 'completed', null])
  return result_data.n
}
const mark = (id: string, value: unknown = id) => node(id, 'variable', { variables: { [id]: value } })

describe('a node gives', () => {
  it.each([
    [
      'transform',
      { transformType: 'mapping', mapping: { 'a.b': 'trigger.x', c: '{{trigger.y}}' } },
      { a: { b: 7 }, c: [1] },
    ],
    ['transform', { transformType: 'script', script: 'return { twice: trigger.x * 2 }' }, { twice: 14 }],
    ['script', { script: 'return context.trigger.x + variables.v' }, expect.objectContaining({ success: true })],
    ['variable', { variables: { a: '{{trigger.x}}' } }, { success: true, variables: { a: 7 } }],
    ['delay', { delay: 5 }, { delayed: 5 }],
    [
      'filter',
      {
        arraySource: 'trigger.rows',
        operator: 'OR',
        conditions: [
          { field: 'n', operator: 'equals', value: 1 },
          { field: '{{current.n}}', operator: '>', value: '{{trigger.x}}' },
        ],
      },
      { items: [{ n: 1 }, { n: 8 }], count: 2 },
    ],
    ...(
      [
        ['count', 3],
        ['sum', 12],
        ['average', 4],
        ['min', 1],
        ['max', 8],
        ['first', 1],
        ['last', 3],
      ] as const
    ).map(
      ([operation, result]) =>
        ['aggregate', { arraySource: '{{trigger.rows}}', operation, field: 'n' }, { result }] as const,
    ),
    [
      'stats',
      { collection: 'order', operation: 'sum', field: 'total', filter: { state: 'stored' } },
      { success: true, collection: 'order', operation: 'sum', stats: { result: 30 } },
    ],
    [
      'stats',
      { collection: 'order', operation: 'count', groupBy: 'state', filter: { state: 'stored' } },
      { success: true, collection: 'order', operation: 'count', stats: [{ state: 'stored', result: 2 }] },
    ],
    ['file', { operation: 'list' }, { success: true, operation: 'list', files: [], totalCount: 0 }],
    [
      'service',
      { operation: 'read', collection: 'order', filter: { total: { gt: 10 } }, sort: '-total', limit: 1 },
      { data: [expect.objectContaining({ total: 20 })], totalCount: 1 },
    ],
    [
      'service',
      { operation: 'read', collection: 'order', itemId: 1 },
      { data: expect.objectContaining({ id: 1, total: 10 }) },
    ],
  ] as const)('%s %j', async (type, data, expected) => {
    expect(await given(type, data, { x: 7, y: [1], rows: [{ n: 1 }, { n: 8 }, { n: 3 }] })).toEqual(expected)
  })

  it('the results of rows, notifications and mails', async () => {
    const { id } = await given('service', { operation: 'create', collection: 'order', data: { state: 'new' } })
    expect(await api.sql('select state from "order" where id = $1', [id])).toEqual([{ state: 'new' }])
    const changed = { operation: 'update', collection: 'order', itemId: id, data: { state: 'changed' } }
    expect(await given('service', changed)).toEqual({ id })
    expect(await given('service', { operation: 'delete', collection: 'order', itemId: id })).toEqual({ id })
    expect(await api.sql('select 1 from "order" where id = $1', [id])).toEqual([])
    const told = await given('notification', { userId, title: 'T', message: 'M', data: { a: 1 } })
    expect(await api.sql('select type, title, message, data from "svc_Notification" where id = $1', [told.id])).toEqual(
      [{ type: 'info', title: 'T', message: 'M', data: { a: 1 } }],
    )
    const mail = { to: 'a@example.com, b@example.com', subject: 'S', body: '<p>B</p>' }
    expect(await given('email', mail)).toMatchObject({ success: true, sent: 2, failed: 0, results: [{}, {}] })
  })

  it('the answer of an address, whatever its status; bodies go with POST, PUT and PATCH', async () => {
    const call = (method: string, more: object = {}) =>
      given(
        'http',
        { url: '{{trigger.url}}', method, body: { a: '{{trigger.a}}' }, ...more },
        { url: receiver.url, a: 1 },
      )
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
      expect(await call(method)).toMatchObject({
        ...{ status: 200, statusText: 'OK', data: { answer: 42 } },
        headers: { 'content-type': 'application/json' },
      })
      expect([method, receiver.received.at(-1)!.body]).toEqual([
        method,
        ['POST', 'PUT', 'PATCH'].includes(method) ? { a: 1 } : null,
      ])
    }
    expect(await call('GET', { headers: { 'x-status': '404' } })).toMatchObject({
      ...{ status: 404, statusText: 'Not Found', data: { answer: 42 } },
    })
  })

  it('the result of another workflow', async () => {
    const called = await saved(chain(mark('seen', '{{trigger.word}}')))
    const expected = { success: true, executionId: expect.any(String), status: 'completed' }
    expect(await given('workflow', { workflowId: called }, { word: 'w' })).toMatchObject({
      ...{ ...expected, result: { seen: { variables: { seen: 'w' } } } },
    })
    const mapped = { workflowId: called, passData: false, dataMapping: { word: 'trigger.other' } }
    expect(await given('workflow', mapped, { word: 'w', other: 'o' })).toMatchObject({
      ...{ ...expected, result: { seen: { variables: { seen: 'o' } } } },
    })
  })
})

describe('handles', () => {
  const branch = (conditions: object[], more: object = {}): [object[], Edge[]] => [
    [node('if', 'condition', { conditions, ...more }), mark('yes'), mark('no'), mark('then')],
    [
      ['start', 'if'],
      ['if', 'yes', 'true'],
      ['if', 'no', 'false'],
      ['yes', 'if', undefined, 'condition-end'],
      ['no', 'if', undefined, 'condition-end'],
      ['if', 'then', 'done'],
    ],
  ]
  const ran = ({ result_data }: any) => Object.keys(result_data).filter((id) => !['start', 'if'].includes(id))

  it('of a condition are its branches, and what follows them', async () => {
    const a = { field: 'trigger.a', operator: '==', value: 1 }
    const b = { field: '{{trigger.b}}', operator: 'equals', value: '{{trigger.b}}' }
    const cases = [
      [[a, b], { operator: 'AND' }, { a: 1, b: 2 }, 'yes'],
      [[a, b], { operator: 'AND' }, { a: 2, b: 2 }, 'no'],
      [[a, b], { operator: 'OR' }, { a: 2, b: 2 }, 'yes'],
      [[a], {}, { a: 2 }, 'no'],
      // An unknown operator never holds.
      [[{ ...a, operator: 'resembles' }], {}, { a: 1 }, 'no'],
    ] as const
    for (const [conditions, more, data, way] of cases)
      expect(ran(await run(flowOf(...branch([...conditions], more)), data)).sort()).toEqual([way, 'then'].sort())
    // Clients may say it on the edge.
    const [nodes] = branch([a])
    const edges = ['true', 'false'].map((condition, i) => ({
      ...{ id: `b${i}`, source: 'if', target: ['yes', 'no'][i], data: { condition } },
    }))
    const flow = {
      nodes: [node('start', 'trigger'), ...nodes.slice(0, 3)],
      edges: [{ id: 'b', source: 'start', target: 'if' }, ...edges],
    }
    expect(ran(await run(flow, { a: 1 }))).toEqual(['yes'])
  })

  it.each([
    ['equals', 'a', true],
    ['not_equals', 'a', false],
    ['!=', 'b', true],
    ['greater_than', '0', true],
    ['less_than', 'b', true],
    ['<', 'a', false],
    ['greater_or_equal', 'a', true],
    ['>=', 'b', false],
    ['less_or_equal', 'a', true],
    ['<=', '0', false],
    ['contains', 'a', true],
    ['not_contains', 'a', false],
    ['starts_with', 'a', true],
    ['ends_with', 'b', false],
    ['is_empty', undefined, false],
    ['is_not_empty', undefined, true],
    ['in', ['a', 'b'], true],
    ['not_in', ['a', 'b'], false],
  ])('%s %j of "a" is %s', async (operator, value, expected) => {
    const flow_data = chain(node('if', 'condition', { conditions: [{ field: 'trigger.v', operator, value }] }))
    const { body } = await api.admin('POST', `/workflows/${await saved(flow_data)}/nodes/if/execute`, {
      inputData: { trigger: { v: 'a' } },
    })
    expect(body).toEqual({ message: 'Node executed successfully', result: { result: expected } })
  })

  it('of a loop are its body, with the item, and what follows all of it', async () => {
    const through = (data: object) =>
      run(
        flowOf(
          [node('each', 'loop', data), mark('at', '{{loop.index}} of {{loop.total}}: {{loop.item}}'), mark('then')],
          [
            ['start', 'each'],
            ['each', 'at', 'loop'],
            ['at', 'each', undefined, 'loop-end'],
            ['each', 'then', 'done'],
          ],
        ),
        { list: ['x', 'y'] },
      )
    const said = ({ result_data }: any) => [
      result_data.each.results.map(({ variables }: any) => variables.at),
      result_data.then?.success,
    ]
    expect(said(await through({ loopType: 'array', arraySource: '{{trigger.list}}' }))).toEqual([
      ['0 of 2: x', '1 of 2: y'],
      true,
    ])
    expect(said(await through({ arraySource: 'trigger.list' }))).toEqual([['0 of 2: x', '1 of 2: y'], true])
    expect(said(await through({ loopType: 'count', startIndex: 1, endIndex: 3 }))).toEqual([
      ['0 of 2: 1', '1 of 2: 2'],
      true,
    ])
  })

  it('of a try are what is tried, what catches it, and what follows', async () => {
    const tried = (itemId: number) =>
      run(
        flowOf(
          [
            node('try', 'try'),
            node('risk', 'service', { operation: 'read', collection: 'order', itemId }),
            mark('caught', '{{error.nodeId}}: {{error.message}}'),
            mark('then'),
          ],
          [
            ['start', 'try'],
            ['try', 'risk', 'try'],
            ['risk', 'try', undefined, 'try-end'],
            ['try', 'caught', 'catch'],
            ['caught', 'try', undefined, 'try-end'],
            ['try', 'then', 'done'],
          ],
        ),
      )
    const good = await tried(1)
    expect([good.status, good.result_data.caught, good.result_data.then.success]).toEqual([
      'completed',
      undefined,
      true,
    ])
    const bad = await tried(-1)
    expect([bad.status, bad.result_data.caught.variables.caught, bad.result_data.then.success]).toEqual([
      ...['completed', expect.stringMatching(/^risk: Item not found/), true],
    ])
    expect(bad.context_data.error).toEqual({
      ...{ message: expect.any(String), stack: expect.stringContaining('risk'), nodeId: 'risk' },
    })
  })
})

it('templates keep types and stay where they name nothing, however deep they are', async () => {
  const variables = {
    whole: '{{ trigger.deep.list }}',
    text: 'a {{trigger.n}} b {{ trigger.deep }}',
    quoted: "{{ outputs['first-1'].variables.x }}",
    variable: '{{variables.x}}',
    none: '{{ trigger.none.at.all }}',
    nested: [{ n: '{{trigger.n}}' }],
  }
  const { context_data } = await run(
    chain(node('first-1', 'variable', { variables: { x: '{{trigger.n}}' } }), node('v', 'variable', { variables })),
    { n: 5, deep: { list: [1, 2] } },
  )
  expect(context_data.variables).toEqual({
    ...{ x: 5, whole: [1, 2], text: 'a 5 b {"list":[1,2]}', quoted: 5, variable: 5 },
    ...{ none: '{{ trigger.none.at.all }}', nested: [{ n: 5 }] },
  })
})
