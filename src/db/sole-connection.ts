import type { Logger } from 'pino'
import { retryTransient } from '../adapters/retry.ts'
import { type Config, ConfigError } from '../config/config.ts'
import { Connection } from './connection.ts'
import { settingsOf } from './poolers/line.ts'
import { databaseUrl, directUrl, type PgClient, tlsOptions, withoutOwnParameters, withoutSslMode } from './pools.ts'

/**
 * Works on a connection of its own, past any pooler and without a limit on the time of a transaction. It only reads, unless
 * `writes` says otherwise: that is for a restore, which makes a database that is not in use yet.
 */
export async function onSoleConnection<T>(
  config: Config,
  name: string,
  work: (client: PgClient) => Promise<T>,
  { writes = false }: { readonly writes?: boolean } = {},
): Promise<T> {
  const address = directUrl(config)
  const client = new Connection({
    connectionString: withoutOwnParameters(address),
    ssl: tlsOptions(config, address),
    application_name: `daybook ${name}`,
    options: settingsOf(address, { transactionTimeoutMs: 0, readOnly: !writes }).ofSession,
  })
  // The statement that runs rejects; the event without a listener ends the process.
  client.on('error', () => undefined)
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

const connectTimeoutMs = 10_000

/**
 * Waits until the database accepts connections: DATABASE_MAX_RETRY attempts, DATABASE_RETRY_INTERVAL apart, so that a
 * process may be started before or together with its database. Throws a ConfigError that names DATABASE_URL.
 */
export async function reachDatabase(config: Config, log: Logger): Promise<void> {
  const { maxRetry, retryIntervalMs } = config.database
  const attempts = Math.max(1, maxRetry)
  await retryTransient(() => connectOnce(config), {
    backoff: { firstMs: retryIntervalMs, longestMs: retryIntervalMs },
    attempts,
    onRetry: (error, _pauseMs, attempt) =>
      log.warn({ attempt, reason: reasonOf(error) }, 'the database cannot be reached yet'),
  }).catch((error: unknown) => {
    throw new ConfigError(`DATABASE_URL: the database cannot be reached (attempts: ${attempts}): ${reasonOf(error)}`)
  })
}

async function connectOnce(config: Config): Promise<void> {
  const client = new Connection({
    connectionString: withoutSslMode(databaseUrl(config)),
    ssl: tlsOptions(config),
    connectionTimeoutMillis: connectTimeoutMs,
    application_name: 'daybook start',
  })
  try {
    await client.connect()
  } finally {
    await client.end()
  }
}

function reasonOf(error: unknown): string {
  const { message, code } = error as { message: string; code?: string }
  return message || (code ?? 'unknown')
}
