import type { Server } from 'socket.io'
import { type Joining, type Left, type Person, type Room, roomKey } from '../../features/rooms/rooms.ts'
import type { Runtime } from '../../runtime.ts'
import { socketRoom } from './push.ts'

/** What members hear of a room, in the shapes of realtime facts §1. */
export type RoomAnnouncements = {
  joined(room: Room, joining: Joining): void
  left(room: Room, left: Left): void
  creatorChanged(room: Room, newCreator: Person | undefined): void
  /** To all members, the sender too. */
  message(room: Room, event: string, body: object): void
  /** To one socket of this process: it is out. `kickedBy` is a user, or null where nobody did it. */
  kicked(room: Room, socketId: string, kickedBy: string | null): void
  /** To one socket of this process: it may have missed something. */
  resync(room: Room, socketId: string): void
}

export function roomAnnouncements(rt: Runtime, io: Server): RoomAnnouncements {
  const audience = (room: Room) => io.to(socketRoom(roomKey(room)))
  const about = ({ name: room }: Room, more: object) => ({ room, ...more, timestamp: rt.clock().toISOString() })
  const creatorChanged: RoomAnnouncements['creatorChanged'] = (room, newCreator) => {
    if (newCreator === undefined) return
    const { socketId: newCreatorSocketId, userId: newCreatorUserId } = newCreator
    audience(room).emit('room:creator:changed', about(room, { newCreatorSocketId, newCreatorUserId }))
  }
  return {
    joined: (room, { socketId, userId, metadata }) => {
      const joined = about(room, { userId, socketId, metadata: metadataValue(metadata) })
      audience(room).except(socketId).emit('room:user:joined', joined)
    },
    left: (room, { person: { userId, socketId }, newCreator }) => {
      audience(room).emit('room:user:left', about(room, { userId, socketId }))
      creatorChanged(room, newCreator)
    },
    creatorChanged,
    message: (room, event, body) => void audience(room).emit(`room:${event}`, { room: room.name, ...body }),
    kicked: (room, socketId, kickedBy) =>
      void io.sockets.sockets.get(socketId)?.emit('room:kicked', about(room, { kickedBy })),
    resync: (room, socketId) => void io.sockets.sockets.get(socketId)?.emit('room:resync', about(room, {})),
  }
}

/** Metadata as it was given; null where there is none. */
export const metadataValue = (json: string | undefined): unknown => (json === undefined ? null : JSON.parse(json))
