import type { Server, Socket } from 'socket.io'
import { withFreshCatalog } from '../../catalog/store.ts'
import { inRounds } from '../../db/rounds.ts'
import { AppError } from '../../errors.ts'
import { systemActor } from '../../events/types.ts'
import { readItem } from '../../features/data/items/items.ts'
import type { Access } from '../../query/access.ts'
import type { RealtimeReads } from '../capabilities.ts'
import { readMessage } from './messages.ts'

/**
 * How far tasks are, for sockets that have joined them. A socket gets what its user may read of the task at that moment,
 * by the read of `/items/svc_Tasks/{id}`; it is taken out when its user may not read it any more.
 */
export type TaskProgressRooms = {
  /** `task:join {taskId}`: answers with how far the task is; from then on `task:progress` comes with every change. */
  join(socket: Socket, request: unknown): Promise<{ task: object }>
  leave(socket: Socket, request: unknown): Promise<object>
}

const shown = ['id', 'task_status', 'progress', 'progress_message']
const tasksAtMost = 100

export function openTaskProgress(
  deps: RealtimeReads,
  io: Server,
  accessOf: (socket: Socket) => Access,
): TaskProgressRooms {
  const read = async (socket: Socket, id: string): Promise<object> => {
    const reader = { actor: systemActor, access: accessOf(socket) }
    const { body } = await withFreshCatalog(deps.catalog, () =>
      readItem(deps, reader, 'svc_Tasks', id, { fields: '*' }),
    )
    const task = Object.entries(JSON.parse(body).data as object)
    return Object.fromEntries(task.filter(([name]) => shown.includes(name)))
  }

  const report = async (socket: Socket, id: string) => {
    if (!socket.rooms.has(taskRoom(id))) return
    try {
      socket.emit('task:progress', { ...(await read(socket, id)), timestamp: deps.clock().toISOString() })
    } catch (error) {
      if (!(error instanceof AppError && (error.status === 403 || error.status === 404)))
        return deps.log.error({ err: error, taskId: id }, 'progress could not be sent')
      await socket.leave(taskRoom(id))
      socket.emit('task:left', { taskId: id })
    }
  }
  const reports = new WeakMap<Socket, Map<string, () => Promise<void>>>()
  /** Of two reads beside each other, the older one could be sent last. */
  const reportInTurn = (socket: Socket, id: string): Promise<void> => {
    const own = reports.get(socket) ?? new Map<string, () => Promise<void>>()
    reports.set(socket, own)
    for (const known of own.keys()) if (!socket.rooms.has(taskRoom(known))) own.delete(known)
    const inTurn = own.get(id) ?? inRounds<never, void>(() => report(socket, id))
    own.set(id, inTurn)
    return inTurn()
  }
  const reportToAll = (id: string) => {
    for (const socketId of io.sockets.adapter.rooms.get(taskRoom(id)) ?? []) {
      const socket = io.sockets.sockets.get(socketId)
      if (socket !== undefined) void reportInTurn(socket, id)
    }
  }
  deps.listener.on('svc_progress', reportToAll)
  // The last notice of a task may have been among what was lost.
  deps.listener.onReconnect(() => {
    for (const room of io.sockets.adapter.rooms.keys())
      if (room.startsWith(taskRoom(''))) reportToAll(room.slice(taskRoom('').length))
  })

  return {
    async join(socket, request) {
      const id = String(readMessage('task:join', request).taskId)
      const task = await read(socket, id)
      // Not before: others that were asked for at the same moment have joined meanwhile.
      if (tasksOf(socket) >= tasksAtMost) throw new AppError(400, 'Too many tasks on one connection')
      await socket.join(taskRoom(id))
      return { task }
    },
    async leave(socket, request) {
      await socket.leave(taskRoom(String(readMessage('task:leave', request).taskId)))
      return {}
    },
  }
}

const taskRoom = (id: string) => `task:${id}`

const tasksOf = ({ rooms }: Socket) => [...rooms].filter((room) => room.startsWith('task:')).length
