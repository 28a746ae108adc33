import * as manager from '../../catalog/change.ts'
import type { MigrationContext } from '../../db/migrate.ts'
import { rawQuery, type Tx } from '../../db/sql.ts'
import { systemActor } from '../../events/types.ts'
import type { Runner } from './runner.ts'
import type { LoadedScript } from './scripts.ts'

type ContextRunner = Pick<Runner, 'session' | 'config' | 'env'>

/** What a script's functions receive (spec: Migration record). `db` is its transaction, or its session without one. */
export function contextOf(
  runner: ContextRunner,
  script: LoadedScript,
  db: Tx,
  log: MigrationContext['log'],
): MigrationContext {
  return {
    db,
    sql: (text, values) => db.any(rawQuery(text, values)),
    schemaManager: script.isSystem ? manager : managerFor(runner, script),
    env: runner.env,
    log,
  }
}

/**
 * The manager as this installation's collections need it: with MULTI_TENANT they get their tenant. A script without a
 * transaction gets one for each change, since a definition and its table must change together.
 */
function managerFor({ session, config }: ContextRunner, script: LoadedScript): typeof manager {
  const defaults = { multiTenant: config.tenancy.enabled }
  const actor = { ...systemActor, userAgent: `migration ${script.version}` }
  const within = <T>(tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T> =>
    script.transaction === false ? session.transaction(actor, work) : work(tx)
  return {
    ...manager,
    changeDefinitions: (db, edit, options = defaults) =>
      within(db, (tx) => manager.changeDefinitions(tx, edit, options)),
    executeChange: (db, edit, options = defaults, guard = undefined) =>
      within(db, (tx) => manager.executeChange(tx, edit, options, guard)),
    createCollections: (db, definitions, options = defaults) =>
      within(db, (tx) => manager.createCollections(tx, definitions, options)),
    updateCollection: (db, definition, options = defaults) =>
      within(db, (tx) => manager.updateCollection(tx, definition, options)),
    deleteCollection: (db, name, options = defaults) => within(db, (tx) => manager.deleteCollection(tx, name, options)),
    adoptCollection: (db, definition) => within(db, (tx) => manager.adoptCollection(tx, definition)),
    adoptTenants: (db) => within(db, manager.adoptTenants),
  }
}
