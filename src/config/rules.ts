import { type Families, variablePrefix } from './families.ts'
import { addProblem, type ConfigReading, isSet } from './variable.ts'
import { groups, type VariableValues } from './variables.ts'

/** The input of the rules: all values, before the config is put together. */
type CheckedDraft = Readonly<{ parsed: VariableValues; families: Families; secretKey: string }>

export type RuleOptions = Readonly<{ allowMissingSecret?: boolean; requireDatabase?: boolean }>

/** Checks what no variable can say alone: what needs what, and what is unsafe in production. */
export function checkRules(draft: CheckedDraft, reading: ConfigReading, options: RuleOptions): void {
  checkSecretKeys(draft, reading, options)
  checkAdmin(draft, reading)
  checkRoles(draft, reading)
  checkMetricsToken(draft, reading)
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

/** Nothing counts the guesses at it. */
function checkMetricsToken({ parsed }: CheckedDraft, reading: ConfigReading): void {
  const { metricsToken = '' } = parsed.observability
  if (metricsToken !== '' && !/^\S{16,}$/.test(metricsToken))
    complain(reading, 'METRICS_TOKEN', 'is not at least 16 characters without blanks')
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
