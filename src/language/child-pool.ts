import { type ChildProcess, fork, type SerializationType } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { Logger } from 'pino'
import { errors } from '../errors.ts'
import {
  emptyPool,
  type PoolBounds,
  type PoolEffect,
  type PoolInput,
  type PoolJob,
  ready,
  stepPool,
} from './child-pool-step.ts'
import { tooLargeSignal } from './watchdog.ts'

/** The line between a job and the process that it has. */
export type ChildLine<To, From> = {
  /** Lost where the process has ended. */
  send(message: To): void
  /** From now on; only one listener at a time. */
  listen(onMessage: (message: From) => void): void
  /** Ends the process when it takes more, from now until the job's end. */
  limit(limits: ChildLimits): void
  /** Its process ends after this job, and another takes its place. */
  retire(): void
}

type ChildLimits = {
  /** Milliseconds of processor time. */
  readonly computeMs: number
  /** Milliseconds of any time. */
  readonly passedMs: number
  /** Megabytes. */
  readonly residentMb?: number
  /** How often to look at the least, in milliseconds. */
  readonly lookMs: number
  /** Why the process is to be ended; what it gives is what the job rejects with. */
  readonly refusal: (overrun: Overrun) => Error
}

export type Overrun = 'computed' | 'passed' | 'resident'

type ChildJob<T, To, From> = {
  /** Jobs of different turns are served in turns. */
  readonly turn: string
  /** Goes first and is never refused. */
  readonly isQuick: boolean
  /** Aborts when its caller no longer waits for it. A running job comes to its end. */
  readonly signal?: AbortSignal | undefined
  /** Called anew where its process died and `mostDeaths` allows it. */
  readonly run: (line: ChildLine<To, From>) => Promise<T>
}

type ChildPool<To, From> = {
  /**
   * @throws {ChildDeathError} where its process has died, 503 where no process can be started, what `refusal` says where
   *   too many wait or it has waited for too long
   */
  run<T>(job: ChildJob<T, To, From>): Promise<T>
  /** Starts processes before there is work for them. */
  warmUp(): void
  /** Jobs that wait, and processes. */
  load(): { readonly waiting: number; readonly processes: number }
  close(): Promise<void>
}

type ChildPoolOptions = PoolBounds & {
  readonly log: Logger
  /** The purpose of its processes, as the log says it. */
  readonly name: string
  /** The module that its processes run. */
  readonly script: string
  readonly args: readonly string[]
  readonly execArgv?: readonly string[]
  /** All of the environment that its processes have. */
  readonly env: NodeJS.ProcessEnv
  readonly serialization: SerializationType
  /** Processes end that had nothing to do for so long; never where it is undefined. */
  readonly unusedMs?: number
  /** How long a job may wait for a process. */
  readonly longestWaitMs: number
  /** For a job that is one too many. */
  readonly refusal: () => Error
}

/** The process of a job has died, by its own fault or by chance. */
export class ChildDeathError extends Error {
  override readonly name = 'ChildDeathError'
}

/**
 * A few processes for what may crash, hang or take all memory: then its process is ended and the others go on. Each does one
 * job at a time; they are started when there is work.
 */
export function openChildPool<To, From extends { readonly kind: string }>(
  options: ChildPoolOptions,
): ChildPool<To, From> {
  const shell = new PoolShell<To, From>(options)
  return {
    run: (job) => shell.run(job),
    warmUp: () => shell.warmUp(),
    load: () => shell.load(),
    close: () => shell.close(),
  }
}

type Pending<To, From> = ChildJob<unknown, To, From> & PromiseWithResolvers<unknown>

/** A process and the job that it has. */
type Running<From> = {
  readonly process: ChildProcess
  readonly ended: Promise<void>
  onMessage: ((message: From) => void) | undefined
  isGuilty: boolean
}

class PoolShell<To, From extends { readonly kind: string }> {
  readonly #options: ChildPoolOptions
  readonly #jobs = new Map<number, Pending<To, From>>()
  readonly #children = new Map<number, Running<From>>()
  #state = emptyPool
  #lastJob = 0
  #unused: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: ChildPoolOptions) {
    this.#options = options
  }

  run<T>(wanted: ChildJob<T, To, From>): Promise<T> {
    if (this.#isClosed) return Promise.reject(errors.unavailable())
    this.#lastJob += 1
    const id = this.#lastJob
    const job: PoolJob = { id, turn: wanted.turn, isQuick: wanted.isQuick, deaths: 0 }
    const pending: Pending<To, From> = { ...wanted, ...Promise.withResolvers() }
    this.#jobs.set(id, pending)
    const giveUp = (reason: unknown) => {
      if (!this.#state.queue.some((waiting) => waiting.id === id)) return
      this.#apply({ kind: 'abandoned', job: id })
      pending.reject(reason)
    }
    const onAbort = () => giveUp(wanted.signal?.reason)
    wanted.signal?.addEventListener('abort', onAbort, { once: true })
    const timer = setTimeout(() => giveUp(this.#options.refusal()), this.#options.longestWaitMs).unref()
    this.#apply({ kind: 'asked', job })
    return (pending.promise as Promise<T>).finally(() => {
      clearTimeout(timer)
      wanted.signal?.removeEventListener('abort', onAbort)
      this.#jobs.delete(id)
    })
  }

  warmUp(): void {
    if (!this.#isClosed) this.#apply({ kind: 'wanted soon' })
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
    const [next, effects] = stepPool(this.#state, input, this.#options)
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
        this.#jobs.get(effect.job)?.reject(this.#options.refusal())
        break
      case 'break':
        this.#jobs
          .get(effect.job)
          ?.reject(effect.why === 'deadly' ? new ChildDeathError('its process has died') : errors.unavailable())
    }
  }

  #start(id: number): void {
    const { log, name, script, args, execArgv, env, serialization } = this.#options
    const child = fork(script, args, {
      env,
      execArgv: [...(execArgv ?? [])],
      serialization,
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    const words = lastWords(child)
    const ended = Promise.withResolvers<void>()
    const running: Running<From> = { process: child, ended: ended.promise, onMessage: undefined, isGuilty: false }
    this.#children.set(id, running)
    child.on('message', (message: From) => {
      if (message.kind === ready.kind) this.#apply({ kind: 'started', child: id })
      else running.onMessage?.(message)
    })
    const onEnd = (how: string, isGuilty: boolean) => {
      if (!this.#children.delete(id)) return
      ended.resolve()
      if (this.#isClosed) return
      const isKnown = this.#state.children.some((one) => one.id === id)
      if (isKnown) log.warn({ how, words: words() }, `a process for ${name} has ended`)
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
    const stops: (() => void)[] = []
    const line: ChildLine<To, From> = {
      send: (message) => {
        if (child.process.connected) child.process.send(message as object)
      },
      listen: (onMessage) => {
        child.onMessage = onMessage
      },
      limit: (limits) => {
        const stop = limitChild(child.process.pid!, limits, (overrun) => {
          pending.reject(limits.refusal(overrun))
          child.isGuilty = true
          child.process.kill('SIGKILL')
        })
        stops.push(stop)
      },
      retire: () => {
        isRetired = true
      },
    }
    let isRetired = false
    const isDead = await Promise.race([
      child.ended.then(() => true),
      pending.run(line).then(pending.resolve, pending.reject),
    ])
    for (const stop of stops) stop()
    child.onMessage = undefined
    if (isDead === true || child.isGuilty) return
    if (isRetired) child.process.kill('SIGKILL')
    this.#apply({ kind: isRetired ? 'retired' : 'finished', child: childId })
  }

  /** Processes that have nothing to do cost memory. */
  #watchUse(): void {
    clearTimeout(this.#unused)
    const { unusedMs } = this.#options
    if (this.#isClosed || this.#state.children.length === 0 || unusedMs === undefined) return
    this.#unused = setTimeout(() => this.#apply({ kind: 'unused for long' }), unusedMs).unref()
  }
}

/**
 * Calls back once, when a process takes more than it may. Where the system does not tell what it has computed, time passes
 * for all processes alike, and their memory is the business of their own watchdogs.
 */
function limitChild(pid: number, limits: ChildLimits, onOverrun: (overrun: Overrun) => void): () => void {
  const { computeMs, passedMs, residentMb, lookMs } = limits
  const began = performance.now()
  const before = computedMs(pid)
  const look = () => {
    const passed = performance.now() - began
    const now = computedMs(pid)
    const computed = now === undefined || before === undefined ? passed : now - before
    if (computed >= computeMs) onOverrun('computed')
    else if (passed >= passedMs) onOverrun('passed')
    else if (residentMb !== undefined && (residentMegabytes(pid) ?? 0) > residentMb) onOverrun('resident')
    else timer = setTimeout(look, Math.max(1, Math.min(lookMs, computeMs - computed, passedMs - passed)))
  }
  let timer = setTimeout(look, Math.min(lookMs, computeMs, passedMs))
  return () => clearTimeout(timer)
}

/** Linux tells in hundredths of a second. */
function computedMs(pid: number): number | undefined {
  const fields = readProc(`/proc/${pid}/stat`)?.split(') ')[1]?.split(' ')
  return fields === undefined ? undefined : (Number(fields[11]) + Number(fields[12])) * 10
}

function residentMegabytes(pid: number): number | undefined {
  const pages = readProc(`/proc/${pid}/statm`)?.split(' ')[1]
  return pages === undefined ? undefined : (Number(pages) * 4096) / 1_048_576
}

/** Undefined where the process has just ended, and on other systems. */
function readProc(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
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
