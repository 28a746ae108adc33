import { writeSync } from 'node:fs'
import {
  type DestinationStream,
  destination,
  type Logger,
  type LoggerOptions,
  pino,
  stdSerializers,
  stdTimeFunctions,
} from 'pino'
import { traceIds } from './running-span.ts'

/** The log of the process. */
export type Logs = { readonly log: Logger }

type LogOptions = {
  level: string
  /** Name of the process. */
  name: string
  /** LOG_WARN_STACK: without it, errors logged below level error come without their stack. */
  warnStack?: boolean
  /** On standard error, where standard output is the answer. */
  stderr?: boolean
}

/** Members whose values never reach a log line, wherever they stand up to three levels deep. */
const secretMembers = [
  'password',
  'currentPassword',
  'newPassword',
  'token',
  'accessToken',
  'refreshToken',
  'sessionToken',
  'secret',
  'secretKey',
  'authorization',
  'cookie',
  'smtp_pass',
  'pass',
  '["set-cookie"]',
  '["x-mcp-password"]',
]

/** How errors are shown in lines. */
export const serializers = { err: (err: unknown) => (err instanceof Error ? shown(err) : err) }

/** Pino marks the errors that it looks at, which frozen ones refuse: they are shown without members of their own. */
function shown(error: Error): object {
  try {
    return stdSerializers.err(error)
  } catch {
    const { name, message, stack, code, cause } = error as Error & { code?: unknown }
    return { type: name, message, stack, code, cause: cause instanceof Error ? cause.message : undefined }
  }
}

/** The process's logger: one JSON line per event on standard output, or error, secrets replaced. */
export function openLogger({ level, name, warnStack = false, stderr = false }: LogOptions): Logger {
  const options: LoggerOptions = {
    level,
    base: { name, pid: process.pid },
    timestamp: stdTimeFunctions.isoTime,
    serializers,
    formatters: { level: (label) => ({ level: label }) },
    redact: { paths: secretMembers.flatMap(atThreeDepths), censor: '[redacted]' },
    mixin: traceIds,
    hooks: { logMethod: warnStack ? undefined : withoutWarnStack },
  }
  return pino(options, openOutput(stderr ? 2 : 1))
}

/**
 * Lines are written by another thread, and by `flushSync` those that still wait when the process ends. The stream's own
 * `flushSync` tries for ever to write to a reader that is gone: a process that outlived its launcher would never end.
 */
function openOutput(fd: number): DestinationStream {
  const stream = destination(fd)
  const waiting = stream as unknown as { _bufs: string[]; _len: number }
  stream.flushSync = () => {
    let rest = Buffer.from(waiting._bufs.splice(0).join(''))
    waiting._len -= rest.length
    while (rest.length > 0) rest = rest.subarray(tryToWrite(fd, rest))
  }
  return stream
}

const pauseMs = 10

/** How many bytes are done with: all of them when no reader is left. */
function tryToWrite(fd: number, bytes: Buffer): number {
  try {
    return writeSync(fd, bytes)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return bytes.length
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pauseMs)
    return 0
  }
}

function atThreeDepths(member: string): string[] {
  const path = (prefix: string) => (member.startsWith('[') ? `${prefix}${member}` : `${prefix}.${member}`)
  return [member, path('*'), path('*.*')]
}

const errorLevel = 50

function withoutWarnStack(this: Logger, args: unknown[], method: (...rest: never[]) => void, level: number): void {
  const [first] = args
  if (
    level < errorLevel &&
    first !== null &&
    typeof first === 'object' &&
    'err' in first &&
    first.err instanceof Error
  ) {
    const { name, message, code, cause } = first.err as Error & { code?: string }
    const reason = cause instanceof Error ? cause.message : undefined
    args[0] = { ...first, err: { type: name, message, code, cause: reason } }
  }
  method.apply(this, args as never[])
}
