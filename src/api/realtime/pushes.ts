import type { Server, Socket } from 'socket.io'
import type { Logs } from '../../adapters/logger.ts'
import { withFreshCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Listening } from '../../db/listener.ts'
import { AppError } from '../../errors.ts'
import { systemActor } from '../../events/types.ts'
import { readItem } from '../../features/data/items/items.ts'
import { openAssembly, type Push, roomKey } from '../../features/messaging/rooms/rooms.ts'
import type { Access } from '../../query/access.ts'
import type { RealtimeReads } from '../capabilities.ts'
import { callerOf, readMessage, socketRoom, tenantOf, tenantRoom, userRoom } from './messages.ts'

/** Hands pushes to the sockets of this process; every web process receives each and does the same. */
export function openPushes(deps: Configuration & Listening & Logs, io: Server): void {
  const assembly = openAssembly()
  deps.listener.on('svc_push', (part) => {
    try {
      const push = assembly.add(part)
      if (push !== undefined) deliver(deps, io, push)
    } catch (error) {
      deps.log.error({ err: error }, 'a push could not be delivered')
    }
  })
  deps.listener.onReconnect(() => assembly.clear())
}

function deliver(deps: Configuration, io: Server, { to, event, body }: Push): void {
  if (to.kind === 'room') {
    const room = { name: to.name, tenantId: to.tenantId ?? undefined }
    io.local.to(socketRoom(roomKey(room))).emit(event, body)
  } else if (to.kind === 'all') {
    const audience = to.tenantId === undefined ? io.local : io.local.to(tenantRoom(to.tenantId ?? undefined))
    audience.emit(event, body)
  } else
    for (const id of io.sockets.adapter.rooms.get(userRoom(to.userId.toLowerCase())) ?? []) {
      const socket = io.sockets.sockets.get(id)
      const isThere =
        to.tenantId === undefined || (socket && (tenantOf(deps, callerOf(socket)) ?? null) === to.tenantId)
      if (isThere) socket?.emit(event, body)
    }
}

/**
 * How far tasks are, for sockets that have joined them. A socket gets what its user may read of the task at that moment,
 * by the read of `/items/svc_Tasks/{id}`; it is taken out when its user may not read it any more.
 */
export type TaskProgress = {
  /** `task:join {taskId}`: answers with how far the task is; from then on `task:progress` comes with every change. */
  join(socket: Socket, request: unknown): Promise<{ task: object }>
  leave(socket: Socket, request: unknown): Promise<object>
}

const shown = ['id', 'task_status', 'progress', 'progress_message']
const roomsAtMost = 100

export function openTaskProgress(deps: RealtimeReads, io: Server, accessOf: (socket: Socket) => Access): TaskProgress {
  const read = async (socket: Socket, id: string): Promise<object> => {
    const reader = { actor: systemActor, access: accessOf(socket) }
    const { body } = await withFreshCatalog(deps.catalog, () =>
      readItem(deps, reader, 'svc_Tasks', id, { fields: '*' }),
    )
    const task = Object.entries(JSON.parse(body).data as object)
    return Object.fromEntries(task.filter(([name]) => shown.includes(name)))
  }

  const report = async (socket: Socket, id: string) => {
    try {
      socket.emit('task:progress', { ...(await read(socket, id)), timestamp: deps.clock().toISOString() })
    } catch (error) {
      if (!(error instanceof AppError)) deps.log.error({ err: error, taskId: id }, 'progress could not be sent')
      await socket.leave(taskRoom(id))
      socket.emit('task:left', { taskId: id })
    }
  }

  deps.listener.on('svc_progress', (id) => {
    for (const socketId of io.sockets.adapter.rooms.get(taskRoom(id)) ?? []) {
      const socket = io.sockets.sockets.get(socketId)
      if (socket !== undefined) void report(socket, id)
    }
  })

  return {
    async join(socket, request) {
      const id = String(readMessage('task:join', request).taskId)
      if (tasksOf(socket) >= roomsAtMost) throw new AppError(400, 'Too many tasks on one connection')
      const task = await read(socket, id)
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
