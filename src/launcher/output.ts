import { resolve } from 'node:path'
import type { Config } from '../config/config.ts'

/** The output of the launcher: its own notes, the log lines of all processes, and the banner. */
export type Output = {
  /** A line of a process: JSON lines are made readable unless the output is raw. */
  line(source: string, text: string): void
  /** A note of the launcher's own, as a log line. */
  note(level: 'info' | 'warn'): (message: string) => void
  /** Text for the person at the terminal, as it is. */
  say(text: string): void
  /** Why the start failed. */
  complain(text: string): void
}

type Streams = { stdout: { write(text: string): unknown }; stderr: { write(text: string): unknown } }

/** `raw` passes log lines on as they are, for machines; otherwise people read along. */
export function openOutput(raw: boolean, { stdout, stderr }: Streams = process): Output {
  const line = (source: string, text: string) => stdout.write(`${raw ? text : readable(source, text)}\n`)
  return {
    line,
    note: (level) => (msg) =>
      line('start', JSON.stringify({ level, time: new Date().toISOString(), name: 'start', msg })),
    say: (text) => stdout.write(`${text}\n`),
    complain: (text) => stderr.write(`${text}\n`),
  }
}

/** `12:30:01 web    info  message key=value`; what is no log line keeps its text after the name of its source. */
export function readable(source: string, text: string): string {
  const record = parseRecord(text)
  if (record === undefined) return `${' '.repeat(8)} ${source.padEnd(sourceWidth)} ${visible(text)}`
  const { time, level, msg, err, name: _name, pid: _pid, hostname: _hostname, ...rest } = record
  const members = Object.entries(rest).map(([key, value]) => `${key}=${shown(value)}`)
  const head = [clockTime(time), source.padEnd(sourceWidth), String(level).padEnd(5), msg ?? '', ...members].join(' ')
  return visible(head) + (err === undefined ? '' : describeError(err))
}

const sourceWidth = 11

type LogRecord = { level: unknown; time?: unknown; msg?: unknown; err?: unknown; [member: string]: unknown }

function parseRecord(text: string): LogRecord | undefined {
  if (!text.startsWith('{')) return undefined
  try {
    const value = JSON.parse(text)
    return 'level' in value ? value : undefined
  } catch {
    // A cut line, or braces that another program wrote: shown as text.
    return undefined
  }
}

function clockTime(time: unknown): string {
  const date = new Date(time as string | number)
  return Number.isNaN(date.getTime()) ? ' '.repeat(8) : date.toTimeString().slice(0, 8)
}

function shown(value: unknown): string {
  if (typeof value === 'string' && /^[^\s"=]+$/.test(value)) return value
  return JSON.stringify(value)
}

function describeError(err: unknown): string {
  const { type, message, stack } = err as { type?: string; message?: string; stack?: string }
  if (stack) return ['', ...stack.split('\n').map(visible)].join('\n    ')
  return visible(`: ${[type, message].filter(Boolean).join(': ')}`)
}

/** Text of clients gets into messages: it must neither begin a line nor tell the terminal anything. */
function visible(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  )
}

/** The administrator that this start has created, with its password if it was made up. */
export type Admin = { email: string; password: string | null; signInToken?: string } | undefined

type BannerFacts = { url: string; docs: string; config: Config; admin: Admin }

/** The lines for a person once everything runs. */
export function banner({ url, docs, config, admin }: BannerFacts): string {
  const { database, project, mail, server } = config
  const password = admin?.password ? `${admin.password}   (shown only this once)` : 'as in ADMIN_PASSWORD'
  const rows: [label: string, value: string][] = [
    ['URL', url],
    ...(config.console.enabled ? ([['Console', `${url}/console`]] as [string, string][]) : []),
    ['Docs', docs],
    ...(mail.defaultSender === undefined && server.environment !== 'production'
      ? ([['Mail', `${url}/_dev/mail   (shown here, not sent)`]] as [string, string][])
      : []),
    ...(admin === undefined
      ? []
      : ([
          ['Admin', admin.email],
          ['Password', password],
          ...(admin.signInToken === undefined
            ? []
            : [['Sign-in', `${url}/console/welcome#${admin.signInToken}   (works once, within 10 minutes)`]]),
        ] as [string, string][])),
    ['Data', database.url === undefined ? resolve(database.dataDir) : withoutPassword(database.url)],
  ]
  const lines = rows.map(([label, value]) => `    ${label.padEnd(9)} ${value}`)
  return ['', `  ${project.name} is running.`, '', ...lines, '', '  Ctrl-C stops everything.', ''].join('\n')
}

/** Where the interface is described; the file when the server does not show it. */
export async function docsAddress(url: string): Promise<string> {
  for (const path of ['/docs', '/openapi']) if ((await fetch(`${url}${path}`)).ok) return `${url}${path}`
  return 'README.md'
}

/** The address to reach a server under that listens on this host. */
export function addressOf(host: string, port: number): string {
  const reachable = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

function withoutPassword(databaseUrl: string): string {
  const { host, pathname } = new URL(databaseUrl)
  return `${host}${pathname} (DATABASE_URL)`
}
