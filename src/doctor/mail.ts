import { checkSender, type SmtpSender } from '../adapters/mailer.ts'
import { openSemaphore } from '../adapters/semaphore.ts'
import type { Config } from '../config/config.ts'
import type { Reader } from '../db/sql.ts'
import { settingsSender } from '../features/messaging/mail/mail.ts'
import { installationSettings, tenantsWithSmtp } from '../features/settings/settings.ts'
import { type Finding, ok, problem, reasonOf, warning } from './finding.ts'

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

const atOnce = 10
/** After this no other server is asked, so that thousands of dead ones don't hold the rest up. */
const longestMs = 20_000

/**
 * The SMTP servers of tenants' own settings: whether they let us in. Nothing is sent. What does not work is a warning: it
 * is the tenant that has to mend it, and everybody else has mail.
 */
export async function checkTenantMail(config: Config, db: Reader): Promise<Finding[]> {
  const semaphore = openSemaphore(atOnce)
  const startedAt = performance.now()
  const check = async (tenant: Tenant) =>
    performance.now() - startedAt > longestMs ? undefined : checkOne(config, tenant)
  const tenants = await tenantsWithSmtp(db)
  const checked = await Promise.all(tenants.map((tenant) => semaphore(() => check(tenant))))
  const found = checked.filter((findings) => findings !== undefined)
  return summaryOf(found.flat(), tenants.length - found.length)
}

type Tenant = Awaited<ReturnType<typeof tenantsWithSmtp>>[number]

/** Nothing where the settings are not complete: the tenant's mails then go by the installation's sender. */
async function checkOne(config: Config, { tenant, settings }: Tenant): Promise<(Finding | 'works')[]> {
  const who = `SMTP of tenant ${oneLine(tenant)} (${settings.tenant_Id})`
  try {
    const sender = settingsSender(config, settings)
    if (sender === undefined) return []
    const refusal = await checkSender(sender)
    return refusal === undefined ? ['works'] : [warning('mail', `${who} at ${placeOf(sender)}: ${refusal}`, remedy)]
  } catch (error) {
    return [warning('mail', `${who}: ${reasonOf(error)}`, remedyForKey)]
  }
}

const remedy = 'let the tenant correct SMTP in its settings; until then its mails wait'
const remedyForSlow = 'look again when the tenants above have corrected theirs'
const remedyForKey = 'name the former key in SECRET_KEY_PREVIOUS, or let the tenant set its SMTP password again'

function summaryOf(found: readonly (Finding | 'works')[], left: number): Finding[] {
  const findings = found.filter((each) => each !== 'works')
  const works = found.length - findings.length
  return [
    ...(works > 0 ? [ok('mail', `SMTP of ${works} tenants lets us in`)] : []),
    ...findings,
    ...(left > 0
      ? [warning('mail', `SMTP of ${left} tenants was not tried: others took too long`, remedyForSlow)]
      : []),
  ]
}

const placeOf = ({ host, port }: SmtpSender): string => `${oneLine(host)}:${port}`

/** Text of tenants, without characters that a terminal would obey. */
const oneLine = (text: string): string => text.replace(/[\p{C}\s]+/gu, ' ').slice(0, 100)
