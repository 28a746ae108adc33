import { readFileSync } from 'node:fs'
import { openLogger } from '../adapters/logger.ts'
import { parseInstallation } from '../config/installation.ts'
import { openStorages } from '../features/files/storage/storage.ts'
import type { BackupHost } from '../features/operations/backup/backup.ts'
import { UsageError } from './command.ts'
import { onInstallation } from './installation.ts'

/** The host of backup and restore: no runtime, because the database may be empty, or of another version. */
export function withBackupHost<T>(
  work: (host: BackupHost) => Promise<T>,
  options: { readonly create?: boolean } = {},
): Promise<T> {
  return onInstallation(async (env) => {
    const config = parseInstallation(env, { secretKey: true })
    const log = openLogger({ level: config.log.level, name: 'daybook', stderr: true })
    const storages = openStorages(config)
    return await work({ config, log, storages }).finally(() => storages.close())
  }, options)
}

/** Of a file, or BACKUP_PASSPHRASE; undefined where there is none. */
export function passphraseOf({ config }: BackupHost, file: string | undefined): string | undefined {
  if (file === undefined) return config.backup.passphrase
  const passphrase = readFileSync(file, 'utf8').trim()
  if (passphrase === '') throw new UsageError(`--passphrase-file ${file}: it is empty`)
  return passphrase
}
