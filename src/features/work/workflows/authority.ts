import {
  accessOfPrincipal,
  accessOfRole,
  type PrincipalRow,
  principalOf,
  principalSql,
} from '../../../access/principal.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { rawQuery } from '../../../db/sql.ts'
import { type Access, type Grant, systemAccess } from '../../../query/access.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { NodeError } from './nodes.ts'

/**
 * The authority of an execution. A workflow that an administrator saved acts as the user who triggers it, or as the public role;
 * a workflow of another author acts as that author, with their present rights and never more.
 */

/** The scope of a program's token. */
export type AccessScope = NonNullable<Access['scope']>

/** The users behind an execution. */
type Behind = {
  readonly authority_Id: string | null
  /** The tenant of the workflow. */
  readonly workflowTenant: string | null
  /** The user who asked for it; null without one. */
  readonly caller_Id: string | null
  /** The scope of the program that asked in the caller's name. */
  readonly caller_scope?: AccessScope | null | undefined
  /** The tenant of what triggered it. */
  readonly tenant_Id: string | null
}

export type Authority = {
  /** The rights of its nodes. */
  readonly access: Access
  /** The user whose rights these are, if any: the caller of the workflows that it calls. */
  readonly userId: string | null
  readonly user: Readonly<Record<string, unknown>> | undefined
  /** The tenant of the execution: of its workflow, or else of what triggered it. */
  readonly tenantId: string | undefined
  /** Whether an administrator saved it: then nodes may bypass permissions where they say so. */
  readonly mayBypass: boolean
}

/** @throws {NodeError} where its author may not act any more, or who triggered it is gone */
export async function authorityOf(deps: WorkflowWrites, behind: Behind): Promise<Authority> {
  const { authority_Id, workflowTenant, caller_Id, caller_scope, tenant_Id } = behind
  if (authority_Id === null) throw new NodeError('The workflow has no author: somebody has to save it')
  const author = await partyOf(deps, authority_Id, workflowTenant)
  if (author === undefined)
    throw new NodeError(
      'The author of the workflow is not active any more, or has no role: somebody else has to save it',
    )
  if (!author.access.admin) return { ...author, userId: authority_Id, mayBypass: false }
  if (caller_Id === null) return { ...anonymous(deps, tenant_Id ?? undefined), mayBypass: true }
  const caller = await partyOf(deps, caller_Id, tenant_Id)
  if (caller === undefined)
    throw new NodeError('The user who triggered the workflow is not active any more, or has no role')
  // A program's call gives the workflow no more rights than the program has.
  const access = caller_scope == null ? caller.access : { ...caller.access, scope: caller_scope }
  // An administrator has no tenant; the workflow may have one.
  const tenantId = deps.config.tenancy.enabled ? (tenant_Id ?? caller.tenantId) : undefined
  return { ...caller, tenantId, access, userId: caller_Id, mayBypass: true }
}

type ActingParty = Pick<Authority, 'access' | 'user' | 'tenantId'>

/** The role `public`. */
export function anonymous(deps: WorkflowWrites, tenantId?: string): Omit<Authority, 'mayBypass'> {
  const rules = deps.access.current()
  const tenant = deps.config.tenancy.enabled ? tenantId : undefined
  return {
    access: accessOfRole(deps, rules, rules.publicRole, tenant),
    userId: null,
    user: undefined,
    tenantId: tenant,
  }
}

/** The platform's own rights. */
export const platform: Access = systemAccess

/**
 * The rights of a node that bypasses permissions: the platform's own, but in an execution of a tenant no more than every
 * permission there, so that it reads and writes the rows of that tenant alone.
 */
export function bypassing(deps: WorkflowWrites, { tenantId, access }: Authority): Access {
  if (tenantId === undefined) return platform
  const { catalog } = deps.access.current()
  return {
    ...{ admin: false, roleId: '', userId: undefined, tenantId, tenantSpecific: true },
    grant: (name) => {
      const collection = catalog.collections.get(name)
      return collection === undefined ? undefined : everythingAt(tenantId, collection)
    },
    variable: (name, path) => {
      if (name !== 'CURRENT_TENANT') return undefined
      return path.length === 0 ? tenantId : access.tenantId === tenantId ? access.variable(name, path) : undefined
    },
  }
}

const deepest = 8

/**
 * Undefined for what belongs to users and not to tenants. Fields that a wildcard leaves out are named: the platform may
 * set them.
 */
function everythingAt(tenantId: string, { name, system, fields }: Collection): Grant | undefined {
  if (system && fields.has('user_Id') && !fields.has('tenant_Id')) return undefined
  const wildcards = Array.from({ length: deepest }, (_, i) =>
    Array(i + 1)
      .fill('*')
      .join('.'),
  )
  const conditions = name === 'svc_Tenant' ? { id: tenantId } : null
  return { fields: [...fields.keys(), ...wildcards], conditions, relConditions: null, defaultValues: null }
}

type KeptParty = { readonly party: Promise<ActingParty | undefined>; readonly rules: object; readonly until: number }

/** As sessions are: a suspended user may act for a second more. */
const keptMs = 1000
const keptAtMost = 1000
const parties = new WeakMap<object, Map<string, KeptParty>>()

/** A user in their role at a tenant; undefined for a user who may not act. */
export async function partyOf(
  deps: WorkflowWrites,
  userId: string,
  tenantId: string | null,
): Promise<ActingParty | undefined> {
  const rules = deps.access.current()
  const key = `${userId} ${tenantId ?? ''}`
  const kept = parties.get(deps) ?? new Map<string, KeptParty>()
  parties.set(deps, kept)
  const known = kept.get(key)
  if (known !== undefined && known.rules === rules && known.until > performance.now()) return known.party
  if (kept.size >= keptAtMost) kept.clear()
  const party = readParty(deps, userId, tenantId)
  kept.set(key, { party, rules, until: performance.now() + keptMs })
  party.catch(() => kept.delete(key))
  return party
}

async function readParty(
  deps: WorkflowWrites,
  userId: string,
  tenantId: string | null,
): Promise<ActingParty | undefined> {
  const rules = deps.access.current()
  const { enabled } = deps.config.tenancy
  const row = await deps.reserved.maybeOne<PrincipalRow>(
    rawQuery(
      `select u.id as "userId", ur."tenant_Id" as "tenantId", ${principalSql(rules.catalog)}
       from "svc_User" u
       join "svc_UserRole" ur on ur."user_Id" = u.id and ($2::uuid is null or ur."tenant_Id" = $2 or ur."tenant_Id" is null)
       join "svc_Role" r on r.id = ur."role_Id"
       left join "svc_Tenant" t on t.id = ur."tenant_Id"
       where u.id = $1 and u.status = 'active'
       order by ur."tenant_Id" is not distinct from $2 desc, ur."createdAt", ur.id limit 1`,
      [userId, enabled ? tenantId : null],
    ),
  )
  if (row === undefined) return undefined
  const principal = await principalOf(deps.reserved, rules, enabled, row, deps.log)
  // A workflow is no fresh proof of a user's identity: it may do what a key of theirs may.
  const access = { ...accessOfPrincipal(deps, principal), byKey: true }
  return { access, user: principal.user, tenantId: principal.tenantId }
}
