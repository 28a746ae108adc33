import type { Config } from '../config/config.ts'
import { Connection } from './connection.ts'
import { settingsOf } from './poolers/line.ts'
import { requireOwnSessions } from './poolers/poolers.ts'
import { directUrl, type PgClient, tlsOptions, withoutOwnParameters } from './pools.ts'

/**
 * Works on a connection of its own, past any pooler and without a limit on the time of a transaction. It only reads, unless
 * `writes` says otherwise: that is for a restore, which makes a database that is not in use yet. Throws a ConfigError where a
 * pooler would give the connection to others as well.
 */
export async function onSoleConnection<T>(
  config: Config,
  name: string,
  work: (client: PgClient) => Promise<T>,
  { writes = false }: { readonly writes?: boolean } = {},
): Promise<T> {
  const address = directUrl(config)
  const { keepsSettings } = await requireOwnSessions(config)
  const settings = settingsOf(address, { transactionTimeoutMs: 0, readOnly: !writes })
  const options = keepsSettings ? settings.ofSession : settings.ofAddress
  const client = new Connection({
    connectionString: withoutOwnParameters(address),
    ssl: tlsOptions(config, address),
    application_name: `daybook ${name}`,
    ...(options !== undefined && { options }),
  })
  // The statement that runs rejects; the event without a listener ends the process.
  client.on('error', () => undefined)
  await client.connect()
  try {
    if (!keepsSettings) await client.query(settings.afterOpening)
    return await work(client)
  } finally {
    await client.end()
  }
}
