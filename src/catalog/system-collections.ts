/** Rules of system collections: which are logged, who writes their rows, how they are shown. */
import type { Field } from './catalog.ts'

/**
 * THE list of identity collections: credentials, sessions and invitations. Their rows are made by signing in, registering and
 * inviting, and by nothing else: the generic routes never write them, but for what `writersOf` lets end, and a
 * permission for another collection never shows them through a relation.
 */
export const identityCollections: ReadonlySet<string> = new Set([
  'svc_Account',
  'svc_Sessions',
  'svc_Verification',
  'svc_TwoFactor',
  'svc_Passkey',
  'svc_ApiKey',
  'svc_Invite',
])

/** Tables whose changes are no events: the log itself, and state that is read only while it is valid. */
export const unloggedCollections: ReadonlySet<string> = new Set([
  'svc_AuditLog',
  'svc_Sessions',
  'svc_Verification',
  'svc_WebhookDelivery',
  'svc_WorkflowExecutionLog',
])

/** Columns that are null in the log's images: data that passes through a workflow may be large, and is no change of a row. */
export const columnsWithoutImage: ReadonlySet<string> = new Set([
  'svc_WorkflowExecution.trigger_data',
  'svc_WorkflowExecution.context_data',
  'svc_WorkflowExecution.result_data',
])

/** Collections that the generic item routes only read. Invitations can be revoked by them (see `writersOf`). */
export const unwritableCollections: ReadonlySet<string> = new Set([
  'svc_AuditLog',
  'svc_SchemaDefinition',
  'svc_Migration',
  'svc_EmailLog',
  'svc_Webhook',
  'svc_WebhookDelivery',
  'svc_WorkflowExecution',
  'svc_WorkflowExecutionLog',
  'svc_View',
  ...[...identityCollections].filter((name) => name !== 'svc_Invite'),
])

/** Collections that routes of their own write, for those who have the permission. */
export const routedCollections: ReadonlySet<string> = new Set(['svc_Webhook'])

/** Collections whose rows decide what others may do, or what they are sent. */
const administeredCollections: ReadonlySet<string> = new Set([
  'svc_Role',
  'svc_Permission',
  'svc_ACL',
  'svc_Settings',
  'svc_Template',
  'svc_Secret',
])

/** Columns that only the platform writes, by collection. Those of a file describe its content, which alone changes them. */
const columnsOfPlatform = {
  svc_File: ['filename', 'storage', 'storage_folder', 'size', 'type', 'typeProven', 'width', 'height', 'hash'],
  svc_Workflow: ['authority_Id', 'version'],
} as const

/** The columns of a collection that only the platform writes: payloads may repeat them, which means nothing. */
export const platformColumns = (name: string): readonly string[] =>
  name in columnsOfPlatform ? columnsOfPlatform[name as keyof typeof columnsOfPlatform] : []

/** Collections whose rows a route of their own creates, for those who have the permission; they are changed as any other. */
export const createdElsewhere: ReadonlyMap<string, string> = new Map([['svc_File', 'Files are created by POST /files']])

/**
 * Whether rows of a collection say who may do what, what runs or what is sent: an administrator's client writes them only
 * with the scope for that.
 */
export const decidesForOthers = ({ name, system }: { readonly name: string; readonly system: boolean }): boolean =>
  system && name !== 'svc_File'

/**
 * The callers that may write the rows of a collection by the generic routes: `granted` those with a permission,
 * `administrators` they alone, `nobody` no caller at all.
 */
export function writersOf(
  name: string,
  action: 'create' | 'update' | 'delete',
): 'granted' | 'administrators' | 'nobody' {
  // The one way to end another user's session by its row.
  if (name === 'svc_Sessions' && action === 'delete') return 'administrators'
  // An invitation is made by inviting, which makes its secret; it can be revoked and removed.
  if (name === 'svc_Invite' && action === 'create') return 'nobody'
  // Executions are made by triggers; what is over may be thrown away.
  if (name === 'svc_WorkflowExecution' && action === 'delete') return 'granted'
  if (unwritableCollections.has(name)) return 'nobody'
  return administeredCollections.has(name) ? 'administrators' : 'granted'
}

/**
 * The log's images are shown whole and without what is hidden today, also where it was not hidden when it was written.
 */
export const shownFields: ReadonlyMap<string, NonNullable<Field['shownBy']>> = new Map([
  ['svc_AuditLog.changes', { function: 'svc_log.shown', arguments: ['type', 'entity', 'action', 'changes'] }],
])

/** No event is ever updated, so the log has no column for the time of it. */
export const sameFields: ReadonlyMap<string, string> = new Map([['svc_AuditLog.updatedAt', 'createdAt']])
