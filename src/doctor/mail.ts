import { checkSender, type SmtpSender } from '../adapters/mailer.ts'
import type { Config } from '../config/config.ts'
import type { Reader } from '../db/sql.ts'
import { settingsSender } from '../features/messaging/mail/mail.ts'
import { installationSettings } from '../features/settings/settings.ts'
import { type Finding, ok, problem, warning } from './finding.ts'

/**
 * Every sender of the environment and, where there is a database, the one of the installation's settings: whether its
 * server lets us in. Nothing is sent.
 */
export async function checkMail(config: Config, db: Reader | undefined): Promise<Finding[]> {
  const row = db && (await installationSettings(db))
  const ofSettings = row && settingsSender(config, row)
  const senders = [...Object.values(config.mail.senders), ...(ofSettings === undefined ? [] : [ofSettings])]
  if (senders.length > 0) return Promise.all(senders.map(check))
  return [
    config.server.environment === 'production'
      ? warning(
          'mail',
          'no sender is configured: mails wait',
          'name one in MAIL_SENDERS_ENABLED, or set SMTP in the settings',
        )
      : ok('mail', 'no sender is configured: mails are shown at /_dev/mail'),
  ]
}

async function check(sender: SmtpSender): Promise<Finding> {
  const who = `sender ${sender.name} at ${sender.host}:${sender.port}`
  const refusal = await checkSender(sender)
  if (refusal === undefined) return ok('mail', `${who} lets us in`)
  return problem('mail', `${who}: ${refusal}`, remedyFor(refusal, sender))
}

function remedyFor(refusal: string, { name, port, secure }: SmtpSender): string {
  if (refusal.includes('user name or password')) return `correct user and password of the sender ${name}`
  if (refusal.includes('secure connection'))
    return `correct SMTP_SECURE of the sender ${name}: it is ${secure} with port ${port}; 465 is TLS from the first byte, 587 is STARTTLS`
  return `correct host and port of the sender ${name}, or open the firewall to port ${port}`
}
