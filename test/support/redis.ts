import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { afterAll, describe } from 'vitest'
import { waitFor } from './wait.ts'

/** Whether this machine has a Redis server to test with. */
export const hasRedis = spawnSync('redis-server', ['--version']).status === 0

/** `describe` for tests that need Redis: skipped, with a hint, where there is none. */
export const describeWithRedis = describe.skipIf(!hasRedis)

export type Redis = { url: string; stop(): Promise<void> }

/** Starts an empty Redis on a free port of 127.0.0.1, stopped after the test file; undefined when none is installed. */
export async function startRedis(): Promise<Redis | undefined> {
  if (!hasRedis) return undefined
  const port = await freePort()
  const child = spawn('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--save', ''], {
    cwd: tmpdir(),
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const exited = once(child, 'exit')
  const stop = async () => {
    child.kill()
    await exited
  }
  stops.push(stop)
  await waitFor(() => answers(port), { what: 'redis-server to listen' })
  return { url: `redis://127.0.0.1:${port}`, stop }
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect').finally(() => socket.destroy())
  return true
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as { port: number }
  probe.close()
  await once(probe, 'close')
  return port
}

const stops: (() => Promise<void>)[] = []
afterAll(async () => void (await Promise.all(stops.map((stop) => stop()))))

if (!hasRedis) process.stderr.write('redis-server is not installed: the tests that need Redis are skipped\n')
