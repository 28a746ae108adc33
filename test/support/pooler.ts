import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { afterAll } from 'vitest'

const notification = 'A'.charCodeAt(0)
const headerBytes = 5

/**
 * A server in front of PostgreSQL that lets everything through but notifications, as a pooler in transaction mode does.
 * Gives the address of the same database through it; stopped after the test file.
 */
export async function startPooler(url: string): Promise<string> {
  const target = new URL(url)
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname)
    const end = () => void [client, upstream].map((socket) => socket.destroy())
    for (const socket of [client, upstream]) socket.on('error', end).on('close', end)
    client.pipe(upstream)
    forwardMessages(upstream, client)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  servers.push(() => new Promise((resolve) => server.close(() => resolve())))
  const address = new URL(url)
  address.hostname = '127.0.0.1'
  address.port = String((server.address() as { port: number }).port)
  return address.href
}

/** What PostgreSQL says is a sequence of messages: a type, the length of the rest, the rest. */
function forwardMessages(from: Socket, to: Socket): void {
  let pending = Buffer.alloc(0)
  from.on('data', (chunk) => {
    pending = Buffer.concat([pending, chunk])
    while (pending.length >= headerBytes && pending.length > pending.readUInt32BE(1)) {
      const size = pending.readUInt32BE(1) + 1
      if (pending[0] !== notification) to.write(pending.subarray(0, size))
      pending = pending.subarray(size)
    }
  })
}

const servers: (() => Promise<void>)[] = []
afterAll(async () => void (await Promise.all(servers.map((stop) => stop()))))
