import type { Field, Relation } from '../../catalog/catalog.ts'
import { errors } from '../../errors.ts'
import { oncePer } from '../../once-per.ts'
import { compileGrant, type FieldGrant, type Grant, grantOf, reaches } from '../../query/access.ts'
import type { PayloadContext } from './payload.ts'

/** Which fields and relations a caller may write (spec/permissions.md §2, §3, §5). */

/** Where a nested payload hangs: the relations that lead to it, and what the request's own collection grants of them. */
export type Via = { readonly root: FieldGrant | undefined; readonly path: readonly string[] }

/** On writes, no fields means none: the opposite of reading. */
export function writeGrant(grant: Grant | undefined): FieldGrant | undefined {
  return grant && compiled(grant)
}

const compiled = oncePer(
  ({ fields }: Grant): FieldGrant => (fields === null ? { granted: [], excluded: [] } : compileGrant(fields)),
)

/**
 * 403 unless the field is granted by the collection's own permission and, in a nested payload, by the path that leads
 * to it. An alias with an id is granted like the foreign key that it stands for, or as a relation.
 */
export function requireField(
  context: PayloadContext,
  grant: Grant | undefined,
  via: Via | undefined,
  field: Field,
  alias: Relation | undefined,
): void {
  if (grant === undefined) return
  const asRelation = (root: FieldGrant | undefined, path: readonly string[]) =>
    alias !== undefined && root !== undefined && reaches(root, [...path, alias.name])
  if (!mayWrite(context, grant, field) && !asRelation(writeGrant(grant), []))
    throw errors.fieldDenied(context.action, field.name)
  if (via?.root === undefined || field.primaryKey) return
  const path = [...via.path, field.name]
  if (grantOf(via.root, path) === undefined && !asRelation(via.root, via.path))
    throw errors.fieldDenied(context.action, path.join('.'))
}

/** 403 unless the relation is granted: `*` is every column, but no relation. */
export function requireRelation(
  { action }: PayloadContext,
  grant: Grant | undefined,
  via: Via | undefined,
  relation: Relation,
): void {
  if (grant === undefined) return
  const path = [...(via?.path ?? []), relation.name]
  const isGranted = reaches(writeGrant(grant)!, [relation.name]) && (via?.root === undefined || reaches(via.root, path))
  if (!isGranted) throw errors.relationDenied(action, path.join('.'))
}

const privilegeFields = new Set(['role_Id', 'tenant_Id', 'userCreated_Id', 'userUpdated_Id', 'emailVerified'])

/** What workers write. A task begins as not started; afterwards only a permission that names the field may reset it. */
const stateOfTask = new Set([
  'task_status',
  'result_data',
  'error_data',
  'retry_count',
  'started_at',
  'progress',
  'progress_message',
  'attempt_token',
  'heartbeat_at',
  'retry_at',
])

/** PROTECT_PRIVILEGE_FIELDS, ALLOW_PASSWORD_WRITES and PROTECT_IS_PUBLIC_FIELD (spec/permissions.md §5). */
export function mayWrite({ collection, config, action }: PayloadContext, grant: Grant, field: Field): boolean {
  const specs = grant.fields ?? []
  if (specs.includes(`-${field.name}`)) return false
  const named = specs.includes(field.name)
  if (collection.name === 'svc_User' && field.name === 'password') return named && config.access.allowPasswordWrites
  if (collection.name === 'svc_Tasks' && stateOfTask.has(field.name)) return named && action === 'update'
  if (field.primaryKey || named) return true
  return (specs.includes('*') || specs.includes('*.*')) && !isPrivileged(collection.name, field, config)
}

function isPrivileged(collection: string, field: Field, { access, files }: PayloadContext['config']): boolean {
  if (collection === 'svc_File' && field.name === 'isPublic') return files.protectIsPublic
  if (!access.protectPrivilegeFields) return false
  // Limits of one's own sessions are set for a user, not by it (quality P-10).
  if (collection === 'svc_User' && field.name === 'session_limits') return true
  return field.hidden || privilegeFields.has(field.name)
}
