import { rawQuery } from '../../db/sql.ts'
import { type Action, AppError, errors } from '../../errors.ts'
import { type Access, withGrants } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'
import { accessOfPrincipal, accessOfRole, type PrincipalRow, principalOf, principalSql } from './principal.ts'
import type { AccessRules, Role } from './store.ts'

export type ExplainQuery = {
  readonly collection: string
  readonly action: Action
  readonly who: { readonly role: string } | { readonly user: string }
  readonly tenant: string | undefined
  readonly id: string | undefined
  readonly field: string | undefined
}

/** Whom a question is about, as a request of theirs would be seen. */
export type Subject = {
  readonly access: Access
  readonly rules: AccessRules
  /** Undefined for a user without one. */
  readonly role: Role | undefined
  readonly user: { readonly id: string; readonly status: string } | undefined
  readonly tenantId: string | undefined
  /** Why there would be no such request at all. */
  readonly blocked?: string
}

const actions: ReadonlySet<string> = new Set(['create', 'read', 'update', 'delete'])

/** 400 with what is missing or repeated. */
export function readExplainQuery(raw: Readonly<Record<string, unknown>>): ExplainQuery {
  const text = (name: string) => {
    const value = raw[name]
    if (value !== undefined && typeof value !== 'string') throw errors.badQuery(`${name}: is repeated`)
    return value === '' ? undefined : value
  }
  const [collection, action, role, user] = ['collection', 'action', 'role', 'user'].map(text)
  if (collection === undefined) throw errors.badQuery('collection: is required')
  if (action === undefined || !actions.has(action))
    throw errors.badQuery('action: must be create, read, update or delete')
  if ((role === undefined) === (user === undefined)) throw errors.badQuery('either role or user is required')
  const who = user === undefined ? { role: role! } : { user }
  return { collection, action: action as Action, who, tenant: text('tenant'), id: text('id'), field: text('field') }
}

export async function subjectOf(rt: Runtime, { who, tenant }: ExplainQuery): Promise<Subject> {
  const tenantId = tenant?.toLowerCase()
  return 'user' in who ? userSubject(rt, who.user, tenantId) : roleSubject(rt, who.role, tenantId)
}

function roleSubject(rt: Runtime, idOrName: string, tenantId: string | undefined): Subject {
  const rules = rt.access.current()
  const role = rules.roles.get(idOrName) ?? [...rules.roles.values()].find(({ name }) => name === idOrName)
  if (role === undefined) throw new AppError(404, 'Role not found')
  const at = rt.config.tenancy.enabled ? tenantId : undefined
  return { access: accessOfRole(rt, rules, role, at), rules, role, user: undefined, tenantId: at }
}

/** In the role at the tenant, else in the oldest one, as at sign-in. */
async function userSubject(rt: Runtime, userId: string, tenantId: string | undefined): Promise<Subject> {
  const rules = rt.access.current()
  const text = `
    select u.id as "userId", ur."tenant_Id" as "tenantId", u.status, ur.id is not null as "hasRole", ${principalSql(rules.catalog)}
    from "svc_User" u
    left join "svc_UserRole" ur on ur."user_Id" = u.id and ($2::text is null or ur."tenant_Id"::text = $2)
    left join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where u.id::text = $1 order by ur."createdAt", ur.id limit 1`
  const at = rt.config.tenancy.enabled ? (tenantId ?? null) : null
  const row = await rt.db.maybeOne<PrincipalRow & { status: string; hasRole: boolean }>(
    rawQuery(text, [userId.toLowerCase(), at]),
  )
  if (row === undefined) throw new AppError(404, 'User not found')
  const user = { id: row.userId, status: row.status }
  if (!row.hasRole) return nobody(rt, rules, user, at)
  const principal = await principalOf(rt.db, rules, rt.config.tenancy.enabled, row, rt.log)
  const { role, tenantId: actual } = principal
  const blocked = row.status === 'active' ? {} : { blocked: `Account is ${row.status}` }
  return { access: accessOfPrincipal(rt, principal), rules, role, user, tenantId: actual, ...blocked }
}

function nobody(rt: Runtime, rules: AccessRules, user: Subject['user'], tenantId: string | null): Subject {
  const blocked = tenantId === null ? 'No role is assigned to this account' : 'Access denied for specified tenant'
  const access = withGrants(accessOfRole(rt, rules, rules.publicRole, undefined), () => undefined)
  return { access, rules, role: undefined, user, tenantId: undefined, blocked }
}
