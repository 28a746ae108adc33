import { boolean, count, either, list, milliseconds, oneOf, redisUrl, text } from '../parsers.ts'
import { group, optional, optionalSecret, variable } from '../variable.ts'

/* Limits: how often and how much callers may ask. */

export const rateLimit = group('Rate limits', {
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
    'Sign-in attempts per window for each pair of address and e-mail; the other budgets of attempts are multiples of it',
  ),
  authIntervalMs: variable('AUTH_RATE_LIMIT_INTERVAL', milliseconds(1), '900000', 'Window of AUTH_RATE_LIMIT'),
  authDisabled: variable(
    'AUTH_RATE_LIMIT_DISABLED',
    boolean,
    { test: 'true', otherwise: 'false' },
    'Switch the sign-in limiter off',
  ),
})

export const overload = group('Overload', {
  heavyReads: optional(
    'HEAVY_READS_AT_ONCE',
    count(1, 1000),
    'Heavy work of one web process at a time: slow reports and lists, exports, imports; when unset half of the places of reads, and no more than the machine has cores where the database is on the same one (docs/overload.md)',
  ),
  bulkItems: variable('BULK_MAX_ITEMS', count(1, 10_000_000), '100000', 'Most items in the body of a bulk request'),
})

export const access = group('Permissions and exposure', {
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
})

export const tenancy = group('Tenants', {
  enabled: variable('MULTI_TENANT', boolean, 'false', 'Multi-tenant mode'),
  strictIsolation: variable(
    'STRICT_TENANT_ISOLATION',
    boolean,
    'true',
    'Only the administrator role escapes tenant scoping by isTenantSpecific: false',
  ),
  ignoredTables: variable('TENANT_IGNORED_TABLES', list(text), '', 'Collections that are not scoped by tenant'),
})

export const query = group('Queries', {
  countByDefault: variable('COUNT_BY_DEFAULT', boolean, 'true', 'Compute totalCount on list reads'),
  defaultLimit: optional(
    'QUERY_DEFAULT_LIMIT',
    count(1),
    'Items of a list of /items that names no limit, and of its pages; without it a list has all, a page 10',
  ),
  maxLimit: optional(
    'QUERY_MAX_LIMIT',
    count(1),
    'Most items one read may return; without it a read without limit returns all',
  ),
})
