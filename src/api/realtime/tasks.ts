import type { Server, Socket } from 'socket.io'
import { AppError } from '../../errors.ts'
import { systemActor } from '../../events/types.ts'
import { readItem } from '../../features/items/hooking.ts'
import type { Access } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'

/**
 * How far tasks are, for sockets that have joined them. What a socket is told is what its user may read of the task at
 * that moment, by the read of `/items/svc_Tasks/{id}`; who may not read it any more is shown out.
 */
export type TaskProgress = {
  /** `task:join {taskId}`: answers with how far the task is; from then on `task:progress` comes with every change. */
  join(socket: Socket, request: unknown): Promise<{ task: object }>
  leave(socket: Socket, request: unknown): Promise<object>
}

const shown = ['id', 'task_status', 'progress', 'progress_message']
const roomsAtMost = 100

export function openTaskProgress(rt: Runtime, io: Server, accessOf: (socket: Socket) => Access): TaskProgress {
  const read = async (socket: Socket, id: string): Promise<object> => {
    const reader = { actor: systemActor, access: accessOf(socket) }
    const { body } = await readItem(rt, reader, 'svc_Tasks', id, { fields: '*' })
    const task = Object.entries(JSON.parse(body).data as object)
    return Object.fromEntries(task.filter(([name]) => shown.includes(name)))
  }

  const tell = async (socket: Socket, id: string) => {
    try {
      socket.emit('task:progress', { ...(await read(socket, id)), timestamp: rt.clock().toISOString() })
    } catch (error) {
      if (!(error instanceof AppError)) rt.log.error({ err: error, taskId: id }, 'progress could not be told')
      await socket.leave(roomOf(id))
      socket.emit('task:left', { taskId: id })
    }
  }

  rt.listener.on('svc_progress', (id) => {
    for (const socketId of io.sockets.adapter.rooms.get(roomOf(id)) ?? []) {
      const socket = io.sockets.sockets.get(socketId)
      if (socket !== undefined) void tell(socket, id)
    }
  })

  return {
    async join(socket, request) {
      const id = taskIdOf(request)
      if (tasksOf(socket) >= roomsAtMost) throw new AppError(400, 'Too many tasks on one connection')
      const task = await read(socket, id)
      await socket.join(roomOf(id))
      return { task }
    },
    async leave(socket, request) {
      await socket.leave(roomOf(taskIdOf(request)))
      return {}
    },
  }
}

const roomOf = (id: string) => `task:${id}`

const tasksOf = ({ rooms }: Socket) => [...rooms].filter((room) => room.startsWith('task:')).length

function taskIdOf(request: unknown): string {
  const { taskId } = (request ?? {}) as { taskId?: unknown }
  const id = String(taskId)
  if (!/^\d{1,10}$/.test(id)) throw new AppError(400, 'taskId is required')
  return id
}
