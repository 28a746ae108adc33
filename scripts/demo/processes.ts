import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { until } from './wait.ts'

/** A process of Daybook, which can be started again after its end. */
export type Part = {
  readonly name: string
  /** Resolves when it says that it is ready. */
  start(): Promise<void>
  /** SIGSTOP: it hangs until it is killed. */
  freeze(): void
  /** SIGKILL. Nothing happens when it does not run. */
  kill(): Promise<void>
  /** SIGTERM: it finishes what it does. Resolves with its exit code, null when it was killed. */
  stop(): Promise<number | null>
  /** The last ones that it wrote. */
  lines(): readonly string[]
}

export type Surroundings = { readonly env: NodeJS.ProcessEnv; readonly cwd: string }

const keptLines = 15

/** Names a process without starting it. `script` is a path in the project. */
export function partOf(name: string, [script, ...args]: readonly [string, ...string[]], where: Surroundings): Part {
  const lines: string[] = []
  let ready = false
  let child: ChildProcess | undefined
  let exited: Promise<unknown> = Promise.resolve()
  const hear = (text: string) => {
    lines.push(text)
    lines.splice(0, lines.length - keptLines)
    ready ||= text.includes('"msg":"ready"')
  }
  return {
    name,
    start: async () => {
      ready = false
      const started = startScript(script, args, where)
      child = started
      exited = once(started, 'close')
      for (const output of [started.stdout!, started.stderr!]) createInterface({ input: output }).on('line', hear)
      await until(`${name} to be ready`, () => ready || hasEnded(started))
      if (!ready) throw new Error(`${name} has ended instead of getting ready:\n${lines.join('\n')}`)
    },
    freeze: () => void child?.kill('SIGSTOP'),
    kill: async () => {
      child?.kill('SIGKILL')
      await exited
    },
    stop: async () => {
      child?.kill('SIGTERM')
      await until(`${name} to stop`, () => child === undefined || hasEnded(child))
      return child?.exitCode ?? null
    },
    lines: () => lines,
  }
}

/** Runs a script of the project to its end. `output` has what it wrote anywhere. */
export async function runScript(script: string, where: Surroundings): Promise<{ code: number | null; output: string }> {
  const child = startScript(script, [], where)
  let output = ''
  for (const stream of [child.stdout!, child.stderr!])
    stream.on('data', (text) => {
      output += text
    })
  const [code] = await once(child, 'close')
  return { code, output }
}

const root = join(import.meta.dirname, '../..')

/**
 * In a session of its own, where the terminal's Ctrl-C does not reach it, and with a channel to us: a process of Daybook
 * ends when the one that started it is gone.
 */
function startScript(script: string, args: readonly string[], { env, cwd }: Surroundings): ChildProcess {
  return spawn(process.execPath, [join(root, script), ...args], {
    env,
    cwd,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null
}
