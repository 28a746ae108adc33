/* The public face of this folder. */
import { randomUUID } from 'node:crypto'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import { lastBackup, noteBackup, noteBackupEnd } from '../../../db/unlogged/holds.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type DomainEvent, systemActor } from '../../../events/types.ts'
import { backupsFolder, type Storage } from '../../files/storage/storage.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import type { BackupHost } from './moment.ts'
import { writeBackup } from './write.ts'

export { resumeEffects } from '../../../db/unlogged/holds.ts'
export type { BackupHeader, Keys } from './format.ts'
export type { BackupHost } from './moment.ts'
export { type PartReport, type RestoredFrom, restoreCollection, restoreTenant } from './part.ts'
export { type RestoreOptions, type RestoreProgress, type RestoreResult, restoreBackup } from './restore.ts'

export { exportTenant, type TenantExport } from './tenant-export.ts'
export { type BackupOptions, type BackupResult, verify, writeBackup } from './write.ts'

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
