import type { Socket } from 'socket.io'
import { AppError } from '../../errors.ts'

/** Requests of one socket, one after the other: who joins a room and says something need not wait in between. */
export type Queues = {
  /** 429 for a socket that has too much waiting. */
  run<T>(socket: Socket, work: () => Promise<T>): Promise<T>
  /** Resolves when nothing is waiting. */
  idle(): Promise<void>
}

const waitingAtMost = 200

export function openQueues(): Queues {
  const queues = new Map<Socket, { readonly last: Promise<unknown>; readonly waiting: number }>()
  return {
    run: async (socket, work) => {
      const before = queues.get(socket)
      // What ends a connection is never refused.
      if (before !== undefined && before.waiting >= waitingAtMost && socket.connected)
        throw new AppError(429, 'Too many requests at once')
      const done = (before?.last ?? Promise.resolve()).then(work, work)
      queues.set(socket, { last: done, waiting: (before?.waiting ?? 0) + 1 })
      try {
        return await done
      } finally {
        const now = queues.get(socket)!
        if (now.waiting === 1) queues.delete(socket)
        else queues.set(socket, { ...now, waiting: now.waiting - 1 })
      }
    },
    idle: async () => {
      while (queues.size > 0) await Promise.allSettled([...queues.values()].map(({ last }) => last))
    },
  }
}
