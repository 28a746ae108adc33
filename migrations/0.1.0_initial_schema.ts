import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { consumerTablesSql, logTableSql } from '../src/events/log-table.ts'
import { sealTablesSql } from '../src/events/seals/seals.ts'
import { insertSeedsSql, seedsJson } from '../src/features/messaging/templates/templates.ts'
import { accounts } from './schema/accounts.ts'
import { files } from './schema/files.ts'
import { notifications } from './schema/notifications.ts'
import { oauth } from './schema/oauth.ts'
import { processTables } from './schema/processes.ts'
import { insertRuleSql, settings, systemRules } from './schema/seeds.ts'
import { values } from './schema/values.ts'
import { webhooks } from './schema/webhooks.ts'
import { workflows } from './schema/workflows.ts'

export const version = '0.1.0'
export const name = 'initial schema'
export const description = 'The log, the system collections, their functions and triggers, and the tables of processes.'
export const type = 'upgrade'

/** Creates everything a fresh database needs. The only way back is to drop the database. */
export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const run = async (statements: readonly string[]) => {
    for (const statement of statements) await sql(statement)
  }
  const log = systemCollections.find(({ collectionName }) => collectionName === 'svc_AuditLog')!
  // Defaults and triggers of the collections call these functions.
  await run([...values, ...logTableSql(), ...consumerTablesSql(), ...sealTablesSql()])
  await schemaManager.createCollections(
    db,
    systemCollections.filter((collection) => collection !== log),
  )
  await schemaManager.adoptCollection(db, log)
  await run([...settings, ...processTables, ...accounts, ...oauth, ...files, ...webhooks, ...workflows])
  await run(notifications)
  for (const { name, description, conditions } of systemRules)
    await sql(insertRuleSql, [name, description, JSON.stringify(conditions)])
  await sql(insertSeedsSql, [seedsJson()])
  return { success: true }
}
