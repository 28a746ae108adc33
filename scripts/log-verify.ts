import pg from 'pg'
import { compileCatalog } from '../src/catalog/compile.ts'
import { readDefinitions } from '../src/catalog/store.ts'
import { type Config, loadEnv } from '../src/config/config.ts'
import { parseInstallation } from '../src/config/installation.ts'
import { settingsOf } from '../src/db/poolers/session-settings.ts'
import { directUrl, readerOf, tlsOptions, withoutOwnParameters } from '../src/db/pools.ts'
import { type Verification, verifyLog } from '../src/events/verify.ts'

/*
 * `npm run log:verify`: compares every row of every logged collection with the newest event about it. Prints a table;
 * the exit code is 1 when a difference was found or nothing could be compared. Without DATABASE_URL it looks at the
 * embedded server that `npm start` runs.
 */

/** Numbers per collection, then the first differences: item ids and field names, never values. */
export function report(results: readonly Verification[]): string {
  const header = ['collection', 'rows', 'verified', 'unverifiable', 'erased', 'different']
  const lines = results.map((result) => header.map((column) => String(result[column as keyof Verification])))
  const widths = header.map((title, i) => Math.max(title.length, ...lines.map((line) => line[i]!.length)))
  const format = (line: readonly string[]) =>
    line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  ')
  const differences = results.flatMap(({ collection, differences }) =>
    differences.map(({ entityId, kind, fields }) =>
      `${collection} ${entityId}: ${kind} ${fields.join(', ')}`.trimEnd(),
    ),
  )
  return [format(header), ...lines.map(format), ...differences, ''].join('\n')
}

async function run(config: Config): Promise<readonly Verification[]> {
  const address = directUrl(config)
  const client = new pg.Client({
    connectionString: withoutOwnParameters(address),
    ssl: tlsOptions(config, address),
    application_name: 'daybook log:verify',
    options: settingsOf(address, { transactionTimeoutMs: 0, readOnly: true }).ofSession,
  })
  await client.connect()
  try {
    const db = readerOf((text, values) => client.query(text, values as unknown[]))
    return await verifyLog(client, compileCatalog(await readDefinitions(db)))
  } finally {
    await client.end()
  }
}

if (import.meta.main) {
  try {
    const results = await run(parseInstallation(loadEnv(process.cwd(), process.env)))
    process.stdout.write(report(results))
    process.exitCode = results.some(({ different }) => different > 0) ? 1 : 0
  } catch (error) {
    const { message, code } = error as Error & { code?: string }
    process.stderr.write(`${message || code}\n`)
    process.exitCode = 1
  }
}
