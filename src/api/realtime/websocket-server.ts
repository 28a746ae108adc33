import type { EventEmitter } from 'node:events'
import { Server as Engine } from 'engine.io'
import { perSecond } from './limits.ts'

type WebSocket = EventEmitter & {
  /** Bytes that the client has not taken yet. */
  readonly bufferedAmount: number
  pong(data: Buffer): void
  terminate(): void
}

type WebSocketServer = {
  handleUpgrade(...args: [...request: unknown[], done: (socket: WebSocket, ...rest: unknown[]) => void]): void
}

/** The one that the engine uses by itself. */
const Plain: new (options: object) => WebSocketServer = new Engine().opts.wsEngine

/**
 * A WebSocket server for the engine that bounds the pings of the protocol itself, which no limit of messages sees. By itself
 * it answers every one at once: who pings and never reads filled the memory with answers. Here a ping stays unanswered while
 * answers wait, and more of them in a second than a client may send messages end the connection.
 */
export function boundedWebSocketServer(pingsPerSecond: number): new (options: object) => WebSocketServer {
  return class extends Plain {
    constructor(options: object) {
      super({ ...options, autoPong: false })
    }

    override handleUpgrade(...args: Parameters<WebSocketServer['handleUpgrade']>): void {
      const done = args.pop() as (socket: WebSocket, ...rest: unknown[]) => void
      const request = args as unknown[]
      super.handleUpgrade(...request, (socket, ...rest) => {
        answerPings(socket, pingsPerSecond)
        done(socket, ...rest)
      })
    }
  }
}

function answerPings(socket: WebSocket, atMost: number): void {
  const isWithin = perSecond(atMost)
  socket.on('ping', (data: Buffer) => {
    if (!isWithin()) socket.terminate()
    else if (socket.bufferedAmount === 0) socket.pong(data)
  })
}
