import packageJson from '../../../../package.json' with { type: 'json' }
import { isInitialRelease } from '../../../adapters/version-order.ts'
import { ConfigError } from '../../../config/config.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import { hasMigrationTable } from './queries.ts'
import { systemVersions } from './scripts.ts'

/** Recorded with each of the program's own migrations: the version of the program that ran it. */
export const ranBy: Readonly<Record<string, string>> = { setUpBy: packageJson.version }

/**
 * Refuses a database that a newer program has set up: it has system migrations that this program does not know, so nothing here knows what
 * they have changed.
 *
 * @throws {ConfigError}
 */
export async function refuseNewer(db: Reader): Promise<void> {
  if (!(await hasMigrationTable(db))) return
  const rows = await db.any<{ version: string; program: string }>(sql.unsafe`
    select version, metadata->>'setUpBy' as program from "svc_Migration"
    where status = 'completed' and metadata->>'setUpBy' is not null order by version`)
  const known = systemVersions()
  const unknown = rows.filter(({ version }) => isInitialRelease(version) && !known.has(version))
  if (unknown.length === 0) return
  throw new ConfigError(
    `DATABASE_URL: Daybook ${unknown.at(-1)!.program} has set this database up (migration ${unknown.map(({ version }) => version).join(', ')}), and this is ${packageJson.version}: run the newer version again, or restore the backup from before the upgrade (docs/upgrade.md)`,
  )
}
