import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll } from 'vitest'
import { compiledDirectory } from '../../src/process/start-up.ts'
import { compiledTests } from './compiled.ts'
// First, so that its hook runs after ours: a database is dropped when the processes that use it have ended.
import './postgres.ts'
import { longestWaitMs, waitFor } from './wait.ts'

export { waitFor } from './wait.ts'

/** A line that a process wrote: the members of a pino line, or none when it is other text. */
export type OutputLine = { readonly text: string; readonly [member: string]: unknown }

export type Predicate = (line: OutputLine) => unknown

export type Exit = { code: number | null; signal: NodeJS.Signals | null }

export type TestProcess = {
  readonly pid: number
  /** Everything written to stdout and stderr so far. */
  readonly lines: readonly OutputLine[]
  readonly exited: Promise<Exit>
  /** The first line, past or to come, for which this holds. Fails when the process ends before. */
  waitForLine(predicate: Predicate, options?: { timeout?: number }): Promise<OutputLine>
  /** Sends a signal (default SIGTERM) and waits for the end, except after SIGSTOP and SIGCONT. */
  kill(signal?: NodeJS.Signals): Promise<Exit | undefined>
}

export type ProcessOptions = {
  /** Working directory, where .env is looked for; default the checkout. */
  cwd?: string
  /** A process group of its own, so that a signal to the group leaves the tests alone. */
  detached?: boolean
}

export const root = resolve(import.meta.dirname, '../..')

/** A process of a test ends before V8 has won back what it spends on optimizing: a tenth of the processor time of all processes. */
const withoutOptimizing = ['--no-opt', '--no-maglev']

/**
 * Runs a script of the checkout as a real Node process. Of our environment it sees only PATH, HOME, TMPDIR and
 * NODE_ENV=test, and it keeps what it compiles where every process of its kind does.
 *
 * After the test file everything still running gets SIGTERM. What does not end by itself within ten seconds, or
 * leaves a process of its own behind, is killed and fails the file.
 */
export function startProcess(
  script: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
  { cwd = root, detached = false }: ProcessOptions = {},
): TestProcess {
  const { PATH = '', HOME = '', TMPDIR = '' } = process.env
  const NODE_COMPILE_CACHE = /^(test|bench)\//.test(script) ? compiledTests : compiledDirectory
  const child = spawn(process.execPath, [...withoutOptimizing, resolve(root, script), ...args], {
    cwd,
    detached,
    env: { PATH, HOME, TMPDIR, NODE_ENV: 'test', NODE_COMPILE_CACHE, ...env, [markName]: mark },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exited = once(child, 'close').then(([code, signal]): Exit => ({ code, signal }))
  const lines = captureLines(child)
  const kill = async (signal: NodeJS.Signals = 'SIGTERM') => {
    child.kill(signal)
    return signal === 'SIGSTOP' || signal === 'SIGCONT' ? undefined : exited
  }
  const waitForLine: TestProcess['waitForLine'] = (predicate, options) =>
    findLine({ lines, exited, script }, predicate, options?.timeout)
  const started = { pid: child.pid!, lines, exited, kill, waitForLine }
  running.add({ ...started, script, child })
  return started
}

/** Process ids of everything that this test file started and that still runs, grandchildren included (Linux only). */
export function survivors(): number[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid && environmentOf(name).includes(mark))
    .map(Number)
}

/** Process ids of running processes whose command line holds the text (Linux only). */
export function processesWith(text: string): number[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && readProc(`/proc/${name}/cmdline`).replaceAll('\0', ' ').includes(text))
    .map(Number)
}

function captureLines(child: ChildProcess): OutputLine[] {
  const lines: OutputLine[] = []
  for (const stream of [child.stdout!, child.stderr!])
    createInterface({ input: stream }).on('line', (text) => lines.push(parseLine(text)))
  return lines
}

function parseLine(text: string): OutputLine {
  if (!text.startsWith('{')) return { text }
  try {
    return { ...JSON.parse(text), text }
  } catch {
    return { text }
  }
}

type Source = Pick<TestProcess, 'lines' | 'exited'> & { script: string }

async function findLine(
  { lines, exited, script }: Source,
  predicate: Predicate,
  timeout = longestWaitMs,
): Promise<OutputLine> {
  let over = false
  void exited.then(() => {
    over = true
  })
  await waitFor(() => over || lines.some(predicate), { timeout }).catch(() => undefined)
  const found = lines.find(predicate)
  if (found !== undefined) return found
  const tail = lines.slice(-15).map((line) => line.text)
  const what = over ? 'ended without' : `has not written within ${timeout} ms`
  throw new Error(`${script} ${what} the awaited line; its last ones:\n${tail.join('\n')}`)
}

// Inherited by every process below ours, so that none can hide.
const markName = 'TEST_FILE_MARK'
const mark = randomUUID()

function environmentOf(pid: string): string {
  return readProc(`/proc/${pid}/environ`)
}

/** Empty when the process has ended meanwhile or belongs to another user. */
function readProc(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (!['ENOENT', 'ESRCH', 'EACCES', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    return ''
  }
}

type Running = TestProcess & { script: string; child: ChildProcess }

const running = new Set<Running>()
const gentleLimitMs = 30_000

// Registered when the test file imports this module, so it runs after all hooks of the file itself.
afterAll(async () => {
  const stuck = (await Promise.all([...running].map(stopGently))).filter((script) => script !== undefined)
  const orphans = await waitFor(() => survivors().length === 0, { timeout: gentleLimitMs }).then(() => [], survivors)
  for (const pid of orphans) process.kill(pid, 'SIGKILL')
  if (stuck.length + orphans.length > 0)
    throw new Error(`processes were left: ${JSON.stringify({ 'did not stop': stuck, orphans })}`)
})

/** The script's name when it had to be killed. */
async function stopGently({ child, exited, script }: Running): Promise<string | undefined> {
  if (child.exitCode !== null || child.signalCode !== null) return undefined
  child.kill('SIGCONT')
  child.kill('SIGTERM')
  const impatience = setTimeout(() => child.kill('SIGKILL'), gentleLimitMs)
  const { signal } = await exited
  clearTimeout(impatience)
  return signal === 'SIGKILL' ? script : undefined
}
