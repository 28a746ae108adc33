import { createHmac } from 'node:crypto'
import type { IdSource } from '../../../adapters/ids.ts'
import { mailboxOf, type OutgoingMail } from '../../../adapters/mailer.ts'
import { codeFrom, hashOneTime } from '../../../adapters/one-time-secrets.ts'
import { deriveKey } from '../../../adapters/tokens.ts'
import type { Config } from '../../../config/config.ts'
import type { MailSender } from '../../../config/families.ts'
import type { Tx } from '../../../db/sql.ts'
import { lockSecret, renewSecret, replaceSecret, type SecretRow } from '../../../db/unlogged/secrets.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import {
  commonVariables,
  inlineImages,
  oneLine,
  type Recipient,
  renderMail,
  type TenantRow,
  withSynonyms,
} from '../templates/templates.ts'
import { attachmentsOf } from './attachments.ts'
import { refusalOf } from './decide.ts'
import {
  type ClaimedMail,
  claimMail,
  inviterName,
  isMember,
  keepInviteToken,
  type MailReads,
  mailStatus,
  newerMailExists,
  personOf,
  settleMail,
  tenantOf,
  wantedEmail,
} from './queries.ts'
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

/** A mail that this worker may send now, with everything that goes into it. */
export type MailToSend = {
  readonly mail: ClaimedMail
  readonly person: Recipient | undefined
  readonly tenant: TenantRow | undefined
  /** Empty for mails without one. */
  readonly secret: string
  /** Of the secret, from now. */
  readonly lifetimeSeconds: number | undefined
}

/** `refused`: failed just now, because it must not be sent any more. */
type Claim =
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
 * without an outcome means that the secret may be in somebody's hands.
 */
export function claim(
  deps: Writes & IdSource,
  actor: Actor,
  { id, sender, claimSeconds }: ClaimRequest,
): Promise<Claim> {
  return commit(deps, actor, async (tx): Promise<{ result: Claim }> => {
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
 * arrived is not brought back after somebody used it.
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

export type ComposedMail = {
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
  const common = { ...commonVariables(settings, mail.email, person, tenant, now), inviterName: inviter ?? '' }
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
export function withoutSecret(text: string, secret: string): string {
  return (secret === '' ? text : text.replaceAll(secret, hidden)).slice(0, longestReason)
}

const longestReason = 500
