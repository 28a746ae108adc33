import { administratorRole, assignableRoles, publicRole, readsLikeBuiltIn } from '../../../access/access.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { canonicalEmail } from '../../../adapters/email-address.ts'
import { hashesTakenOver, hashPassword, isPasswordHash, takesOver } from '../../../adapters/passwords.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery, sql } from '../../../db/sql.ts'
import { deleteOtherSessions, lockSession } from '../../../db/unlogged/sessions.ts'
import { type Action, AppError, errors } from '../../../errors.ts'
import type { Access } from '../../../query/access.ts'
import { createParams, ident, type Params } from '../../../query/sql.ts'
import {
  type Cell,
  type CollectionRules,
  type GuardedChange,
  isScoped,
  keyCell,
  keyCondition,
  type PayloadContext,
  type RowChange,
  type Run,
  ruleSql,
  type WriteContext,
} from '../../data/items/items.ts'
import { accountOf, checkNewPassword, endAccess, sessionOver } from '../auth/auth.ts'
import {
  type Decider,
  decideMembership,
  decideNewUser,
  decideTenantRemoval,
  decideUserChange,
  decideUserRemoval,
  type IdentityField,
  identityFields,
  type OwnedMembership,
  type RoleAssignment,
} from './decision.ts'

/**
 * The rules of users, roles, memberships, tenants, invitations and sessions as items. The guards ask decision.ts with what
 * is stored, one query for all rows of a statement.
 */

export const userRules: CollectionRules = {
  tenantlessWhenNew: true,
  ownKey: ({ userId }) => userId,
  protectedFields: {
    password: ({ access }) => (access.allowPasswordWrites ? 'name' : 'nothing'),
    // Limits of one's own sessions are set for a user, not by it.
    session_limits: ({ access }) => (access.protectPrivilegeFields ? 'name' : 'wildcard'),
  },
  beforeWrite: userCells,
  guard: {
    applies: (action, cells) => action === 'delete' || cells.some(isIdentity),
    inserts: ({ deps, requester }, rows) => {
      const decider = deciderOf(deps, requester.access)
      for (const cells of rows) decideNewUser(decider, { vouches: vouchesIn(cells) })
    },
    updates: guardUsers,
    deletes: async (run, context, ids) => {
      const decider = deciderOf(run.deps, run.requester.access)
      if (!isFree(decider)) for (const user of await storedUsers(run, context, ids)) decideUserRemoval(decider, user)
      return nothing
    },
  },
}

export const membershipRules: CollectionRules = {
  // A role that may assign none has no use for memberships, whatever it was granted.
  checkCaller: (deps, access, action) => {
    if (!access.admin && deciderOf(deps, access).assignable.size === 0)
      throw errors.actionDenied(action, 'svc_UserRole')
  },
  guard: {
    applies: () => true,
    inserts: ({ deps, requester }, rows) => {
      const decider = deciderOf(deps, requester.access)
      for (const cells of rows)
        decideMembership(decider, { before: undefined, after: membershipWith(cells, noMembership) })
    },
    updates: guardMemberships,
    deletes: async (run, context, ids) => {
      const decider = deciderOf(run.deps, run.requester.access)
      if (isFree(decider)) return nothing
      for (const before of (await storedMemberships(run, context, ids)).values())
        decideMembership(decider, { before, after: undefined })
      return nothing
    },
  },
}

export const tenantRules: CollectionRules = {
  holdsTenants: true,
  ownKey: ({ tenantId }) => tenantId,
  guard: {
    applies: (action) => action === 'delete',
    deletes: async (run, context, ids) => {
      const decider = deciderOf(run.deps, run.requester.access)
      if (!isFree(decider)) decideTenantRemoval(decider, await membershipsAt(run, context, ids))
      return nothing
    },
  },
}

export const inviteRules: CollectionRules = {
  guard: {
    applies: (action) => action === 'update',
    updates: async (_run, _context, changes) => {
      for (const { cells } of changes) checkInvite(cells)
      return changes.map(() => unguarded)
    },
  },
}

export const sessionRules: CollectionRules = {
  checkCaller: (_deps, access) => {
    if (access.byKey) throw errors.sessionNeeded()
  },
  guard: {
    applies: (action) => action === 'delete',
    deletes: (run, _context, ids) => endingSessions(run, ids),
  },
}

/** Without `administrator`, `public` or `user` no one could sign in or register. */
export const roleRules: CollectionRules = {
  ownKey: ({ roleId }) => roleId,
  beforeWrite: async (deps, _context, cells, id) => {
    const name = cells.find((cell) => cell.field.name === 'name')?.value
    if (typeof name !== 'string') return cells
    const stored = id === undefined ? undefined : await roleName(deps, id)
    if (stored !== name && (isBuiltIn(stored) || readsLikeBuiltIn(name)))
      throw new AppError(403, 'System role names cannot be changed')
    return cells
  },
  beforeDelete: async (deps, ids) => {
    for (const id of ids)
      if (isBuiltIn(await roleName(deps, id))) throw new AppError(403, 'System roles cannot be deleted')
  },
}

/** A caller as decisions about identities see it. */
function deciderOf(deps: Configuration & CurrentAccess, access: Access): Decider {
  const { admin, userId, byKey = false, byCookie = false, roleId, tenantId = null } = access
  const rules = deps.access.current()
  return {
    userId,
    admin,
    byKey,
    byCookie,
    tenant: isScoped(access, deps.config) ? { id: tenantId } : undefined,
    assignable: assignableRoles(rules, rules.roles.get(roleId), admin),
  }
}

/**
 * Decides on one row without changing it: its end, or another value of the field. Throws the 403 that a request would be
 * answered with.
 */
export async function checkIdentity(
  {
    deps,
    access,
    collection,
  }: { readonly deps: Reads & Configuration & CurrentAccess; readonly access: Access; readonly collection: Collection },
  { action, id, field }: { readonly action: Action; readonly id: string; readonly field: string | undefined },
): Promise<void> {
  const decider = deciderOf(deps, access)
  const params = createParams()
  const where = keyCondition(collection, [id], params)
  const changed = identityFields.filter((name) => name === field)
  if (action !== 'update' && action !== 'delete') return
  if (collection.name === 'svc_User')
    for (const user of await usersWhere(deps.db, { collection }, where, params))
      if (action === 'delete') decideUserRemoval(decider, user)
      else decideUserChange(decider, { ...user, changed, vouches: false })
  if (collection.name === 'svc_UserRole')
    for (const before of (await membershipsWhere(deps.db, where, params)).values())
      decideMembership(decider, { before, after: undefined })
}

/** Passwords are hashed, addresses canonical. */
async function userCells(
  deps: Configuration,
  { access }: PayloadContext,
  cells: readonly Cell[],
): Promise<readonly Cell[]> {
  if (access.byKey && cells.some(isPassword)) throw errors.sessionNeeded()
  return Promise.all(cells.map((cell) => userCell(deps, access, cell)))
}

async function userCell({ config }: Configuration, { admin }: Access, cell: Cell): Promise<Cell> {
  if (cell.value === null) return cell
  if (isPassword(cell)) {
    const password = cell.value as string
    if (admin && isPasswordHash(password)) return takenOver(cell, password)
    checkNewPassword(password)
    return { ...cell, value: await hashPassword(password, config.auth.passwordHashCost) }
  }
  if (cell.field.name !== 'email') return cell
  const email = canonicalEmail(cell.value as string)
  if (email === undefined)
    throw errors.validation([{ field: 'email', message: 'is not an e-mail address', rule: 'isEmail' }])
  return { ...cell, value: email }
}

/** The hash of a password that an administrator brings from another product is stored as it is. */
function takenOver(cell: Cell, hash: string): Cell {
  if (takesOver(hash)) return cell
  throw new AppError(400, 'This hash of a password cannot be taken over', { details: hashesTakenOver })
}

const builtInRoles = new Set([administratorRole, publicRole, 'user'])

async function roleName({ db }: Reads, id: string): Promise<string | undefined> {
  const role = await db.maybeOne<{ name: string }>(sql`select name from "svc_Role" where id::text = ${id}`)
  return role?.name
}

const isBuiltIn = (name: string | undefined): boolean => name !== undefined && builtInRoles.has(name)

const nothing = async () => undefined
const unguarded: GuardedChange = { cells: [], after: nothing }

const vouchesIn = (cells: readonly Cell[]) =>
  cells.some(({ field, value }) => field.name === 'emailVerified' && value === true)
const isPassword = ({ field }: Cell): boolean => field.name === 'password'
const identities: ReadonlySet<string> = new Set(identityFields)
const isIdentity = ({ field }: Cell): boolean => identities.has(field.name)

/** Nothing is refused to these callers, and nothing follows from what they delete. */
const isFree = ({ admin, byKey }: Decider): boolean => admin && !byKey

async function guardUsers(
  run: Run,
  context: WriteContext,
  changes: readonly RowChange[],
): Promise<readonly GuardedChange[]> {
  const decider = deciderOf(run.deps, run.requester.access)
  const ids = changes.map(({ id }) => id)
  const stored = new Map((await storedUsers(run, context, ids)).map((user) => [user.userId, user]))
  return changes.map(({ id, cells }) => {
    const user = stored.get(id)
    if (user === undefined) return unguarded
    const changed = identityFields.filter((name) => isChanged(user, cells, name))
    const { unverified, sessionsEnd } = decideUserChange(decider, { ...user, changed, vouches: vouchesIn(cells) })
    return {
      cells: unverified ? [keyCell(context.collection.fields.get('emailVerified')!, false)] : [],
      after: async () => {
        if (cells.some(isPassword)) await passwordChanged(run, id)
        if (sessionsEnd) await addressSet(run, id)
      },
    }
  })
}

/**
 * A new password, wherever it is set, ends everything else that opens the account, but the session of the requester itself.
 * In the transaction that wrote the row, and after it, so that a sign-in at the same time is either refused or ended. Users
 * whose session has ended meanwhile set no password of their own any more: another person may have taken the account over.
 */
async function passwordChanged({ tx, requester, scope }: Run, userId: string): Promise<void> {
  const { access, sessionId } = requester
  if (userId === access.userId && sessionId !== undefined && (await lockSession(tx, sessionId)) === undefined)
    throw sessionOver()
  const account = await accountOf(tx, userId)
  await endAccess(tx, account!, requester.sessionId)
  scope.events.push({ type: 'auth.password_change', data: { userId } })
}

/**
 * Sessions of before were opened under the old address. Links and codes of both addresses end by a trigger, however the
 * address is changed.
 */
async function addressSet({ tx, scope }: Run, userId: string): Promise<void> {
  await deleteOtherSessions(tx, userId, undefined)
  scope.events.push({ type: 'auth.email_changed', data: { userId } })
}

type StoredUser = {
  readonly userId: string
  /** Texts; of the password only whether there is one. */
  readonly stored: Readonly<Partial<Record<IdentityField, string | null>>>
  readonly memberships: readonly RoleAssignment[]
}

/** The users with these ids that the caller may change so; no other transaction changes them before this one ends. */
async function storedUsers(run: Run, context: WriteContext, ids: readonly string[]): Promise<readonly StoredUser[]> {
  const params = createParams()
  return usersWhere(run.tx, context, lockedRows(context, ids, params), params)
}

function usersWhere(
  db: Reader,
  { collection }: Pick<WriteContext, 'collection'>,
  where: string,
  params: ReturnType<typeof createParams>,
): Promise<readonly StoredUser[]> {
  const members = identityFields
    .filter((name) => collection.fields.has(name))
    .map((name) => (name === 'password' ? `'password', t.password is not null` : `'${name}', t.${ident(name)}::text`))
  return db.any<StoredUser>(
    rawQuery(
      `select t.id::text as "userId", jsonb_build_object(${members}) as stored, (${membershipsSql('ur."user_Id" = t.id')}) as memberships
       from "svc_User" t where ${where}`,
      params.values,
    ),
  )
}

/**
 * Rows that the caller may change so; the statement refuses the others. In one order, so that two writers who lock the same
 * rows don't wait for each other.
 */
function lockedRows(context: WriteContext, ids: readonly string[], params: Params): string {
  const where = `${keyCondition(context.collection, ids, params, true)} and ${ruleSql(context, 't', params)}`
  return `${where} order by t.id for no key update of t`
}

const membershipsSql = (condition: string) => `select coalesce(
    jsonb_agg(jsonb_build_object('roleId', ur."role_Id", 'tenantId', ur."tenant_Id")), '[]')
  from "svc_UserRole" ur where ${condition}`

function isChanged({ stored }: StoredUser, cells: readonly Cell[], name: IdentityField): boolean {
  const cell = cells.find(({ field }) => field.name === name)
  if (cell === undefined) return false
  if (name === 'password') return cell.value !== null || Boolean(stored.password)
  return (cell.value === null ? null : String(cell.value)) !== (stored[name] ?? null)
}

async function guardMemberships(
  run: Run,
  context: WriteContext,
  changes: readonly RowChange[],
): Promise<readonly GuardedChange[]> {
  const answers = changes.map(() => unguarded)
  const decider = deciderOf(run.deps, run.requester.access)
  if (isFree(decider)) return answers
  const ids = changes.map(({ id }) => id)
  const stored = await storedMemberships(run, context, ids)
  for (const { id, cells } of changes) {
    const before = stored.get(id)
    if (before === undefined) continue
    const after = membershipWith(cells, before)
    const isSame = (['userId', 'roleId', 'tenantId'] as const).every((name) => before[name] === after[name])
    if (!isSame) decideMembership(decider, { before, after })
  }
  return answers
}

async function storedMemberships(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
): Promise<ReadonlyMap<string, OwnedMembership>> {
  const params = createParams()
  return membershipsWhere(run.tx, lockedRows(context, ids, params), params)
}

async function membershipsWhere(
  db: Reader,
  where: string,
  params: ReturnType<typeof createParams>,
): Promise<ReadonlyMap<string, OwnedMembership>> {
  const rows = await db.any<OwnedMembership & { id: string }>(
    rawQuery(
      `select t.id::text as id, t."user_Id"::text as "userId", t."role_Id"::text as "roleId", t."tenant_Id"::text as "tenantId"
       from "svc_UserRole" t where ${where}`,
      params.values,
    ),
  )
  return new Map(rows.map(({ id, ...membership }) => [id, membership]))
}

const noMembership: OwnedMembership = { userId: undefined, roleId: '', tenantId: null }

function membershipWith(cells: readonly Cell[], before: OwnedMembership): OwnedMembership {
  const value = (name: string, old: string | null | undefined) => {
    const cell = cells.find(({ field }) => field.name === name)
    return cell === undefined ? old : cell.value === null ? null : String(cell.value).toLowerCase()
  }
  return {
    userId: value('user_Id', before.userId) ?? undefined,
    roleId: value('role_Id', before.roleId) ?? '',
    tenantId: value('tenant_Id', before.tenantId) ?? null,
  }
}

async function membershipsAt(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
): Promise<readonly RoleAssignment[]> {
  const params = createParams()
  const where = keyCondition(context.collection, ids, params, true)
  const { memberships } = await run.tx.one<{ memberships: readonly RoleAssignment[] }>(
    rawQuery(
      `select (${membershipsSql(`ur."tenant_Id" in (select t.id from "svc_Tenant" t where ${where})`)}) as memberships`,
      params.values,
    ),
  )
  return memberships
}

/** Another invitation is made by inviting; one that is there can only be revoked. */
function checkInvite(cells: readonly Cell[]): void {
  const other = cells.some(
    ({ field, value }) => field.systemGenerated && !(field.name === 'status' && value === 'revoked'),
  )
  if (!other) return
  throw new AppError(
    403,
    'An invitation can only be revoked ({"status": "revoked"}): for another one use /auth/invite',
    {
      code: 'INVITATION_FIXED',
    },
  )
}

/** Their ends are no events of rows, so they are events of their users. */
async function endingSessions({ tx, requester, scope }: Run, ids: readonly string[]): Promise<() => Promise<void>> {
  const ending = await tx.any<{ id: string; userId: string }>(
    rawQuery(
      'select id::text as id, "user_Id"::text as "userId" from "svc_Sessions" where id = any($1::uuid[]) order by id for update',
      [ids],
    ),
  )
  return async () => {
    for (const { id, userId } of ending)
      scope.events.push(
        id === requester.sessionId
          ? { type: 'auth.logout', data: { userId } }
          : { type: 'auth.session_ended', data: { userId, sessionId: id } },
      )
  }
}
