import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Makes `server.close()` end every connection with its last answer, and only then. Node by itself cuts connections as
 * idle although an answer is still on its way to a slow client, and keeps those whose answer comes later until the
 * client leaves.
 */
export function drainOnClose(server: Server): void {
  const answersOf = new Map<Socket, Set<ServerResponse>>()
  let closing = false
  server.on('connection', (socket) => {
    answersOf.set(socket, new Set())
    socket.once('close', () => answersOf.delete(socket))
  })
  server.on('upgrade', ({ socket }) => answersOf.delete(socket))
  server.on('request', ({ socket }, answer) => {
    const answers = answersOf.get(socket)
    answers?.add(answer)
    answer.once('close', () => {
      answers?.delete(answer)
      // Not half-closed: a request that came in meanwhile would be carried out and never answered.
      if (closing && answers?.size === 0) socket.destroy()
    })
  })
  // Called by `close()`.
  server.closeIdleConnections = () => {
    closing = true
    for (const [socket, answers] of answersOf) {
      if (answers.size === 0) socket.destroy()
      for (const answer of answers) if (!answer.headersSent) answer.setHeader('connection', 'close')
    }
  }
}
