import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import pg from 'pg'
import type { Logger } from 'pino'
import * as manager from '../catalog/manager.ts'
import type { Config } from '../config.ts'
import { type Actor, actorJson, systemActor } from '../events/types.ts'
import { directUrl, readerOf, sessionOptions, tlsOptions, withoutSslMode } from './pools.ts'
import { type Reader, rawQuery, sql, type Tx } from './sql.ts'

/** What a migration script exports (spec: Migration record). */
export type MigrationScript = {
  readonly version: string
  readonly name: string
  readonly description?: string
  readonly type?: 'upgrade' | 'hotfix' | 'schema' | 'data' | 'rollback'
  readonly up: (context: MigrationContext) => Promise<MigrationResult>
  readonly down?: (context: MigrationContext) => Promise<MigrationResult>
}

export type MigrationContext = {
  /** Readers and statements on the migration's transaction. */
  readonly db: Tx
  /** Runs SQL text with numbered parameters. */
  readonly sql: (text: string, values?: readonly unknown[]) => Promise<readonly unknown[]>
  /** Changes collections: definition and table together. */
  readonly schemaManager: typeof manager
  readonly env: Readonly<Record<string, string | undefined>>
  readonly log: (message: string) => void
}

export type MigrationResult = { readonly success: boolean; readonly message?: string; readonly metadata?: object }

/** One session past any pooler, for locks that outlive a transaction and for DDL. */
export type DirectSession = Reader & {
  transaction<T>(actor: Actor, work: (tx: Tx) => Promise<T>): Promise<T>
  close(): Promise<void>
}

/** Opens the session of a setup or a migration run; its statements are not bound by TRANSACTION_TIMEOUT_MS. */
export async function openDirectSession(config: Config): Promise<DirectSession> {
  const client = new pg.Client({
    connectionString: withoutSslMode(directUrl(config)),
    ssl: tlsOptions(config),
    application_name: 'daybook setup',
    options: sessionOptions(0, false),
  })
  // The next statement rejects; the event without a listener ends the process.
  client.on('error', () => undefined)
  await client.connect()
  const reader = readerOf((text, values) => client.query(text, values as unknown[]))
  const transaction = async <T>(actor: Actor, work: (tx: Tx) => Promise<T>): Promise<T> => {
    await client.query('begin')
    try {
      await client.query(`select set_config('svc.actor', $1, true)`, [actorJson(actor)])
      const result = await work({ ...reader, isTransaction: true })
      await client.query('commit')
      return result
    } catch (error) {
      await client.query('rollback')
      throw error
    }
  }
  return { ...reader, transaction, close: () => client.end() }
}

/** The scripts that make the system schema; they ship with the program and every setup runs the missing ones. */
export const systemMigrationsDir = resolve(import.meta.dirname, '../../migrations')

type LoadedScript = MigrationScript & { readonly checksum: string; readonly file: string }

/** Runs the system scripts that this database has not seen, each in one transaction with its record. */
export async function runSystemMigrations(session: DirectSession, log: Logger): Promise<readonly string[]> {
  const scripts = await loadScripts(systemMigrationsDir)
  const applied = await appliedVersions(session)
  const missing = scripts.filter((script) => !applied.has(script.version))
  for (const script of missing) {
    log.info({ version: script.version }, `migration ${script.name}`)
    await session.transaction({ ...systemActor, userAgent: `migration ${script.version}` }, (tx) =>
      runUp(tx, script, log),
    )
  }
  return missing.map((script) => script.version)
}

/** Versions of system scripts that are not completed in this database; empty when the schema is up to date. */
export async function pendingSystemMigrations(db: Reader): Promise<readonly string[]> {
  const applied = await appliedVersions(db)
  return (await loadScripts(systemMigrationsDir))
    .map((script) => script.version)
    .filter((version) => !applied.has(version))
}

async function loadScripts(dir: string): Promise<readonly LoadedScript[]> {
  const files = readdirSync(dir).filter((file) => /\.(ts|js)$/.test(file))
  const scripts = await Promise.all(
    files.map(async (file) => {
      const path = join(dir, file)
      const script = (await import(pathToFileURL(path).href)) as MigrationScript
      return { ...script, file, checksum: createHash('md5').update(readFileSync(path)).digest('hex') }
    }),
  )
  return scripts.sort((a, b) => a.version.localeCompare(b.version, 'en', { numeric: true }))
}

async function appliedVersions(db: Reader): Promise<ReadonlySet<string>> {
  const { exists } = await db.one<{ exists: boolean }>(
    sql.unsafe`select to_regclass('"svc_Migration"') is not null as exists`,
  )
  if (!exists) return new Set()
  const rows = await db.any<{ version: string }>(
    sql.unsafe`select version from "svc_Migration" where status = 'completed'`,
  )
  return new Set(rows.map((row) => row.version))
}

async function runUp(tx: Tx, script: LoadedScript, log: Logger): Promise<void> {
  const started = performance.now()
  const result = await script.up({
    db: tx,
    sql: (text, values) => tx.any(rawQuery(text, values)),
    schemaManager: manager,
    env: {},
    log: (message) => log.info({ version: script.version }, message),
  })
  if (!result.success) throw new Error(`migration ${script.version} failed: ${result.message ?? 'no message'}`)
  const elapsed = Math.round(performance.now() - started)
  await tx.any(sql.unsafe`
    insert into "svc_Migration" (version, name, description, type, status, batch, "executedAt", "executionTimeMs", metadata, checksum, "canRollback")
    values (${script.version}, ${script.name}, ${script.description ?? null}, ${script.type ?? 'upgrade'}, 'completed',
            (select coalesce(max(batch), 0) + 1 from "svc_Migration"), now(), ${elapsed},
            ${sql.jsonb((result.metadata ?? {}) as never)}, ${script.checksum}, ${script.down !== undefined})`)
}
