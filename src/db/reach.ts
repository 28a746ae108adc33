import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../config.ts'
import { Connection } from './connection.ts'
import { databaseUrl, tlsOptions, withoutSslMode } from './pools.ts'

const connectTimeoutMs = 10_000

/**
 * Waits until the database accepts connections: DATABASE_MAX_RETRY attempts, DATABASE_RETRY_INTERVAL apart, so that a
 * process may be started before or together with its database. Throws a ConfigError that names DATABASE_URL.
 */
export async function reachDatabase(config: Config, log: Logger): Promise<void> {
  const { maxRetry, retryIntervalMs } = config.database
  for (let attempt = 1; ; attempt += 1) {
    const reason = await refusal(config)
    if (reason === undefined) return
    if (attempt >= maxRetry)
      throw new ConfigError(`DATABASE_URL: the database cannot be reached (attempts: ${attempt}): ${reason}`)
    log.warn({ attempt, reason }, 'the database cannot be reached yet')
    await delay(retryIntervalMs)
  }
}

/** Why the server takes no connection; undefined when it does. */
async function refusal(config: Config): Promise<string | undefined> {
  const client = new Connection({
    connectionString: withoutSslMode(databaseUrl(config)),
    ssl: tlsOptions(config),
    connectionTimeoutMillis: connectTimeoutMs,
    application_name: 'daybook start',
  })
  try {
    await client.connect()
    return undefined
  } catch (error) {
    const { message, code } = error as { message: string; code?: string }
    return message || (code ?? 'unknown')
  } finally {
    await client.end()
  }
}
