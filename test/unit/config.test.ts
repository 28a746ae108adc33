import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { configDocument } from '../../scripts/config-document.ts'
import { staleFiles, writeFiles } from '../../scripts/gen.ts'
import {
  type Config,
  ConfigError,
  describeConfig,
  loadEnv,
  type ParseOptions,
  parseConfig,
} from '../../src/config/config.ts'
import { families } from '../../src/config/families.ts'
import * as parsers from '../../src/config/parsers.ts'
import { fallbackIn, type Group, type Variable } from '../../src/config/variable.ts'
import { socialProviderIds } from '../../src/config/variables/accounts.ts'
import { groups } from '../../src/config/variables.ts'

type Env = Record<string, string | undefined>

const key = 'a-signing-key-of-thirty-two-chars!'
const everyGroup: Group[] = Object.values(groups)
const everyVariable: Variable<unknown>[] = everyGroup.flatMap((group) => Object.values(group.variables))

function parse(env: Env = {}, options?: ParseOptions): Config {
  return parseConfig({ SECRET_KEY: key, ...env }, options)
}

function production(env: Env = {}): Env {
  return { NODE_ENV: 'production', SECRET_KEY: key, ...env }
}

function failure(env: Env, options?: ParseOptions): ConfigError {
  try {
    parseConfig(env, options)
  } catch (error) {
    if (error instanceof ConfigError) return error
    throw error
  }
  throw new Error('The configuration was accepted')
}

/** The names of the variables complained of. */
function problems(env: Env, options?: ParseOptions): string[] {
  return failure({ SECRET_KEY: key, ...env }, options).problems.map(({ variable }) => variable)
}

const created: string[] = []
afterEach(() => {
  for (const dir of created.splice(0)) rmSync(dir, { recursive: true })
})

function directory(content?: string): string {
  const dir = mkdtempSync(join(tmpdir(), 'daybook-env-'))
  created.push(dir)
  if (content !== undefined) writeFileSync(join(dir, '.env'), content)
  return dir
}

describe('the table of variables', () => {
  /** The defaults that clients rely on. */
  const specified: [names: string, fallback: string | undefined][] = [
    ['NODE_ENV', 'development'],
    ['PORT', '8055'],
    ['SECRET_KEY AUTH_APP_URL AUTH_CORS_ALLOWED_ORIGINS PASSKEY_ORIGIN DATABASE_READ_REPLICA_URLS', ''],
    ['MAIL_SENDERS_ENABLED STORAGE_SERVICES_ENABLED SOCKET_CORS_ENABLED_ORIGINS', ''],
    ['ASSET_SECURE_PROXY_URLS SHARED_ASSET_TENANT_IDS', ''],
    ['BASE_URL PASSKEY_RP_ID PASSKEY_RP_NAME AUTH_COOKIE_DOMAIN WELCOME_EMAIL_SUBJECT DATABASE_URL', undefined],
    ['DATABASE_SSL_CERTIFICATE MIGRATIONS_UPGRADE_BASELINE SYSTEM_CACHE_REDIS_URL DATA_CACHE_REDIS_URL', undefined],
    ['UPSTASH_REDIS_REST_URL UPSTASH_REDIS_REST_TOKEN MAIL_DEFAULT_SENDER STORAGE_DEFAULT_SERVICE', undefined],
    ['STORAGE_TEMP_PATH SOCKET_REDIS_URL TASK_REDIS_URL QUERY_MAX_LIMIT', undefined],
    ['COUNT_BY_DEFAULT PROTECT_PRIVILEGE_FIELDS STORAGE_PATH_CONFINEMENT ASSET_XSS_PROTECTION', 'true'],
    ['ASSET_NOSNIFF STRICT_TENANT_ISOLATION SCHEMAS_PUBLIC DATA_CACHE_ENABLED WORKFLOWS_ENABLED', 'true'],
    ['REALTIME_WAL_CONSUMER_ENABLED OPENAPI_ENABLED AUTH_CORS_ALLOW_ANY_PORT AUTH_CORS_CREDENTIALS', 'true'],
    ['PUBLIC_REGISTRATION EXPOSE_ERROR_DETAILS AUTH_COOKIE_HTTP_ONLY', 'true'],
    ['ALLOW_PASSWORD_WRITES PROTECT_IS_PUBLIC_FIELD STORAGE_FOLDER_STRUCTURE', 'false'],
    ['OAUTH_ALLOW_UNVERIFIED_LINK OAUTH_ALLOW_DIRECT_IDTOKEN OAUTH_STATE_COOKIE_BINDING', 'false'],
    ['SSRF_ALLOW_PRIVATE_URL_FETCH DATABASE_LOGGING DATABASE_SSL_REJECT_UNAUTHORIZED', 'false'],
    ['DATABASE_READ_REPLICA_ENABLED DATABASE_POSTGIS DATABASE_VECTOR MIGRATIONS_AUTO_RUN', 'false'],
    ['ASSET_PROXY_ENABLED MULTI_TENANT SOCKET_ENABLED SOCKET_REDIS_ENABLED TASK_REDIS_ENABLED', 'false'],
    ['REALTIME_ROW_LEVEL_SCOPING TASK_SERVICE_ENABLED LOG_WARN_STACK MCP_ENABLED MCP_LOGIN_TOOLS', 'false'],
    ['AUDIT_LOG_CLEANUP_ENABLED EMAIL_LOG_CLEANUP_ENABLED DISABLE_SESSION_CLEANUP', 'false'],
    ['RATE_LIMIT_BY_USER REQUIRE_EMAIL_VERIFICATION SEND_WELCOME_EMAIL AUTH_RATE_LIMIT_DISABLED', 'false'],
    ['OPENAPI_INCLUDE_AUTH OPENAPI_INCLUDE_SCHEMA OPENAPI_INCLUDE_PERMISSIONS', 'false'],
    ['OPENAPI_INCLUDE_SETTINGS OPENAPI_INCLUDE_NOTIFICATIONS OPENAPI_INCLUDE_MULTI_TENANT', 'false'],
    ['OPENAPI_INCLUDE_UTILS AUTH_GENERIC_RESPONSES AUTH_COOKIE_SECURE TRUST_PROXY', 'false'],
    ['SYSTEM_CACHE_ADAPTER DATA_CACHE_ADAPTER', 'memory'],
    ['DATA_CACHE_STRATEGY', 'explicit'],
    ['AUTH_SERVICES_ENABLED', 'LOCAL'],
    ['AUTH_COOKIE_SAME_SITE', 'lax'],
    ['AUTH_COOKIE_PATH', '/'],
    ['DEFAULT_ROLE_REGISTERED', 'user'],
    ['MIGRATIONS_DIR', './migrations'],
    ['ASSET_TEMP_DIR', './asset-temp'],
    ['EXTENSIONS_DIR', './extensions'],
    ['SHARED_ASSET_ACCESS_MODE', 'off'],
    ['SOCKET_PATH', '/realtime'],
    ['SOCKET_REDIS_KEY', 'socket.io'],
    ['LOG_LEVEL', 'info'],
    ['MCP_PATH', '/mcp'],
    ['MCP_ENABLED_ACTIONS', 'all'],
    ['AUTH_RATE_LIMIT', '10'],
    ['AUTH_RATE_LIMIT_INTERVAL', '900000'],
    ['RATE_LIMIT', '100'],
    ['RATE_LIMIT_INTERVAL DATABASE_RETRY_INTERVAL', '5000'],
    ['EMAIL_VERIFICATION_RESEND_COOLDOWN', '60'],
    ['ACCESS_TOKEN_EXPIRES_IN', '604800'],
    ['BODY_SIZE_LIMIT', '20mb'],
    ['MAX_UPLOAD_FILE_SIZE', '50'],
    ['URL_FETCH_TIMEOUT_MS', '15000'],
    ['ASSET_MAX_DIMENSION', '5000'],
    ['ASSET_MAX_INPUT_PIXELS', '100000000'],
    ['SYSTEM_CACHE_TTL TASK_SHUTDOWN_WAIT_TIME EMAIL_LOG_RETENTION_DAYS', '30'],
    ['SYSTEM_CACHE_SYNC_INTERVAL', '5'],
    ['SYSTEM_CACHE_SIZE_GB DATA_CACHE_SIZE_GB', '1.0'],
    ['DATA_CACHE_TTL TASK_STALL_TIMEOUT', '300'],
    ['DATABASE_POOL_MAX DATABASE_READ_REPLICA_POOL_MAX', '20'],
    ['DATABASE_POOL_IDLE DATABASE_READ_REPLICA_POOL_IDLE', '10000'],
    ['DATABASE_POOL_ACQUIRE DATABASE_READ_REPLICA_POOL_ACQUIRE', '30000'],
    ['DATABASE_POOL_EVICT DATABASE_READ_REPLICA_POOL_EVICT', '1000'],
    ['DATABASE_MAX_RETRY', '3'],
    ['TRANSACTION_TIMEOUT_MS', '60000'],
    ['TASK_LIST_REFRESH_INTERVAL', '600'],
    ['TASK_CONCURRENCY', '1'],
    ['AUDIT_LOG_RETENTION_DAYS', '90'],
  ]

  it.each(specified.flatMap(([names, fallback]) => names.split(' ').map((name) => [name, fallback] as const)))(
    '%s defaults to %s',
    (name, fallback) => {
      const variable = everyVariable.find((candidate) => candidate.name === name)
      expect(variable, name).toBeDefined()
      expect(fallbackIn('development', variable?.fallback)).toBe(fallback)
    },
  )

  it('has each name once', () => {
    const names = everyVariable.map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
  })

  it('knows the 35 social providers', () => {
    expect(new Set(socialProviderIds).size).toBe(35)
  })

  it('gives defaults that depend on the environment', () => {
    const inProduction = parseConfig(production())
    expect(inProduction.server).toMatchObject({ host: '0.0.0.0', exposeErrorDetails: false })
    expect(inProduction.cookie).toMatchObject({ sameSite: 'strict', secure: true })
    expect(parse().server).toMatchObject({ host: '127.0.0.1', exposeErrorDetails: true })
    expect(parse().cookie).toMatchObject({ sameSite: 'lax', secure: false })
    expect(parse({ NODE_ENV: 'test' }).rateLimit.authDisabled).toBe(true)
    expect(parse({ NODE_ENV: 'test', AUTH_RATE_LIMIT_DISABLED: 'false' }).rateLimit.authDisabled).toBe(false)
    expect(inProduction.rateLimit).toMatchObject({ authDisabled: false, disabled: false, connections: 1000 })
    expect(parse({ NODE_ENV: 'test' }).rateLimit).toMatchObject({ disabled: true, connections: 0 })
  })

  it('turns sizes into bytes', () => {
    const config = parse({ BODY_SIZE_LIMIT: '1024', MAX_UPLOAD_FILE_SIZE: '2', DATA_CACHE_SIZE_GB: '0.5' })
    expect(config.server.bodySizeLimit).toBe(1024)
    expect(config.files.maxUploadFileSize).toBe(2 * 1024 ** 2)
    expect(config.dataCache.maxBytes).toBe(1024 ** 3 / 2)
    expect(parse().server.bodySizeLimit).toBe(20 * 1024 ** 2)
  })
})

describe('parsers', () => {
  const accepted: [parser: parsers.Parser<unknown>, text: string, value: unknown][] = [
    ...['true', 'TRUE', '1', 'yes', 'On'].map(
      (word) => [parsers.boolean, word, true] as [typeof parsers.boolean, string, boolean],
    ),
    ...['false', 'False', '0', 'NO', 'off'].map(
      (word) => [parsers.boolean, word, false] as [typeof parsers.boolean, string, boolean],
    ),
    [parsers.integer({ min: 0, max: 10 }), '10', 10],
    [parsers.integer({ min: -1 }), '-1', -1],
    [parsers.size('b'), '20mb', 20 * 1024 ** 2],
    [parsers.size('b'), '1.5 KB', 1536],
    [parsers.size('mb'), '50', 50 * 1024 ** 2],
    [parsers.size('gb'), '1.0', 1024 ** 3],
    [parsers.oneOf('LOCAL', 'S3'), 'local', 'LOCAL'],
    [parsers.list(parsers.text), ' a, b ,,a', ['a', 'b']],
    [parsers.list(parsers.text), ' , ', []],
    [parsers.postgresUrl, 'postgres://u:p@h:5432/db', 'postgres://u:p@h:5432/db'],
    [parsers.postgresUrl, 'postgresql:///db?host=/tmp', 'postgresql:///db?host=/tmp'],
    [parsers.url('redis', 'rediss'), 'rediss://h:6379', 'rediss://h:6379'],
    [parsers.origin, 'https://App.Example.com:443/', 'https://app.example.com'],
    [parsers.appUrl, 'https://app.example.com/shop/', 'https://app.example.com/shop'],
    [parsers.urlPath, '/', '/'],
    [parsers.urlPath, '/realtime/', '/realtime'],
    [parsers.trustedProxies, 'false', false],
    [parsers.trustedProxies, '0', false],
    [parsers.trustedProxies, '2', 2],
    [parsers.trustedProxies, 'loopback, 10.0.0.0/8 ,fd00::/8,192.0.2.1', 'loopback,10.0.0.0/8,fd00::/8,192.0.2.1'],
    [parsers.pem, 'a\\nb', 'a\nb'],
    [parsers.emailAddress, 'a@b.c', 'a@b.c'],
  ]
  it.each(accepted)('%# accepts %j', (parser, text, value) => {
    expect(parser.parse(text)).toEqual({ value })
  })

  const refused: [parser: parsers.Parser<unknown>, text: string, problem: RegExp][] = [
    [parsers.boolean, 'maybe', /not true or false/],
    ...['', '1.5', '1e3', '11', '-1', '0x5', 'NaN', '99999999999999999999'].map(
      (text) =>
        [parsers.integer({ min: 0, max: 10 }), text, /whole number from 0 to 10/] as [
          parsers.Parser<number>,
          string,
          RegExp,
        ],
    ),
    ...['0', '-5mb', '20tb', 'mb', '20mb20'].map(
      (text) => [parsers.size('b'), text, /positive number/] as [parsers.Parser<number>, string, RegExp],
    ),
    [parsers.oneOf('memory', 'redis'), 'disk', /memory, redis/],
    [parsers.postgresUrl, 'mysql://h/db', /postgres:\/\//],
    [parsers.postgresUrl, 'postgres:h', /postgres:\/\//],
    [parsers.url('redis', 'rediss'), 'http://h', /redis:\/\/ or rediss:\/\//],
    [parsers.url('http', 'https'), 'https://', /https:\/\//],
    [parsers.origin, 'https://h/path', /path/],
    [parsers.origin, '*', /http/],
    [parsers.origin, '//h', /http/],
    [parsers.origin, 'ftp://h', /http/],
    [parsers.origin, 'https:h', /http/],
    [parsers.origin, 'https://app.example.com@evil.test', /user name/],
    [parsers.appUrl, 'https://app.example.com\\.evil.test', /http/],
    [parsers.appUrl, 'https://h/?a=1', /query/],
    [parsers.appUrl, 'javascript:alert(1)', /http/],
    [parsers.urlPath, 'realtime', /begins with/],
    [parsers.urlPath, '/a?b', /begins with/],
    [parsers.trustedProxies, 'true', /hops/],
    [parsers.trustedProxies, '10.0.0.0/33', /network/],
    [parsers.trustedProxies, '10.0.0.0/8/8', /network/],
    [parsers.emailAddress, 'a b@c', /an e-mail address/],
  ]
  it.each(refused)('%# refuses %j', (parser, text, problem) => {
    expect(parser.parse(text)).toMatchObject({ problem: expect.stringMatching(problem) })
  })

  it('name the bad entry of a list', () => {
    expect(parsers.list(parsers.origin).parse('https://a, b')).toMatchObject({ culprit: 'b' })
  })
})

describe('parseConfig', () => {
  it('treats empty values as unset', () => {
    expect(parse({ PORT: '', COUNT_BY_DEFAULT: '  ', DATABASE_URL: '' })).toEqual(parse())
  })

  it('trims values, but not passwords', () => {
    const config = parse({ PORT: ' 80 ', ADMIN_PASSWORD: ' with blanks ' })
    expect(config.server.port).toBe(80)
    expect(config.admin.password).toBe(' with blanks ')
  })

  it('reports all problems together, each with its variable, what is wrong and its meaning', () => {
    const error = failure({ PORT: 'abc', LOG_LEVEL: 'loud', DATA_CACHE_ADAPTER: 'redis' })
    expect(error.problems.map(({ variable }) => variable)).toEqual([
      'PORT',
      'LOG_LEVEL',
      'SECRET_KEY',
      'DATA_CACHE_REDIS_URL',
    ])
    expect(error.message).toContain('4 problems')
    expect(error.message).toContain('PORT: "abc" is not a whole number from 0 to 65535')
    expect(error.message).toContain('Port the server listens on')
    expect(error.message).toContain('LOG_LEVEL: "loud" is not one of trace, debug, info, warn, error')
    expect(error.message).toContain('SECRET_KEY: is missing')
    expect(error.message).toContain('required because DATA_CACHE_ADAPTER is redis')
  })

  it('reports a variable once', () => {
    expect(problems({ DATA_CACHE_ADAPTER: 'redis', DATA_CACHE_REDIS_URL: 'nonsense' })).toEqual([
      'DATA_CACHE_REDIS_URL',
    ])
  })

  it.each(['staging', 'prod'])('refuses the environment %s rather than take it for development', (environment) => {
    expect(problems({ NODE_ENV: environment })).toEqual(['NODE_ENV'])
  })

  it.each(['production', ' Production '])('applies the checks of production to NODE_ENV=%j', (environment) => {
    expect(failure({ NODE_ENV: environment }).problems.map(({ variable }) => variable)).toEqual(['SECRET_KEY'])
  })

  it('refuses password hashes in production that are cheaper than by default', () => {
    expect(problems({ NODE_ENV: 'production', PASSWORD_HASH_COST: '9' })).toEqual(['PASSWORD_HASH_COST'])
    expect(parseConfig(production()).auth.passwordHashCost).toBe(10)
    expect(parse({ PASSWORD_HASH_COST: '4' }).auth.passwordHashCost).toBe(4)
  })

  it('is frozen throughout', () => {
    const config = parse({ ...localStorage(), ...sender('main') })
    const unfrozen = (value: unknown): boolean =>
      typeof value === 'object' && value !== null && (!Object.isFrozen(value) || Object.values(value).some(unfrozen))
    expect(unfrozen(config)).toBe(false)
  })

  it('counts in the Redis of the system cache unless another one is named', () => {
    const cache = { SYSTEM_CACHE_REDIS_URL: 'redis://cache' }
    expect(parse(cache).rateLimit.redisUrl).toBeUndefined()
    expect(parse({ ...cache, SYSTEM_CACHE_ADAPTER: 'redis' }).rateLimit.redisUrl).toBe('redis://cache')
    const own = { RATE_LIMIT_REDIS_URL: 'redis://limits' }
    expect(parse({ ...cache, ...own, SYSTEM_CACHE_ADAPTER: 'redis' }).rateLimit.redisUrl).toBe('redis://limits')
  })

  it('takes a schedule as the worker will read it, and says why not', () => {
    const schedule = (BACKUP_SCHEDULE: string) => ({ ...localStorage(), BACKUP_STORAGE: 'local', BACKUP_SCHEDULE })
    for (const text of ['0 2 * * *', '0/30 2 29 2 MON-FRI', '0 2 L * *'])
      expect(parse(schedule(text)).backup.schedule).toBe(text)
    expect(failure({ SECRET_KEY: key, ...schedule('0 25 * * *') }).message).toContain(
      'BACKUP_SCHEDULE: "0 25 * * *" is not a cron expression of five fields that is ever due: Constraint error, got value 25',
    )
  })

  it('does not change the environment it reads', () => {
    const env = Object.freeze(production({ ...sender('main') }))
    expect(() => parseConfig(env)).not.toThrow()
  })

  it.each([
    ['TASK_LIST_REFRESH_INTERVAL', 'often'],
    ['TASK_STALL_TIMEOUT', '1.5'],
    ['PORT', '65536'],
    ['DATABASE_POOL_MAX', '0'],
    ['RATE_LIMIT', '0'],
    ['SOCKET_ENABLED', 'perhaps'],
    ['AUTH_SERVICES_ENABLED', 'LOCAL,MYSPACE'],
    ['AUTH_APP_URL', 'https://ok.example,ftp://no.example'],
    ['AUTH_CORS_ALLOWED_ORIGINS', '*'],
    ['PROTECT_PRIVILEGE_FIELDS', 'allow'],
    ['MAIL_SENDERS_ENABLED', '__proto__'],
    ['BACKUP_SCHEDULE', '0 2 * * * *'],
    ['BACKUP_SCHEDULE', '0 25 * * *'],
    ['BACKUP_SCHEDULE', '61 * * * *'],
    ['BACKUP_SCHEDULE', '* * 31 2 *'],
    ['BACKUP_SCHEDULE', '0 2 15W * *'],
  ])('refuses %s=%s', (name, value) => {
    expect(problems({ [name]: value })).toEqual([name])
  })

  it.each([
    ['TASK_LIST_REFRESH_INTERVAL', '10800', (c: Config) => c.tasks.listRefreshIntervalSeconds, 10_800],
    ['TASK_STALL_TIMEOUT', '60', (c: Config) => c.tasks.stallTimeoutSeconds, 60],
    ['OPENAPI_ENABLED', '0', (c: Config) => c.openapi.enabled, false],
    ['EMAIL_VERIFICATION_RESEND_COOLDOWN', '0', (c: Config) => c.auth.emailVerificationResendCooldown, 0],
    ['MIGRATIONS_UPGRADE_BASELINE', 'true', (c: Config) => c.migrations.upgradeBaseline, true],
    ['MIGRATIONS_UPGRADE_BASELINE', '0.1.0-alpha.7', (c: Config) => c.migrations.upgradeBaseline, '0.1.0-alpha.7'],
    ['MCP_ENABLED_ACTIONS', 'all,read', (c: Config) => c.mcp.actions, ['read', 'create', 'update', 'delete']],
    ['MCP_ENABLED_ACTIONS', 'read,update', (c: Config) => c.mcp.actions, ['read', 'update']],
    ['BASE_URL', 'https://api.example.com/', (c: Config) => c.server.baseUrl, 'https://api.example.com'],
    ['AUTH_SERVICES_ENABLED', 'twofactor', (c: Config) => [c.auth.local, c.auth.twoFactor], [false, true]],
    ['ASSET_SECURE_PROXY_URLS', 'video,image/png', (c: Config) => c.assets.secureProxyTypes, ['video', 'image/png']],
  ] as const)('reads %s=%s', (name, value, member, expected) => {
    expect(member(parse({ [name]: value }))).toEqual(expected)
  })

  it.each([
    [{}, true, false],
    [{ PROTECT_PRIVILEGE_FIELDS: 'false' }, false, false],
    [{ PROTECT_PRIVILEGE_FIELDS: 'allow-password' }, true, true],
    [{ PROTECT_PRIVILEGE_FIELDS: 'allow-password', ALLOW_PASSWORD_WRITES: 'false' }, true, false],
    [{ ALLOW_PASSWORD_WRITES: 'true' }, true, true],
  ])('reads privilege fields from %j', (env: Env, protectPrivilegeFields, allowPasswordWrites) => {
    expect(parse(env).access).toMatchObject({ protectPrivilegeFields, allowPasswordWrites })
  })
})

describe('rules', () => {
  it('ask for SECRET_KEY in every environment', () => {
    for (const environment of ['production', 'development', 'test'])
      expect(failure({ NODE_ENV: environment }).problems.map(({ variable }) => variable)).toEqual(['SECRET_KEY'])
  })

  it('take a generated key outside production only, and after the operator’s', () => {
    expect(parseConfig({}, { secretKey: 'generated' }).auth.secretKey).toBe('generated')
    expect(parseConfig({ SECRET_KEY: 'mine' }, { secretKey: 'generated' }).auth.secretKey).toBe('mine')
    expect(failure({ NODE_ENV: 'production' }, { secretKey: key }).message).toContain('SECRET_KEY')
  })

  it('let the key be missing on request outside production only', () => {
    expect(parseConfig({}, { allowMissingSecret: true }).auth.secretKey).toBe('')
    expect(failure({ NODE_ENV: 'production' }, { allowMissingSecret: true }).message).toContain('SECRET_KEY')
  })

  it('ask for keys of 32 characters in production', () => {
    expect(problems(production({ SECRET_KEY: 'x'.repeat(31) }))).toEqual(['SECRET_KEY'])
    expect(problems(production({ SECRET_KEY_PREVIOUS: 'x'.repeat(31) }))).toEqual(['SECRET_KEY_PREVIOUS'])
    expect(parseConfig(production({ SECRET_KEY: 'x'.repeat(32) })).auth.secretKey).toHaveLength(32)
    expect(parse({ SECRET_KEY: 'short' }).auth.secretKey).toBe('short')
  })

  it.each(['admin', 'ADMIN123', 'password', 'changeme', 'Owner@Example.com', 'owner', 'short', 'x'.repeat(129)])(
    'refuse the administrator’s password %s in production',
    (password) => {
      const env = { ADMIN_EMAIL: 'owner@example.com', ADMIN_PASSWORD: password }
      expect(problems(production(env))).toEqual(['ADMIN_PASSWORD'])
      expect(parse(env).admin.password).toBe(password)
    },
  )

  it('accept an uncommon password in production', () => {
    expect(parseConfig(production({ ADMIN_PASSWORD: 'seven grey herons' })).admin.password).toBe('seven grey herons')
  })

  it.each([
    [{ DATABASE_READ_REPLICA_ENABLED: 'true' }, ['DATABASE_READ_REPLICA_URLS']],
    [{ SYSTEM_CACHE_ADAPTER: 'redis' }, ['SYSTEM_CACHE_REDIS_URL']],
    [{ DATA_CACHE_ADAPTER: 'redis' }, ['DATA_CACHE_REDIS_URL']],
    [{ SYSTEM_CACHE_ADAPTER: 'upstash' }, ['UPSTASH_REDIS_REST_URL', 'UPSTASH_REDIS_REST_TOKEN']],
    [{ DATA_CACHE_ADAPTER: 'upstash', UPSTASH_REDIS_REST_URL: 'https://u' }, ['UPSTASH_REDIS_REST_TOKEN']],
    [{ SOCKET_REDIS_ENABLED: 'true' }, ['SOCKET_REDIS_URL']],
    [{ TASK_REDIS_ENABLED: 'true' }, ['TASK_REDIS_URL']],
    [{ MCP_ENABLED: 'true', MCP_PATH: '/' }, ['MCP_PATH']],
    [{ METRICS_PORT: '9465' }, ['METRICS_TOKEN']],
    [{ METRICS_TOKEN: 'too-short-a-one' }, ['METRICS_TOKEN']],
    [{ AUTH_SERVICES_ENABLED: 'GITHUB', GITHUB_CLIENT_ID: 'i', GITHUB_CLIENT_SECRET: 's' }, ['BASE_URL']],
    [{ DEFAULT_ROLE_REGISTERED: 'administrator' }, ['DEFAULT_ROLE_REGISTERED']],
    [{ ALLOWED_ROLES_MULTI_TENANT: 'user,Administrator' }, ['ALLOWED_ROLES_MULTI_TENANT']],
  ])('refuse %j', (env: Env, names) => {
    expect(problems(env)).toEqual(names)
  })

  it('ask nothing of a cache that is off', () => {
    expect(parse({ DATA_CACHE_ENABLED: 'false', DATA_CACHE_ADAPTER: 'redis' }).dataCache.enabled).toBe(false)
  })

  it('ask for DATABASE_URL on request', () => {
    expect(problems({}, { requireDatabase: true })).toEqual(['DATABASE_URL'])
    expect(parse({ DATABASE_URL: 'postgres://h/d' }, { requireDatabase: true }).database.url).toBe('postgres://h/d')
  })

  it('leave e-mail verification without a sender to the settings', () => {
    const env = { REQUIRE_EMAIL_VERIFICATION: 'true' }
    const inProduction = parseConfig(production(env))
    expect(inProduction.auth.verificationNeedsSettingsSmtp).toBe(true)
    expect(inProduction.warnings).toEqual([])
    expect(parse(env).warnings).toEqual([expect.stringContaining('REQUIRE_EMAIL_VERIFICATION')])
    expect(parse({ ...env, ...sender('main') }).auth.verificationNeedsSettingsSmtp).toBe(false)
    expect(parse().auth.verificationNeedsSettingsSmtp).toBe(false)
  })

  it('activate passkeys only when fully configured', () => {
    const complete = {
      AUTH_SERVICES_ENABLED: 'LOCAL,PASSKEY',
      PASSKEY_RP_ID: 'example.com',
      PASSKEY_RP_NAME: 'Example',
      PASSKEY_ORIGIN: 'https://example.com,https://app.example.com',
    }
    expect(parse(complete).passkey).toEqual({
      rpId: 'example.com',
      rpName: 'Example',
      origins: ['https://example.com', 'https://app.example.com'],
    })
    expect(parse({ ...complete, AUTH_SERVICES_ENABLED: 'LOCAL' }).passkey).toBeUndefined()
    for (const name of ['PASSKEY_RP_ID', 'PASSKEY_RP_NAME', 'PASSKEY_ORIGIN']) {
      const config = parse({ ...complete, [name]: undefined })
      expect(config.passkey).toBeUndefined()
      expect(config.warnings).toEqual([expect.stringContaining('Passkeys are not active')])
    }
  })

  it.each([
    [{ AUTH_COOKIE_SAME_SITE: 'none' }, /AUTH_COOKIE_SAME_SITE/],
    [production({ AUTH_COOKIE_SECURE: 'false' }), /AUTH_COOKIE_SECURE/],
    [{ PROTECT_PRIVILEGE_FIELDS: 'allow-password', ALLOW_PASSWORD_WRITES: '0' }, /ALLOW_PASSWORD_WRITES/],
    [{ BASE_URL: 'api.example.com' }, /BASE_URL/],
    [{ MAIL_DEFAULT_SENDER: 'main' }, /MAIL_DEFAULT_SENDER/],
  ])('warn of %j', (env: Env, warning) => {
    expect(parse(env).warnings).toEqual([expect.stringMatching(warning)])
  })

  it('are content with the defaults', () => {
    expect(parse().warnings).toEqual([])
    expect(parseConfig(production()).warnings).toEqual([])
  })
})

describe('families', () => {
  it('give the complete mail senders by name', () => {
    const config = parse({
      ...sender('main'),
      ...sender('eu-mail'),
      MAIL_SENDERS_ENABLED: 'main, eu-mail',
      MAIL_DEFAULT_SENDER: 'EU-Mail',
    })
    expect(config.mail.senders).toEqual({
      main: {
        name: 'main',
        host: 'smtp.example.com',
        port: 587,
        secure: false,
        user: 'u',
        pass: 'p',
        from: 'a@example.com',
      },
      'eu-mail': expect.objectContaining({ name: 'eu-mail' }),
    })
    expect(config.mail.defaultSender).toBe('eu-mail')
    expect(config.warnings).toEqual([])
  })

  it.each([
    [{ MAIN_SMTP_PORT: '465' }, true],
    [{ MAIN_SMTP_PORT: '465', MAIN_SMTP_SECURE: 'false' }, false],
    [{ MAIN_SMTP_SECURE: 'true' }, true],
  ])('decide TLS from %j', (env: Env, secure) => {
    expect(parse({ ...sender('main'), ...env }).mail.senders.main?.secure).toBe(secure)
  })

  it.each(['_SMTP_HOST', '_SMTP_PORT', '_SMTP_USER', '_SMTP_PASS', '_FROM_ADDRESS'])(
    'skip a sender without %s',
    (suffix) => {
      const config = parse({
        ...sender('main'),
        [`MAIN${suffix}`]: '',
        ...sender('spare'),
        MAIL_SENDERS_ENABLED: 'main,spare',
      })
      expect(Object.keys(config.mail.senders)).toEqual(['spare'])
      expect(config.mail.defaultSender).toBe('spare')
      expect(config.warnings).toEqual([`Mail sender main is skipped: MAIN${suffix} is missing`])
    },
  )

  it('refuse a sender’s malformed value', () => {
    expect(problems({ ...sender('main'), MAIN_SMTP_PORT: 'smtp' })).toEqual(['MAIN_SMTP_PORT'])
  })

  it('read names that begin the same variables once', () => {
    expect(Object.keys(parse({ ...sender('main'), MAIL_SENDERS_ENABLED: 'main,MAIN' }).mail.senders)).toEqual(['main'])
  })

  it('give storage services by name', () => {
    const config = parse({
      ...localStorage(),
      ...s3Storage(),
      STORAGE_SERVICES_ENABLED: 'local,s3',
      STORAGE_DEFAULT_SERVICE: 'S3',
    })
    expect(config.storage.services).toEqual({
      local: { name: 'local', driver: 'LOCAL', path: './files' },
      s3: {
        name: 's3',
        driver: 'S3',
        accessKeyId: 'id',
        secretAccessKey: 'secret',
        region: 'eu-1',
        bucket: 'b',
        endpoint: 'http://127.0.0.1:9000',
      },
    })
    expect(config.storage.defaultService).toBe('s3')
    expect(parse(localStorage()).storage.defaultService).toBe('local')
    const { services, defaultService } = parse({ DAYBOOK_DATA_DIR: '/data' }).storage
    expect(services).toEqual({ local: { name: 'local', driver: 'LOCAL', path: '/data/files' } })
    expect(defaultService).toBe('local')
    expect(parse(production()).storage).toMatchObject({ services: {}, defaultService: undefined })
  })

  it('accept the short spelling of S3 variables', () => {
    const short = Object.fromEntries(
      Object.entries(s3Storage()).map(([name, value]) => [
        /DRIVER|ENABLED/.test(name) ? name : name.replace('_STORAGE', ''),
        value,
      ]),
    )
    expect(short).toHaveProperty('S3_BUCKET')
    expect(parse(short).storage.services).toEqual(parse(s3Storage()).storage.services)
  })

  it.each([
    [{ LOCAL_STORAGE_DRIVER: '' }, ['LOCAL_STORAGE_DRIVER']],
    [{ LOCAL_STORAGE_DRIVER: 'FTP' }, ['LOCAL_STORAGE_DRIVER']],
    [{ LOCAL_STORAGE_PATH: '' }, ['LOCAL_STORAGE_PATH']],
    [{ STORAGE_DEFAULT_SERVICE: 'other' }, ['STORAGE_DEFAULT_SERVICE']],
  ])('refuse a local service with %j', (env: Env, wrong) => {
    expect(problems({ ...localStorage(), ...env })).toEqual(wrong)
  })

  it.each(['ACCESS_KEY_ID', 'SECRET_ACCESS_KEY', 'REGION', 'BUCKET'])('refuse an S3 service without %s', (suffix) => {
    expect(problems({ ...s3Storage(), [`S3_STORAGE_${suffix}`]: undefined })).toEqual([`S3_STORAGE_${suffix}`])
  })

  it('are taken for the nearest of their bounds where tasks can bear it, with a warning', () => {
    const { tasks, warnings } = parse({
      TASK_LIST_REFRESH_INTERVAL: '20000',
      TASK_STALL_TIMEOUT: '5',
      TASK_CONCURRENCY: '0',
    })
    expect(tasks).toMatchObject({ listRefreshIntervalSeconds: 10_800, stallTimeoutSeconds: 60, concurrency: 1 })
    expect(warnings).toEqual([
      'TASK_LIST_REFRESH_INTERVAL: "20000" is not a whole number from 1 to 10800 (s): 10800 is used',
      'TASK_CONCURRENCY: "0" is not a whole number from 1 to 1000: 1 is used',
      'TASK_STALL_TIMEOUT: "5" is not a whole number from 60 to 2147483 (s): 60 is used',
    ])
    expect(problems({ TASK_CONCURRENCY: 'many' })).toEqual(['TASK_CONCURRENCY'])
  })

  it('find nothing under names of the language', () => {
    const { mail, storage, oauth } = parse({ ...localStorage() })
    for (const found of [mail.senders, storage.services, oauth.providers]) expect(found.constructor).toBeUndefined()
  })

  const base = { BASE_URL: 'https://api.example.com' }
  const apple = { APPLE_CLIENT_ID: 'a', APPLE_TEAM_ID: 't', APPLE_KEY_ID: 'k', APPLE_PRIVATE_KEY: 'x\\ny' }
  it.each([
    ['GOOGLE', { GOOGLE_CLIENT_ID: 'i', GOOGLE_CLIENT_SECRET: 's' }, { clientId: 'i', clientSecret: 's', extra: {} }],
    ['WECHAT', { WECHAT_CLIENT_ID: 'i', WECHAT_CLIENT_SECRET: 's' }, { clientId: 'i', clientSecret: 's' }],
    [
      'APPLE',
      apple,
      { clientId: 'a', clientSecret: undefined, extra: { teamId: 't', keyId: 'k', privateKey: 'x\ny' } },
    ],
    ['APPLE', { APPLE_CLIENT_ID: 'a', APPLE_CLIENT_SECRET: 'signed' }, { clientSecret: 'signed' }],
    ['MICROSOFT', { MICROSOFT_CLIENT_ID: 'i', MICROSOFT_CLIENT_SECRET: 's' }, { extra: { tenantId: 'common' } }],
    ['TIKTOK', { TIKTOK_CLIENT_KEY: 'k', TIKTOK_CLIENT_SECRET: 's' }, { clientId: 'k', extra: { clientKey: 'k' } }],
    [
      'COGNITO',
      { COGNITO_CLIENT_ID: 'i', COGNITO_CLIENT_SECRET: 's', COGNITO_DOMAIN: 'd', COGNITO_REGION: 'r' },
      { extra: { domain: 'd', region: 'r' } },
    ],
  ])('activate %s with %j', (id, env: Env, expected) => {
    const { providers } = parse({ ...base, ...env, AUTH_SERVICES_ENABLED: `LOCAL,${id}` }).oauth
    expect(providers).toEqual({ [id.toLowerCase()]: expect.objectContaining({ id: id.toLowerCase(), ...expected }) })
    expect(parse({ ...base, ...env }).oauth.providers).toEqual({})
  })

  it.each([
    ['GOOGLE', { GOOGLE_CLIENT_ID: 'i' }, 'GOOGLE_CLIENT_SECRET is missing'],
    ['GOOGLE', {}, 'GOOGLE_CLIENT_ID, GOOGLE_CLIENT_SECRET are missing'],
    ['APPLE', { ...apple, APPLE_KEY_ID: '' }, 'APPLE_KEY_ID is missing'],
    [
      'COGNITO',
      { COGNITO_CLIENT_ID: 'i', COGNITO_CLIENT_SECRET: 's', COGNITO_REGION: 'r' },
      'COGNITO_DOMAIN is missing',
    ],
    ['TIKTOK', { TIKTOK_CLIENT_ID: 'i', TIKTOK_CLIENT_SECRET: 's' }, 'TIKTOK_CLIENT_KEY is missing'],
  ])('leave %s with %j inactive', (id, env: Env, warning) => {
    const config = parse({ ...env, AUTH_SERVICES_ENABLED: `LOCAL,${id}` })
    expect(config.oauth.providers).toEqual({})
    expect(config.warnings).toEqual([`Social provider ${id} is not active: ${warning}`])
  })
})

describe('near misses', () => {
  it.each([
    ['DATABSE_URL', 'DATABASE_URL'],
    ['DATABASE_URI', 'DATABASE_URL'],
    ['SECERT_KEY_PREVIOUS', 'SECRET_KEY_PREVIOUS'],
    ['MULTI_TENNANT', 'MULTI_TENANT'],
  ])('%s is taken for %s', (name, meant) => {
    expect(parse({ [name]: 'x' }).warnings).toEqual([`${name} is not a variable of Daybook; did you mean ${meant}?`])
  })

  it.each(['PATH', 'HOSTS', 'HOME', 'LD_LIBRARY_PATH', 'npm_config_loglevel', 'PGDATABASE', 'XDG_DATA_DIRS'])(
    '%s is none',
    (name) => {
      expect(parse({ [name]: 'x' }).warnings).toEqual([])
    },
  )

  it('are not suspected where the right variable is set, nor of members of families', () => {
    expect(parse({ DATABASE_URL: 'postgres://h/d', DATABASE_URLS: 'x' }).warnings).toEqual([])
    expect(parse({ ...sender('main') }).warnings).toEqual([])
  })
})

describe('secrets', () => {
  const secretVariables = everyVariable.filter(({ secret }) => secret).map(({ name }) => name)
  const canary = 'canary-9f3a77'

  it('are marked where values are credentials', () => {
    const credentials = /SECRET|PASSWORD$|_PASS$|_TOKEN$|^DATABASE.*URLS?$|REDIS_URL$|PRIVATE_KEY/
    const open = everyVariable.filter(({ name, secret }) => !secret && credentials.test(name)).map(({ name }) => name)
    expect(open).toEqual([])
    const members = Object.values(families)
      .flat()
      .flatMap(({ variables }) => Object.values(variables))
    expect(members.filter(({ name, secret }) => !secret && credentials.test(name))).toEqual([])
  })

  it.each(secretVariables)('%s never appears in a message', (name) => {
    for (const value of [canary, `ftp://u:${canary}@h/d`, `postgres://u:${canary}@h/d`]) {
      const error = failure({ ...production(), [name]: value, PORT: 'x' })
      expect(error.message).not.toContain(canary)
      expect(JSON.stringify(error.problems)).not.toContain(canary)
    }
  })

  it('do not appear in messages of a family', () => {
    const env = {
      ...sender('main'),
      MAIN_SMTP_PASS: canary,
      MAIN_SMTP_PORT: 'x',
      ...s3Storage(),
      S3_STORAGE_SECRET_ACCESS_KEY: canary,
    }
    expect(failure(env).message).not.toContain(canary)
  })

  it('of a URL do not appear in messages of variables that are no secret', () => {
    expect(failure({ AUTH_APP_URL: `https://u:${canary}@h, https://v:${canary}@ho st` }).message).not.toContain(canary)
  })

  it('are masked in a description, everything else is there', () => {
    const config = parse({
      ...sender('main'),
      ...s3Storage(),
      ...base(canary),
      SECRET_KEY: canary,
      ADMIN_PASSWORD: canary,
      MAIN_SMTP_PASS: canary,
      S3_STORAGE_SECRET_ACCESS_KEY: canary,
      DATABASE_URL: `postgres://u:${canary}@db.example.com:5432/app?password=${canary}`,
      DATABASE_READ_REPLICA_URLS: `postgres://u:${canary}@r.example.com/app`,
      SOCKET_REDIS_URL: `redis://:${canary}@cache.example.com:6379/0`,
    })
    const described = describeConfig(config)
    expect(JSON.stringify(described)).not.toContain(canary)
    expect(described).toMatchObject({
      server: { port: 8055 },
      auth: { secretKey: '********', secretKeyPrevious: undefined },
      database: {
        url: 'postgres://********@db.example.com:5432/app',
        readReplicaUrls: ['postgres://********@r.example.com/app'],
      },
      realtime: { redisUrl: 'redis://********@cache.example.com:6379/0' },
      mail: { senders: { main: { pass: '********', host: 'smtp.example.com' } } },
      storage: { services: { s3: { secretAccessKey: '********' } } },
      oauth: { providers: { apple: { clientSecret: '********', extra: { privateKey: '********', teamId: 't' } } } },
    })
    expect(config.auth.secretKey).toBe(canary)
  })

  function base(secret: string): Env {
    return {
      BASE_URL: 'https://api.example.com',
      AUTH_SERVICES_ENABLED: 'APPLE',
      APPLE_CLIENT_ID: 'a',
      APPLE_CLIENT_SECRET: secret,
      APPLE_TEAM_ID: 't',
      APPLE_KEY_ID: 'k',
      APPLE_PRIVATE_KEY: secret,
    }
  }
})

describe('any environment', () => {
  const names = everyVariable.map(({ name }) => name)
  const values = fc.oneof(
    fc.string(),
    fc.constantFrom('true', '0', '5', 'a,b', 'https://h', 'redis://h', 'all', 'main', 'LOCAL'),
  )

  it('gives a config or a ConfigError, nothing else', () => {
    const env = fc.dictionary(fc.constantFrom(...names, 'MAIN_SMTP_HOST', 'LOCAL_STORAGE_PATH'), values, {
      maxKeys: 12,
    })
    fc.assert(
      fc.property(env, (given) => {
        try {
          return Object.isFrozen(parseConfig(given))
        } catch (error) {
          return error instanceof ConfigError && error.problems.length > 0
        }
      }),
    )
  })
})

describe('loadEnv', () => {
  it('is the process’s environment where there is no file', () => {
    expect(loadEnv(directory(), { A: '1' })).toEqual({ A: '1' })
  })

  it('reads the file, overlaid by the process, and changes neither', () => {
    const processEnv = Object.freeze({ B: 'process' })
    expect(loadEnv(directory('A=file\nB=file\n'), processEnv)).toEqual({ A: 'file', B: 'process' })
    expect(process.env.A).toBeUndefined()
  })

  it('reads quotes, comments, export, several lines and Windows line ends', () => {
    const content = '# comment\r\nA="x # y" # z\r\nexport B=2\n\n  C=\'three\'\nKEY="line 1\nline 2"\nD=\nE=a=b'
    expect(loadEnv(directory(content), {})).toMatchObject({
      A: 'x # y',
      B: '2',
      C: 'three',
      KEY: 'line 1\nline 2',
      D: '',
      E: 'a=b',
    })
  })

  it.each([
    ['A=1\nnonsense\n', 2],
    ['A=1\nB="never closed\nC=3\n', 2],
    ['A="x" rest\nB="y"\n', 1],
    ['1A=x', 1],
    ['A=1\r\n\r\n=x', 3],
    ['KEY="line 1\nline 2"\nnonsense', 3],
  ])('refuses %j, naming the file and line %i but not the text', (content, line) => {
    const dir = directory(content)
    const load = () => loadEnv(dir, {})
    expect(load).toThrow(ConfigError)
    expect(load).toThrow(`${join(dir, '.env')} is malformed: line ${line} is not`)
    expect(load).not.toThrow(/nonsense|never closed/)
  })

  it('refuses a file that cannot be read', () => {
    const dir = directory()
    mkdirSync(join(dir, '.env'))
    expect(() => loadEnv(dir, {})).toThrow(ConfigError)
  })
})

describe('generated files', () => {
  const artefacts = [{ path: 'docs/a.md', render: () => 'text\n' }]

  it('are stale when missing or different, and fresh once written', () => {
    const root = directory()
    expect(staleFiles(root, artefacts)).toEqual(['docs/a.md'])
    writeFiles(root, artefacts)
    expect(staleFiles(root, artefacts)).toEqual([])
    writeFileSync(join(root, 'docs/a.md'), 'changed\n')
    expect(staleFiles(root, artefacts)).toEqual(['docs/a.md'])
  })
})

describe('docs/config.md', () => {
  const document = configDocument()

  it('has a row for every variable and family member, with four cells', () => {
    const rows = document.split('\n').filter((line) => line.startsWith('| `'))
    const members = Object.values(families)
      .flat()
      .flatMap(({ variables }) => Object.values(variables))
    expect(rows).toHaveLength(everyVariable.length + members.length)
    for (const row of rows) expect(row.match(/(?<!\\)\|/g), row).toHaveLength(5)
  })

  it('states meaning, default and values', () => {
    expect(document).toContain(
      '| `PORT` | Port the server listens on; 0 takes a free one | `8055` | whole number from 0 to 65535 |',
    )
    expect(document).toContain('| `strict` in production, otherwise `lax` | strict, lax, none |')
    expect(document).toContain('`<SENDER>_SMTP_PASS` 🔒')
    expect(document).toContain('`<SERVICE>_STORAGE_BUCKET`')
    expect(document).toContain('`COGNITO_DOMAIN`')
  })

  it('is the same every time', () => {
    expect(configDocument()).toBe(document)
  })
})

/** The variables of a complete sender that is the only one enabled. */
function sender(name: string): Env {
  const prefix = name.toUpperCase().replaceAll('-', '_')
  return {
    MAIL_SENDERS_ENABLED: name,
    [`${prefix}_SMTP_HOST`]: 'smtp.example.com',
    [`${prefix}_SMTP_PORT`]: '587',
    [`${prefix}_SMTP_USER`]: 'u',
    [`${prefix}_SMTP_PASS`]: 'p',
    [`${prefix}_FROM_ADDRESS`]: 'a@example.com',
  }
}

function localStorage(): Env {
  return { STORAGE_SERVICES_ENABLED: 'local', LOCAL_STORAGE_DRIVER: 'local', LOCAL_STORAGE_PATH: './files' }
}

function s3Storage(): Env {
  return {
    STORAGE_SERVICES_ENABLED: 's3',
    S3_STORAGE_DRIVER: 'S3',
    S3_STORAGE_ACCESS_KEY_ID: 'id',
    S3_STORAGE_SECRET_ACCESS_KEY: 'secret',
    S3_STORAGE_REGION: 'eu-1',
    S3_STORAGE_BUCKET: 'b',
    S3_STORAGE_ENDPOINT: 'http://127.0.0.1:9000',
  }
}
