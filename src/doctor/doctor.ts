import { type Config, embeddedDatabase } from '../config/config.ts'
import type { Env } from '../config/variable.ts'
import { type Database, databaseUrl, directUrl } from '../db/pools.ts'
import { checkMcp, readConfiguration, withKeptKey } from './configuration.ts'
import {
  checkNotifications,
  checkReplicas,
  checkSessionSettings,
  judgeCapacity,
  judgePooler,
  judgeReplication,
  judgeServer,
  judgeSkew,
  judgeSuperuser,
  lookForLine,
  openForLooking,
  placeOf,
  readServerFacts,
  readSkew,
  sharedSessions,
  unreachable,
} from './database.ts'
import { checkExtensionFiles } from './extensions.ts'
import { type Finding, ok, problem, reasonOf } from './finding.ts'
import {
  checkDefinitions,
  checkEmpty,
  checkExtensions,
  checkMigrations,
  checkOwner,
  checkPartitions,
  checkPermissions,
  checkPublication,
  checkQueues,
  checkRegistration,
  checkRetention,
  checkSealFile,
  checkSeals,
  checkTables,
  isSetUp,
} from './installation.ts'
import { checkSealed } from './sealed.ts'
import { secretsOf, withoutSecrets } from './secrets.ts'
import { checkMail, checkRedis, checkStorage, checkTenantMail, checkUpstash } from './services.ts'
import { checkBacklog, checkBackups, checkConsumers, checkSchedules, checkTasks, checkWorkers } from './work.ts'

/**
 * Looks at everything an installation stands on, changes nothing, and says what it found, in the order in which one would
 * fix it. Bad configuration and an absent database are findings like others. No finding holds a secret.
 */
export async function examine(env: Env, now: () => number = Date.now): Promise<readonly Finding[]> {
  const { config, findings } = readConfiguration(env)
  const parts = config === undefined ? [] : await examineParts(withKeptKey(config), now)
  const secrets = secretsOf(env)
  return [...findings, ...parts].map((finding) => withoutSecrets(finding, secrets))
}

async function examineParts(config: Config, now: () => number): Promise<Finding[]> {
  const { findings, db } = await examineDatabase(config, now)
  try {
    const others = [
      checkReplicas(config),
      checkRedis(config),
      checkUpstash(config),
      guarded('mail', () => checkMail(config, db)),
      guarded('mail', async () => (db === undefined ? [] : checkTenantMail(config, db))),
      checkStorage(config),
      guarded('extension files', () => checkExtensionFiles(config)),
      checkMcp(config),
    ]
    return [...findings, ...(await Promise.all(others)).flat()]
  } finally {
    await db?.pool.end()
  }
}

/** `db` where there is a database that is set up. */
async function examineDatabase(config: Config, now: () => number): Promise<{ findings: Finding[]; db?: Database }> {
  const url = databaseUrl(config)
  let db: Database | undefined
  try {
    const line = await lookForLine(config, url)
    db = openForLooking(config, url, line)
    const facts = await readServerFacts(db)
    const findings = [
      ok('database', `${placeOf(url)} answers`),
      ...judgeServer(facts),
      judgeSuperuser(facts),
      judgePooler(line),
      judgeCapacity(config, facts, line.facts()),
      judgeReplication(facts, config.realtime.enabled && config.realtime.walConsumerEnabled),
      judgeSkew(await readSkew(db, now)),
      await checkSessionSettings(db, config, line.facts()),
      ...(await examineLine(db, config)),
    ]
    if (await isSetUp(db)) return { findings: [...findings, ...(await examineInstallation(db, config, now))], db }
    const empty = await checkEmpty(db)
    await db.pool.end()
    return { findings: [...findings, empty] }
  } catch (error) {
    await db?.pool.end()
    const isEmbedded = url === embeddedDatabase(config.database.dataDir)
    return { findings: [unreachable('database', isEmbedded ? undefined : 'DATABASE_URL', url, error)] }
  }
}

async function examineLine(db: Database, config: Config): Promise<Finding[]> {
  const url = directUrl(config)
  let direct: Database | undefined
  try {
    const line = await lookForLine(config, url)
    if (!line.facts().keepsSessions) return [sharedSessions(config)]
    direct = openForLooking(config, url, line)
    return [await checkNotifications(db, direct, config)]
  } catch (error) {
    return [unreachable('notifications', 'DATABASE_DIRECT_URL', url, error)]
  } finally {
    await direct?.pool.end()
  }
}

async function examineInstallation(db: Database, config: Config, now: () => number): Promise<Finding[]> {
  const wantsWal = config.realtime.enabled && config.realtime.walConsumerEnabled
  const checks: readonly (readonly [string, () => Promise<Finding | Finding[]>])[] = [
    ['setup', () => checkMigrations(db)],
    ['role', () => checkOwner(db)],
    ['registration', () => checkRegistration(db, config)],
    ['extension', () => checkExtensions(db, config)],
    ['sealed values', () => checkSealed(db, config)],
    ['tables', () => checkTables(db, config)],
    ['definitions', () => checkDefinitions(db, config)],
    ['realtime by WAL', () => checkPublication(db, wantsWal)],
    ['log partitions', () => checkPartitions(db)],
    ['log retention', () => checkRetention(db, config)],
    ['log seals', () => checkSeals(db, config)],
    ['log seals', () => checkSealFile(db, config, now())],
    ['queues', () => checkQueues(db)],
    ['workers', () => checkWorkers(db, config)],
    ['schedules', () => checkSchedules(db)],
    ['backlog', () => checkBacklog(db)],
    ['tasks', () => checkTasks(db, config)],
    ['backups', () => checkBackups(db, config)],
    ['consumers', () => checkConsumers(db)],
    ['permissions', () => checkPermissions(db, config, new Date(now()))],
  ]
  const found: Finding[] = []
  for (const [check, look] of checks) found.push(...(await guarded(check, look)))
  return found
}

/** A check that could not be made is a finding too: half of an installation is there, or our role may not see it. */
async function guarded(check: string, look: () => Promise<Finding | Finding[]>): Promise<Finding[]> {
  try {
    const found = await look()
    return Array.isArray(found) ? found : [found]
  } catch (error) {
    return [
      problem(
        check,
        `could not be checked: ${reasonOf(error)}`,
        'see that the role owns the installation (docs/operating.md#the-database-role), then run npx daybook setup',
      ),
    ]
  }
}
