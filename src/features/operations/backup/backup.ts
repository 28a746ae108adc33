/* Backups of an installation: the public face of this folder. */
import { randomUUID } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { logKeys } from '../../../adapters/log-key.ts'
import { compareVersions } from '../../../adapters/version-order.ts'
import { logSchema } from '../../../catalog/log-triggers.ts'
import { type Config, keptSecretKey, secretKeyFile } from '../../../config/config.ts'
import { copyIn, copyOut } from '../../../db/copy.ts'
import { sqlState } from '../../../db/errors.ts'
import { readSetupFacts, unfitness } from '../../../db/needs.ts'
import { type PgClient, type Reads, readerOn } from '../../../db/pools.ts'
import { onSoleConnection } from '../../../db/sole-connection.ts'
import { type Reader, rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import { holdEffects, holdTableSql, lastBackup, noteBackup, noteBackupEnd } from '../../../db/unlogged/holds.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { beginChainAnew } from '../../../events/seals/seals.ts'
import { actorJson, type DomainEvent, systemActor } from '../../../events/types.ts'
import { isPartlyDeveloped, newestSystemVersion } from '../../data/migrations/migrations.ts'
import { backupsFolder, type Storage, type StorageServices } from '../../files/storage/storage.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import {
  type BackedUpContent,
  contentsIn,
  copiedTables,
  isText,
  readContent,
  type SequencePlace,
  sequencePlaces,
  setSequenceSql,
  writeContent,
} from './contents.ts'
import { type DatabaseDefinition, definitionOf, notesOf } from './definition.ts'
import {
  type BackupHeader,
  fingerprintOf,
  headerOf,
  type Keys,
  keysOf,
  openKeys,
  openReader,
  openWriter,
  type Pieces,
  type ReadPart,
  sealKeys,
} from './format.ts'
import { type BackupHost, type BackupMoment, inOneMoment, withContentHeld } from './moment.ts'
import { type Objects, readObjects } from './objects.ts'
import { openDraft, readPlace } from './place.ts'

export { resumeEffects } from '../../../db/unlogged/holds.ts'
export type { Keys } from './format.ts'
export type { BackupHost } from './moment.ts'
export { type PartReport, type RestoredFrom, restoreCollection, restoreTenant } from './part.ts'
export { exportTenant } from './tenant-export.ts'

// Backups that are made by themselves: by a worker, or by setup before it migrates.

/** In the order of their times, which are in their names. */
const prefix = `${backupsFolder}daybook-`
const newPlace = (): string => `${prefix}${new Date().toISOString().replaceAll(/[:.]/g, '-')}.backup`

/** A job: makes a backup, and then removes those that are more than BACKUP_KEEP. One that has outlived its schedule ends. */
export async function makeScheduledBackup(deps: BackupHost & UnloggedWrites): Promise<void> {
  if (deps.config.backup.schedule === undefined)
    return deps.log.info('no backup was made: its job was left from a BACKUP_SCHEDULE that is not set any more')
  const storage = storageOf(deps)
  const [id, key] = [randomUUID(), newPlace()]
  const place = `${storage.name}://${key}`
  await noteBackup(deps, id, place)
  try {
    const { bytes, notes } = await writeBackup(deps, place, { passphrase: deps.config.backup.passphrase })
    await noteBackupEnd(deps, id, { bytes })
    deps.log.info({ place, bytes, notes }, 'a backup was made')
  } catch (error) {
    await noteBackupEnd(deps, id, { error: (error as Error).message.slice(0, 1000) })
    throw error
  }
  await removeOld(deps, storage)
}

/** Before a database of an earlier version is migrated; gives the place. */
export async function backUpBeforeUpgrade(host: BackupHost, pending: readonly string[]): Promise<string> {
  const place = `${storageOf(host).name}://${backupsFolder}before-${pending.at(-1)}-${new Date().toISOString().replaceAll(/[:.]/g, '-')}.backup`
  await writeBackup(host, place, { passphrase: host.config.backup.passphrase })
  return place
}

function storageOf({ config, storages }: BackupHost): Storage {
  const { storage } = config.backup
  if (storage === undefined) throw new AppError(503, 'BACKUP_STORAGE names no storage service')
  return storages.holding(storage)
}

const partialsLiveMs = 86_400_000

/** Whole ones by their number; what a killed process has left, after a day. */
async function removeOld({ config, log }: BackupHost, storage: Storage): Promise<void> {
  const whole: string[] = []
  for await (const { key, modifiedAt } of storage.list(prefix))
    if (key.endsWith('.backup')) whole.push(key)
    else if (Date.now() - modifiedAt.getTime() > partialsLiveMs) await storage.delete(key)
  const old = whole.sort().toReversed().slice(config.backup.keep)
  for (const key of old) await storage.delete(key)
  if (old.length > 0) log.info({ removed: old }, 'old backups were removed')
}

const subject = 'The last backup is old'

/** A job: tells administrators, once a day, where backups are wanted and none was made for too long. */
export async function watchBackups(deps: Writes & Reads): Promise<void> {
  const { schedule, maxAgeHours } = deps.config.backup
  if (schedule === undefined) return
  const { hours, sinceHours, error } = await lastBackup(deps.db)
  const age = hours ?? sinceHours ?? 0
  if (age <= maxAgeHours) return
  deps.log.error({ hours: age, reason: error }, 'the last backup is old')
  const said = hours === null ? 'No backup has succeeded yet' : `The last backup is ${Math.round(age)} hours old`
  const message = `${said}. ${error === null ? '' : `The last attempt has failed: ${error}. `}Run npx daybook doctor, and see that the worker log-cleanup runs.`
  await commit(deps, systemActor, async (tx) => ({ result: null, events: await tellAdministrators(tx, message) }))
}

const toTellSql = `select u.id, u.email from "svc_User" u where u.status = 'active' and exists (
    select from "svc_UserRole" ur join "svc_Role" r on r.id = ur."role_Id" where ur."user_Id" = u.id and r.name = 'administrator')
  and not exists (select from "svc_EmailLog" m where m.subject = $1 and m."createdAt" > now() - interval '23 hours') limit 20`

async function tellAdministrators(tx: Tx, message: string): Promise<readonly DomainEvent[]> {
  const events: DomainEvent[] = []
  for (const { id, email } of await tx.any<{ id: string; email: string }>(rawQuery(toTellSql, [subject]))) {
    const variables = { notification_title: subject, notification_message: message, action_url: '', action_text: '' }
    const mail = {
      type: 'custom' as const,
      to: email,
      user: { id },
      subject,
      context: { template: 'notification', variables },
    }
    events.push((await queueMail(tx, mail)).event)
  }
  return events
}

/**
 * Backups of an installation: everything that is in its database, and the content of its files, as of one moment
 * (docs/decisions/0062-one-format-of-backups.md).
 */

type BackupResult = {
  readonly header: BackupHeader
  readonly parts: number
  /** Of the backup itself. */
  readonly bytes: number
  readonly files: number
  /** Whether it was read again and found to be what was written. */
  readonly verified: boolean
  /** The omitted parts, in words. */
  readonly notes: readonly string[]
}

/** How far it is: bytes of the tables, then of the files, of about so many. */
type BackupProgress = (step: 'tables' | 'files' | 'verifying', bytes: number, ofBytes: number | undefined) => void

type BackupOptions = {
  /** With it the keys are in the backup, and open with nothing else. */
  readonly passphrase?: string | undefined
  readonly progress?: BackupProgress
}

/**
 * Writes a backup of the installation to a file, a storage service (`name://backups/key`) or standard output (`-`), while everything
 * runs. Nothing has the name before all of it is there, on the disk, and was read again.
 *
 * @throws {AppError} 422 with a list, where the database has objects that a backup cannot hold, 400 or 409 where none may be at the place
 */
export async function writeBackup(
  host: BackupHost,
  place: string,
  { passphrase, progress = () => undefined }: BackupOptions = {},
): Promise<BackupResult> {
  const id = randomUUID()
  const draft = await openDraft(host, place)
  let bytes = 0
  const writer = openWriter(async (piece) => {
    bytes += piece.length
    await draft.write(piece)
  })
  try {
    const { header, notes, files } = await withContentHeld(host, id, () =>
      inOneMoment(host, (moment) => writeParts(host, moment, writer, { id, passphrase, progress })),
    )
    await writer.end()
    await draft.finish()
    if (draft.readAgain !== undefined)
      await verify(await draft.readAgain(), (read) => progress('verifying', read, bytes))
    await draft.keep()
    return { header, parts: writer.parts().length, bytes, files, verified: draft.readAgain !== undefined, notes }
  } catch (error) {
    await draft
      .discard()
      .catch((left: unknown) => host.log.warn({ err: left }, 'an unfinished backup could not be removed'))
    throw error
  }
}

/**
 * Reads a backup to its end and gives its header.
 *
 * @throws {AppError} 422 for one that is not whole
 */
async function verify(source: Pieces, onBytes: (bytes: number) => void = () => undefined): Promise<BackupHeader> {
  const counted = async function* () {
    for await (const piece of source) {
      onBytes(piece.length)
      yield piece
    }
  }
  const { header, parts } = await openReader(counted())
  for await (const _part of parts());
  return header as never
}

type Writing = { readonly id: string; readonly passphrase: string | undefined; readonly progress: BackupProgress }

async function writeParts(
  host: BackupHost,
  moment: BackupMoment,
  writer: ReturnType<typeof openWriter>,
  { id, passphrase, progress }: Writing,
) {
  const { client, db } = moment
  const objects = await readObjects(db)
  refuse(objects)
  const definition = definitionOf(objects)
  const tables = await copiedTables(db, objects)
  const header = await headerOf(host, db, objects, { id, hasKeys: passphrase !== undefined })
  await writer.begin(header)
  if (passphrase !== undefined)
    await writer.part({ kind: 'keys', name: 'keys' }, 'none', [
      Buffer.from(await sealKeys(keysOf(host.config), passphrase)),
    ])
  const statements = { ...definition, tables: tables.map(({ name, copyIn }) => ({ name, copyIn })) }
  await writer.part({ kind: 'schema', name: 'database' }, 'zstd', [Buffer.from(JSON.stringify(statements))])
  const all = tables.reduce((sum, { bytes }) => sum + bytes, 0)
  let read = 0
  for (const { name, copyOut: statement } of tables)
    await writer.part({ kind: 'table', name }, 'zstd', copyOut(client, statement), (bytes) => {
      read += bytes
      progress('tables', read, all)
    })
  const places = await sequencePlaces(db, objects)
  await writer.part({ kind: 'sequences', name: 'sequences' }, 'none', [Buffer.from(JSON.stringify(places))])
  // From here on tables may change.
  await moment.endOfRows()
  const notes = [...notesOf(objects)]
  const files = await writeContents(host, moment.files, writer, { notes, progress })
  return { header, notes, files }
}

function refuse({ refused }: Objects): void {
  if (refused.length > 0)
    throw new AppError(422, `A backup cannot hold these objects of the database: ${refused.join('; ')}`, {
      code: 'NOT_IN_BACKUPS',
    })
}

type WriteReporting = { readonly notes: string[]; readonly progress: BackupProgress }

async function writeContents(
  host: BackupHost,
  client: PgClient,
  writer: ReturnType<typeof openWriter>,
  { notes, progress }: WriteReporting,
): Promise<number> {
  const all = Number(
    (await client.query('select coalesce(sum(size), 0)::float8 as bytes from "public"."svc_File"')).rows[0].bytes,
  )
  let read = 0
  let files = 0
  for await (const stored of contentsIn(client)) {
    const content = await readContent(host, stored)
    if (content === undefined) {
      const { storage, key } = stored.places[0]!
      notes.push(`the content of ${storage} ${key} is missing`)
      continue
    }
    const { hash, size, places } = stored
    const about = { kind: 'file' as const, name: hash ?? places[0]!.key, hash, size, places }
    const encoding = isText(stored) ? 'zstd' : 'none'
    await writer.part(about, encoding, content, (bytes) => {
      read += bytes
      progress('files', read, all)
    })
    const { sha256 } = writer.parts().at(-1)!
    if (encoding === 'none' && hash !== null && sha256 !== hash)
      notes.push(`the content of ${places[0]!.storage} ${places[0]!.key} is not the one that its row names`)
    files += 1
  }
  return files
}

/** Making an installation of a backup, in an empty database, in one transaction: all of it is there, or nothing. */

type RestoreOptions = {
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

type RestoreResult = {
  readonly header: BackupHeader
  readonly rows: number
  readonly files: number
  /** The differences from the backup, in words. */
  readonly notes: readonly string[]
}

type RestoreProgress = (step: 'tables' | 'indexes' | 'files', done: string) => void

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
  const { secretKey, secretKeyPrevious } = config.auth
  const keys = [secretKey, secretKeyPrevious].filter((key) => key !== undefined && key !== '')
  const known = new Set(keys.map((key) => fingerprintOf(key!)))
  const { key, formerKey, hasKeys } = header
  // Earlier backups name no former key.
  const [hasKey, hasFormer] = [known.has(key), formerKey === undefined || known.has(formerKey)]
  if (hasKey && hasFormer) return
  const lost =
    lostOf(header, { hasKey, hasFormer })
      .map(({ what, count }) => `${count} ${what}`)
      .join(', ') || 'any session (every stored value can be read)'
  const fromBackup = hasKeys ? ', take the one in the backup with --keys-to FILE and the passphrase' : ''
  if (hasKey)
    throw new AppError(
      409,
      `The backup has values that only an earlier SECRET_KEY (${formerKey}) opens: ${lost}. Name it as SECRET_KEY_PREVIOUS, beside the SECRET_KEY that the backup was made with${fromBackup}, or restore with --other-key`,
      { code: 'OTHER_KEY' },
    )
  throw new AppError(
    409,
    `The backup was made with another SECRET_KEY (${key}), and the present one cannot open: ${lost}. Set that SECRET_KEY (where .env has none, npm start keeps it in .daybook/secret-key), or name it as SECRET_KEY_PREVIOUS${fromBackup}, or restore with --other-key`,
    { code: 'OTHER_KEY' },
  )
}

/** The values that the keys here do not open. */
function lostOf({ sealed }: BackupHeader, { hasKey, hasFormer }: { hasKey: boolean; hasFormer: boolean }) {
  return sealed
    .map(({ what, count, former = 0 }) => ({ what, count: (hasKey ? 0 : count - former) + (hasFormer ? 0 : former) }))
    .filter(({ count }) => count > 0)
}

/** The variables to keep apart from a backup that does not open without them, in words; undefined where none is needed. */
export function keysToKeep({ sealed, hasKeys, formerKey }: BackupHeader, config: Config): string | undefined {
  if (sealed.length === 0 || hasKeys) return undefined
  const { auth, database } = config
  const isKept = auth.secretKey === keptSecretKey(database.dataDir)
  const place = isKept ? `. SECRET_KEY is in ${secretKeyFile(database.dataDir)}` : ''
  return formerKey === undefined
    ? `Keep SECRET_KEY as well: what is sealed in the backup opens with it alone${place}`
    : `Keep SECRET_KEY and SECRET_KEY_PREVIOUS as well: what is sealed in the backup opens with them alone${place}`
}

async function inTransaction<T>(client: PgClient, work: (db: Tx) => Promise<T>): Promise<T> {
  const reader = readerOn(client)
  await client.query('begin')
  try {
    const result = await work({ ...reader, isTransaction: true })
    await client.query('commit')
    return result
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    if (error instanceof AppError || sqlState(error) !== diskFull) throw error
    throw new AppError(507, `The database has no room: ${(error as Error).message}`, { cause: error })
  }
}

const diskFull = '53100'

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
  const unfit = unfitness(await readSetupFacts(db))
  if (unfit !== undefined) throw new AppError(409, `The database cannot hold an installation: ${unfit}`)
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
