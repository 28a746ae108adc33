import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { compiledDirectory } from '../src/process/start-up.ts'
import { peakBytes } from './meter.ts'

/** A running process of its own. */
export type Running = {
  readonly pid: number
  stop(): Promise<void>
}

/** A running HTTP server. */
export type Server = Running & { readonly url: string }

export type Launch = {
  readonly script: string
  readonly env: Readonly<Record<string, string>>
  /** For Node itself, before the script. */
  readonly nodeArgs?: readonly string[]
  /** For the script. */
  readonly args?: readonly string[]
}

const root = resolve(import.meta.dirname, '..')
/** Where no .env of a checkout counts. */
const cwd = tmpdir()

/** Starts a server that says `{"msg":"ready","address":[{"port":…}]}`. */
export async function startServer(launch: Launch, cleanup: AsyncDisposableStack): Promise<Server> {
  const { ready, ...running } = await startProcess(launch, cleanup)
  const { address } = JSON.parse(ready) as { address: { port: number }[] }
  return { ...running, url: `http://127.0.0.1:${address[0]!.port}` }
}

/** Starts what says `"msg":"ready"`; gives that line. Of our environment it sees only PATH, HOME and NODE_COMPILE_CACHE. */
export async function startProcess(
  launch: Launch,
  cleanup: AsyncDisposableStack,
): Promise<Running & { readonly ready: string }> {
  const child = spawnScript(launch)
  const closed = once(child, 'close')
  const stop = async () => {
    child.kill('SIGTERM')
    await closed
  }
  cleanup.defer(stop)
  const lines: string[] = []
  const ready = Promise.withResolvers<string>()
  for (const stream of [child.stdout!, child.stderr!])
    createInterface({ input: stream }).on('line', (line) => {
      lines.push(line)
      lines.splice(0, lines.length - 10)
      if (line.includes('"msg":"ready"')) ready.resolve(line)
    })
  void closed.then(() => ready.reject(new Error(`${launch.script} has ended:\n${lines.join('\n')}`)))
  return { pid: child.pid!, stop, ready: await ready.promise }
}

/** Runs a script of the project to its end. @throws with what it wrote when it fails. */
export async function runScript(launch: Launch): Promise<void> {
  const child = spawnScript(launch)
  let output = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (text) => (output += text))
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${launch.script} ended with ${code}:\n${output}`)
}

function spawnScript({ script, env, nodeArgs = [], args = [] }: Launch) {
  const { PATH = '', HOME = '' } = process.env
  // The program's processes compile under flags of their own, so each kind would refuse what the other one has left.
  const NODE_COMPILE_CACHE = script.startsWith('src/') ? compiledDirectory : join(compiledDirectory, 'bench')
  return spawn(process.execPath, [...nodeArgs, resolve(root, script), ...args], {
    cwd,
    env: { PATH, HOME, NODE_COMPILE_CACHE, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
}

/** `peak`: bytes of memory. */
export type Ran = { readonly seconds: number; readonly peak: number | undefined }

const lookEveryMs = 20

/** A process from its start to its end, and the most memory that it has held. @throws with what it wrote when it fails */
export async function timed(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Ran> {
  const { PATH = '', HOME = '' } = process.env
  const began = performance.now()
  const child = spawn(program, args, {
    cwd,
    env: { PATH, HOME, ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  let peak: number | undefined
  child.stderr.on('data', (text) => (said += text))
  const looking = setInterval(() => {
    peak = peakBytes(child.pid!) ?? peak
  }, lookEveryMs)
  const [code] = await once(child, 'close')
  clearInterval(looking)
  if (code !== 0) throw new Error(`${program} ended with ${code}:\n${said}`)
  return { seconds: (performance.now() - began) / 1000, peak }
}
