import { text } from 'node:stream/consumers'
import type { FastifyRequest } from 'fastify'
import { errors } from '../../../errors.ts'
import { type App, acceptJsonUploads, actorOf, uploadedForm } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import {
  answerItem,
  answerList,
  type Change,
  changeItems,
  listItems,
  queryOf,
  readItem,
  requesterOf,
  versionsOf,
} from '../../data/items/items.ts'
import type { WorkflowWrites } from './capabilities.ts'
import {
  cancelRoute,
  createRoute,
  deleteRoute,
  executeRoute,
  executionRoute,
  executionsRoute,
  exportOneRoute,
  exportRoute,
  importRoute,
  listRoute,
  logsRoute,
  nodeRoute,
  previewRoute,
  readRoute,
  retryRoute,
  statsRoute,
  testRoute,
  updateRoute,
  validateRoute,
} from './declarations.ts'
import { statisticsOf } from './queries.ts'
import {
  exportWorkflows,
  importWorkflows,
  missingIn,
  previewImport,
  requireAdministrator,
  surroundingsOf,
} from './save.ts'
import {
  cancel,
  knownWorkflow,
  retry,
  runNodeAlone,
  startByHand,
  testWorkflow,
  type WorkflowCaller,
} from './starting.ts'
import { validate } from './validate.ts'

export { workflowWebhookRoutes } from './webhook.ts'

const collection = 'svc_Workflow'

/** `/workflows`: rows of svc_Workflow by the permissions of items. */
export function workflowItemRoutes(app: App, deps: WorkflowWrites): void {
  const change = async (request: FastifyRequest, wanted: Change) => {
    const { ids, rows } = await changeItems(deps, requesterOf(request), collection, wanted, queryOf(request))
    return `{"data":${rows?.[0] ?? `{"id":${ids[0]}}`}}`
  }
  app.get('/workflows', listRoute, (request, reply) => answerList(deps, request, reply, collection))
  app.get('/workflows/:id', readRoute, (request, reply) =>
    answerItem(deps, request, reply, collection, request.params.id),
  )
  app.post('/workflows', createRoute, async (request, reply) => {
    const created = await change(request, { action: 'create', payloads: [request.body] })
    return reply.code(201).type(json).send(created)
  })
  app.patch('/workflows/:id', updateRoute, async (request, reply) => {
    const ifMatch = versionsOf(request.headers['if-match'])
    const changes = [{ id: request.params.id, payload: request.body }]
    return reply.type(json).send(await change(request, { action: 'update', changes, ifMatch }))
  })
  app.delete('/workflows/:id', deleteRoute, async (request, reply) => {
    const ifMatch = versionsOf(request.headers['if-match'])
    return reply.type(json).send(await change(request, { action: 'delete', ids: [request.params.id], ifMatch }))
  })
}

/** For users: what workflows are and do. */
export function workflowRoutes(app: App, deps: WorkflowWrites): void {
  app.post('/workflows/validate', validateRoute, async (request) => {
    const { flow_data } = request.body
    const { warnings, ...verdict } = validate(flow_data, surroundingsOf(deps))
    return { ...verdict, warnings: [...warnings, ...(await missingIn(deps, askingOf(deps, request), flow_data))] }
  })
  app.post('/workflows/export', { ...exportRoute, onRequest: administrator('export') }, (request) =>
    exportWorkflows(deps, requesterOf(request), request.body.workflowIds),
  )
  app.get('/workflows/:id/export', exportOneRoute, (request) =>
    exportWorkflows(deps, requesterOf(request), [request.params.id]),
  )
  startingRoutes(app, deps)
  executionRoutes(app, deps)
  app.register(async (scope) => importRoutes(scope as App, deps))
}

/** A caller learns no more about workflows of other tenants than about those that do not exist. */
function askingOf({ config }: WorkflowWrites, request: FastifyRequest) {
  const { admin, tenantId } = request.caller
  return { reader: requesterOf(request), ...(config.tenancy.enabled && !admin && { tenantId: tenantId ?? null }) }
}

/** Refuses everybody else before the body is read. */
const administrator = (what: 'export' | 'import') => async (request: FastifyRequest) =>
  requireAdministrator(requesterOf(request), what)

const askerOf = (request: FastifyRequest): WorkflowCaller => ({ caller: request.caller, actor: actorOf(request) })

function startingRoutes(app: App, deps: WorkflowWrites): void {
  app.post('/workflows/:id/execute', executeRoute, async (request) => ({
    message: 'Workflow execution started',
    execution: await startByHand(deps, askerOf(request), request.params.id, request.body),
  }))
  app.post('/workflows/:id/test', testRoute, async (request) => {
    const { triggerData, saveExecution = true } = request.body ?? {}
    const done = await testWorkflow(deps, askerOf(request), request.params.id, triggerData, saveExecution)
    return { message: 'Workflow test completed', ...done }
  })
  app.post('/workflows/:id/nodes/:node/execute', nodeRoute, async (request) => {
    const { id, node } = request.params
    const result = await runNodeAlone(deps, askerOf(request), id, node, request.body?.inputData ?? {})
    return { message: 'Node executed successfully', result }
  })
}

const executions = 'svc_WorkflowExecution'
const logs = 'svc_WorkflowExecutionLog'

function executionRoutes(app: App, deps: WorkflowWrites): void {
  const listed = async (request: FastifyRequest, collection: string, own: object, sort: string) => {
    const { filter, ...query } = queryOf(request)
    const both = filter === undefined ? own : { AND: [own, typeof filter === 'string' ? parsed(filter) : filter] }
    return listItems(deps, requesterOf(request), collection, { sort, ...query, filter: both })
  }
  app.get('/workflows/:id/executions', executionsRoute, async (request, reply) => {
    await knownWorkflow(deps, askerOf(request), request.params.id)
    const list = await listed(request, executions, { workflow_Id: request.params.id }, '-createdAt')
    return reply.type(json).send(list)
  })
  app.get('/workflows/:id/executions/:execution', executionRoute, async (request, reply) => {
    const row = await executionOf(deps, request, request.params)
    const mayReadLogs = request.caller.admin || request.caller.access.grant(logs, 'read') !== undefined
    const nodes = mayReadLogs
      ? await listItems(deps, requesterOf(request), logs, { filter: { execution_Id: row.id }, sort: 'seq' })
      : undefined
    const found =
      typeof nodes === 'string'
        ? JSON.parse(nodes).data
        : nodes === undefined
          ? undefined
          : JSON.parse(await text(nodes)).data
    return reply.type(json).send(JSON.stringify({ data: { ...row, ...(found && { logs: found }) } }))
  })
  app.get('/workflows/:id/executions/:execution/logs', logsRoute, async (request, reply) => {
    const { id } = await executionOf(deps, request, request.params)
    return reply.type(json).send(await listed(request, logs, { execution_Id: id }, 'seq'))
  })
  app.post('/workflows/:id/executions/:execution/cancel', cancelRoute, async (request) => ({
    message: 'Workflow execution cancelled',
    execution: await cancel(deps, askerOf(request), request.params.id, request.params.execution),
  }))
  app.post('/workflows/:id/executions/:execution/retry', retryRoute, async (request) => ({
    message: 'Workflow execution started',
    execution: await retry(deps, askerOf(request), request.params.id, request.params.execution),
  }))
  app.get('/workflows/:id/stats', statsRoute, async (request) => {
    const { caller, params } = request
    await knownWorkflow(deps, askerOf(request), params.id)
    if (!caller.admin && caller.access.grant(executions, 'read') === undefined)
      throw errors.actionDenied('read', executions)
    const isScoped = deps.config.tenancy.enabled && !caller.admin
    return statisticsOf(deps, params.id, isScoped ? caller.tenantId : undefined)
  })
}

/** By the caller's permission to read executions. */
async function executionOf(
  deps: WorkflowWrites,
  request: FastifyRequest,
  { id, execution }: { readonly id: string; readonly execution: string },
): Promise<{ readonly id: string }> {
  await knownWorkflow(deps, askerOf(request), id)
  const row = JSON.parse((await readItem(deps, requesterOf(request), executions, execution, {})).body).data
  if (row.workflow_Id !== id) throw errors.itemDenied('read')
  return row
}

function parsed(filter: string): unknown {
  try {
    return JSON.parse(filter)
  } catch {
    throw errors.badQuery('filter: is no JSON')
  }
}

/** A file, or the same as JSON. */
function importRoutes(app: App, deps: WorkflowWrites): void {
  acceptJsonUploads(app, deps.config)
  app.post('/workflows/import', { ...importRoute, onRequest: administrator('import') }, async (request, reply) => {
    const { file, overwrite } = await importOf(request)
    return reply.send(await importWorkflows(deps, requesterOf(request), file, overwrite))
  })
  app.post(
    '/workflows/import/preview',
    { ...previewRoute, onRequest: administrator('import') },
    async (request, reply) => {
      const { file, overwrite } = await importOf(request)
      return reply.send({ workflows: await previewImport(deps, requesterOf(request), file, overwrite) })
    },
  )
}

/** `overwrite` may stand in the query, in the JSON, or in the form beside the file. */
async function importOf(request: FastifyRequest): Promise<{ readonly file: unknown; readonly overwrite: boolean }> {
  const form = request.isMultipart() ? await uploadedForm(request, 'file', 'Invalid import file format') : undefined
  const file = form === undefined ? request.body : form.value
  const said = [queryOf(request).overwrite, form?.fields.get('overwrite'), isObject(file) ? file.overwrite : undefined]
  return { file, overwrite: said.some((one) => one === true || one === 'true') }
}

const json = 'application/json; charset=utf-8'
