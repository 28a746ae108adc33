import { errors } from '../errors.ts'

/** The field of svc_AuditLog that each filter of the routes under `/log` compares. */
const compared = {
  actor: 'userId',
  from: 'createdAt',
  to: 'createdAt',
  collection: 'entity',
  item: 'entityId',
  action: 'action',
  tenant: 'tenant_Id',
  requestId: 'requestId',
  agent: 'agent',
  cause: 'cause',
} as const

type LogFilter = { readonly [Name in keyof typeof compared]?: unknown }

/** The fields of svc_AuditLog that the given filters compare. */
export const logFieldsOf = (filter: LogFilter): readonly string[] =>
  Object.entries(compared).flatMap(([name, field]) => (filter[name as keyof LogFilter] === undefined ? [] : [field]))

/**
 * Refuses a question about fields of svc_AuditLog that the caller may not read: what it finds would tell them.
 *
 * @throws {AppError} 403 for the first field that is not among the readable ones
 */
export function requireLogFields(readable: ReadonlySet<string>, fields: readonly string[]): void {
  const closed = fields.find((field) => !readable.has(field))
  if (closed !== undefined) throw errors.fieldDenied('read', closed)
}
