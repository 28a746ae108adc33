import type { OutgoingMail } from '../../adapters/mailer.ts'
import type { Runtime } from '../../runtime.ts'
import { inlineImages } from '../templates/logo.ts'
import { inviterName } from '../templates/queries.ts'
import { oneLine, renderMail } from '../templates/templates.ts'
import { commonVariables, withSynonyms } from '../templates/variables.ts'
import type { MailToSend } from './claim.ts'
import { type MailContext, mailTypes, templateOf } from './types.ts'

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
 */
export async function compose(
  rt: Runtime,
  { mail, person, tenant, secret, lifetimeSeconds }: MailToSend,
): Promise<ComposedMail> {
  if (mail.messageId === null) throw new Error('the mail has no Message-ID')
  const { context, tenantId } = mail
  const settings = rt.settings.current(tenantId ?? undefined)
  const ownVariables = mailTypes[mail.type].variables as (context: object, secret: string) => object
  const now = rt.clock()
  const expiresAt = lifetimeSeconds === undefined ? undefined : new Date(now.getTime() + lifetimeSeconds * 1000)
  const inviter = context.inviteId === undefined ? '' : await inviterName(rt.db, context.inviteId)
  const common = { ...commonVariables(settings, mail.email, person, tenant, now), inviterName: inviter ?? '' }
  const filled = (shown: string) => withSynonyms({ ...common, ...ownVariables(context, shown) }, settings, expiresAt)
  const { recordedSubject, ...rendered } = await renderMail(rt, {
    type: templateOf(mail.type, context as MailContext[typeof mail.type]),
    tenantId,
    variables: filled(secret),
    recordedVariables: filled(hidden),
    subject: context.subject,
  })
  const fromName = oneLine(String(settings.from_email_name ?? settings.project_name))
  const inline = inlineImages(rendered.html, rt.mailLogo)
  return { outgoing: { ...rendered, inline, fromName, to: mail.email, messageId: mail.messageId }, recordedSubject }
}

/** A bounded text for the record; servers quote what they refuse. */
export function withoutSecret(text: string, secret: string): string {
  return (secret === '' ? text : text.replaceAll(secret, hidden)).slice(0, longestReason)
}

const longestReason = 500
