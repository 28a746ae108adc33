import {
  type JoinRequest,
  type JoinResult,
  type Kick,
  type Left,
  listed,
  type Participant,
  type Room,
  type RoomStore,
  roomBounds,
  roomKey,
} from './room.ts'

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

/** All rooms of a process, and the characters of their histories. */
type Rooms = { readonly states: Map<string, State>; kept: number }

/** Rooms of the sockets of this process alone. */
export function openMemoryStore(): RoomStore {
  const rooms: Rooms = { states: new Map(), kept: 0 }
  const stateOf = (room: Room) => rooms.states.get(roomKey(room))
  return {
    join: async (room, joining) => join(rooms, room, joining),
    leave: async (room, socketId) => {
      const state = stateOf(room)
      return state && remove(rooms, state, socketId)
    },
    record: async (room, socketId, record) => {
      const state = stateOf(room)
      if (state?.members.has(socketId) !== true) return false
      if (record !== undefined) keep(rooms, state, record)
      return true
    },
    members: async (room) => {
      const state = stateOf(room)
      const members = [...(state?.members ?? [])]
      return members.map(([socketId, member]) => ({ socketId, ...member, isCreator: state?.creator === socketId }))
    },
    kick: async (room, socketId, userId) => kick(rooms, stateOf(room), socketId, userId),
    list: async (tenantId, prefix) =>
      listed(
        [...rooms.states.values()]
          .filter(({ room }) => tenantId === 'all' || (room.tenantId ?? null) === tenantId)
          .filter(({ room }) => room.name.startsWith(prefix))
          .map(({ room, members }) => ({ ...room, memberCount: members.size })),
      ),
    count: async (room) => stateOf(room)?.members.size ?? 0,
  }
}

function join({ states }: Rooms, room: Room, { socketId, userId, metadata }: JoinRequest): JoinResult | 'full' {
  const known = states.get(roomKey(room))
  const state = known ?? { room, members: new Map(), creator: socketId, original: userId, history: [] }
  const isNew = !state.members.has(socketId)
  if (isNew && state.members.size >= roomBounds.members) return 'full'
  states.set(roomKey(room), state)
  state.members.set(socketId, { userId, metadata })
  return { history: [...state.history], isNew, newCreator: userId === state.original ? elect(state) : undefined }
}

function remove(rooms: Rooms, state: State, socketId: string): Left | undefined {
  const member = state.members.get(socketId)
  if (member === undefined) return undefined
  state.members.delete(socketId)
  if (state.members.size === 0) {
    drop(rooms, state, state.history.length)
    rooms.states.delete(roomKey(state.room))
  }
  const person = { socketId, userId: member.userId }
  return { person, newCreator: state.creator === socketId ? elect(state) : undefined }
}

function kick(rooms: Rooms, state: State | undefined, socketId: string, userId: string): Kick {
  if (state === undefined) return { outcome: 'no room' }
  if (state.creator !== socketId) return { outcome: 'not the creator' }
  const targets = [...state.members].filter(([, member]) => member.userId === userId)
  if (targets.length === 0) return { outcome: 'not in the room' }
  return { outcome: 'kicked', people: targets.map(([target]) => remove(rooms, state, target)!.person) }
}

function keep(rooms: Rooms, state: State, record: string): void {
  state.history.push(record)
  rooms.kept += record.length
  let length = state.history.reduce((sum, one) => sum + one.length, 0)
  while (state.history.length > roomBounds.records || length > roomBounds.history) {
    length -= state.history[0]!.length
    drop(rooms, state, 1)
  }
  for (const other of rooms.states.values()) {
    if (rooms.kept <= historiesAtMost) break
    drop(rooms, other, other.history.length)
  }
}

function drop(rooms: Rooms, state: State, count: number): void {
  for (const record of state.history.splice(0, count)) rooms.kept -= record.length
}

/** The first socket of the user who made the room, else the one that has been there longest; who it is, if that is new. */
function elect(state: State): Participant | undefined {
  const members = [...state.members]
  const next = members.find(([, { userId }]) => userId === state.original) ?? members[0]
  if (next === undefined || next[0] === state.creator) return undefined
  state.creator = next[0]
  return { socketId: next[0], userId: next[1].userId }
}
