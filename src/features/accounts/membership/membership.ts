import { ownRowSql } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { hashSecret } from '../../../adapters/tokens.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import { type Reader, rawQuery, type SqlFragment, sql, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, commitRow, type Writes } from '../../../events/commit.ts'
import { actorCte } from '../../../events/log.ts'
import { type DomainEvent, systemActor } from '../../../events/types.ts'
import { projectionList } from '../../../query/compile-rows.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

// Tenants, memberships and invitations, for the ways to sign in and for the workers. The requests of callers about their own
// are the slice `tenants`: they open sessions, so they build on signing in.

/** The invitation of a token; undefined when it is unknown, accepted, revoked or expired, and then it is marked as that. */
export async function openInvite(deps: Reads & Writes, token: string | undefined): Promise<Invite | undefined> {
  if (token === undefined || !/^[0-9a-f]{64}$/.test(token)) return undefined
  const tokenHash = hashSecret(token)
  const found = await findInvite(withoutWaiting(deps), sql`i.token = ${tokenHash}`)
  if (found === undefined)
    await commit(deps, systemActor, async (tx) => ({ result: await expireInvites(tx, { tokenHash }) }))
  return found
}

/** An invitation whose token was shown before; undefined when it can no longer be accepted. */
export const inviteOf = (db: Reader, id: string) => findInvite(db, sql`i.id = ${id}`)

export const invalidInvite = (members?: { valid: false }) =>
  new AppError(400, 'Invalid or expired invitation', members && { members })

const batchSize = 500

/** Marks invitations that were not accepted in time as over; they stay, as a record of who was invited. */
export async function endInvites(deps: Writes, signal: AbortSignal): Promise<void> {
  for (let count = batchSize; count === batchSize; ) {
    signal.throwIfAborted()
    count = (await commitRow(deps, systemActor, expireOldInvites(batchSize))).length
    if (count > 0) deps.log.info({ invitations: count }, 'invitations have expired')
  }
}

/** The capabilities that changes of this folder need. */
export type TenantWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings

/** False when the user has a role at the tenant already. */
export async function insertMembership(
  tx: Tx,
  { userId, roleId, tenantId }: { userId: string; roleId: string; tenantId: string | null },
): Promise<boolean> {
  const inserted = await tx.maybeOne(sql`
    insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values (${userId}, ${roleId}, ${tenantId})
    on conflict do nothing returning id`)
  return inserted !== undefined
}

/** False when another tenant has the name. */
export async function insertTenant(tx: Tx, id: string, name: string): Promise<boolean> {
  const inserted = await tx.maybeOne(
    sql`insert into "svc_Tenant" (id, name) values (${id}, ${name}) on conflict do nothing returning id`,
  )
  return inserted !== undefined
}

/** A tenant's row in wire form, without hidden fields. */
export async function findTenant(
  db: Reader,
  catalog: Catalog,
  id: string,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const text = `select ${ownRowSql(catalog.collections.get('svc_Tenant')!, 't')} as tenant from "svc_Tenant" t where t.id = $1`
  return (await db.maybeOne<{ tenant: Readonly<Record<string, unknown>> }>(rawQuery(text, [id])))?.tenant
}

export type Invite = {
  readonly id: string
  readonly email: string
  readonly roleId: string
  readonly tenantId: string
  readonly tenantName: string
  /** Its address has an account. */
  readonly userExists: boolean
}

/** An invitation, while it can be accepted. */
function findInvite(db: Reader, condition: SqlFragment): Promise<Invite | undefined> {
  return db.maybeOne<Invite>(sql`
    select i.id, i.email, i."role_Id" as "roleId", i."tenant_Id" as "tenantId", t.name as "tenantName",
      exists (select from "svc_User" u where u.email = i.email) as "userExists"
    from "svc_Invite" i join "svc_Tenant" t on t.id = i."tenant_Id"
    where ${condition} and i.status = 'pending' and i."expiresAt" > now()`)
}

/** Accepts an invitation for a user; of any number of simultaneous uses one succeeds. */
export async function acceptInvite(tx: Tx, inviteId: string, userId: string): Promise<boolean> {
  const accepted = await tx.maybeOne(sql`
    update "svc_Invite" set status = 'accepted', "acceptedBy_Id" = ${userId}, "acceptedAt" = now(), "updatedAt" = now()
    where id = ${inviteId} and status = 'pending' and "expiresAt" > now() returning id`)
  return accepted !== undefined
}

/**
 * Accepts an invitation for a user who has an account: the user gets its role at its tenant. The event of that.
 *
 * @throws {AppError} 400 when the invitation is over, and for a member of the tenant
 */
export async function joinByInvite(
  tx: Tx,
  userId: string,
  { inviteId, roleId, tenantId }: { inviteId: string; roleId: string; tenantId: string },
): Promise<DomainEvent> {
  if (!(await acceptInvite(tx, inviteId, userId))) throw invalidInvite()
  if (!(await insertMembership(tx, { userId, roleId, tenantId })))
    throw errors.badBody('User is already a member of this tenant')
  return { type: 'auth.invite_accepted', data: { userId, inviteId } }
}

/** Says of pending invitations whose time is over that it is: the one of a token, or those of an address at a tenant. */
export async function expireInvites(
  tx: Tx,
  which: { tokenHash: string } | { email: string; tenantId: string },
): Promise<void> {
  const condition =
    'tokenHash' in which
      ? sql`token = ${which.tokenHash}`
      : sql`email = ${which.email} and "tenant_Id" = ${which.tenantId}`
  await tx.any(sql`
    update "svc_Invite" set status = 'expired', "updatedAt" = now()
    where ${condition} and status = 'pending' and "expiresAt" <= now()`)
}

/** The same of any, up to `atMost`, for `commitRow`: gives the ids. */
function expireOldInvites(atMost: number) {
  return {
    name: 'expire_old_invites',
    text: `${actorCte(1)}, old as materialized (
    select id from "svc_Invite" where status = 'pending' and "expiresAt" <= now() limit $2 for update skip locked)
  update "svc_Invite" i set status = 'expired', "updatedAt" = now() from ctx, old where i.id = old.id returning i.id`,
    values: [atMost],
  }
}

/** Reasons against inviting an address to a tenant. No other transaction invites it there before this one ends. */
export async function lockInvitee(
  tx: Tx,
  email: string,
  tenantId: string,
): Promise<{ readonly isMember: boolean; readonly isInvited: boolean }> {
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended(${`invite ${email} ${tenantId}`}, 0))`)
  return tx.one<{ isMember: boolean; isInvited: boolean }>(sql`
    select
      exists (select from "svc_User" u join "svc_UserRole" ur on ur."user_Id" = u.id
              where u.email = ${email} and ur."tenant_Id" = ${tenantId}) as "isMember",
      exists (select from "svc_Invite"
              where email = ${email} and "tenant_Id" = ${tenantId} and status = 'pending' and "expiresAt" > now()) as "isInvited"`)
}

type NewInvite = {
  readonly email: string
  readonly roleId: string
  readonly tenantId: string
  /** The hash of an unknown secret: the mail worker makes the one that is sent. */
  readonly tokenHash: string
  readonly invitedBy: string
  readonly lifetimeSeconds: number
}

type SentInvite = {
  readonly id: string
  readonly email: string
  readonly status: string
  readonly expiresAt: string
}

export function insertInvite(tx: Tx, catalog: Catalog, invite: NewInvite): Promise<SentInvite> {
  const { fields } = catalog.collections.get('svc_Invite')!
  const shown = projectionList(
    ['id', 'email', 'status', 'expiresAt'].map((name) => fields.get(name)!),
    'i',
  )
  const { email, roleId, tenantId, tokenHash, invitedBy, lifetimeSeconds } = invite
  const text = `
    insert into "svc_Invite" as i (email, "role_Id", "tenant_Id", token, "invitedBy_Id", "expiresAt")
    values ($1, $2, $3, $4, $5, now() + make_interval(secs => $6)) returning ${shown}`
  return tx.one<SentInvite>(rawQuery(text, [email, roleId, tenantId, tokenHash, invitedBy, lifetimeSeconds]))
}
