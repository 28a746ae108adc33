import type { OutgoingMail } from '../../adapters/mailer.ts'
import type { Runtime } from '../../runtime.ts'
import { oneLine, renderMail, renderSubject, subjectOf } from '../templates/templates.ts'
import { commonVariables } from '../templates/variables.ts'
import type { MailToSend } from './claim.ts'
import { mailTypes } from './types.ts'

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
export function compose(rt: Runtime, { mail, person, tenant, secret, lifetimeSeconds }: MailToSend): ComposedMail {
  if (mail.messageId === null) throw new Error('the mail has no Message-ID')
  const settings = rt.settings.current(mail.tenantId ?? undefined)
  const { template } = mailTypes[mail.type]
  const ownVariables = mailTypes[mail.type].variables as (context: object, secret: string) => object
  const { context } = mail
  const now = rt.clock()
  const expiresAt = lifetimeSeconds === undefined ? '' : new Date(now.getTime() + lifetimeSeconds * 1000).toISOString()
  const common = { ...commonVariables(settings, mail.email, person, tenant, now), expiresAt }
  const subject = context.subject ?? subjectOf(template)
  const rendered = renderMail(template, { ...common, ...ownVariables(context, secret) }, subject)
  const fromName = oneLine(String(settings.from_email_name ?? settings.project_name))
  return {
    outgoing: { ...rendered, fromName, to: mail.email, messageId: mail.messageId },
    recordedSubject: renderSubject(subject, { ...common, ...ownVariables(context, hidden) }),
  }
}

/** A bounded text for the record; servers quote what they refuse. */
export function withoutSecret(text: string, secret: string): string {
  return (secret === '' ? text : text.replaceAll(secret, hidden)).slice(0, longestReason)
}

const longestReason = 500
