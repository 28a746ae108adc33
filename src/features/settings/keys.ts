import { isIP } from 'node:net'
import { AppError } from '../../errors.ts'
import { isObject } from '../../query/guards.ts'
import { isUuid } from '../../uuid.ts'

/**
 * Every key of the settings that somebody may set (spec: Settings record): what its values must be, and whether the
 * public may see them. Null takes a key back to the installation's value, or to none.
 */
type Key = { readonly isPublic: boolean; readonly expected: string; readonly accepts: (value: unknown) => boolean }

const key = (isPublic: boolean, expected: string, accepts: Key['accepts']): Key => ({ isPublic, expected, accepts })

const line = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= 255 && !/[\0\r\n]/.test(value) && value.isWellFormed()
const text = (value: unknown) => typeof value === 'string' && value.length <= 65_536 && !value.includes('\0')
const webAddress = (value: unknown) => line(value) && /^https?:\/\/[^\\\s?#@]+$/i.test(value) && URL.canParse(value)
const color = (value: unknown) => line(value) && /^#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$/i.test(value)
const emailOrNamed = (value: unknown) => line(value) && /^[^<>@]*<?[^\s<>@]+@[^\s<>@]+>?$/.test(value)
const zone = (value: unknown) => line(value) && isTimeZone(value)

const lineKey = (isPublic = true) => key(isPublic, 'a line of at most 255 characters', line)
const switchKey = (isPublic: boolean) => key(isPublic, 'true or false', (value) => typeof value === 'boolean')
const jsonKey = key(true, 'a JSON object or list', (value) => typeof value === 'object')
const fileKey = key(true, 'the id of a file', isUuid)
const colorKey = key(true, 'a colour such as #663399', color)
const addressKey = key(true, 'an http(s) address without user, query and fragment', webAddress)

export const settingsKeys: ReadonlyMap<string, Key> = new Map(
  Object.entries({
    project_name: lineKey(),
    title: lineKey(),
    project_url: addressKey,
    app_url: addressKey,
    project_color: colorKey,
    secondary_color: colorKey,
    description: key(true, 'a text', text),
    keywords: lineKey(),
    project_logo_light_Id: fileKey,
    project_logo_dark_Id: fileKey,
    project_logo_full_Id: fileKey,
    project_logo_transparent_Id: fileKey,
    project_favicon_Id: fileKey,
    project_icon_Id: fileKey,
    email_icon_Id: fileKey,
    email_signature: key(true, 'a text', text),
    from_email_name: lineKey(),
    smtp_enabled: switchKey(true),
    smtp_host: key(false, 'a host name or address without a port', isHost),
    smtp_port: key(false, 'a port from 1 to 65535', isPort),
    smtp_secure: switchKey(false),
    smtp_user: lineKey(false),
    smtp_pass: lineKey(false),
    smtp_from_address: key(false, 'an address, or Name <address>', emailOrNamed),
    timezone: key(true, 'an IANA time zone', zone),
    language: key(true, 'a language tag such as en or pt-BR', isLanguage),
    date_format: lineKey(),
    currency: key(true, 'a currency code such as USD', (value) => line(value) && /^[A-Z]{3}$/.test(value)),
    session_limits: key(false, 'session limits', isSessionLimits),
    metadata: jsonKey,
    modules: jsonKey,
  }),
)

/** Of the installation's own row these say something that nothing else would. */
const indispensable = new Set(['project_name', 'smtp_enabled', 'smtp_secure'])

export type SettingsValues = Readonly<Record<string, unknown>>

/** 400 `Invalid settings data` unless every key is known and its value fits; `details` name the keys, never values. */
export function checkedSettings(body: unknown, tenantId: string | null): SettingsValues {
  if (!isObject(body)) throw invalidSettings('expected an object of settings')
  const problems = Object.entries(body).flatMap(([name, value]) => problemOf(name, value, tenantId))
  if (problems.length > 0) throw invalidSettings(problems)
  return body
}

export const invalidSettings = (details: unknown) => new AppError(400, 'Invalid settings data', { details })

function problemOf(name: string, value: unknown, tenantId: string | null): string[] {
  const known = settingsKeys.get(name)
  if (known === undefined) return [`${name.slice(0, 64)}: unknown setting`]
  if (value === null && (tenantId !== null || !indispensable.has(name))) return []
  return value !== null && known.accepts(value) ? [] : [`${name}: expected ${known.expected}`]
}

/** A name of letters, digits, dots and hyphens, or an IP address. */
function isHost(value: unknown): boolean {
  return line(value) && (isIP(value) !== 0 || /^(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?$/i.test(value))
}

function isPort(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 65_535
}

/** `{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }`, each part optional; -1 is unlimited. */
export function isSessionLimits(value: unknown): boolean {
  if (!isObject(value)) return false
  const { default: fallback, roles, ...others } = value
  if (Object.keys(others).length > 0) return false
  const perRole = roles === undefined ? [] : isObject(roles) ? Object.entries(roles) : [['', undefined] as const]
  return (fallback === undefined || isLimit(fallback)) && perRole.every(([id, limit]) => isUuid(id) && isLimit(limit))
}

function isLimit(value: unknown): boolean {
  if (!isObject(value)) return false
  return Object.entries(value).every(
    ([type, limit]) =>
      (type === 'web' || type === 'mobile') && (limit === null || (Number.isInteger(limit) && (limit as number) >= -1)),
  )
}

function isTimeZone(value: string): boolean {
  try {
    return Intl.DateTimeFormat('en', { timeZone: value }) !== undefined
  } catch {
    return false
  }
}

function isLanguage(value: unknown): boolean {
  try {
    return line(value) && Intl.getCanonicalLocales(value).length === 1
  } catch {
    return false
  }
}
