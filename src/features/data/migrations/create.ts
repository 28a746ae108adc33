import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { compareVersions, isVersion } from '../../../adapters/version-order.ts'
import { createCollections } from '../../../catalog/change.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import { type Config, ConfigError } from '../../../config/config.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import type { MigrationType } from '../../../events/direct-session.ts'
import { systemActor } from '../../../events/types.ts'
import { hasMigrationTable, type MigrationRow, ranBy, storeBaseline, storeCompleted, storedRows } from './records.ts'
import type { MigrationRunner } from './runner.ts'
import { type LoadedScript, loadScripts, loadSystemScripts } from './scripts.ts'

type NewMigration = {
  readonly name: string
  readonly type?: MigrationType | undefined
  readonly description?: string | undefined
  /** The schemas of collections as they are and as they are to be; null where one is not there. */
  readonly definitions?: { readonly before: Schemas; readonly after: Schemas } | undefined
}

type Schemas = Readonly<Record<string, object | null>>

/**
 * A new script, its version the time in UTC and the name: `20241224103000_add_column`. No text of the caller becomes
 * anything but the content of a string, or a file name of `[a-z0-9_]`.
 *
 * @throws AppError 400 for a name that is no name
 */
export function migrationScript(migration: NewMigration, now: Date): MigrationScript {
  const version = `${timestampOf(now)}_${slugOf(migration.name)}`
  return { version, file: `${version}.ts`, text: scriptText(version, migration) }
}

type MigrationScript = { readonly version: string; readonly file: string; readonly text: string }

/**
 * Writes a new script into MIGRATIONS_DIR.
 *
 * @returns its path from the working directory
 * @throws AppError 400 for a name that is no name, 409 when the file exists
 */
export function createMigration(config: Config, migration: NewMigration, now: Date): string {
  const { version, file, text } = migrationScript(migration, now)
  const dir = resolve(config.migrations.dir)
  const path = join(dir, file)
  mkdirSync(dir, { recursive: true })
  try {
    writeFileSync(path, text, { flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST' && existsSync(path))
      throw errors.conflict(`Migration ${version} exists already`)
    throw error
  }
  return relative(process.cwd(), path)
}

const longestName = 80

/** Words become `a_b_c`; whatever else a name might hold has no place in a file name and is refused. */
function slugOf(name: string): string {
  if (name.length <= longestName && /^[A-Za-z0-9]+([ _-]+[A-Za-z0-9]+)*$/.test(name))
    return name.toLowerCase().replaceAll(/[ _-]+/g, '_')
  throw errors.badBody(`name must be 1 to ${longestName} letters, digits, blanks, - and _, e.g. add_country_code`)
}

/** `20241224103000` */
function timestampOf(now: Date): string {
  return now.toISOString().replaceAll(/\D/g, '').slice(0, 14)
}

function scriptText(version: string, { name, type = 'upgrade', description, definitions }: NewMigration): string {
  const about = description === undefined ? [] : [`export const description = ${literal(description)}`]
  return [
    "import type { MigrationContext, MigrationResult } from 'daybook/migrations'",
    '',
    `export const version = ${literal(version)}`,
    `export const name = ${literal(name)}`,
    ...about,
    `export const type = ${literal(type)}`,
    '',
    definitions === undefined ? body : bodyFor(definitions),
  ].join('\n')
}

const body = `/** Runs in one transaction with its record, unless the script says \`export const transaction = false\`. */
export async function up({ log }: MigrationContext): Promise<MigrationResult> {
  log('nothing to do yet')
  // await sql('alter table "note" add column "rank" integer')
  return { success: true }
}

/** Undoes what \`up\` has done. Leave it out where there is no way back. */
export async function down({ log }: MigrationContext): Promise<MigrationResult> {
  log('nothing to undo yet')
  return { success: true }
}
`

/** Replaces definitions by others, both ways. Later additions to these collections are lost. */
function bodyFor({ before, after }: { readonly before: Schemas; readonly after: Schemas }): string {
  return `type Schemas = Readonly<Record<string, unknown>>

/** The collections as they were when this was written; null for one that was not there. */
const before: Schemas = ${constant(before)}

/** The same as they are to be. A field that is only in the other one goes with its values. */
const after: Schemas = ${constant(after)}

export async function up(context: MigrationContext): Promise<MigrationResult> {
  return replaceBy(context, after)
}

/** Brings the definitions back, and of what has gone only the place. */
export async function down(context: MigrationContext): Promise<MigrationResult> {
  return replaceBy(context, before)
}

async function replaceBy({ db, schemaManager }: MigrationContext, schemas: Schemas): Promise<MigrationResult> {
  await schemaManager.changeDefinitions(db, ({ collections }) => {
    const next = new Map([...collections].map(([name, { definition }]) => [name, definition.schema]))
    for (const [name, schema] of Object.entries(schemas))
      if (schema === null) next.delete(name)
      else next.set(name, schema as never)
    return next
  })
  return { success: true }
}
`
}

/** JSON as a constant of a program: there a member of this name would not be one. */
const constant = (value: unknown): string =>
  JSON.stringify(value, null, 2).replaceAll(/(?<!\\)"__proto__":/g, '["__proto__"]:')

/** A string constant as the formatter writes it: in single quotes, unless double ones need fewer escapes. */
function literal(text: string): string {
  const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')
  const plain = escaped.replaceAll('\\"', '"')
  const [single, double] = [plain.split("'").length, plain.split('"').length]
  return single > double ? `"${escaped}"` : `'${plain.replaceAll("'", "\\'")}'`
}

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
