import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A line to a server that can be cut without a word to either end. */
export type Line = {
  readonly address: string
  cut(): void
  /** Cuts it, and resets every new connection, until it is called with false. */
  block(isBlocked: boolean): void
  close(): void
}

export async function openLine(target: string): Promise<Line> {
  const { hostname, port } = new URL(target)
  const ends = new Set<Socket>()
  const hold = (socket: Socket) => {
    ends.add(socket)
    // A break of one end shows at the other.
    socket.on('error', () => undefined)
    socket.on('close', () => ends.delete(socket))
    return socket
  }
  let isClosed = false
  const server = createServer((near) => {
    if (isClosed) return void near.resetAndDestroy()
    const far = hold(connect(Number(port), hostname))
    hold(near).pipe(far).pipe(near)
    near.on('close', () => far.destroy())
    far.on('close', () => near.destroy())
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const cut = () => {
    for (const end of ends) end.resetAndDestroy()
  }
  return {
    address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    block: (isBlocked) => {
      isClosed = isBlocked
      if (isBlocked) cut()
    },
    close: () => {
      server.close()
      cut()
    },
  }
}
