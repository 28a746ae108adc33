import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { editDistance } from '../language/text.ts'
import { type Families, families as familyTable, readFamilies, variablePrefix } from './families.ts'
import {
  addProblem,
  type ConfigReading,
  type Env,
  isSet,
  openReading,
  readVariables,
  type VariableProblem,
} from './variable.ts'
import { groups, type VariableValues } from './variables.ts'

/**
 * The whole configuration: one member per section of docs/config.md, one value per variable. Frozen.
 * Names end in their unit (`Ms`, `Seconds`, `Days`, `Bytes`); sizes are in bytes, the times of `auth` in seconds.
 */
export type Config = Readonly<
  Omit<VariableValues, 'auth' | 'access' | 'mail' | 'storage' | 'passkey' | 'oauth'> & {
    auth: VariableValues['auth'] & {
      /** Password sign-in is on (LOCAL is listed). */
      readonly local: boolean
      /** Two-factor is on (TWOFACTOR is listed). */
      readonly twoFactor: boolean
      /** E-mail verification is required and no mail sender is configured: the settings must hold SMTP. */
      readonly verificationNeedsSettingsSmtp: boolean
    }
    access: Omit<VariableValues['access'], 'protectPrivilegeFields'> & { readonly protectPrivilegeFields: boolean }
    /** Complete senders by name; `defaultSender` is a key of them, undefined when there is none. */
    mail: VariableValues['mail'] & { readonly senders: Families['senders'] }
    /** Services by name; `defaultService` is a key of them, undefined when there is none. */
    storage: VariableValues['storage'] & { readonly services: Families['services'] }
    /** Undefined unless passkeys are listed and fully configured. */
    passkey: PasskeyConfig | undefined
    /** Active providers by lower-case id. */
    oauth: VariableValues['oauth'] & { readonly providers: Families['providers'] }
    /** Doubts that are no reason to stop; log them at start. */
    warnings: readonly string[]
  }
>

/** The parsed environment. */
export type Configuration = { readonly config: Config }

export type PasskeyConfig = Readonly<{ rpId: string; rpName: string; origins: readonly string[] }>

export type ParseOptions = RuleOptions &
  Readonly<{
    /** Stands in for an unset SECRET_KEY outside production: the key that development keeps beside its data. */
    secretKey?: string
  }>

/** Everything that is wrong with the configuration, at once. Its message never holds a secret. */
export class ConfigError extends Error {
  readonly problems: readonly VariableProblem[]

  constructor(message: string, problems: readonly VariableProblem[] = []) {
    super(message)
    this.name = 'ConfigError'
    this.problems = problems
  }
}

/**
 * Reads the configuration from environment variables.
 *
 * `allowMissingSecret` lets SECRET_KEY be unset outside production; `auth.secretKey` is then empty, so such a
 * config must not sign anything. `requireDatabase` makes an unset DATABASE_URL a problem.
 *
 * @throws {ConfigError} naming every variable that is missing, malformed or at odds with another one
 */
export function parseConfig(env: Env, options: ParseOptions = {}): Config {
  const reading = openReading(env)
  const parsed = readGroups(reading)
  const families = readFamilies(parsed, reading)
  const secretKey = parsed.auth.secretKey || (reading.environment === 'production' ? '' : (options.secretKey ?? ''))
  checkRules({ parsed, families, secretKey }, reading, options)
  reading.findings.warnings.push(...nearMisses(reading))
  const { problems, warnings } = reading.findings
  if (problems.length > 0) throw new ConfigError(describeProblems(problems), problems)
  return deepFreeze(assemble({ parsed, families, secretKey, warnings, reading }))
}

/**
 * The variables of a process: those of `<dir>/.env`, if there is one, overlaid by the process's own.
 *
 * @throws {ConfigError} naming the file when it cannot be read or has a line that is no assignment
 */
export function loadEnv(dir: string, processEnv: Env): Record<string, string | undefined> {
  const file = join(dir, '.env')
  const content = readIfPresent(file)
  if (content === undefined) return { ...processEnv }
  const line = firstMalformedLine(content)
  if (line !== undefined) throw new ConfigError(`${file} is malformed: line ${line} is not of the form NAME=value`)
  return { ...parseEnv(content), ...processEnv }
}

/** A copy to print or log: secrets are masked, of connection strings only scheme, host and database remain. */
export function describeConfig(config: Config): Record<string, unknown> {
  return masked(config, '') as Record<string, unknown>
}

type ConfigDraft = {
  parsed: VariableValues
  families: Families
  secretKey: string
  warnings: string[]
  reading: ConfigReading
}

function readGroups(reading: ConfigReading): VariableValues {
  const read = Object.entries(groups).map(([key, group]) => [key, readVariables(group.variables, reading)])
  return Object.fromEntries(read) as VariableValues
}

function assemble({ parsed, families, secretKey, warnings, reading }: ConfigDraft): Config {
  const { auth, access, mail, rateLimit, storage } = parsed
  const senders = Object.keys(families.senders)
  return {
    ...parsed,
    auth: {
      ...auth,
      secretKey,
      local: auth.servicesEnabled.includes('LOCAL'),
      twoFactor: auth.servicesEnabled.includes('TWOFACTOR'),
      verificationNeedsSettingsSmtp: auth.requireEmailVerification && senders.length === 0,
    },
    access: { ...access, ...privilegeFields(access, reading) },
    rateLimit: { ...rateLimit, redisUrl: rateLimit.redisUrl ?? systemCacheRedis(parsed) },
    mail: { ...mail, senders: families.senders, defaultSender: namedOrFirst(mail.defaultSender, senders) },
    storage: {
      ...storage,
      services: families.services,
      defaultService: namedOrFirst(storage.defaultService, Object.keys(families.services)),
    },
    passkey: passkeyConfig(parsed),
    oauth: { ...parsed.oauth, providers: families.providers },
    warnings,
  }
}

function systemCacheRedis({ systemCache }: VariableValues): string | undefined {
  return systemCache.adapter === 'redis' ? systemCache.redisUrl : undefined
}

/** The old value allow-password means both switches, unless the second is set by itself. */
function privilegeFields(access: VariableValues['access'], reading: ConfigReading) {
  const old = access.protectPrivilegeFields === 'allow-password'
  return {
    protectPrivilegeFields: access.protectPrivilegeFields !== false,
    allowPasswordWrites: access.allowPasswordWrites || (old && !isSet(reading, 'ALLOW_PASSWORD_WRITES')),
  }
}

function passkeyConfig({ auth, passkey }: VariableValues): PasskeyConfig | undefined {
  const { rpId, rpName, origins } = passkey
  if (!auth.servicesEnabled.includes('PASSKEY') || !rpId || !rpName || origins.length === 0) return undefined
  return { rpId, rpName, origins }
}

function namedOrFirst(wanted: string | undefined, names: readonly string[]): string | undefined {
  const same = (name: string) => wanted !== undefined && variablePrefix(name) === variablePrefix(wanted)
  return names.find(same) ?? names[0]
}

function describeProblems(problems: readonly VariableProblem[]): string {
  const lines = problems.map(({ variable, message, doc }) => `  ${variable}: ${message}\n      (${doc})`)
  return `The configuration has ${problems.length === 1 ? 'a problem' : `${problems.length} problems`}:\n${lines.join('\n')}`
}

function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new ConfigError(`${file} cannot be read: ${code}`)
  }
}

/** Members that hold a secret somewhere; masked wherever they occur, which errs on the safe side. */
const secretMembers = new Set(
  [...Object.values(groups), ...Object.values(familyTable).flat()].flatMap(({ variables }) =>
    Object.entries(variables)
      .filter(([, variable]) => variable.secret)
      .map(([member]) => member),
  ),
)

function masked(value: unknown, member: string): unknown {
  if (Array.isArray(value)) return value.map((entry) => masked(entry, member))
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, masked(inner, key)]))
  if (typeof value !== 'string' || value === '' || !secretMembers.has(member)) return value
  return /urls?$/i.test(member) ? maskedUrl(value) : '********'
}

function maskedUrl(value: string): string {
  const { protocol, host, pathname, username, password } = new URL(value)
  return `${protocol}//${username + password === '' ? '' : '********@'}${host}${pathname}`
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const inner of Object.values(value)) deepFreeze(inner)
  }
  return value
}

/**
 * The number of the first line of a .env file that is no assignment, comment or blank, or whose quote is never
 * closed. `parseEnv` drops such lines silently, but a slip in a secret's line must not pass as "unset".
 */
function firstMalformedLine(content: string): number | undefined {
  const text = content.replaceAll('\r\n', '\n').replace(/^\uFEFF/, '')
  let end = 0
  while (end < text.length) {
    statement.lastIndex = end
    if (!statement.test(text)) return text.slice(0, end).split('\n').length
    end = statement.lastIndex
  }
  return undefined
}

const blanks = /[^\S\n]*/.source
const comment = /#[^\n]*/.source
const quoted = /"[^"]*"|'[^']*'|`[^`]*`/.source
const bare = /(?!["'`])[^\n]*/.source
const key = /(?:export[^\S\n]+)?[A-Za-z_][\w.-]*/.source
const assignment = `${key}${blanks}=${blanks}(?:(?:${quoted})${blanks}(?:${comment})?|${bare})`

/** One statement with its line end; sticky, so that it is matched exactly where the last one ended. */
const statement = new RegExp(`${blanks}(?:${comment}|${assignment})?(?:\\n|$)`, 'y')

/**
 * Warnings for variables that look like a misspelling of one of ours: unknown, at most two edits away, sharing
 * a word with it, and the right one unset. Short names are left alone: too many would match by accident.
 */
function nearMisses(reading: ConfigReading): string[] {
  const known = [...reading.asked].filter((name) => name.length >= shortest && !isSet(reading, name))
  return Object.keys(reading.env)
    .filter((name) => name.length >= shortest && !reading.asked.has(name) && isSet(reading, name))
    .flatMap((name) => {
      const meant = known.find((candidate) => sharesWord(name, candidate) && editDistance(name, candidate) <= 2)
      return meant === undefined ? [] : [`${name} is not a variable of Daybook; did you mean ${meant}?`]
    })
}

const shortest = 8

function sharesWord(left: string, right: string): boolean {
  const words = left.split('_')
  return right.split('_').some((word) => words.includes(word))
}

/**
 * The configuration of the installation here, for commands that run beside its processes: without DATABASE_URL the database
 * is the embedded one that `npm start` runs. `secretKey` also takes the key that `npm start` keeps beside it.
 *
 * @throws {ConfigError} as `parseConfig`, which names DATABASE_URL where there is no embedded database either
 */
export function parseInstallation(env: Env, { secretKey = false }: { readonly secretKey?: boolean } = {}): Config {
  const options = { allowMissingSecret: true }
  const { database } = parseConfig(env, options)
  const all: ParseOptions = {
    ...options,
    requireDatabase: true,
    ...(secretKey && { secretKey: keptSecretKey(database.dataDir) ?? '' }),
  }
  if (database.url !== undefined) return parseConfig(env, all)
  return parseConfig({ ...env, DATABASE_URL: embeddedDatabase(database.dataDir) }, all)
}

/** The address of the embedded database that a data directory holds; undefined where none was ever started. */
export function embeddedDatabase(dataDir: string): string | undefined {
  return keptIn(dataDir, 'database-url')
}

/** The key that `npm start` has made up and keeps in a data directory; undefined where it has not. */
export function keptSecretKey(dataDir: string): string | undefined {
  return keptIn(dataDir, secretKeyName)
}

const secretKeyName = 'secret-key'

/** Where `npm start` keeps the key that it has made up. */
export const secretKeyFile = (dataDir: string): string => join(dataDir, secretKeyName)

function keptIn(dataDir: string, name: string): string | undefined {
  const file = join(dataDir, name)
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : undefined
}

/** The input of the rules: all values, before the config is put together. */
type CheckedDraft = Readonly<{ parsed: VariableValues; families: Families; secretKey: string }>

type RuleOptions = Readonly<{ allowMissingSecret?: boolean; requireDatabase?: boolean }>

/** Checks what no variable can say alone: what needs what, and what is unsafe in production. */
function checkRules(draft: CheckedDraft, reading: ConfigReading, options: RuleOptions): void {
  checkSecretKeys(draft, reading, options)
  checkAdmin(draft, reading)
  checkRoles(draft, reading)
  checkPasswordHashCost(draft, reading)
  checkMcpPath(draft, reading)
  checkNeeds(draft, reading, options)
  checkDefaults(draft, reading)
  warnOfDoubts(draft, reading)
}

const secretKeyLength = 32
const passwordLength = { min: 8, max: 128 }

const wellKnownPasswords = [
  ...['admin', 'admin123', 'admin1234', 'admin@123', 'administrator', 'password', 'password1', 'password123'],
  ...['passw0rd', 'p@ssw0rd', 'changeme', 'change-me', 'change_me', 'changeit', 'secret', 'default', 'letmein'],
  ...[
    'welcome',
    'welcome1',
    'qwerty',
    'qwerty123',
    '12345678',
    '123456789',
    '1234567890',
    'daybook',
    'root',
    'test1234',
  ],
]

function checkSecretKeys({ parsed, secretKey }: CheckedDraft, reading: ConfigReading, options: RuleOptions): void {
  const production = reading.environment === 'production'
  if (secretKey === '' && (production || !options.allowMissingSecret))
    complain(reading, 'SECRET_KEY', 'is missing; set it to at least 32 random characters')
  const keys = { SECRET_KEY: secretKey, SECRET_KEY_PREVIOUS: parsed.auth.secretKeyPrevious ?? '' }
  for (const [name, key] of Object.entries(keys))
    if (production && key !== '' && key.length < secretKeyLength)
      complain(reading, name, `is shorter than the ${secretKeyLength} characters that production asks for`)
}

function checkAdmin({ parsed }: CheckedDraft, reading: ConfigReading): void {
  const { email, password } = parsed.admin
  if (password === undefined || reading.environment !== 'production') return
  const lower = password.toLowerCase()
  if (wellKnownPasswords.includes(lower)) complain(reading, 'ADMIN_PASSWORD', 'is a well-known password')
  else if (lower === email.toLowerCase() || lower === email.toLowerCase().split('@')[0])
    complain(reading, 'ADMIN_PASSWORD', 'repeats the e-mail address of the account')
  else if (password.length < passwordLength.min || password.length > passwordLength.max)
    complain(reading, 'ADMIN_PASSWORD', `is not ${passwordLength.min} to ${passwordLength.max} characters long`)
}

/** A cheaper hash is for tests: with a stolen table, an attacker tries that many times more passwords. */
function checkPasswordHashCost({ parsed }: CheckedDraft, reading: ConfigReading): void {
  if (reading.environment === 'production' && parsed.auth.passwordHashCost < 10)
    complain(reading, 'PASSWORD_HASH_COST', 'is less than 10 in production')
}

/** No registration may give the administrator's role. */
function checkRoles({ parsed }: CheckedDraft, reading: ConfigReading): void {
  const registered = {
    DEFAULT_ROLE_REGISTERED: [parsed.auth.defaultRoleRegistered],
    ALLOWED_ROLES_MULTI_TENANT: parsed.auth.allowedRolesMultiTenant,
  }
  for (const [name, roles] of Object.entries(registered))
    if (roles.some((role) => role.toLowerCase() === 'administrator'))
      complain(reading, name, 'names the administrator role, which no registration may give')
}

/** The paths at which other parts of the platform begin. */
const platformPaths = [
  ...[
    'acls',
    'assets',
    'auth',
    'changes',
    'client.js',
    'console',
    'docs',
    'estimates',
    'files',
    'health',
    'history',
    'items',
    'log',
    'metrics',
  ],
  ...[
    'migrations',
    'notifications',
    'oauth',
    'openapi',
    'ops',
    'permissions',
    'ready',
    'realtime',
    'reports',
    'schemas',
  ],
  ...['settings', 'templates', 'utils', 'views', 'webhook', 'webhooks', 'workflows', '.well-known', '_dev'],
]

function checkMcpPath({ parsed: { mcp } }: CheckedDraft, reading: ConfigReading): void {
  const [, first = ''] = mcp.path.toLowerCase().split('/')
  const isTaken = first === '' || [first, first.split('-')[0]!].some((part) => platformPaths.includes(part))
  if (mcp.enabled && isTaken) complain(reading, 'MCP_PATH', 'is where another part of the API begins')
}

function checkNeeds({ parsed, families }: CheckedDraft, reading: ConfigReading, options: RuleOptions): void {
  const { backup, database, systemCache, dataCache, observability, realtime, tasks, upstash } = parsed
  const dataAdapter = dataCache.enabled ? dataCache.adapter : 'memory'
  const usesUpstash = systemCache.adapter === 'upstash' || dataAdapter === 'upstash'
  const needs: [name: string, value: unknown, needed: boolean, why: string][] = [
    ['DATABASE_URL', database.url, options.requireDatabase === true, 'this process does not start a database'],
    [
      'DATABASE_READ_REPLICA_URLS',
      database.readReplicaUrls,
      database.readReplicaEnabled,
      'DATABASE_READ_REPLICA_ENABLED is true',
    ],
    ['SYSTEM_CACHE_REDIS_URL', systemCache.redisUrl, systemCache.adapter === 'redis', 'SYSTEM_CACHE_ADAPTER is redis'],
    ['DATA_CACHE_REDIS_URL', dataCache.redisUrl, dataAdapter === 'redis', 'DATA_CACHE_ADAPTER is redis'],
    ['UPSTASH_REDIS_REST_URL', upstash.url, usesUpstash, 'a cache uses upstash'],
    ['UPSTASH_REDIS_REST_TOKEN', upstash.token, usesUpstash, 'a cache uses upstash'],
    ['SOCKET_REDIS_URL', realtime.redisUrl, realtime.redisEnabled, 'SOCKET_REDIS_ENABLED is true'],
    ['TASK_REDIS_URL', tasks.redisUrl, tasks.redisEnabled, 'TASK_REDIS_ENABLED is true'],
    ['METRICS_TOKEN', observability.metricsToken, observability.metricsPort !== undefined, 'METRICS_PORT is set'],
    ['BACKUP_STORAGE', backup.storage, backup.schedule !== undefined, 'BACKUP_SCHEDULE is set'],
    ['BACKUP_STORAGE', backup.storage, backup.beforeUpgrade, 'BACKUP_BEFORE_UPGRADE is true'],
    ['BASE_URL', parsed.server.baseUrl, Object.keys(families.providers).length > 0, 'a social provider is enabled'],
  ]
  for (const { id, issuer } of Object.values(families.providers))
    if (issuer?.startsWith('http:') && !parsed.files.allowPrivateUrlFetch)
      complain(
        reading,
        `${id.toUpperCase()}_ISSUER`,
        'is no https:// address, and SSRF_ALLOW_PRIVATE_URL_FETCH is false',
      )
  for (const [name, value, needed, why] of needs)
    if (needed && (value === undefined || (Array.isArray(value) && value.length === 0)))
      complain(reading, name, `is missing; it is required because ${why}`)
}

function checkDefaults({ parsed, families }: CheckedDraft, reading: ConfigReading): void {
  const { defaultSender } = parsed.mail
  if (defaultSender !== undefined && !includesName(Object.keys(families.senders), defaultSender))
    warn(
      reading,
      `MAIL_DEFAULT_SENDER ${defaultSender} is not a complete sender of MAIL_SENDERS_ENABLED; the first complete one is used`,
    )
  const { defaultService } = parsed.storage
  if (defaultService !== undefined && !includesName(Object.keys(families.services), defaultService))
    complain(reading, 'STORAGE_DEFAULT_SERVICE', 'names no service of STORAGE_SERVICES_ENABLED')
  const { storage } = parsed.backup
  if (storage !== undefined && !includesName(Object.keys(families.services), storage))
    complain(reading, 'BACKUP_STORAGE', 'names no service of STORAGE_SERVICES_ENABLED')
}

function warnOfDoubts({ parsed, families }: CheckedDraft, reading: ConfigReading): void {
  const { auth, cookie, passkey, access, server } = parsed
  const production = reading.environment === 'production'
  if (auth.requireEmailVerification && Object.keys(families.senders).length === 0 && !production)
    warn(
      reading,
      'REQUIRE_EMAIL_VERIFICATION is true but no mail sender is complete: unless the settings hold SMTP, mails are only shown at /_dev/mail',
    )
  if (auth.servicesEnabled.includes('PASSKEY') && !(passkey.rpId && passkey.rpName && passkey.origins.length > 0))
    warn(reading, 'Passkeys are not active: they need PASSKEY_RP_ID, PASSKEY_RP_NAME and PASSKEY_ORIGIN')
  if (cookie.sameSite === 'none' && !cookie.secure)
    warn(reading, 'AUTH_COOKIE_SAME_SITE is none without AUTH_COOKIE_SECURE: browsers will drop the session cookie')
  if (production && !cookie.secure)
    warn(reading, 'AUTH_COOKIE_SECURE is false in production: the session cookie travels unencrypted')
  if (
    access.protectPrivilegeFields === 'allow-password' &&
    isSet(reading, 'ALLOW_PASSWORD_WRITES') &&
    !access.allowPasswordWrites
  )
    warn(
      reading,
      'PROTECT_PRIVILEGE_FIELDS is allow-password but ALLOW_PASSWORD_WRITES is false: password writes stay off',
    )
  if (server.baseUrl !== undefined && !/^https?:\/\/[^/]/i.test(server.baseUrl))
    warn(reading, 'BASE_URL is not an http:// or https:// address')
}

function complain(reading: ConfigReading, name: string, message: string): void {
  addProblem(reading.findings, { variable: name, message, doc: docs.get(name) ?? '' })
}

function warn(reading: ConfigReading, message: string): void {
  reading.findings.warnings.push(message)
}

const docs = new Map(
  Object.values(groups)
    .flatMap((group) => Object.values(group.variables))
    .map((variable) => [variable.name, variable.doc]),
)

function includesName(names: readonly string[], name: string): boolean {
  return names.some((candidate) => variablePrefix(candidate) === variablePrefix(name))
}
