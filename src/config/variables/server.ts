import { withoutLastSlashes } from '../../language/text.ts'
import {
  boolean,
  count,
  emailAddress,
  integer,
  list,
  mapped,
  matching,
  milliseconds,
  oneOf,
  pairs,
  password,
  share,
  size,
  text,
  trustedProxies,
  url,
  urlPath,
} from '../parsers.ts'
import { group, optional, optionalSecret, secret, variable } from '../variable.ts'

/* The server itself, its name and its first administrator. */

const inDevelopmentOnly = { production: 'false', otherwise: 'true' }

export const server = group('Server', {
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
    mapped(text, withoutLastSlashes),
    'Public address of the API; the OAuth redirect address is {BASE_URL}/auth/callback/{provider}. Required when a social provider is enabled',
  ),
  trustProxy: variable(
    'TRUST_PROXY',
    trustedProxies,
    'false',
    'Proxies whose X-Forwarded-* headers are believed; with none they are ignored',
  ),
  bodySizeLimit: variable(
    'BODY_SIZE_LIMIT',
    size('b'),
    '20mb',
    'Largest JSON request body; 1mb at most for callers without a session or an API key',
  ),
  exposeErrorDetails: variable(
    'EXPOSE_ERROR_DETAILS',
    boolean,
    inDevelopmentOnly,
    'Put the raw text of internal errors into responses; otherwise a generic message and a correlation id',
  ),
  shutdownTimeoutMs: variable(
    'SHUTDOWN_TIMEOUT',
    milliseconds(100),
    '40000',
    'Longest time from SIGTERM to the end of a web process; what is not answered by then is cut',
  ),
  shutdownGraceMs: variable(
    'SHUTDOWN_GRACE',
    milliseconds(0),
    { test: '300', otherwise: '2000' },
    'How long a web process that stops keeps idle connections open, so that what their clients are sending is answered',
  ),
  extensionsDir: variable(
    'EXTENSIONS_DIR',
    text,
    './extensions',
    'Directory of the extensions (docs/extensions.md); any but the default must exist',
  ),
})

export const project = group('Project', {
  name: variable(
    'PROJECT_NAME',
    text,
    'Daybook',
    'Display name, until the settings name the project otherwise; also the issuer of tokens, so a new name ends all sessions',
  ),
})

export const admin = group('Default administrator', {
  email: variable(
    'ADMIN_EMAIL',
    emailAddress,
    'admin@example.com',
    'E-mail address of the administrator account that the first setup creates',
  ),
  password: optionalSecret(
    'ADMIN_PASSWORD',
    password,
    'Its password, for the first setup alone: an administrator that is there keeps the one it has. Without it the first setup makes one and prints it once. Well-known passwords are refused in production',
  ),
})

export const consoleGroup = group('Console', {
  enabled: variable('CONSOLE_ENABLED', boolean, 'true', 'Serve the console at /console (docs/console.md)'),
})

/* Descriptions of the API for programs. */

const mcpActions = ['read', 'create', 'update', 'delete'] as const
const mcpTools = mapped(list(oneOf('all', ...mcpActions)), (actions): readonly (typeof mcpActions)[number][] =>
  actions.includes('all') ? mcpActions : actions.filter((action) => action !== 'all'),
)

export const mcp = group('MCP', {
  enabled: variable('MCP_ENABLED', boolean, 'false', 'The MCP endpoint (docs/mcp.md)'),
  path: variable('MCP_PATH', urlPath, '/mcp', 'Its path'),
  actions: variable('MCP_ENABLED_ACTIONS', mcpTools, 'all', 'Groups of tools it offers'),
  loginTools: variable(
    'MCP_LOGIN_TOOLS',
    boolean,
    'false',
    'Offer the tools that sign in, which put tokens into the context of a model',
  ),
})

export const openapi = group('OpenAPI', {
  enabled: variable('OPENAPI_ENABLED', boolean, 'true', 'Serve the description of the API: GET /openapi and GET /docs'),
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
})

/* Logs, metrics and traces. */

export const log = group('Logs and their retention', {
  level: variable('LOG_LEVEL', oneOf('trace', 'debug', 'info', 'warn', 'error'), 'info', 'Lowest level that is logged'),
  warnStack: variable('LOG_WARN_STACK', boolean, 'false', 'Stack traces on warnings'),
  auditCleanupEnabled: variable('AUDIT_LOG_CLEANUP_ENABLED', boolean, 'false', 'Delete old rows of the change log'),
  auditRetentionDays: variable(
    'AUDIT_LOG_RETENTION_DAYS',
    integer({ min: 1, max: 36_500, unit: 'days' }),
    '90',
    'Age at which they are deleted',
  ),
  consumerKeepDays: variable(
    'LOG_CONSUMER_KEEP_DAYS',
    integer({ min: 0, max: 36_500, unit: 'days' }),
    '7',
    'How much longer the change log is kept for consumers that have yet to read it; beyond that they are stopped',
  ),
  consumerKeepGb: variable(
    'LOG_CONSUMER_KEEP_GB',
    integer({ min: 0, max: 1_000_000, unit: 'GB' }),
    '10',
    'How much of the change log is kept for them at most',
  ),
  seals: variable('LOG_SEALS', boolean, 'true', 'Seal the change log, so that tampering shows (docs/audit-log.md)'),
  sealKey: optionalSecret(
    'LOG_SEAL_KEY',
    text,
    'Secret that the key of the seals is derived from; without it SECRET_KEY is',
  ),
  sealFile: optional(
    'LOG_SEAL_FILE',
    text,
    'File that the workers append the heads of the sealed log to; without it, none is written',
  ),
  emailCleanupEnabled: variable('EMAIL_LOG_CLEANUP_ENABLED', boolean, 'false', 'Delete old rows of the mail log'),
  emailRetentionDays: variable(
    'EMAIL_LOG_RETENTION_DAYS',
    integer({ min: 1, max: 36_500, unit: 'days' }),
    '30',
    'Age at which they are deleted',
  ),
})

export const observability = group('Metrics and traces', {
  metricsToken: optionalSecret(
    'METRICS_TOKEN',
    matching(/^\S{16,}$/, 'text of at least 16 characters without blanks'),
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
  otlpTracesEndpoint: optional('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', url('http', 'https'), 'The whole address instead'),
  otlpHeaders: secret(
    variable('OTEL_EXPORTER_OTLP_HEADERS', pairs, '', 'Headers that go with the traces, such as an API key'),
  ),
  otelServiceName: variable('OTEL_SERVICE_NAME', text, 'daybook', 'Name of the service in traces'),
  otelResourceAttributes: variable(
    'OTEL_RESOURCE_ATTRIBUTES',
    pairs,
    '',
    'Further attributes of the source of traces, such as deployment.environment.name=production',
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
})
