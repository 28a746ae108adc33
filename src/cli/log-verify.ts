import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { publicLogKey } from '../adapters/log-key.ts'
import { parseInstallation } from '../config/config.ts'
import { readHeads, type SealProblem, type SealVerification, verifySealsOf } from '../events/seals/seals.ts'
import { type Verification, verifyTablesOf } from '../events/verify.ts'
import { type Command, UsageError } from './command.ts'
import { onInstallation } from './installation.ts'

export const usage = `Usage: daybook log verify [--seals] [--head FILE] [--key KEY]... [--json]
  Compares every row of every logged collection with the newest event about it.
  --seals      compares the log with its seals instead, and names the first event that differs
  --head FILE  with --seals: a head that you have kept, or a file of heads; everything before it can be proven
  --key KEY    with --seals: a public key of this installation, base64url, where it can't be derived from SECRET_KEY
Exit codes: 0 nothing differs, 1 something differs or could not be verified, 2 wrong usage.
`

/** Proves the tables from the log, or the log from its seals (docs/audit-log.md). Reads only. */
export const run: Command = async (args) => {
  const { seals, head, key, json } = parseArgs({ args: [...args], options }).values
  if (!seals && (head !== undefined || key !== undefined)) throw new UsageError('--head and --key are for --seals')
  if (!seals) {
    const results = await onInstallation((env) => verifyTablesOf(parseInstallation(env)))
    process.stdout.write(json ? asJson(results) : report(results))
    return results.some(({ different }) => different > 0) ? 1 : 0
  }
  const trust = { keys: (key ?? []).map(toKey), heads: head === undefined ? [] : headsIn(head) }
  const result = await onInstallation((env) => verifySealsOf(parseInstallation(env, { secretKey: true }), trust))
  process.stdout.write(json ? asJson(result) : sealReport(result))
  return result.found === 0 && result.links > 0 ? 0 : 1
}

const options = {
  seals: { type: 'boolean' },
  head: { type: 'string' },
  key: { type: 'string', multiple: true },
  json: { type: 'boolean' },
} as const

/** Numbers per collection, then the first differences: item ids and field names, never values. */
export function report(results: readonly Verification[]): string {
  const header = ['collection', 'rows', 'verified', 'unverifiable', 'erased', 'different']
  const lines = results.map((result) => header.map((column) => String(result[column as keyof Verification])))
  const widths = header.map((title, i) => Math.max(title.length, ...lines.map((line) => line[i]!.length)))
  const format = (line: readonly string[]) =>
    line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  ')
  const differences = results.flatMap(({ collection, differences }) =>
    differences.map(({ entityId, kind, fields }) =>
      `${collection} ${entityId}: ${kind} ${fields.join(', ')}`.trimEnd(),
    ),
  )
  return [format(header), ...lines.map(format), ...differences, ''].join('\n')
}

/** The findings first, then how much could be proven. */
function sealReport({ problems, found, links, head, floor, heads, ...events }: SealVerification): string {
  if (links === 0 && found === 0)
    return 'Nothing of this log is sealed: LOG_SEALS is false, or no worker log-cleanup has run.\n'
  const { verified, erased, unsealed } = events
  const lines = [
    ...problems.map(problemLine),
    ...(found > problems.length ? [`… and ${found - problems.length} more`] : []),
    `${verified} events are as they were sealed${erased > 0 ? `, ${erased} of them erased in part` : ''}; ${unsealed} are not sealed yet`,
    ...(head === undefined ? [] : [`the chain ends at link ${head.number} of ${head.at}, hash ${head.hash}`]),
    ...(floor === undefined ? [] : [`retention has removed events from before ${floor}`]),
    heads.compared + heads.tooOld === 0
      ? 'no head was compared: name one that was kept elsewhere (--head), because only changes before it can be proven'
      : `${heads.compared} heads are in the chain${heads.tooOld > 0 ? `, ${heads.tooOld} are older than what retention has left` : ''}`,
  ]
  return `${lines.join('\n')}\n`
}

const problemLine = ({ kind, position, link, says }: SealProblem): string => {
  const place = kind === 'link' || kind === 'head' ? `link ${link}` : `event ${position}`
  return `${kind.toUpperCase()} ${place}: ${says}`
}

function headsIn(file: string) {
  try {
    return readHeads(readFileSync(file, 'utf8'))
  } catch (error) {
    throw new UsageError(`--head ${file}: ${(error as Error).message}`)
  }
}

function toKey(text: string) {
  try {
    return publicLogKey(text)
  } catch (error) {
    throw new UsageError(`--key: ${(error as Error).message}`)
  }
}

const asJson = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`
