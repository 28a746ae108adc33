import { compareVersions, isVersion } from '../../adapters/version-order.ts'
import { createCollections } from '../../catalog/manager.ts'
import { systemCollections } from '../../catalog/system-collections.ts'
import { type Config, ConfigError } from '../../config.ts'
import { type Reader, sql, type Tx } from '../../db/sql.ts'
import { systemActor } from '../../events/types.ts'
import { storeBaseline, storeCompleted } from './queries.ts'
import type { Runner } from './runner.ts'
import { type LoadedScript, loadScripts } from './scripts.ts'

/**
 * An installation from before migrations were recorded has svc_User and no svc_Migration (spec: Migration status). Its
 * table is made, and every script up to MIGRATIONS_UPGRADE_BASELINE is recorded as done without being run: the newest of
 * the program's own by default and for `true`. Does nothing to any other database.
 *
 * @throws ConfigError for a version that is none, and for a database whose svc_User is not the program's
 */
export async function createBaseline({ session, config, log }: Runner): Promise<void> {
  if (!(await isUpgrade(session))) return
  await checkSchema(session)
  const scripts = await loadScripts(config)
  const baseline = baselineOf(config, scripts)
  const done = scripts.filter(({ version }) => compareVersions(version, baseline) <= 0)
  await session.transaction({ ...systemActor, userAgent: 'migration baseline' }, async (tx) => {
    await createTable(tx)
    for (const script of done) await storeCompleted(tx, script, { baseline })
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

/** What records cannot stand in for: collections, log and the functions of their triggers. */
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
