import { boolean, oneOf, redisUrl, seconds, size, text, url } from '../parsers.ts'
import { group, optional, optionalSecret, variable } from '../variable.ts'

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
