import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import type { Outcome } from '../../features/tasks/outcomes.ts'
import type { Progress } from '../../features/tasks/tasks.ts'
import type { Runtime } from '../../runtime.ts'
import { type Abilities, aliveMs, type FromRunner, type Order, yieldingFlag } from './protocol.ts'

/** A process of its own for handlers: whatever they do to it, the worker lives, and so do the other tasks. */
export type Runner = {
  readonly abilities: Abilities
  /** How the process ended; never rejects. */
  readonly ended: Promise<string>
  /** Runs one handler. Never rejects: a process that dies is an outcome. */
  run(order: NewOrder, onProgress: (progress: Progress) => void): Promise<Outcome>
  /** Ends the process at once; what it runs is broken, for this reason. */
  kill(reason: string): void
}

export type NewOrder = Omit<Extract<Order, { kind: 'task' }>, 'run'> | Omit<Extract<Order, { kind: 'schedule' }>, 'run'>

/** What the handlers of one runner ask of the worker; rejections are told to who asks. */
export type Calls = {
  call(method: string, args: readonly unknown[]): Promise<unknown>
  /** The runner has ended in this way: what it has taken becomes free. */
  close(how: string): Promise<void>
}

export type RunnerOptions = {
  readonly openCalls: () => Calls
  /** It shall take the processors only where others leave them. */
  readonly yields?: boolean
  /** Ends the process, also one that is still starting. */
  readonly signal?: AbortSignal
}

/** Starts a runner and waits until it has loaded the extensions. Rejects when it cannot. */
export async function startRunner(rt: Runtime, { openCalls, yields = false, signal }: RunnerOptions): Promise<Runner> {
  const { memoryLimitMb, stallTimeoutSeconds } = rt.config.tasks
  const child = fork(join(import.meta.dirname, 'runner-main.ts'), yields ? [yieldingFlag] : [], {
    execArgv: [`--max-old-space-size=${memoryLimitMb}`],
  })
  const calls = openCalls()
  const runs = new Map<number, Run>()
  let lastRun = 0
  let reason: string | undefined
  const kill = (why: string) => {
    reason ??= why
    child.kill('SIGKILL')
  }
  const stop = () => kill('the worker is stopping')
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
    calls.close(how).catch((error: unknown) => rt.log.error({ err: error }, 'what a process had taken is not free yet'))
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
  const run: Runner['run'] = (order, onProgress) => {
    lastRun += 1
    const id = lastRun
    return new Promise<Outcome>((end) => {
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

type Run = { end(outcome: Outcome): void; onProgress(progress: Progress): void }

function failToStart(how: string): never {
  throw new Error(`the process for tasks could not start: ${how}`)
}

/** Rings when nothing was heard for that many of its own ticks, so a worker that stood still itself blames nobody. */
function watchSilence(ticksAtMost: number, ring: () => void) {
  let silent = 0
  const timer = setInterval(() => {
    silent += 1
    if (silent > ticksAtMost) ring()
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
