import {
  boolean,
  count,
  either,
  list,
  mapped,
  milliseconds,
  oneOf,
  postgresUrl,
  redisUrl,
  seconds,
  size,
  text,
  url,
} from '../parsers.ts'
import { group, optional, optionalSecret, secret, variable } from '../variable.ts'

/* PostgreSQL and its migrations. */

export const database = group('Database', {
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
  preparedStatements: variable(
    'DATABASE_PREPARED_STATEMENTS',
    boolean,
    'true',
    'Send statements by name where the way to the database keeps prepared statements, see docs/poolers.md; false: never',
  ),
  dataDir: variable(
    'DAYBOOK_DATA_DIR',
    text,
    './.daybook',
    'Directory of the embedded server’s data, and of the key (`secret-key`) that `npm start` makes up and keeps where SECRET_KEY is not set',
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
  poolIdleMs: variable('DATABASE_POOL_IDLE', milliseconds(0), '10000', 'Idle time after which a connection is closed'),
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
})

export const migrations = group('Migrations', {
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
})

/* Caches: answers and rules kept beside the database. */

const adapter = oneOf('memory', 'redis', 'upstash')

export const systemCache = group('System cache', {
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
})

export const dataCache = group('Data cache', {
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
  automatic: variable(
    'DATA_CACHE_AUTO',
    boolean,
    'true',
    'Answer repeated expensive lists and reports from memory, never older than any write acknowledged before the request',
  ),
  ttlSeconds: variable('DATA_CACHE_TTL', seconds(1), '300', 'The longest life of an answer'),
  maxBytes: variable(
    'DATA_CACHE_SIZE_GB',
    size('gb'),
    '1.0',
    'Memory of a process for answers; those that nobody asked to keep take a quarter of it, and 64 MB at most',
  ),
})

export const upstash = group('Upstash', {
  url: optional('UPSTASH_REDIS_REST_URL', url('https', 'http'), 'REST address; required when a cache uses upstash'),
  token: optionalSecret('UPSTASH_REDIS_REST_TOKEN', text, 'Its token; required when a cache uses upstash'),
})
