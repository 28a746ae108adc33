import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { InlineImage } from '../../../adapters/mailer.ts'
import { ConfigError } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { isObject } from '../../../query/guards.ts'
import { type AssetWrites, contentsOf, settingsAsset, wholeOf } from '../../files/assets/assets.ts'
import type { CurrentSettings, SettingsRow } from '../../settings/settings.ts'

/** The recipient of a mail, as templates see them. */
export type Recipient = {
  readonly firstName: string
  readonly lastName: string | null
  readonly email: string
  readonly phone: string | null
}

/** A tenant's row. Templates see its name, logo, website, address, phone and email. */
export type TenantRow = Readonly<Record<string, unknown>>

/** The variables that every template has. Missing values are empty strings, so that templates need no test for null. */
export function commonVariables(
  settings: SettingsRow,
  email: string,
  person: Recipient | undefined,
  tenant: TenantRow | undefined,
  now: Date,
) {
  const firstName = person?.firstName ?? ''
  const lastName = person?.lastName ?? ''
  const fullName = `${firstName} ${lastName}`.trim()
  return {
    ...projectVariables(settings),
    ...timeVariables(settings, now),
    name: firstName,
    user: { firstName, lastName, fullName, email, phone: person?.phone ?? '' },
    tenant: picked(tenant ?? {}, ['name', 'logo', 'website', 'address', 'phone', 'email']),
  }
}

/** Adds the other vocabulary's names, and when the secret expires, to what has not said so itself. */
export function withSynonyms(
  variables: Readonly<Record<string, unknown>>,
  settings: SettingsRow,
  expiresAt: Date | undefined,
): Readonly<Record<string, unknown>> {
  return {
    magicLinkUrl: variables.magicLink ?? '',
    code: variables.magicCode || variables.resetPasswordCode || '',
    loginUrl: variables.loginLink ?? '',
    expiresAt: expiresAt?.toISOString() ?? '',
    expirationDate: expiresAt === undefined ? '' : timeVariables(settings, expiresAt).currentDate,
    ...variables,
  }
}

function projectVariables(settings: SettingsRow) {
  const texts = picked(settings, ['project_name', 'project_color', 'project_url', 'app_url', 'email_signature'])
  return {
    ...texts,
    project_color: texts.project_color || '#663399',
    logo_url: logoAddress,
    loginLink: texts.app_url ? `${texts.app_url.replace(/\/+$/, '')}/login` : '',
  }
}

/** In the time zone and form of the settings. */
function timeVariables(settings: SettingsRow, now: Date) {
  const part = partsOf(now, textIn(settings, 'timezone') || 'UTC')
  const form = textIn(settings, 'date_format') || 'YYYY-MM-DD'
  const date = form.replace(/YYYY|YY|MM|DD/g, (token) => part[token] ?? token)
  return { currentDate: date, currentTime: `${part.HH}:${part.mm}`, currentYear: part.YYYY }
}

function partsOf(now: Date, timeZone: string): Record<string, string> {
  const parts = clockIn(timeZone).formatToParts(now)
  const get = (type: Intl.DateTimeFormatPartTypes) => parts.find((part) => part.type === type)?.value ?? ''
  const year = get('year')
  return { YYYY: year, YY: year.slice(-2), MM: get('month'), DD: get('day'), HH: get('hour'), mm: get('minute') }
}

/** A time zone that the settings have wrong must not stop a mail: then it is UTC. */
function clockIn(timeZone: string): Intl.DateTimeFormat {
  const options = { hourCycle: 'h23', dateStyle: 'short', timeStyle: 'short' } as const
  try {
    return new Intl.DateTimeFormat('sv-SE', { ...options, timeZone })
  } catch (error) {
    if (error instanceof RangeError) return new Intl.DateTimeFormat('sv-SE', { ...options, timeZone: 'UTC' })
    throw error
  }
}

function picked<const Key extends string>(
  row: Readonly<Record<string, unknown>>,
  keys: readonly Key[],
): Record<Key, string> {
  return Object.fromEntries(keys.map((key) => [key, textIn(row, key)])) as Record<Key, string>
}

function textIn(row: Readonly<Record<string, unknown>>, key: string): string {
  const value = row[key]
  return value === null || value === undefined ? '' : String(value)
}

const samplePerson = { firstName: 'Ada', lastName: 'Lovelace', email: 'ada@example.com', phone: '+44 20 7946 0000' }
const sampleTenant = {
  name: 'Analytical Engines',
  logo: '',
  website: 'https://engines.example.com',
  address: '12 St James’s Square, London',
  phone: '+44 20 7946 0001',
  email: 'office@engines.example.com',
}
const sampleToken = 'sample'
const sampleLifetimeMs = 3_600_000

/**
 * Every variable that a template may use, as in a mail to somebody, with the settings as they are. `data` takes the
 * place of what it names, within `user` and `tenant` too.
 */
export function sampleVariables(
  deps: Clock & CurrentSettings,
  type = '',
  tenantId?: string,
  data: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> {
  const settings = deps.settings.current(tenantId)
  const now = deps.clock()
  const base = String(settings.app_url ?? 'https://app.example.com').replace(/\/+$/, '')
  const variables = {
    ...commonVariables(settings, samplePerson.email, samplePerson, sampleTenant, now),
    magicLink: type === 'magicLinkCode' ? '' : `${base}/auth/magiclink/${sampleToken}`,
    magicCode: type === 'magicLinkCode' ? 'H7K2M4QX' : '',
    resetPasswordLink: `${base}/auth/reset-password/${sampleToken}`,
    resetUrl: `${base}/auth/reset-password/${sampleToken}`,
    resetPasswordCode: '',
    verificationLink: `${base}/auth/verify-email/${sampleToken}`,
    verifyUrl: `${base}/auth/verify-email/${sampleToken}`,
    oldEmail: 'ada@old.example.com',
    newEmail: 'ada@new.example.com',
    inviteLink: `${base}/accept-invite?token=${sampleToken}`,
    inviterName: 'Charles Babbage',
    existing: type === 'inviteExistingUser' ? 'true' : '',
    notification_title: 'Your report is ready',
    notification_message: 'It has 12 pages.',
    action_url: base,
    action_text: 'Read it',
  }
  const filled = withSynonyms({ ...variables, ...data }, settings, new Date(now.getTime() + sampleLifetimeMs))
  return { ...filled, user: merged(variables.user, data.user), tenant: merged(variables.tenant, data.tenant) }
}

function merged(sample: object, given: unknown): unknown {
  return isObject(given) ? { ...sample, ...given } : (given ?? sample)
}

/** A PNG that mails show where the settings name no icon. */
export type MailLogo = { readonly mailLogo: Buffer }

/** The value of `logo_url`: the image that comes with the mail. */
const logoAddress = 'cid:logo'

/** Bytes; it is part of every mail. */
const largest = 256 * 1024
const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

/**
 * The PNG at `templates/logo/logo.png` of the extensions, else the default logo. It goes to
 * strangers, so nothing may lead elsewhere: a link is refused.
 *
 * @throws {ConfigError} for a link, for what is no PNG and for what is too large
 */
export function readLogo(extensionsDir: string): Buffer {
  const path = join('templates', 'logo', 'logo.png')
  const file = join(extensionsDir, path)
  const found = lstatSync(file, { throwIfNoEntry: false })
  if (found === undefined) return readFileSync(new URL('./logo.png', import.meta.url))
  const isItself = found.isFile() && realpathSync(file) === join(realpathSync(extensionsDir), path)
  if (!isItself) throw new ConfigError(`EXTENSIONS_DIR: ${file} is a link or no file`)
  if (found.size > largest) throw new ConfigError(`EXTENSIONS_DIR: ${file} is larger than ${largest} bytes`)
  const image = readFileSync(file)
  if (!image.subarray(0, signature.length).equals(signature))
    throw new ConfigError(`EXTENSIONS_DIR: ${file} is not a PNG`)
  return image
}

/** The capabilities to find the logo of a mail. */
export type LogoReads = MailLogo & AssetWrites

/** The images that must go with the HTML so that its logo shows. */
export async function inlineImages(
  deps: LogoReads,
  html: string,
  tenantId: string | undefined,
): Promise<readonly InlineImage[]> {
  return html.includes(logoAddress) ? [{ cid: 'logo', ...(await logoOf(deps, tenantId)) }] : []
}

/** The same HTML for a browser, which knows no parts of mails. */
export async function withEmbeddedLogo(deps: LogoReads, html: string, tenantId: string | undefined): Promise<string> {
  if (!html.includes(logoAddress)) return html
  const { contentType, content } = await logoOf(deps, tenantId)
  return html.replaceAll(logoAddress, `data:${contentType};base64,${content.toString('base64')}`)
}

type Logo = Omit<InlineImage, 'cid'>

/** A mail is worth more than its logo: where the settings' icon cannot be had, it is the PNG. */
async function logoOf(deps: LogoReads, tenantId: string | undefined): Promise<Logo> {
  const icon = await iconOf(deps, tenantId).catch((error: unknown) => {
    deps.log.warn({ err: error, tenantId }, 'a mail has the default logo: the icon of the settings could not be read')
    return undefined
  })
  return icon ?? { contentType: 'image/png', content: deps.mailLogo }
}

/** Types that every mail program shows. */
const usualTypes = new Set(['image/png', 'image/jpeg', 'image/gif'])
/** Twice the size in which a mail shows it, for fine screens. */
const smaller = { width: 480, height: 240, fit: 'inside', withoutEnlargement: true, format: 'png' } as const

/** The file that the settings name as `email_icon_Id`, made smaller where it is large or of another format. */
async function iconOf(deps: LogoReads, tenantId: string | undefined): Promise<Logo | undefined> {
  const icon = await settingsAsset(deps, 'email_icon', tenantId)
  if (icon === undefined) return undefined
  const contents = contentsOf(deps)
  const isFit = icon.typeProven && usualTypes.has(icon.type) && icon.size <= largest
  const content = await wholeOf(
    isFit ? contents.original(icon) : await contents.variant(icon, smaller, { turn: 'mail', gone: undefined }),
  )
  if (content === undefined) throw new Error('its content is gone')
  return { contentType: isFit ? icon.type : 'image/png', content }
}
