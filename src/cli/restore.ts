import { parseArgs } from 'node:util'
import { AppError } from '../errors.ts'
import { verifyTablesOf } from '../events/verify.ts'
import { verifyFiles } from '../features/files/files/files.ts'
import {
  type BackupHost,
  type Keys,
  type PartReport,
  type RestoredFrom,
  restoreBackup,
  restoreCollection,
  restoreTenant,
  resumeEffects,
} from '../features/operations/backup/backup.ts'
import { writeNewFile } from '../language/new-file.ts'
import { startStreaming } from '../process/start-up.ts'
import { runSetup } from '../setup/setup.ts'
import { openProgressLine, passphraseOf, withBackupHost } from './backup.ts'
import { type Command, type CommandModule, misuse, UsageError } from './command.ts'
import { withRuntime } from './installation.ts'

export const usage = `Usage: daybook restore FILE [--hold] [--end-sessions] [--keys-to FILE] [--passphrase-file FILE] [--other-key] [--no-verify]
       daybook restore --collection NAME (--at TIME | --from FILE) [--dry-run] [--set-null] [--skip] [--force] [--json]
       daybook restore --tenant ID-OR-NAME (--at TIME | --from FILE) [--dry-run] [--set-null] [--skip] [--force] [--json]
  Restores an installation into an empty database: the embedded one where none is configured. Its files go to
  the storage services of the same names. Then setup brings it to the version of this program, and rows and files are compared
  with the log.
  FILE is the one that daybook backup has written, or - for standard input.
  --hold          no mail, webhook, schedule, workflow or task runs until daybook resume: for a copy of an installation
  --end-sessions  everybody has to sign in again
  --keys-to FILE  writes the keys in the backup there, as lines of .env; they open with --passphrase-file FILE or BACKUP_PASSPHRASE
  --other-key  with another SECRET_KEY than the backup was made with: values that it encrypted are lost
  --no-verify  without the comparison at the end, which reads everything

  With --collection or --tenant brings back this part alone, while everything runs: rows that were deleted come back, changed ones
  get their old values, newer ones are deleted. It is one transaction of ordinary changes, which POST /log/undo undoes by the id
  that is printed. A tenant's rows, files, members and settings are its part; users and roles, which tenants share, are only named.
  --at TIME    its state at that time, by the log: a time such as 2026-03-14T09:26:53Z, or a cursor of GET /history/now
  --from FILE  its state in a backup, where the log does not reach back
  --dry-run    writes nothing and prints the changes
  --set-null   relations to rows that are gone become null, where they may
  --skip       rows that cannot come back are left as they are, with those that need them
  --force      deletes newer rows that others refer to, and does without hidden fields, which the log does not hold
  --json       the result as JSON
Exit codes: 0 restored and nothing differs, 1 not restored or something differs, 2 wrong usage.
`

/** Restores an installation (docs/backup.md). */
export const run: Command = async (args) => {
  startStreaming()
  // Each form has options of its own: one that the other would have read must not go unheard, least of all --dry-run.
  if (args.some((arg) => /^--(?:collection|tenant)(?:=|$)/.test(arg))) {
    const { values, positionals } = parseArgs({ args: [...args], options: partOptions, allowPositionals: true })
    if (positionals.length > 0) throw new UsageError('a part is brought back with --at TIME or --from FILE')
    return restorePart(values)
  }
  const { values, positionals } = parseArgs({ args: [...args], options: wholeOptions, allowPositionals: true })
  const [place] = positionals
  if (place === undefined || positionals.length > 1) throw misuse('daybook restore', 'takes one FILE')
  const progress = openProgressLine(values.quiet ?? false)
  return withBackupHost(
    async (host) => {
      const keysTo = values['keys-to']
      const options = {
        otherKey: values['other-key'] ?? false,
        hold: values.hold ?? false,
        endSessions: values['end-sessions'] ?? false,
        passphrase: passphraseOf(host, values['passphrase-file']),
        ...(keysTo !== undefined && { takeKeys: (keys: Keys) => writeKeys(keysTo, keys) }),
      }
      const result = await restoreBackup(host, place, options, (step, done) =>
        progress.show(`${step}: ${done.split('\n')[0]!.slice(0, 80)}`),
      ).finally(progress.end)
      const { header, rows, files, notes } = result
      for (const note of notes) process.stderr.write(`${note}\n`)
      await runSetup(host.config, host.log)
      process.stderr.write(`${rows} rows and ${files} contents of files are as of ${header.createdAt}\n`)
      return values['no-verify'] ? 0 : verified(host)
    },
    { create: true },
  )
}

/** `daybook restore --collection` and `--tenant`: the arguments, and what is printed. */

const partOptions = {
  collection: { type: 'string' },
  tenant: { type: 'string' },
  at: { type: 'string' },
  from: { type: 'string' },
  'dry-run': { type: 'boolean' },
  'set-null': { type: 'boolean' },
  skip: { type: 'boolean' },
  force: { type: 'boolean' },
  json: { type: 'boolean' },
} as const

type PartArguments = {
  readonly [Name in keyof typeof partOptions]?: (typeof partOptions)[Name]['type'] extends 'boolean' ? boolean : string
}

/** Less than the time in which `POST /log/undo` looks for the events of a request. */
const transactionTimeoutMs = 14 * 60_000

async function restorePart(values: PartArguments): Promise<number> {
  const { collection, tenant, at, from } = values
  if (collection !== undefined && tenant !== undefined) throw new UsageError('either --collection or --tenant')
  if ((at === undefined) === (from === undefined)) throw new UsageError('either --at TIME or --from FILE')
  if (from === '-') throw new UsageError('--from needs a backup that can be read again')
  const source: RestoredFrom = at !== undefined ? { at } : { file: from! }
  const choices = {
    dryRun: values['dry-run'] ?? false,
    setNull: values['set-null'] ?? false,
    skip: values.skip ?? false,
    force: values.force ?? false,
  }
  let code = 0
  await withRuntime(
    async (runtime) => {
      const report =
        tenant === undefined
          ? await restoreCollection(runtime, collection!, source, choices)
          : await restoreTenant(runtime, tenant, source, choices)
      if (values.json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`)
      else process.stdout.write(reportText(report, choices.dryRun))
      code = report.isRefused ? 1 : 0
    },
    { transactionTimeoutMs },
  ).catch((error: unknown) => {
    if (!(error instanceof AppError && error.code === 'INVALID_CURSOR')) throw error
    const what = `${JSON.stringify(at)} is neither a time such as 2026-03-14T09:26:53Z nor a cursor of GET /history/now`
    throw new UsageError(`--at: ${what}`, { cause: error })
  })
  return code
}

/** The changes, made or planned, or the conflicts. */
function reportText(report: PartReport, dryRun: boolean): string {
  const { counts, conflicts, kept, shared, isRefused, at, by, requestId } = report
  const changed = counts.reduce((sum, one) => sum + one.create + one.update + one.delete, 0)
  const lines = counts.map(
    (one) =>
      `${one.collection}: ${one.create} created, ${one.update} changed, ${one.delete} deleted${one.skipped > 0 ? `, ${one.skipped} skipped` : ''}${one.conflicts > 0 ? `, ${one.conflicts} in conflict` : ''}`,
  )
  for (const { collection, id, reasons } of conflicts)
    lines.push(`  ${collection} ${id}: ${reasons.map(reasonText).join('; ')}`)
  for (const { collection, rows, reason } of kept) lines.push(`${collection}: ${rows} stay as they are (${reason})`)
  for (const { collection, ids } of shared)
    lines.push(`${collection}: named, and not written: ${ids.slice(0, 20).join(', ')}${ids.length > 20 ? ' …' : ''}`)
  lines.push(endOf())
  return `${lines.join('\n')}\n`

  function endOf(): string {
    const then = `${by === 'log' ? 'by the log' : 'by the backup'} of ${at}`
    if (isRefused) return 'Nothing was written: see --set-null, --skip and --force'
    if (changed === 0) return `Nothing differs from the state ${then}`
    return dryRun
      ? `Nothing was written: this is what would be done ${then}`
      : `${changed} rows are as they were ${then}; request ${requestId}`
  }
}

function reasonText(reason: PartReport['conflicts'][number]['reasons'][number]): string {
  switch (reason.reason) {
    case 'changed':
      return `others have changed ${reason.fields.join(', ')}`
    case 'deleted':
      return 'others have deleted it'
    case 'lost':
      return `the log does not hold ${reason.fields.join(', ')}`
    case 'erased':
      return 'its history was erased'
    case 'referenced':
      return `${reason.by.map(({ collection, rows }) => `${rows} of ${collection}`).join(', ')} refer to it`
    case 'reference gone':
      return `what ${reason.fields.join(', ')} refers to is gone${reason.required ? ', and it must refer to something' : ''}`
    case 'taken':
      return `a deleted row has its ${reason.fields.join(', ')}`
  }
}

const wholeOptions = {
  hold: { type: 'boolean' },
  'end-sessions': { type: 'boolean' },
  'keys-to': { type: 'string' },
  'passphrase-file': { type: 'string' },
  'other-key': { type: 'boolean' },
  'no-verify': { type: 'boolean' },
  quiet: { type: 'boolean', short: 'q' },
} as const

/** Where nothing is yet, readable by the owner alone. */
async function writeKeys(file: string, keys: Keys): Promise<void> {
  const lines = Object.entries(keys).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`)
  await writeNewFile(file, lines.join(''), { mode: 0o600 })
}

/** As log:verify and files:verify. */
async function verified({ config }: BackupHost): Promise<number> {
  const tables = await verifyTablesOf(config)
  const wrong = tables.filter(({ different, problem }) => different > 0 || problem !== undefined)
  for (const { collection, different, problem } of wrong)
    process.stderr.write(`${collection}: ${problem ?? `${different} rows are not what the log says`}\n`)
  let differences = 0
  await withRuntime(async (runtime) => {
    const found = await verifyFiles(runtime, { hashes: true })
    differences = found.differences.length
    for (const { kind, storage, key } of found.differences) process.stderr.write(`${kind} ${storage} ${key}\n`)
  })
  const rows = tables.reduce((sum, { rows }) => sum + rows, 0)
  if (wrong.length + differences > 0) return 1
  process.stderr.write(`${rows} rows are what the log says, and the files are what their rows say\n`)
  return 0
}

/** The end of a restore with `--hold`. */
export const resume: CommandModule = {
  usage: `Usage: daybook resume
  Ends the hold of daybook restore --hold: from now on mails are sent, webhooks are called, and schedules, workflows and tasks
  run, waiting ones too.
`,
  run: async (args) => {
    parseArgs({ args: [...args], options: {} })
    return withRuntime(async (runtime) => {
      const wasHeld = await resumeEffects(runtime)
      process.stdout.write(wasHeld ? 'resumed\n' : 'nothing is held\n')
    })
  },
}
