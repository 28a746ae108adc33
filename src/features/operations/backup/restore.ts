/** Making an installation of a backup, in an empty database, in one transaction: all of it is there, or nothing. */
import { text } from 'node:stream/consumers'
import { logKeys } from '../../../adapters/log-key.ts'
import { compareVersions } from '../../../adapters/version-order.ts'
import { logSchema } from '../../../catalog/log-triggers.ts'
import { copyIn } from '../../../db/copy.ts'
import { type PgClient, readerOf } from '../../../db/pools.ts'
import { onSoleConnection } from '../../../db/sole-connection.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { holdEffects, holdTableSql } from '../../../db/unlogged/holds.ts'
import { AppError } from '../../../errors.ts'
import { beginChainAnew } from '../../../events/seals/seals.ts'
import { actorJson, systemActor } from '../../../events/types.ts'
import { isPartlyDeveloped, newestSystemVersion } from '../../data/migrations/migrations.ts'
import type { StorageServices } from '../../files/storage/storage.ts'
import { type BackedUpContent, type SequencePlace, setSequenceSql, writeContent } from './contents.ts'
import type { DatabaseDefinition } from './definition.ts'
import {
  type BackupHeader,
  fingerprintOf,
  type Keys,
  openKeys,
  openReader,
  type Pieces,
  type ReadPart,
} from './format.ts'
import type { BackupHost } from './moment.ts'
import { readPlace } from './place.ts'

export type RestoreOptions = {
  /** Restores with another SECRET_KEY than the one that sealed what is sealed in the backup. */
  readonly otherKey?: boolean
  /** Opens the keys in the backup, and gives them to `takeKeys` before anything is restored. */
  readonly passphrase?: string | undefined
  readonly takeKeys?: (keys: Keys) => Promise<void>
  /** No mail, webhook, schedule, workflow or task runs until `resumeEffects`: for a copy of an installation. */
  readonly hold?: boolean
  /** The storage services that hold the backup; by default those of `host`. */
  readonly from?: StorageServices
  /** Everybody has to sign in again. */
  readonly endSessions?: boolean
}

export type RestoreResult = {
  readonly header: BackupHeader
  readonly rows: number
  readonly files: number
  /** The differences from the backup, in words. */
  readonly notes: readonly string[]
}

export type RestoreProgress = (step: 'tables' | 'indexes' | 'files', done: string) => void

type Statements = DatabaseDefinition & {
  readonly tables: readonly { readonly name: string; readonly copyIn: string }[]
}

/**
 * Restores a backup into the database of the configuration, which must be empty; setup then brings it to this program's
 * version. Content of files goes to the storage services that rows name.
 *
 * @throws {AppError} 409 where the place is not empty or something is missing there, 422 for a backup that is not whole
 */
export async function restoreBackup(
  host: BackupHost,
  place: string,
  options: RestoreOptions = {},
  progress: RestoreProgress = () => undefined,
): Promise<RestoreResult> {
  const source = await readPlace(options.from ?? host, place)
  try {
    return await restoreFrom(host, source, options, progress)
  } finally {
    source.destroy()
  }
}

async function restoreFrom(
  host: BackupHost,
  source: Pieces,
  options: RestoreOptions,
  progress: RestoreProgress,
): Promise<RestoreResult> {
  const { header: read, parts } = await openReader(source)
  const header = read as unknown as BackupHeader
  await judge(host, header, options)
  const restored = await onSoleConnection(
    host.config,
    'restore',
    (client) => inTransaction(client, (db) => restoreParts(host, client, db, { parts: parts(), options, progress })),
    { writes: true },
  )
  return { header, ...restored }
}

/** Finds problems of the result before anything is done. */
async function judge(
  { config, storages }: BackupHost,
  header: BackupHeader,
  { otherKey, takeKeys }: RestoreOptions,
): Promise<void> {
  const newest = await newestSystemVersion()
  const { migration } = header
  if (migration !== undefined && isPartlyDeveloped(migration))
    throw new AppError(
      409,
      `The backup was made by an early development version, whose database is at ${migration}: restore it with that version, set the database up with the last development version, and back it up again`,
    )
  if (migration !== undefined && compareVersions(migration, newest) > 0)
    throw new AppError(
      409,
      `The backup was made by version ${header.program}, whose database is at ${migration}; this program knows ${newest}: use that version or a later one`,
    )
  // 503 for one that is missing here.
  for (const { name } of header.storages) storages.holding(name)
  // An operator who takes the keys will use them.
  if (otherKey || header.key === null || (header.hasKeys && takeKeys !== undefined)) return
  const known = [config.auth.secretKey, config.auth.secretKeyPrevious].filter((key) => key !== undefined && key !== '')
  if (known.some((key) => fingerprintOf(key!) === header.key)) return
  const lost =
    header.sealed.map(({ what, count }) => `${count} ${what}`).join(', ') || 'any session; no stored value is sealed'
  throw new AppError(
    409,
    `The backup was made with another SECRET_KEY (${header.key}), and the present one cannot open: ${lost}. Set that SECRET_KEY, or name it as SECRET_KEY_PREVIOUS${header.hasKeys ? ', take the one in the backup with --keys-to FILE and the passphrase' : ''}, or restore with --other-key`,
    { code: 'OTHER_KEY' },
  )
}

async function inTransaction<T>(client: PgClient, work: (db: Tx) => Promise<T>): Promise<T> {
  const reader = readerOf((statement, values) => client.query(statement, values as unknown[]))
  await client.query('begin')
  try {
    const result = await work({ ...reader, isTransaction: true })
    await client.query('commit')
    return result
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  }
}

const settings = {
  // Functions may name what comes after them; views and defaults have full names.
  check_function_bodies: 'off',
  search_path: 'public, pg_temp',
  datestyle: 'ISO',
  intervalstyle: 'postgres',
  row_security: 'off',
  client_min_messages: 'warning',
  maintenance_work_mem: '128MB',
  jit: 'off',
}

type Restoring = {
  readonly parts: AsyncIterable<ReadPart>
  readonly options: RestoreOptions
  readonly progress: RestoreProgress
}

async function restoreParts(
  host: BackupHost,
  client: PgClient,
  db: Tx,
  { parts, options, progress }: Restoring,
): Promise<Omit<RestoreResult, 'header'>> {
  for (const [name, value] of Object.entries(settings))
    await client.query('select set_config($1, $2, true)', [name, value])
  await requireEmpty(db)
  const notes: string[] = []
  let statements: Statements | undefined
  let rows = 0
  let files = 0
  for await (const { about, content } of parts) {
    switch (about.kind) {
      case 'keys':
        if (options.takeKeys !== undefined)
          await options.takeKeys(await openKeys(await textOf(content), options.passphrase ?? ''))
        break
      case 'schema': {
        statements = JSON.parse(await textOf(content)) as Statements
        await makeTables(client, statements)
        break
      }
      case 'table': {
        const table = statements?.tables.find(({ name }) => name === about.name)
        if (table === undefined) throw unexpected(about.name)
        rows += await copyIn(client, table.copyIn, content)
        progress('tables', about.name)
        break
      }
      case 'sequences': {
        if (statements === undefined) throw unexpected('sequences')
        const places = JSON.parse(await textOf(content)) as SequencePlace[]
        for (const place of places) await client.query(setSequenceSql(place))
        await finishTables(client, statements, (statement) => progress('indexes', statement))
        notes.push(...(await grant(db, statements)))
        break
      }
      case 'file':
        await writeContent(host, about as unknown as BackedUpContent, content)
        files += 1
        progress('files', about.name)
        break
      default:
        break
    }
  }
  // The parts have ended with a trailer that fits: the backup was whole.
  if (statements === undefined) throw unexpected('nothing')
  await makeAnew(host, db, options)
  return { rows, files, notes }
}

/** Changes the parts that must differ: the lineage of the history, and the options for a copy. */
async function makeAnew({ config }: BackupHost, db: Tx, { hold, endSessions }: RestoreOptions): Promise<void> {
  const has = async (table: string) =>
    (await db.one<{ there: boolean }>(rawQuery('select to_regclass($1) is not null as there', [table]))).there
  await db.any(rawQuery(`select set_config('svc.actor', $1, true)`, [actorJson(systemActor)]))
  if (await has(`${logSchema}.lineage`))
    await db.any(rawQuery(`update ${logSchema}.lineage set id = gen_random_uuid()`))
  const { keys } = logKeys(config)
  if (keys !== undefined && (await has(`${logSchema}.seal_state`))) await beginChainAnew(db, keys, 'seals')
  if (endSessions && (await has('public."svc_Sessions"'))) await db.any(rawQuery('delete from public."svc_Sessions"'))
  if (!hold) return
  await db.any(rawQuery(holdTableSql))
  await holdEffects(db)
}

const textOf = (content: Pieces): Promise<string> => text(content as never)

const unexpected = (name: string) =>
  new AppError(422, `The backup cannot be used: ${name} comes before its table`, { code: 'BACKUP_BROKEN' })

const ownedSql = `select count(*)::int as count, min(c.oid::regclass::text) as first from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and c.relkind in ('r', 'p', 'v', 'm', 'S')
    and pg_has_role(c.relowner, 'usage') and not exists (
      select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')`

/** Keeps other processes from setting the database up, or restoring into it, meanwhile. */
async function requireEmpty(db: Reader): Promise<void> {
  const { free } = await db.one<{ free: boolean }>(
    rawQuery(`select pg_try_advisory_xact_lock(hashtext('daybook setup')) as free`),
  )
  if (!free) throw new AppError(409, 'The database is being set up, or restored, by another process')
  const { count, first } = await db.one<{ count: number; first: string | null }>(rawQuery(ownedSql))
  if (count > 0)
    throw new AppError(
      409,
      `A backup is restored into an empty database, and this one has ${count} tables, such as ${first}`,
      {
        code: 'NOT_EMPTY',
      },
    )
}

async function makeTables(client: PgClient, { extensions, before }: Statements): Promise<void> {
  for (const { name, schema } of extensions) {
    await client.query(`create schema if not exists ${schema}`)
    await client.query(`create extension if not exists ${name} with schema ${schema}`)
  }
  const { rows } = await client.query<{ name: string }>(`select quote_ident(nspname) as name from pg_namespace`)
  const there = new Set(rows.map(({ name }) => `create schema ${name}`))
  for (const statement of before) if (!there.has(statement)) await run(client, statement)
}

async function finishTables(client: PgClient, { after }: Statements, told: (statement: string) => void): Promise<void> {
  for (const statement of after) {
    await run(client, statement)
    told(statement)
  }
}

/** The statement is the reader's only hint at what it is about. */
async function run(client: PgClient, statement: string): Promise<void> {
  try {
    await client.query(statement)
  } catch (error) {
    throw new AppError(409, `The server refuses a statement of the backup: ${(error as Error).message}`, {
      code: 'RESTORE_REFUSED',
      details: statement.slice(0, 300),
      cause: error,
    })
  }
}

/** Of roles that are here; the others are named. */
async function grant(db: Tx, { grants }: Statements): Promise<readonly string[]> {
  const found = await db.any<{ role: string }>(rawQuery('select quote_ident(rolname) as role from pg_roles'))
  const roles = new Set(['public', ...found.map(({ role }) => role)])
  for (const { role, statement } of grants) if (roles.has(role)) await db.any(rawQuery(statement))
  const missing = new Set(grants.flatMap(({ role }) => (roles.has(role) ? [] : [role])))
  return [...missing].map((role) => `the role ${role} is not here, and has been granted nothing`)
}
