import type { MailDelivery } from '../../../adapters/mailer.ts'
import type { Recipient } from '../templates/templates.ts'
import type { ClaimedMail, MailVerdict } from './queries.ts'

/** The account and the tenant that a claimed mail names. */
export type MailParties = {
  /** The owner of the address that the mail goes to, where that is not the one which its account has now. */
  readonly addressee: 'wanted' | 'former' | undefined
  readonly person: Recipient | undefined
  /** The address that the account is to have once it is confirmed. */
  readonly wantedEmail: string | undefined
  readonly hasTenant: boolean
  /** The mail is for a member of its tenant, and the account is none any more. */
  readonly hasLeft: boolean
}

/** Why a claimed mail must not be sent any more; undefined when it may be. */
export function refusalOf(
  { userId, tenantId, email }: Pick<ClaimedMail, 'userId' | 'tenantId' | 'email'>,
  { addressee, person, wantedEmail, hasTenant, hasLeft }: MailParties,
): string | undefined {
  const address = addressee === 'former' ? email : addressee === 'wanted' ? wantedEmail : person?.email
  if (userId !== null && (person === undefined || address !== email))
    return 'the account is gone or has another address now'
  if (tenantId !== null && !hasTenant) return 'the tenant is gone'
  return hasLeft ? 'the account left the tenant' : undefined
}

/**
 * Decides about a mail after an attempt: `queued` and `sending` are tried again. A mail stays `sending` once an attempt
 * has ended without the server's answer, because it may have arrived.
 */
export function verdictOn(
  delivery: MailDelivery,
  { mayHaveArrived, isLast }: { readonly mayHaveArrived: boolean; readonly isLast: boolean },
): Pick<MailVerdict, 'status' | 'reason'> {
  if (delivery.outcome === 'accepted') return { status: 'sent', reason: null }
  const { outcome, reason } = delivery
  if (outcome === 'refused' || isLast) return { status: 'failed', reason }
  return { status: outcome === 'uncertain' || mayHaveArrived ? 'sending' : 'queued', reason }
}
