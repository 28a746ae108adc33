import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import type { MigrationType } from '../../../events/direct-session.ts'
import type { LoadedScript } from './scripts.ts'

export type MigrationStatus = 'pending' | 'running' | 'completed' | 'failed' | 'rolled_back' | 'skipped'
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
  const { exists } = await db.one<{ exists: boolean }>(
    sql.unsafe`select to_regclass('"svc_Migration"') is not null as exists`,
  )
  return exists
}

/** Every row, in no order. */
export function storedRows(db: Reader): Promise<readonly MigrationRow[]> {
  return db.any<MigrationRow>(sql.unsafe`
    select id, version, name, description, type, status, batch, "executedAt", "executionTimeMs", "errorMessage", "errorStack",
           coalesce(metadata, '{}') as metadata, checksum, coalesce("canRollback", false) as "canRollback", "rolledBackAt",
           "createdAt", "updatedAt"
    from "svc_Migration"`)
}

export async function lastBatch(db: Reader): Promise<number> {
  const { batch } = await db.one<{ batch: number }>(
    sql.unsafe`select coalesce(max(batch), 0) as batch from "svc_Migration"`,
  )
  return batch
}

/** Records that a script begins to run. Of an earlier run only the metadata stays. */
export async function storeRunning(tx: Tx, script: LoadedScript, batch: number): Promise<void> {
  const { version, name, description, type, checksum, down } = script
  await tx.any(sql.unsafe`
    insert into "svc_Migration" as m (version, name, description, type, status, batch, "executedAt", checksum, "canRollback")
    values (${version}, ${name}, ${description ?? null}, ${type ?? 'upgrade'}, 'running', ${batch}, now(), ${checksum}, ${down !== undefined})
    on conflict (version) do update set
      name = excluded.name, description = excluded.description, type = excluded.type, status = 'running', batch = excluded.batch,
      "executedAt" = now(), "executionTimeMs" = null, "errorMessage" = null, "errorStack" = null, checksum = excluded.checksum,
      "canRollback" = excluded."canRollback", "rolledBackAt" = null, "updatedAt" = now()`)
}

/** Says that a completed migration begins to be rolled back. */
export async function storeRollingBack(tx: Tx, version: string): Promise<void> {
  const direction = sql.jsonb({ direction: 'down' })
  await tx.any(sql.unsafe`
    update "svc_Migration" set status = 'running', "updatedAt" = now(), metadata = coalesce(metadata, '{}') || ${direction}::jsonb
    where version = ${version}`)
}

export type Ending = {
  readonly status: 'completed' | 'rolled_back' | 'failed'
  readonly elapsedMs: number
  readonly metadata?: object
  readonly error?: Error
}

/** Says how a run has ended; its own metadata are added to what is there. */
export async function storeEnding(tx: Tx, version: string, ending: Ending): Promise<void> {
  const { status, elapsedMs, metadata = {}, error } = ending
  await tx.any(sql.unsafe`
    update "svc_Migration" set
      status = ${status}, "executionTimeMs" = ${Math.round(elapsedMs)},
      metadata = (coalesce(metadata, '{}') - 'direction') || ${sql.jsonb(metadata as never)}::jsonb,
      "errorMessage" = ${error?.message ?? null}, "errorStack" = ${error?.stack ?? null},
      "rolledBackAt" = case when ${status} = 'rolled_back' then now() end, "updatedAt" = now()
    where version = ${version}`)
}

/** Versions that are under way; nobody runs them when the lock of the runners is free. */
export async function runningVersions(
  db: Reader,
): Promise<readonly { version: string; direction: RunDirection | null }[]> {
  return db.any(
    sql.unsafe`select version, metadata->>'direction' as direction from "svc_Migration" where status = 'running'`,
  )
}

export async function storeInterrupted(tx: Tx, version: string, message: string): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_Migration" set status = 'failed', "updatedAt" = now(), "errorMessage" = ${message}, metadata = coalesce(metadata, '{}') - 'direction'
    where version = ${version} and status = 'running'`)
}

/** Records a script as done without running it. It belongs to no batch, since nothing was run. */
export async function storeCompleted(tx: Tx, script: LoadedScript, metadata: object): Promise<void> {
  const { version, name, description, type, checksum, down } = script
  await tx.any(sql.unsafe`
    insert into "svc_Migration" as m (version, name, description, type, status, metadata, checksum, "canRollback")
    values (${version}, ${name}, ${description ?? null}, ${type ?? 'upgrade'}, 'completed', ${sql.jsonb(metadata as never)},
            ${checksum}, ${down !== undefined})
    on conflict (version) do update set
      status = 'completed', metadata = coalesce(m.metadata, '{}') || excluded.metadata, checksum = excluded.checksum,
      "canRollback" = excluded."canRollback", "rolledBackAt" = null, "errorMessage" = null, "errorStack" = null, "updatedAt" = now()`)
}

/** The line in the table that says from which version an installation was upgraded; no script has this version. */
export async function storeBaseline(tx: Tx, version: string): Promise<void> {
  await tx.any(sql.unsafe`
    insert into "svc_Migration" (version, name, description, type, status, metadata)
    values (${version}, 'baseline', 'Parts that the upgraded installation had already.', 'upgrade', 'completed',
            ${sql.jsonb({ baseline: version })})`)
}

/** The type of every column of the schema `public`, in PostgreSQL's words. */
export function columnTypes(db: Reader): Promise<readonly { table: string; column: string; type: string }[]> {
  return db.any(sql.unsafe`
    select c.relname as table, a.attname as column, format_type(a.atttypid, a.atttypmod) as type
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped`)
}

/** Columns of which a validated check says that they are not null. */
export function checkedColumns(db: Reader): Promise<readonly { table: string; column: string }[]> {
  return db.any(sql.unsafe`
    select c.relname as table, a.attname as column
    from pg_constraint k join pg_class c on c.oid = k.conrelid
    join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
    where k.contype = 'c' and k.convalidated and c.relnamespace = 'public'::regnamespace and cardinality(k.conkey) = 1
      and pg_get_expr(k.conbin, k.conrelid) = format('(%I IS NOT NULL)', a.attname)`)
}
