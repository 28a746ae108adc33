import { readFileSync } from 'node:fs'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { openLogger } from '../adapters/logger.ts'
import { type Config, parseInstallation } from '../config/config.ts'
import { startEmbedded } from '../db/embedded/embedded.ts'
import { AppError } from '../errors.ts'
import { verifyTablesOf } from '../events/verify.ts'
import { openStorages } from '../features/files/storage/storage.ts'
import {
  type BackupHost,
  exportTenant,
  keysToKeep,
  restoreBackup,
  writeBackup,
} from '../features/operations/backup/backup.ts'
import { startStreaming } from '../process/start-up.ts'
import { type Command, type CommandModule, misuse, UsageError } from './command.ts'
import { onInstallation } from './installation.ts'

export const usage = `Usage: daybook backup FILE [--passphrase-file FILE] [--verify-by-restore] [--quiet] [--json]
  Writes the whole database and the content of the files, as of one moment, while everything runs.
  FILE is a path, NAME://backups/KEY for a storage service of STORAGE_SERVICES_ENABLED, or - for standard output.
  A backup gets the name FILE only when it is complete.
  --passphrase-file FILE  puts the keys of the installation into the backup, encrypted; or BACKUP_PASSPHRASE
  --verify-by-restore  restores it on a temporary server, and compares rows with the log
  --quiet  no progress on standard error
  --json   the result as JSON
Exit codes: 0 written and read back; 1 not written; 2 wrong usage.
`

/** Backs an installation up (docs/backup.md). */
export const run: Command = async (args) => {
  startStreaming()
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true })
  const [place] = positionals
  if (place === undefined || positionals.length > 1) throw misuse('daybook backup', 'takes one FILE')
  if (place === '-' && values.json) throw new UsageError('--json and - both write to standard output')
  if (place === '-' && values['verify-by-restore'])
    throw new UsageError('--verify-by-restore needs a backup that can be read again')
  const progress = openProgressLine(values.quiet ?? false)
  const { toKeep, ...result } = await withBackupHost(async (host) => {
    const written = await writeBackup(host, place, {
      passphrase: passphraseOf(host, values['passphrase-file']),
      progress: (step, bytes, of) =>
        progress.show(`${step}: ${sizeText(bytes)}${of === undefined ? '' : ` of about ${sizeText(of)}`}`),
    })
    if (values['verify-by-restore']) await proveByRestore(host, place)
    return { ...written, toKeep: keysToKeep(written.header, host.config) }
  }).finally(progress.end)
  const { header, bytes, files, verified, notes } = result
  for (const note of notes) process.stderr.write(`${note}\n`)
  if (values.json) return say(`${JSON.stringify({ place, ...result }, null, 2)}\n`)
  const read = verified ? 'written and read again' : 'written; daybook restore sees whether it has arrived whole'
  process.stderr.write(`${place}: ${sizeText(bytes)} as of ${header.createdAt}, ${files} contents of files, ${read}\n`)
  if (toKeep !== undefined) process.stderr.write(`${toKeep}\n`)
  return 0
}

const options = {
  'passphrase-file': { type: 'string' },
  'verify-by-restore': { type: 'boolean' },
  quiet: { type: 'boolean', short: 'q' },
  json: { type: 'boolean' },
} as const

/** @throws {AppError} 422 where rows or files come out otherwise than they went in */
async function proveByRestore(host: BackupHost, place: string): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'daybook-proof-'))
  // Open to the server's own OS user, or its data would be kept elsewhere and stay behind.
  await chmod(dir, 0o755)
  const note = (text: string) => host.log.info(text)
  const server = await startEmbedded({ dataDir: dir, log: { info: note, warn: note }, durable: false })
  const { database, storage } = host.config
  const services = Object.fromEntries(
    Object.keys(storage.services).map((name) => [
      name,
      { name, driver: 'LOCAL' as const, path: join(dir, 'files', name) },
    ]),
  )
  const config: Config = {
    ...host.config,
    database: { ...database, url: server.url, directUrl: undefined },
    storage: { ...storage, services },
  }
  const storages = openStorages(config)
  try {
    const { rows, files } = await restoreBackup({ ...host, config, storages }, place, { otherKey: true, from: host })
    const wrong = (await verifyTablesOf(config)).filter(({ different }) => different > 0)
    if (wrong.length > 0)
      throw new AppError(
        422,
        `Restored, rows differ from the log in ${wrong.map(({ collection }) => collection).join(', ')}`,
      )
    process.stderr.write(`restored elsewhere: ${rows} rows and ${files} contents of files are as they were\n`)
  } finally {
    storages.close()
    await server.stop('immediate')
    await rm(dir, { recursive: true })
  }
}

function say(text: string): 0 {
  process.stdout.write(text)
  return 0
}

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

function sizeText(bytes: number): string {
  const step = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  return `${(bytes / 1000 ** step).toFixed(step === 0 ? 0 : 1)} ${units[step]}`
}

const exportUsage = `Usage: daybook export-tenant ID-OR-NAME --out DIR [--quiet] [--json]
  Writes the data of a tenant into a new directory, as of one moment, while everything runs: its rows as NDJSON, a
  file per collection, its members, the content of its files, and manifest.json with counts and digests. No credential, secret
  or hidden field is in it. The directory gets its name when all of it is on the disk, and only you may read it.
  --out DIR  a directory that does not exist yet
  --quiet    no progress on standard error
  --json     the manifest on standard output
Exit codes: 0 written; 1 not written; 2 wrong usage.
`

const exportOptions = {
  out: { type: 'string' },
  quiet: { type: 'boolean', short: 'q' },
  json: { type: 'boolean' },
} as const

/** One tenant's export (docs/backup.md). */
export const tenantExport: CommandModule = {
  usage: exportUsage,
  run: async (args) => {
    startStreaming()
    const { values, positionals } = parseArgs({ args: [...args], options: exportOptions, allowPositionals: true })
    const { out } = values
    const [tenant] = positionals
    if (!tenant || positionals.length > 1) throw misuse('daybook export-tenant', 'takes the id or name of one tenant')
    if (!out) throw misuse('daybook export-tenant', 'needs --out')
    const progress = openProgressLine(values.quiet ?? false)
    const manifest = await withBackupHost((host) =>
      exportTenant(host, tenant, out, (step, done) => progress.show(`${step}: ${done}`)),
    ).finally(progress.end)
    const { collections, contents, notes, createdAt } = manifest
    for (const note of notes) process.stderr.write(`${note}\n`)
    if (values.json) process.stdout.write(`${JSON.stringify(manifest, null, 2)}\n`)
    const rows = collections.reduce((sum, one) => sum + one.rows, 0)
    process.stderr.write(
      `${out}: ${rows} rows and ${contents.count} contents of files (${sizeText(contents.bytesOfContents)}) of ${manifest.tenant.name} as of ${createdAt}\n`,
    )
    return 0
  },
}
