import { createWriteStream } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type ExportRequest, exportWholeLog, readHead, tailLog } from '../features/data/log-export/log-export.ts'
import { isUuid } from '../language/text.ts'
import type { Runtime } from '../process/runtime.ts'
import { type Command, UsageError } from './command.ts'
import { run as verify, usage as verifyUsage } from './log-verify.ts'
import { withRuntime } from './runtime.ts'

const commandsUsage = `Usage: daybook log <command>
  tail    the newest events as they come; --collection A,B --action A,B --actor USER --tenant T
          [--lines N] how many to begin with (10), [--follow] waits for more, [--json] whole events, one a line
  export  the log as NDJSON, the oldest event first; the same filters, --from TIME --to TIME, --since CURSOR,
          [--output FILE]; to go on later, pass the cursor of the last line as --since
  head    the newest head of the sealed log, as JSON: keep it where nobody can change it
  verify  compares the tables with the log, or with --seals the log with its seals
`

export const usage = `${commandsUsage}
${verifyUsage}`

/** The log in the terminal, as the platform sees it: who runs this has the database (docs/audit-log.md). */
export const run: Command = async ([name = '', ...args]) => {
  if (name === 'verify') return verify(args)
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command === undefined) throw new UsageError(usage)
  const { values } = parseArgs({ args, options })
  return withRuntime((runtime) => command(runtime, values))
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

type Values = ReturnType<typeof parseArgs<{ options: typeof options }>>['values']

const commands: Readonly<Record<string, (runtime: Runtime, values: Values) => Promise<void>>> = {
  tail,
  export: async (runtime, values) => {
    const { lines } = await exportWholeLog(runtime, requestOf(values))
    if (values.output === undefined) await pipeline(lines, process.stdout, { end: false })
    else await pipeline(lines, createWriteStream(values.output))
  },
  head: async (runtime) => {
    process.stdout.write(`${JSON.stringify(await readHead(runtime))}\n`)
  },
}

const requestOf = ({ collection, action, actor, tenant, from, to, since }: Values): ExportRequest => ({
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

/** The newest events, then with --follow those that come until the command is interrupted. */
async function tail(runtime: Runtime, values: Values): Promise<void> {
  const count = Number(values.lines ?? 10)
  if (!Number.isSafeInteger(count) || count < 0) throw new UsageError('--lines: expected a number of lines')
  const { since, ...filter } = requestOf(values)
  if (since !== undefined || values.output !== undefined) throw new UsageError('--since and --output are for export')
  const show = (text: string) => void process.stdout.write(`${values.json ? text : eventLine(JSON.parse(text))}\n`)
  const { events, cursor } = await tailLog(runtime, { ...filter, count })
  for (const event of events) show(event)
  const interrupted = new AbortController()
  process.once('SIGINT', () => interrupted.abort())
  process.once('SIGTERM', () => interrupted.abort())
  for (let next = cursor; values.follow && !interrupted.signal.aborted; ) {
    await delay(followEveryMs, undefined, { signal: interrupted.signal }).catch(() => undefined)
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
export function eventLine({ createdAt, type, entity, entityId, action, userId, changes }: Event): string {
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
