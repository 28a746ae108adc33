import type { Server } from 'socket.io'
import { openAssembly, type Push } from '../../features/rooms/push.ts'
import { roomKey } from '../../features/rooms/rooms.ts'
import type { Runtime } from '../../runtime.ts'
import { callerOf, tenantOf, tenantRoom, userRoom } from './users.ts'

/** Hands pushes to the sockets of this process; every web process hears of each and does the same. */
export function openPushes(rt: Runtime, io: Server): void {
  const assembly = openAssembly()
  rt.listener.on('svc_push', (part) => {
    try {
      const push = assembly.add(part)
      if (push !== undefined) deliver(rt, io, push)
    } catch (error) {
      rt.log.error({ err: error }, 'a push could not be delivered')
    }
  })
  rt.listener.onReconnect(() => assembly.clear())
}

function deliver(rt: Runtime, io: Server, { to, event, body }: Push): void {
  if (to.kind === 'room') {
    const room = { name: to.name, tenantId: to.tenantId ?? undefined }
    io.local.to(socketRoom(roomKey(room))).emit(event, body)
  } else if (to.kind === 'all') {
    const audience = to.tenantId === undefined ? io.local : io.local.to(tenantRoom(to.tenantId ?? undefined))
    audience.emit(event, body)
  } else
    for (const id of io.sockets.adapter.rooms.get(userRoom(to.userId.toLowerCase())) ?? []) {
      const socket = io.sockets.sockets.get(id)
      const isThere = to.tenantId === undefined || (socket && (tenantOf(rt, callerOf(socket)) ?? null) === to.tenantId)
      if (isThere) socket?.emit(event, body)
    }
}

/** The socket.io room of a custom room. */
export const socketRoom = (key: string) => `room:${key}`
