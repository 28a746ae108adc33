import type { Socket } from 'socket.io'
import type { Caller } from '../../access/principal.ts'
import type { CurrentAccess } from '../../access/store.ts'
import type { Configuration } from '../../config/config.ts'
import { accountabilityOf } from '../../features/data/items/items.ts'
import type { SocketUser } from '../../features/messaging/rooms/rooms.ts'

/** The caller behind a socket, as looked up last. */
export const callerOf = (socket: Socket): Caller => (socket.data as { caller: Caller }).caller

export const userOf = (socket: Socket): string => callerOf(socket).userId ?? ''

/** The tenant that a socket is at; rooms and pushes of tenants are apart where there are tenants at all. */
export function tenantOf({ config }: Configuration, caller: Caller): string | undefined {
  return config.tenancy.enabled ? caller.tenantId : undefined
}

/** What extensions are given of a socket: not the socket, which could join the rooms of the platform. */
export function socketUser(rt: Configuration & CurrentAccess, socket: Socket): SocketUser {
  const caller = callerOf(socket)
  const { headers, address: ip } = socket.handshake
  const userAgent = headers['user-agent']
  const { userId, tenantId, role, access, user } = caller
  const actor = { userId, tenantId, roleId: role.id, ip, userAgent, requestId: undefined }
  return Object.freeze({
    id: socket.id,
    userId: userOf(socket),
    tenantId: tenantOf(rt, caller),
    accountability: accountabilityOf(rt, { actor, access, user })!,
    emit: (event: string, payload: unknown) => void socket.emit(event, payload),
  })
}

/** The socket.io rooms of custom rooms and of the server's own pushes. No client names them. */
export const socketRoom = (key: string) => `room:${key}`
export const userRoom = (userId: string) => `user:${userId}`
export const tenantRoom = (tenantId: string | undefined) => `tenant:${tenantId ?? '-'}`
