import { TemplateError } from '../../../adapters/liquid.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { MailDelivery, Mailer, SmtpSender } from '../../../adapters/mailer.ts'
import { retryTransient } from '../../../adapters/retry.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import { keepDevelopmentMail, renewMailClaim } from '../../../db/unlogged/mails.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit, commitRow } from '../../../events/commit.ts'
import { type Actor, systemActor } from '../../../events/types.ts'
import { AttachmentError } from './attachments.ts'
import { type ComposedMail, claim, compose, type MailToSend, withoutSecret } from './claim.ts'
import { verdictOn } from './decide.ts'
import type { Lanes } from './lanes.ts'
import {
  deleteOldMails,
  failAbandonedMails,
  type MailReads,
  type MailVerdict,
  type MailWrites,
  mailOwner,
  settleMail,
} from './queries.ts'
import { inbox, senderOf } from './senders.ts'

/** The attempt of a job, as the workers' loop gives it. */
type Attempt = {
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
 * Sends one mail. Database effects happen once, the mail is sent at least once: a repetition is possible only when
 * the line broke, or this process died, before the answer of the SMTP server was recorded, and has the same
 * Message-ID.
 *
 * Throws when the mail shall be tried again (the queue's backoff) and when the last attempt failed; a refused mail is
 * recorded as `failed` and needs no further attempt.
 */
export async function sendMail(deps: MailWrites, mailer: Mailer, emailLogId: string, attempt: Attempt): Promise<void> {
  throwUnlessOver(await attemptMail(deps, mailer, emailLogId, attempt))
}

/**
 * The same for a job that has a place in its sender's lane, which it gives back. While the sender's server fails nothing
 * is tried: the job goes back to the queue at once, and after its last attempt the mail is recorded as `failed`.
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
  throwUnlessOver(attempted)
}

type JobOfGroup = Attempt & { readonly id: string; readonly group: string | undefined }
type AttemptResult = MailDelivery | 'busy' | undefined

function throwUnlessOver(attempted: AttemptResult): void {
  if (attempted === 'busy') throw new Error('another worker holds the mail')
  if (attempted?.outcome === 'delayed' || attempted?.outcome === 'uncertain') throw new Error(attempted.reason)
}

/** One attempt, recorded in svc_EmailLog. Undefined when there was nothing to send any more, which is recorded too. */
export async function attemptMail(
  deps: MailWrites,
  mailer: Mailer,
  emailLogId: string,
  attempt: Attempt,
): Promise<AttemptResult> {
  const sender = senderOf(deps, (await mailOwner(deps.db, emailLogId)) ?? undefined)
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
    ...verdictOn(delivery, { mayHaveArrived: claimed.toSend.mail.mayHaveArrived, isLast }),
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
  { signal, known }: Attempt,
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

/** Renews the claim until released; `lost` when somebody else has it, who shall not send at the same time. */
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
  return { delivery: { outcome: 'delayed', reason, problem: 'No mail sender is configured' } }
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

/** A broken template does not mend itself between attempts, and a file that is gone does not come back. */
async function composeOrFail(
  deps: MailReads,
  toSend: MailToSend,
): Promise<ComposedMail | Extract<MailDelivery, { reason: string }>> {
  try {
    return await compose(deps, toSend)
  } catch (error) {
    const reason = withoutSecret(`the mail could not be composed: ${(error as Error).message}`, toSend.secret)
    const problem = 'The mail could not be composed'
    const isForGood = error instanceof TemplateError || error instanceof AttachmentError
    return { outcome: isForGood ? 'refused' : 'delayed', reason, problem }
  }
}

/** Insists while the database is away: an accepted mail whose acceptance is forgotten would be sent again. */
async function record(
  deps: Writes,
  { mail }: MailToSend,
  verdict: MailVerdict,
  { actor = systemActor, signal }: Attempt,
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
