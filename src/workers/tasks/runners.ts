import { type ChildProcess, fork } from 'node:child_process'
import type { Logs } from '../../adapters/logger.ts'
import { retryTransient } from '../../adapters/retry.ts'
import type { Configuration } from '../../config/config.ts'
import type { AttemptOutcome, TaskProgress } from '../../features/work/tasks/tasks.ts'
import { moduleFile } from '../../language/child-process.ts'
import { type Abilities, aliveMs, type FromRunner, type Order, yieldingFlag } from './protocol.ts'

/** A process of its own for handlers: whatever they do to it, the worker lives, and so do the other tasks. */
export type TaskRunner = {
  readonly abilities: Abilities
  /** How the process ended; never rejects. */
  readonly ended: Promise<string>
  /** Runs one handler. Never rejects: a process that dies is an outcome. */
  run(order: NewOrder, onProgress: (progress: TaskProgress) => void): Promise<AttemptOutcome>
  /** Ends the process at once; what it runs is broken, for this reason. */
  kill(reason: string): void
}

type NewOrder = Omit<Extract<Order, { kind: 'task' }>, 'run'> | Omit<Extract<Order, { kind: 'schedule' }>, 'run'>

/** Questions of one runner's handlers to the worker; a rejection goes to the caller. */
export type Calls = {
  call(method: string, args: readonly unknown[]): Promise<unknown>
  /** The runner has ended in this way: what it has taken becomes free. */
  close(how: string): Promise<void>
}

type TaskRunnerOptions = {
  readonly openCalls: () => Calls
  /** It shall take the processors only where others leave them. */
  readonly yields?: boolean
  /** Ends the process, also one that is still starting. */
  readonly signal?: AbortSignal
}

/** Starts a runner and waits until it has loaded the extensions. Rejects when it cannot. */
export async function startRunner(
  deps: Configuration & Logs,
  { openCalls, yields = false, signal }: TaskRunnerOptions,
): Promise<TaskRunner> {
  const { memoryLimitMb, stallTimeoutSeconds } = deps.config.tasks
  const child = fork(moduleFile(import.meta.dirname, 'runner-main'), yields ? [yieldingFlag] : [], {
    execArgv: [`--max-old-space-size=${memoryLimitMb}`],
  })
  const calls = openCalls()
  const runs = new Map<number, RunningAttempt>()
  let lastRun = 0
  let reason: string | undefined
  const kill = (why: string) => {
    reason ??= why
    child.kill('SIGKILL')
  }
  const stop = () => kill(stopReason)
  signal?.addEventListener('abort', stop)
  const ended = endOf(child).then((end) => {
    signal?.removeEventListener('abort', stop)
    const how = reason ?? end
    for (const { end } of runs.values()) end({ state: 'broken', message: how })
    return how
  })
  const silence = watchSilence(Math.ceil((stallTimeoutSeconds * 1000) / aliveMs), () =>
    kill(`Task stalled: its process gave no sign of life for ${stallTimeoutSeconds} s`),
  )
  void ended.then((how) => {
    silence.close()
    calls
      .close(how)
      .catch((error: unknown) => deps.log.error({ err: error }, 'what a process had taken is not free yet'))
  })
  const ready = Promise.withResolvers<Abilities>()
  child.on('message', (message: FromRunner) => {
    silence.broken()
    if (message.kind === 'ready') ready.resolve(message)
    else if (message.kind === 'done') runs.get(message.run)?.end(message.outcome)
    else if (message.kind === 'progress') runs.get(message.run)?.onProgress(message)
    else if (message.kind === 'call') void answer(child, calls, message)
  })
  child.on('error', (error) => kill(`its process cannot be told anything: ${error.message}`))
  const abilities = await Promise.race([ready.promise, ended.then((how) => failToStart(how))])
  const run: TaskRunner['run'] = (order, onProgress) => {
    lastRun += 1
    const id = lastRun
    return new Promise<AttemptOutcome>((end) => {
      runs.set(id, { end, onProgress })
      void ended.then((how) => end({ state: 'broken', message: how }))
      child.send({ ...order, run: id })
    }).finally(() => runs.delete(id))
  }
  return { abilities, ended, run, kill }
}

/** `once` would reject at any `error`, and a message that is lost is one. */
function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) =>
      resolve(`its process ended with ${signal === null ? `exit code ${code}` : `signal ${signal}`}`),
    )
    child.on('error', (error) => {
      if (child.pid === undefined) resolve(`its process was not started: ${error.message}`)
    })
  })
}

type RunningAttempt = { end(outcome: AttemptOutcome): void; onProgress(progress: TaskProgress): void }

function failToStart(how: string): never {
  throw new Error(`the process for tasks could not start: ${how}`)
}

/** Calls `onSilence` when nothing was heard for that many of its own ticks, so a worker that stood still itself blames no runner. */
function watchSilence(ticksAtMost: number, onSilence: () => void) {
  let silent = 0
  const timer = setInterval(() => {
    silent += 1
    if (silent > ticksAtMost) onSilence()
  }, aliveMs)
  return {
    broken: () => {
      silent = 0
    },
    close: () => clearInterval(timer),
  }
}

async function answer(
  child: ChildProcess,
  calls: Calls,
  { call, method, args }: Extract<FromRunner, { kind: 'call' }>,
) {
  const reply = await calls.call(method, args).then(
    (result) => ({ result }),
    (error: Error) => ({ error: error.message }),
  )
  if (child.connected) child.send({ kind: 'answer', call, ...reply })
}

/** Processes for tasks: those that run one, and one that waits so that a death delays no task. */
export type RunnerPool = {
  /** How many tasks would have a process at once; before there was any use for one, as many as may come to have one. */
  ready(): number
  /** There will be use for a process soon. */
  prepare(): void
  /** An idle process, as soon as there is one; undefined when stopped. */
  take(): Promise<TaskRunner | undefined>
  /** Gives it back; one that has ended is replaced. */
  give(runner: TaskRunner): void
  stop(): Promise<void>
}

type RunnerPoolOptions = Omit<TaskRunnerOptions, 'signal'> & {
  readonly atMost: number
  /** One that has started already. */
  readonly first?: TaskRunner
  /** A process waits for a task. */
  readonly onReady?: () => void
}

export function openRunners(deps: Configuration & Logs, { first, ...options }: RunnerPoolOptions): RunnerPool {
  const pool: RunnerPoolState = {
    deps,
    options,
    alive: new Set(),
    idle: [],
    waiting: [],
    starting: undefined,
    isUsed: first !== undefined,
    stopped: new AbortController(),
  }
  if (first !== undefined) adopt(pool, first)
  keepSpare(pool)
  return {
    ready: () => (pool.isUsed ? pool.idle.length : options.atMost),
    prepare() {
      pool.isUsed = true
      keepSpare(pool)
    },
    take: () => take(pool),
    give(runner) {
      if (pool.alive.has(runner)) offer(pool, runner)
    },
    stop: () => stopPool(pool),
  }
}

type RunnerPoolState = {
  readonly deps: Configuration & Logs
  readonly options: Omit<RunnerPoolOptions, 'first'>
  readonly alive: Set<TaskRunner>
  readonly idle: TaskRunner[]
  readonly waiting: ((runner: TaskRunner | undefined) => void)[]
  starting: Promise<void> | undefined
  isUsed: boolean
  readonly stopped: AbortController
}

const backoff = { firstMs: 250, longestMs: 10_000 }
const stopReason = 'the worker is stopping'

function take(pool: RunnerPoolState): Promise<TaskRunner | undefined> {
  pool.isUsed = true
  const runner = pool.idle.shift()
  const isStopped = pool.stopped.signal.aborted
  const taken =
    runner === undefined && !isStopped
      ? new Promise<TaskRunner | undefined>((resolve) => pool.waiting.push(resolve))
      : Promise.resolve(runner)
  keepSpare(pool)
  return taken
}

function offer({ waiting, idle, options }: RunnerPoolState, runner: TaskRunner): void {
  const next = waiting.shift()
  if (next === undefined) {
    idle.push(runner)
    options.onReady?.()
  } else next(runner)
}

function adopt(pool: RunnerPoolState, runner: TaskRunner): void {
  const { alive, idle, deps, stopped } = pool
  if (stopped.signal.aborted) {
    runner.kill(stopReason)
    return
  }
  alive.add(runner)
  void runner.ended.then((how) => {
    alive.delete(runner)
    const index = idle.indexOf(runner)
    if (index >= 0) idle.splice(index, 1)
    if (!stopped.signal.aborted) deps.log.warn({ how }, 'a process for tasks has ended')
    keepSpare(pool)
  })
  offer(pool, runner)
}

/** One after the other: they share the processors with the tasks. */
function keepSpare(pool: RunnerPoolState): void {
  const { alive, idle, waiting, options, stopped, starting, isUsed } = pool
  if (!isUsed || stopped.signal.aborted || starting !== undefined) return
  if ((idle.length > 0 && waiting.length === 0) || alive.size >= options.atMost) return
  pool.starting = startSpare(pool).finally(() => {
    pool.starting = undefined
    keepSpare(pool)
  })
}

async function startSpare(pool: RunnerPoolState): Promise<void> {
  const { deps, options, stopped } = pool
  const startOne = async () => adopt(pool, await startRunner(deps, { ...options, signal: stopped.signal }))
  await retryTransient(startOne, {
    backoff,
    unref: true,
    signal: stopped.signal,
    onRetry: (error) => deps.log.error({ err: error }, 'a process for tasks could not be started yet'),
  }).catch((error: unknown) => {
    if (!stopped.signal.aborted) throw error
  })
}

async function stopPool({ alive, waiting, stopped, starting }: RunnerPoolState): Promise<void> {
  stopped.abort()
  for (const resolve of waiting.splice(0)) resolve(undefined)
  for (const runner of alive) runner.kill(stopReason)
  await Promise.all([...alive].map(({ ended }) => ended))
  await starting
}
