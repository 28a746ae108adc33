import { readFileSync } from 'node:fs'
import { openLogger } from '../adapters/logger.ts'
import { parseInstallation } from '../config/config.ts'
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

/** One line on standard error that changes: in place on a terminal, elsewhere a line every ten seconds. */
export function openProgressLine(quiet: boolean) {
  const isTerminal = process.stderr.isTTY === true
  const everyMs = isTerminal ? 100 : 10_000
  let shownAt = performance.now()
  let isOpen = false
  return {
    show(text: string): void {
      if (quiet || performance.now() - shownAt < everyMs) return
      shownAt = performance.now()
      isOpen = isTerminal
      process.stderr.write(isTerminal ? `\r\u001b[K${text}` : `${text}\n`)
    },
    end(): void {
      if (isOpen) process.stderr.write('\r\u001b[K')
      isOpen = false
    },
  }
}

const units = ['B', 'kB', 'MB', 'GB', 'TB']

export function sizeText(bytes: number): string {
  const step = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  return `${(bytes / 1000 ** step).toFixed(step === 0 ? 0 : 1)} ${units[step]}`
}
