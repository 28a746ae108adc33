import { type ChildProcess, fork } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Logger } from 'pino'
import { AppError, errors } from '../../../errors.ts'
import { tooLargeSignal } from '../../../language/watchdog.ts'
import { emptyPool, type Job, type PoolEffect, type PoolInput, stepPool } from './pool-step.ts'
import {
  type Fault,
  type FromChild,
  type ImageLimits,
  memoryFlag,
  type Result,
  type Task,
  type ToChild,
} from './protocol.ts'

/** What a process is to do, made when its turn has come. */
export type Prepared = {
  readonly task: Task
  /** The bytes from `start` up to, but without, `end`, of a file of sound or film. */
  readonly read?: (start: number, end: number) => Promise<Uint8Array>
}

export type PoolJob<T> = {
  /** Who takes turns with others. */
  readonly turn: string
  /** Goes first and is never refused. */
  readonly isQuick: boolean
  /** How long its process may compute. */
  readonly timeLimitMs: number
  /** Aborts when nobody waits for it any more. */
  readonly signal?: AbortSignal | undefined
  /** Called anew where its process died. What it gives as `ready` needs no process. */
  readonly prepare: () => Promise<Prepared | { readonly ready: T }>
}

/** Why a job could not be done. `deadly`: it took too much time or memory, or processes died of it. */
export class JobFault extends Error {
  override readonly name = 'JobFault'
  readonly fault: Fault | 'deadly'
  constructor(fault: Fault | 'deadly', message: string) {
    super(message)
    this.fault = fault
  }
}

export type ImagePool = {
  /** @throws {JobFault} and 503 where too many wait, or no process can be started */
  run<T = never>(job: PoolJob<T>): Promise<Result | T>
  /** Jobs that wait, and processes. */
  load(): { readonly waiting: number; readonly processes: number }
  close(): Promise<void>
}

export type PoolOptions = {
  readonly log: Logger
  readonly limits: ImageLimits
  /** Megabytes that one process may take. */
  readonly memoryMb: number
  /** Where the library puts what does not fit into memory. */
  readonly tempDir: string
}

const unusedMs = 30_000
/** A client hears of it before its connection is given up. */
const longestWaitMs = 45_000
/** A child that is asked for a file may read so much of it: what containers say stands at their ends. */
const mostRead = 32 * 1_048_576
const mostReadAtOnce = 4 * 1_048_576

/**
 * Two processes at most, for what the files of strangers make of a decoder: it may crash, hang or take all memory, and then
 * its process is ended and the others go on (ADR 0044). Started when there is work, ended when there was none for a while.
 */
export function openPool(options: PoolOptions): ImagePool {
  const shell = new PoolShell(options)
  return {
    run: (job) => shell.run(job),
    load: () => shell.load(),
    close: () => shell.close(),
  }
}

type Pending = PoolJob<unknown> & PromiseWithResolvers<unknown>

/** A process and the job that it has. */
type Running = {
  readonly process: ChildProcess
  readonly ended: Promise<void>
  onAnswer: ((message: FromChild) => void) | undefined
  isGuilty: boolean
}

class PoolShell {
  readonly #options: PoolOptions
  readonly #jobs = new Map<number, Pending>()
  readonly #children = new Map<number, Running>()
  #state = emptyPool
  #lastJob = 0
  #unused: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: PoolOptions) {
    this.#options = options
  }

  run<T>(wanted: PoolJob<T>): Promise<Result | T> {
    if (this.#isClosed) return Promise.reject(errors.unavailable())
    this.#lastJob += 1
    const id = this.#lastJob
    const job: Job = { id, turn: wanted.turn, isQuick: wanted.isQuick, deaths: 0 }
    const pending: Pending = { ...wanted, ...Promise.withResolvers() }
    this.#jobs.set(id, pending)
    const giveUp = (reason: unknown) => {
      // What runs comes to its end, and its files with it.
      if (!this.#state.queue.some((waiting) => waiting.id === id)) return
      this.#apply({ kind: 'abandoned', job: id })
      pending.reject(reason)
    }
    const onAbort = () => giveUp(wanted.signal?.reason)
    wanted.signal?.addEventListener('abort', onAbort, { once: true })
    const timer = setTimeout(() => giveUp(tooMany()), longestWaitMs).unref()
    this.#apply({ kind: 'asked', job })
    return (pending.promise as Promise<Result | T>).finally(() => {
      clearTimeout(timer)
      wanted.signal?.removeEventListener('abort', onAbort)
      this.#jobs.delete(id)
    })
  }

  load(): { readonly waiting: number; readonly processes: number } {
    return { waiting: this.#state.queue.length, processes: this.#state.children.length }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#unused)
    for (const { reject } of this.#jobs.values()) reject(errors.unavailable())
    this.#jobs.clear()
    const children = [...this.#children.values()]
    for (const child of children) child.process.kill('SIGKILL')
    await Promise.all(children.map(({ ended }) => ended))
  }

  #apply(input: PoolInput): void {
    const [next, effects] = stepPool(this.#state, input)
    this.#state = next
    for (const effect of effects) this.#perform(effect)
    this.#watchUse()
  }

  #perform(effect: PoolEffect): void {
    switch (effect.kind) {
      case 'start':
        this.#start(effect.child)
        break
      case 'run':
        void this.#runOn(effect.child, effect.job)
        break
      case 'end':
        this.#children.get(effect.child)?.process.kill('SIGKILL')
        break
      case 'refuse':
        this.#jobs.get(effect.job)?.reject(tooMany())
        break
      case 'break':
        this.#jobs
          .get(effect.job)
          ?.reject(effect.why === 'deadly' ? new JobFault('deadly', 'its process has died') : errors.unavailable())
    }
  }

  #start(id: number): void {
    const { log, memoryMb, tempDir } = this.#options
    const child = fork(join(import.meta.dirname, 'image-process.ts'), [`${memoryFlag}${memoryMb}`], {
      // No secret of the environment can be in its memory.
      env: { MALLOC_ARENA_MAX: '2', TMPDIR: tempDir },
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    const words = lastWords(child)
    const ended = Promise.withResolvers<void>()
    const running: Running = { process: child, ended: ended.promise, onAnswer: undefined, isGuilty: false }
    this.#children.set(id, running)
    child.on('message', (message: FromChild) => {
      if (message.kind === 'ready') this.#apply({ kind: 'started', child: id })
      else running.onAnswer?.(message)
    })
    const onEnd = (how: string, isGuilty: boolean) => {
      if (!this.#children.delete(id)) return
      ended.resolve()
      if (this.#isClosed) return
      const isKnown = this.#state.children.some((one) => one.id === id)
      if (isKnown) log.warn({ how, words: words() }, 'a process for images has ended')
      this.#apply({ kind: 'ended', child: id, isGuilty: running.isGuilty || isGuilty })
    }
    child.once('exit', (code, signal) => onEnd(String(signal ?? code), signal === tooLargeSignal))
    // A message that is lost is one, too; the process is of no more use then.
    child.on('error', (error) => {
      child.kill('SIGKILL')
      if (child.pid === undefined) onEnd(error.message, false)
    })
  }

  async #runOn(childId: number, jobId: number): Promise<void> {
    const pending = this.#jobs.get(jobId)
    const child = this.#children.get(childId)
    // Given up between two steps, or its process has just ended and says so next.
    if (child === undefined) return
    if (pending === undefined) return this.#apply({ kind: 'finished', child: childId })
    try {
      const prepared = await pending.prepare()
      if ('ready' in prepared) pending.resolve(prepared.ready)
      else if (!(await this.#answered(child, pending, prepared))) return
    } catch (error) {
      pending.reject(error)
    }
    this.#apply({ kind: 'finished', child: childId })
  }

  /** False where the process has died of it. */
  async #answered(child: Running, pending: Pending, { task, read }: Prepared): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<FromChild | undefined>()
    const reading = readingFor(child.process, read)
    child.onAnswer = (message) => (message.kind === 'read' ? void reading(message) : resolve(message))
    void child.ended.then(() => resolve(undefined))
    const stopTimer = limitTime(child.process.pid!, pending.timeLimitMs, (isStarved) => {
      if (isStarved)
        pending.reject(errors.unavailable('This machine has no time for images now. Please try again later.'))
      child.isGuilty = true
      child.process.kill('SIGKILL')
    })
    child.process.send({ kind: 'task', task, limits: this.#options.limits } satisfies ToChild)
    const answer = await promise
    stopTimer()
    child.onAnswer = undefined
    if (answer === undefined) return false
    if (answer.kind === 'done') pending.resolve(answer.result)
    if (answer.kind === 'failed') pending.reject(new JobFault(answer.fault, answer.message))
    return true
  }

  /** Processes that have nothing to do cost memory. */
  #watchUse(): void {
    clearTimeout(this.#unused)
    if (this.#isClosed || this.#state.children.length === 0) return
    this.#unused = setTimeout(() => this.#apply({ kind: 'unused for long' }), unusedMs).unref()
  }
}

/** A process that yields to all others may not get its time within so many times as long. */
const patience = 4

/**
 * Calls back when a process has computed for so long, or had no chance to. Where the system does not tell, time passes for
 * all processes alike.
 */
function limitTime(pid: number, limitMs: number, onOverrun: (isStarved: boolean) => void): () => void {
  const began = performance.now()
  const before = computedMs(pid)
  const look = () => {
    const passed = performance.now() - began
    const now = computedMs(pid)
    const computed = now === undefined || before === undefined ? passed : now - before
    if (computed >= limitMs) onOverrun(false)
    else if (passed >= patience * limitMs) onOverrun(true)
    else timer = setTimeout(look, Math.max(limitMs / 10, limitMs - computed))
  }
  let timer = setTimeout(look, limitMs)
  return () => clearTimeout(timer)
}

/** Linux tells in hundredths of a second. */
function computedMs(pid: number): number | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
    return (Number(fields[11]) + Number(fields[12])) * 10
  } catch {
    // It has just ended, or this is another system.
    return undefined
  }
}

/** Answers what a process wants to read of its file, one piece after the other. */
function readingFor(child: ChildProcess, read: Prepared['read']) {
  let total = 0
  return async ({ start, end }: Extract<FromChild, { kind: 'read' }>): Promise<void> => {
    total += end - start
    const reply = await (async (): Promise<ToChild> => {
      if (read === undefined || end - start > mostReadAtOnce || total > mostRead)
        return { kind: 'no bytes', message: 'too much of the file is asked for' }
      try {
        return { kind: 'bytes', bytes: await read(start, end) }
      } catch (error) {
        return { kind: 'no bytes', message: (error as Error).message }
      }
    })()
    if (child.connected) child.send(reply)
  }
}

/** The end of what a process has complained about, for the log. */
function lastWords({ stderr }: ChildProcess): () => string {
  let words = ''
  stderr?.setEncoding('utf8').on('data', (text: string) => {
    words = (words + text).slice(-1000)
  })
  return () => words
}

const tooMany = () =>
  new AppError(503, 'Too many images are being processed. Please try again later.', {
    code: 'OVERLOADED',
    headers: { 'retry-after': '5' },
  })
