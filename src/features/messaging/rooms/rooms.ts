/* What other slices and the processes use of this folder; its other files are its own. */

export { openMemoryStore } from './memory-store.ts'
export { openAssembly, type Push, push, type Target } from './push.ts'
export { openRedisStore, type RedisStore } from './redis-store.ts'
export type { LiveRooms, LiveStats, MessageHandler, RoomValidator, Sockets, SocketUser } from './registry.ts'
export { type Joining, type Left, type Person, type Room, type RoomStore, roomBounds, roomKey } from './room.ts'
