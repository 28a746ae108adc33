import { namedRules } from '../../../access/access.ts'
import {
  accessOfPrincipal,
  accessOfRole,
  type PrincipalRow,
  principalOf,
  principalSql,
} from '../../../access/principal.ts'
import { type AccessRules, type PermissionRow, type Role, roleIn } from '../../../access/store.ts'
import { goneSignal } from '../../../admission/asker.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { rawQuery } from '../../../db/sql.ts'
import { type Action, AppError } from '../../../errors.ts'
import { type Access, withGrants } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { type ResolvedFilter, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import type { Params } from '../../../query/sql.ts'
import type { ItemReads, ItemWrites } from '../../data/items/items.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

/** The users of roles, and what the rules let each of them do: for questions that are about many at once. */

export type RoleHolder = {
  readonly id: string
  readonly email: string | null
  readonly firstName: string
  readonly lastName: string | null
}

/** One user, or all users of a role at a tenant whom its rule does not tell apart. */
export type Viewer = {
  /** The rights by each of the given rules. */
  readonly accesses: readonly Access[]
  readonly users: number
  /** The first of them. */
  readonly people: readonly RoleHolder[]
}

export type RoleHolders = {
  /** Active users with the role. */
  readonly total: number
  readonly viewers: readonly Viewer[]
  /** Whether the viewers are all of them. */
  readonly complete: boolean
}

type MemberRow = PrincipalRow & { readonly person: RoleHolder }

/**
 * The active users of a role, with their rights by each of some versions of the rules. Where none of these names the caller,
 * users of one tenant are one viewer.
 */
export async function membersOf(
  deps: PermissionReads,
  versions: readonly AccessRules[],
  role: Role,
  { isPersonal, atMost }: { readonly isPersonal: boolean; readonly atMost: number },
): Promise<RoleHolders> {
  const tenants = await tenantsOf(deps, role)
  const total = tenants.reduce((sum, { users }) => sum + users, 0)
  if (!isPersonal) {
    const viewers = tenants.slice(0, atMost).map(({ tenantId, users, people }) => ({
      accesses: versions.map((rules) => accessOfRole(deps, rules, rules.roles.get(role.id)!, tenantId ?? undefined)),
      users,
      people,
    }))
    return { total, viewers, complete: tenants.length <= atMost }
  }
  const rows = await personsOf(deps, versions[0]!, role, atMost)
  const viewers: Viewer[] = []
  for (const { person, ...row } of rows)
    viewers.push({
      accesses: await Promise.all(versions.map((rules) => accessBy(deps, rules, row))),
      users: 1,
      people: [person],
    })
  return { total, viewers, complete: rows.length === total }
}

/** Whether what a permission lets through may depend on the caller, and not on the role alone. */
export function namesCaller({ acls }: AccessRules, row: PermissionRow | undefined): boolean {
  if (row === undefined) return false
  const rules = [row, ...namedRules(row.acl_Ids, acls)].map(({ conditions }) => conditions)
  return JSON.stringify(rules).includes('$CURRENT')
}

async function accessBy(deps: PermissionReads, rules: AccessRules, row: PrincipalRow): Promise<Access> {
  return accessOfPrincipal(deps, await principalOf(deps.db, rules, deps.config.tenancy.enabled, row, deps.log))
}

const personSql = `json_build_object('id', u.id, 'email', u.email, 'firstName', u."firstName", 'lastName', u."lastName")`
/** Named of those who are one viewer. */
export const peopleAtMost = 20

async function tenantsOf({ config, db }: PermissionReads, role: Role) {
  const at = config.tenancy.enabled ? `ur."tenant_Id"::text` : 'null::text'
  return db.any<{ tenantId: string | null; users: number; people: readonly RoleHolder[] }>(
    rawQuery(
      `select m."tenantId", count(*)::int as users, coalesce(json_agg(m.person) filter (where m.nth <= ${peopleAtMost}), '[]') as people
       from (select ${at} as "tenantId", ${personSql} as person,
           row_number() over (partition by ${at} order by ur."createdAt", ur.id) as nth
         from "svc_UserRole" ur join "svc_User" u on u.id = ur."user_Id" and u.status = 'active'
         where ur."role_Id" = $1) m
       group by 1 order by 2 desc, 1`,
      [role.id],
    ),
  )
}

function personsOf({ db }: PermissionReads, { catalog }: AccessRules, role: Role, atMost: number) {
  return db.any<MemberRow>(
    rawQuery(
      `select u.id as "userId", ur."tenant_Id" as "tenantId", ${personSql} as person, ${principalSql(catalog)}
       from "svc_UserRole" ur
       join "svc_User" u on u.id = ur."user_Id" and u.status = 'active'
       join "svc_Role" r on r.id = ur."role_Id"
       left join "svc_Tenant" t on t.id = ur."tenant_Id"
       where ur."role_Id" = $1 order by ur."createdAt", ur.id limit $2`,
      [role.id, atMost],
    ),
  )
}

/** The rows `t` that an access lets through, as SQL; `false` where it refuses the action. */
export function rowsSql(
  deps: PermissionReads,
  access: Access,
  collection: string,
  action: Action,
  params: Params,
): string {
  const condition = attempt(() =>
    resolveCondition(deps.catalog.current(), access, collection, action, resolveEnv(deps)),
  )
  if (condition === 'refused') return 'false'
  return condition === undefined ? 'true' : `coalesce(${compileCondition(condition, 't', params)}, false)`
}

/** A rule that refuses such a request refuses each row. */
function attempt(work: () => ResolvedFilter | undefined): ResolvedFilter | undefined | 'refused' {
  try {
    return work()
  } catch (error) {
    if (error instanceof AppError) return 'refused'
    throw error
  }
}

/** The answer of a statement if it comes in time; otherwise the statement is cancelled and the result undefined. */
export async function within<Result>(
  ms: number,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result | undefined> {
  const ended = AbortSignal.timeout(Math.ceil(ms))
  const gone = goneSignal()
  try {
    return await work(gone === undefined ? ended : AbortSignal.any([ended, gone]))
  } catch (error) {
    if (ended.aborted && gone?.aborted !== true && error instanceof AppError && error.status === 499) return undefined
    throw error
  }
}

/** The capabilities that reads of this folder need. */
export type PermissionReads = ItemReads & CurrentSettings

/** The capabilities that changes of this folder need. */
export type PermissionWrites = ItemWrites & CurrentSettings

/** A role by id or name, or a user by id. */
export type Subject = { readonly role: string } | { readonly user: string }

/** The caller that a question is about, as a request of theirs would be seen. */
export type Party = {
  readonly access: Access
  readonly rules: AccessRules
  /** Undefined for a user without one. */
  readonly role: Role | undefined
  readonly user: { readonly id: string; readonly status: string } | undefined
  readonly tenantId: string | undefined
  /** Why there would be no such request at all. */
  readonly blocked?: string
}

/** The party of a question; 404 for an unknown user or role. */
export async function partyOf(
  deps: PermissionReads,
  { who, tenant }: { readonly who: Subject; readonly tenant: string | undefined },
): Promise<Party> {
  const tenantId = tenant?.toLowerCase()
  return 'user' in who ? userParty(deps, who.user, tenantId) : roleParty(deps, who.role, tenantId)
}

/** 404 where there is none. */
export function requireRole(rules: AccessRules, idOrName: string): Role {
  const role = roleIn(rules, idOrName)
  if (role === undefined) throw new AppError(404, 'Role not found')
  return role
}

async function roleParty(deps: PermissionReads, idOrName: string, tenantId: string | undefined): Promise<Party> {
  const rules = await deps.access.knowing(idOrName)
  const role = requireRole(rules, idOrName)
  const at = deps.config.tenancy.enabled ? tenantId : undefined
  return { access: accessOfRole(deps, rules, role, at), rules, role, user: undefined, tenantId: at }
}

/** In the role at the tenant, else in the oldest one, as at sign-in. */
async function userParty(deps: PermissionReads, userId: string, tenantId: string | undefined): Promise<Party> {
  const rules = deps.access.current()
  const text = `
    select u.id as "userId", ur."tenant_Id" as "tenantId", u.status, ur.id is not null as "hasRole", ${principalSql(rules.catalog)}
    from "svc_User" u
    left join "svc_UserRole" ur on ur."user_Id" = u.id and ($2::text is null or ur."tenant_Id"::text = $2)
    left join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where u.id::text = $1 order by ur."createdAt", ur.id limit 1`
  const at = deps.config.tenancy.enabled ? (tenantId ?? null) : null
  const row = await deps.db.maybeOne<PrincipalRow & { status: string; hasRole: boolean }>(
    rawQuery(text, [userId.toLowerCase(), at]),
  )
  if (row === undefined) throw new AppError(404, 'User not found')
  const user = { id: row.userId, status: row.status }
  if (!row.hasRole) return nobody(deps, rules, user, at)
  const principal = await principalOf(deps.db, rules, deps.config.tenancy.enabled, row, deps.log)
  const { role, tenantId: actual } = principal
  const blocked = row.status === 'active' ? {} : { blocked: `Account is ${row.status}` }
  return { access: accessOfPrincipal(deps, principal), rules, role, user, tenantId: actual, ...blocked }
}

function nobody(
  deps: CurrentCatalog & CurrentSettings,
  rules: AccessRules,
  user: Party['user'],
  tenantId: string | null,
): Party {
  const blocked = tenantId === null ? 'No role is assigned to this account' : 'Access denied for specified tenant'
  const access = withGrants(accessOfRole(deps, rules, rules.publicRole, undefined), () => undefined)
  return { access, rules, role: undefined, user, tenantId: undefined, blocked }
}
