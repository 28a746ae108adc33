import {
  type Joined,
  type Kick,
  type Left,
  listed,
  type Person,
  type Room,
  type RoomStore,
  roomBounds,
  roomKey,
} from './rooms.ts'

type State = {
  readonly room: Room
  /** In the order in which they came. */
  readonly members: Map<string, { readonly userId: string; readonly metadata: string | undefined }>
  creator: string
  /** The user who made the room, and gets it back. */
  readonly original: string
  readonly history: string[]
}

/** Characters of all histories of the process; beyond them that of the oldest room is dropped. */
const historiesAtMost = 64 * 1024 * 1024

/** Rooms of the sockets of this process alone. */
export function openMemoryStore(): RoomStore {
  const states = new Map<string, State>()
  let kept = 0

  const drop = (state: State, count: number) => {
    for (const record of state.history.splice(0, count)) kept -= record.length
  }

  const keep = (state: State, record: string) => {
    state.history.push(record)
    kept += record.length
    let length = state.history.reduce((sum, one) => sum + one.length, 0)
    while (state.history.length > roomBounds.records || length > roomBounds.history) {
      length -= state.history[0]!.length
      drop(state, 1)
    }
    for (const other of states.values()) {
      if (kept <= historiesAtMost) break
      drop(other, other.history.length)
    }
  }

  const remove = (state: State, socketId: string): Left | undefined => {
    const member = state.members.get(socketId)
    if (member === undefined) return undefined
    state.members.delete(socketId)
    if (state.members.size === 0) {
      drop(state, state.history.length)
      states.delete(roomKey(state.room))
    }
    const person = { socketId, userId: member.userId }
    return { person, newCreator: state.creator === socketId ? elect(state) : undefined }
  }

  return {
    join: async (room, { socketId, userId, metadata }): Promise<Joined | 'full'> => {
      const known = states.get(roomKey(room))
      const state = known ?? { room, members: new Map(), creator: socketId, original: userId, history: [] }
      const isNew = !state.members.has(socketId)
      if (isNew && state.members.size >= roomBounds.members) return 'full'
      states.set(roomKey(room), state)
      state.members.set(socketId, { userId, metadata })
      return { history: [...state.history], isNew, newCreator: userId === state.original ? elect(state) : undefined }
    },
    leave: async (room, socketId) => {
      const state = states.get(roomKey(room))
      return state && remove(state, socketId)
    },
    record: async (room, socketId, record) => {
      const state = states.get(roomKey(room))
      if (state?.members.has(socketId) !== true) return false
      if (record !== undefined) keep(state, record)
      return true
    },
    members: async (room) => {
      const state = states.get(roomKey(room))
      return [...(state?.members ?? [])].map(([socketId, member]) => ({
        socketId,
        ...member,
        isCreator: state?.creator === socketId,
      }))
    },
    kick: async (room, socketId, userId): Promise<Kick> => {
      const state = states.get(roomKey(room))
      if (state === undefined) return { outcome: 'no room' }
      if (state.creator !== socketId) return { outcome: 'not the creator' }
      const targets = [...state.members].filter(([, member]) => member.userId === userId)
      if (targets.length === 0) return { outcome: 'not in the room' }
      return { outcome: 'kicked', people: targets.map(([target]) => remove(state, target)!.person) }
    },
    list: async (tenantId, prefix) =>
      listed(
        [...states.values()]
          .filter(({ room }) => tenantId === 'all' || (room.tenantId ?? null) === tenantId)
          .filter(({ room }) => room.name.startsWith(prefix))
          .map(({ room, members }) => ({ ...room, memberCount: members.size })),
      ),
    count: async (room) => states.get(roomKey(room))?.members.size ?? 0,
  }
}

/** The first socket of the user who made the room, else the one that has been there longest; who it is, if that is new. */
function elect(state: State): Person | undefined {
  const members = [...state.members]
  const next = members.find(([, { userId }]) => userId === state.original) ?? members[0]
  if (next === undefined || next[0] === state.creator) return undefined
  state.creator = next[0]
  return { socketId: next[0], userId: next[1].userId }
}
