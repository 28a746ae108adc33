import { errors, type FieldProblem } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'

const actions = new Set(['create', 'read', 'update', 'delete'])

/**
 * The payload of a permission, refused (400) where it could not mean anything: an unknown collection or action, fields
 * that are neither text nor a list of texts, conditions that are no filter. What it names may still come and go later;
 * a stored rule that no longer makes sense matches nothing.
 */
export function checkPermission(rt: Runtime, body: unknown): Record<string, unknown> {
  if (body === null || typeof body !== 'object' || Array.isArray(body))
    throw errors.badBody('Request body must be an object')
  const permission = body as Record<string, unknown>
  const problems = [...Object.entries(checks)].flatMap(([field, check]): FieldProblem[] => {
    const message = check(permission[field], rt)
    return message === undefined ? [] : [{ field, message, rule: 'permission' }]
  })
  if (problems.length > 0) throw errors.validation(problems)
  return permission
}

type Check = (value: unknown, rt: Runtime) => string | undefined

const checks: Readonly<Record<string, Check>> = {
  role_Id: (value) => (typeof value === 'string' ? undefined : 'is required'),
  collection: (value, rt) =>
    typeof value === 'string' && rt.catalog.current().collections.has(value) ? undefined : 'is not a known collection',
  action: (value) =>
    typeof value === 'string' && actions.has(value) ? undefined : 'must be create, read, update or delete',
  fields: (value) => (isFieldList(value) ? undefined : 'must be text or a list of texts'),
  conditions: isFilter,
  relConditions: isFilter,
  defaultValues: isFilter,
}

function isFieldList(value: unknown): boolean {
  if (value === undefined || value === null || typeof value === 'string') return true
  return Array.isArray(value) && value.every((spec) => typeof spec === 'string')
}

function isFilter(value: unknown): string | undefined {
  const fits = value === undefined || value === null || (typeof value === 'object' && !Array.isArray(value))
  return fits ? undefined : 'must be an object'
}
