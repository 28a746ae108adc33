import {
  boolean,
  count,
  emailAddress,
  list,
  mapped,
  milliseconds,
  oneOf,
  password,
  size,
  text,
  trustedProxies,
  urlPath,
} from '../parsers.ts'
import { group, optional, optionalSecret, variable } from '../variable.ts'

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
    mapped(text, (value) => value.replace(/\/+$/, '')),
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
    'Largest JSON request body; 1mb at most of callers without a session or an API key',
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
    'Its password. Without one the first setup makes one and prints it once. Well-known passwords are refused in production',
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
