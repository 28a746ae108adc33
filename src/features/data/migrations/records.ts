import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import packageJson from '../../../../package.json' with { type: 'json' }
import { compareVersions, isInitialRelease, isVersion } from '../../../adapters/version-order.ts'
import type { Config } from '../../../config/config.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { MigrationScript, MigrationType } from '../../../events/direct-session.ts'
import { byDifference } from './replacing.ts'

/**
 * A migration as the API shows it: the row of svc_Migration, or of a script that has none yet what the row would be.
 * `drifted`: its file, where it is the user's, is not the one that was run.
 */
export type MigrationRecord = Omit<MigrationRow, 'id' | 'createdAt' | 'updatedAt'> & {
  readonly id: string | null
  readonly createdAt: Date | null
  readonly updatedAt: Date | null
  readonly drifted: boolean
}

/** A record and the script it belongs to; without one when its file is gone. */
export type Migration = { readonly record: MigrationRecord; readonly script: LoadedScript | undefined }

/** Everything that is known, scripts and rows, in the order of the versions. */
export async function readMigrations(db: Reader, config: Config): Promise<readonly Migration[]> {
  const [scripts, rows] = await Promise.all([loadScripts(config), storedRows(db)])
  return joined(scripts, rows)
}

/** Joins scripts and rows by version. */
export function joined(scripts: readonly LoadedScript[], rows: readonly MigrationRow[]): readonly Migration[] {
  const scriptOf = new Map(scripts.map((script) => [script.version, script]))
  const rowOf = new Map(rows.map((row) => [row.version, row]))
  return [...new Set([...scriptOf.keys(), ...rowOf.keys()])].sort(compareVersions).map((version) => {
    const [script, row] = [scriptOf.get(version), rowOf.get(version)]
    return { script, record: row === undefined ? unseen(script!) : { ...row, drifted: hasDrifted(row, script) } }
  })
}

type MigrationsStatus = {
  readonly currentVersion: string
  readonly lastBatch: number
  readonly appliedCount: number
  readonly pendingCount: number
  readonly totalMigrations: number
  readonly isUpToDate: boolean
  readonly lastMigration: Pick<MigrationRecord, 'version' | 'name' | 'status' | 'executedAt'> | null
  readonly isSequelizeUpgrade: boolean
  /** Versions whose file was changed after it had been run. */
  readonly drifted: readonly string[]
}

/** `GET /migrations/status`. Every migration that is neither applied nor skipped is pending, failed ones too. */
export function statusOf(migrations: readonly Migration[]): MigrationsStatus {
  const records = migrations.map(({ record }) => record)
  const pendingCount = pendingOf(migrations).length
  const executed = records.filter(({ executedAt }) => executedAt !== null)
  const last = executed.toSorted((a, b) => a.executedAt!.getTime() - b.executedAt!.getTime()).at(-1)
  return {
    currentVersion: currentVersion(migrations),
    lastBatch: Math.max(0, ...records.map(({ batch }) => batch ?? 0)),
    appliedCount: records.filter(isApplied).length,
    pendingCount,
    totalMigrations: records.length,
    isUpToDate: pendingCount === 0,
    lastMigration:
      last === undefined
        ? null
        : { version: last.version, name: last.name, status: last.status, executedAt: last.executedAt },
    isSequelizeUpgrade: records.some(({ metadata }) => typeof metadata.baseline === 'string'),
    drifted: records.filter(({ drifted }) => drifted).map(({ version }) => version),
  }
}

/** `GET /migrations/check`; the client library reads `hasPending`. */
export function checkOf(migrations: readonly Migration[]) {
  const pendingCount = pendingOf(migrations).length
  const needed = pendingCount > 0
  const lastVersion = migrations.at(-1)?.record.version ?? null
  return { needed, hasPending: needed, lastVersion, currentVersion: currentVersion(migrations), pendingCount }
}

/** The migrations that are not yet applied, failed ones too. */
export function pendingOf(migrations: readonly Migration[]): readonly Migration[] {
  return migrations.filter(({ record }) => record.status !== 'completed' && record.status !== 'skipped')
}

/** The migrations that a user asks to run: all without members, one version, or all up to one. */
export type MigrationSelection = { readonly version?: string | undefined; readonly toVersion?: string | undefined }

/**
 * The migrations that a run executes, in order. A failed one stops every run that would pass it, since later ones may
 * build on it; its row has to be set to `pending` first.
 *
 * @throws AppError 400 for versions that are not known, 409 for a version that cannot be run now and for failed ones
 */
export function selectRun(
  migrations: readonly Migration[],
  { version, toVersion }: MigrationSelection,
): readonly Runnable[] {
  if (version !== undefined && toVersion !== undefined)
    throw new AppError(400, 'version and toVersion exclude each other', { code: 'BAD_SELECTION' })
  for (const named of [version, toVersion])
    if (named !== undefined && !migrations.some(({ record }) => record.version === named)) throw unknown(named)
  if (version !== undefined) return [runnable(migrations.find(({ record }) => record.version === version)!)]
  const inRange = migrations.filter(
    ({ record }) => toVersion === undefined || compareVersions(record.version, toVersion) <= 0,
  )
  const failed = inRange.find(({ record }) => record.status === 'failed')
  if (failed !== undefined) throw notRunnable(failed)
  return inRange.filter(isRunnable)
}

export type Runnable = Migration & { readonly script: LoadedScript }

function isRunnable(migration: Migration): migration is Runnable {
  return runnableStates.has(migration.record.status) && migration.script !== undefined
}

/** @throws AppError 404 */
export function findMigration(migrations: readonly Migration[], version: string): Migration {
  const found = migrations.find(({ record }) => record.version === version)
  if (found === undefined) throw new AppError(404, 'Migration not found')
  return found
}

/** @throws AppError 409 when its state or a missing file stands against it */
export function runnable(migration: Migration): Runnable {
  if (!isRunnable(migration)) throw notRunnable(migration)
  return migration
}

/**
 * One whose changes may be there without a run: also one that has failed, such as by its rollback, even if its file is gone.
 *
 * @throws AppError 409 as {@link runnable}
 */
export function markable(migration: Migration): Migration {
  return migration.record.status === 'failed' ? migration : runnable(migration)
}

/** Those that have failed, in order, and keep all later ones from running. */
export async function failedMigrations(db: Reader): Promise<readonly Pick<MigrationRow, 'version' | 'errorMessage'>[]> {
  const rows = await storedRows(db)
  return rows.filter(({ status }) => status === 'failed').toSorted((a, b) => compareVersions(a.version, b.version))
}

/**
 * One that has failed, and which way it was going.
 *
 * @throws AppError 409 for one that has not failed, without its file, or of the program, which setup tries again
 */
export function retryable({ record, script }: Migration): Runnable & { readonly direction: RunDirection } {
  const { version, status, errorMessage, metadata } = record
  const direction = metadata.direction === 'down' ? 'down' : 'up'
  const problem =
    status !== 'failed'
      ? 'it has not failed'
      : script === undefined
        ? 'its file is missing'
        : script.isSystem
          ? 'it belongs to the program: setup runs it again'
          : direction === 'down' && script.down === undefined
            ? 'its rollback has failed, and it has no down function'
            : undefined
  if (problem === undefined) return { record, script: script!, direction }
  throw new AppError(409, `Migration ${version} cannot be retried: ${problem}`, {
    code: 'MIGRATION_NOT_RUNNABLE',
    details: { version, status, errorMessage },
  })
}

const runnableStates: ReadonlySet<MigrationStatus> = new Set(['pending', 'rolled_back'])

function isApplied({ status }: MigrationRecord): boolean {
  return status === 'completed'
}

function currentVersion(migrations: readonly Migration[]): string {
  return migrations.findLast(({ record }) => isApplied(record))?.record.version ?? '0.0.0'
}

function unknown(version: string): AppError {
  return new AppError(400, `Unknown migration version ${version}`, { code: 'UNKNOWN_MIGRATION_VERSION' })
}

const reasons: Readonly<Record<MigrationStatus, string>> = {
  pending: 'its file is missing',
  rolled_back: 'its file is missing',
  running: 'it is running',
  completed: 'it is completed',
  failed:
    'it has failed; when its cause is fixed, retry it by daybook migrate retry or set its status to pending, or mark it as completed where its changes are there',
  skipped: 'it is skipped',
}

const failedWithoutFile =
  'it has failed, and its file is missing; mark it as completed where its changes are there, or bring the file back and retry it by daybook migrate retry'

function notRunnable({ record, script }: Migration): AppError {
  const { version, status, errorMessage } = record
  const reason = status === 'failed' && script === undefined ? failedWithoutFile : reasons[status]
  return new AppError(409, `Migration ${version} cannot be run: ${reason}`, {
    code: 'MIGRATION_NOT_RUNNABLE',
    details: { version, status, errorMessage },
  })
}

/**
 * The file of a migration that was marked or taken as baseline counts as well: it is what was known to be applied. The program's own
 * scripts come with its version; what they make is looked at by the tests of that.
 */
function hasDrifted({ status, checksum }: MigrationRow, script: LoadedScript | undefined): boolean {
  if (script === undefined || script.isSystem) return false
  return status === 'completed' && checksum !== null && checksum !== script.checksum
}

function unseen({ version, name, description, type, checksum, down }: LoadedScript): MigrationRecord {
  return {
    id: null,
    version,
    name,
    description: description ?? null,
    type: type ?? 'upgrade',
    status: 'pending',
    batch: null,
    executedAt: null,
    executionTimeMs: null,
    errorMessage: null,
    errorStack: null,
    metadata: {},
    checksum,
    canRollback: down !== undefined,
    rolledBackAt: null,
    createdAt: null,
    updatedAt: null,
    drifted: false,
  }
}

/** Recorded with each of the program's own migrations: the version of the program that ran it. */
export const ranBy: Readonly<Record<string, string>> = { setUpBy: packageJson.version }

type MigrationStatus = 'pending' | 'running' | 'completed' | 'failed' | 'rolled_back' | 'skipped'
export type RunDirection = 'up' | 'down'

/** A row of svc_Migration. */
export type MigrationRow = {
  readonly id: string
  readonly version: string
  readonly name: string
  readonly description: string | null
  readonly type: MigrationType
  readonly status: MigrationStatus
  readonly batch: number | null
  readonly executedAt: Date | null
  readonly executionTimeMs: number | null
  readonly errorMessage: string | null
  readonly errorStack: string | null
  readonly metadata: Readonly<Record<string, unknown>>
  readonly checksum: string | null
  readonly canRollback: boolean
  readonly rolledBackAt: Date | null
  readonly createdAt: Date
  readonly updatedAt: Date
}

export async function hasMigrationTable(db: Reader): Promise<boolean> {
  const { exists } = await db.one<{ exists: boolean }>(sql`select to_regclass('"svc_Migration"') is not null as exists`)
  return exists
}

/** Every row, in no order. */
export function storedRows(db: Reader): Promise<readonly MigrationRow[]> {
  return db.any<MigrationRow>(sql`
    select id, version, name, description, type, status, batch, "executedAt", "executionTimeMs", "errorMessage", "errorStack",
           coalesce(metadata, '{}') as metadata, checksum, coalesce("canRollback", false) as "canRollback", "rolledBackAt",
           "createdAt", "updatedAt"
    from "svc_Migration"`)
}

export async function lastBatch(db: Reader): Promise<number> {
  const { batch } = await db.one<{ batch: number }>(sql`select coalesce(max(batch), 0) as batch from "svc_Migration"`)
  return batch
}

/** Records that a script begins to run. Of an earlier run only the metadata stays. */
export async function storeRunning(tx: Tx, script: LoadedScript, batch: number): Promise<void> {
  const { version, name, description, type, checksum, down } = script
  await tx.any(sql`
    insert into "svc_Migration" as m (version, name, description, type, status, batch, "executedAt", checksum, "canRollback")
    values (${version}, ${name}, ${description ?? null}, ${type ?? 'upgrade'}, 'running', ${batch}, now(), ${checksum}, ${down !== undefined})
    on conflict (version) do update set
      name = excluded.name, description = excluded.description, type = excluded.type, status = 'running', batch = excluded.batch,
      "executedAt" = now(), "executionTimeMs" = null, "errorMessage" = null, "errorStack" = null, checksum = excluded.checksum,
      "canRollback" = excluded."canRollback", "rolledBackAt" = null, "updatedAt" = now(), metadata = coalesce(m.metadata, '{}') - 'direction'`)
}

/** Says that a completed migration begins to be rolled back. */
export async function storeRollingBack(tx: Tx, version: string): Promise<void> {
  const direction = sql.jsonb({ direction: 'down' })
  await tx.any(sql`
    update "svc_Migration" set status = 'running', "updatedAt" = now(), metadata = coalesce(metadata, '{}') || ${direction}::jsonb
    where version = ${version}`)
}

export type Ending = {
  readonly status: 'completed' | 'rolled_back' | 'failed'
  readonly elapsedMs: number
  readonly metadata?: object
  readonly direction?: RunDirection
  readonly error?: Error
}

/** Says how a run has ended; its own metadata are added to what is there. Of one that has failed they say the direction. */
export async function storeEnding(tx: Tx, version: string, ending: Ending): Promise<void> {
  const { status, elapsedMs, metadata = {}, direction, error } = ending
  const message = error && (direction === 'down' ? `Its rollback has failed: ${error.message}` : error.message)
  await tx.any(sql`
    update "svc_Migration" set
      status = ${status}, "executionTimeMs" = ${Math.round(elapsedMs)},
      metadata = case when ${status} = 'failed' then coalesce(metadata, '{}') else coalesce(metadata, '{}') - 'direction' end || ${sql.jsonb(metadata)}::jsonb,
      "errorMessage" = ${message ?? null}, "errorStack" = ${error?.stack ?? null},
      "rolledBackAt" = case when ${status} = 'rolled_back' then now() end, "updatedAt" = now()
    where version = ${version}`)
}

/** Versions that are under way; they are not running when the lock of the runners is free. */
export async function runningVersions(
  db: Reader,
): Promise<readonly { version: string; direction: RunDirection | null }[]> {
  return db.any(sql`select version, metadata->>'direction' as direction from "svc_Migration" where status = 'running'`)
}

export async function storeInterrupted(tx: Tx, version: string, message: string): Promise<void> {
  await tx.any(sql`
    update "svc_Migration" set status = 'failed', "updatedAt" = now(), "errorMessage" = ${message}
    where version = ${version} and status = 'running'`)
}

/** Records a script as done without running it. It belongs to no batch, since nothing was run. */
export async function storeCompleted(tx: Tx, script: LoadedScript, metadata: object): Promise<void> {
  const { version, name, description, type, checksum, down } = script
  await tx.any(sql`
    insert into "svc_Migration" as m (version, name, description, type, status, metadata, checksum, "canRollback")
    values (${version}, ${name}, ${description ?? null}, ${type ?? 'upgrade'}, 'completed', ${sql.jsonb(metadata)},
            ${checksum}, ${down !== undefined})
    on conflict (version) do update set
      status = 'completed', metadata = (coalesce(m.metadata, '{}') - 'direction') || excluded.metadata, checksum = excluded.checksum,
      "canRollback" = excluded."canRollback", "rolledBackAt" = null, "errorMessage" = null, "errorStack" = null, "updatedAt" = now()`)
}

/** As {@link storeCompleted}, for one whose file is gone: there is nothing to roll it back by. */
export async function storeCompletedWithoutFile(tx: Tx, version: string, metadata: object): Promise<void> {
  await tx.any(sql`
    update "svc_Migration" set
      status = 'completed', metadata = (coalesce(metadata, '{}') - 'direction') || ${sql.jsonb(metadata)}::jsonb, "canRollback" = false,
      "rolledBackAt" = null, "errorMessage" = null, "errorStack" = null, "updatedAt" = now()
    where version = ${version}`)
}

/** The line in the table that says from which version an installation was upgraded; no script has this version. */
export async function storeBaseline(tx: Tx, version: string): Promise<void> {
  await tx.any(sql`
    insert into "svc_Migration" (version, name, description, type, status, metadata)
    values (${version}, 'baseline', 'Parts that the upgraded installation had already.', 'upgrade', 'completed',
            ${sql.jsonb({ baseline: version })})`)
}

/** The type of every column of the schema `public`, in PostgreSQL's words. */
export function columnTypes(db: Reader): Promise<readonly { table: string; column: string; type: string }[]> {
  return db.any(sql`
    select c.relname as table, a.attname as column, format_type(a.atttypid, a.atttypmod) as type
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped`)
}

/** Columns of which a validated check says that they are not null. */
export function checkedColumns(db: Reader): Promise<readonly { table: string; column: string }[]> {
  return db.any(sql`
    select c.relname as table, a.attname as column
    from pg_constraint k join pg_class c on c.oid = k.conrelid
    join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
    where k.contype = 'c' and k.convalidated and c.relnamespace = 'public'::regnamespace and cardinality(k.conkey) = 1
      and pg_get_expr(k.conbin, k.conrelid) = format('(%I IS NOT NULL)', a.attname)`)
}

export type LoadedScript = MigrationScript & {
  /** Path as a reader of messages knows it, from the working directory. */
  readonly file: string
  /** MD5 of the file, in hex. */
  readonly checksum: string
  /** Part of the program: run by setup, neither marked nor rolled back by users. */
  readonly isSystem: boolean
}

export const migrationTypes = ['upgrade', 'hotfix', 'schema', 'data', 'rollback'] as const

/** The program's own scripts. It is also what MIGRATIONS_DIR names by default in a checkout. */
const systemMigrationsDir = resolve(import.meta.dirname, '../../../../migrations')

/**
 * The program's scripts and those of MIGRATIONS_DIR, in the order of their versions. In the program's own folder the
 * files of releases, `0.y.z_….ts`, are the program's, everything else is the user's.
 *
 * @throws AppError 400 for a file that is no migration, 409 for two of the same version; both name the files
 */
export async function loadScripts(config: Config): Promise<readonly LoadedScript[]> {
  const dirs = new Set([systemMigrationsDir, resolve(config.migrations.dir)])
  const scripts = (await Promise.all([...dirs].map((dir) => loadDirectory(dir)))).flat()
  const ofVersion = Map.groupBy(scripts, ({ version }) => version)
  for (const [version, same] of ofVersion) if (same.length > 1) throw duplicate(version, same)
  return inOrder(scripts)
}

/** The program's alone: what users have written beside them cannot keep it from starting. */
export async function loadSystemScripts(): Promise<readonly LoadedScript[]> {
  return inOrder(await loadDirectory(systemMigrationsDir, isSystemFile))
}

/** Their versions, by the names of the files: nothing is loaded. */
export function systemVersions(): ReadonlySet<string> {
  return new Set(
    scriptsIn(systemMigrationsDir)
      .filter(isSystemFile)
      .map((file) => file.split('_')[0]!),
  )
}

/** `0.2.1_system_acls.ts` */
function isSystemFile(file: string): boolean {
  return isInitialRelease(file.split('_')[0]!)
}

function inOrder(scripts: readonly LoadedScript[]): readonly LoadedScript[] {
  return scripts.toSorted((a, b) => compareVersions(a.version, b.version))
}

async function loadDirectory(dir: string, isWanted = (_file: string) => true): Promise<readonly LoadedScript[]> {
  if (!existsSync(dir)) return []
  return Promise.all(
    scriptsIn(dir)
      .filter(isWanted)
      .map((file) => loadFile(dir, join(dir, file))),
  )
}

const scriptsIn = (dir: string): readonly string[] => readdirSync(dir).filter((file) => /(?<!\.d)\.(ts|js)$/.test(file))

async function loadFile(dir: string, path: string): Promise<LoadedScript> {
  const file = relative(process.cwd(), path)
  const content = readFileSync(path)
  const checksum = createHash('md5').update(content).digest('hex')
  // A module is evaluated once per address: with its hash in it a file that was changed is a new one.
  const address = `${pathToFileURL(path).href}?${checksum}`
  const exported = await import(/* @vite-ignore */ address).catch((error: Error) => {
    throw invalid(file, `cannot be loaded: ${error.message}`, error)
  })
  const problem = problemOf(exported)
  if (problem !== undefined) throw invalid(file, problem)
  const script = byDifference(exported as MigrationScript, content.toString())
  return { ...script, file, checksum, isSystem: dir === systemMigrationsDir && isSystemFile(basename(path)) }
}

/** The reason why a module is not a migration script; undefined for one that is. */
function problemOf(exported: Readonly<Record<string, unknown>>): string | undefined {
  const { version, name, description, type, transaction, up, down } = exported
  if (typeof version !== 'string' || !isVersion(version))
    return 'version must be a semantic version like 0.1.0-alpha.7 or a timestamp like 20241224_001_add_column'
  if (typeof name !== 'string' || name === '') return 'name must be a text'
  if (description !== undefined && typeof description !== 'string') return 'description must be a text'
  if (type !== undefined && !migrationTypes.some((known) => known === type))
    return `type must be one of ${migrationTypes.join(', ')}`
  if (transaction !== undefined && typeof transaction !== 'boolean') return 'transaction must be true or false'
  if (typeof up !== 'function') return 'up must be a function'
  return down === undefined || typeof down === 'function' ? undefined : 'down must be a function'
}

function invalid(file: string, problem: string, cause?: unknown): AppError {
  return new AppError(400, `Migration file ${file}: ${problem}`, { code: 'INVALID_MIGRATION_FILE', cause })
}

function duplicate(version: string, same: readonly LoadedScript[]): AppError {
  const files = same.map(({ file }) => file).sort()
  return new AppError(
    409,
    `Version ${version} is used by ${files.join(' and ')}: rename one with a more specific version`,
    {
      code: 'DUPLICATE_MIGRATION_VERSION',
      details: { version, files },
    },
  )
}
