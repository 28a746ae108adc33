import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { seal } from '../../src/adapters/sealing.ts'
import { testMessage } from '../../src/features/work/workflows/starting.ts'
import { sealedForWorkflows } from '../../src/features/work/workflows/workflows.ts'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { chain, flowOf, node } from '../support/flows.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { startReceiver } from '../support/receiver.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let service: Awaited<ReturnType<typeof openWorkflows>>

beforeAll(async () => {
  api = await startApi({ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', WORKFLOW_MAIL_PER_HOUR: '3' })
  const fields = {
    id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
    state: { type: 'String', allowNull: true },
    total: { type: 'Integer', allowNull: true },
    secret: { type: 'String', allowNull: true, hidden: true },
    title: { type: 'String', allowNull: true },
    external: { type: 'String', allowNull: true },
  }
  for (const collectionName of ['order', 'note'])
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
  service = await openWorkflows(api.runtime)
})

afterAll(() => service?.stop(5000))

let made = 0
const make = async (flow_data: object, more: object = {}, call: Call = api.admin) => {
  made += 1
  const id = `w${made}`
  const { status, text } = await call('POST', '/workflows', { id, name: id, status: 'active', flow_data, ...more })
  expect(status, text).toBe(201)
  return id
}
const execute = async (id: string, data: unknown = {}, call: Call = api.admin): Promise<string> => {
  const { status, body, text } = await call('POST', `/workflows/${id}/execute`, data)
  expect(status, text).toBe(200)
  expect(body).toEqual({
    message: 'Workflow execution started',
    execution: { id: expect.any(String), status: 'queued', workflow_Id: id },
  })
  return body.execution.id
}
const executionOf = async (id: string) =>
  (await api.sql('select * from "svc_WorkflowExecution" where id = $1', [id]))[0]
const over = (id: string) =>
  waitFor(
    async () => {
      const found = await executionOf(id)
      return ['completed', 'failed', 'cancelled'].includes(found.status) ? found : undefined
    },
    { what: `the end of ${id}` },
  )
const of = (id: string) =>
  api.sql('select * from "svc_WorkflowExecution" where "workflow_Id" = $1 order by "createdAt"', [id])
const rows = (table: string, where = 'true') => api.sql(`select * from "${table}" where ${where} order by id`)
/** As after a change of SECRET_KEY. */
const loseSecret = (name: string) => {
  const config = testConfig(api.database.url, { SECRET_KEY: 'another key, which nobody has kept at all' })
  return api.sql('update "svc_Secret" set value = $2 where name = $1', [name, seal(config, sealedForWorkflows, 'lost')])
}
const creating = (data: object, more: object = {}) =>
  node('make', 'service', { operation: 'create', collection: 'order', data, ...more })

describe('an execution', () => {
  it('runs through its nodes, writes what they do once, and says what each gave', async () => {
    const id = await make(
      flowOf(
        [
          node('if', 'condition', { conditions: [{ field: 'trigger.total', operator: '>', value: 10 }] }),
          creating({ state: 'big {{trigger.name}}', total: '{{trigger.total}}' }),
          node('count', 'stats', { collection: 'order', operation: 'sum', field: 'total' }),
        ],
        [
          ['start', 'if'],
          ['if', 'make', 'true'],
          ['make', 'if', undefined, 'condition-end'],
          ['if', 'count', 'done'],
        ],
      ),
      { variables: { a: 1 } },
    )
    const before = await api.position()
    const execution = await over(await execute(id, { total: 11, name: 'X' }))
    expect(execution).toMatchObject({
      status: 'completed',
      version: 1,
      trigger: 'manual',
      errorMessage: null,
      claim_token: null,
    })
    const [order] = await rows('order')
    expect(order).toMatchObject({ state: 'big X', total: 11 })
    expect(execution.result_data).toMatchObject({
      if: { result: true },
      make: { id: order.id },
      count: { success: true, stats: { result: 11 } },
    })
    const events = await api.log(before)
    expect(events.map(({ entity, action, changes }) => [entity, action, changes.after.status])).toEqual([
      ['svc_WorkflowExecution', 'create', 'queued'],
      ['svc_WorkflowExecution', 'update', 'running'],
      ['order', 'create', undefined],
      ['svc_WorkflowExecution', 'update', 'completed'],
    ])
    // The data that passes through it is not in the log, and the change has the workflow as its cause.
    for (const { entity, changes } of events)
      if (entity === 'svc_WorkflowExecution')
        expect(changes.after).toMatchObject({ trigger_data: null, result_data: null })
    const [{ cause, userId }] = await api.sql(`select cause, "userId" from "svc_AuditLog" where entity = 'order'`)
    expect(cause).toEqual({ request: expect.any(String), depth: 1, by: 'workflow', chain: [id] })
    expect(userId).toBe(execution.triggered_by_Id)

    const { body } = await api.admin('GET', `/workflows/${id}/executions/${execution.id}`)
    expect(body.data.logs.map(({ nodeId, status }: any) => [nodeId, status])).toEqual([
      ['start', 'success'],
      ['if', 'success'],
      ['make', 'success'],
      ['count', 'success'],
    ])
    expect(body.data.logs[2]).toMatchObject({
      inputData: { data: { state: 'big X', total: 11 } },
      outputData: { id: order.id },
    })
    for (const hidden of ['claim_token', 'caller_Id', 'cause']) expect(body.data).not.toHaveProperty(hidden)
    expect((await api.admin('GET', `/workflows/${id}/executions`)).body).toMatchObject({
      data: [{ id: execution.id }],
      totalCount: 1,
    })
    expect((await api.admin('GET', `/workflows/${id}/executions/${execution.id}/logs`)).body.totalCount).toBe(4)
    expect((await api.admin('GET', `/workflows/${id}/stats`)).body).toEqual({
      ...{ total: 1, byStatus: { queued: 0, running: 0, completed: 1, failed: 0, cancelled: 0 } },
      ...{ avgDuration: expect.any(Number), totalDuration: expect.any(Number), lastExecution: expect.any(String) },
    })
  })

  it('that reads one row reads no list where its id comes to nothing', async () => {
    const reading = (data: object) => node('in', 'service', { operation: 'read', collection: 'order', ...data })
    const one = await make(chain(reading({ itemId: '{{trigger.order}}' })))
    for (const order of ['', '  ', null])
      expect(await over(await execute(one, { order }))).toMatchObject({
        ...{ status: 'failed', errorMessage: 'in: itemId is empty: it names no row', result_data: {} },
      })
    const all = await make(chain(reading({ itemId: '', limit: 1 })))
    expect((await over(await execute(all))).result_data.in).toMatchObject({ data: expect.any(Array) })
  })

  it('loops, waits, calls others and the world outside, with one key for each place', async () => {
    const receiver = await startReceiver()
    const child = await make(
      chain(node('note', 'service', { operation: 'create', collection: 'note', data: { state: '{{trigger.word}}' } })),
    )
    const id = await make(
      flowOf(
        [
          node('each', 'loop', { arraySource: 'trigger.words' }),
          node('call', 'workflow', { workflowId: child, dataMapping: { word: 'loop.item' } }),
          node('wait', 'delay', { delay: 20 }),
          node('tell', 'http', { url: receiver.url, method: 'POST', body: { word: '{{loop.item}}' } }),
        ],
        [
          ['start', 'each'],
          ['each', 'call', 'loop'],
          ['call', 'wait'],
          ['wait', 'tell'],
          ['tell', 'each', undefined, 'loop-end'],
        ],
      ),
    )
    const execution = await over(await execute(id, { words: ['a', 'b'] }))
    expect(execution.errorMessage).toBeNull()
    expect(execution.result_data.each.results.map(({ status }: any) => status)).toEqual([204, 204])
    expect((await rows('note')).map(({ state }) => state)).toEqual(['a', 'b'])
    expect(receiver.accepted.map(({ body }) => body)).toEqual([{ word: 'a' }, { word: 'b' }])
    expect(new Set(receiver.accepted.map(({ headers }) => headers['idempotency-key'])).size).toBe(2)
    expect(await of(child)).toMatchObject(
      Array(2).fill({ status: 'completed', trigger: 'workflow', parent_Id: execution.id }),
    )
    await receiver.close()
  })

  it('undoes what a failing node has begun, catches the failure where a node does, and notifies the named users', async () => {
    const failing = creating({ id: 1, state: 'x'.repeat(300) })
    const caught = await make(
      flowOf(
        [
          node('try', 'try'),
          failing,
          node('sorry', 'service', { operation: 'create', collection: 'note', data: { state: '{{error.nodeId}}' } }),
        ],
        [
          ['start', 'try'],
          ['try', 'make', 'try'],
          ['try', 'sorry', 'catch'],
        ],
      ),
    )
    expect(await over(await execute(caught))).toMatchObject({ status: 'completed' })
    expect((await rows('note')).at(-1)).toMatchObject({ state: 'make' })
    const [{ id: adminId }] = await api.sql(`select id from "svc_User" limit 1`)
    const alone = await make(
      chain(creating({ id: 1 }), node('after', 'service', { operation: 'delete', collection: 'order', itemId: 4711 })),
      {
        options: { notify: [adminId] },
      },
    )
    const failed = await over(await execute(alone))
    expect(failed).toMatchObject({ status: 'failed', errorMessage: expect.stringMatching(/^make: .*already exists/) })
    expect(await api.sql(`select "userId", data from "svc_Notification"`)).toEqual([
      { userId: adminId, data: { workflowId: alone, executionId: failed.id } },
    ])
    // Again from where it failed, as another execution that names the first.
    await api.sql('delete from "order" where id = 1')
    const { status, body } = await api.admin('POST', `/workflows/${alone}/executions/${failed.id}/retry`)
    expect(status).toBe(200)
    expect(await over(body.execution.id)).toMatchObject({
      ...{ status: 'failed', retry_of_Id: failed.id, errorMessage: expect.stringMatching(/^after: /) },
    })
    expect(await rows('order', 'id = 1')).toHaveLength(1)
    const again = await api.admin('POST', `/workflows/${alone}/executions/${body.execution.id}/retry`)
    await over(again.body.execution.id)
    expect(await rows('order', 'id = 1')).toHaveLength(1)
  })

  it('is tried again from wherever it stopped, and does nothing twice', async () => {
    const keeping = (id: string, state = id) =>
      node(id, 'service', { operation: 'create', collection: 'note', data: { state, title: '{{trigger.place}}' } })
    const missing = (id: string) =>
      node(id, 'service', { operation: 'read', collection: 'note', itemId: '{{trigger.missing}}' })
    const id = await make(
      flowOf(
        [
          ...[node('outer', 'try'), missing('absent'), keeping('A')],
          ...[node('inner', 'try'), missing('absent-too'), keeping('B'), keeping('C')],
          node('loop', 'loop', { loopType: 'count', startIndex: 0, endIndex: 2 }),
          ...[node('each', 'try'), keeping('D', 'D{{loop.index}}'), missing('absent-each')],
          ...[keeping('E', 'E{{loop.index}}'), keeping('F'), keeping('left'), keeping('right'), keeping('joined')],
        ],
        [
          ...[['start', 'outer'] as const, ['outer', 'absent', 'try'] as const, ['outer', 'A', 'catch'] as const],
          ...[['A', 'inner'] as const, ['inner', 'absent-too', 'try'] as const, ['inner', 'B', 'catch'] as const],
          ...[['outer', 'C', 'done'] as const, ['C', 'loop'] as const, ['loop', 'each', 'loop'] as const],
          ...[['each', 'D', 'try'] as const, ['D', 'absent-each'] as const, ['each', 'E', 'catch'] as const],
          ...[['loop', 'F', 'done'] as const, ['F', 'left'] as const, ['F', 'right'] as const],
          ...[['left', 'joined'] as const, ['right', 'joined'] as const],
        ],
      ),
    )
    const effects = async (title: string) =>
      (await api.sql('select state from "note" where title = $1 order by state', [title])).map(({ state }) => state)
    const run = async (title: string) => over(await execute(id, { place: title, missing: 4711 }))
    const logOf = (execution: string) =>
      api.sql(
        `select seq, step, "nodeId", "nodeType", status from "svc_WorkflowExecutionLog" where "execution_Id" = $1 order by seq`,
        [execution],
      )
    const whole = await logOf((await run('whole')).id)
    const all = ['A', 'B', 'C', 'D0', 'D1', 'E0', 'E1', 'F', 'joined', 'left', 'right']
    expect(await effects('whole')).toEqual(all)
    // It stops after each node that is kept by a transaction, one execution for each.
    const places = [0, ...whole.filter(({ nodeType }) => nodeType === 'service').map(({ seq }) => seq as number)]
    const tried = await Promise.all(
      places.map(async (place) => {
        const [status, errorMessage] =
          place % 2 === 0 ? ['cancelled', null] : ['failed', 'The process that ran it died 5 times']
        const title = `${status} after ${place}`
        const { id: execution } = await run(title)
        await api.sql(`delete from "svc_WorkflowExecutionLog" where "execution_Id" = $1 and seq > $2`, [
          execution,
          place,
        ])
        await api.sql(`update "svc_WorkflowExecution" set status = $2, "errorMessage" = $3 where id = $1`, [
          execution,
          status,
          errorMessage,
        ])
        const { body } = await api.admin('POST', `/workflows/${id}/executions/${execution}/retry`)
        const retry = await over(body.execution.id)
        return { title, place, retry, log: await logOf(retry.id) }
      }),
    )
    for (const { title, place, retry, log } of tried) {
      const again = whole
        .filter(({ seq, nodeType, status: of }) => seq > place && nodeType === 'service' && of === 'success')
        .map(({ step }) => step.replace('@', ''))
      expect([title, retry.status, await effects(title)]).toEqual([title, 'completed', [...all, ...again].sort()])
      expect(log).toEqual(whole)
    }
  })

  it('is tried again once: whoever asks a second time is told by which execution', async () => {
    const id = await make(
      chain(
        creating({ state: 'twice' }),
        node('stop', 'service', { operation: 'delete', collection: 'order', itemId: 4711 }),
      ),
    )
    const failed = await over(await execute(id))
    const retry = (execution: string) => api.admin('POST', `/workflows/${id}/executions/${execution}/retry`)
    const answers = await Promise.all([retry(failed.id), retry(failed.id), retry(failed.id)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409])
    const first = answers.find(({ status }) => status === 200)!.body.execution.id
    for (const { body } of answers.filter(({ status }) => status === 409))
      expect(body.error).toMatchObject({ code: 'RETRIED_ALREADY', details: { retry: first } })
    await over(first)
    // Also when that one has failed too: it is the one to go on with.
    expect((await retry(failed.id)).status).toBe(409)
    expect((await over((await retry(first)).body.execution.id)).retry_of_Id).toBe(first)
    expect(await of(id)).toHaveLength(3)
    expect(await rows('order', `state = 'twice'`)).toHaveLength(1)
  })

  it('is tried again by the current version of the workflow, where that comes to the same node', async () => {
    const flow = (state: string, itemId: unknown, ...before: readonly { readonly id: string }[]) =>
      chain(
        creating({ state }),
        node('name', 'transform', { mapping: { title: itemId === null ? 'trigger.none' : 'trigger.title' } }),
        ...before,
        node('last', 'service', {
          operation: itemId === null ? 'read' : 'create',
          collection: 'note',
          ...(itemId === null
            ? { itemId: 4711 }
            : { data: { title: '{{outputs.name.title}}', state: '{{outputs.make.id}}' } }),
        }),
      )
    const id = await make(flow('mended', null))
    const failed = await over(await execute(id, { title: 'Mended' }))
    expect(failed).toMatchObject({ status: 'failed', version: 1, errorMessage: expect.stringMatching(/^last: /) })
    const change = async (flow_data: object) =>
      expect((await api.admin('PATCH', `/workflows/${id}`, { flow_data })).status).toBe(200)
    const retry = (body?: unknown) => api.admin('POST', `/workflows/${id}/executions/${failed.id}/retry`, body)
    await change(flow('mended', 1, node('more', 'service', { operation: 'create', collection: 'note', data: {} })))
    const before = await api.position()
    const refused = await retry({ version: 'current' })
    expect([refused.status, refused.body.error]).toEqual([
      409,
      expect.objectContaining({
        ...{ code: 'WORKFLOW_DIFFERS', details: { nodes: ['more', 'last'] } },
        message: 'The current version would run more before last, which ran without it',
      }),
    ])
    for (const body of [{ version: 'latest' }, { version: 2 }, { Version: 'current' }])
      expect((await retry(body)).status).toBe(400)
    expect([await api.log(before), await of(id)]).toEqual([[], [expect.objectContaining({ id: failed.id })]])

    await change(flow('never again', 1))
    const { status, body } = await retry({ version: 'current' })
    expect(status).toBe(200)
    const [order] = await rows('order', `state = 'mended'`)
    expect(await over(body.execution.id)).toMatchObject({
      ...{ status: 'completed', version: 3, retry_of_Id: failed.id, trigger_data: { title: 'Mended' } },
      result_data: { make: { id: order.id }, name: { title: 'Mended' } },
    })
    expect(await rows('note', `title = 'Mended'`)).toMatchObject([{ state: String(order.id) }])
    expect([await rows('order', `state = 'mended'`), await rows('order', `state = 'never again'`)]).toEqual([
      [order],
      [],
    ])
    const log = await api.sql(
      `select step, status, "outputData" from "svc_WorkflowExecutionLog" where "execution_Id" = $1 order by seq`,
      [body.execution.id],
    )
    expect(log.map(({ step, status: of }) => `${step} ${of}`)).toEqual([
      ...['start success', 'make success', 'name success', 'last success'],
    ])
    // What only computes was computed anew, and so the log has it.
    expect(log[2].outputData).toEqual({ title: 'Mended' })
    // Once, whichever version was asked for.
    expect((await retry({ version: 'failed' })).body.error).toMatchObject({ code: 'RETRIED_ALREADY' })
  })

  it('is tried again by the version that failed unless the current one is asked for', async () => {
    const reading = (itemId: number) => node('read', 'service', { operation: 'read', collection: 'note', itemId })
    const id = await make(chain(reading(4711)))
    const failed = await over(await execute(id))
    expect((await api.admin('PATCH', `/workflows/${id}`, { flow_data: chain(node('other', 'variable')) })).status).toBe(
      200,
    )
    const { body } = await api.admin('POST', `/workflows/${id}/executions/${failed.id}/retry`)
    expect(await over(body.execution.id)).toMatchObject({ status: 'failed', version: 1 })
    const again = await api.admin('POST', `/workflows/${id}/executions/${body.execution.id}/retry`, {
      version: 'failed',
    })
    expect(await over(again.body.execution.id)).toMatchObject({ status: 'failed', version: 1 })
  })

  it('is cancelled before its next node, and waits for hours without anybody', async () => {
    const id = await make(chain(node('wait', 'delay', { delay: 3_600_000 }), creating({ state: 'never' })))
    const execution = await execute(id)
    await waitFor(async () => {
      const { status, claim_token, due_at } = await executionOf(execution)
      return status === 'running' && claim_token === null && due_at > Date.now() + 3_000_000
    })
    const { status, body } = await api.admin('POST', `/workflows/${id}/executions/${execution}/cancel`)
    expect([status, body]).toEqual([
      200,
      { message: 'Workflow execution cancelled', execution: { id: execution, status: 'cancelled', workflow_Id: id } },
    ])
    await api.sql('update "svc_WorkflowExecution" set due_at = now() where id = $1', [execution])
    expect((await api.admin('POST', `/workflows/${id}/executions/${execution}/cancel`)).status).toBe(400)
    expect(await rows('order', `state = 'never'`)).toEqual([])
  })

  it('goes on when the execution that it waits for is cancelled', async () => {
    const child = await make(chain(node('wait', 'delay', { delay: 3_600_000 })))
    const calling = (workflowId: string) =>
      chain(node('call', 'workflow', { workflowId, timeout: 3_600_000 }), creating({ state: 'never' }))
    const middle = await make(calling(child))
    const parent = await make(calling(middle))
    const begun = async () => {
      const execution = await execute(parent)
      const inner = await waitFor(async () =>
        (await of(child)).find(({ status, due_at }) => status === 'running' && due_at > Date.now() + 60_000),
      )
      return { execution, inner: inner.id, between: inner.parent_Id }
    }
    const cancel = (id: string, execution: string) =>
      api.admin('POST', `/workflows/${id}/executions/${execution}/cancel`)
    const first = await begun()
    expect((await cancel(child, first.inner)).status).toBe(200)
    expect(await over(first.between)).toMatchObject({
      status: 'failed',
      errorMessage: 'call: The workflow was cancelled',
    })
    expect(await over(first.execution)).toMatchObject({
      ...{ status: 'failed', errorMessage: 'call: The workflow failed at call: The workflow was cancelled' },
    })
    const second = await begun()
    expect((await cancel(middle, second.between)).status).toBe(200)
    expect(await over(second.execution)).toMatchObject({ errorMessage: 'call: The workflow was cancelled' })
    for (const id of [second.between, second.inner]) expect((await executionOf(id)).status).toBe('cancelled')
    expect(await rows('order', `state = 'never'`)).toEqual([])
  })

  it('is cancelled when its workflow is deleted, stays readable, and does not come back with the workflow', async () => {
    const waiting = chain(node('wait', 'delay', { delay: 3_600_000 }), creating({ state: 'never' }))
    const child = await make(waiting)
    const parent = await make(chain(node('call', 'workflow', { workflowId: child, timeout: 3_600_000 })))
    const waits = (execution: string) =>
      waitFor(async () => {
        const { status, due_at } = await executionOf(execution)
        return status === 'running' && due_at > Date.now() + 60_000
      })
    const called = await execute(parent)
    const own = await execute(child)
    await Promise.all([waits(called), waits(own)])
    const inner = (await of(child)).find(({ parent_Id }) => parent_Id === called).id
    await waits(inner)
    const queued = await execute(child)
    await api.sql(`update "svc_WorkflowExecution" set due_at = now() + interval '1 hour' where id = $1`, [queued])
    const position = await api.position()
    const { status, headers } = await api.admin('DELETE', `/workflows/${child}`)
    expect(status).toBe(200)
    expect((await of(child)).map(({ status: is, due_at, completedAt }) => [is, due_at, completedAt === null])).toEqual(
      Array(3).fill(['cancelled', null, false]),
    )
    const events = (await api.log(position)).filter(({ changes }) => changes.after.status !== 'failed')
    expect(events.map(({ entity, entityId, action }) => [entity, action, entityId]).sort()).toEqual(
      [
        ['svc_Workflow', 'update', child],
        ...[own, inner, queued].map((one) => ['svc_WorkflowExecution', 'update', one]),
      ].sort(),
    )
    expect(await over(called)).toMatchObject({ status: 'failed', errorMessage: 'call: The workflow was cancelled' })

    const at = (path: string) => api.admin('GET', `/workflows/${child}${path}`)
    expect((await at('/executions')).body).toMatchObject({ totalCount: 3 })
    expect((await at(`/executions/${own}`)).body.data).toMatchObject({ id: own, status: 'cancelled' })
    expect((await at(`/executions/${own}/logs`)).body.totalCount).toBe(2)
    expect((await at('/stats')).body.byStatus).toMatchObject({ cancelled: 3, running: 0, queued: 0 })
    const act = (what: string) => api.admin('POST', `/workflows/${child}/executions/${own}/${what}`)
    expect((await act('cancel')).body.error.message).toBe('Workflow execution is cancelled already')
    expect((await act('retry')).status).toBe(404)
    expect((await api.admin('POST', `/workflows/${child}/execute`, {})).status).toBe(404)

    const undone = await api.admin('POST', '/log/undo', { requestId: headers['x-request-id'] })
    expect(undone.status, undone.text).toBe(200)
    expect((await api.admin('GET', `/workflows/${child}`)).body.data).toMatchObject({ id: child, status: 'active' })
    expect((await of(child)).map(({ status: is }) => is)).toEqual(Array(3).fill('cancelled'))
    expect(await rows('order', `state = 'never'`)).toEqual([])
  })

  it('of a workflow that SQL or an update has put into the trash ends as well', async () => {
    const bySql = await make(chain(creating({ state: 'never' })))
    const execution = await execute(bySql)
    await api.sql(`update "svc_WorkflowExecution" set due_at = now() + interval '1 hour' where id = $1`, [execution])
    await api.sql(`update "svc_Workflow" set "deletedAt" = now() where id = $1`, [bySql])
    expect((await executionOf(execution)).status).toBe('queued')
    await api.sql(`update "svc_WorkflowExecution" set due_at = now() where id = $1`, [execution])
    await api.sql(`select pg_notify('svc_executions', '')`)
    expect(await over(execution)).toMatchObject({ status: 'cancelled', result_data: {} })
    const byUpdate = await make(chain(node('wait', 'delay', { delay: 3_600_000 })))
    const waiting = await execute(byUpdate)
    const { status, text } = await api.admin('PATCH', `/workflows/${byUpdate}`, { deletedAt: new Date().toISOString() })
    expect(status, text).toBe(200)
    expect((await executionOf(waiting)).status).toBe('cancelled')
    expect(await rows('order', `state = 'never'`)).toEqual([])
  })

  it('cancels the execution that it waits for when that takes too long, and a retry begins another', async () => {
    const child = await make(chain(node('wait', 'delay', { delay: 3_600_000 }), creating({ state: 'too late' })))
    const middle = await make(chain(node('call', 'workflow', { workflowId: child, timeout: 3_600_000 })))
    const parent = await make(chain(node('call', 'workflow', { workflowId: middle, timeout: 300 })))
    const position = await api.position()
    const failed = await over(await execute(parent))
    const [called] = await of(middle)
    expect(failed).toMatchObject({
      status: 'failed',
      errorMessage: `call: The workflow did not end in time (execution ${called.id}): it was cancelled`,
    })
    expect(called).toMatchObject({ status: 'cancelled', parent_Id: failed.id })
    const cancelled = async () =>
      (await api.log(position)).flatMap(({ entity, entityId, changes }) =>
        entity === 'svc_WorkflowExecution' && changes.after.status === 'cancelled' ? [entityId] : [],
      )
    const ended = [...(await of(middle)), ...(await of(child))]
    expect(new Set(ended.map(({ status }) => status))).toEqual(new Set(['cancelled']))
    expect((await cancelled()).sort()).toEqual(ended.map(({ id }) => id).sort())
    const { body } = await api.admin('POST', `/workflows/${parent}/executions/${failed.id}/retry`)
    expect((await over(body.execution.id)).status).toBe('failed')
    const both = await of(middle)
    expect(both.map(({ status }) => status)).toEqual(['cancelled', 'cancelled'])
    expect(await rows('order', `state = 'too late'`)).toEqual([])
  })

  it('goes on in another process without doing anything twice', async () => {
    const receiver = await startReceiver()
    const id = await make(
      chain(
        creating({ state: 'once' }),
        node('tell', 'http', { url: receiver.url }),
        node('wait', 'delay', { delay: 1 }),
        node('last', 'service', { operation: 'create', collection: 'note', data: { state: 'last' } }),
      ),
    )
    const first = await over(await execute(id))
    // As if its process had died before it could say that the call was made.
    await api.sql(`delete from "svc_WorkflowExecutionLog" where "execution_Id" = $1 and seq > 3`, [first.id])
    await api.sql(
      `update "svc_WorkflowExecutionLog" set status = 'running', "outputData" = null where "execution_Id" = $1 and seq = 3`,
      [first.id],
    )
    await api.sql(
      `update "svc_WorkflowExecution" set status = 'running', "completedAt" = null, claim_token = gen_random_uuid(), heartbeat_at = now() - interval '1 minute' where id = $1`,
      [first.id],
    )
    await over(first.id)
    expect(await rows('order', `state = 'once'`)).toHaveLength(1)
    expect(receiver.accepted.map(({ headers }) => headers['idempotency-key'])).toEqual(
      Array(2).fill(expect.any(String)),
    )
    expect(new Set(receiver.accepted.map(({ headers }) => headers['idempotency-key'])).size).toBe(1)
    await receiver.close()
  })

  it('runs the version that it began with', async () => {
    const id = await make(chain(node('wait', 'delay', { delay: 300 }), creating({ state: 'first version' })))
    const execution = await execute(id)
    await waitFor(async () => (await executionOf(execution)).status === 'running')
    await api.admin('PATCH', `/workflows/${id}`, { flow_data: chain(creating({ state: 'second version' })) })
    expect(await over(execution)).toMatchObject({ status: 'completed', version: 1 })
    expect(await rows('order', `state like '%version'`)).toMatchObject([{ state: 'first version' }])
  })

  it('tries again what an address refuses for the moment', async () => {
    const receiver = await startReceiver()
    const { answer } = receiver
    receiver.answer = (_request, response) => response.writeHead(503).end()
    const id = await make(chain(node('tell', 'http', { url: receiver.url, retries: 3, retryDelay: 30 })))
    const execution = await execute(id)
    await waitFor(() => receiver.received.length >= 2)
    receiver.answer = answer
    expect((await over(execution)).result_data.tell).toMatchObject({ status: 204, statusText: 'No Content' })
    await receiver.close()
  })

  it('fails where an address refuses to the last, which a try catches and a retry of the execution repeats', async () => {
    const receiver = await startReceiver()
    const { answer } = receiver
    receiver.answer = (_request, response) => response.writeHead(503).end()
    const telling = (id: string, retries: number) => node(id, 'http', { url: receiver.url, retries, retryDelay: 1 })
    const id = await make(chain(telling('tell', 2), creating({ state: 'told {{outputs.tell.status}}' })))
    const failed = await over(await execute(id))
    expect([failed.status, failed.errorMessage]).toEqual([
      'failed',
      'tell: The address answered 503 (after 3 attempts)',
    ])
    expect(receiver.received).toHaveLength(3)
    expect(await rows('order', `state like 'told %'`)).toEqual([])
    const once = await make(chain(telling('tell', 0), creating({ state: 'told {{outputs.tell.status}}' })))
    expect((await over(await execute(once))).result_data.tell).toMatchObject({ status: 503 })
    const caught = await make(
      flowOf(
        [
          ...[node('try', 'try'), telling('tell', 1)],
          node('sorry', 'service', { operation: 'create', collection: 'note', data: { state: '{{error.message}}' } }),
        ],
        [
          ['start', 'try'],
          ['try', 'tell', 'try'],
          ['try', 'sorry', 'catch'],
        ],
      ),
    )
    expect((await over(await execute(caught))).status).toBe('completed')
    expect(await rows('note', `state like 'The address answered 503 (after 2 attempts)'`)).toHaveLength(1)
    receiver.answer = answer
    const { body } = await api.admin('POST', `/workflows/${id}/executions/${failed.id}/retry`)
    expect((await over(body.execution.id)).status).toBe('completed')
    expect((await rows('order', `state like 'told %'`)).map(({ state }) => state)).toEqual(['told 503', 'told 204'])
    await receiver.close()
  })
})

describe('rights of an execution', () => {
  const grants = (collection: string, ...actions: string[]) =>
    actions.map((action) => ({ collection, action, fields: ['*'] }))

  it('is what the caller may for an administrator’s workflow, and what the author may for others', async () => {
    const reader = await api.user(grants('order', 'read'))
    const writer = await api.user([...grants('order', 'create'), ...grants('svc_Workflow', 'create', 'update')])
    const ofAdmin = await make(chain(creating({ state: 'by caller' })))
    expect(await over(await execute(ofAdmin, {}, reader.call))).toMatchObject({
      ...{ status: 'failed', triggered_by_Id: reader.id },
      errorMessage: `make: You don't have permission to create items in 'order'`,
    })
    expect(await over(await execute(ofAdmin, {}, writer.call))).toMatchObject({ status: 'completed' })
    const ofWriter = await make(chain(creating({ state: 'by author' })), {}, writer.call)
    expect(await over(await execute(ofWriter, {}, reader.call))).toMatchObject({ status: 'completed' })
    const ofWriterToo = await make(
      chain(node('read', 'service', { operation: 'read', collection: 'order' })),
      {},
      writer.call,
    )
    expect(await over(await execute(ofWriterToo))).toMatchObject({ status: 'failed' })
    const raised = await make(chain(creating({ state: 'raised' }, { bypassPermissions: true })))
    expect(await over(await execute(raised, {}, reader.call))).toMatchObject({ status: 'completed' })
    // A workflow that the author's change triggers acts with the author's rights, not with those of the first caller.
    const noting = chain(node('note', 'service', { operation: 'create', collection: 'note', data: { state: 'told' } }))
    const told = await make(noting, {
      trigger_type: 'hook',
      trigger_hook_collection: 'order',
      trigger_hook_action: 'items.create.after',
    })
    await over(await execute(ofWriter))
    const [byWriter] = await waitFor(async () => {
      const found = await of(told)
      return found.length > 0 ? found : undefined
    })
    expect(await over(byWriter.id)).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining("items in 'note'"),
    })
    await api.admin('DELETE', `/workflows/${told}`)
    const lowered = await make(chain(creating({ state: 'lowered' }, { executeAsAnonymous: true })))
    expect(await over(await execute(lowered))).toMatchObject({ status: 'failed' })
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [writer.id])
    await waitFor(async () => (await over(await execute(ofWriter, {}, reader.call))).status === 'failed')
    expect((await of(ofWriter)).at(-1).errorMessage).toMatch(/^The author of the workflow is not active/)
    expect((await api.sql(`select 1 from "svc_Notification" where data->>'workflowId' = $1`, [ofWriter])).length).toBe(
      1,
    )
  })

  it('is refused in this order: no caller, unknown, not active, not allowed', async () => {
    const user = await api.user()
    const roles = await api.user()
    const id = await make(chain(creating({})), { allowed_roles: [roles.roleId] })
    const draft = await make(chain(creating({})), { status: 'draft' })
    const texts = async (call: Call, workflow: string) => {
      const { status, body } = await call('POST', `/workflows/${workflow}/execute`, {})
      return [status, body.error?.message]
    }
    expect(await texts(api.anonymous, 'none')).toEqual([401, 'Authentication required'])
    expect(await texts(user.call, 'none')).toEqual([404, 'Workflow not found'])
    expect(await texts(user.call, draft)).toEqual([400, 'Workflow is not active'])
    expect(await texts(user.call, id)).toEqual([403, 'You do not have permission to execute this workflow'])
    expect((await texts(roles.call, id))[0]).toBe(200)
    expect((await user.call('GET', `/workflows/${id}/executions`)).status).toBe(403)
    expect((await user.call('GET', `/workflows/${id}/stats`)).status).toBe(403)
    const [{ id: execution }] = await of(id)
    expect((await user.call('POST', `/workflows/${id}/executions/${execution}/cancel`)).status).toBe(404)
  })

  it('is open to all only where the list of roles is empty or null: nothing else is stored, and nothing else opens it', async () => {
    const flow = chain(creating({}))
    const hook = { trigger_type: 'webhook', trigger_webhook_path: 'in/roles', trigger_webhook_method: 'POST' }
    const id = await make(flow, { ...hook, allowed_roles: [(await api.user()).roleId] })
    const user = await api.user()
    const wrong = ['["r"]', 'r', '', {}, 5, 0, false, true, [{ id: 'r' }], [null], [[]], [''], ['r', 5]]
    const words = 'Invalid workflow data: allowed_roles must be a list of role ids'
    for (const [n, allowed_roles] of wrong.entries()) {
      const what = JSON.stringify(allowed_roles)
      const row = { id: `roles${n}`, name: 'roles', status: 'draft', flow_data: flow, allowed_roles }
      const workflows = [{ ...row, id: `brought${n}` }]
      const refused = [
        await api.admin('POST', '/workflows', row),
        await api.admin('POST', '/items/svc_Workflow', row),
        await api.admin('PATCH', `/items/svc_Workflow/${id}`, { allowed_roles }),
      ]
      for (const { status, body } of refused) expect([status, body.error?.message], what).toEqual([400, words])
      const brought = await api.admin('POST', '/workflows/import', { workflows })
      expect(brought.body.results, what).toMatchObject([{ status: 'error', message: words }])
      const shown = await api.admin('POST', '/workflows/import/preview', { workflows })
      expect(shown.body.workflows[0].errors, what).toMatchObject([{ code: 'allowed_roles' }])
      await api.sql('update "svc_Workflow" set allowed_roles = $2::jsonb where id = $1', [id, what])
      expect((await user.call('POST', `/workflows/${id}/execute`, {})).status, what).toBe(403)
      expect((await user.call('POST', '/webhook/in/roles', {})).status, what).toBe(403)
      expect((await api.anonymous('POST', '/webhook/in/roles', {})).status, what).toBe(401)
    }
    expect(await of(id)).toEqual([])
    expect((await api.sql(`select 1 from "svc_Workflow" where id ~ '^(roles|brought)'`)).length).toBe(0)
    for (const allowed_roles of [null, [], [user.roleId]]) {
      expect((await api.admin('PATCH', `/workflows/${id}`, { allowed_roles })).status).toBe(200)
      expect((await user.call('POST', `/workflows/${id}/execute`, {})).status).toBe(200)
    }
  })

  it('is tried with the whole workflow, or one node of it', async () => {
    const id = await make(
      chain(
        node('sum', 'aggregate', { arraySource: 'trigger.list', operation: 'sum' }),
        creating({ total: '{{outputs.sum.result}}' }),
      ),
      { status: 'draft' },
    )
    const fails = await make(chain(creating({ total: 'many' })), { status: 'draft' })
    expect((await api.admin('POST', `/workflows/${fails}/test`, {})).body).toMatchObject({
      ...{ message: 'Workflow test failed', execution: { status: 'failed' } },
    })
    expect(['cancelled', 'running', 'queued'].map(testMessage)).toEqual([
      ...['Workflow test cancelled', 'Workflow test is still running', 'Workflow test is still queued'],
    ])
    const tested = await api.admin('POST', `/workflows/${id}/test`, {
      triggerData: { list: [1, 2] },
      saveExecution: false,
    })
    expect(tested.body).toMatchObject({
      message: 'Workflow test completed',
      execution: { status: 'completed' },
      result: { sum: { result: 3 } },
    })
    expect(await of(id)).toEqual([])
    const one = await api.admin('POST', `/workflows/${id}/nodes/sum/execute`, { inputData: { list: [4, 5] } })
    expect(one.body).toEqual({ message: 'Node executed successfully', result: { result: 9 } })
    expect((await api.admin('POST', `/workflows/${id}/nodes/none/execute`, {})).status).toBe(404)
    const user = await api.user()
    expect((await user.call('POST', `/workflows/${id}/test`, {})).status).toBe(403)
    expect((await user.call('POST', `/workflows/${id}/nodes/make/execute`, { inputData: {} })).status).toBe(403)
  })

  it('keeps secrets to the hosts that they are for, and shows them nowhere', async () => {
    const receiver = await startReceiver()
    const { host } = new URL(receiver.url)
    await api.admin('POST', '/items/svc_Secret', { name: 'token', value: 'hush-4711', hosts: [host] })
    await api.admin('POST', '/items/svc_Secret', { name: 'elsewhere', value: 'hush-4712', hosts: ['api.example.com'] })
    const calling = (name: string) =>
      chain(
        node('call', 'http', {
          url: receiver.url,
          method: 'POST',
          headers: { authorization: `Bearer {{ secrets.${name} }}` },
          body: { echo: `{{secrets['${name}']}}`, said: '{{trigger.said}}' },
        }),
      )
    // Templates in the data name no secret, from any sender.
    const said = '{{ secrets.token }} {{secrets.elsewhere}}'
    expect(await over(await execute(await make(calling('token')), { said }))).toMatchObject({ status: 'completed' })
    expect(receiver.accepted[0]).toMatchObject({
      headers: { authorization: 'Bearer hush-4711' },
      body: { echo: 'hush-4711', said },
    })
    const forwarding = await make(
      chain(node('call', 'http', { url: '{{trigger.url}}', method: 'POST', body: '{{trigger.all}}' })),
    )
    expect(await over(await execute(forwarding, { url: receiver.url, all: { said } }))).toMatchObject({
      status: 'completed',
    })
    expect(receiver.accepted[1]).toMatchObject({ body: { said } })
    expect(await over(await execute(await make(calling('elsewhere'))))).toMatchObject({
      errorMessage: expect.stringMatching(/^call: The secret elsewhere may not be sent to/),
    })
    expect(receiver.accepted).toHaveLength(2)
    const shown = JSON.stringify([
      ...(await api.sql('select to_jsonb(e) from "svc_WorkflowExecution" e')),
      ...(await api.sql('select to_jsonb(l) from "svc_WorkflowExecutionLog" l')),
      ...(await api.sql('select to_jsonb(l) from "svc_AuditLog" l')),
    ])
    expect(shown).not.toMatch(/hush-471/)
    await receiver.close()
  })

  it('names a secret that no key opens, and sends nothing', async () => {
    const receiver = await startReceiver()
    const { host } = new URL(receiver.url)
    await api.admin('POST', '/items/svc_Secret', { name: 'lost', value: 'hush', hosts: [host] })
    await loseSecret('lost')
    const headers = { authorization: 'Bearer {{ secrets.lost }}' }
    const id = await make(chain(node('call', 'http', { url: receiver.url, method: 'POST', headers })))
    expect(await over(await execute(id))).toMatchObject({
      status: 'failed',
      errorMessage:
        'call: The secret lost cannot be read with the present SECRET_KEY: set it again, or set SECRET_KEY_PREVIOUS to the former key',
    })
    expect(receiver.received).toEqual([])
    await receiver.close()
  })

  it('sends mail by the outbox, escaped, and not without end', async () => {
    const mail = node('mail', 'email', {
      to: 'a@example.com, b@example.com',
      subject: 'Order {{trigger.n}}',
      body: '<p>{{trigger.html}}</p>',
    })
    const id = await make(chain(mail))
    const first = await over(await execute(id, { n: 7, html: '<a href=x>' }))
    expect(first.result_data.mail).toMatchObject({ success: true, sent: 2, failed: 0 })
    const sent = await api.sql(`select email, subject, context from "svc_EmailLog" order by email`)
    expect(sent.map(({ subject }) => subject)).toEqual(['Order 7', 'Order 7'])
    expect(sent.map(({ email, context }) => [email, context.variables])).toEqual(
      ['a@example.com', 'b@example.com'].map((email) => [
        email,
        { mail_subject: 'Order 7', mail_body: '<p>&lt;a href=x&gt;</p>' },
      ]),
    )
    expect(await api.jobs('mail')).toHaveLength(2)
    await api.sql('delete from "svc_WorkflowUse" where "workflow_Id" = $1', [id])
    const many = await make(chain(node('mail', 'email', { to: '{{trigger.to}}', subject: 's', body: 'b' })))
    const some = await over(await execute(many, { to: ['c@example.com', 'no address', 'Eve <e@example.com>'] }))
    const failed = { success: false, error: 'Invalid email address' }
    expect([some.status, some.result_data.mail]).toEqual([
      'completed',
      {
        ...{ success: false, sent: 1, failed: 2 },
        results: [
          { to: 'c@example.com', success: true, id: expect.any(String) },
          { to: 'no address', ...failed },
          { to: 'Eve <e@example.com>', ...failed },
        ],
      },
    ])
    expect((await over(await execute(many, { to: 'one, two@' }))).errorMessage).toBe(
      'mail: Invalid email address: one, two@',
    )
    expect(await api.sql(`select email from "svc_EmailLog" where email like 'c@%'`)).toHaveLength(1)
    expect(await api.jobs('mail')).toHaveLength(3)
    // What is not sent is not counted.
    const [{ mails }] = await api.sql('select mails from "svc_WorkflowUse" where "workflow_Id" = $1', [many])
    expect(mails).toBe(1)
    await over(await execute(id, {}))
    expect(await over(await execute(id, {}))).toMatchObject({
      errorMessage: expect.stringMatching(/WORKFLOW_MAIL_PER_HOUR/),
    })
    expect(await api.jobs('mail')).toHaveLength(5)
  })
})

describe('triggers', () => {
  const onOrder = (action: string) => ({
    trigger_type: 'hook',
    trigger_hook_collection: 'order',
    trigger_hook_action: `items.${action}.after`,
  })
  const noting = (state: string) =>
    chain(node('note', 'service', { operation: 'create', collection: 'note', data: { state } }))

  it('are changes, each once, of any writer; hidden fields stay hidden', async () => {
    const created = await make(
      noting('created {{trigger.document.state}} {{trigger.document.secret}}'),
      onOrder('create'),
    )
    const updated = await make(
      noting('{{trigger.previousDocument.state}} → {{trigger.document.state}}'),
      onOrder('update'),
    )
    await api.sql(`insert into "order" (id, state, secret) values (901, 'a', 'hush')`)
    await api.admin('PATCH', '/items/order/901', { state: 'b' })
    await waitFor(async () => (await of(created)).length === 1 && (await of(updated)).length === 1)
    const [[bySql], [byApi]] = [await of(created), await of(updated)]
    // No user made the first change: it is done as the public role, which may not.
    expect(await over(bySql.id)).toMatchObject({ status: 'failed', triggered_by_Id: null })
    expect(JSON.stringify(bySql.trigger_data)).not.toContain('hush')
    expect(await over(byApi.id)).toMatchObject({ status: 'completed', triggered_by_Id: expect.any(String) })
    expect((await rows('note')).at(-1).state).toBe('a → b')
    for (const id of [created, updated]) await api.admin('PATCH', `/workflows/${id}`, { status: 'inactive' })
  })

  it('end where a workflow leads to itself', async () => {
    const touch = node('touch', 'service', {
      operation: 'update',
      collection: 'order',
      itemId: '{{trigger.id}}',
      data: { total: '{{trigger.document.total}}1' },
    })
    const id = await make(chain(touch), onOrder('update'))
    await api.admin('POST', '/items/order', { id: 902, total: 1 })
    await api.admin('PATCH', '/items/order/902', { total: 2 })
    await waitFor(async () => (await of(id)).some(({ status }) => status === 'failed'))
    const all = await of(id)
    expect(all.map(({ status }) => status)).toEqual(['completed', 'completed', 'completed', 'failed'])
    expect(all[3].errorMessage).toBe(
      `A loop ended: the workflow was to run more than 3 times on one record: ${Array(4).fill(`${id} on order 902`).join(' → ')}`,
    )
    await api.admin('PATCH', `/workflows/${id}`, { status: 'inactive' })
    const ring = [await make(noting('x'), { status: 'draft' })]
    for (let i = 0; i < 9; i += 1) ring.push(await make(chain(node('next', 'workflow', { workflowId: ring.at(-1) }))))
    await api.admin('PATCH', `/workflows/${ring[0]}`, { status: 'active' })
    expect(await over(await execute(ring.at(-1)!))).toMatchObject({
      errorMessage: expect.stringContaining('A chain of causes ended after 8'),
    })
  })

  it('are moments of the clock, each once', async () => {
    const id = await make(noting('tick'), {
      trigger_type: 'schedule',
      trigger_cron: '0 3 * * *',
      options: { timezone: 'Europe/Zurich', missedTicks: 'once' },
    })
    const due = () => api.sql(`select "nextAt" from "svc_WorkflowSchedule" where "workflow_Id" = $1`, [id])
    await waitFor(async () => (await due()).length === 1)
    const [{ nextAt }] = await due()
    expect(
      new Intl.DateTimeFormat('en', { timeZone: 'Europe/Zurich', hour: 'numeric', hourCycle: 'h23' }).format(nextAt),
    ).toBe('03')
    await api.sql(`update "svc_WorkflowSchedule" set "nextAt" = now() - interval '1 second' where "workflow_Id" = $1`, [
      id,
    ])
    await api.sql(`notify svc_workflows`)
    await waitFor(async () => (await of(id)).length > 0)
    expect(await of(id)).toMatchObject([{ trigger: 'schedule', triggered_by_Id: null }])
    expect((await due())[0].nextAt).toEqual(nextAt)
    await api.admin('DELETE', `/workflows/${id}`)
    await waitFor(async () => (await due()).length === 0)
  })
})

describe('a change that a workflow guards', () => {
  const guarding = (collection: string, action: string) => ({
    trigger_type: 'hook',
    trigger_hook_collection: collection,
    trigger_hook_action: `items.${action}`,
  })

  it('is changed or refused by it, in its transaction, and takes what it did along', async () => {
    const id = await make(
      flowOf(
        [
          node('if', 'condition', { conditions: [{ field: 'trigger.data.total', operator: '<', value: 0 }] }),
          node('no', 'service', { operation: 'delete', collection: 'order', itemId: 1_000_000 }),
          node('note', 'service', {
            operation: 'create',
            collection: 'note',
            data: { state: 'guarded {{trigger.data.total}}' },
          }),
          node('set', 'transform', {
            transformType: 'mapping',
            mapping: { 'data.state': 'checked', 'data.total': 'trigger.data.total' },
          }),
        ],
        [
          ['start', 'if'],
          ['if', 'no', 'true'],
          ['if', 'note', 'false'],
          ['note', 'set'],
        ],
      ),
      guarding('order', 'create'),
    )
    const good = await api.admin('POST', '/items/order?fields=state,total', { total: 5, state: 'given' })
    expect([good.status, good.body.data]).toEqual([201, { state: 'checked', total: 5 }])
    expect((await rows('note')).at(-1)).toMatchObject({ state: 'guarded 5' })
    const position = await api.position()
    const bad = await api.admin('POST', '/items/order', { total: -1 })
    expect([bad.status, bad.body.error.code, bad.body.error.message]).toEqual([
      ...[400, 'HOOK_REFUSED', "Item not found or you don't have permission to delete it"],
    ])
    await waitFor(async () => (await of(id)).length === 1)
    expect(await of(id)).toMatchObject([{ status: 'failed', trigger: 'hook', errorMessage: bad.body.error.message }])
    expect((await api.log(position)).map(({ entity }) => entity)).not.toContain('order')
    // A change that fails afterwards takes the note with it.
    const notes = (await rows('note')).length
    expect((await api.admin('POST', '/items/order', { total: 'many' })).status).toBe(400)
    expect(await rows('note')).toHaveLength(notes)
    // It acts as the user who makes the change, who may not write notes.
    const user = await api.user([{ collection: 'order', action: 'create', fields: ['*'] }])
    expect((await user.call('POST', '/items/order', { total: 1 })).body.error).toMatchObject({
      ...{ code: 'HOOK_REFUSED', message: "You don't have permission to create items in 'note'" },
    })
    await api.admin('PATCH', `/workflows/${id}`, { status: 'inactive' })
    expect((await api.admin('POST', '/items/order', { total: -1 })).status).toBe(201)
  })

  it('is refused by one that cannot be asked, and waits for none too long', async () => {
    const id = await make(
      chain(
        node('each', 'loop', { loopType: 'count', endIndex: 10_000, maxIterations: 10_000 }),
        node('in', 'service', { operation: 'read', collection: 'note' }),
      ),
      guarding('note', 'update'),
    )
    await api.sql(
      `update "svc_Workflow" set flow_data = jsonb_set(flow_data, '{edges,1}', '{"source":"each","target":"in","sourceHandle":"loop"}') where id = $1`,
      [id],
    )
    await api.sql(`insert into note (id, state) values (7000, 'x')`)
    const slow = await api.admin('PATCH', '/items/note/7000', { state: 'y' })
    expect([slow.status, slow.headers['retry-after']]).toEqual([503, '1'])
    await api.sql(`update "svc_Workflow" set "authority_Id" = null where id = $1`, [id])
    expect((await api.admin('PATCH', '/items/note/7000', { state: 'y' })).body.error).toMatchObject({
      ...{ code: 'HOOK_REFUSED', message: expect.stringMatching(/an administrator has to save it/) },
    })
    await api.admin('DELETE', `/workflows/${id}`)
    expect((await api.admin('PATCH', '/items/note/7000', { state: 'y' })).status).toBe(200)
  })

  it('is a read, too: of what is asked, and that it was asked', async () => {
    const narrow = await make(
      chain(node('q', 'transform', { transformType: 'mapping', mapping: { 'query.filter.state': 'y' } })),
      guarding('note', 'read'),
    )
    const told = await make(
      chain(node('v', 'variable', { variables: { ids: '{{trigger.ids}}' } })),
      guarding('note', 'read.after'),
    )
    expect((await api.admin('GET', '/items/note')).body.data.map(({ id }: any) => id)).toEqual([7000])
    await waitFor(async () => (await of(told)).length === 1)
    expect((await over((await of(told))[0].id)).context_data.variables).toEqual({ ids: [7000] })
    for (const id of [narrow, told]) await api.admin('DELETE', `/workflows/${id}`)
  })

  it('is the read of a preview, which starts and writes nothing', async () => {
    const ada = await api.user([
      { collection: 'note', action: 'read' },
      { collection: 'note', action: 'create', fields: '*' },
      { collection: 'order', action: 'read' },
    ])
    const boss = api.as((await api.anonymous('POST', '/auth/login', administrator)).body.token)
    const counted = node('count', 'stats', { collection: 'order', operation: 'count' })
    const noting = (more: object = {}) =>
      chain(node('c', 'service', { operation: 'create', collection: 'note', data: { state: 'seen' }, ...more }))
    const narrow = await make(
      chain(counted, node('q', 'transform', { transformType: 'mapping', mapping: { 'query.filter.state': 'y' } })),
      { ...guarding('note', 'read'), options: { record: 'all' } },
    )
    const told = await make(noting({ bypassPermissions: true }), guarding('note', 'read.after'))
    expect((await boss('POST', '/auth/preview', { user: ada.id })).status).toBe(200)
    const before = await api.position()
    const { status, body } = await boss('GET', '/items/note')
    // What narrows the read of others narrows it here, with all that it reads itself.
    expect([status, body.data.map(({ id }: any) => id)]).toEqual([200, [7000]])
    for (const more of [{}, { bypassPermissions: true }]) {
      const writing = await make(noting(more), guarding('note', 'read.one'))
      const refused = await boss('GET', '/items/note/7000')
      expect([refused.status, refused.body.error.code]).toEqual([403, 'PREVIEW_READ_ONLY'])
      await api.admin('DELETE', `/workflows/${writing}`)
    }
    // An execution that a read starts is queued before that of a read which comes after it.
    expect((await boss('DELETE', '/auth/preview')).status).toBe(200)
    expect((await ada.call('GET', '/items/note')).status).toBe(200)
    await waitFor(async () => (await of(told)).length > 0)
    await over((await of(told))[0].id)
    await waitFor(async () => (await of(narrow)).length > 0)
    expect((await of(told)).map(({ triggered_by_Id }) => triggered_by_Id)).toEqual([ada.id])
    expect((await of(narrow)).map(({ triggered_by_Id }) => triggered_by_Id)).toEqual([ada.id])
    expect(await rows('note', `state = 'seen'`)).toHaveLength(1)
    expect((await api.log(before)).filter(({ entity }) => entity === 'note')).toHaveLength(1)
    for (const id of [narrow, told]) await api.admin('DELETE', `/workflows/${id}`)
    await api.sql(`delete from note where state = 'seen'`)
  })
})

describe('a webhook of a workflow', () => {
  const at = (path: string, more: object = {}) => ({
    trigger_type: 'webhook',
    trigger_webhook_path: path,
    trigger_webhook_method: 'POST',
    ...more,
  })
  const seen = chain(node('v', 'variable', { variables: { seen: '{{trigger}}' } }))

  it('takes requests from anybody, without their credentials, and answers at once', async () => {
    const id = await make(seen, at('in/plain'))
    const sent = await api.anonymous('POST', '/webhook/in/plain?a=1', { n: 7 }, { cookie: 'x=1', 'x-own': 'kept' })
    expect([sent.status, sent.body]).toEqual([
      200,
      { message: 'Workflow triggered successfully', execution: { id: expect.any(String), status: 'queued' } },
    ])
    const { trigger_data } = await over(sent.body.execution.id)
    expect(trigger_data).toMatchObject({
      ...{ body: { n: 7 }, rawBody: '{"n":7}', query: { a: '1' }, method: 'POST', path: 'in/plain' },
      headers: { 'x-own': 'kept' },
    })
    expect(trigger_data.headers).not.toHaveProperty('cookie')
    const form = await api.anonymous('POST', '/webhook/in/plain', 'a=1&b=x&c=1&c=2&__proto__=y', {
      'content-type': 'application/x-www-form-urlencoded',
    })
    expect(Object.entries((await over(form.body.execution.id)).trigger_data.body)).toEqual([
      ...[
        ['a', '1'],
        ['b', 'x'],
        ['c', ['1', '2']],
        ['__proto__', 'y'],
      ],
    ])
    for (const method of ['GET', 'PUT', 'HEAD'] as const)
      expect((await api.anonymous(method, '/webhook/in/plain')).status).toBe(404)
    const missing = await api.anonymous('POST', '/webhook/nowhere', {})
    expect(missing.body.error.message).toBe('Webhook not found for POST nowhere or workflow is not active')
    expect(
      (await api.anonymous('POST', '/webhook/in/plain', '{"a":', { 'content-type': 'application/json' })).status,
    ).toBe(400)
    expect(
      (await api.anonymous('POST', '/webhook/in/plain', 'x'.repeat(1_048_577), { 'content-type': 'text/plain' }))
        .status,
    ).toBe(413)
    await api.admin('PATCH', `/workflows/${id}`, { allowed_roles: ['none'] })
    expect((await api.anonymous('POST', '/webhook/in/plain', {})).status).toBe(401)
    expect((await (await api.user()).call('POST', '/webhook/in/plain', {})).status).toBe(403)
  })

  it('reads no more of a form or of CSV than it can in passing, however short that is written', async () => {
    const id = await make(chain(node('v', 'variable', { variables: { a: 1 } })), at('in/much'))
    const form = 'application/x-www-form-urlencoded'
    const send = (type: string, body: string | Buffer) =>
      api.anonymous('POST', '/webhook/in/much', body, { 'content-type': type })
    const names = (count: number) => Array.from({ length: count }, (_, i) => i.toString(36))
    for (const [type, body] of [
      [form, 'a&'.repeat(10_001)],
      ['text/csv', `a\n${'1\n'.repeat(50_001)}`],
      ['text/csv', `${names(10_001).join()}\n`],
      // It would come to a hundred times as much as it is.
      ['text/csv', `${'a'.repeat(100_000)}\n${'1\n'.repeat(100)}`],
    ] as const) {
      const { status, body: refused } = await send(type, body)
      expect([status, refused.error?.code]).toEqual([413, 'TOO_MANY_VALUES'])
    }
    expect(await of(id)).toEqual([])
    const received = async (type: string, body: string | Buffer) => {
      const { status, body: begun } = await send(type, body)
      expect(status).toBe(200)
      return (await over(begun.execution.id)).trigger_data.body
    }
    expect(Object.keys(await received(form, names(10_000).join('&')))).toHaveLength(10_000)
    expect(await received('text/csv', `a\n${'1\n'.repeat(50_000)}`)).toHaveLength(50_000)
    // However it is cut into pieces.
    const words = Array.from({ length: 6000 }, () => '字é𝄞')
    expect(await received('text/csv; charset=iso-8859-1', Buffer.from('n\nM\xfcller', 'latin1'))).toEqual([
      { n: 'Müller' },
    ])
    expect(await received('text/plain; charset="windows-1252"', Buffer.from([0x80]))).toBe('€')
    expect(await received('text/csv', `w\n${words.join('\r\n')}`)).toEqual(words.map((w) => ({ w })))
  })

  it('asks for no more than its filters say, whatever it is sent', async () => {
    await api.sql(`insert into "order" (id, external) values (7100, 'token-a'), (7101, 'token-b')`)
    const filter = { external: '{{trigger.body.token}}' }
    const found = node('in', 'service', { operation: 'read', collection: 'order', filter, bypassPermissions: true })
    const counted = node('n', 'stats', { collection: 'order', operation: 'count', filter, bypassPermissions: true })
    await make(chain(found, counted), at('in/asking'))
    const ask = async (token: unknown) => {
      const { body } = await api.anonymous('POST', '/webhook/in/asking', { token })
      const { status, errorMessage, result_data } = await over(body.execution.id)
      return [status, errorMessage ?? result_data.in.data.map(({ id }: { id: number }) => id)]
    }
    expect(await ask('token-a')).toEqual(['completed', [7100]])
    for (const token of [{ ne: 'x' }, { isNotNull: true }, null, '$COL(external)', undefined])
      expect(await ask(token)).toEqual(['failed', expect.stringMatching(/^in: filter\.external: /)])
  })

  it('is answered by the workflow where that says so', async () => {
    const respond = node('r', 'respond', {
      status: 201,
      body: { hello: '{{trigger.body.name}}' },
      headers: { 'x-own': 'yes', 'set-cookie': 'no=1' },
    })
    await make(chain(respond), at('in/answered'))
    const answered = await api.anonymous('POST', '/webhook/in/answered', { name: 'you' })
    expect([answered.status, answered.body, answered.headers['x-own'], answered.headers['set-cookie']]).toEqual([
      201,
      { hello: 'you' },
      'yes',
      undefined,
    ])
  })

  it('sends what a caller wrote in a header or a body, of whatever characters and type', async () => {
    const responding = async (path: string, data: object) => make(chain(node('r', 'respond', data)), at(path))
    const post = (path: string, body: object) => api.anonymous('POST', `/webhook/${path}`, body)
    await responding('in/moved', {
      status: 201,
      headers: { location: '/to/{{trigger.body.name}}?a=%20b', 'x-name': '{{trigger.body.name}}', 'x-own': 'yes' },
    })
    const far = await post('in/moved', { name: 'é 日本' })
    expect([far.status, far.headers.location, far.headers['x-name'], far.headers['x-own']]).toEqual([
      201,
      '/to/%C3%A9%20%E6%97%A5%E6%9C%AC?a=%20b',
      '%C3%A9 %E6%97%A5%E6%9C%AC',
      'yes',
    ])
    for (const name of ['a\r\nx-injected: 1', 'a\u0001b', 'a\u007fb']) {
      const { status, headers } = await post('in/moved', { name })
      expect([name, status, headers.location, headers['x-name'], headers['x-own'], headers['x-injected']]).toEqual([
        ...[name, 201, undefined, undefined, 'yes', undefined],
      ])
    }
    const plain = await responding('in/plain-text', {
      status: 201,
      body: '{{trigger.body.value}}',
      headers: { 'content-type': 'text/plain' },
    })
    for (const [value, text] of [
      [{ a: [1] }, '{"a":[1]}'],
      [[1, 2], '[1,2]'],
      [7, '7'],
      [false, 'false'],
      ['as it is', 'as it is'],
      [null, ''],
    ]) {
      const answer = await post('in/plain-text', { value })
      expect([answer.status, answer.text]).toEqual([201, text])
      expect(answer.headers['content-type'] ?? 'text/plain').toMatch(/^text\/plain/)
    }
    await responding('in/json', { status: 201, body: '{{trigger.body.value}}' })
    const object = await post('in/json', { value: { a: 1 } })
    expect([object.status, object.body, object.headers['content-type']]).toEqual([
      ...[201, { a: 1 }, 'application/json; charset=utf-8'],
    ])
    expect((await post('in/json', { value: 7 })).text).toBe('7')
    await responding('in/nothing', { status: 204, body: { a: 1 } })
    expect((await post('in/nothing', {})).status).toBe(204)
    expect(await of(plain)).toHaveLength(6)
  })

  it('is signed where it names a secret, each message once', async () => {
    const secret = `whsec_${Buffer.from('a secret of twenty-four b').toString('base64')}`
    await api.admin('POST', '/items/svc_Secret', { name: 'signing', value: secret })
    await make(seen, at('in/signed', { options: { webhookSecret: 'signing' } }))
    const sign = (id: string, when = new Date()) => ({
      ...{ 'webhook-id': id, 'webhook-timestamp': String(Math.floor(when.getTime() / 1000)) },
      'webhook-signature': new Webhook(secret).sign(id, when, '{"n":1}'),
    })
    const post = async (headers: Record<string, string>, body: object = { n: 1 }) =>
      (await api.anonymous('POST', '/webhook/in/signed', body, headers)).status
    expect(await post({})).toBe(401)
    expect(await post(sign('m1'), { n: 2 })).toBe(401)
    expect(await post(sign('m0', new Date(Date.now() - 600_000)))).toBe(401)
    expect(await post(sign('m1'))).toBe(200)
    expect(await post(sign('m1'))).toBe(200)
    expect(await post(sign('m2'))).toBe(200)
  })

  it('cannot be verified while no key opens the secret that it names', async () => {
    await api.admin('POST', '/items/svc_Secret', { name: 'lost signing', value: 'whsec_x' })
    await loseSecret('lost signing')
    const id = await make(seen, at('in/lost', { options: { webhookSecret: 'lost signing' } }))
    expect(await api.anonymous('POST', '/webhook/in/lost', { n: 1 })).toMatchObject({
      status: 503,
      body: { error: { message: 'The webhook cannot be verified now' } },
    })
    expect(await of(id)).toEqual([])
  })

  it('begins one execution for each signed message, as long as that is kept', async () => {
    const secret = `whsec_${Buffer.from('another of twenty-four b').toString('base64')}`
    await api.admin('POST', '/items/svc_Secret', { name: 'messages', value: secret })
    const options = { webhookSecret: 'messages' }
    const id = await make(seen, at('in/messages', { options }))
    const post = (message: string, body = '{"n":1}', path = 'in/messages') => {
      const now = new Date()
      const signature = new Webhook(secret).sign(message, now, body)
      const headers = { 'webhook-id': message, 'webhook-timestamp': String(Math.floor(now.getTime() / 1000)) }
      const json = { 'content-type': 'application/json', 'webhook-signature': signature }
      return api.anonymous('POST', `/webhook/${path}`, body, { ...headers, ...json })
    }
    // A refusal spends nothing.
    const position = await api.position()
    expect((await post('once', '{"n":')).status).toBe(400)
    expect(await of(id)).toEqual([])
    const begun = (await api.log(position)).filter(
      ({ entity, action }) => entity === 'svc_WorkflowExecution' && action === 'create',
    )
    expect(begun).toEqual([])
    const first = await post('once')
    expect([first.status, first.body.execution.status]).toEqual([200, 'queued'])
    await over(first.body.execution.id)
    // Days later, too.
    await api.sql(
      `update "svc_WorkflowExecution" set "createdAt" = "createdAt" - interval '7 days', "completedAt" = "completedAt" - interval '7 days' where id = $1`,
      [first.body.execution.id],
    )
    const again = await post('once')
    expect([again.status, again.body]).toEqual([
      ...[200, { ...first.body, execution: { id: first.body.execution.id, status: 'completed' } }],
    ])
    // At the same moment, and with ids that differ at their end only.
    const long = 'm'.repeat(300)
    const answers = await Promise.all([...Array(4).fill(`${long}1`), `${long}2`].map((message) => post(message)))
    expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(200))
    expect(new Set(answers.map(({ body }) => body.execution.id)).size).toBe(2)
    expect(await of(id)).toHaveLength(3)
    // Another workflow has messages of its own.
    const respond = node('r', 'respond', { status: 201, body: { made: '{{execution.id}}' } })
    const answering = await make(chain(respond), at('in/messages/answered', { options }))
    const one = await post('once', '{}', 'in/messages/answered')
    const two = await post('once', '{}', 'in/messages/answered')
    expect([one.status, two.status, two.body]).toEqual([201, 201, one.body])
    expect(await of(answering)).toHaveLength(1)
    const failing = await make(
      chain(node('no', 'service', { operation: 'read', collection: 'nowhere' }), respond),
      at('in/messages/failing', { options }),
    )
    expect((await post('once', '{}', 'in/messages/failing')).status).toBe(500)
    const failed = await post('once', '{}', 'in/messages/failing')
    expect([failed.status, failed.body.execution.status]).toEqual([200, 'failed'])
    expect(await of(failing)).toHaveLength(1)
    // It is forgotten with its execution.
    await api.sql('delete from "svc_WorkflowExecution" where id = $1', [first.body.execution.id])
    expect((await post('once')).body.execution.id).not.toBe(first.body.execution.id)
  })

  it('takes what its senders authorize themselves by for nothing of its own, and tells it nobody', async () => {
    const open = await make(seen, at('in/strangers'))
    for (const authorization of ['Basic dTpw', 'Secret x', 'Bearer of-a-sender', 'Bearer']) {
      const sent = await api.anonymous('POST', '/webhook/in/strangers', {}, { authorization })
      expect([authorization, sent.status]).toEqual([authorization, 200])
      const { triggered_by_Id, trigger_data } = await over(sent.body.execution.id)
      expect([triggered_by_Id, trigger_data.headers.authorization]).toEqual([null, undefined])
    }
    await api.admin('PATCH', `/workflows/${open}`, { allowed_roles: ['none'] })
    for (const [authorization, code] of [
      ['Basic dTpw', 'INVALID_TOKEN'],
      ['Bearer of-a-sender', 'INVALID_TOKEN'],
    ] as const)
      expect((await api.anonymous('POST', '/webhook/in/strangers', {}, { authorization })).body.error).toMatchObject({
        ...{ statusCode: 401, code },
      })
    expect((await api.admin('POST', '/webhook/in/strangers', {})).status).toBe(200)
  })
})

describe('a script', () => {
  it('asks for items with the rights of its node, and says in which line it failed', async () => {
    const code = `
      const id = await items.create('note', { state: trigger.word + variables.mark })
      log.info('made', id)
      return { id, all: (await items.read('note', { filter: { state: trigger.word + variables.mark } })).totalCount }`
    const id = await make(
      chain(
        node('s', 'script', { script: code }),
        node('t', 'transform', { transformType: 'script', script: 'return outputs.s.result.all + 1' }),
      ),
      { variables: { mark: '!' } },
    )
    expect((await over(await execute(id, { word: 'script' }))).result_data).toMatchObject({
      ...{ s: { success: true, result: { all: 1 }, logs: [{ level: 'info' }] }, t: 2 },
    })
    const user = await api.user()
    expect(await over(await execute(id, { word: 'no' }, user.call))).toMatchObject({
      ...{ status: 'failed', errorMessage: expect.stringContaining("permission to create items in 'note'") },
    })
    const outside = { script: 'return [loop?.index ?? "none", error?.message ?? "none", context.loop === undefined]' }
    const each = node('each', 'loop', { loopType: 'count', endIndex: 1 })
    const asking = await make(
      flowOf(
        [each, node('in', 'script', outside), node('out', 'script', outside)],
        [
          ['start', 'each'],
          ['each', 'in', 'loop'],
          ['each', 'out', 'done'],
        ],
      ),
    )
    expect((await over(await execute(asking))).result_data).toMatchObject({
      ...{ in: { result: [0, 'none', false] }, out: { result: ['none', 'none', true] } },
    })
    const broken = await make(chain(node('s', 'script', { script: 'const a = 1\nnull.x' })))
    expect((await over(await execute(broken))).errorMessage).toMatch(/script\.js:2/)
  })

  it('is told in full why its calls are refused, and others are not told in which line it failed', async () => {
    const code = `
      const said = []
      for (const ask of [() => items.read('note', { filter: { zz: 1 } }), () => items.read(''), () => items.readOne('note', null), () => items.readOne('note', '')])
        await ask().catch((error) => said.push(error.status + ' ' + error.message))
      throw new Error(said.join('; '))`
    const said =
      '400 Invalid query parameters: filter: unknown field "zz"; 400 collection must be a text; ' +
      '400 itemId is empty: it names no row; 400 itemId is empty: it names no row'
    const id = await make(
      flowOf(
        [
          node('try', 'try'),
          node('s', 'script', { script: code }),
          node('v', 'variable', { variables: { said: '{{error.message}}', at: '{{error.stack}}' } }),
        ],
        [
          ['start', 'try'],
          ['try', 's', 'try'],
          ['try', 'v', 'catch'],
        ],
      ),
    )
    const execution = await execute(id)
    const { context_data } = await over(execution)
    expect(context_data.variables).toEqual({ said, at: expect.stringMatching(/script\.js:5/) })
    const [failed] = await api.sql(
      `select "errorMessage" from "svc_WorkflowExecutionLog" where "execution_Id" = $1 and "nodeId" = 's'`,
      [execution],
    )
    expect(failed.errorMessage).toBe(`${said} (script.js:5:13)`)
    // Nor is the workflow that calls it.
    const broken = await make(chain(node('s', 'script', { script: 'null.x' })))
    const calling = await make(chain(node('call', 'workflow', { workflowId: broken })))
    const { errorMessage } = await over(await execute(calling))
    expect(errorMessage).toMatch(/^call: The workflow failed at s: /)
    expect(errorMessage).not.toContain('script.js')
    const guard = await make(chain(node('g', 'script', { script: `throw new Error('Not now')` })), {
      ...{ trigger_type: 'hook', trigger_hook_collection: 'note', trigger_hook_action: 'items.create' },
    })
    const position = await api.position()
    const refused = await api.admin('POST', '/items/note', { total: 1 })
    expect([refused.status, refused.body.error.message]).toEqual([400, 'Not now'])
    await waitFor(async () => (await of(guard)).length === 1)
    expect((await api.log(position)).map(({ entity }) => entity)).not.toContain('note')
    const [kept] = await api.sql(
      `select l."errorMessage" from "svc_WorkflowExecutionLog" l join "svc_WorkflowExecution" e on e.id = l."execution_Id" where e."workflow_Id" = $1 and l."nodeId" = 'g'`,
      [guard],
    )
    expect(kept.errorMessage).toMatch(/^Not now \(script\.js:1:\d+\)$/)
    await api.admin('DELETE', `/workflows/${guard}`)
  })

  it('that takes too long before a change asks to try again, which no node catches', async () => {
    const id = await make(
      flowOf(
        [
          node('try', 'try'),
          node('s', 'script', { script: 'await new Promise((resolve) => setTimeout(resolve, 60_000))' }),
          node('v', 'variable', { variables: { caught: true } }),
        ],
        [
          ['start', 'try'],
          ['try', 's', 'try'],
          ['try', 'v', 'catch'],
        ],
      ),
      { trigger_type: 'hook', trigger_hook_collection: 'note', trigger_hook_action: 'items.create' },
    )
    const position = await api.position()
    const { status, body, headers } = await api.admin('POST', '/items/note', { total: 1 })
    expect([status, body.error.message, headers['retry-after']]).toEqual([
      503,
      `The workflow ${id} took too long: row 1 of this change has 500 ms (WORKFLOW_BEFORE_BUDGET_MS). Please try again later.`,
      '1',
    ])
    await waitFor(async () => (await of(id)).length === 1)
    expect((await api.log(position)).map(({ entity }) => entity)).not.toContain('note')
    await api.admin('DELETE', `/workflows/${id}`)
  })

  it('guards a change: it may complete it, or refuse it with a status of its own', async () => {
    const guard = `
      if (trigger.data.total > 100) throw Object.assign(new Error('Too much'), { status: 422 })
      return { data: { ...trigger.data, state: 'by script' } }`
    const id = await make(chain(node('g', 'script', { script: guard })), {
      ...{ trigger_type: 'hook', trigger_hook_collection: 'note', trigger_hook_action: 'items.create' },
    })
    const good = await api.admin('POST', '/items/note?fields=state,total', { total: 5 })
    expect([good.status, good.body.data]).toEqual([201, { state: 'by script', total: 5 }])
    const bad = await api.admin('POST', '/items/note', { total: 101 })
    expect([bad.status, bad.body.error.message, bad.body.error.code]).toEqual([422, 'Too much', 'HOOK_REFUSED'])
    await api.admin('DELETE', `/workflows/${id}`)
  })
})

describe('a node of an extension', () => {
  it('is checked by its shape and run with one key', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-nodes-'))
    await mkdir(join(directory, 'svc-node-double'))
    const input = { type: 'object', required: ['n'], properties: { n: { type: 'number' } } }
    await writeFile(
      join(directory, 'svc-node-double', 'index.js'),
      `export default { type: 'double', input: ${JSON.stringify(input)}, handler: ({ n }, { idempotencyKey }) => {
        if (n === 1) throw 'no'
        return n === 0 ? 0n : { twice: n * 2, idempotencyKey }
      } }`,
    )
    const extended = await startApi({ EXTENSIONS_DIR: directory }, api.database)
    const flow_data = chain(node('two', 'double', { n: '{{trigger.n}}' }), node('none', 'double'))
    const { body } = await extended.admin('POST', '/workflows/validate', { flow_data })
    expect(body.errors.map(({ nodeId, message }: any) => [nodeId, message])).toEqual([
      ['none', expect.stringContaining('n')],
    ])
    await extended.admin('POST', '/workflows', { id: 'doubling', name: 'd', flow_data })
    const run = await extended.admin('POST', '/workflows/doubling/nodes/two/execute', { inputData: { n: 4 } })
    expect(run.body.result).toEqual({ twice: 8, idempotencyKey: expect.any(String) })
    for (const [n, message] of [
      [0, /BigInt/],
      [1, /"no"/],
    ] as const) {
      const failed = await extended.admin('POST', '/workflows/doubling/nodes/two/execute', { inputData: { n } })
      expect([failed.status, failed.text]).toEqual([400, expect.stringMatching(message)])
    }
    const user = await api.user(['create'].map((action) => ({ collection: 'svc_Workflow', action, fields: ['*'] })))
    expect((await api.admin('POST', '/workflows', { name: 'd', flow_data })).status).toBe(400)
    expect((await user.call('POST', '/workflows', { name: 'd', flow_data })).status).toBe(400)
    await rm(directory, { recursive: true })
  })
})

describe('the examples of the documentation', () => {
  it('are imported and do what they say', async () => {
    const text = await readFile('docs/workflows.md', 'utf8')
    const examples = [...text.matchAll(/```json workflow\n(.*?)```/gs)].map(([, json]) => JSON.parse(json!))
    expect(examples.map(({ id }) => id).sort()).toEqual([
      ...['approve-order', 'enrich-order', 'escalate-order', 'import-orders', 'nightly-report', 'sync-orders'],
    ])
    const receiver = await startReceiver()
    let calls = 0
    receiver.answer = (_request, response) => {
      calls += 1
      response.writeHead(calls === 1 ? 503 : 200, { 'content-type': 'application/json' }).end('{"id":"ext-7"}')
    }
    const [{ id: adminId }] = await api.sql(`select id from "svc_User" where email not like 'user%' limit 1`)
    const own: Record<string, object> = {
      'sync-orders': { address: receiver.url },
      'escalate-order': { managerId: adminId },
    }
    const workflows = examples.map((one) => ({ ...one, ...(own[one.id] && { variables: own[one.id] }) }))
    const { body } = await api.admin('POST', '/workflows/import', { workflows })
    expect(body).toMatchObject({ summary: { created: 6, errors: 0 } })
    // An import strikes what raises a node; who has read them raises it again.
    for (const { id, flow_data } of examples) await api.admin('PATCH', `/workflows/${id}`, { flow_data })

    const created = await api.admin('POST', '/items/order?fields=*', { title: 'of chairs', total: 900, state: 'given' })
    expect(created.body.data).toMatchObject({
      state: 'new',
      title: expect.stringMatching(/^Order of chairs \(\d+ before\)$/),
    })
    const { id } = created.body.data
    await waitFor(async () => (await rows('order', `id = ${id} and external = 'ext-7'`)).length === 1)
    expect(calls).toBe(2)

    const [waiting] = await waitFor(async () => {
      const found = await api.sql(
        `select id from "svc_WorkflowExecution" where "workflow_Id" = 'escalate-order' and due_at > now() + interval '47 hours'`,
      )
      return found.length === 1 ? found : undefined
    })
    await api.sql(`update "svc_WorkflowExecution" set due_at = now() where id = $1`, [waiting.id])
    await api.sql(`notify svc_executions`)
    expect(await over(waiting.id)).toMatchObject({ status: 'completed' })
    const titles = async () => (await api.sql(`select title from "svc_Notification"`)).map(({ title }) => title)
    expect(await titles()).toContain(`Order ${id} is still new`)

    await over(await execute('approve-order', { orderId: id, managerId: adminId }))
    expect(await rows('order', `id = ${id}`)).toMatchObject([{ state: 'approved' }])

    const imported = await api.anonymous(
      'POST',
      '/webhook/import/orders',
      'title,total\r\ndesks,5000\r\n"lamps, two",60\r\n',
      { 'content-type': 'text/csv' },
    )
    expect([imported.status, imported.body]).toEqual([201, { imported: 2 }])
    const [{ id: large }] = await rows('order', `total = 5000`)
    await over(await execute('approve-order', { orderId: large, managerId: adminId }))
    expect(await titles()).toContain(`Order ${large} waits for you`)

    const before = await api.sql(`select count(*)::int as n from "svc_EmailLog" where email = 'office@example.com'`)
    await api.sql(`update "svc_WorkflowSchedule" set "nextAt" = now() where "workflow_Id" = 'nightly-report'`)
    await api.sql(`notify svc_workflows`)
    const [report] = await waitFor(async () => {
      const found = await api.sql(`select context, subject from "svc_EmailLog" where email = 'office@example.com'`)
      return found.length > before[0].n ? found : undefined
    })
    expect(report.context.variables).toEqual({
      mail_subject: '1 orders',
      mail_body: '<p>Approved orders come to 900.</p>',
    })
    await receiver.close()
  })
})
