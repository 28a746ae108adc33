import { createHmac } from 'node:crypto'
import type { IdSource } from '../../../adapters/ids.ts'
import { TemplateError } from '../../../adapters/liquid.ts'
import type { Logs } from '../../../adapters/logger.ts'
import {
  type MailDelivery,
  type Mailer,
  mailboxOf,
  type OutgoingMail,
  type SmtpSender,
} from '../../../adapters/mailer.ts'
import { retryTransient } from '../../../adapters/retry.ts'
import { codeFrom, deriveKey, hashOneTime } from '../../../adapters/tokens.ts'
import type { Config } from '../../../config/config.ts'
import type { MailSender } from '../../../config/families.ts'
import type { Tx, UnloggedWrites } from '../../../db/sql.ts'
import { keepDevelopmentMail, renewMailClaim } from '../../../db/unlogged/messages.ts'
import { lockSecret, renewSecret, replaceSecret, type SecretRow } from '../../../db/unlogged/secrets.ts'
import { commit, commitRow, type Writes } from '../../../events/commit.ts'
import { type Actor, systemActor } from '../../../events/types.ts'
import {
  commonVariables,
  inlineImages,
  oneLine,
  type Recipient,
  recipientOf,
  renderMail,
  type TenantRow,
  withAbout,
  withSynonyms,
} from '../templates/templates.ts'
import { AttachmentError, attachmentsOf } from './attachments.ts'
import {
  type ClaimedMail,
  claimMail,
  deleteOldMails,
  failAbandonedMails,
  inviterName,
  isMember,
  keepInviteToken,
  type MailReads,
  type MailVerdict,
  type MailWrites,
  mailOwner,
  mailStatus,
  newerMailExists,
  personOf,
  settleMail,
  tenantOf,
  wantedEmail,
} from './queries.ts'
import { inbox, type Lanes, senderOf } from './senders.ts'
import {
  type MailContext,
  type MailSecret,
  mailTypes,
  type SecretPurpose,
  secretIdentifier,
  secretOfMail,
  secretOwner,
  templateOf,
  typesOfPurpose,
} from './types.ts'

/** The attempt of a job, as the workers' loop gives it. */
type MailAttempt = {
  readonly retryCount: number
  readonly retryLimit: number
  /** The actor that is recorded as the sender. */
  readonly actor?: Actor
  readonly signal: AbortSignal
  /** The outcome of the attempt where the mailer is not to be asked. */
  readonly known?: MailDelivery
}

/** Longest time of one attempt to send, below the queue's time limit so that its outcome can still be recorded. */
const sendMs = 180_000
/** A claim that was not renewed for so long has been lost with its worker, and is taken over. */
const claimSeconds = 60
const renewMs = 15_000
/** Mails that changed later than this may still be on their way into the queue. */
const abandonedAfterSeconds = 600

/**
 * Sends one mail for a job that has a place in its sender's lane, which it gives back. Database effects happen once, the mail
 * is sent at least once: a repetition is possible only when the line broke, or this process died, before the answer of the
 * SMTP server was recorded, and has the same Message-ID. While the sender's server fails nothing is tried: the job goes back
 * to the queue at once, and after its last attempt the mail is recorded as `failed`.
 *
 * Throws when the mail shall be tried again (the queue's backoff) and when the last attempt failed; a refused mail is
 * recorded as `failed` and needs no further attempt.
 */
export async function sendMailInLane(
  deps: MailWrites,
  mailer: Mailer,
  lanes: Lanes,
  emailLogId: string,
  job: JobOfGroup,
): Promise<void> {
  const closed = job.group === undefined ? undefined : lanes.closed(job.group)
  let attempted: AttemptResult
  try {
    if (closed !== undefined && job.retryCount < job.retryLimit) throw new Error(closed.reason)
    attempted = await attemptMail(deps, mailer, emailLogId, { ...job, ...(closed && { known: closed }) })
  } finally {
    lanes.leave(job.id, closed === undefined && attempted! !== 'busy' ? attempted! : undefined)
  }
  if (attempted === 'busy') throw new Error('another worker holds the mail')
  if (attempted?.outcome === 'delayed' || attempted?.outcome === 'uncertain') throw new Error(attempted.reason)
}

type JobOfGroup = MailAttempt & { readonly id: string; readonly group: string | undefined }
type AttemptResult = MailDelivery | 'busy' | undefined

/** One attempt, recorded in svc_EmailLog. Undefined when there was nothing to send any more, which is recorded too. */
export async function attemptMail(
  deps: MailWrites,
  mailer: Mailer,
  emailLogId: string,
  attempt: MailAttempt,
): Promise<AttemptResult> {
  const { tenantId, from } = await mailOwner(deps.db, emailLogId)
  const sender = senderOf(deps, tenantId ?? undefined, from ?? undefined)
  const claimed = await claim(deps, attempt.actor ?? systemActor, { id: emailLogId, sender, claimSeconds })
  if (claimed.state === 'busy') return 'busy'
  if (claimed.state !== 'claimed') {
    const reason = claimed.state === 'refused' ? claimed.reason : undefined
    deps.log.info({ emailLogId, reason }, `the mail is ${claimed.state}`)
    return undefined
  }
  const { delivery, subject } = await deliver(deps, mailer, sender, claimed.toSend, attempt)
  const isLast = attempt.retryCount >= attempt.retryLimit
  const verdict = {
    ...statusAfter(delivery, { mayHaveArrived: claimed.toSend.mail.mayHaveArrived, isLast }),
    sender: sender?.name,
    subject,
  }
  if (await record(deps, claimed.toSend, verdict, attempt))
    deps.log.info({ emailLogId, status: verdict.status, reason: verdict.reason }, 'mail attempted')
  else deps.log.warn({ emailLogId }, 'the claim of a mail was lost: its outcome is for another worker to record')
  return delivery
}

/** Ends mails that no job will send any more. */
export async function sweepMails(deps: Writes): Promise<void> {
  const failed = await commit(deps, systemActor, async (tx) => ({
    result: await failAbandonedMails(tx, abandonedAfterSeconds),
  }))
  if (failed > 0) deps.log.warn({ mails: failed }, 'mails were given up: no job is left that would send them')
}

/** Deletions are events with the rows in them, so a batch is small. */
const batchSize = 500

/**
 * Deletes mails that were sent or have failed EMAIL_LOG_RETENTION_DAYS ago, where EMAIL_LOG_CLEANUP_ENABLED. Each batch is
 * a transaction; stops between two.
 */
export async function cleanMailLog(deps: Writes, signal: AbortSignal): Promise<void> {
  const { emailCleanupEnabled, emailRetentionDays } = deps.config.log
  if (!emailCleanupEnabled) return
  let deleted = 0
  for (const status of ['sent', 'failed'] as const)
    for (let count = batchSize; count === batchSize; deleted += count) {
      signal.throwIfAborted()
      count = (await commitRow(deps, systemActor, deleteOldMails(status, emailRetentionDays, batchSize))).length
      if (count > 0) deps.log.info({ deleted: deleted + count, status }, 'old mails are being deleted')
    }
}

type DeliveryRecord = { readonly delivery: MailDelivery; readonly subject?: string }

async function deliver(
  deps: MailWrites,
  mailer: Mailer,
  sender: SmtpSender | undefined,
  toSend: MailToSend,
  { signal, known }: MailAttempt,
): Promise<DeliveryRecord> {
  if (known !== undefined) return { delivery: known }
  if (sender === undefined) return withoutSender(deps)
  const composed = await composeOrFail(deps, toSend)
  if ('outcome' in composed) return { delivery: composed }
  if (sender === inbox) return keep(deps, toSend, composed)
  const claimed = keepClaim(deps, toSend)
  const limited = AbortSignal.any([signal, claimed.lost, AbortSignal.timeout(sendMs)])
  const delivery = await deps.tracing
    .part('send mail', { kind: 'client', attributes: { 'daybook.mail.id': toSend.mail.id } }, () =>
      mailer.send(sender, composed.outgoing, limited),
    )
    .finally(claimed.release)
  const subject = composed.recordedSubject
  if (delivery.outcome === 'accepted') return { delivery, subject }
  return { delivery: { ...delivery, reason: withoutSecret(delivery.reason, toSend.secret) }, subject }
}

/** Renews the claim until released; `lost` when another worker has it: the two must not send at the same time. */
function keepClaim(deps: UnloggedWrites & Logs, { mail }: MailToSend): { readonly lost: AbortSignal; release(): void } {
  const lost = new AbortController()
  const renew = async () => {
    try {
      if (!(await renewMailClaim(deps, mail.id, mail.claimToken))) lost.abort(new Error('the claim was lost'))
    } catch (error) {
      deps.log.warn({ err: error, emailLogId: mail.id }, 'the claim of a mail could not be renewed')
    }
  }
  const timer = setInterval(renew, renewMs)
  return { lost: lost.signal, release: () => clearInterval(timer) }
}

function withoutSender({ log }: Logs): DeliveryRecord {
  const reason = 'no mail sender is configured: set MAIL_SENDERS_ENABLED'
  log.warn(reason)
  return { delivery: { outcome: 'delayed', reason, problem: 'no sender' } }
}

async function keep(
  deps: UnloggedWrites,
  { mail }: MailToSend,
  { outgoing, recordedSubject }: ComposedMail,
): Promise<DeliveryRecord> {
  const { subject, html, text } = outgoing
  await keepDevelopmentMail(deps, { emailLogId: mail.id, subject, html, text })
  return { delivery: { outcome: 'accepted', response: 'kept' }, subject: recordedSubject }
}

/** A broken template does not fix itself between attempts, and a file that is gone does not come back. */
async function composeOrFail(
  deps: MailReads,
  toSend: MailToSend,
): Promise<ComposedMail | Extract<MailDelivery, { reason: string }>> {
  try {
    return await compose(deps, toSend)
  } catch (error) {
    const reason = withoutSecret(`the mail could not be composed: ${(error as Error).message}`, toSend.secret)
    const problem = 'not composed'
    const isForGood = error instanceof TemplateError || error instanceof AttachmentError
    return { outcome: isForGood ? 'refused' : 'delayed', reason, problem }
  }
}

/** Insists while the database is away: an accepted mail whose acceptance is forgotten would be sent again. */
async function record(
  deps: Writes,
  { mail }: MailToSend,
  verdict: MailVerdict,
  { actor = systemActor, signal }: MailAttempt,
): Promise<boolean> {
  const settle = () =>
    commit(deps, actor, async (tx) => ({ result: await settleMail(tx, mail.id, mail.claimToken, verdict) }))
  return retryTransient(settle, {
    backoff: { firstMs: 100, longestMs: 5000 },
    mayRetry: () => !signal.aborted,
    onRetry: (error) =>
      deps.log.warn({ err: error, emailLogId: mail.id }, 'the outcome of a mail could not be recorded yet'),
  })
}

/** A mail that this worker may send now, with everything that goes into it. */
type MailToSend = {
  readonly mail: ClaimedMail
  readonly person: Recipient | undefined
  readonly tenant: TenantRow | undefined
  /** Empty for mails without one. */
  readonly secret: string
  /** Of the secret, from now. */
  readonly lifetimeSeconds: number | undefined
}

/** `refused`: failed just now, because it must not be sent any more. */
type MailClaim =
  | { readonly state: 'claimed'; readonly toSend: MailToSend }
  | { readonly state: 'refused'; readonly reason: string }
  | { readonly state: 'busy' | 'finished' | 'deleted' }

type ClaimRequest = {
  readonly id: string
  readonly sender: MailSender | undefined
  readonly claimSeconds: number
}

/**
 * Claims a mail for one attempt and makes its secret, in one transaction: a claimed mail has its secret, and a claim
 * without an outcome means that the secret may have been received.
 */
export function claim(
  deps: Writes & IdSource,
  actor: Actor,
  { id, sender, claimSeconds }: ClaimRequest,
): Promise<MailClaim> {
  return commit(deps, actor, async (tx): Promise<{ result: MailClaim }> => {
    const request = { id, token: deps.newId(), claimSeconds, messageId: sender && messageIdOf(id, sender) }
    const mail = await claimMail(tx, request)
    if (mail === undefined) return { result: { state: await whyNot(tx, id) } }
    const prepared = await prepare(tx, deps.config, mail)
    if (typeof prepared !== 'string') return { result: { state: 'claimed', toSend: prepared } }
    await settleMail(tx, id, mail.claimToken, { status: 'failed', reason: prepared })
    return { result: { state: 'refused', reason: prepared } }
  })
}

/**
 * The secret of a mail: the same for every attempt to send it, so that whichever copy arrives works, and unknown to
 * the database. A token is 256 bits in hex, a code 8 symbols.
 */
function secretOf(config: Config, emailLogId: string, { purpose, form }: MailSecret): string {
  const random = createHmac('sha256', deriveKey(config, 'mail secrets'))
    .update(`${emailLogId} ${purpose}`)
    .digest('hex')
  return form === 'token' ? random : codeFrom(random)
}

/** The domain is the sender's, so that it does not depend on the machine. */
function messageIdOf(id: string, sender: MailSender): string {
  const { address } = mailboxOf(sender)
  return `<${id}@${address.slice(address.lastIndexOf('@') + 1)}>`
}

async function whyNot(tx: Tx, id: string): Promise<'busy' | 'finished' | 'deleted'> {
  const status = await mailStatus(tx, id)
  if (status === undefined) return 'deleted'
  return status === 'sent' || status === 'failed' ? 'finished' : 'busy'
}

/** The content of the mail, or the reason why it must not be sent. */
async function prepare(tx: Tx, config: Config, mail: ClaimedMail): Promise<MailToSend | string> {
  const person = mail.userId === null ? undefined : await personOf(tx, mail.userId)
  const tenant = mail.tenantId === null ? undefined : await tenantOf(tx, mail.tenantId)
  const { purpose, addressee } = mailTypes[mail.type]
  const isForMember = config.tenancy.enabled && mail.userId !== null && mail.tenantId !== null && purpose !== 'invite'
  const refusal = refusalOf(mail, {
    addressee,
    person,
    wantedEmail: addressee === 'wanted' && person !== undefined ? await wantedEmail(tx, mail.userId!) : undefined,
    hasTenant: tenant !== undefined,
    hasLeft: isForMember && !(await isMember(tx, mail)),
  })
  if (refusal !== undefined) return refusal
  const kind = secretOfMail(mail.type, mail.context as never)
  if (kind === undefined) return { mail, person, tenant, secret: '', lifetimeSeconds: undefined }
  const secret = secretOf(config, mail.id, kind)
  const { lifetimeSeconds } = kind
  const row = { hash: hashOneTime(config, kind.purpose, kind.form, secret), lifetimeSeconds }
  return (await refusalOfSecret(tx, mail, kind.purpose, row)) ?? { mail, person, tenant, secret, lifetimeSeconds }
}

/**
 * Stores the secret's hash. A newer mail's secret is not replaced by an older mail's retry, and a secret that may have
 * arrived is not brought back after it was used.
 */
async function refusalOfSecret(
  tx: Tx,
  mail: ClaimedMail,
  purpose: SecretPurpose,
  stored: Pick<SecretRow, 'hash' | 'lifetimeSeconds'>,
): Promise<string | undefined> {
  if (purpose === 'invite') return refusalOfInvite(tx, mail, stored)
  const row = { identifier: secretIdentifier(purpose, secretOwner(purpose, mail.email, mail.userId)), ...stored }
  await lockSecret(tx, row.identifier)
  if (await newerMailExists(tx, mail.id, typesOfPurpose(purpose))) return 'superseded by a newer mail'
  if (!mail.mayHaveArrived) await replaceSecret(tx, row)
  else if (!(await renewSecret(tx, row))) return 'an earlier attempt may have arrived, and its link is used or expired'
  return undefined
}

/** An invitation has one mail, so its token replaces nothing; once accepted or revoked it gets none any more. */
async function refusalOfInvite(
  tx: Tx,
  { context }: ClaimedMail,
  stored: Pick<SecretRow, 'hash' | 'lifetimeSeconds'>,
): Promise<string | undefined> {
  return (await keepInviteToken(tx, context.inviteId!, stored)) ? undefined : 'the invitation is over'
}

type ComposedMail = {
  readonly outgoing: OutgoingMail
  /** The subject as it may be kept: a template can put the secret into it. */
  readonly recordedSubject: string
}

const hidden = '•••'

/**
 * Fills the template of a claimed mail with the settings of its tenant, its person and its secret.
 *
 * @throws {TemplateError} when the template is broken
 * @throws {AttachmentError} when a file of it cannot be sent
 */
export async function compose(
  deps: MailReads,
  { mail, person, tenant, secret, lifetimeSeconds }: MailToSend,
): Promise<ComposedMail> {
  if (mail.messageId === null) throw new Error('the mail has no Message-ID')
  const { context, tenantId } = mail
  const settings = deps.settings.current(tenantId ?? undefined)
  const ownVariables = mailTypes[mail.type].variables as (context: object, secret: string) => object
  const now = deps.clock()
  const expiresAt = lifetimeSeconds === undefined ? undefined : new Date(now.getTime() + lifetimeSeconds * 1000)
  const inviter = context.inviteId === undefined ? '' : await inviterName(deps.db, context.inviteId)
  const { about = {} } = context
  const known = commonVariables(settings, mail.email, person ?? recipientOf(about), tenant ?? about.tenant, now)
  const common = { ...known, ...withAbout(known, about), inviterName: inviter ?? '' }
  const filled = (shown: string) => withSynonyms({ ...common, ...ownVariables(context, shown) }, settings, expiresAt)
  const { recordedSubject, ...rendered } = await renderMail(deps, {
    type: templateOf(mail.type, context as MailContext[typeof mail.type]),
    tenantId,
    variables: filled(secret),
    recordedVariables: filled(hidden),
    subject: context.subject,
  })
  const fromName = oneLine(String(settings.from_email_name ?? settings.project_name))
  const inline = await inlineImages(deps, rendered.html, tenantId ?? undefined)
  const attachments = await attachmentsOf(deps, context.attachments ?? [], tenantId)
  const { messageId, email: to } = mail
  return { outgoing: { ...rendered, inline, attachments, fromName, to, messageId }, recordedSubject }
}

/** A bounded text for the record; servers quote what they refuse. */
function withoutSecret(text: string, secret: string): string {
  return (secret === '' ? text : text.replaceAll(secret, hidden)).slice(0, longestReason)
}

const longestReason = 500

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
export function statusAfter(
  delivery: MailDelivery,
  { mayHaveArrived, isLast }: { readonly mayHaveArrived: boolean; readonly isLast: boolean },
): Pick<MailVerdict, 'status' | 'reason'> {
  if (delivery.outcome === 'accepted') return { status: 'sent', reason: null }
  const { outcome, reason } = delivery
  if (outcome === 'refused' || isLast) return { status: 'failed', reason }
  return { status: outcome === 'uncertain' || mayHaveArrived ? 'sending' : 'queued', reason }
}
