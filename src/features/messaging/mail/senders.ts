import type { SmtpSender } from '../../../adapters/mailer.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { CurrentSettings, SettingsRow } from '../../settings/settings.ts'
import { smtpPassword } from '../../settings/settings.ts'

/**
 * The sender of a mail of the tenant, or of the installation: SMTP of the tenant's settings, else of the installation's,
 * where it is switched on and complete, else MAIL_DEFAULT_SENDER. Outside production the inbox
 * keeps what nobody can send; in production it is undefined, and the mail waits.
 */
export function senderOf(deps: Configuration & CurrentSettings, tenantId: string | undefined): SmtpSender | undefined {
  const own = tenantId === undefined ? undefined : settingsSender(deps.config, deps.settings.own(tenantId))
  return own ?? settingsSender(deps.config, deps.settings.own(null)) ?? configuredSender(deps) ?? inboxOf(deps)
}

/** Stands for the development inbox: the name of what it "sends", and the address that comes from. */
export const inbox: SmtpSender = {
  name: 'development inbox',
  from: 'daybook@localhost',
  host: '',
  port: 0,
  secure: false,
  user: '',
  pass: '',
}

/** Whether there are inboxes for mails at all: never in production. */
export function hasInbox({ config }: Configuration): boolean {
  return config.server.environment !== 'production'
}

function inboxOf(deps: Configuration): SmtpSender | undefined {
  return hasInbox(deps) ? inbox : undefined
}

function configuredSender({ config }: Configuration): SmtpSender | undefined {
  const { senders, defaultSender: name } = config.mail
  return name === undefined ? undefined : senders[name]
}

/**
 * The sender of one row alone, undefined where it is not switched on or not complete: a tenant that names its own server
 * must not get the installation's password sent there.
 */
export function settingsSender(config: Config, row: SettingsRow | undefined): SmtpSender | undefined {
  if (row?.smtp_enabled !== true) return undefined
  const pass = row.smtp_pass === null ? undefined : smtpPassword(config, row)
  const [host, user, from] = [row.smtp_host, row.smtp_user, row.smtp_from_address].map(textOf)
  if (!(host && user && from && pass)) return undefined
  const port = typeof row.smtp_port === 'number' ? row.smtp_port : submissionPort
  const secure = typeof row.smtp_secure === 'boolean' ? row.smtp_secure || port === tlsPort : port === tlsPort
  const name = row.tenant_Id === null ? 'settings' : `settings of tenant ${row.tenant_Id}`
  return { name, host, port, secure, user, pass, from, publicOnly: !config.files.allowPrivateUrlFetch }
}

const submissionPort = 587
const tlsPort = 465

const textOf = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)
