import { text } from 'node:stream/consumers'
import { rawQuery } from '../../../db/sql.ts'
import type { Actor } from '../../../events/actor.ts'
import { escapeHtml } from '../../../language/text.ts'
import { changeItems, inTransaction, listItems, type Requester, type Run, readItem } from '../../data/items/items.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import { newNotificationOf, sendNotifications } from '../../messaging/notifications/notifications.ts'
import { type Authority, anonymous, platform } from './authority.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { fill, type TemplateScope } from './expressions.ts'
import type { FlowNode } from './flow.ts'
import { type NodeData, NodeError, statsOperations } from './nodes.ts'

/** The effects of database nodes: part of the transaction that keeps their output. */

/** A node that is to run, and for whom. */
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
  readonly change?: { readonly scope: Run['scope']; readonly msLeft: number }
}

/** The writer of a node in a transaction, by what it says of itself. */
export function requesterOf({ deps, node, authority, actor }: NodeRun, scope: Run['scope'] | undefined): Requester {
  // As saved: no template may raise a node, or lower it.
  const { executeAsAnonymous, bypassPermissions } = node.data
  if (executeAsAnonymous === true) return { actor, access: anonymous(deps, authority.tenantId).access, scope }
  if (bypassPermissions === true && authority.mayBypass) return { actor, access: platform, scope }
  return { actor, access: authority.access, user: authority.user, scope }
}

type DatabaseEffect = (run: NodeRun, transaction: Pick<Run, 'tx' | 'scope'>) => Promise<unknown>

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
export async function serve({ deps, input }: NodeRun, writer: Requester): Promise<unknown> {
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
      return read({ deps, input }, writer, collection)
    default:
      throw new NodeError(`There is no operation ${operation}`)
  }
}

async function read(
  { deps, input }: Pick<NodeRun, 'deps' | 'input'>,
  writer: Requester,
  collection: string,
): Promise<unknown> {
  const { itemId, filter, sort, limit, fields, page, search } = input
  const asked = { ...(fields != null && { fields }) }
  if (itemId != null && itemId !== '')
    return JSON.parse((await readItem(deps, writer, collection, String(itemId), asked)).body)
  const query = {
    ...asked,
    ...(filter != null && filter !== '' && { filter }),
    ...(sort != null && sort !== '' && { sort }),
    ...(page != null && { page }),
    ...(search != null && search !== '' && { search }),
    limit: limit ?? defaultLimit,
  }
  const list = await listItems(deps, writer, collection, query)
  return JSON.parse(typeof list === 'string' ? list : await text(list))
}

function written(
  { ids, rows }: { readonly ids: readonly string[]; readonly rows: readonly string[] | undefined },
  isList: boolean,
) {
  const all = ids.map((id, i) => ({ id: JSON.parse(id), ...(rows && { data: JSON.parse(rows[i]!) }) }))
  return isList ? { ids: all.map(({ id }) => id), ...(rows && { data: all.map(({ data }) => data) }) } : all[0]
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value])

export function nameIn(input: NodeData, member: string): string {
  const value = input[member]
  if (typeof value !== 'string' || value === '') throw new NodeError(`${member} must be a text`)
  return value
}

async function notify(run: NodeRun, { scope }: Pick<Run, 'tx' | 'scope'>): Promise<unknown> {
  const { userId, title, message, type, data } = run.input
  const userIds = typeof userId === 'string' ? userId.split(',').map((one) => one.trim()) : listOf(userId)
  const wanted = { type: type || 'info', title, message: message || title, ...(data != null && { data }), userIds }
  const ids = await sendNotifications(run.deps, requesterOf(run, scope), newNotificationOf(wanted))
  return { id: ids[0], ids }
}

const recipientsAtMost = 50

async function mail(run: NodeRun, { scope }: Pick<Run, 'tx' | 'scope'>): Promise<unknown> {
  const { input } = run
  const to = listOf(input.to)
    .flatMap((one) => String(one ?? '').split(','))
    .map((one) => one.trim())
    .filter((one) => one !== '')
  if (to.length === 0) throw new NodeError('to names nobody')
  if (to.length > recipientsAtMost) throw new NodeError(`to names more than ${recipientsAtMost} addresses`)
  requireSender(run)
  return inTransaction(run.deps, requesterOf(run, scope), (open) => queueMails(run, open, to))
}

async function queueMails(run: NodeRun, { tx, scope }: Pick<Run, 'tx' | 'scope'>, to: readonly string[]) {
  const { input, authority } = run
  await spendMails(run, tx, to.length)
  const body = fill(String(input.body), run.scope, input.escape === false ? (one) => one : escapeHtml)
  const variables = { mail_subject: String(input.subject), mail_body: body }
  const results = []
  for (const address of to) {
    const { emailLogId, event } = await queueMail(tx, {
      ...{ type: 'custom', to: address, context: { template: 'workflow', variables } },
      ...(authority.tenantId !== undefined && { tenantId: authority.tenantId }),
    })
    scope.events.push(event)
    results.push({ to: address, success: true, id: emailLogId })
  }
  return { success: true, sent: results.length, failed: 0, results }
}

/** Mails come from configured senders alone. */
function requireSender({ deps, input, authority }: NodeRun): void {
  const { from } = input
  if (from == null || from === '') return
  const own = deps.settings.current(authority.tenantId).smtp_from_address
  const known = [...Object.values(deps.config.mail.senders).map((sender) => sender.from), own]
  if (!known.includes(String(from))) throw new NodeError('from is not the address of a configured sender')
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
  const { operation, field, groupBy, filter } = input
  const wanted = operation === 'average' ? 'avg' : String(operation)
  if (!statsOperations.includes(wanted)) throw new NodeError(`There is no operation ${operation}`)
  const query = {
    aggregate: { result: { function: wanted, field: field == null || field === '' ? '*' : field } },
    ...(groupBy != null && groupBy !== '' && { groupBy }),
    ...(filter != null && filter !== '' && { filter }),
    limit: 1000,
  }
  const list = await listItems(deps, writer, nameIn(input, 'collection'), query)
  const { data } = JSON.parse(typeof list === 'string' ? list : await text(list))
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
      const { data, totalCount } = (await read({ deps: run.deps, input }, writer, 'svc_File')) as {
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
