import type { Config } from '../config/config.ts'
import { Connection } from './connection.ts'
import { settingsOf } from './poolers/session-settings.ts'
import { directUrl, type PgClient, tlsOptions, withoutOwnParameters } from './pools.ts'

/** Works on a connection of its own that only reads, past any pooler and without a limit on the time of a transaction. */
export async function onSoleConnection<T>(
  config: Config,
  name: string,
  work: (client: PgClient) => Promise<T>,
): Promise<T> {
  const address = directUrl(config)
  const client = new Connection({
    connectionString: withoutOwnParameters(address),
    ssl: tlsOptions(config, address),
    application_name: `daybook ${name}`,
    options: settingsOf(address, { transactionTimeoutMs: 0, readOnly: true }).ofSession,
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
