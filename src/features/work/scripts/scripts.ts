import type { Logger } from 'pino'
import { fits, Type } from '../../../adapters/typebox.ts'
import { AppError, inFull } from '../../../errors.ts'
import { ChildDeathError, type ChildLine, type Overrun, openChildPool } from '../../../language/child-pool.ts'
import { moduleFile } from '../../../language/child-process.ts'
import {
  emptyProcessMb,
  type FromScript,
  type LogLevel,
  logLimits,
  memoryFlag,
  refusedCall,
  type ScriptFailure,
  type ScriptLimits,
  type ToScript,
} from './protocol.ts'

/** The default limits of scripts. */
const defaultLimits: ScriptLimits = { computeMs: 1000, passedMs: 30_000, memoryMb: 128, output: 1_000_000 }

export type ScriptRequest = {
  readonly url: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

type ScriptResponse = {
  readonly status: number
  readonly statusText: string
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

export type ItemsMethod = 'read' | 'readOne' | 'create' | 'update' | 'delete' | 'aggregate'

/**
 * The calls of a script to its host, which decides whose rights apply. The script gets the error of a call: its
 * message, with `status` and `code` if it is an {@link AppError}; it learns nothing of other errors.
 */
export type ScriptCalls = {
  items(method: ItemsMethod, args: readonly unknown[]): Promise<unknown>
  /** Undefined where a script may not reach the network. */
  readonly fetch?: ((request: ScriptRequest) => Promise<ScriptResponse>) | undefined
  /** Functions of extensions, by the name of their module. */
  readonly modules?: Readonly<Record<string, Readonly<Record<string, (...args: never[]) => unknown>>>> | undefined
}

export type Script = {
  /** The body of an asynchronous function. */
  readonly code: string
  /** Each member is a variable of the script. */
  readonly context: Readonly<Record<string, unknown>>
  /** Scripts of different turns are served in turns. */
  readonly turn: string
  /** Somebody waits for it with a transaction open: it goes first. */
  readonly isQuick?: boolean
  readonly limits?: Partial<ScriptLimits> | undefined
  readonly signal?: AbortSignal | undefined
}

type ScriptLog = { readonly level: LogLevel; readonly text: string }

type ScriptResult = { readonly value: unknown; readonly logs: readonly ScriptLog[] }

/** A script has not come to a result: by its own fault, or because it took too much. */
export class ScriptError extends Error {
  override readonly name = 'ScriptError'
  readonly failure: ScriptFailure
  readonly logs: readonly ScriptLog[]
  constructor(failure: ScriptFailure, logs: readonly ScriptLog[] = []) {
    super(failure.message)
    this.failure = failure
    this.logs = logs
  }
}

export type Scripts = {
  /** @throws {ScriptError}, and 503 where too many wait */
  run(script: Script, calls: ScriptCalls): Promise<ScriptResult>
  /** Why a script cannot be run, without running it; undefined where it can. */
  check(code: string): Promise<ScriptFailure | undefined>
  /** Starts the processes before there is a script. */
  warmUp(): void
  load(): { readonly waiting: number; readonly processes: number }
  close(): Promise<void>
}

type ScriptsOptions = {
  readonly log: Logger
  readonly processes: number
  readonly limits?: Partial<ScriptLimits> | undefined
}

type ScriptPool = ReturnType<typeof openChildPool<ToScript, FromScript>>
type ScriptLine = ChildLine<ToScript, FromScript>

/**
 * Runs code that users have written: each script in an isolate, each isolate in a process that has no environment and is ended
 * when it takes too much (ADR 0056). Nothing is started before there is a script.
 */
export function openScripts({ log, processes, limits }: ScriptsOptions): Scripts {
  const usual: ScriptLimits = { ...defaultLimits, ...limits }
  const pool: ScriptPool = openChildPool({
    log,
    name: 'scripts',
    script: moduleFile(import.meta.dirname, 'script-process'),
    args: [`${memoryFlag}${usual.memoryMb}`],
    // Isolates do not work with the snapshot of Node itself.
    execArgv: ['--no-node-snapshot'],
    env: {},
    serialization: 'json',
    atOnce: processes,
    mostWaiting: 100,
    // It may have done something already.
    mostDeaths: 1,
    unusedMs: 300_000,
    longestWaitMs: 10_000,
    refusal: tooMany,
  })
  return {
    run: (script, calls) => {
      const logs: ScriptLog[] = []
      return pool
        .run({
          turn: script.turn,
          isQuick: script.isQuick ?? false,
          signal: script.signal,
          run: (line) => resultOf(line, script, calls, { ...usual, ...script.limits }, logs),
        })
        .catch((error: unknown) => {
          throw error instanceof ChildDeathError ? new ScriptError(overrunOf('resident', usual), logs) : error
        })
    },
    check: (code) =>
      pool
        .run<ScriptFailure | undefined>({
          ...{ turn: 'check', isQuick: true },
          run: async (line) => {
            limit(line, usual, [])
            const ended = await answerTo(line, { kind: 'check', code }, () => undefined)
            return ended.kind === 'failed' ? ended.failure : undefined
          },
        })
        .catch((error: unknown) => {
          if (error instanceof ScriptError) return error.failure
          throw error instanceof ChildDeathError ? unavailable() : error
        }),
    warmUp: () => pool.warmUp(),
    load: () => pool.load(),
    close: () => pool.close(),
  }
}

type ScriptEnding = Extract<FromScript, { kind: 'done' | 'failed' }>

async function resultOf(
  line: ScriptLine,
  { code, context }: Script,
  calls: ScriptCalls,
  limits: ScriptLimits,
  logs: ScriptLog[],
): Promise<ScriptResult> {
  limit(line, limits, logs)
  const modules = Object.fromEntries(
    Object.entries(calls.modules ?? {}).map(([name, functions]) => [name, Object.keys(functions)]),
  )
  const seen = { context, output: limits.output, logCharacters: logLimits.characters, modules }
  const order = { kind: 'run', code, context: JSON.stringify(seen), limits } as const
  const stopped = new AbortController()
  try {
    const ended = await answerTo(line, order, (message) => {
      if (message.kind === 'log') logs.push({ level: message.level, text: message.text })
      if (message.kind === 'call') void answerCall(line, message, calls, limits, stopped.signal)
    })
    if (ended.kind === 'failed') throw new ScriptError(ended.failure, logs)
    return { value: ended.text === undefined ? undefined : JSON.parse(ended.text), logs }
  } finally {
    stopped.abort()
  }
}

/** The process watches these limits, too; it is ended where it cannot. */
function limit(line: ScriptLine, limits: ScriptLimits, logs: readonly ScriptLog[]): void {
  line.limit({
    // It ends a script in time by itself, unless it is kept from it.
    computeMs: limits.computeMs * 1.5 + 500,
    passedMs: limits.passedMs + 1000,
    residentMb: emptyProcessMb + limits.memoryMb,
    lookMs: 25,
    refusal: (overrun) => new ScriptError(overrunOf(overrun, limits), logs),
  })
}

async function answerTo(
  line: ScriptLine,
  order: ToScript,
  onMessage: (message: FromScript) => void,
): Promise<ScriptEnding> {
  const { promise, resolve } = Promise.withResolvers<ScriptEnding>()
  line.listen((message) => {
    if (message.kind === 'done' || message.kind === 'failed') resolve(message)
    else onMessage(message)
  })
  line.send(order)
  const ended = await promise
  if (ended.isWorn) line.retire()
  return ended
}

async function answerCall(
  line: ScriptLine,
  { call, name, text }: Extract<FromScript, { kind: 'call' }>,
  calls: ScriptCalls,
  { output }: ScriptLimits,
  stopped: AbortSignal,
): Promise<void> {
  const answer = await answerOf(name, text, calls, stopped)
    // A function of a module may give what is no JSON: then the call has failed, too.
    .then((value) => JSON.stringify({ value }))
    .then(
      (answer) =>
        answer.length <= output ? answer : refusedCall(`The answer has more than ${output} characters of JSON`),
      (error: unknown) => {
        if (!(error instanceof AppError)) return refusedCall('This call has failed')
        const { status, code } = error
        return JSON.stringify({ error: { message: inFull(error), status, code } })
      },
    )
  if (!stopped.aborted) line.send({ kind: 'answer', call, text: answer })
}

async function answerOf(name: string, text: string, calls: ScriptCalls, stopped: AbortSignal): Promise<unknown> {
  const args: unknown = JSON.parse(text)
  if (!Array.isArray(args)) throw new AppError(400, 'A call has arguments')
  const [, itemsMethod] = /^items\.(read|readOne|create|update|delete|aggregate)$/.exec(name) ?? []
  if (itemsMethod !== undefined) return calls.items(itemsMethod as ItemsMethod, args)
  if (name === 'sleep') return sleep(Number(args[0]), stopped)
  if (name === 'module') return callModule(calls, args)
  if (name !== 'fetch') throw new AppError(400, `There is no call ${name}`)
  if (calls.fetch === undefined) throw new AppError(400, 'A script that runs within a change may not use the network')
  return calls.fetch(requestOf(args[0]))
}

function callModule({ modules = {} }: ScriptCalls, [module, name, args]: readonly unknown[]): unknown {
  const functions = modules[ownName(modules, module)]
  const called = functions?.[ownName(functions, name)]
  if (called === undefined || !Array.isArray(args)) throw new AppError(400, `There is no function ${name} of ${module}`)
  return called(...(args as never[]))
}

/** A name that the object itself has: no script reaches what objects inherit. */
const ownName = (of: object, name: unknown): string => (Object.hasOwn(of, String(name)) ? String(name) : '')

/** A script may hand over any value. */
function requestOf(given: unknown): ScriptRequest {
  if (fits(requestShape, given)) return given as ScriptRequest
  throw new AppError(400, 'fetch takes an address and, in its second argument, method, headers and body as text')
}

const requestShape = Type.Object({
  url: Type.String(),
  method: Type.Optional(Type.String()),
  headers: Type.Optional(Type.Record(Type.String(), Type.String())),
  body: Type.Optional(Type.String()),
})

function sleep(ms: number, stopped: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  stopped.addEventListener('abort', () => {
    clearTimeout(timer)
    resolve()
  })
  return promise
}

function overrunOf(overrun: Overrun, { computeMs, passedMs, memoryMb }: ScriptLimits): ScriptFailure {
  switch (overrun) {
    case 'computed':
      return { fault: 'computing', message: `It computed for more than ${computeMs} ms` }
    case 'passed':
      return { fault: 'time', message: `It took more than ${passedMs} ms` }
    case 'resident':
      return { fault: 'memory', message: `It took more than ${memoryMb} MB` }
  }
}

const unavailable = () => new AppError(503, 'Scripts cannot be run here now', { code: 'SCRIPTS_UNAVAILABLE' })

const tooMany = () =>
  new AppError(503, 'Too many scripts are running. Please try again later.', {
    code: 'OVERLOADED',
    headers: { 'retry-after': '5' },
  })
