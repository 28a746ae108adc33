import { canonicalEmail } from '../../../adapters/email-address.ts'
import type { Tx } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { oneLine, subjectOf } from '../templates/templates.ts'
import type { Attachment } from './attachments.ts'
import { type AboutMail, insertMail } from './queries.ts'
import { type MailContext, type MailType, templateOf } from './types.ts'

export {
  type Attachment,
  AttachmentError,
  attachmentsOf,
  checkAttachments,
  readAttachments,
} from './attachments.ts'
export { cleanMailLog, sendMailInLane, sweepMails } from './jobs.ts'
export { cancelMail, mailStatus, requeueMail } from './queries.ts'
export { hasInbox, inbox, mailSlots, openLanes, senderAddress, senderOf, settingsSender } from './senders.ts'
export {
  inviteLifetimeSeconds,
  type LinkOrCode,
  type MailContext,
  type MailType,
  mailTypes,
  type SecretPurpose,
  secretIdentifier,
  secretOwner,
  wantedEmailKey,
  wantedEmailSeconds,
} from './types.ts'

export type MailRequest<Type extends MailType> = {
  readonly type: Type
  /** The stored address of the account, never what a caller typed. */
  readonly to: string
  /** The account that the mail is about: it is not sent any more once the account is gone or has another address. */
  readonly user?: { readonly id: string }
  readonly tenantId?: string
  /** Kept and shown to administrators: names and addresses, never a secret. */
  readonly context: MailContext[Type]
  /** Liquid instead of the template's subject; written by an administrator, never by a caller. */
  readonly subject?: string
  /** What svc_EmailLog shows before the mail is rendered, where the template's subject is only a variable. */
  readonly shownSubject?: string
  /** The sender instead of the tenant's; `senderAddress` says beforehand which can be named. */
  readonly from?: string
  /** What is known of persons and tenants that are no rows. */
  readonly about?: AboutMail
  /** Files that go with it; `checkAttachments` says beforehand whether they can. */
  readonly attachments?: readonly Attachment[]
}

/** Whether the text is exactly one plain address of at most 254 characters. */
export const isPlainAddress = (to: string): boolean => canonicalEmail(to)?.length === to.length

/**
 * Accepts a mail in the caller's transaction: its svc_EmailLog row in state `queued`. Return `event` from the
 * transaction's work, or nothing sends it. Secrets are made by the mail worker just before sending.
 *
 * @throws {AppError} 400 when `to` is no plain address
 */
export async function queueMail<Type extends MailType>(
  tx: Tx,
  { type, to, user, tenantId, context, subject, shownSubject, from, about, attachments = [] }: MailRequest<Type>,
): Promise<{ readonly emailLogId: string; readonly event: DomainEvent }> {
  if (!isPlainAddress(to)) throw errors.badBody('Invalid email address')
  const emailLogId = await insertMail(tx, {
    type,
    to,
    userId: user?.id,
    tenantId,
    context: { ...context, subject, from, about, ...(attachments.length > 0 && { attachments }) },
    subject: oneLine(subject ?? shownSubject ?? subjectOf(templateOf(type, context))),
  })
  return {
    emailLogId,
    event: {
      type: 'mail.queued',
      data: { emailLogId, ...(tenantId !== undefined && { tenantId }), ...(from !== undefined && { from }) },
    },
  }
}
