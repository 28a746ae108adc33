import { createWriteStream, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { publicLogKey } from '../adapters/log-key.ts'
import { parseInstallation } from '../config/config.ts'
import { AppError } from '../errors.ts'
import { readHeads, type SealProblem, type SealVerification, verifySealsOf } from '../events/seals/seals.ts'
import { type Verification, verifyTablesOf } from '../events/verify.ts'
import { type ExportRequest, exportWholeLog, readHead, tailLog } from '../features/data/log-export/log-export.ts'
import { isUuid } from '../language/text.ts'
import type { Runtime } from '../process/runtime.ts'
import { growWithWork } from '../process/start-up.ts'
import { type Command, UsageError, unknownCommand } from './command.ts'
import { onInstallation, withRuntime } from './installation.ts'

const commandsUsage = `Usage: daybook log <command>
  tail    the newest events as they come; --collection A,B --action A,B --actor USER --tenant T
          [--lines N] how many to begin with (10), [--follow] waits for more, [--json] whole events, one a line
  export  the log as NDJSON, the oldest event first; the same filters, --from TIME --to TIME, --since CURSOR,
          [--output FILE]; to go on later, pass the cursor of the last line as --since
  head    the newest head of the sealed log, as JSON: keep it where it cannot be changed
  verify  compares the tables with the log, or with --seals the log with its seals
`

const verifyUsage = `Usage: daybook log verify [--seals] [--head FILE] [--key KEY]... [--json]
  Compares every row of every logged collection with the newest event about it.
  --seals      compares the log with its seals instead, and names the first event that differs
  --head FILE  with --seals: a head that you have kept, or a file of heads; everything before it can be proven
  --key KEY    with --seals: a public key of this installation, base64url, where it can't be derived from SECRET_KEY
Exit codes: 0 nothing differs, 1 something differs or could not be verified, 2 wrong usage.
`

export const usage = `${commandsUsage}
${verifyUsage}`

/** The log in the terminal, as the platform sees it: its caller has the database (docs/audit-log.md). */
export const run: Command = async ([name = '', ...args]) => {
  if (name === 'verify') return verify(args)
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command === undefined) throw unknownCommand('daybook log', name, ['verify', ...Object.keys(commands)])
  const { values } = parseArgs({ args, options })
  return withRuntime((runtime) => {
    growWithWork()
    return command(runtime, values)
  })
}

const options = {
  collection: { type: 'string' },
  action: { type: 'string' },
  actor: { type: 'string' },
  tenant: { type: 'string' },
  from: { type: 'string' },
  to: { type: 'string' },
  since: { type: 'string' },
  output: { type: 'string' },
  lines: { type: 'string' },
  follow: { type: 'boolean', short: 'f' },
  json: { type: 'boolean' },
} as const

type LogCommandOptions = ReturnType<typeof parseArgs<{ options: typeof options }>>['values']

const commands: Readonly<Record<string, (runtime: Runtime, values: LogCommandOptions) => Promise<void>>> = {
  tail: (runtime, values) => toReader((ended) => tail(runtime, values, ended)),
  export: async (runtime, values) => {
    const { lines } = await exportWholeLog(runtime, requestOf(values))
    if (values.output === undefined) await toReader(() => pipeline(lines, process.stdout, { end: false }))
    else await pipeline(lines, createWriteStream(values.output))
  },
  head: async (runtime) => {
    process.stdout.write(`${JSON.stringify(await readHead(runtime))}\n`)
  },
}

const requestOf = ({ collection, action, actor, tenant, from, to, since }: LogCommandOptions): ExportRequest => ({
  ...{ collections: listIn(collection), actions: listIn(action), since },
  ...{ actor: uuidIn('--actor', actor), tenant: uuidIn('--tenant', tenant) },
  ...{ from: momentIn('--from', from), to: momentIn('--to', to) },
})

const listIn = (text: string | undefined) => text?.split(',').filter((name) => name !== '')

function uuidIn(option: string, text: string | undefined): string | undefined {
  if (text === undefined || isUuid(text)) return text
  throw new UsageError(`${option}: ${JSON.stringify(text)} is no id`)
}

function momentIn(option: string, text: string | undefined): string | undefined {
  if (text === undefined) return undefined
  const time = new Date(text)
  if (Number.isNaN(time.getTime())) throw new UsageError(`${option}: ${JSON.stringify(text)} is no time`)
  return time.toISOString()
}

const followEveryMs = 500

/**
 * Runs what writes to standard output, until `ended` where it would go on for ever. A reader that goes away, as `head` does, has
 * seen enough: that is no failure.
 */
async function toReader(work: (ended: AbortController) => Promise<void>): Promise<void> {
  const ended = new AbortController()
  let failure: NodeJS.ErrnoException | undefined
  process.stdout.on('error', (error) => {
    failure ??= error
    ended.abort()
  })
  await work(ended).catch((error: unknown) => {
    if (failure === undefined) throw error
  })
  // Its failure, if there is one, has been told when this is done.
  await new Promise<void>((go) => process.stdout.write('', () => go()))
  if (failure !== undefined && failure.code !== 'EPIPE')
    throw new AppError(503, `standard output cannot be written to: ${failure.message}`, { cause: failure })
}

/** The newest events, then with --follow those that come until the command is interrupted. */
async function tail(runtime: Runtime, values: LogCommandOptions, ended: AbortController): Promise<void> {
  const count = Number(values.lines ?? 10)
  if (!Number.isSafeInteger(count) || count < 0) throw new UsageError('--lines: expected a number of lines')
  const { since, ...filter } = requestOf(values)
  if (since !== undefined || values.output !== undefined) throw new UsageError('--since and --output are for export')
  const show = (text: string) => void process.stdout.write(`${values.json ? text : eventLine(JSON.parse(text))}\n`)
  const { events, cursor } = await tailLog(runtime, { ...filter, count })
  for (const event of events) show(event)
  process.once('SIGINT', () => ended.abort())
  process.once('SIGTERM', () => ended.abort())
  for (let next = cursor; values.follow && !ended.signal.aborted; ) {
    await delay(followEveryMs, undefined, { signal: ended.signal }).catch(() => undefined)
    const round = await exportWholeLog(runtime, { ...filter, since: next })
    for await (const line of createInterface({ input: round.lines })) show(line)
    next = round.cursor
  }
}

type Event = {
  readonly createdAt: string
  readonly type: string
  readonly entity: string
  readonly entityId: string | null
  readonly action: string
  readonly userId: string | null
  readonly changes: Readonly<Record<string, unknown>> | null
}

/** `time  action  collection id  by user  what`: of an update the old and new values, of others the names of the fields. */
function eventLine({ createdAt, type, entity, entityId, action, userId, changes }: Event): string {
  const what = type === 'data' ? `${action} ${entity} ${entityId}` : `${type}.${action} ${entityId ?? ''}`.trimEnd()
  return [createdAt, what, ...(userId === null ? [] : [`by ${userId}`]), detailsOf(type, changes)].join('  ').trimEnd()
}

function detailsOf(type: string, changes: Event['changes']): string {
  if (changes === null) return ''
  if (type !== 'data' || changes.erased === true) return shortened(JSON.stringify(changes))
  const { before, after } = changes as { before?: Record<string, unknown>; after?: Record<string, unknown> }
  if (before === undefined || after === undefined) return shortened(Object.keys(after ?? before ?? {}).join(', '))
  const parts = Object.entries(before).map(
    ([name, old]) => `${name}: ${JSON.stringify(old)} → ${JSON.stringify(after[name])}`,
  )
  return shortened(parts.join(', '))
}

const longestDetails = 200
const shortened = (text: string): string => (text.length > longestDetails ? `${text.slice(0, longestDetails)}…` : text)

/** Proves the tables from the log, or the log from its seals (docs/audit-log.md). Reads only. */
export const verify: Command = async (args) => {
  const { seals, head, key, json } = parseArgs({ args: [...args], options: verifyOptions }).values
  if (!seals && (head !== undefined || key !== undefined)) throw new UsageError('--head and --key are for --seals')
  growWithWork()
  if (!seals) {
    const results = await onInstallation((env) => verifyTablesOf(parseInstallation(env)))
    process.stdout.write(json ? asJson(results) : report(results))
    return results.some(({ different, problem }) => different > 0 || problem !== undefined) ? 1 : 0
  }
  const trust = { keys: (key ?? []).map(toKey), heads: head === undefined ? [] : headsIn(head) }
  const result = await onInstallation((env) => verifySealsOf(parseInstallation(env, { secretKey: true }), trust))
  process.stdout.write(json ? asJson(result) : sealReport(result))
  return result.found === 0 && result.links > 0 ? 0 : 1
}

const verifyOptions = {
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
  const problems = results.flatMap(({ collection, problem }) =>
    problem === undefined ? [] : [`${collection}: ${problem}`],
  )
  return [format(header), ...lines.map(format), ...differences, ...problems, ''].join('\n')
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
    const { heads, cutOff } = readHeads(readFileSync(file, 'utf8'))
    for (const line of cutOff) process.stderr.write(`--head ${file}: line ${line} is cut off and left out\n`)
    return heads
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
