import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Caller } from '../../../access/principal.ts'
import { type CsvCell, readCsv } from '../../../adapters/csv.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { type App, acceptJsonUploads, actorOf, formFields, mostFields, uploadedForm } from '../../../http/http.ts'
import { decodeText, isTooDeep } from '../../../http/json-values.ts'
import { breather } from '../../../language/breather.ts'
import { oncePer } from '../../../language/once.ts'
import { decodeAs } from '../../../language/text.ts'
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
  wholeText,
} from '../../data/items/items.ts'
import { anonymous } from './authority.ts'
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
  webhookReadRoute,
  webhookRoute,
} from './declarations.ts'
import { openSecret, secretLost, secretsNamed } from './effects.ts'
import { readFlow } from './flow.ts'
import {
  type BegunExecution,
  definitionFor,
  executionByMessage,
  statisticsOf,
  type Triggerable,
  triggerableColumns,
} from './queries.ts'
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
  executionFor,
  isOfTenant,
  mayTrigger,
  queue,
  RepeatedMessage,
  requireKnown,
  retry,
  runNodeAlone,
  startByHand,
  testMessage,
  testWorkflow,
  type WorkflowCaller,
} from './starting.ts'
import { optionsOf, rolesNamed, validate, webhookPath } from './validate.ts'

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
    const { warnings, ...verdict } = validate(flow_data, surroundingsOf(deps, requesterOf(request).access))
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
    return { message: testMessage(done.execution.status), ...done }
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
    await requireKnown(deps, askerOf(request), request.params.id)
    const list = await listed(request, executions, { workflow_Id: request.params.id }, '-createdAt')
    return reply.type(json).send(list)
  })
  app.get('/workflows/:id/executions/:execution', executionRoute, async (request, reply) => {
    const row = await executionOf(deps, request, request.params)
    const mayReadLogs = request.caller.admin || request.caller.access.grant(logs, 'read') !== undefined
    const nodes = mayReadLogs
      ? await listItems(deps, requesterOf(request), logs, { filter: { execution_Id: row.id }, sort: 'seq' })
      : undefined
    const found = nodes && JSON.parse(await wholeText(nodes)).data
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
    execution: await retry(deps, askerOf(request), request.params, request.body.version),
  }))
  app.get('/workflows/:id/stats', statsRoute, async (request) => {
    await requireKnown(deps, askerOf(request), request.params.id)
    return statisticsOf(deps, requesterOf(request), request.params.id)
  })
}

/** By the caller's permission to read executions. */
async function executionOf(
  deps: WorkflowWrites,
  request: FastifyRequest,
  { id, execution }: { readonly id: string; readonly execution: string },
): Promise<{ readonly id: string }> {
  await requireKnown(deps, askerOf(request), id)
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

/** `ANY /webhook/{path}`: a request from outside starts a workflow, and may be answered by it. */

const largestBody = 1_048_576

export function workflowWebhookRoutes(app: App, deps: WorkflowWrites): void {
  app.register(async (scope) => {
    // Of any type, as it came: signatures are over its bytes.
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: largestBody }, (_request, body, done) =>
      done(null, body),
    )
    const handler = (request: FastifyRequest, reply: FastifyReply) => answer(deps, request, reply)
    scope.get('/webhook/*', webhookReadRoute, handler)
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const)
      scope.route({ ...webhookRoute, method, url: '/webhook/*', bodyLimit: largestBody, handler } as never)
  })
}

async function answer(deps: WorkflowWrites, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { method } = request
  const credential = callerOf(deps, request)
  const path = webhookPath((request.params as { '*': string })['*'])
  const workflow = await workflowAt(deps, method, path)
  if (workflow === undefined || !isMeant(deps, workflow, credential))
    throw new AppError(404, `Webhook not found for ${method} ${path} or workflow is not active`)
  // Open to everybody, it is open to users of other tenants; what they are there says nothing at its own.
  const caller = isOfTenant(deps, credential, workflow.tenant_Id) ? credential : nobody(deps, credential)
  const raw = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0)
  const message = await verify(deps, workflow, request, raw)
  requireRole(workflow, request, caller)
  const before = await begunBy(deps, workflow, message)
  if (before !== undefined) return answerWith(deps, reply, workflow, before)
  const asker: WorkflowCaller = { caller, actor: actorOf(request, caller) }
  const data = await dataOf(request, raw, path)
  const execution = executionFor(workflow, asker, { trigger: 'webhook', data })
  try {
    const { id, status } = await queue(deps, asker.actor, execution, message)
    return await answerWith(deps, reply, workflow, { id, status, version: workflow.version })
  } catch (error) {
    const other = error instanceof RepeatedMessage ? await begunBy(deps, workflow, message) : undefined
    if (other === undefined) throw error
    return answerWith(deps, reply, workflow, other)
  }
}

/** The execution that the same message has begun before. */
async function begunBy(deps: WorkflowWrites, { id }: Triggerable, message: string | undefined) {
  return message === undefined ? undefined : executionByMessage(deps.reserved, id, message)
}

/** The same for each repetition of a message; of a failed one that it failed, as nothing is gained by sending it again. */
async function answerWith(
  deps: WorkflowWrites,
  reply: FastifyReply,
  workflow: Triggerable,
  { id, status, version }: BegunExecution,
): Promise<FastifyReply> {
  const said = { message: 'Workflow triggered successfully', execution: { id, status } }
  if (status === 'failed' || !(await responds(deps, { id: workflow.id, version }))) return reply.send(said)
  const response = await responseOf(deps, id)
  if (response === undefined)
    return reply.code(202).send(status === 'queued' ? { ...said, execution: { id, status: 'running' } } : said)
  const { status: code, body, headers } = response
  for (const [name, value] of Object.entries(headers)) if (answered.test(name)) reply.header(name, value)
  reply.headers(ofStrangers).code(code)
  if (body === null || typeof body === 'string') return reply.send(body)
  // As text it may have any content type.
  if (!reply.hasHeader('content-type')) reply.type(json)
  return reply.send(JSON.stringify(body))
}

/** Other sites can have a browser call here: its cookie says nothing about the caller. */
function callerOf(deps: WorkflowWrites, { caller }: FastifyRequest): Caller {
  return caller.access.byCookie === true ? nobody(deps, caller) : caller
}

function nobody(deps: WorkflowWrites, caller: Caller): Caller {
  const { access } = anonymous(deps)
  const stranger = { userId: undefined, tenantId: undefined, sessionId: undefined, keyId: undefined, user: undefined }
  return { ...caller, ...stranger, role: deps.access.current().publicRole, admin: false, access }
}

/**
 * A webhook decides what it answers, and not how the server speaks, who is signed in, or what a proxy does with the answer
 * (`x-accel-redirect`).
 */
const answered =
  /^(content-(type|disposition|language)|cache-control|etag|expires|last-modified|location|retry-after|vary|x-(?!accel-|sendfile|reproxy|lighttpd-|frame-|content-|xss-|request-|log-|ratelimit-)[\w-]+)$/i

/** Any author of a workflow writes this page, at the address where users are signed in: so it gets an opaque origin. */
const ofStrangers = {
  'content-security-policy': 'sandbox allow-forms allow-scripts',
  'x-content-type-options': 'nosniff',
}

/** The one for the very method comes before one for any. */
function workflowAt({ reserved }: WorkflowWrites, method: string, path: string): Promise<Triggerable | undefined> {
  return reserved.maybeOne<Triggerable>(
    rawQuery(
      `select ${triggerableColumns} from "svc_Workflow" w
       where w.status = 'active' and w."deletedAt" is null and w.trigger_type = 'webhook' and w.trigger_webhook_path = $1
         and coalesce(w.trigger_webhook_method, $2) = $2
       order by w.trigger_webhook_method is null limit 1`,
      [path, method],
    ),
  )
}

const namesRoles = ({ allowed_roles }: Triggerable) => rolesNamed(allowed_roles) !== undefined

/** Tenants share roles: the users of another tenant are not those that a workflow names. */
const isMeant = (deps: WorkflowWrites, workflow: Triggerable, caller: Caller): boolean =>
  !namesRoles(workflow) || caller.userId === undefined || isOfTenant(deps, caller, workflow.tenant_Id)

function requireRole(workflow: Triggerable, { credentialFault: fault }: FastifyRequest, caller: Caller): void {
  if (!namesRoles(workflow) || mayTrigger(workflow, { admin: caller.admin, roleId: caller.role.id })) return
  if (caller.userId === undefined) throw fault === undefined ? errors.unauthorized() : errors.badCredential(fault)
  throw new AppError(403, 'You do not have permission to execute this workflow')
}

/** The nodes' `trigger`: credentials are not part of it. */
async function dataOf(request: FastifyRequest, raw: Buffer, path: string): Promise<Record<string, unknown>> {
  const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !credentials.has(name)))
  const text = decodeAs(request.headers['content-type'], raw)
  if (text === undefined) throw new AppError(415, 'The charset of the request body is not known')
  return {
    body: await bodyOf(request, raw, text),
    rawBody: text,
    query: { ...(request.query as object) },
    headers,
    method: request.method,
    path,
  }
}

const credentials: ReadonlySet<string> = new Set(['authorization', 'cookie', 'proxy-authorization', 'x-api-key'])

/** JSON, forms and CSV as what they say, everything else as text. */
async function bodyOf({ headers }: FastifyRequest, raw: Buffer, text: string): Promise<unknown> {
  const type = headers['content-type'] ?? ''
  if (raw.length === 0) return null
  if (/[/+]json\b/i.test(type)) {
    const json = decodeText(raw, 'The request body')
    if (isTooDeep(json)) throw errors.badBody('The request body is nested too deeply')
    try {
      return JSON.parse(json)
    } catch {
      throw errors.badBody('The request body is no JSON')
    }
  }
  if (/^text\/csv\b/i.test(type)) return rowsOf(Buffer.from(text))
  return /^application\/x-www-form-urlencoded\b/i.test(type) ? formFields(text) : text
}

const mostRecords = 50_000
/** As JSON: each record names its fields again, so they come to more than the text has. */
const largestRows = 8_388_608

/** Objects by the names of the first record. 413 for too many, or too much of them. */
async function rowsOf(raw: Buffer): Promise<readonly Record<string, CsvCell>[]> {
  const rows: Record<string, CsvCell>[] = []
  const breathe = breather()
  let names: readonly string[] | undefined
  try {
    for await (const { cells } of readCsv(piecesOf(raw, breathe), { largestRecord: largestBody })) {
      if (names === undefined) names = cells.map((name, i) => name ?? String(i))
      else rows.push(Object.fromEntries(names.map((name, i) => [name, cells[i] ?? null])))
      const isMuch = names.length > mostFields || rows.length > mostRecords
      if (isMuch || rows.length * sizeOf(names) > largestRows) throw errors.tooManyValues()
      await breathe()
    }
    return rows
  } catch (error) {
    if (error instanceof SyntaxError) throw errors.badBody(`The request body is no CSV: ${error.message}`)
    throw error
  }
}

/** A record of these fields as JSON without its values. */
const sizeOf = oncePer((names: readonly string[]) =>
  names.reduce((size, name) => size + name.length + '"":null,'.length, 0),
)

const pieceSize = 4096

/** The parser reads all that it is given in one turn. */
async function* piecesOf(raw: Buffer, breathe: ReturnType<typeof breather>): AsyncGenerator<Buffer> {
  for (let from = 0; from < raw.length; from += pieceSize) {
    yield raw.subarray(from, from + pieceSize)
    await breathe()
  }
}

/** How far the clock of a sender may be from ours. */
const windowSeconds = 300

/**
 * Where the workflow names a secret, requests are signed with it: by the Standard Webhooks scheme (`webhook-id`,
 * `webhook-timestamp`, `webhook-signature`), or as GitHub does (`x-hub-signature-256`).
 * Gives what tells a message of the former from all others, however long its id: of each, one execution begins.
 */
async function verify(
  deps: WorkflowWrites,
  { options, tenant_Id }: Triggerable,
  { headers }: FastifyRequest,
  raw: Buffer,
): Promise<string | undefined> {
  const { webhookSecret } = optionsOf(options)
  if (webhookSecret === undefined) return undefined
  const [stored] = await secretsNamed(deps, [webhookSecret], tenant_Id ?? undefined)
  const secret = stored && openSecret(deps, stored)
  // The reason is for the operator, not for everybody.
  if (stored !== undefined && secret === undefined) deps.log.error(secretLost(stored.name))
  if (secret === undefined) throw errors.unavailable('The webhook cannot be verified now')
  const text = (name: string) => (typeof headers[name] === 'string' ? (headers[name] as string) : undefined)
  const [messageId, at, signature] = [text('webhook-id'), text('webhook-timestamp'), text('webhook-signature')]
  if (messageId !== undefined && at !== undefined && signature !== undefined) {
    const isLate = Math.abs(deps.clock().getTime() / 1000 - Number(at)) > windowSeconds
    const key = secret.startsWith('whsec_') ? Buffer.from(secret.slice(6), 'base64') : Buffer.from(secret)
    const expected = hmac(key, Buffer.concat([Buffer.from(`${messageId}.${at}.`), raw]))
    const isSigned = signature.split(' ').some((one) => matches(one.replace(/^v1,/, ''), expected.toString('base64')))
    if (!isSigned || !/^\d{1,12}$/.test(at) || isLate) throw unsigned()
    return createHash('sha256').update(messageId).digest('base64url')
  }
  const hub = text('x-hub-signature-256')
  if (hub === undefined || !matches(hub.replace(/^sha256=/, ''), hmac(Buffer.from(secret), raw).toString('hex')))
    throw unsigned()
  return undefined
}

const unsigned = () => new AppError(401, 'The signature of the webhook is not valid', { code: 'INVALID_SIGNATURE' })
const hmac = (key: Buffer, content: Buffer) => createHmac('sha256', key).update(content).digest()

function matches(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Whether the workflow answers by itself. */
async function responds(deps: WorkflowWrites, { id, version }: Pick<Triggerable, 'id' | 'version'>): Promise<boolean> {
  const definition = await definitionFor(deps, { workflow_Id: id, version })
  return readFlow(definition?.flow_data ?? {}, []).nodes.some(({ type }) => type === 'respond')
}

const longestWaitMs = 10_000
const look = { firstMs: 10, longestMs: 150 }

type Response = { readonly status: number; readonly body: unknown; readonly headers: Readonly<Record<string, string>> }

/** The result of its `respond` node; undefined when none comes in time, or it ended without one. */
async function responseOf({ reserved }: WorkflowWrites, executionId: string): Promise<Response | undefined> {
  const until = performance.now() + longestWaitMs
  for (let pause = look.firstMs; performance.now() < until; pause = Math.min(pause * 1.4, look.longestMs)) {
    const found = await reserved.one<{ given: Partial<Response> | null; status: string }>(
      rawQuery(
        `select e.status, (select l."outputData" from "svc_WorkflowExecutionLog" l
           where l."execution_Id" = e.id and l."nodeType" = 'respond' and l.status = 'success' order by l.seq limit 1) as given
         from "svc_WorkflowExecution" e where e.id = $1`,
        [executionId],
      ),
    )
    if (found.given !== null) return readResponse(found.given)
    if (found.status === 'failed') throw new AppError(500, 'The workflow failed')
    if (found.status !== 'queued' && found.status !== 'running') return undefined
    await delay(pause)
  }
  return undefined
}

function readResponse({ status = 200, body, headers }: Partial<Response>): Response {
  const known = Number.isInteger(status) && status >= 200 && status <= 599 ? status : 200
  const given = isObject(headers) ? Object.entries(headers) : []
  const fitting = given.flatMap(([name, value]) => {
    const sent = headerValue(name, String(value))
    return /^[\w-]+$/.test(name) && sent !== undefined ? [[name, sent] as const] : []
  })
  return { status: known, body: body ?? null, headers: Object.fromEntries(fitting) }
}

const controlCharacter = /[\0-\x08\x0a-\x1f\x7f]/

/** Percent-encoded where it is not ASCII, and in an address also where it is a space; undefined for what no header can hold. */
function headerValue(name: string, value: string): string | undefined {
  if (controlCharacter.test(value)) return undefined
  const encoded = name.toLowerCase() === 'location' ? /[^\x21-\x7e]+/g : /[^\t\x20-\x7e]+/g
  return value.toWellFormed().replace(encoded, encodeURIComponent)
}
