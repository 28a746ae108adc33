import type { IdSource } from '../../../adapters/ids.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { Traces } from '../../../adapters/tracing.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import type { Writes } from '../../../events/commit.ts'
import { bossSchema } from '../../../events/jobs.ts'
import { actorCte } from '../../../events/log.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { LogoReads, MailRenderer, Recipient, TenantRow } from '../templates/templates.ts'
import type { Attachment } from './attachments.ts'
import { type MailType, wantedEmailKey } from './types.ts'

/**
 * The statements about svc_EmailLog. A row's status: `queued` (surely not sent yet) → `sending` (claimed, or an attempt
 * ended without the server's answer) → `sent` | `failed`. A claim is a token that the worker must still hold to record
 * what became of its attempt.
 */

type NewMail = {
  readonly type: MailType
  readonly to: string
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  readonly context: object
  readonly subject: string
}

/** The id of the new row, in state `queued`. */
export async function insertMail(tx: Tx, mail: NewMail): Promise<string> {
  const { id } = await tx.one<{ id: string }>(sql`
    insert into "svc_EmailLog" (email, subject, "templateName", status, context, "user_Id", "tenant_Id")
    values (${mail.to}, ${mail.subject}, ${mail.type}, 'queued', ${sql.json(mail.context)},
            ${mail.userId ?? null}, ${mail.tenantId ?? null})
    returning id`)
  return id
}

/** A recipient and a tenant as templates shall see them, where the mail names no rows that say it. */
export type AboutMail = {
  readonly user?: Readonly<Record<string, unknown>>
  readonly tenant?: Readonly<Record<string, unknown>>
}

export type ClaimedMail = {
  readonly id: string
  readonly type: MailType
  readonly email: string
  readonly context: {
    readonly subject?: string
    readonly about?: AboutMail
    readonly inviteId?: string
    readonly attachments?: readonly Attachment[]
  }
  readonly userId: string | null
  readonly tenantId: string | null
  /** Null until a sender was known. */
  readonly messageId: string | null
  readonly claimToken: string
  /** An earlier attempt ended without an answer, so the message may have arrived. */
  readonly mayHaveArrived: boolean
}

type RowClaim = {
  readonly id: string
  readonly token: string
  /** A claim that is older has been lost with its worker. */
  readonly claimSeconds: number
  /** Kept if the row has one. */
  readonly messageId: string | undefined
}

/** Takes the mail for one attempt; undefined when it is finished or another worker holds it. */
export async function claimMail(tx: Tx, request: RowClaim): Promise<ClaimedMail | undefined> {
  return tx.maybeOne<ClaimedMail>(sql`
    with free as (
      select id, status from "svc_EmailLog"
      where id = ${request.id}
        and (status = 'queued' or status = 'sending' and ("claimToken" is null
          or "claimedAt" < now() - make_interval(secs => ${request.claimSeconds})))
      for update)
    update "svc_EmailLog" m
    set status = 'sending', "claimToken" = ${request.token}, "claimedAt" = now(), attempts = attempts + 1,
        "messageId" = coalesce(m."messageId", ${request.messageId ?? null}), "updatedAt" = now()
    from free where m.id = free.id
    returning m.id, m."templateName" as type, m.email, m.context, m."user_Id" as "userId", m."tenant_Id" as "tenantId",
      m."messageId", m."claimToken", free.status = 'sending' as "mayHaveArrived"`)
}

/** Undefined when the row was deleted. */
export async function mailStatus(tx: Reader, id: string): Promise<string | undefined> {
  return (await tx.maybeOne<{ status: string }>(sql`select status from "svc_EmailLog" where id = ${id}`))?.status
}

/** The tenant that a mail belongs to, null when it is the installation's or was deleted; and the sender that it names. */
export async function mailOwner(db: Reader, id: string): Promise<{ tenantId: string | null; from: string | null }> {
  const row = await db.maybeOne<{ tenantId: string | null; from: string | null }>(
    sql`select "tenant_Id" as "tenantId", context->>'from' as "from" from "svc_EmailLog" where id = ${id}`,
  )
  return row ?? { tenantId: null, from: null }
}

export type MailVerdict = {
  readonly status: 'queued' | 'sending' | 'sent' | 'failed'
  /** Null when there is nothing to complain about. */
  readonly reason: string | null
  readonly sender?: string
  /** As it was sent. */
  readonly subject?: string
}

/** Records what became of an attempt and gives the claim back; false when the claim was lost meanwhile. */
export async function settleMail(tx: Tx, id: string, claimToken: string, verdict: MailVerdict): Promise<boolean> {
  const row = await tx.maybeOne(sql`
    update "svc_EmailLog"
    set status = ${verdict.status}, "errorMessage" = ${verdict.reason}, "claimToken" = null, "claimedAt" = null,
        sender = coalesce(${verdict.sender ?? null}, sender), subject = coalesce(${verdict.subject ?? null}, subject),
        "sentAt" = case when ${verdict.status} = 'sent' then now() else "sentAt" end, "updatedAt" = now()
    where id = ${id} and "claimToken" = ${claimToken}
    returning id`)
  return row !== undefined
}

/**
 * Puts a mail that has failed back in line, to another address where one is given; false when it has not failed. The
 * attempts so far stay counted.
 */
export async function requeueMail(tx: Tx, id: string, to: string | undefined): Promise<boolean> {
  const row = await tx.maybeOne(sql`
    update "svc_EmailLog"
    set status = 'queued', email = coalesce(${to ?? null}, email), "errorMessage" = null, "updatedAt" = now()
    where id = ${id} and status = 'failed' returning id`)
  return row !== undefined
}

/** Fails a mail that is not being sent just now. */
export async function cancelMail(tx: Tx, id: string): Promise<void> {
  await tx.any(sql`
    update "svc_EmailLog" set status = 'failed', "errorMessage" = 'cancelled by an administrator', "updatedAt" = now()
    where id = ${id} and status in ('queued', 'sending') and "claimToken" is null returning id`)
}

/** Whether a mail of one of the types was accepted for the same account and address after this one and has not failed. */
export async function newerMailExists(tx: Reader, id: string, types: readonly MailType[]): Promise<boolean> {
  const { exists } = await tx.one<{ exists: boolean }>(sql`
    select exists (
      select from "svc_EmailLog" this join "svc_EmailLog" newer on newer.email = this.email
      where this.id = ${id} and newer."templateName" = any(${sql.array(types, 'text')}) and newer.status <> 'failed'
        and newer."user_Id" is not distinct from this."user_Id"
        and (newer."createdAt", newer.id) > (this."createdAt", this.id)) as exists`)
  return exists
}

/** Makes this the token of an invitation, and its lifetime begin now; false when the invitation is over. */
export async function keepInviteToken(
  tx: Tx,
  inviteId: string,
  { hash, lifetimeSeconds }: { hash: string; lifetimeSeconds: number },
): Promise<boolean> {
  const row = await tx.maybeOne(sql`
    update "svc_Invite"
    set token = ${hash}, "expiresAt" = now() + make_interval(secs => ${lifetimeSeconds}), "updatedAt" = now()
    where id = ${inviteId} and status = 'pending' returning id`)
  return row !== undefined
}

export async function personOf(tx: Reader, userId: string): Promise<Recipient | undefined> {
  return tx.maybeOne<Recipient>(sql`select "firstName", "lastName", email, phone from "svc_User" where id = ${userId}`)
}

/** The address that an account is to have once it is confirmed. */
export async function wantedEmail(tx: Reader, userId: string): Promise<string | undefined> {
  const row = await tx.maybeOne<{ email: string }>(sql`
    select data->>'email' as email from "svc_Challenge" where identifier = ${wantedEmailKey(userId)} and "expiresAt" > now()`)
  return row?.email
}

/** Whether the account of the mail has a role in its tenant, or one in all of them. */
export async function isMember(
  tx: Reader,
  { userId, tenantId }: Pick<ClaimedMail, 'userId' | 'tenantId'>,
): Promise<boolean> {
  const row = await tx.maybeOne(sql`
    select id from "svc_UserRole"
    where "user_Id" = ${userId} and ("tenant_Id" is null or "tenant_Id" = ${tenantId}) limit 1`)
  return row !== undefined
}

/** The name of the user who sent an invitation. */
export async function inviterName(db: Reader, inviteId: string): Promise<string | undefined> {
  const row = await db.maybeOne<{ name: string }>(sql`
    select concat_ws(' ', u."firstName", u."lastName") as name
    from "svc_Invite" i join "svc_User" u on u.id = i."invitedBy_Id" where i.id = ${inviteId}::uuid`)
  return row?.name
}

export async function tenantOf(tx: Reader, tenantId: string): Promise<TenantRow | undefined> {
  const row = await tx.maybeOne<{ tenant: TenantRow }>(
    sql`select to_jsonb(t) as tenant from "svc_Tenant" t where id = ${tenantId}`,
  )
  return row?.tenant
}

/**
 * Deletes finished mails of a status that are older than `days` and have not changed since, up to `atMost`; what waits or
 * is being sent is none. For `commitRow`: gives the ids.
 */
export function deleteOldMails(status: 'sent' | 'failed', days: number, atMost: number) {
  return {
    text: `${actorCte(1)}, old as materialized (
    select id from "svc_EmailLog"
    where status = $2 and "createdAt" < now() - make_interval(days => $3) and "updatedAt" < now() - make_interval(days => $3)
    order by "createdAt" limit $4 for update skip locked)
  delete from "svc_EmailLog" m using ctx, old where m.id = old.id returning m.id`,
    values: [status, days, atMost],
  }
}

/**
 * Fails unfinished mails that no job will send any more: the job's last attempt died with its worker, or an operator
 * deleted it. Rows younger than `olderThanSeconds` are left alone. Returns how many.
 */
export async function failAbandonedMails(tx: Tx, olderThanSeconds: number): Promise<number> {
  const rows = await tx.any(sql`
    update "svc_EmailLog" m
    set status = 'failed', "claimToken" = null, "claimedAt" = null, "updatedAt" = now(),
        "errorMessage" = 'given up: no attempt is left' || coalesce('; the last one: ' || m."errorMessage", '')
    where m.status in ('queued', 'sending') and m."updatedAt" < now() - make_interval(secs => ${olderThanSeconds})
      and not exists (
        select from ${sql.identifier([bossSchema, 'job'])} j
        where j.name = 'mail' and j.state in ('created', 'retry', 'active') and j.data->>'emailLogId' = m.id::text)
    returning m.id`)
  return rows.length
}

/** The capabilities that reads of this folder need. */
export type MailReads = Reads & Clock & CurrentSettings & Logs & LogoReads & MailRenderer

/** The capabilities that changes of this folder need. */
export type MailWrites = Reads &
  Writes &
  UnloggedWrites &
  Clock &
  CurrentSettings &
  IdSource &
  Logs &
  LogoReads &
  MailRenderer &
  Traces
