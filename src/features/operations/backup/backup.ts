/* Backups of an installation: the public face of this folder. */

import { randomUUID } from 'node:crypto'
import { copyOut } from '../../../db/copy.ts'
import type { PgClient, Reads } from '../../../db/pools.ts'
import { rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import { lastBackup, noteBackup, noteBackupEnd } from '../../../db/unlogged/holds.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type DomainEvent, systemActor } from '../../../events/types.ts'
import { backupsFolder, type Storage } from '../../files/storage/storage.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import { contentsIn, copiedTables, isText, readContent, sequencePlaces } from './contents.ts'
import { definitionOf, notesOf } from './definition.ts'
import { type BackupHeader, headerOf, keysOf, openReader, openWriter, type Pieces, sealKeys } from './format.ts'
import { type BackupHost, type BackupMoment, inOneMoment, withContentHeld } from './moment.ts'
import { type Objects, readObjects } from './objects.ts'
import { openDraft } from './place.ts'

export { resumeEffects } from '../../../db/unlogged/holds.ts'
export type { BackupHeader, Keys } from './format.ts'
export type { BackupHost } from './moment.ts'
export { type PartReport, type RestoredFrom, restoreCollection, restoreTenant } from './part.ts'
export { type RestoreOptions, type RestoreProgress, type RestoreResult, restoreBackup } from './restore.ts'
export { exportTenant, type TenantExport } from './tenant-export.ts'

// Backups that are made by themselves: by a worker, or by setup before it migrates.

/** In the order of their times, which are in their names. */
const prefix = `${backupsFolder}daybook-`
const newPlace = (): string => `${prefix}${new Date().toISOString().replaceAll(/[:.]/g, '-')}.backup`

/** A job: makes a backup, and then removes those that are more than BACKUP_KEEP. */
export async function makeScheduledBackup(deps: BackupHost & UnloggedWrites): Promise<void> {
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

export type BackupResult = {
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

export type BackupOptions = {
  /** With it the keys are in the backup, and open with nothing else. */
  readonly passphrase?: string | undefined
  readonly progress?: BackupProgress
}

/**
 * Writes a backup of the installation to a file, a storage service (`name://key`) or standard output (`-`), while everything
 * runs. Nothing has the name before all of it is there, on the disk, and was read again.
 *
 * @throws {AppError} 422 with a list, where the database has objects that a backup cannot hold
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
export async function verify(
  source: Pieces,
  onBytes: (bytes: number) => void = () => undefined,
): Promise<BackupHeader> {
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
