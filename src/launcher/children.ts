import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

export type ChildOptions = {
  /** Shown before its lines. */
  name: string
  script: string
  args?: readonly string[]
  env: NodeJS.ProcessEnv
  /** Gets every line of its standard output and, unless `onError` is given, of its standard error. */
  onLine(text: string): void
  onError?(text: string): void
}

type SupervisedOptions = ChildOptions & {
  /** It died, `how` being `exit code 1` or `signal SIGKILL`, and is about to be started again. */
  onRestart(how: string): void
}

export type Child = {
  /** Asks it to finish (SIGTERM) and waits for its end. */
  stop(): Promise<void>
  kill(): void
}

/** Rejects when the process keeps dying, with its last lines. */
type SupervisedChild = Child & { readonly failed: Promise<never> }

const restartsPerMinute = 5
const minuteMs = 60_000
const firstPauseMs = 250

/** Starts a process and starts it again whenever it dies, at most five times a minute and with growing pauses. */
export function supervise(options: SupervisedOptions): SupervisedChild {
  const failed = Promise.withResolvers<never>()
  const lines: string[] = []
  let child: RunningChild
  let stopping = false
  let deaths: number[] = []
  const start = () => {
    child = startChild(options, lines)
    void child.ended.then((how) => stopping || died(how))
  }
  const died = (how: string) => {
    const now = Date.now()
    deaths = [...deaths, now].filter((at) => now - at < minuteMs)
    if (deaths.length > restartsPerMinute)
      return failed.reject(new Error(`${options.name} keeps ending (${how}); its last lines:\n${lines.join('\n')}`))
    options.onRestart(how)
    setTimeout(() => stopping || start(), firstPauseMs * 2 ** (deaths.length - 1)).unref()
  }
  start()
  const stop = () => {
    stopping = true
    return child.stop()
  }
  return { stop, kill: () => child.kill(), failed: failed.promise }
}

/** A process and how it ended: `exit code 1`, `signal SIGKILL`. */
type RunningChild = Child & { readonly ended: Promise<string> }

const keptLines = 10
/** Above the longest wait of a process for its own work (TASK_SHUTDOWN_WAIT_TIME, 30 s by default). */
const stopLimitMs = 45_000

/**
 * Runs a script of ours in a session of its own: a terminal's Ctrl-C goes to the launcher alone, which ends the
 * processes in their order. The channel between the two tells the child when the launcher was killed (see process/start-up.ts).
 */
export function startChild(
  { script, args = [], env, onLine, onError }: ChildOptions,
  lines: string[] = [],
): RunningChild {
  const child = spawn(process.execPath, [script, ...args], {
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  const show = (text: string) => {
    lines.push(text)
    lines.splice(0, lines.length - keptLines)
    onLine(text)
  }
  createInterface({ input: child.stdout! }).on('line', show)
  createInterface({ input: child.stderr! }).on('line', onError ?? show)
  const ended = once(child, 'close').then(([code, signal]) =>
    signal === null ? `exit code ${code}` : `signal ${signal}`,
  )
  return { ended, stop: () => endGently(child, ended), kill: () => void child.kill('SIGKILL') }
}

async function endGently(child: ChildProcess, ended: Promise<string>): Promise<void> {
  child.kill('SIGTERM')
  const killTimer = setTimeout(() => child.kill('SIGKILL'), stopLimitMs)
  await ended
  clearTimeout(killTimer)
}
