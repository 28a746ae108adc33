import { createHash } from 'node:crypto'
import { fetchUrl, UrlFetchError } from '../../../adapters/fetch-url.ts'
import { unseal } from '../../../adapters/sealing.ts'
import type { Configuration } from '../../../config/config.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { Actor } from '../../../events/actor.ts'
import { readAs } from '../../../http/shapes.ts'
import { STATUS_CODES } from '../../../language/node-http.ts'
import { decodeAs, escapeHtml } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'
import { statedRefusal } from '../../data/hooks/hooks.ts'
import {
  changeItems,
  insideScope,
  inTransaction,
  listItems,
  type Requester,
  type Run,
  readItem,
  wholeText,
} from '../../data/items/items.ts'
import { isPlainAddress, queueMail, senderAddress } from '../../messaging/mail/mail.ts'
import { newNotificationOf, sendNotifications } from '../../messaging/notifications/notifications.ts'
import type { ItemsMethod, ScriptRequest } from '../scripts/scripts.ts'
import { type Authority, anonymous, bypassing } from './authority.ts'
import type { HookBudget } from './budget.ts'
import { sealedForWorkflows, type WorkflowWrites } from './capabilities.ts'
import { fill, parsePath, pathsIn, resolve, type TemplateScope, textOf, unfilledIn } from './expressions.ts'
import type { FlowNode } from './flow.ts'
import { isFilled, type NodeData, NodeError, placed, statsOperations, statsQuery } from './nodes.ts'

/** The effects of database nodes: part of the transaction that keeps their output. */

/** A node that is to run, and the user it runs for. */
export type NodeRun = {
  readonly deps: WorkflowWrites
  readonly node: FlowNode
  /** Its data with templates replaced. */
  readonly input: NodeData
  readonly scope: TemplateScope
  readonly authority: Authority
  readonly actor: Actor
  readonly workflowId: string
  /** The same whenever this place of this execution is done. */
  readonly idempotencyKey: string
  /** The change that it is part of, before that is made: then nothing outside can be called. */
  readonly change?: { readonly scope: Run['scope'] | undefined; readonly msLeft: number; readonly budget: HookBudget }
}

/** The run of a node at a place (`step`) of an execution; `change` where it is part of one that is yet to be made. */
export function nodeRunOf(
  party: Pick<NodeRun, 'deps' | 'authority' | 'actor' | 'workflowId'>,
  { node, input, scope, step }: Pick<NodeRun, 'node' | 'input' | 'scope'> & { readonly step: string },
  executionId: string,
  change?: NodeRun['change'],
): NodeRun {
  const { deps, authority, actor, workflowId } = party
  const idempotencyKey = keyOf(executionId, step)
  return { deps, authority, actor, workflowId, node, input, scope, idempotencyKey, ...(change && { change }) }
}

/** The writer of a node in a transaction, by what it says of itself. */
function requesterOf({ deps, node, authority, actor }: NodeRun, scope: Run['scope'] | undefined): Requester {
  // As saved: no template may raise a node, or lower it.
  const { executeAsAnonymous, bypassPermissions } = node.data
  if (executeAsAnonymous === true) return { actor, access: anonymous(deps, authority.tenantId).access, scope }
  if (bypassPermissions === true && authority.mayBypass) return { actor, access: bypassing(deps, authority), scope }
  return { actor, access: authority.access, user: authority.user, scope }
}

/** `scope`: the transaction that it is part of; without one each of its writes has its own. */
type DatabaseEffect = (run: NodeRun, transaction: { readonly scope: Run['scope'] | undefined }) => Promise<unknown>

export const databaseEffects: Readonly<Record<string, DatabaseEffect>> = {
  service: (run, { scope }) => serve(run, requesterOf(run, scope)),
  notification: notify,
  email: mail,
  stats: async (run, { scope }) => {
    const { collection, operation } = run.input
    return { success: true, collection, operation, stats: await statsOf(run, requesterOf(run, scope)) }
  },
  file: (run, { scope }) => fileOf(run, requesterOf(run, scope)),
}

const defaultLimit = 100

/** The four operations of items, as their data say. */
async function serve({ deps, node, input }: NodeRun, writer: Requester): Promise<unknown> {
  const { operation, itemId, data, fields } = input
  const collection = nameIn(input, 'collection')
  const asked = fields === undefined ? {} : { fields }
  const change = (wanted: Parameters<typeof changeItems>[3]) => changeItems(deps, writer, collection, wanted, asked)
  switch (operation) {
    case 'create':
      return written(
        await change({ action: 'create', payloads: listOf(data), asList: Array.isArray(data) }),
        Array.isArray(data),
      )
    case 'update': {
      const ids = listOf(itemId)
      return written(
        await change({ action: 'update', changes: ids.map((id) => ({ id, payload: data })) }),
        Array.isArray(itemId),
      )
    }
    case 'delete':
      return written(await change({ action: 'delete', ids: listOf(itemId) }), Array.isArray(itemId))
    case 'read':
      // The author decides it: a template that comes to nothing must not show the whole list instead of one row.
      return isFilled(node.data.itemId)
        ? readOne({ deps, input }, writer, collection)
        : readList({ deps, input }, writer, collection)
    default:
      throw new NodeError(`There is no operation ${operation}`)
  }
}

type Asked = Pick<NodeRun, 'deps' | 'input'>

const fieldsIn = ({ fields }: NodeData) => (fields == null ? {} : { fields })

/** @throws {NodeError} where `itemId` is empty */
async function readOne({ deps, input }: Asked, writer: Requester, collection: string): Promise<{ data: unknown }> {
  if (!isFilled(input.itemId)) throw new NodeError('itemId is empty: it names no row')
  return JSON.parse((await readItem(deps, writer, collection, String(input.itemId), fieldsIn(input))).body)
}

async function readList({ deps, input }: Asked, writer: Requester, collection: string): Promise<unknown> {
  const { filter, sort, limit, page, search } = input
  const query = {
    ...fieldsIn(input),
    ...(filter != null && filter !== '' && { filter }),
    ...(sort != null && sort !== '' && { sort }),
    ...(page != null && { page }),
    ...(search != null && search !== '' && { search }),
    limit: limit ?? defaultLimit,
  }
  const list = await listItems(deps, writer, collection, query)
  return JSON.parse(await wholeText(list))
}

function written(
  { ids, rows }: { readonly ids: readonly string[]; readonly rows: readonly string[] | undefined },
  isList: boolean,
) {
  const all = ids.map((id, i) => ({ id: JSON.parse(id), ...(rows && { data: JSON.parse(rows[i]!) }) }))
  return isList ? { ids: all.map(({ id }) => id), ...(rows && { data: all.map(({ data }) => data) }) } : all[0]
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value])

function nameIn(input: NodeData, member: string): string {
  const value = input[member]
  if (typeof value !== 'string' || value === '') throw new NodeError(`${member} must be a text`)
  return value
}

async function notify(run: NodeRun, { scope }: Parameters<DatabaseEffect>[1]): Promise<unknown> {
  const { userId, title, message, type, data } = run.input
  const userIds = typeof userId === 'string' ? userId.split(',').map((one) => one.trim()) : listOf(userId)
  const wanted = { type: type || 'info', title, message: message || title, ...(data != null && { data }), userIds }
  const ids = await sendNotifications(run.deps, requesterOf(run, scope), newNotificationOf(wanted))
  return { id: ids[0], ids }
}

const recipientsAtMost = 50

async function mail(run: NodeRun, { scope }: Parameters<DatabaseEffect>[1]): Promise<unknown> {
  const { input } = run
  const to = listOf(input.to)
    .flatMap((one) => String(one ?? '').split(','))
    .map((one) => one.trim())
    .filter((one) => one !== '')
  if (to.length === 0) throw new NodeError('to names nobody')
  if (to.length > recipientsAtMost) throw new NodeError(`to names more than ${recipientsAtMost} addresses`)
  const from = senderIn(run)
  return inTransaction(run.deps, requesterOf(run, scope), (open) => queueMails(run, open, { to, from }))
}

async function queueMails(
  run: NodeRun,
  { tx, scope }: Pick<Run, 'tx' | 'scope'>,
  { to, from }: { readonly to: readonly string[]; readonly from: string | undefined },
) {
  const { input, authority } = run
  const reachable = to.filter(isPlainAddress)
  if (reachable.length === 0) throw new NodeError(`${notAnAddress}: ${to.map((one) => one.slice(0, 100)).join(', ')}`)
  await spendMails(run, tx, reachable.length)
  const body = fill(String(input.body), run.scope, input.escape === false ? undefined : escapeHtml)
  const subject = String(input.subject)
  const variables = { mail_subject: subject, mail_body: body }
  const results = []
  for (const address of to) {
    if (!isPlainAddress(address)) {
      results.push({ to: address, success: false, error: notAnAddress })
      continue
    }
    const { emailLogId, event } = await queueMail(tx, {
      ...{ type: 'custom', to: address, context: { template: 'workflow', variables }, shownSubject: subject },
      ...(authority.tenantId !== undefined && { tenantId: authority.tenantId }),
      ...(from !== undefined && { from }),
    })
    scope.events.push(event)
    results.push({ to: address, success: true, id: emailLogId })
  }
  const failed = to.length - reachable.length
  const texts = [run.node.data.subject, run.node.data.body].map((text) => String(text ?? ''))
  const unfilled = texts.flatMap((text) => unfilledIn(text, run.scope))
  return { success: failed === 0, sent: reachable.length, failed, results, ...(unfilled.length > 0 && { unfilled }) }
}

const notAnAddress = 'Invalid email address'

/** Mails come from configured senders alone; undefined: from the tenant's. */
function senderIn({ deps, input, authority }: NodeRun): string | undefined {
  const { from } = input
  if (from == null || from === '') return undefined
  const address = senderAddress(deps, authority.tenantId, String(from))
  if (address === undefined) throw new NodeError('from is not the address of a configured sender')
  return address
}

/** A workflow that anybody may trigger is no open relay. */
async function spendMails({ deps, workflowId }: NodeRun, tx: Run['tx'], count: number): Promise<void> {
  const { mails } = await tx.one<{ mails: number }>(
    rawQuery(
      `insert into "svc_WorkflowUse" as u ("workflow_Id", "mailHour", mails) values ($1, date_trunc('hour', now()), $2)
       on conflict ("workflow_Id") do update set "mailHour" = excluded."mailHour",
         mails = excluded.mails + case when u."mailHour" = excluded."mailHour" then u.mails else 0 end
       returning mails`,
      [workflowId, count],
    ),
  )
  const most = deps.config.workflows.mailsPerHour
  if (mails > most) throw new NodeError(`The workflow has sent its ${most} mails of this hour (WORKFLOW_MAIL_PER_HOUR)`)
}

async function statsOf({ deps, input }: NodeRun, writer: Requester): Promise<unknown> {
  const { operation, groupBy } = input
  if (!statsOperations.includes(String(operation))) throw new NodeError(`There is no operation ${operation}`)
  const list = await listItems(deps, writer, nameIn(input, 'collection'), { ...statsQuery(input), limit: 1000 })
  const { data } = JSON.parse(await wholeText(list))
  return groupBy == null || groupBy === '' ? data[0] : data
}

async function fileOf(run: NodeRun, writer: Requester): Promise<unknown> {
  const { operation, fileId, filter, limit } = run.input
  const done = { success: true, operation }
  switch (operation) {
    case 'info': {
      const { body } = await readItem(run.deps, writer, 'svc_File', String(fileId), {})
      return { ...done, file: JSON.parse(body).data }
    }
    case 'list': {
      const input = { filter, limit: limit ?? defaultLimit, sort: '-createdAt' }
      const { data, totalCount } = (await readList({ deps: run.deps, input }, writer, 'svc_File')) as {
        data: unknown
        totalCount: number
      }
      return { ...done, files: data, totalCount }
    }
    case 'delete':
      // Its content goes when no row names it any more.
      await changeItems(run.deps, writer, 'svc_File', { action: 'delete', ids: [fileId] })
      return { ...done, fileId }
    default:
      throw new NodeError(`There is no operation ${operation}`)
  }
}

/** The effects of nodes outside of the database: at least once, under one key. */

const defaultTimeoutMs = 30_000
const largestAnswer = 1_000_000
const withBody: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** Calls an address. An answer of any status is an output; with `retries`, 429 and 5xx are failures. */
export async function callHttp(run: NodeRun): Promise<unknown> {
  const { deps, input } = run
  const secrets = await openSecrets(run)
  const url = String(secrets.fill('url'))
  const method = String(input.method ?? 'GET').toUpperCase()
  const given = secrets.fill('headers') ?? {}
  const body = withBody.has(method) && input.body != null ? secrets.fill('body') : undefined
  const isText = typeof body === 'string'
  const headers = {
    ...(body !== undefined && !isText && { 'content-type': 'application/json' }),
    'idempotency-key': run.idempotencyKey,
    ...(run.actor.logRequestId !== undefined && {
      'daybook-cause': `${run.actor.logRequestId}/${(run.actor.cause?.depth ?? 0) + 1}`,
    }),
    ...headersOf(given),
  }
  secrets.requireHost(url)
  try {
    const answer = await fetchUrl(url, {
      ...{
        method,
        headers,
        timeoutMs: Math.min(Number(input.timeout ?? defaultTimeoutMs), 120_000),
        maxBytes: largestAnswer,
      },
      ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
      allowPrivate: deps.config.files.allowPrivateUrlFetch,
    })
    const content = secrets.strike(answerText(answer))
    const shown = Object.fromEntries(
      Object.entries(answer.headers)
        .filter(([name]) => name !== 'set-cookie')
        .map(([name, value]) => [name, secrets.strike(String(value))]),
    )
    const output = {
      status: answer.status,
      statusText: STATUS_CODES[answer.status] ?? '',
      headers: shown,
      data: dataOf(content, shown),
    }
    const isBusy = answer.status === 429 || answer.status >= 500
    if (isBusy && Number(input.retries ?? 0) > 0) throw new Retryable(`The address answered ${answer.status}`)
    return output
  } catch (error) {
    if (!(error instanceof UrlFetchError)) throw error
    const message = secrets.strike(error.message)
    throw error.reason === 'address' || error.reason === 'size' ? new NodeError(message) : new Retryable(message)
  }
}

/** A failure that passes, perhaps. */
export class Retryable extends NodeError {}

/** JSON as what it says, where it says that it is JSON. */
function dataOf(content: string, headers: Readonly<Record<string, string>>): unknown {
  if (!/[/+]json\b/i.test(headers['content-type'] ?? '')) return content
  try {
    return JSON.parse(content)
  } catch {
    return content
  }
}

function headersOf(given: unknown): Record<string, string> {
  if (!isObject(given)) throw new NodeError('headers must be an object')
  const entries = Object.entries(given).map(([name, value]) => [name.toLowerCase(), String(value)] as const)
  for (const [name, value] of entries) {
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(name) || /[^\t\x20-\x7e\x80-\xff]/.test(value))
      throw new NodeError(`The header ${name} cannot be sent`)
    if (hopHeaders.has(name)) throw new NodeError(`The header ${name} is not yours to set`)
  }
  return Object.fromEntries(entries)
}

const hopHeaders: ReadonlySet<string> = new Set([
  'host',
  'connection',
  'content-length',
  'transfer-encoding',
  'upgrade',
  'te',
  'trailer',
])

type Secret = { readonly name: string; readonly value: string; readonly hosts: unknown }

/**
 * The secrets that the node names as it was saved: filled in here, and nowhere else. A template that comes with the data, from
 * the user who triggered the workflow, is text.
 */
async function openSecrets({ deps, node, input, scope, authority }: NodeRun) {
  const { url, headers, body } = node.data
  const names = pathsIn([url, headers, body]).flatMap((path) => {
    const [root, name] = parsePath(path) ?? []
    return root === 'secrets' && name !== undefined ? [name] : []
  })
  const rows = names.length === 0 ? [] : await secretsNamed(deps, names, authority.tenantId)
  const missing = names.find((name) => !rows.some((row) => row.name === name))
  if (missing !== undefined) throw new NodeError(`There is no secret ${missing}`)
  if (rows.length > 0 && !authority.mayBypass)
    throw new NodeError('Secrets are for workflows that an administrator has saved')
  const values = new Map(rows.map((row) => [row.name, opened(deps, row)]))
  const secrets = Object.fromEntries(values)
  return {
    /** A member of the node's data with its secrets. */
    fill: (member: 'url' | 'headers' | 'body') =>
      rows.length === 0 ? input[member] : resolve(node.data[member], { ...scope, secrets }),
    strike: (said: string) => [...values.values()].reduce((rest, value) => rest.replaceAll(value, '********'), said),
    /** Only to the hosts that each of them lists. */
    requireHost(url: string) {
      const { host, hostname } = URL.parse(url) ?? { host: 'this address', hostname: '' }
      for (const { name, hosts } of rows)
        if (!Array.isArray(hosts) || !hosts.some((one) => [host, hostname].includes(String(one).toLowerCase())))
          throw new NodeError(`The secret ${name} may not be sent to ${host}`)
    },
  }
}

function opened(deps: Configuration, secret: Secret): string {
  const text = openSecret(deps, secret)
  if (text === undefined) throw new NodeError(secretLost(secret.name))
  return text
}

/** Undefined where no key opens it. */
export const openSecret = ({ config }: Configuration, { value }: Secret): string | undefined =>
  unseal(config, sealedForWorkflows, value)?.text

export const secretLost = (name: string): string =>
  `The secret ${name} cannot be read with the present SECRET_KEY: set it again, or set SECRET_KEY_PREVIOUS to the former key`

/** Of the tenant, else of all. */
export async function secretsNamed(
  { reserved }: WorkflowWrites,
  names: readonly string[],
  tenantId: string | undefined,
): Promise<readonly Secret[]> {
  return reserved.any<Secret>(
    rawQuery(
      `select distinct on (name) name, value, hosts from "svc_Secret"
       where name = any($1::text[]) and ("tenant_Id" is null or "tenant_Id" = $2) order by name, "tenant_Id" nulls last`,
      [names, tenantId ?? null],
    ),
  )
}

const longestScriptMs = 30_000

/** Runs a script; what it asks for is done with the rights of its node. */
export async function runScriptNode(run: NodeRun): Promise<unknown> {
  const { deps, node, scope, authority, workflowId, change } = run
  const { scripts } = deps.workflows
  if (scripts === undefined) throw new NodeError('No scripts run here')
  if (!authority.mayBypass) throw new NodeError('Scripts are for workflows that an administrator has saved')
  const { ScriptError } = await import('../scripts/scripts.ts')
  try {
    const { value, logs } = await scripts.run(
      {
        ...{ code: String(node.data.script), context: scope, turn: workflowId },
        ...(change !== undefined && {
          isQuick: true,
          limits: { passedMs: Math.min(longestScriptMs, Math.ceil(change.msLeft)) },
        }),
      },
      {
        items: (method, args) => itemsCall(run, method, args),
        fetch: change === undefined ? (wanted) => fetchFor(run, wanted) : undefined,
        modules: modulesFor(run),
      },
    )
    if (node.type === 'transform') return value ?? null
    return { success: true, result: value ?? null, ...(logs.length > 0 && { logs }) }
  } catch (error) {
    if (!(error instanceof ScriptError)) throw error
    const { fault, message, stack = [], status } = error.failure
    if (change !== undefined && isOver(change, fault)) throw change.budget.over(workflowId)
    const isRefusal = status !== undefined && status >= 400 && status <= 499
    throw new NodeError(isRefusal ? message : placed(message, stack[0]), isRefusal ? status : undefined, error)
  }
}

/** Also where what it had called took all of the time, as the workflow of a row that it wrote. */
const isOver = ({ msLeft, budget }: Required<NodeRun>['change'], fault: string | undefined): boolean =>
  fault === 'time' ? msLeft < longestScriptMs : performance.now() > budget.deadline

/** Functions of extensions. Before a change what they do with their context is part of it. */
function modulesFor({ deps, change, workflowId }: NodeRun) {
  const called =
    (module: string, name: string, work: (...args: never[]) => unknown) =>
    async (...args: never[]) => {
      try {
        const begin = async () => work(...args)
        return (await (change?.scope === undefined ? begin() : insideScope(deps, change.scope, begin))) ?? null
      } catch (error) {
        const refusal = statedRefusal(error)
        if (refusal !== undefined) throw refusal
        // A script learns nothing of an unexpected error; the log of the process has it for the operator.
        deps.log.error(
          { err: error, workflow: workflowId, function: `${module}.${name}` },
          'a function of an extension failed',
        )
        throw error
      }
    }
  return Object.fromEntries(
    [...deps.workflows.modules].map(([module, functions]) => [
      module,
      Object.fromEntries(Object.entries(functions).map(([name, work]) => [name, called(module, name, work)])),
    ]),
  )
}

/** A script gets the error of a node in its words. */
async function itemsCall(...call: Parameters<typeof itemsAnswer>): Promise<unknown> {
  try {
    return await itemsAnswer(...call)
  } catch (error) {
    throw error instanceof NodeError ? new AppError(400, error.message, { cause: error }) : error
  }
}

/** A script's call on items; within a change it is part of that change. */
async function itemsAnswer(run: NodeRun, method: ItemsMethod, args: readonly unknown[]): Promise<unknown> {
  const [collection, one, two] = args
  const writer = requesterOf(run, run.change?.scope)
  const ask = (input: NodeData) => serve({ ...run, input }, writer)
  const askedBy = (query: unknown, more: object = {}) => ({ deps: run.deps, input: { ...(query as object), ...more } })
  switch (method) {
    case 'read':
      return readList(askedBy(one), writer, nameIn({ collection }, 'collection'))
    case 'readOne':
      return (await readOne(askedBy(two, { itemId: one }), writer, nameIn({ collection }, 'collection'))).data
    case 'create':
      return ask({ operation: 'create', collection, data: one })
    case 'update':
      return ask({ operation: 'update', collection, itemId: one, data: two })
    case 'delete':
      return ask({ operation: 'delete', collection, itemId: one })
    case 'aggregate': {
      const list = await listItems(
        run.deps,
        writer,
        nameIn({ collection }, 'collection'),
        one as Record<string, unknown>,
      )
      return JSON.parse(await wholeText(list))
    }
  }
}

function answerText({ headers, body }: Awaited<ReturnType<typeof fetchUrl>>): string {
  const text = decodeAs(headers['content-type'], body)
  if (text === undefined) throw new NodeError('The charset of the answer is not known')
  return text
}

/** A script knows no secrets; it may go where an `http` node may. */
async function fetchFor({ deps }: NodeRun, { url, method = 'GET', headers = {}, body }: ScriptRequest) {
  try {
    const answer = await fetchUrl(url, {
      ...{ method, headers: headersOf(headers), timeoutMs: defaultTimeoutMs, maxBytes: largestAnswer },
      ...(body !== undefined && { body }),
      allowPrivate: deps.config.files.allowPrivateUrlFetch,
    })
    const shown = Object.fromEntries(Object.entries(answer.headers).map(([name, value]) => [name, String(value)]))
    const { status } = answer
    return { status, statusText: STATUS_CODES[status] ?? '', headers: shown, text: answerText(answer) }
  } catch (error) {
    if (error instanceof UrlFetchError) throw new AppError(400, error.message)
    throw error
  }
}

/** A node of an extension; its data are read by its own shape. */
export async function runExtensionNode(run: NodeRun, signal: AbortSignal): Promise<unknown> {
  const known = run.deps.workflows.nodes.get(run.node.type)
  if (known === undefined) throw new NodeError(`There is no node type ${run.node.type}`)
  const { idempotencyKey } = run
  try {
    const output = await known.handler(readAs(known.input, run.input) as NodeData, { idempotencyKey, signal })
    // As it is kept: what is no JSON fails the node here, and is not done again and again.
    return JSON.parse(JSON.stringify(output ?? null) ?? 'null')
  } catch (error) {
    throw new NodeError(error instanceof Error ? error.message : textOf(error), undefined, error)
  }
}

/** The key of one place of one execution: the same however often it is done. */
function keyOf(executionId: string, step: string): string {
  return createHash('sha256').update(`${executionId} ${step}`).digest('base64url').slice(0, 32)
}
