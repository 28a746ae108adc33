import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { clientNetwork } from '../adapters/client-address.ts'

/** Cuts the connections of an address beyond `limit`, so that no client alone can take all of them. */
export function limitConnections(server: Server, limit: number): void {
  const open = new Map<string, number>()
  server.on('connection', (socket: Socket) => {
    const client = clientNetwork(socket.remoteAddress ?? '')
    const before = open.get(client) ?? 0
    if (before >= limit) return void socket.destroy()
    open.set(client, before + 1)
    socket.once('close', () => {
      const left = open.get(client)! - 1
      if (left > 0) open.set(client, left)
      else open.delete(client)
    })
  })
}
