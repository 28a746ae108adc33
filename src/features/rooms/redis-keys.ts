import { type Room, roomKey } from './rooms.ts'

/** The keys that the scripts of `redis-scripts.ts` take, in their order. */
export type RoomKeys = readonly [members: string, ...others: string[]]

export type KeysOf = (room: Room, process: string, socketId: string) => RoomKeys

/** Keys as realtime facts §1 names them, after SOCKET_REDIS_KEY. All of one installation are on one Redis, no cluster. */
export function roomKeysFor(prefix: string): KeysOf {
  return (room, process, socketId) => {
    const own = `${prefix}room:${roomKey(room)}`
    return [
      `${own}:members`,
      `${own}:creator`,
      `${own}:original_creator`,
      `${own}:history`,
      `${own}:history_size`,
      `${prefix}rooms:${room.tenantId ?? '-'}`,
      `${prefix}processes`,
      socketsKey(prefix, process),
      socketRoomsKey(prefix, socketId),
    ]
  }
}

/** The sockets of a process that are in rooms. */
export const socketsKey = (prefix: string, process: string) => `${prefix}process:${process}:sockets`

export const socketRoomsKey = (prefix: string, socketId: string) => `${prefix}socket:${socketId}:rooms`
