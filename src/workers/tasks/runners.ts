import { retryTransient } from '../../adapters/retry.ts'
import type { Runtime } from '../../runtime.ts'
import { type Runner, type RunnerOptions, startRunner } from './runner.ts'

/** Processes for tasks: those that run one, and one that waits so that a death delays nobody. */
export type Runners = {
  /** How many tasks would have a process at once; before there was any use for one, as many as may come to have one. */
  ready(): number
  /** There will be use for a process soon. */
  prepare(): void
  /** An idle process, as soon as there is one; undefined when stopped. */
  take(): Promise<Runner | undefined>
  /** Gives it back; one that has ended is replaced. */
  give(runner: Runner): void
  stop(): Promise<void>
}

export type RunnersOptions = Omit<RunnerOptions, 'signal'> & {
  readonly atMost: number
  /** One that has started already. */
  readonly first?: Runner
  /** A process waits for a task. */
  readonly onReady?: () => void
}

const backoff = { firstMs: 250, longestMs: 10_000 }

export function openRunners(rt: Runtime, { atMost, first, onReady, ...options }: RunnersOptions): Runners {
  const alive = new Set<Runner>()
  const idle: Runner[] = []
  let waiting: ((runner: Runner | undefined) => void)[] = []
  let starting: Promise<void> | undefined
  let isUsed = first !== undefined
  let stopped = false
  const end = new AbortController()

  const offer = (runner: Runner) => {
    const next = waiting.shift()
    if (next !== undefined) return next(runner)
    idle.push(runner)
    onReady?.()
  }
  const adopt = (runner: Runner) => {
    if (stopped) return runner.kill('the worker is stopping')
    alive.add(runner)
    void runner.ended.then((how) => {
      alive.delete(runner)
      const place = idle.indexOf(runner)
      if (place >= 0) idle.splice(place, 1)
      if (!stopped) rt.log.warn({ how }, 'a process for tasks has ended')
      keepSpare()
    })
    offer(runner)
  }
  const start = async () => {
    const startOne = async () => adopt(await startRunner(rt, { ...options, signal: end.signal }))
    await retryTransient(startOne, {
      backoff,
      unref: true,
      signal: end.signal,
      onRetry: (error) => rt.log.error({ err: error }, 'a process for tasks could not be started yet'),
    }).catch((error: unknown) => {
      if (!stopped) throw error
    })
  }
  /** One after the other: they share the processors with the tasks. */
  const keepSpare = () => {
    if (stopped || starting !== undefined) return
    if (idle.length > 0 && waiting.length === 0) return
    if (alive.size >= atMost) return
    starting = start().finally(() => {
      starting = undefined
      keepSpare()
    })
  }

  if (first !== undefined) adopt(first)
  if (isUsed) keepSpare()
  return {
    ready: () => (isUsed ? idle.length : atMost),
    prepare() {
      isUsed = true
      keepSpare()
    },
    take() {
      isUsed = true
      const runner = idle.shift()
      const taken =
        runner === undefined && !stopped
          ? new Promise<Runner | undefined>((resolve) => waiting.push(resolve))
          : Promise.resolve(runner)
      keepSpare()
      return taken
    },
    give(runner) {
      if (alive.has(runner)) offer(runner)
    },
    async stop() {
      stopped = true
      for (const resolve of waiting) resolve(undefined)
      waiting = []
      for (const runner of alive) runner.kill('the worker is stopping')
      end.abort()
      await Promise.all([...alive].map(({ ended }) => ended))
      await starting
    },
  }
}
