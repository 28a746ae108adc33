import { randomBytes } from 'node:crypto'
import type { Logger } from 'pino'
import { canonicalEmail } from '../adapters/email-address.ts'
import { openLogger } from '../adapters/logger.ts'
import { hashPassword, isPasswordHash, verifyPassword } from '../adapters/passwords.ts'
import { hashSecret, newSecret } from '../adapters/tokens.ts'
import { adoptTenants } from '../catalog/change.ts'
import { createExtensionSql } from '../catalog/ddl.ts'
import { type Extension, switchOf } from '../catalog/fields.ts'
import { logTable } from '../catalog/log-triggers.ts'
import { type Config, ConfigError, parseConfig } from '../config/config.ts'
import type { Env } from '../config/variable.ts'
import { sqlState } from '../db/errors.ts'
import { readSetupFacts, rightsLack, unfitness } from '../db/needs.ts'
import { openLine } from '../db/poolers/line.ts'
import { requireOwnSessions } from '../db/poolers/poolers.ts'
import { directUrl, openPool } from '../db/pools.ts'
import { rawQuery, sql, type Tx } from '../db/sql.ts'
import { replaceSecret } from '../db/unlogged/secrets.ts'
import { AppError } from '../errors.ts'
import { type DirectSession, openDirectSession } from '../events/direct-session.ts'
import { createQueues, startBoss } from '../events/jobs.ts'
import { publicationName } from '../events/log.ts'
import { adoptRestoredEventsSql, ensurePartitionsSql, publicationSql } from '../events/log-table.ts'
import { systemActor } from '../events/types.ts'
import {
  adoptDeveloped,
  createBaseline,
  hasMigrationTable,
  type MigrationHost,
  type MigrationRunner,
  pendingSystemMigrations,
  refuseNewer,
  runPending,
  runSystemMigrations,
  withRunner,
} from '../features/data/migrations/migrations.ts'
import { renewSeededTemplates } from '../features/messaging/templates/templates.ts'

export type SetupResult = {
  /** Set when this setup created the administrator; the password only when it was made up here. */
  readonly admin: FirstAdministrator | undefined
}

type FirstAdministrator = {
  readonly email: string
  readonly password: string | null
  /** Signs in once, in place of a password that was made up, and sets another (`POST /auth/first-sign-in`). */
  readonly signInToken?: string
}

const firstSignInSeconds = 600

const lacksPrivilege = '42501'

const oldestServer = 150_000
const partitionsAhead = 3

/**
 * The release step: system schema, log partitions, publication, queues, seeds. May run any number of times and in any
 * number of processes at once: an advisory lock lets one after the other through, and each part looks before it acts.
 */
export async function runSetup(config: Config, log: Logger): Promise<SetupResult> {
  const session = await openDirectSession(config, log)
  try {
    await checkServer(session)
    await session.lock('daybook setup')
    await checkDatabase(session)
    await backUpFirst(session, config, log)
    await withRunner({ config, log, env: {} }, { requester: undefined, busy: 'wait' }, createSystemSchema)
    await createExtensions(session, config)
    if (config.tenancy.enabled) await session.transaction(systemActor, adoptTenants)
    for (const statement of [...adoptRestoredEventsSql(), ...ensurePartitionsSql(partitionsAhead)])
      await session.any(rawQuery(statement))
    await createPublication(session, log)
    // A database that was developed on may hold mails with secrets that still work.
    if (config.server.environment === 'production') await session.any(sql`delete from "svc_DevelopmentMail"`)
    await installQueues(config, log)
    return await session.transaction(systemActor, (tx) => seed(tx, config, log))
  } finally {
    await session.close()
  }
}

/** Setup, and with MIGRATIONS_AUTO_RUN the migrations of the user. `tell` hears of the administrator before these run. */
export async function setUpAndMigrate(
  { config, log, env }: MigrationHost & { log: Logger },
  tell: (result: SetupResult) => void,
) {
  tell(await runSetup(config, log))
  if (config.migrations.autoRun) await runPending({ config, log, env })
}

async function createSystemSchema(runner: MigrationRunner): Promise<void> {
  await refuseNewer(runner.session)
  await createBaseline(runner)
  await adoptDeveloped(runner)
  await runSystemMigrations(runner)
}

/** With BACKUP_BEFORE_UPGRADE; a database that is new has nothing to lose. */
async function backUpFirst(session: DirectSession, config: Config, log: Logger): Promise<void> {
  if (!config.backup.beforeUpgrade) return
  const pending = (await hasMigrationTable(session)) ? await pendingSystemMigrations(session) : []
  if (pending.length === 0) return
  // Loaded by the few starts that need them.
  const { openStorages } = await import('../features/files/storage/storage.ts')
  const { backUpBeforeUpgrade } = await import('../features/operations/backup/backup.ts')
  const storages = openStorages(config)
  try {
    const place = await backUpBeforeUpgrade({ config, log, storages }, pending)
    log.info({ place, pending }, 'a backup was made before the upgrade')
  } finally {
    storages.close()
  }
}

async function checkServer(session: DirectSession): Promise<void> {
  const { version } = await session.one<{ version: number }>(
    sql`select current_setting('server_version_num')::int as version`,
  )
  if (version < oldestServer)
    throw new ConfigError(`DATABASE_URL: PostgreSQL 15 or newer is needed, this is ${Math.floor(version / 10_000)}`)
}

/** Before anything is created: half of an installation would stay. One that is there already goes on in whichever encoding it is. */
async function checkDatabase(session: DirectSession): Promise<void> {
  const facts = await readSetupFacts(session)
  const lack = rightsLack({ ...facts, mayCreateSchemas: true })
  const isNew = !(await hasMigrationTable(session))
  const problem = isNew ? unfitness(facts) : lack && `${lack.says}: ${lack.remedy}`
  if (problem !== undefined) throw new ConfigError(`DATABASE_URL: ${problem}`)
}

/** Those that are turned on; the database role needs the right to, unless they are there. */
async function createExtensions(session: DirectSession, { database }: Config): Promise<void> {
  const wanted: Extension[] = [
    ...(database.postgis ? ['postgis' as const] : []),
    ...(database.vector ? ['vector' as const] : []),
  ]
  for (const extension of wanted)
    try {
      await session.any(rawQuery(createExtensionSql(extension)))
    } catch (error) {
      throw new ConfigError(
        `${switchOf[extension]}: the extension ${extension} cannot be created: ${(error as Error).message}`,
      )
    }
}

/** Without it realtime works by polling, so a missing privilege is no reason to stop. One that is there works whoever owns it. */
async function createPublication(session: DirectSession, log: Logger): Promise<void> {
  try {
    for (const statement of publicationSql()) await session.any(rawQuery(statement))
  } catch (error) {
    const found = await session.maybeOne<{ owner: string }>(sql`
      select pg_get_userbyid(p.pubowner) as owner from pg_publication p join pg_publication_tables t using (pubname)
      where p.pubname = ${publicationName} and p.pubinsert and t.tablename = ${logTable}`)
    if (found === undefined)
      return log.warn({ err: error }, 'no publication of the log could be made: realtime will poll the log')
    log.warn(
      { err: error, owner: found.owner },
      `the publication ${publicationName} could not be changed and stays as it is: realtime goes on reading the WAL by it`,
    )
  }
}

async function installQueues(config: Config, log: Logger): Promise<void> {
  const url = directUrl(config)
  const line = openLine({ facts: await requireOwnSessions(config), named: false, log })
  const pool = openPool({ config, log, line, max: 2, readOnly: false, name: 'setup', url })
  try {
    const db = { executeSql: (text: string, values?: unknown[]) => pool.query(text, values) }
    const boss = await startBoss({ db, log, supervise: false, install: true })
    await createQueues(boss)
    await boss.stop({ graceful: false, close: false })
  } finally {
    await pool.end()
  }
}

/** Roles, settings and the default administrator; only what is missing. */
async function seed(tx: Tx, config: Config, log: Logger): Promise<SetupResult> {
  await tx.any(sql`
    insert into "svc_Role" (name, description, "isTenantSpecific") values
      ('administrator', 'May do everything', false), ('user', 'Registered users', true), ('public', 'Callers without a session', false)
    on conflict do nothing`)
  await tx.any(sql`
    insert into "svc_Settings" (project_name, title, project_color)
    select ${config.project.name}, ${config.project.name}, '#663399' where not exists (select from "svc_Settings" where "tenant_Id" is null)`)
  await followProjectName(tx, config.project.name)
  await renewSeededTemplates(tx)
  return { admin: await seedAdministrator(tx, config, log) }
}

/** PROJECT_NAME renames the project until a user names it in the settings; its title likewise. */
async function followProjectName(tx: Tx, name: string): Promise<void> {
  await tx.any(sql`
    update "svc_Settings" s
    set project_name = ${name}, title = case when s.title = seed.value then ${name} else s.title end, "updatedAt" = now()
    from "svc_Seed" seed
    where seed.key = 'project_name' and s."tenant_Id" is null and s.project_name = seed.value and seed.value <> ${name}`)
  await tx.any(sql`
    insert into "svc_Seed" as seed (key, value)
    select 'project_name', project_name from "svc_Settings" where "tenant_Id" is null and project_name = ${name}
    on conflict (key) do update set value = excluded.value where seed.value <> excluded.value`)
}

async function seedAdministrator(tx: Tx, config: Config, log: Logger): Promise<SetupResult['admin']> {
  const { exists } = await tx.one<{ exists: boolean }>(sql`
    select exists(select from "svc_UserRole" ur join "svc_Role" r on r.id = ur."role_Id" where r.name = 'administrator') as exists`)
  if (exists) {
    await noteUnusedPassword(tx, config, log)
    return undefined
  }
  const { password } = config.admin
  const email = canonicalEmail(config.admin.email)
  if (email === undefined) throw new ConfigError('ADMIN_EMAIL: this is not an e-mail address')
  if (password !== undefined && isPasswordHash(password))
    throw new ConfigError('ADMIN_PASSWORD: this is the hash of a password; give the password itself')
  const chosen = password ?? randomBytes(15).toString('base64url')
  const hash = await hashPassword(chosen, config.auth.passwordHashCost)
  await tx.any(sql`
    with account as (
      insert into "svc_User" ("firstName", "lastName", email, "emailVerified", password)
      values ('Admin', 'User', ${email}, true, ${hash}) returning id)
    insert into "svc_UserRole" ("user_Id", "role_Id")
    select account.id, r.id from account, "svc_Role" r where r.name = 'administrator'`)
  if (password !== undefined) return { email, password: null }
  return { email, password: chosen, ...(config.console.enabled && { signInToken: await firstSignIn(tx, email) }) }
}

/** Deployments leave the variable set while the administrator changes the password: in production that is no reason to warn. */
async function noteUnusedPassword(tx: Tx, { admin, auth, server }: Config, log: Logger): Promise<void> {
  if (admin.password === undefined) return
  const account = await tx.maybeOne<{ password: string | null }>(
    sql`select password from "svc_User" where email = ${canonicalEmail(admin.email) ?? admin.email}`,
  )
  if (await verifyPassword(admin.password, account?.password, auth.passwordHashCost)) return
  const level = server.environment === 'production' ? 'info' : 'warn'
  log[level](
    `ADMIN_PASSWORD has no effect: it is for the first setup, and this database has its administrator, with another password`,
  )
}

/** Made only with the administrator, and told only to the caller of setup: a visitor who finds an empty installation gets nothing. */
async function firstSignIn(tx: Tx, email: string): Promise<string> {
  const token = newSecret()
  const identifier = `first-sign-in:${email}`
  await replaceSecret(tx, { identifier, hash: hashSecret(token), lifetimeSeconds: firstSignInSeconds })
  return token
}

/**
 * The release step as a process, with the variables that `read` gives. `tell` hears of the administrator; a failure is said on standard error.
 *
 * @returns the exit code
 */
export async function setupProcess(read: () => Env, tell: (result: SetupResult) => void): Promise<number> {
  const log = openLogger({ level: 'info', name: 'setup' })
  try {
    const env = read()
    const config = parseConfig(env, { allowMissingSecret: true, requireDatabase: true })
    await setUpAndMigrate({ config, log, env }, tell)
    return 0
  } catch (error) {
    if (error instanceof ConfigError || error instanceof AppError) process.stderr.write(`${error.message}\n`)
    else if (sqlState(error) === lacksPrivilege)
      process.stderr.write(
        `DATABASE_URL: ${(error as Error).message}: the role does not own all of the installation; npx daybook doctor says what it lacks\n`,
      )
    else log.fatal({ err: error }, 'setup failed')
    return 1
  }
}
