import packageJson from '../../../../package.json' with { type: 'json' }
import { compareVersions, isInitialRelease, isVersion } from '../../../adapters/version-order.ts'
import { createCollections } from '../../../catalog/change.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import { type Config, ConfigError } from '../../../config/config.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { systemActor } from '../../../events/types.ts'
import { hasMigrationTable, type MigrationRow, ranBy, storeBaseline, storeCompleted, storedRows } from './records.ts'
import type { MigrationRunner } from './runner.ts'
import { type LoadedScript, loadScripts, loadSystemScripts, systemVersions } from './scripts.ts'

/**
 * Gives an installation from before migrations were recorded, which has svc_User and no svc_Migration, that table, and
 * records every script up to MIGRATIONS_UPGRADE_BASELINE as done without a run. By default and for `true` this is the
 * newest of the program's own. Does nothing to any other database.
 *
 * @throws ConfigError for a version that is none, and for a database whose svc_User is not the program's
 */
export async function createBaseline({ session, config, log }: MigrationRunner): Promise<void> {
  if (!(await isUpgrade(session))) return
  await checkSchema(session)
  const scripts = await loadScripts(config)
  const baseline = baselineOf(config, scripts)
  const done = scripts.filter(({ version }) => compareVersions(version, baseline) <= 0)
  await session.transaction({ ...systemActor, userAgent: 'migration baseline' }, async (tx) => {
    await createTable(tx)
    for (const script of done) await storeCompleted(tx, script, { baseline, ...(script.isSystem && ranBy) })
    if (!done.some(({ version }) => version === baseline)) await storeBaseline(tx, baseline)
  })
  log.info({ version: baseline }, `upgraded installation: ${done.length} migrations up to ${baseline} count as done`)
}

async function isUpgrade(db: Reader): Promise<boolean> {
  const { upgrade } = await db.one<{ upgrade: boolean }>(
    sql.unsafe`select to_regclass('"svc_User"') is not null and to_regclass('"svc_Migration"') is null as upgrade`,
  )
  return upgrade
}

/** Records cannot replace these: collections, log and the functions of their triggers. */
async function checkSchema(db: Reader): Promise<void> {
  const { ours } = await db.one<{ ours: boolean }>(sql.unsafe`
    select to_regclass('"svc_SchemaDefinition"') is not null and to_regclass('"svc_AuditLog"') is not null
           and to_regprocedure('svc_notify()') is not null as ours`)
  if (!ours)
    throw new ConfigError(
      'DATABASE_URL: this database has a table svc_User without the schema of Daybook around it: set up an empty database and import the data',
    )
}

function baselineOf({ migrations }: Config, scripts: readonly LoadedScript[]): string {
  const { upgradeBaseline } = migrations
  if (typeof upgradeBaseline !== 'string') return scripts.findLast(({ isSystem }) => isSystem)!.version
  if (isVersion(upgradeBaseline)) return upgradeBaseline
  throw new ConfigError(
    'MIGRATIONS_UPGRADE_BASELINE: this is neither true nor a version like 0.1.0 or 20241224_001_add_column',
  )
}

/** A definition that outlived its table describes nothing. */
async function createTable(tx: Tx): Promise<void> {
  await tx.any(sql.unsafe`delete from "svc_SchemaDefinition" where "collectionName" = 'svc_Migration'`)
  await createCollections(
    tx,
    systemCollections.filter(({ collectionName }) => collectionName === 'svc_Migration'),
  )
}

/**
 * Refuses a database that a newer program has set up: it has system migrations that this program does not know, and so
 * changes that this program does not know.
 *
 * @throws {ConfigError}
 */
export async function refuseNewer(db: Reader): Promise<void> {
  if (!(await hasMigrationTable(db))) return
  const rows = await db.any<{ version: string; name: string; program: string }>(sql.unsafe`
    select version, name, metadata->>'setUpBy' as program from "svc_Migration"
    where status = 'completed' and metadata->>'setUpBy' is not null order by version`)
  const known = systemVersions()
  const unknown = rows.filter((row) => isInitialRelease(row.version) && !known.has(row.version) && !isDeveloped(row))
  if (unknown.length === 0) return
  throw new ConfigError(
    `DATABASE_URL: Daybook ${unknown.at(-1)!.program} has set this database up (migration ${unknown.map(({ version }) => version).join(', ')}), and this is ${packageJson.version}: run the newer version again, or restore the backup from before the upgrade (docs/upgrade.md)`,
  )
}

/** The migrations of the development versions, in their order: 0.1.0 is all of them at once. */
const developed: ReadonlyMap<string, string> = new Map([
  ['0.1.0', 'schema'],
  ['0.1.1', 'log consumers'],
  ['0.1.2', 'webhooks'],
  ['0.1.3', 'requests of the log'],
  ['0.1.4', 'log seals'],
  ['0.1.5', 'files'],
  ['0.1.7', 'workflows'],
  ['0.1.10', 'oauth'],
  ['0.1.12', 'scope_of_executions'],
  ['0.1.13', 'lineage'],
  ['0.1.14', 'preview'],
  ['0.1.17', 'views'],
  ['0.1.20', 'file usage'],
  ['0.1.21', 'parallel uploads'],
  ['0.1.22', 'row batches'],
  ['0.1.23', 'images in one go'],
])

/** The last of them: a database that has it has the schema of 0.1.0. */
const lastDeveloped = [...developed.keys()].at(-1)!

/** Whether a database whose newest migration is this one lacks some of the development migrations. */
export const isPartlyDeveloped = (newest: string): boolean =>
  developed.has(newest) && newest !== lastDeveloped && newest !== '0.1.0'

/** The name of 0.1.0 in databases that only the first development versions have set up. */
const firstName = 'system schema'

/** The development migrations that a database of a development version lacks; none for every other database. */
export function missingDeveloped(
  rows: readonly Pick<MigrationRow, 'version' | 'name' | 'status'>[],
): readonly string[] {
  const ofThem = rows.filter(isDeveloped)
  const done = new Set(
    ofThem.flatMap(({ version, name, status }) =>
      status === 'completed' && developed.get(version) === name ? version : [],
    ),
  )
  return ofThem.length === 0 ? [] : [...developed.keys()].filter((version) => !done.has(version))
}

/**
 * Recognises a database that all development migrations have made: it has the schema of 0.1.0, and only that is recorded
 * from then on. Does nothing to any other database.
 *
 * @throws ConfigError for a database that lacks some of them, and changes nothing
 */
export async function adoptDeveloped({ session, log }: MigrationRunner): Promise<void> {
  const rows = (await hasMigrationTable(session)) ? await storedRows(session) : []
  const ofThem = rows.filter(isDeveloped)
  if (ofThem.length === 0) return
  const missing = missingDeveloped(rows)
  if (missing.length > 0)
    throw new ConfigError(
      `DATABASE_URL: a development version made this database, and its migrations ${missing.join(', ')} are missing: set it up once with the last development version, whose newest migration is ${lastDeveloped}, or set up an empty database and import the data`,
    )
  const { version, name, description, checksum } = (await loadSystemScripts())[0]!
  const replaced = ofThem.map((row) => row.version).filter((other) => other !== version)
  await session.transaction({ ...systemActor, userAgent: 'migration baseline' }, async (tx) => {
    await tx.any(sql.unsafe`delete from "svc_Migration" where version = any(${sql.array(replaced, 'text')})`)
    await tx.any(sql.unsafe`
      update "svc_Migration" set name = ${name}, description = ${description ?? null}, checksum = ${checksum}, "updatedAt" = now()
      where version = ${version}`)
  })
  log.info({ version }, `the ${developed.size} migrations of the development versions count as ${version}`)
}

function isDeveloped({ version, name }: Pick<MigrationRow, 'version' | 'name'>): boolean {
  return developed.get(version) === name || (version === '0.1.0' && name === firstName)
}
