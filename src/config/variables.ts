import {
  appUrl,
  boolean,
  either,
  emailAddress,
  integer,
  list,
  mapped,
  matching,
  oneOf,
  origin,
  type Parser,
  pairs,
  password,
  postgresUrl,
  share,
  size,
  text,
  trustedProxies,
  url,
  urlPath,
} from './parsers.ts'

/** One environment variable. `fallback` is written as an operator would write it and goes through the same parser. */
export type Variable<T> = Readonly<{
  name: string
  parser: Parser<T>
  fallback: Fallback | undefined
  /** What the variable decides, in one line; ends up in docs/config.md and in messages. */
  doc: string
  /** The value must never be printed. */
  secret: boolean
  /** A second accepted spelling, read when `name` is unset. */
  alias?: string
}>

/** A default; an object where it depends on NODE_ENV. */
export type Fallback = string | Readonly<{ production?: string; test?: string; otherwise: string }>

export type Environment = 'development' | 'production' | 'test'

/** A section of docs/config.md and a member of Config. */
export type Group = Readonly<{ title: string; variables: Readonly<Record<string, Variable<unknown>>> }>

/** The values of a set of variables. */
export type Values<V> = { readonly [K in keyof V]: V[K] extends Variable<infer T> ? T : never }

/** The 35 social sign-in providers (spec: auth §6), as they are written in AUTH_SERVICES_ENABLED. */
export const socialProviderIds = [
  ...['GOOGLE', 'FACEBOOK', 'APPLE', 'GITHUB', 'ATLASSIAN', 'COGNITO', 'DISCORD', 'DROPBOX', 'FIGMA', 'GITLAB'],
  ...['HUGGINGFACE', 'KAKAO', 'KICK', 'LINE', 'LINEAR', 'LINKEDIN', 'MICROSOFT', 'NAVER', 'NOTION', 'PAYBIN'],
  ...['PAYPAL', 'POLAR', 'RAILWAY', 'REDDIT', 'ROBLOX', 'SALESFORCE', 'SLACK', 'SPOTIFY', 'TIKTOK', 'TWITCH'],
  ...['TWITTER', 'VERCEL', 'VK', 'WECHAT', 'ZOOM'],
] as const

const mcpActions = ['read', 'create', 'update', 'delete'] as const
const seconds = (min: number, max?: number) => integer({ min, ...(max && { max }), unit: 's' })
const milliseconds = (min: number) => integer({ min, max: 2_147_483_647, unit: 'ms' })
const count = (min: number, max?: number) => integer({ min, ...(max && { max }) })
const name = matching(/^[A-Za-z][A-Za-z0-9_-]*$/, 'name of letters, digits, - and _')
const contentType = matching(/^[a-z]+(\/[a-z0-9][a-z0-9.+-]*)?$/i, 'content type or its first half')
const redisUrl = url('redis', 'rediss')
const adapter = oneOf('memory', 'redis', 'upstash')
const mcpTools = mapped(list(oneOf('all', ...mcpActions)), (actions): readonly (typeof mcpActions)[number][] =>
  actions.includes('all') ? mcpActions : actions.filter((action) => action !== 'all'),
)
const services = oneOf('LOCAL', 'PASSKEY', 'TWOFACTOR', ...socialProviderIds)
const inDevelopmentOnly = { production: 'false', otherwise: 'true' }
const inProductionOnly = { production: 'true', otherwise: 'false' }

/**
 * The one table of every variable (spec: Configuration variables, Authentication configuration variables, Limits).
 * Families of variables whose names are configured (`<SENDER>_SMTP_HOST`) are in families.ts.
 */
export const groups = {
  server: group('Server', {
    environment: variable(
      'NODE_ENV',
      oneOf('development', 'production', 'test'),
      'development',
      'Environment; decides several defaults and checks',
    ),
    host: variable('HOST', text, { production: '0.0.0.0', otherwise: '127.0.0.1' }, 'Address the server listens on'),
    port: variable('PORT', count(0, 65535), '8055', 'Port the server listens on; 0 takes a free one'),
    baseUrl: optional(
      'BASE_URL',
      mapped(text, (value) => value.replace(/\/+$/, '')),
      'Public address of the API; the OAuth redirect address is {BASE_URL}/auth/callback/{provider}. Required when a social provider is enabled',
    ),
    trustProxy: variable(
      'TRUST_PROXY',
      trustedProxies,
      'false',
      'Proxies whose X-Forwarded-* headers are believed; with none they are ignored',
    ),
    bodySizeLimit: variable('BODY_SIZE_LIMIT', size('b'), '20mb', 'Largest JSON request body'),
    exposeErrorDetails: variable(
      'EXPOSE_ERROR_DETAILS',
      boolean,
      inDevelopmentOnly,
      'Put the raw text of internal errors into responses; otherwise a generic message and a correlation id',
    ),
    extensionsDir: variable(
      'EXTENSIONS_DIR',
      text,
      './extensions',
      'Directory of the extensions (docs/extensions.md); any but the default must exist',
    ),
  }),

  project: group('Project', {
    name: variable(
      'PROJECT_NAME',
      text,
      'Daybook',
      'Display name; also the issuer of tokens and a variable of e-mail templates',
    ),
  }),

  admin: group('Default administrator', {
    email: variable(
      'ADMIN_EMAIL',
      emailAddress,
      'admin@example.com',
      'E-mail address of the administrator account that the first setup creates',
    ),
    password: optionalSecret(
      'ADMIN_PASSWORD',
      password,
      'Its password. Without one the first setup makes one and prints it once. Well-known passwords are refused in production',
    ),
  }),

  auth: group('Accounts and sessions', {
    secretKey: secret(
      variable('SECRET_KEY', text, '', 'Key that signs tokens; required, at least 32 characters in production'),
    ),
    secretKeyPrevious: optionalSecret(
      'SECRET_KEY_PREVIOUS',
      text,
      'The key before the last rotation: its tokens are still accepted and what it encrypted is still read, new ones use SECRET_KEY',
    ),
    accessTokenExpiresIn: variable(
      'ACCESS_TOKEN_EXPIRES_IN',
      seconds(1, 315_360_000),
      '604800',
      'Life of access tokens and sessions',
    ),
    servicesEnabled: variable('AUTH_SERVICES_ENABLED', list(services), 'LOCAL', 'Enabled ways to sign in'),
    appUrls: variable(
      'AUTH_APP_URL',
      list(appUrl),
      '',
      'Trusted frontends: links in mails, CORS and OAuth return addresses are checked against them',
    ),
    publicRegistration: variable(
      'PUBLIC_REGISTRATION',
      boolean,
      'true',
      'Anyone may register; otherwise only with an invitation',
    ),
    defaultRoleRegistered: variable('DEFAULT_ROLE_REGISTERED', text, 'user', 'Role of self-registered users'),
    allowedRolesMultiTenant: variable(
      'ALLOWED_ROLES_MULTI_TENANT',
      list(text),
      '',
      'Roles that a registration in multi-tenant mode may ask for',
    ),
    requireEmailVerification: variable(
      'REQUIRE_EMAIL_VERIFICATION',
      boolean,
      'false',
      'Registration gives no session, and login is refused, until the e-mail address is verified; needs a mail sender',
    ),
    emailVerificationResendCooldown: variable(
      'EMAIL_VERIFICATION_RESEND_COOLDOWN',
      seconds(0),
      '60',
      'Shortest time between two verification mails to one address; 0 disables the check',
    ),
    sendWelcomeEmail: variable(
      'SEND_WELCOME_EMAIL',
      boolean,
      'false',
      'Send the welcome template after a registration',
    ),
    welcomeEmailSubject: optional(
      'WELCOME_EMAIL_SUBJECT',
      text,
      'Subject of the welcome mail instead of its template’s',
    ),
    genericResponses: variable(
      'AUTH_GENERIC_RESPONSES',
      boolean,
      'false',
      'Answer alike whether or not an account exists, where registration and magic link would tell',
    ),
    passwordHashCost: variable(
      'PASSWORD_HASH_COST',
      count(4, 16),
      { test: '4', otherwise: '10' },
      'Cost of bcrypt for passwords that are set from now on; one more doubles the time of a login. At least 10 in production',
    ),
    disableSessionCleanup: variable(
      'DISABLE_SESSION_CLEANUP',
      boolean,
      'false',
      'Do not delete expired sessions periodically',
    ),
  }),

  cookie: group('Session cookie', {
    domain: optional(
      'AUTH_COOKIE_DOMAIN',
      matching(/^\.?[a-z0-9-]+(\.[a-z0-9-]+)*$/i, 'domain name'),
      'Domain of the session cookie',
    ),
    sameSite: variable(
      'AUTH_COOKIE_SAME_SITE',
      oneOf('strict', 'lax', 'none'),
      { production: 'strict', otherwise: 'lax' },
      'SameSite attribute of the session cookie',
    ),
    httpOnly: variable('AUTH_COOKIE_HTTP_ONLY', boolean, 'true', 'Keep the session cookie from scripts'),
    secure: variable('AUTH_COOKIE_SECURE', boolean, inProductionOnly, 'Send the session cookie over HTTPS only'),
    path: variable('AUTH_COOKIE_PATH', urlPath, '/', 'Path of the session cookie'),
  }),

  passkey: group('Passkeys', {
    rpId: optional(
      'PASSKEY_RP_ID',
      matching(/^[a-z0-9-]+(\.[a-z0-9-]+)*$/i, 'domain name'),
      'Relying party id. Passkeys need all three variables of this section',
    ),
    rpName: optional('PASSKEY_RP_NAME', text, 'Relying party name'),
    origins: variable('PASSKEY_ORIGIN', list(origin), '', 'Origins that may use passkeys'),
  }),

  oauth: group('Social sign-in', {
    allowUnverifiedLink: variable(
      'OAUTH_ALLOW_UNVERIFIED_LINK',
      boolean,
      'false',
      'Link a social login to the account of the same e-mail address even if the provider has not verified it',
    ),
    allowDirectIdToken: variable(
      'OAUTH_ALLOW_DIRECT_IDTOKEN',
      boolean,
      'false',
      'Allow POST /auth/social/signin with an idToken',
    ),
    stateCookieBinding: variable(
      'OAUTH_STATE_COOKIE_BINDING',
      boolean,
      'false',
      'Bind the OAuth state to the browser with an HTTP-only cookie',
    ),
  }),

  cors: group('CORS', {
    allowedOrigins: variable(
      'AUTH_CORS_ALLOWED_ORIGINS',
      list(origin),
      '',
      'Further origins that may call the API from a browser, beside AUTH_APP_URL',
    ),
    allowAnyPort: variable(
      'AUTH_CORS_ALLOW_ANY_PORT',
      boolean,
      'true',
      'Any port of an allowed host and scheme matches',
    ),
    credentials: variable('AUTH_CORS_CREDENTIALS', boolean, 'true', 'Let browsers send cookies along'),
  }),

  rateLimit: group('Rate limits', {
    limit: variable('RATE_LIMIT', count(1, 1_000_000_000), '100', 'Requests per window'),
    intervalMs: variable('RATE_LIMIT_INTERVAL', milliseconds(1), '5000', 'Window of RATE_LIMIT'),
    byUser: variable('RATE_LIMIT_BY_USER', boolean, 'false', 'Count signed-in callers by user instead of by address'),
    disabled: variable(
      'RATE_LIMIT_DISABLED',
      boolean,
      { test: 'true', otherwise: 'false' },
      'Switch the limit of requests off',
    ),
    redisUrl: optionalSecret(
      'RATE_LIMIT_REDIS_URL',
      redisUrl,
      'Redis that counts instead of PostgreSQL; SYSTEM_CACHE_REDIS_URL when that cache uses Redis. While it is away PostgreSQL counts',
    ),
    connections: variable(
      'CONNECTION_LIMIT',
      count(0),
      { test: '0', otherwise: '1000' },
      'Open connections of one address to one process, trusted proxies aside; 0 for any number',
    ),
    authLimit: variable(
      'AUTH_RATE_LIMIT',
      count(1, 1_000_000),
      '10',
      'Sign-in attempts per window for each pair of address and e-mail',
    ),
    authIntervalMs: variable('AUTH_RATE_LIMIT_INTERVAL', milliseconds(1), '900000', 'Window of AUTH_RATE_LIMIT'),
    authDisabled: variable(
      'AUTH_RATE_LIMIT_DISABLED',
      boolean,
      { test: 'true', otherwise: 'false' },
      'Switch the sign-in limiter off',
    ),
  }),

  access: group('Permissions and exposure', {
    protectPrivilegeFields: variable(
      'PROTECT_PRIVILEGE_FIELDS',
      either(oneOf('allow-password'), boolean),
      'true',
      'A grant of all fields (*) leaves out role_Id, tenant_Id, userCreated_Id, userUpdated_Id, emailVerified and hidden fields; administrators are exempt. The old value allow-password means true and ALLOW_PASSWORD_WRITES=true',
    ),
    allowPasswordWrites: variable(
      'ALLOW_PASSWORD_WRITES',
      boolean,
      'false',
      'A role that is granted the field password by name may set it through the data API',
    ),
    schemasPublic: variable('SCHEMAS_PUBLIC', boolean, 'true', 'Anyone may call GET /schemas'),
  }),

  tenancy: group('Tenants', {
    enabled: variable('MULTI_TENANT', boolean, 'false', 'Multi-tenant mode'),
    strictIsolation: variable(
      'STRICT_TENANT_ISOLATION',
      boolean,
      'true',
      'Only the administrator role escapes tenant scoping by isTenantSpecific: false',
    ),
    ignoredTables: variable('TENANT_IGNORED_TABLES', list(text), '', 'Collections that are not scoped by tenant'),
  }),

  query: group('Queries', {
    countByDefault: variable('COUNT_BY_DEFAULT', boolean, 'true', 'Compute totalCount on list reads'),
    maxLimit: optional(
      'QUERY_MAX_LIMIT',
      count(1),
      'Most items one read may return; without it a read without limit returns all',
    ),
  }),

  database: group('Database', {
    url: optionalSecret(
      'DATABASE_URL',
      postgresUrl,
      'PostgreSQL 15 or newer. Without it `npm start` runs an embedded server',
    ),
    directUrl: optionalSecret(
      'DATABASE_DIRECT_URL',
      postgresUrl,
      'The same database past any transaction pooler, for LISTEN, advisory locks and replication; DATABASE_URL when unset',
    ),
    dataDir: variable(
      'DAYBOOK_DATA_DIR',
      text,
      './.daybook',
      'Directory of the embedded server’s data and of the generated development key',
    ),
    logging: variable('DATABASE_LOGGING', boolean, 'false', 'Log SQL statements'),
    sslCertificate: optional(
      'DATABASE_SSL_CERTIFICATE',
      text,
      'Path of the certificate that the server’s certificate is checked against',
    ),
    sslRejectUnauthorized: variable(
      'DATABASE_SSL_REJECT_UNAUTHORIZED',
      boolean,
      'false',
      'Refuse a server whose certificate cannot be verified',
    ),
    poolMax: variable('DATABASE_POOL_MAX', count(1, 10_000), '20', 'Most connections of one process'),
    poolIdleMs: variable(
      'DATABASE_POOL_IDLE',
      milliseconds(0),
      '10000',
      'Idle time after which a connection is closed',
    ),
    poolAcquireMs: variable('DATABASE_POOL_ACQUIRE', milliseconds(1), '30000', 'Longest wait for a connection'),
    poolEvictMs: variable('DATABASE_POOL_EVICT', milliseconds(0), '1000', 'Base of a connection’s longest life'),
    maxRetry: variable('DATABASE_MAX_RETRY', count(0, 1000), '3', 'Attempts to connect at startup'),
    retryIntervalMs: variable('DATABASE_RETRY_INTERVAL', milliseconds(0), '5000', 'Pause between these attempts'),
    transactionTimeoutMs: variable(
      'TRANSACTION_TIMEOUT_MS',
      milliseconds(1),
      '60000',
      'Age at which a transaction is rolled back',
    ),
    postgis: variable('DATABASE_POSTGIS', boolean, 'false', 'Create the spatial extension'),
    vector: variable('DATABASE_VECTOR', boolean, 'false', 'Create the vector extension'),
    readReplicaEnabled: variable(
      'DATABASE_READ_REPLICA_ENABLED',
      boolean,
      'false',
      'Read from replicas, see docs/scaling.md',
    ),
    readReplicaUrls: secret(
      variable(
        'DATABASE_READ_REPLICA_URLS',
        list(postgresUrl),
        '',
        'Streaming standbys of the database, each address one server',
      ),
    ),
    readReplicaPoolMax: variable(
      'DATABASE_READ_REPLICA_POOL_MAX',
      count(1, 10_000),
      '20',
      'Most connections of one process to each replica',
    ),
    readReplicaPoolIdleMs: variable(
      'DATABASE_READ_REPLICA_POOL_IDLE',
      milliseconds(0),
      '10000',
      'As DATABASE_POOL_IDLE, for replicas',
    ),
    readReplicaPoolAcquireMs: variable(
      'DATABASE_READ_REPLICA_POOL_ACQUIRE',
      milliseconds(1),
      '30000',
      'As DATABASE_POOL_ACQUIRE, for replicas',
    ),
    readReplicaPoolEvictMs: variable(
      'DATABASE_READ_REPLICA_POOL_EVICT',
      milliseconds(0),
      '1000',
      'As DATABASE_POOL_EVICT, for replicas',
    ),
    readReplicaMaxLagMs: variable(
      'DATABASE_READ_REPLICA_MAX_LAG',
      milliseconds(500),
      '1000',
      'How old the state of a replica may be that reads are answered from',
    ),
  }),

  migrations: group('Migrations', {
    autoRun: variable('MIGRATIONS_AUTO_RUN', boolean, 'false', 'Run pending migrations at startup'),
    dir: variable('MIGRATIONS_DIR', text, './migrations', 'Directory of the migration files'),
    lockTimeoutMs: variable(
      'MIGRATIONS_LOCK_TIMEOUT',
      milliseconds(1),
      '5000',
      'How long a statement of a migration waits for a lock; whatever comes after it waits as long',
    ),
    upgradeBaseline: optional(
      'MIGRATIONS_UPGRADE_BASELINE',
      either(
        mapped(oneOf('true'), () => true as const),
        text,
      ),
      'Baseline version of an installation upgraded from an older version (the current version when unset); true applies the baseline by itself',
    ),
  }),

  systemCache: group('System cache', {
    adapter: variable(
      'SYSTEM_CACHE_ADAPTER',
      adapter,
      'memory',
      'Every process keeps permissions, roles and settings in memory and hears of changes from PostgreSQL; with redis or upstash also from there',
    ),
    redisUrl: optionalSecret('SYSTEM_CACHE_REDIS_URL', redisUrl, 'Its Redis'),
    ttlSeconds: variable(
      'SYSTEM_CACHE_TTL',
      seconds(1),
      '30',
      'Permissions, roles and settings are read again after this, whatever was heard',
    ),
    syncIntervalSeconds: variable(
      'SYSTEM_CACHE_SYNC_INTERVAL',
      seconds(1),
      '5',
      'How often redis or upstash is asked whether they have changed',
    ),
    maxBytes: variable(
      'SYSTEM_CACHE_SIZE_GB',
      size('gb'),
      '1.0',
      'Accepted and without effect: every permission, role and setting is kept',
    ),
  }),

  dataCache: group('Data cache', {
    enabled: variable(
      'DATA_CACHE_ENABLED',
      boolean,
      'true',
      'Cache answers of lists, items and reports: docs/caching.md',
    ),
    adapter: variable(
      'DATA_CACHE_ADAPTER',
      adapter,
      'memory',
      'Where answers are kept beside the memory of each process, so that processes share them',
    ),
    redisUrl: optionalSecret('DATA_CACHE_REDIS_URL', redisUrl, 'Its Redis'),
    strategy: variable(
      'DATA_CACHE_STRATEGY',
      oneOf('explicit', 'all'),
      'explicit',
      'Cache what the schema or the request asks for, or everything that may be',
    ),
    ttlSeconds: variable('DATA_CACHE_TTL', seconds(1), '300', 'The longest life of an answer'),
    maxBytes: variable('DATA_CACHE_SIZE_GB', size('gb'), '1.0', 'Memory of a process for answers'),
  }),

  upstash: group('Upstash', {
    url: optional('UPSTASH_REDIS_REST_URL', url('https', 'http'), 'REST address; required when a cache uses upstash'),
    token: optionalSecret('UPSTASH_REDIS_REST_TOKEN', text, 'Its token; required when a cache uses upstash'),
  }),

  mail: group('Mail', {
    sendersEnabled: variable(
      'MAIL_SENDERS_ENABLED',
      list(name),
      '',
      'Names of the mail senders; each name in upper case begins the names of its variables',
    ),
    defaultSender: optional(
      'MAIL_DEFAULT_SENDER',
      name,
      'Sender of mails that name none; the first complete one when unset',
    ),
  }),

  storage: group('Storage', {
    servicesEnabled: variable(
      'STORAGE_SERVICES_ENABLED',
      list(name),
      '',
      'Names of the storage services; each name in upper case begins the names of its variables',
    ),
    defaultService: optional(
      'STORAGE_DEFAULT_SERVICE',
      name,
      'Service of files that name none; the first one when unset',
    ),
    tempPath: optional('STORAGE_TEMP_PATH', text, 'Directory of uploads in progress; the system’s when unset'),
    pathConfinement: variable(
      'STORAGE_PATH_CONFINEMENT',
      boolean,
      'true',
      'Confine local file operations to the storage’s root; null bytes are always refused',
    ),
    folderStructure: variable(
      'STORAGE_FOLDER_STRUCTURE',
      boolean,
      'false',
      'Lay files out by tenant and user; existing files stay where they are',
    ),
  }),

  files: group('Files', {
    maxUploadFileSize: variable(
      'MAX_UPLOAD_FILE_SIZE',
      size('mb'),
      '50',
      'Largest file, uploaded or fetched from a URL',
    ),
    urlFetchTimeoutMs: variable(
      'URL_FETCH_TIMEOUT_MS',
      milliseconds(1),
      '15000',
      'Longest wait for the first answer to each request or redirect of an upload from a URL',
    ),
    allowPrivateUrlFetch: variable(
      'SSRF_ALLOW_PRIVATE_URL_FETCH',
      boolean,
      'false',
      'Let URLs and SMTP servers that come over the API lead to private, loopback and metadata addresses',
    ),
    protectIsPublic: variable(
      'PROTECT_IS_PUBLIC_FIELD',
      boolean,
      'false',
      'isPublic of a file may be written only where a permission names it',
    ),
  }),

  assets: group('Assets', {
    tempDir: variable('ASSET_TEMP_DIR', text, './asset-temp', 'Working directory of image transforms'),
    maxDimension: variable(
      'ASSET_MAX_DIMENSION',
      integer({ min: 1, max: 65535, unit: 'px' }),
      '5000',
      'Widest and highest image transform; larger requests are clamped',
    ),
    maxInputPixels: variable(
      'ASSET_MAX_INPUT_PIXELS',
      integer({ min: 1, unit: 'px' }),
      '100000000',
      'Largest image that is decoded',
    ),
    proxyEnabled: variable(
      'ASSET_PROXY_ENABLED',
      boolean,
      'false',
      'Stream S3 assets through the API instead of redirecting to a signed URL',
    ),
    secureProxyTypes: variable(
      'ASSET_SECURE_PROXY_URLS',
      list(contentType),
      '',
      'Content types (video, audio, image or full ones) that need a signed-in request with a custom header',
    ),
    xssProtection: variable('ASSET_XSS_PROTECTION', boolean, 'true', 'Executable types are downloaded, never shown'),
    nosniff: variable('ASSET_NOSNIFF', boolean, 'true', 'Send X-Content-Type-Options: nosniff'),
    sharedAccessMode: variable(
      'SHARED_ASSET_ACCESS_MODE',
      oneOf('off', 'public', 'authenticated'),
      'off',
      'Who may read the files of the shared tenants',
    ),
    sharedTenantIds: variable('SHARED_ASSET_TENANT_IDS', list(text), '', 'Ids of the tenants whose files are shared'),
  }),

  realtime: group('Realtime', {
    enabled: variable('SOCKET_ENABLED', boolean, 'false', 'The realtime channel'),
    path: variable('SOCKET_PATH', urlPath, '/realtime', 'Its path'),
    corsOrigins: variable(
      'SOCKET_CORS_ENABLED_ORIGINS',
      list(origin),
      '',
      'Origins that may connect; only the server’s own when unset',
    ),
    rowLevelScoping: variable(
      'REALTIME_ROW_LEVEL_SCOPING',
      boolean,
      'false',
      'Deliver a change only to subscribers who may read the row',
    ),
    walConsumerEnabled: variable(
      'REALTIME_WAL_CONSUMER_ENABLED',
      boolean,
      'true',
      'Follow changes by logical replication where the database offers it',
    ),
    rooms: variable(
      'REALTIME_ROOMS',
      oneOf('open', 'validated'),
      'open',
      'Which custom rooms clients may join: any, or only those that an extension’s validator admits',
    ),
    socketsPerUser: variable(
      'SOCKET_LIMIT_PER_USER',
      count(1),
      { test: '1000', otherwise: '20' },
      'Sockets of one user on one process',
    ),
    socketsPerAddress: variable(
      'SOCKET_LIMIT_PER_ADDRESS',
      count(0),
      { test: '0', otherwise: '200' },
      'Sockets of one address on one process; 0 for any number',
    ),
    connectsPerAddress: variable(
      'SOCKET_CONNECT_LIMIT',
      count(0),
      { test: '0', otherwise: '100' },
      'Connections that one address may begin within ten seconds; 0 for any number',
    ),
    subscriptionsPerSocket: variable('SOCKET_SUBSCRIPTION_LIMIT', count(1), '100', 'Subscriptions of one socket'),
    messagesPerSecond: variable(
      'SOCKET_MESSAGE_LIMIT',
      count(1),
      '50',
      'Messages that one socket may send per second; it is disconnected beyond',
    ),
    messageBytes: variable('SOCKET_MESSAGE_SIZE_LIMIT', size('b'), '1mb', 'Largest message of a client'),
    sendBufferBytes: variable(
      'SOCKET_BUFFER_SIZE',
      size('b'),
      '4mb',
      'What may wait for a client that reads too slowly; beyond, its subscriptions end with a resync',
    ),
    sendBufferMessages: variable('SOCKET_BUFFER_MESSAGES', count(1), '10000', 'The same in messages'),
    redisEnabled: variable(
      'SOCKET_REDIS_ENABLED',
      boolean,
      'false',
      'Share the channel between processes through Redis',
    ),
    redisUrl: optionalSecret('SOCKET_REDIS_URL', redisUrl, 'Its Redis'),
    redisKey: variable('SOCKET_REDIS_KEY', text, 'socket.io', 'Prefix of its keys'),
  }),

  tasks: group('Tasks', {
    enabled: variable('TASK_SERVICE_ENABLED', boolean, 'false', 'The background task service'),
    redisEnabled: variable(
      'TASK_REDIS_ENABLED',
      boolean,
      'false',
      'Lock tasks between processes through Redis as well',
    ),
    redisUrl: optionalSecret('TASK_REDIS_URL', redisUrl, 'Its Redis'),
    listRefreshIntervalSeconds: variable(
      'TASK_LIST_REFRESH_INTERVAL',
      seconds(1, 10_800),
      '600',
      'Interval between readings of the coming tasks',
    ),
    shutdownWaitSeconds: variable(
      'TASK_SHUTDOWN_WAIT_TIME',
      seconds(0, 86_400),
      '30',
      'How long a shutdown waits for running tasks',
    ),
    concurrency: variable('TASK_CONCURRENCY', count(1, 1000), '1', 'Tasks that one process runs at a time'),
    stallTimeoutSeconds: variable(
      'TASK_STALL_TIMEOUT',
      seconds(60, 2_147_483),
      '300',
      'Time without a sign of life after which a running task counts as stalled',
    ),
    timeoutSeconds: variable(
      'TASK_TIMEOUT',
      seconds(1, 2_147_483),
      '3600',
      'Longest time of one attempt, for handlers that name none of their own',
    ),
    memoryLimitMb: variable(
      'TASK_MEMORY_LIMIT',
      integer({ min: 192, unit: 'MB' }),
      '512',
      'Memory of one process that runs tasks; one that takes more is killed, and with it its task',
    ),
  }),

  workflows: group('Workflows', {
    enabled: variable(
      'WORKFLOWS_ENABLED',
      boolean,
      'true',
      'The workflow subsystem; when off, /workflows/* answers 404',
    ),
  }),

  log: group('Logs and their retention', {
    level: variable(
      'LOG_LEVEL',
      oneOf('trace', 'debug', 'info', 'warn', 'error'),
      'info',
      'Least level that is logged',
    ),
    warnStack: variable('LOG_WARN_STACK', boolean, 'false', 'Stack traces on warnings'),
    auditCleanupEnabled: variable('AUDIT_LOG_CLEANUP_ENABLED', boolean, 'false', 'Delete old rows of the change log'),
    auditRetentionDays: variable(
      'AUDIT_LOG_RETENTION_DAYS',
      integer({ min: 1, max: 36_500, unit: 'days' }),
      '90',
      'Age at which they are deleted',
    ),
    emailCleanupEnabled: variable('EMAIL_LOG_CLEANUP_ENABLED', boolean, 'false', 'Delete old rows of the mail log'),
    emailRetentionDays: variable(
      'EMAIL_LOG_RETENTION_DAYS',
      integer({ min: 1, max: 36_500, unit: 'days' }),
      '30',
      'Age at which they are deleted',
    ),
  }),

  observability: group('Metrics and traces', {
    metricsToken: optionalSecret(
      'METRICS_TOKEN',
      text,
      'Bearer token that may read the metrics, as administrators may (docs/observability.md)',
    ),
    metricsPort: optional(
      'METRICS_PORT',
      count(0, 65_000),
      'First port at which the worker processes show their metrics, one port each; without it they show none. Needs METRICS_TOKEN',
    ),
    otlpEndpoint: optional(
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      url('http', 'https'),
      'Receiver of traces by OTLP over HTTP, asked at /v1/traces below it; without one nothing is traced',
    ),
    otlpTracesEndpoint: optional(
      'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
      url('http', 'https'),
      'The whole address instead',
    ),
    otlpHeaders: secret(
      variable('OTEL_EXPORTER_OTLP_HEADERS', pairs, '', 'Headers that go with the traces, such as an API key'),
    ),
    otelServiceName: variable('OTEL_SERVICE_NAME', text, 'daybook', 'Name of the service in traces'),
    otelResourceAttributes: variable(
      'OTEL_RESOURCE_ATTRIBUTES',
      pairs,
      '',
      'What else traces say of where they come from, such as deployment.environment.name=production',
    ),
    otelSampler: variable(
      'OTEL_TRACES_SAMPLER',
      oneOf(
        ...['always_on', 'always_off', 'traceidratio', 'parentbased_always_on', 'parentbased_always_off'],
        'parentbased_traceidratio',
      ),
      'parentbased_always_on',
      'Which requests are traced; parentbased ones follow a caller who sends traceparent',
    ),
    otelSamplerArg: variable(
      'OTEL_TRACES_SAMPLER_ARG',
      share,
      '1',
      'The share of traces that the samplers with traceidratio keep',
    ),
    otelDelayMs: variable(
      'OTEL_BSP_SCHEDULE_DELAY',
      milliseconds(1),
      '5000',
      'How long ended spans are collected before they are sent',
    ),
    otelDisabled: variable('OTEL_SDK_DISABLED', boolean, 'false', 'Trace nothing, whatever else is set'),
  }),

  mcp: group('MCP', {
    enabled: variable('MCP_ENABLED', boolean, 'false', 'The MCP endpoint'),
    path: variable('MCP_PATH', urlPath, '/mcp', 'Its path'),
    actions: variable('MCP_ENABLED_ACTIONS', mcpTools, 'all', 'Groups of tools it offers'),
  }),

  openapi: group('OpenAPI', {
    enabled: variable('OPENAPI_ENABLED', boolean, 'true', 'Serve the generated OpenAPI document'),
    includeAuth: variable('OPENAPI_INCLUDE_AUTH', boolean, 'false', 'Describe the authentication endpoints in it'),
    includeSchema: variable('OPENAPI_INCLUDE_SCHEMA', boolean, 'false', 'Describe the schema endpoints'),
    includePermissions: variable('OPENAPI_INCLUDE_PERMISSIONS', boolean, 'false', 'Describe the permission endpoints'),
    includeSettings: variable('OPENAPI_INCLUDE_SETTINGS', boolean, 'false', 'Describe the settings endpoints'),
    includeNotifications: variable(
      'OPENAPI_INCLUDE_NOTIFICATIONS',
      boolean,
      'false',
      'Describe the notification endpoints',
    ),
    includeMultiTenant: variable('OPENAPI_INCLUDE_MULTI_TENANT', boolean, 'false', 'Describe the tenant endpoints'),
    includeUtils: variable('OPENAPI_INCLUDE_UTILS', boolean, 'false', 'Describe the utility endpoints'),
  }),
}

/** The values of the whole table, before families and rules have been applied. */
export type Parsed = { readonly [G in keyof typeof groups]: Values<(typeof groups)[G]['variables']> }

/** A variable with a default; the empty default stands for an empty list or text. */
export function variable<T>(name: string, parser: Parser<T>, fallback: Fallback, doc: string): Variable<T> {
  return { name, parser, fallback, doc, secret: false }
}

export function optional<T>(name: string, parser: Parser<T>, doc: string): Variable<T | undefined> {
  return { name, parser, fallback: undefined, doc, secret: false }
}

export function optionalSecret<T>(name: string, parser: Parser<T>, doc: string): Variable<T | undefined> {
  return secret(optional(name, parser, doc))
}

export function secret<T>(open: Variable<T>): Variable<T> {
  return { ...open, secret: true }
}

function group<V extends Group['variables']>(title: string, variables: V) {
  return { title, variables }
}
