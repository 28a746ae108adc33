import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Makes `server.close()` end every connection in a way that its client has been told of: answers say `Connection: close`,
 * and a connection is closed after such an answer. One that waits for a request stays open for `graceMs`, because its
 * client may be sending one right now, which is answered. Node by itself cuts connections as idle although a request is on
 * its way, or an answer to a slow client, and keeps those whose answer comes later until the client leaves.
 */
export function drainOnClose(server: Server, graceMs: number): void {
  const answersOf = new Map<Socket, Set<ServerResponse>>()
  let closing = false
  let isGraceOver = false
  server.on('connection', (socket) => {
    answersOf.set(socket, new Set())
    socket.once('close', () => answersOf.delete(socket))
  })
  server.on('upgrade', ({ socket }) => answersOf.delete(socket))
  server.prependListener('request', ({ socket }, answer) => {
    if (closing) answer.setHeader('connection', 'close')
    const answers = answersOf.get(socket)
    answers?.add(answer)
    answer.once('close', () => {
      answers?.delete(answer)
      // Not half-closed: a request that came in meanwhile would be carried out and never answered.
      if (closing && answers?.size === 0 && (isLast(answer) || isGraceOver)) socket.destroy()
    })
  })
  const endIdle = () => {
    isGraceOver = true
    for (const [socket, answers] of answersOf) if (answers.size === 0) socket.destroy()
  }
  // Called by `close()`, perhaps more than once.
  server.closeIdleConnections = () => {
    if (closing) return
    closing = true
    for (const answers of answersOf.values())
      for (const answer of answers) if (!answer.headersSent) answer.setHeader('connection', 'close')
    // Alone it must not keep the process alive: without connections nothing is left to do.
    setTimeout(endIdle, graceMs).unref()
  }
}

/** Whether the client was told that no other answer follows on this connection. */
const isLast = (answer: ServerResponse): boolean => !answer.shouldKeepAlive
