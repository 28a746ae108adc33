import { isIP } from 'node:net'
import type { TSchema } from 'typebox'
import { fits, Type } from '../../adapters/typebox.ts'
import { AppError } from '../../errors.ts'
import { Id } from '../../http/shapes.ts'
import { isUuid } from '../../language/text.ts'
import { isObject } from '../../query/guards.ts'

/** A key of the settings that somebody may set. Null takes it back to the installation's value, or to none. */
type SettingKey = {
  readonly isPublic: boolean
  /** The allowed values, in words for people. */
  readonly expected: string
  readonly shape: TSchema
  /** The exact problems of a value of several parts; each line begins with the path below the key. */
  readonly explain?: (value: unknown) => readonly string[]
}

const key = (isPublic: boolean, expected: string, shape: TSchema): SettingKey => ({ isPublic, expected, shape })

const longestLine = 255
const anyLine = '^[^\\r\\n]*$'
const oneLine = (example: string, pattern = anyLine, more: { readonly writeOnly?: true } = {}) =>
  Type.String({ maxLength: longestLine, format: 'unicode', pattern, examples: [example], ...more })
const text = (example: string) => Type.String({ maxLength: 65_536, format: 'unicode', examples: [example] })
const webAddress = (example: string) => Type.Refine(oneLine(example, webAddressPattern), URL.canParse)
const webAddressPattern = '^[Hh][Tt][Tt][Pp][Ss]?://[^\\\\\\s?#@]+$'
const colorPattern = '^#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$'
const mailboxPattern = '^[^<>@\\r\\n]*<?[^\\s<>@]+@[^\\s<>@]+>?$'

const lineExpected = `a line of at most ${longestLine} characters`
const lineKey = (example: string, isPublic = true) => key(isPublic, lineExpected, oneLine(example))
const switchKey = (isPublic: boolean) => key(isPublic, 'true or false', Type.Boolean({ examples: [true] }))
const jsonKey = key(true, 'a JSON object or list', Type.Unsafe<object>({ type: ['object', 'array'], examples: [{}] }))
const fileKey = key(true, 'the id of a file', Id())
const colorKey = key(true, 'a colour such as #663399', oneLine('#663399', colorPattern))
const addressKey = (example: string) =>
  key(true, 'an http(s) address without user, query and fragment', webAddress(example))

/** Each whole number is a limit, -1 for none. */
const SessionLimits = Type.Refine(
  Type.Object(
    {
      default: Type.Optional(Type.Unknown({ description: '{ web, mobile }' })),
      roles: Type.Optional(Type.Unknown({ description: '{ <role id>: { web, mobile } }' })),
    },
    { examples: [{ default: { web: 5, mobile: -1 } }] },
  ),
  (limits) => sessionLimitsProblems(limits).length === 0,
)

/** Every key that there is. */
export const settingsKeys: ReadonlyMap<string, SettingKey> = new Map(
  Object.entries({
    project_name: lineKey('Acme'),
    title: lineKey('Acme shop'),
    project_url: addressKey('https://api.example.com'),
    app_url: addressKey('https://app.example.com'),
    project_color: colorKey,
    secondary_color: colorKey,
    description: key(true, 'a text', text('Everything for the coyote')),
    keywords: lineKey('rockets, anvils'),
    project_logo_light_Id: fileKey,
    project_logo_dark_Id: fileKey,
    project_logo_full_Id: fileKey,
    project_logo_transparent_Id: fileKey,
    project_favicon_Id: fileKey,
    project_icon_Id: fileKey,
    email_icon_Id: fileKey,
    email_signature: key(true, 'a text', text('Yours, Acme')),
    from_email_name: lineKey('Acme'),
    smtp_enabled: switchKey(true),
    smtp_host: key(false, 'a host name or address without a port', Type.Refine(oneLine('smtp.example.com'), isHost)),
    smtp_port: key(false, 'a port from 1 to 65535', Type.Integer({ minimum: 1, maximum: 65_535, examples: [587] })),
    smtp_secure: switchKey(false),
    smtp_user: lineKey('mailer', false),
    smtp_pass: key(false, lineExpected, oneLine('********', anyLine, { writeOnly: true })),
    smtp_from_address: key(
      false,
      'an address, or Name <address>',
      oneLine('Acme <no-reply@example.com>', mailboxPattern),
    ),
    timezone: key(true, 'an IANA time zone', Type.Refine(oneLine('Europe/Zurich'), isTimeZone)),
    language: key(true, 'a language tag such as en or pt-BR', Type.Refine(oneLine('en'), isLanguage)),
    date_format: lineKey('YYYY-MM-DD'),
    currency: key(true, 'a currency code such as USD', oneLine('USD', '^[A-Z]{3}$')),
    session_limits: {
      ...key(false, '{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }', SessionLimits),
      explain: sessionLimitsProblems,
    },
    metadata: jsonKey,
    modules: jsonKey,
  }),
)

export const settingKinds = ['line', 'text', 'number', 'switch', 'json', 'secret', 'file'] as const

/** How a value of a key is typed into a form. */
export function kindOf({ shape }: Pick<SettingKey, 'shape'>): (typeof settingKinds)[number] {
  const { type, maxLength, writeOnly } = shape as { type?: unknown; maxLength?: number; writeOnly?: boolean }
  if (writeOnly === true) return 'secret'
  if (shape === fileKey.shape) return 'file'
  if (type === 'boolean') return 'switch'
  if (type === 'integer') return 'number'
  if (type !== 'string') return 'json'
  return maxLength !== undefined && maxLength > longestLine ? 'text' : 'line'
}

/** The names of the settings' images: `project_icon` is the file that `project_icon_Id` names. */
export const imageNames: readonly string[] = [...settingsKeys].flatMap(([name, one]) =>
  one === fileKey ? [name.slice(0, -'_Id'.length)] : [],
)

/** Members that GET /settings answers besides, so that its answer can be given back as it is; no request sets them. */
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
  if (value !== null && fits(known.shape, value)) return []
  const problems = known.explain !== undefined && isObject(value) ? known.explain(value) : []
  return problems.length === 0 ? [`${name}: expected ${known.expected}`] : problems.map((line) => `${name}${line}`)
}

/** A name of letters, digits, dots and hyphens, or an IP address. */
function isHost(value: string): boolean {
  return isIP(value) !== 0 || /^(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?$/i.test(value)
}

/** `{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }`, each part optional; -1 is unlimited. */
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

function isLanguage(value: string): boolean {
  try {
    return Intl.getCanonicalLocales(value).length === 1
  } catch {
    return false
  }
}
