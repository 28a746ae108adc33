import { parseArgs } from 'node:util'
import type { ApplyReport } from '../features/operations/project/project.ts'
import { type Command, UsageError, unknownCommand } from './command.ts'
import { withRuntime } from './installation.ts'

export const usage = `Usage: daybook project export [DIR] [--json]
       daybook project apply [DIR] [--as EMAIL] [--dry-run] [--drop] [--alter] [--json]
  Moves the definition of a product from one installation to another, as files that git can keep: collections, roles with
  their permissions, named rules, workflows, mail templates, pages, shared views and settings. DIR is ./project unless
  given. Users, tenants, rows, webhooks and secrets are not part of it.
  export       writes the files, and removes those of parts that are gone
  apply        brings the installation to the files, in one transaction
    --as EMAIL   the administrator who becomes the author of workflows and the owner of shared views
    --dry-run    writes nothing and prints the plan
    --drop       drops what the files do not name, with its values; without it that is only listed
    --alter      agrees that another type of a field alters stored values
  --json       the result as JSON
Exit codes: 0 done, 1 failed, and then nothing has changed, 2 wrong usage.
`

/** The definition of a product as files (docs/project.md). */
export const run: Command = async ([name, ...args]) => {
  if (name === 'export') return exportFiles(args)
  if (name === 'apply') return applyFiles(args)
  throw unknownCommand('daybook project', name, ['export', 'apply'])
}

const defaultDir = 'project'

async function exportFiles(args: readonly string[]): Promise<number> {
  const options = { json: { type: 'boolean' } } as const
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true })
  const dir = dirOf(positionals)
  return withRuntime(async (runtime) => {
    const { exportProject } = await import('../features/operations/project/project.ts')
    const report = await exportProject(runtime, dir)
    const { written, removed, files } = report
    if (values.json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`)
    else process.stdout.write(`${dir}: ${files} files, ${written.length} written, ${removed.length} removed\n`)
  })
}

const applyOptions = {
  as: { type: 'string' },
  'dry-run': { type: 'boolean' },
  drop: { type: 'boolean' },
  alter: { type: 'boolean' },
  json: { type: 'boolean' },
} as const

/** Less than the time in which `POST /log/undo` looks for the events of a request. */
const transactionTimeoutMs = 14 * 60_000

async function applyFiles(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args: [...args], options: applyOptions, allowPositionals: true })
  const { as, drop = false, alter = false, json = false, 'dry-run': dryRun = false } = values
  const dir = dirOf(positionals)
  return withRuntime(
    async (runtime) => {
      const { applyProject } = await import('../features/operations/project/project.ts')
      const report = await applyProject(runtime, dir, { as, drop, alter, dryRun })
      process.stdout.write(json ? `${JSON.stringify(report, null, 2)}\n` : reportText(report))
    },
    { transactionTimeoutMs },
  )
}

function dirOf(positionals: readonly string[]): string {
  if (positionals.length > 1) throw new UsageError('daybook project takes one DIR. daybook project --help says more')
  return positionals[0] ?? defaultDir
}

function reportText({ steps, left, warnings, dryRun, requestId }: ApplyReport): string {
  const lines = steps.map(({ do: what, what: name, details }) =>
    [`${what.padEnd(6)} ${name}`, details.join(', ')].filter((word) => word !== '').join(': '),
  )
  const count = (what: string) => steps.filter((step) => step.do === what).length
  const counts = `${count('create')} created, ${count('change')} changed, ${count('drop')} dropped`
  const end = dryRun ? `Nothing was written: this would be ${counts}` : `${counts}; request ${requestId}`
  return [
    ...lines,
    ...left.map((name) => `left   ${name}`),
    ...warnings.map((warning) => `warning: ${warning}`),
    steps.length === 0 ? 'Nothing to change' : end,
    '',
  ].join('\n')
}
