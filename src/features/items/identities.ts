import type { Collection } from '../../catalog/catalog.ts'
import { type Reader, rawQuery } from '../../db/sql.ts'
import { deleteOtherSessions } from '../../db/unlogged/sessions.ts'
import { type Action, AppError } from '../../errors.ts'
import type { Access } from '../../query/access.ts'
import { createParams, ident, type Params } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'
import { deciderOf } from '../identity/decider.ts'
import {
  type Decider,
  decideMembership,
  decideNewUser,
  decideTenantRemoval,
  decideUserChange,
  decideUserRemoval,
  type IdentityField,
  identityFields,
  type Membership,
  type OwnedMembership,
} from '../identity/decision.ts'
import { type ChangeAction, ruleSql, type WriteContext } from './context.ts'
import type { Cell } from './payload.ts'
import { keyCell, type Run, withCells } from './run.ts'
import { keyCondition } from './statements.ts'
import type { Tree } from './tree.ts'

/**
 * The guard before every statement that writes users, memberships, tenants, invitations and sessions, whichever route
 * or relation it comes by: asks identity/decision.ts with what is stored, in the transaction that writes, one query for
 * all rows of a statement. The rows it has asked for stay locked, so that what was decided still holds when they are
 * written.
 */

/** What a change of one row becomes. */
export type Guarded = {
  /** Written with it. */
  readonly cells: readonly Cell[]
  /** To be done after it was written. */
  readonly after: () => Promise<void>
}

export type RowChange = { readonly id: string; readonly cells: readonly Cell[] }

/** Whether a write has to pass the guard, and so needs a transaction. */
export function isGuarded({ name }: Collection, action: ChangeAction, cells: readonly Cell[] = []): boolean {
  if (name === 'svc_UserRole') return true
  if (name === 'svc_User') return action === 'delete' || (action === 'update' && cells.some(isIdentity))
  if (name === 'svc_Invite') return action === 'update'
  return action === 'delete' && (name === 'svc_Tenant' || name === 'svc_Sessions')
}

/** Decides on changes of rows with these keys; their answers in the same order. 403 for the first that is refused. */
export async function guardUpdates(
  run: Run,
  context: WriteContext,
  changes: readonly RowChange[],
): Promise<readonly Guarded[]> {
  const { name } = context.collection
  const touching = changes.filter(({ cells }) => isGuarded(context.collection, 'update', cells))
  if (touching.length === 0) return changes.map(() => unguarded)
  if (name === 'svc_Invite') for (const { cells } of touching) checkInvite(cells)
  if (name === 'svc_UserRole') await guardMemberships(run, context, touching)
  return name === 'svc_User' ? guardUsers(run, context, changes) : changes.map(() => unguarded)
}

/** The same for rows that are changed alike by one statement, with all cells that it writes. */
export async function guardRows(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
  cells: readonly Cell[],
): Promise<Guarded> {
  const rows = ids.map((id) => ({ id, cells }))
  const guarded = await guardUpdates(run, context, rows)
  const more = guarded.flatMap((one) => one.cells)
  const after = async () => {
    for (const one of guarded) await one.after()
  }
  return { cells: withCells(cells, more), after }
}

/** Decides on new rows. 403 for the first that is refused. */
export function guardInserts(
  { rt, writer }: Pick<Run, 'rt' | 'writer'>,
  { collection }: WriteContext,
  rows: readonly (readonly Cell[])[],
): void {
  if (collection.name !== 'svc_UserRole' && collection.name !== 'svc_User') return
  const decider = deciderOf(rt, writer.access)
  if (collection.name === 'svc_User') {
    for (const cells of rows) decideNewUser(decider, { vouches: vouchesIn(cells) })
    return
  }
  for (const cells of rows) decideMembership(decider, { before: undefined, after: membershipWith(cells, noMembership) })
}

/** Decides on the end of rows; what it gives is to be done after they were deleted. 403 where one is refused. */
export async function guardDelete(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
): Promise<() => Promise<void>> {
  const { collection } = context
  if (!isGuarded(collection, 'delete') || ids.length === 0) return nothing
  if (collection.name === 'svc_Sessions') return endingSessions(run, ids)
  const decider = deciderOf(run.rt, run.writer.access)
  if (isFree(decider)) return nothing
  if (collection.name === 'svc_User')
    for (const user of await storedUsers(run, context, ids)) decideUserRemoval(decider, user)
  if (collection.name === 'svc_UserRole')
    for (const before of (await storedMemberships(run, context, ids)).values())
      decideMembership(decider, { before, after: undefined })
  if (collection.name === 'svc_Tenant') decideTenantRemoval(decider, await membershipsAt(run, context, ids))
  return nothing
}

/**
 * Decides on one row without changing it: its end, or another value of the field. Throws the 403 that a request would be
 * answered with.
 */
export async function checkIdentity(
  { rt, access, collection }: { readonly rt: Runtime; readonly access: Access; readonly collection: Collection },
  { action, id, field }: { readonly action: Action; readonly id: string; readonly field: string | undefined },
): Promise<void> {
  const decider = deciderOf(rt, access)
  const params = createParams()
  const where = keyCondition(collection, [id], params)
  const changed = identityFields.filter((name) => name === field)
  if (action !== 'update' && action !== 'delete') return
  if (collection.name === 'svc_User')
    for (const user of await usersWhere(rt.db, { collection }, where, params))
      if (action === 'delete') decideUserRemoval(decider, user)
      else decideUserChange(decider, { ...user, changed, vouches: false })
  if (collection.name === 'svc_UserRole')
    for (const before of (await membershipsWhere(rt.db, where, params)).values())
      decideMembership(decider, { before, after: undefined })
}

/**
 * Decides on all changes of existing rows within trees, one query for each collection, before the first of them is
 * written. The run to go on with knows the answers.
 */
export async function guardTrees(run: Run, trees: readonly Tree[]): Promise<Run> {
  const changes = trees.flatMap(changesWithin)
  if (changes.length === 0) return run
  const answers = new Map<Tree, Guarded>()
  for (const group of Map.groupBy(changes, ({ context }) => context.collection).values()) {
    const rows = group.map(({ id, cells }) => ({ id: id!, cells }))
    const guarded = await guardUpdates(run, group[0]!.context, rows)
    for (const [index, tree] of group.entries()) answers.set(tree, guarded[index]!)
  }
  const known = { ...run }
  answersOf.set(known, answers)
  return known
}

/** The answer for one row of a tree, with the cells that it is written with. */
export async function guardRow(run: Run, tree: Tree, cells: readonly Cell[]): Promise<Guarded> {
  const known = answersOf.get(run)?.get(tree)
  // Cells that rows beside it have added were not asked about.
  if (known !== undefined && cells === tree.cells) return known
  const [guarded] = await guardUpdates(run, tree.context, [{ id: tree.id!, cells }])
  return guarded!
}

const answersOf = new WeakMap<Run, ReadonlyMap<Tree, Guarded>>()
const nothing = async () => undefined
const unguarded: Guarded = { cells: [], after: nothing }

const vouchesIn = (cells: readonly Cell[]) =>
  cells.some(({ field, value }) => field.name === 'emailVerified' && value === true)
const identities: ReadonlySet<string> = new Set(identityFields)
const isIdentity = ({ field }: Cell): boolean => identities.has(field.name)

/** For whom nothing is refused, and nothing follows from what they delete. */
const isFree = ({ admin, byKey }: Decider): boolean => admin && !byKey

function changesWithin(tree: Tree): readonly Tree[] {
  const parents = tree.parents.map((parent) => parent.tree)
  const elements = tree.sets.flatMap((set) => set.elements.flatMap((element) => element.tree ?? []))
  const own = tree.id !== undefined && isGuarded(tree.context.collection, 'update', tree.cells) ? [tree] : []
  return [...own, ...[...parents, ...elements].flatMap(changesWithin)]
}

async function guardUsers(run: Run, context: WriteContext, changes: readonly RowChange[]): Promise<readonly Guarded[]> {
  const decider = deciderOf(run.rt, run.writer.access)
  const ids = changes.map(({ id }) => id)
  const stored = new Map((await storedUsers(run, context, ids)).map((user) => [user.userId, user]))
  return changes.map(({ id, cells }) => {
    const user = stored.get(id)
    if (user === undefined) return unguarded
    const changed = identityFields.filter((name) => isChanged(user, cells, name))
    const vouches = vouchesIn(cells)
    const { unverified, sessionsEnd } = decideUserChange(decider, { ...user, changed, vouches })
    return {
      cells: unverified ? [keyCell(context.collection.fields.get('emailVerified')!, false)] : [],
      after: sessionsEnd ? () => addressSet(run, id) : nothing,
    }
  })
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
  readonly memberships: readonly Membership[]
}

/** The users with these ids that the caller may change so; nobody else changes them until the transaction ends. */
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
 * Rows that the caller may change so; of others nothing is told here, the statement refuses them. In one order, so that
 * two who lock the same rows don't wait for each other.
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

async function guardMemberships(run: Run, context: WriteContext, changes: readonly RowChange[]): Promise<void> {
  const decider = deciderOf(run.rt, run.writer.access)
  if (isFree(decider)) return
  const ids = changes.map(({ id }) => id)
  const stored = await storedMemberships(run, context, ids)
  for (const { id, cells } of changes) {
    const before = stored.get(id)
    if (before === undefined) continue
    const after = membershipWith(cells, before)
    const isSame = (['userId', 'roleId', 'tenantId'] as const).every((name) => before[name] === after[name])
    if (!isSame) decideMembership(decider, { before, after })
  }
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

async function membershipsAt(run: Run, context: WriteContext, ids: readonly string[]): Promise<readonly Membership[]> {
  const params = createParams()
  const where = keyCondition(context.collection, ids, params, true)
  const { memberships } = await run.tx.one<{ memberships: readonly Membership[] }>(
    rawQuery(
      `select (${membershipsSql(`ur."tenant_Id" in (select t.id from "svc_Tenant" t where ${where})`)}) as memberships`,
      params.values,
    ),
  )
  return memberships
}

/** Other invitations are made, by inviting; what is known of one never changes but that it is over. */
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
async function endingSessions({ tx, writer, scope }: Run, ids: readonly string[]): Promise<() => Promise<void>> {
  const ending = await tx.any<{ id: string; userId: string }>(
    rawQuery(
      'select id::text as id, "user_Id"::text as "userId" from "svc_Sessions" where id = any($1::uuid[]) order by id for update',
      [ids],
    ),
  )
  return async () => {
    for (const { id, userId } of ending)
      scope.events.push(
        id === writer.sessionId
          ? { type: 'auth.logout', data: { userId } }
          : { type: 'auth.session_ended', data: { userId, sessionId: id } },
      )
  }
}
