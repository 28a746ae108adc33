import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { afterAll, describe } from 'vitest'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { waitFor } from './wait.ts'

/** Whether this machine has a Redis server to test with. */
export const hasRedis = spawnSync('redis-server', ['--version']).status === 0

/** `describe` for tests that need Redis: skipped, with a hint, where there is none. */
export const describeWithRedis = describe.skipIf(!hasRedis)

export type TestRedis = {
  readonly url: string
  /** SIGKILL: what it held is gone. */
  stop(): Promise<void>
  /** Starts it again after `stop`, empty and at the same address; nothing happens while it runs. */
  start(): Promise<void>
  /** It hangs: connections stay open and nothing is answered. */
  freeze(): void
  thaw(): void
}

/** Starts an empty Redis on a free port of 127.0.0.1, stopped after the test file. It may be stopped any number of times. */
export async function startRedis(): Promise<TestRedis> {
  const port = await freePort()
  let child: ChildProcess | undefined
  const start = async () => {
    if (child !== undefined) return
    child = spawn('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--save', ''], {
      cwd: tmpdir(),
      stdio: 'ignore',
    })
    await waitFor(() => answers(port), { what: 'redis-server to listen' })
  }
  const stop = async () => {
    const stopped = child
    if (stopped === undefined) return
    child = undefined
    const exited = once(stopped, 'exit')
    stopped.kill('SIGKILL')
    await exited
  }
  stops.push(stop)
  await start()
  return {
    url: `redis://127.0.0.1:${port}`,
    stop,
    start,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
  }
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect').finally(() => socket.destroy())
  return true
}

const stops: (() => Promise<void>)[] = []
afterAll(async () => void (await Promise.all(stops.map((stop) => stop()))))

const installing = 'Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis'
if (!hasRedis)
  process.stderr.write(`redis-server is not installed: the tests that need Redis are skipped (${installing})\n`)
