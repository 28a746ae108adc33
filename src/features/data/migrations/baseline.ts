import { compareVersions, isVersion } from '../../../adapters/version-order.ts'
import { createCollections } from '../../../catalog/change.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import { type Config, ConfigError } from '../../../config/config.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { systemActor } from '../../../events/types.ts'
import { hasMigrationTable, type MigrationRow, storeBaseline, storeCompleted, storedRows } from './queries.ts'
import { ranBy } from './records.ts'
import type { MigrationRunner } from './runner.ts'
import { type LoadedScript, loadScripts, loadSystemScripts } from './scripts.ts'

/**
 * An installation from before migrations were recorded has svc_User and no svc_Migration. Its
 * table is made, and every script up to MIGRATIONS_UPGRADE_BASELINE is recorded as done without being run: the newest of
 * the program's own by default and for `true`. Does nothing to any other database.
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

/** The migrations of the development versions: 0.1.0 is all of them at once. */
const developed: ReadonlyMap<string, string> = new Map([
  ['0.1.0', 'system schema'],
  ['0.2.0', 'field types'],
  ['0.2.1', 'system rules'],
  ['0.3.0', 'idempotency keys'],
  ['0.4.0', 'code tries'],
  ['0.4.1', 'ends of sessions'],
  ['0.4.2', 'rate limits'],
  ['0.4.3', 'factors and keys'],
  ['0.4.4', 'social accounts'],
  ['0.5.0', 'history'],
  ['0.6.0', 'settings'],
  ['0.6.1', 'development mail'],
  ['0.6.2', 'templates'],
  ['0.8.0', 'tasks'],
  ['0.8.1', 'task order'],
  ['0.8.2', 'session leases'],
  ['0.9.2', 'write marks'],
  ['0.9.3', 'log functions'],
  ['0.9.4', 'plain log'],
  ['0.9.5', 'one-row updates'],
  ['0.10.2', 'identities'],
  ['0.10.4', 'pages'],
  ['0.10.5', 'log doors'],
  ['0.10.8', 'seeds'],
  ['0.10.9', 'links told'],
])

/** The development migrations that a database has run only some of lacks; none for every other database. */
export function missingDeveloped(rows: readonly MigrationRow[]): readonly string[] {
  const ofThem = rows.filter(isDeveloped)
  const done = new Set(ofThem.filter(({ status }) => status === 'completed').map(({ version }) => version))
  return ofThem.length === 0 ? [] : [...developed.keys()].filter((version) => !done.has(version))
}

/**
 * Recognises a database that all development migrations have made: it has what 0.1.0 makes, and from now on only that is
 * recorded. Does nothing to any other database.
 *
 * @throws ConfigError for a database that has run only some of them, and changes nothing
 */
export async function adoptDeveloped({ session, log }: MigrationRunner): Promise<void> {
  const rows = (await hasMigrationTable(session)) ? await storedRows(session) : []
  if (!rows.some(isDeveloped)) return
  const missing = missingDeveloped(rows)
  if (missing.length > 0)
    throw new ConfigError(
      `DATABASE_URL: a development version made this database, and its migrations ${missing.join(', ')} are missing: set it up once with the last development version (0.10.9), or set up an empty database and import the data`,
    )
  const { version, name, description, checksum } = (await loadSystemScripts())[0]!
  const replaced = [...developed.keys()].filter((other) => other !== version)
  await session.transaction({ ...systemActor, userAgent: 'migration baseline' }, async (tx) => {
    await tx.any(sql.unsafe`delete from "svc_Migration" where version = any(${sql.array(replaced, 'text')})`)
    await tx.any(sql.unsafe`
      update "svc_Migration" set name = ${name}, description = ${description ?? null}, checksum = ${checksum}, "updatedAt" = now()
      where version = ${version}`)
  })
  log.info({ version }, `the ${developed.size} migrations of the development versions count as ${version}`)
}

function isDeveloped({ version, name }: MigrationRow): boolean {
  return developed.get(version) === name
}
