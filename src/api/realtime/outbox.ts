import { setTimeout as delay } from 'node:timers/promises'
import type { Server, Socket } from 'socket.io'
import type { Config } from '../../config.ts'

/**
 * What waits to be sent on each connection. A client that does not read must cost no more than its share of memory
 * (quality D-13): senders ask before they add to what waits.
 */
export type Outbox = {
  /** Counts what waits on this connection from now on, and closes it when that is far too much. */
  watch(conn: Connection): void
  /** More waits than a connection may hold: nothing is to be added. */
  isFull(socket: Socket): boolean
  /** Sends one message, encoded once, to these sockets of this process. */
  send(sockets: readonly Socket[], name: string, body: object): void
  /** Resolves when most has been sent; false when the client has not read anything for ten seconds, or is gone. */
  drained(socket: Socket): Promise<boolean>
}

type Connection = Socket['conn']
type Waiting = { bytes: number; messages: number; inFlight: number }

const stalledMs = 10_000
const lookMs = 5
/** What is not asked for here, such as answers and the messages of rooms, may add up to so many times what may wait. */
const cutOffAt = 4
/** Who sends page after page adds another one when this share of what may wait is left. */
const drainedShare = 0.25

export function openOutbox({ realtime }: Config, io: Server): Outbox {
  const waiting = new WeakMap<Connection, Waiting>()
  const { sendBufferBytes, sendBufferMessages } = realtime
  /** What the transport took last counts until it takes more. */
  const bytesOn = (conn: Connection): number => {
    const { bytes, inFlight } = waiting.get(conn)!
    return bytes + (conn.transport.writable ? 0 : inFlight)
  }
  const isOver = ({ conn }: Socket, share: number) =>
    bytesOn(conn) > sendBufferBytes * share || waiting.get(conn)!.messages > sendBufferMessages * share
  return {
    watch: (conn) => {
      count(conn, waiting)
      const onPacket = () => {
        if (bytesOn(conn) <= sendBufferBytes * cutOffAt) return
        conn.off('packetCreate', onPacket)
        conn.close(true)
      }
      conn.on('packetCreate', onPacket)
    },
    isFull: (socket) => isOver(socket, 1),
    send: (sockets, name, body) => {
      if (sockets.length === 1) sockets[0]!.emit(name, body)
      else if (sockets.length > 1) io.local.to(sockets.map(({ id }) => id)).emit(name, body)
    },
    drained: async (socket) => {
      let least = bytesOn(socket.conn)
      let movedAt = performance.now()
      while (socket.connected && isOver(socket, drainedShare)) {
        await delay(lookMs)
        const now = bytesOn(socket.conn)
        if (now < least) movedAt = performance.now()
        least = now
        if (performance.now() - movedAt > stalledMs) return false
      }
      return socket.connected
    },
  }
}

function count(conn: Connection, waiting: WeakMap<Connection, Waiting>): void {
  const counted: Waiting = { bytes: 0, messages: 0, inFlight: 0 }
  waiting.set(conn, counted)
  conn.on('packetCreate', ({ data }: { data?: unknown }) => {
    counted.bytes += sizeOf(data)
    counted.messages += 1
  })
  conn.on('flush', () => Object.assign(counted, { bytes: 0, messages: 0, inFlight: counted.bytes }))
}

/** Texts by their length: what is counted is memory, roughly. */
function sizeOf(data: unknown): number {
  if (typeof data === 'string') return data.length
  return Buffer.isBuffer(data) ? data.byteLength : 0
}
