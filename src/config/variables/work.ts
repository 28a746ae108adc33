import {
  boolean,
  clamped,
  count,
  integer,
  list,
  milliseconds,
  oneOf,
  origin,
  plainName,
  redisUrl,
  seconds,
  size,
  text,
  urlPath,
} from '../parsers.ts'
import { group, optional, optionalSecret, variable } from '../variable.ts'

/* The realtime channel, tasks and workflows. */

export const realtime = group('Realtime', {
  enabled: variable('SOCKET_ENABLED', boolean, 'false', 'The realtime channel'),
  path: variable('SOCKET_PATH', urlPath, '/realtime', 'Its path'),
  corsOrigins: variable(
    'SOCKET_CORS_ENABLED_ORIGINS',
    list(origin),
    '',
    'Origins that may only connect here, beside those that may call the API (AUTH_APP_URL, AUTH_CORS_ALLOWED_ORIGINS)',
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
    'Most data that waits for a client that reads too slowly; beyond it, its subscriptions end with a resync',
  ),
  maxLagMs: variable(
    'REALTIME_MAX_LAG',
    milliseconds(1000),
    '15000',
    'Longest delay of changes before /ready answers 503',
  ),
  sendBufferMessages: variable('SOCKET_BUFFER_MESSAGES', count(1), '10000', 'The same in messages'),
  redisEnabled: variable('SOCKET_REDIS_ENABLED', boolean, 'false', 'Share the channel between processes through Redis'),
  redisUrl: optionalSecret('SOCKET_REDIS_URL', redisUrl, 'Its Redis'),
  redisKey: variable('SOCKET_REDIS_KEY', text, 'socket.io', 'Prefix of its keys'),
})

export const tasks = group('Tasks', {
  enabled: variable('TASK_SERVICE_ENABLED', boolean, 'false', 'The background task service'),
  redisEnabled: variable('TASK_REDIS_ENABLED', boolean, 'false', 'Lock tasks between processes through Redis as well'),
  redisUrl: optionalSecret('TASK_REDIS_URL', redisUrl, 'Its Redis'),
  listRefreshIntervalSeconds: variable(
    'TASK_LIST_REFRESH_INTERVAL',
    clamped({ min: 1, max: 10_800, unit: 's' }),
    '600',
    'Interval between readings of the coming tasks',
  ),
  shutdownWaitSeconds: variable(
    'TASK_SHUTDOWN_WAIT_TIME',
    clamped({ min: 0, max: 86_400, unit: 's' }),
    '30',
    'How long a shutdown waits for running tasks',
  ),
  concurrency: variable(
    'TASK_CONCURRENCY',
    clamped({ min: 1, max: 1000 }),
    '1',
    'Tasks that one process runs at a time',
  ),
  stallTimeoutSeconds: variable(
    'TASK_STALL_TIMEOUT',
    clamped({ min: 60, max: 2_147_483, unit: 's' }),
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
})

export const workflows = group('Workflows', {
  enabled: variable('WORKFLOWS_ENABLED', boolean, 'true', 'The workflow subsystem; when off, /workflows/* answers 404'),
  scripts: variable(
    'WORKFLOW_SCRIPTS',
    oneOf('admin', 'off'),
    'admin',
    'Users who may save nodes with scripts: administrators or nobody',
  ),
  scriptProcesses: variable(
    'WORKFLOW_SCRIPT_PROCESSES',
    count(1, 64),
    '2',
    'Script processes of each web process or worker that runs scripts',
  ),
  concurrency: variable('WORKFLOW_CONCURRENCY', count(1, 1000), '64', 'Executions that one worker runs at a time'),
  executionRetentionDays: variable(
    'WORKFLOW_EXECUTION_RETENTION_DAYS',
    count(1, 36_500),
    '30',
    'How long executions that are over are kept, with their inputs and outputs',
  ),
  beforeBudgetMs: variable(
    'WORKFLOW_BEFORE_BUDGET_MS',
    milliseconds(10),
    '500',
    'Time that workflows may take for one row before it is changed, or for one read',
  ),
  queueLimit: variable(
    'WORKFLOW_QUEUE_LIMIT',
    count(1),
    '100000',
    'Executions of one workflow that may wait to begin; beyond, requests are 503, and calls by other workflows fail',
  ),
  mailsPerHour: variable('WORKFLOW_MAIL_PER_HOUR', count(0), '500', 'Mails that one workflow may send within an hour'),
})

export const mail = group('Mail', {
  sendersEnabled: variable(
    'MAIL_SENDERS_ENABLED',
    list(plainName),
    '',
    'Names of the mail senders; each name in upper case begins the names of its variables',
  ),
  defaultSender: optional(
    'MAIL_DEFAULT_SENDER',
    plainName,
    'Sender of mails that name none; the first complete one when unset',
  ),
})
