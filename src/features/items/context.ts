import type { Collection } from '../../catalog/catalog.ts'
import { type Action, errors } from '../../errors.ts'
import type { Actor } from '../../events/types.ts'
import { type Access, type Grant, withGrants } from '../../query/access.ts'
import { compileCondition } from '../../query/compile.ts'
import { type ResolveEnv, resolveCondition } from '../../query/resolve.ts'
import type { Params } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'
import type { PayloadContext } from './payload.ts'
import { resolveEnv } from './reads.ts'
import type { Scope } from './run.ts'
import { checkWritable } from './system-rules.ts'

/** Who writes, and what they may. */
export type Writer = {
  readonly actor: Actor
  readonly access: Access
  /** The own row of the user, as hooks are shown it. */
  readonly user?: Readonly<Record<string, unknown>> | undefined
  /** The session that stays when its user is given another password. */
  readonly sessionId?: string | undefined
  /** The transaction to write in; without one the write has its own. */
  readonly scope?: Scope | undefined
}

export type ChangeAction = Exclude<Action, 'read'>

/** What decides what one kind of change of one collection may do. */
export type WriteContext = Omit<PayloadContext, 'action'> & {
  readonly action: ChangeAction
  readonly env: ResolveEnv
  /** Undefined for administrators. */
  readonly grant: Grant | undefined
}

export type OpenOptions = {
  /** The rows are written as part of a row of another collection. */
  readonly asPart?: boolean
}

/**
 * 404 for an unknown collection, 403 for one that the caller may not change so. The rows of a junction are the
 * relation itself: where the caller has no grant of its own for them and they are written as part of their parent,
 * the parent's grant of the relation is enough, as it is for reading them.
 */
export function openWrite<A extends ChangeAction>(
  rt: Runtime,
  { access }: Writer,
  name: string,
  action: A,
  { asPart = false }: OpenOptions = {},
): WriteContext & { readonly action: A } {
  const catalog = rt.catalog.current()
  const collection = catalog.collections.get(name)
  if (collection === undefined) throw errors.unknownCollection(name)
  const isPart = asPart && isJunction(collection)
  const grant = access.admin ? undefined : (access.grant(name, action) ?? (isPart ? partOfParent : undefined))
  if (!access.admin && grant === undefined) throw errors.actionDenied(action, name)
  checkWritable(rt, collection, access, action)
  const env = exempted(resolveEnv(rt), collection, action, isPart)
  return { catalog, collection, access, action, grant, config: rt.config, now: env.now, env }
}

/**
 * The condition that rows of the context's collection must satisfy, on the row that the statement calls `alias`: the
 * grant's conditions, tenant and soft delete. An update finds deleted rows too, because restoring one is an update.
 */
export function ruleSql(context: WriteContext, alias: string, params: Params): string {
  const { catalog, collection, action, env } = context
  const includeDeleted = action === 'update'
  const condition = resolveCondition(catalog, granting(context), collection.name, action, env, { includeDeleted })
  return condition === undefined ? 'true' : compileCondition(condition, alias, params)
}

export function isJunction({ definition }: Collection): boolean {
  return definition.schema.isJunction === true
}

const partOfParent: Grant = { fields: ['*'], conditions: null, relConditions: null, defaultValues: null }

/** The caller's access with the context's grant in it. */
function granting({ access, collection, action, grant }: WriteContext): Access {
  if (grant !== partOfParent) return access
  return withGrants(access, (name, other) =>
    name === collection.name && other === action ? grant : access.grant(name, other),
  )
}

/**
 * Rows that have no tenant of their own: a junction's have their parent's, and a new user gets one only afterwards, by
 * its first role (spec/permissions.md §7).
 */
function exempted(env: ResolveEnv, collection: Collection, action: ChangeAction, isPart: boolean): ResolveEnv {
  const isTenantless = isPart && !collection.fields.has('tenant_Id')
  if (!isTenantless && !(action === 'create' && collection.name === 'svc_User')) return env
  const { multiTenant } = env
  return { ...env, multiTenant: { ...multiTenant, ignored: new Set([...multiTenant.ignored, collection.name]) } }
}
