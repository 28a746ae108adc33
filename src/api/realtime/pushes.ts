import type { Server } from 'socket.io'
import type { Logs } from '../../adapters/logger.ts'
import type { Configuration } from '../../config/config.ts'
import type { Listening } from '../../db/listener.ts'
import { openAssembly, type Push, roomKey } from '../../features/messaging/rooms/rooms.ts'
import { callerOf, socketRoom, tenantOf, tenantRoom, userRoom } from './messages.ts'

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
