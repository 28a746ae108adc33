import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { compiledDirectory } from '../src/process/start-up.ts'

/** A running HTTP server, in a process of its own. */
export type Server = {
  readonly pid: number
  readonly url: string
  stop(): Promise<void>
}

export type Launch = {
  readonly script: string
  readonly env: Readonly<Record<string, string>>
  /** For Node itself, before the script. */
  readonly nodeArgs?: readonly string[]
}

const root = resolve(import.meta.dirname, '..')
/** Where no .env of a checkout counts. */
const cwd = tmpdir()

/** Starts a server that says `{"msg":"ready","address":[{"port":…}]}`. Of our environment it sees only PATH, HOME and NODE_COMPILE_CACHE. */
export async function startServer(launch: Launch, cleanup: AsyncDisposableStack): Promise<Server> {
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
  const { address } = JSON.parse(await ready.promise) as { address: { port: number }[] }
  return { pid: child.pid!, url: `http://127.0.0.1:${address[0]!.port}`, stop }
}

/** Runs a script of the project to its end. @throws with what it wrote when it fails. */
export async function runScript(launch: Launch): Promise<void> {
  const child = spawnScript(launch)
  let output = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (text) => (output += text))
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${launch.script} ended with ${code}:\n${output}`)
}

function spawnScript({ script, env, nodeArgs = [] }: Launch) {
  const { PATH = '', HOME = '', NODE_COMPILE_CACHE = compiledDirectory } = process.env
  return spawn(process.execPath, [...nodeArgs, resolve(root, script)], {
    cwd,
    env: { PATH, HOME, NODE_COMPILE_CACHE, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
}
