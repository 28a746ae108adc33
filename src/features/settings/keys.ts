import { isIP } from 'node:net'
import { AppError } from '../../errors.ts'
import { isUuid } from '../../language/uuid.ts'
import { isObject } from '../../query/guards.ts'

/**
 * Every key of the settings that somebody may set: what its values must be, and whether the
 * public may see them. Null takes a key back to the installation's value, or to none.
 */
type Key = {
  readonly isPublic: boolean
  readonly expected: string
  /** As JSON Schema, for the reference. */
  readonly shape: Readonly<Record<string, unknown>>
  readonly accepts: (value: unknown) => boolean
  /** The exact problems of a value of several parts; each line begins with the path below the key. */
  readonly explain?: (value: unknown) => readonly string[]
}

const key = (isPublic: boolean, expected: string, example: unknown, accepts: Key['accepts']): Key => {
  const type = typeof example === 'number' ? 'integer' : typeof example
  return { isPublic, expected, shape: { type: [type, 'null'], examples: [example] }, accepts }
}

const line = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= 255 && !/[\0\r\n]/.test(value) && value.isWellFormed()
const text = (value: unknown) => typeof value === 'string' && value.length <= 65_536 && !value.includes('\0')
const webAddress = (value: unknown) => line(value) && /^https?:\/\/[^\\\s?#@]+$/i.test(value) && URL.canParse(value)
const color = (value: unknown) => line(value) && /^#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$/i.test(value)
const emailOrNamed = (value: unknown) => line(value) && /^[^<>@]*<?[^\s<>@]+@[^\s<>@]+>?$/.test(value)
const zone = (value: unknown) => line(value) && isTimeZone(value)

const lineKey = (example: string, isPublic = true) => key(isPublic, 'a line of at most 255 characters', example, line)
const switchKey = (isPublic: boolean) => key(isPublic, 'true or false', true, (value) => typeof value === 'boolean')
const jsonKey: Key = {
  ...key(true, 'a JSON object or list', {}, (value) => typeof value === 'object'),
  shape: { type: ['object', 'array', 'null'], examples: [{}] },
}
const fileKey = key(true, 'the id of a file', '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', isUuid)
const colorKey = key(true, 'a colour such as #663399', '#663399', color)
const addressKey = (example: string) =>
  key(true, 'an http(s) address without user, query and fragment', example, webAddress)

export const settingsKeys: ReadonlyMap<string, Key> = new Map(
  Object.entries({
    project_name: lineKey('Acme'),
    title: lineKey('Acme shop'),
    project_url: addressKey('https://api.example.com'),
    app_url: addressKey('https://app.example.com'),
    project_color: colorKey,
    secondary_color: colorKey,
    description: key(true, 'a text', 'Everything for the coyote', text),
    keywords: lineKey('rockets, anvils'),
    project_logo_light_Id: fileKey,
    project_logo_dark_Id: fileKey,
    project_logo_full_Id: fileKey,
    project_logo_transparent_Id: fileKey,
    project_favicon_Id: fileKey,
    project_icon_Id: fileKey,
    email_icon_Id: fileKey,
    email_signature: key(true, 'a text', 'Yours, Acme', text),
    from_email_name: lineKey('Acme'),
    smtp_enabled: switchKey(true),
    smtp_host: key(false, 'a host name or address without a port', 'smtp.example.com', isHost),
    smtp_port: key(false, 'a port from 1 to 65535', 587, isPort),
    smtp_secure: switchKey(false),
    smtp_user: lineKey('mailer', false),
    smtp_pass: lineKey('********', false),
    smtp_from_address: key(false, 'an address, or Name <address>', 'Acme <no-reply@example.com>', emailOrNamed),
    timezone: key(true, 'an IANA time zone', 'Europe/Zurich', zone),
    language: key(true, 'a language tag such as en or pt-BR', 'en', isLanguage),
    date_format: lineKey('YYYY-MM-DD'),
    currency: key(true, 'a currency code such as USD', 'USD', (value) => line(value) && /^[A-Z]{3}$/.test(value)),
    session_limits: {
      ...key(
        false,
        '{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }',
        { default: { web: 5, mobile: -1 } },
        isSessionLimits,
      ),
      explain: sessionLimitsProblems,
    },
    metadata: jsonKey,
    modules: jsonKey,
  }),
)

/** What the settings' images are called: `project_icon` is the file that `project_icon_Id` names. */
export const imageNames: readonly string[] = [...settingsKeys].flatMap(([name, one]) =>
  one === fileKey ? [name.slice(0, -'_Id'.length)] : [],
)

/** Members that GET /settings answers besides, so that its answer can be given back as it is; nobody sets these. */
const derived: ReadonlySet<string> = new Set([
  ...['id', 'tenant_Id', 'createdAt', 'updatedAt', 'web_session_limit', 'mobile_session_limit', ...imageNames],
])

/** Of the installation's own row these say something that nothing else would. */
const indispensable = new Set(['project_name', 'smtp_enabled', 'smtp_secure'])

export type SettingsValues = Readonly<Record<string, unknown>>

/**
 * The settings of a body, without what only the server says. 400 `Invalid settings data` unless every key is known and its
 * value fits; `details` name the keys, never values.
 */
export function checkedSettings(body: unknown, tenantId: string | null): SettingsValues {
  if (!isObject(body)) throw invalidSettings('expected an object of settings')
  const given = Object.entries(body).filter(([name]) => !derived.has(name))
  const problems = given.flatMap(([name, value]) => problemOf(name, value, tenantId))
  if (problems.length > 0) throw invalidSettings(problems)
  return Object.fromEntries(given)
}

export const invalidSettings = (details: unknown) => new AppError(400, 'Invalid settings data', { details })

function problemOf(name: string, value: unknown, tenantId: string | null): string[] {
  const known = settingsKeys.get(name)
  if (known === undefined) return [`${name.slice(0, 64)}: unknown setting`]
  if (value === null && (tenantId !== null || !indispensable.has(name))) return []
  if (value !== null && known.accepts(value)) return []
  const problems = known.explain !== undefined && isObject(value) ? known.explain(value) : []
  return problems.length === 0 ? [`${name}: expected ${known.expected}`] : problems.map((line) => `${name}${line}`)
}

/** A name of letters, digits, dots and hyphens, or an IP address. */
function isHost(value: unknown): boolean {
  return line(value) && (isIP(value) !== 0 || /^(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?$/i.test(value))
}

function isPort(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 65_535
}

/** `{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }`, each part optional; -1 is unlimited. */
function isSessionLimits(value: unknown): boolean {
  return isObject(value) && sessionLimitsProblems(value).length === 0
}

function sessionLimitsProblems(value: unknown): readonly string[] {
  const { default: fallback, roles, ...others } = value as Record<string, unknown>
  const unknown = Object.keys(others).map((name) =>
    name === 'web' || name === 'mobile'
      ? `.${name}: belongs into .default, as default.${name}`
      : `.${name.slice(0, 64)}: unknown; there are default and roles`,
  )
  if (roles !== undefined && !isObject(roles))
    return [...unknown, '.roles: expected an object of role ids', ...limitProblems('.default', fallback)]
  const ofRoles = Object.entries(roles ?? {}).flatMap(([id, limit]) => {
    const isRole: boolean = isUuid(id)
    return isRole ? limitProblems(`.roles.${id}`, limit) : [`.roles.${id.slice(0, 64)}: expected the id of a role`]
  })
  return [...unknown, ...limitProblems('.default', fallback), ...ofRoles]
}

function limitProblems(path: string, limit: unknown): readonly string[] {
  if (limit === undefined) return []
  if (!isObject(limit)) return [`${path}: expected { web, mobile }`]
  return Object.entries(limit).flatMap(([type, most]) => {
    if (type !== 'web' && type !== 'mobile') return [`${path}.${type.slice(0, 64)}: unknown; there are web and mobile`]
    const fits = most === null || (Number.isInteger(most) && (most as number) >= -1)
    return fits ? [] : [`${path}.${type}: expected a whole number, -1 for no limit and 0 for none at all`]
  })
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
