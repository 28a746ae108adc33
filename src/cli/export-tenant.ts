import { parseArgs } from 'node:util'
import { exportTenant } from '../features/operations/backup/backup.ts'
import { startStreaming } from '../process/start-up.ts'
import { openProgressLine, sizeText, withBackupHost } from './backup.ts'
import { type Command, UsageError } from './command.ts'

export const usage = `Usage: daybook export-tenant ID-OR-NAME --out DIR [--quiet] [--json]
  Writes the data of a tenant into a new directory, as of one moment, while everything runs: its rows as NDJSON, a
  file per collection, its members, the content of its files, and manifest.json with counts and digests. No credential, secret
  or hidden field is in it. The directory gets its name when all of it is on the disk, and nobody else may read it.
  --out DIR  a directory that does not exist yet
  --quiet    no progress on standard error
  --json     the manifest on standard output
Exit codes: 0 written; 1 not written; 2 wrong usage.
`

/** One tenant's export (docs/backup.md). */
export const run: Command = async (args) => {
  startStreaming()
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true })
  const { out } = values
  const [tenant] = positionals
  if (!tenant || !out || positionals.length > 1) throw new UsageError(usage)
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
}

const options = {
  out: { type: 'string' },
  quiet: { type: 'boolean', short: 'q' },
  json: { type: 'boolean' },
} as const
