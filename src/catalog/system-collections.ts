import type { CollectionDefinition, Field } from './catalog.ts'
import { file } from './system/files.ts'
import { auditLog, migration, schemaDefinition, settings } from './system/installation.ts'
import { emailLog, notification, template } from './system/mail.ts'
import { acl, invite, permission, role, tenant, user, userPreference, userRole } from './system/people.ts'
import { account, apiKey, passkey, sessions, twoFactor, verification } from './system/sign-in.ts'
import { tasks } from './system/tasks.ts'
import { workflow, workflowExecution, workflowExecutionLog } from './system/workflows.ts'

/**
 * The system collections of `spec/schemas.md` §5 and §6, declared in the shape of user collections. The first
 * migration creates them; afterwards the stored definition counts (an installation may add fields to some of them).
 */

/** Tables whose changes are no events: the log itself, and state that is read only while it is valid (design §4). */
export const unloggedCollections: ReadonlySet<string> = new Set(['svc_AuditLog', 'svc_Sessions', 'svc_Verification'])

/** Collections that the generic item routes only read. */
export const unwritableCollections: ReadonlySet<string> = new Set([
  'svc_AuditLog',
  'svc_SchemaDefinition',
  'svc_Migration',
  'svc_Sessions',
  'svc_Verification',
  'svc_EmailLog',
  'svc_TwoFactor',
  'svc_Passkey',
  'svc_ApiKey',
])

/**
 * The log's images are shown whole and without what is hidden today, also where it was not hidden when it was written
 * (design §4, auth facts §14).
 */
export const shownFields: ReadonlyMap<string, NonNullable<Field['shownBy']>> = new Map([
  ['svc_AuditLog.changes', { function: 'svc_log.shown', arguments: ['type', 'entity', 'action', 'changes'] }],
])

/** No event is ever updated, so the log has no column for the time of it. */
export const sameFields: ReadonlyMap<string, string> = new Map([['svc_AuditLog.updatedAt', 'createdAt']])

export const systemCollections: readonly CollectionDefinition[] = [
  schemaDefinition,
  migration,
  auditLog,
  tenant,
  role,
  permission,
  user,
  userRole,
  sessions,
  account,
  verification,
  twoFactor,
  passkey,
  apiKey,
  file,
  tasks,
  emailLog,
  notification,
  settings,
  invite,
  userPreference,
  template,
  acl,
  workflow,
  workflowExecution,
  workflowExecutionLog,
]
