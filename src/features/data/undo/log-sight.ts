import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveEnv } from '../../../query/env.ts'
import { readableFields, resolveCondition } from '../../../query/resolve.ts'
import type { Params } from '../../../query/sql.ts'
import type { UndoReads } from './queries.ts'

/** The part of the log that the caller may see: a condition on its rows, as `l`, and the fields of svc_AuditLog. */
export type LogSight = { readonly where: (params: Params) => string; readonly names: ReadonlySet<string> }

/** @throws {AppError} 403 without the permission to read svc_AuditLog */
export function sightOf(deps: UndoReads, access: Access): LogSight {
  const catalog = deps.catalog.current()
  const names = new Set(readableFields(catalog, access, 'svc_AuditLog').map(({ name }) => name))
  const rule = resolveCondition(catalog, access, 'svc_AuditLog', 'read', resolveEnv(deps))
  return { names, where: (params) => (rule === undefined ? 'true' : compileCondition(rule, 'l', params)) }
}

/** Administrators, and roles that may read svc_AuditLog. */
export const mayReadLog = (access: Access): boolean =>
  access.admin || access.grant('svc_AuditLog', 'read') !== undefined

/**
 * The events beside row changes that a caller is told of: those of its own doing, and those that it may read in the log with
 * all that is told of them. A condition on rows of the log, as `l`.
 */
export function factsSeen(deps: UndoReads, access: Access): (params: Params) => string {
  const sight = mayReadLog(access) ? sightOf(deps, access) : undefined
  const isWhole = told.every((name) => sight?.names.has(name) === true)
  return (params) => {
    const own = access.userId === undefined ? 'false' : `l."userId" = ${params.bind(access.userId, 'uuid')}`
    return isWhole ? `(${own} or ${sight!.where(params)})` : own
  }
}

const told = ['type', 'action', 'entityId', 'createdAt']
