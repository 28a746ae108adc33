import {
  type PartReport,
  type RestoredFrom,
  restoreCollection,
  restoreTenant,
} from '../features/operations/backup/backup.ts'
import { UsageError } from './command.ts'
import { withRuntime } from './runtime.ts'

/** `daybook restore --collection` and `--tenant`: the arguments, and what is printed. */

export const partOptions = {
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

export async function restorePart(values: PartArguments): Promise<number> {
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
  )
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
  }
}
