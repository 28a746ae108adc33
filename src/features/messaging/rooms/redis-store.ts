import type { Logger } from 'pino'
import type { Redis } from '../../../adapters/redis.ts'
import { AppError } from '../../../errors.ts'
import {
  beatScript,
  inPairs,
  joinScript,
  type KeysOf,
  kickScript,
  leaveScript,
  leftOf,
  listScript,
  membersOf,
  membersScript,
  personOf,
  recordScript,
  registerScript,
  roomKeysFor,
  roomOf,
  socketRoomsKey,
  socketsKey,
} from './redis-scripts.ts'
import {
  type JoinRequest,
  type JoinResult,
  type Kick,
  type KickRefusal,
  type Left,
  type ListedRoom,
  listed,
  type Room,
  type RoomStore,
  roomBounds,
  roomKey,
} from './room.ts'

export type RedisStore = RoomStore & {
  /** Whether Redis has answered the last sign of life. */
  isAvailable(): boolean
  /** Forgets that a socket of this process is in a room, after another process has removed it. */
  forget(room: Room, socketId: string): void
  /** Looks for sockets that were removed from rooms while this process could not be notified. */
  audit(): Promise<void>
  /** After all sockets have left. */
  close(): Promise<void>
}

type PresenceShell = PresenceOptions & { readonly keysOf: KeysOf; readonly presence: Presence }

const attempts = 3

/** Rooms whose members are sockets of several processes. While Redis is away every operation is refused. */
export function openRedisStore(options: PresenceOptions): RedisStore {
  const keysOf = roomKeysFor(options.prefix)
  const presence = openPresence({ ...options, keysOf })
  const shared: PresenceShell = { ...options, keysOf, presence }
  const { redis, prefix } = options
  return {
    join: (room, joining) => join(shared, room, joining),
    leave: (room, socketId) => leave(shared, room, socketId),
    record: async (room, socketId, record = '') => {
      const values = [socketId, record, roomBounds.records, roomBounds.history]
      return (await ask(shared, recordScript, room, socketId, values))[0] === 'recorded'
    },
    members: async (room) => membersOf(await ask(shared, membersScript, room, '', [])),
    kick: async (room, socketId, userId): Promise<Kick> => {
      const [outcome, ...sockets] = await ask(shared, kickScript, room, socketId, [socketId, userId, prefix])
      if (outcome === 'kicked') return { outcome, people: sockets.map((target) => ({ socketId: target, userId })) }
      return { outcome: outcome as KickRefusal }
    },
    list: (tenantId, start) => orUnavailable(() => list(shared, tenantId, start)),
    count: (room) => orUnavailable(async () => Number(await redis.call('hlen', keysOf(room, '', '')[0]))),
    isAvailable: presence.isAvailable,
    forget: (room, socketId) => void presence.remove(room, socketId),
    audit: presence.audit,
    close: presence.close,
  }
}

type ScriptArguments = readonly (string | number)[]

/** A process that Redis does not know has to say first who is in its rooms. */
async function ask(
  { redis, keysOf, presence, log }: PresenceShell,
  script: string,
  room: Room,
  socketId: string,
  values: ScriptArguments,
): Promise<string[]> {
  try {
    for (let attempt = 0; attempt < attempts; attempt += 1) {
      await presence.settled()
      const name = presence.name()
      const keys = keysOf(room, name, socketId)
      const answer = (await redis.run(script, keys, [name, roomKey(room), ...values])) as string[]
      if (answer[0] !== 'lost') return answer
      await presence.restore(name)
    }
    throw new Error('Redis forgets again and again that this process is there')
  } catch (error) {
    log.debug({ err: error }, 'rooms could not be asked for')
    throw unavailable(error)
  }
}

async function join(shared: PresenceShell, room: Room, joining: JoinRequest): Promise<JoinResult | 'full'> {
  const { socketId, userId, metadata = '' } = joining
  const values = [socketId, userId, metadata, roomBounds.members, '', '']
  const answer = await ask(shared, joinScript, room, socketId, values)
  if (answer[0] === 'full') return 'full'
  const [, isNew, next = '', nextUser = '', came = '', made = '', history] = answer
  shared.presence.add(room, { ...joining, came, made })
  return { history: history as unknown as string[], isNew: Number(isNew) === 1, newCreator: personOf(next, nextUser) }
}

async function leave(shared: PresenceShell, room: Room, socketId: string): Promise<Left | undefined> {
  const { presence } = shared
  const known = presence.remove(room, socketId)
  try {
    const left = leftOf(socketId, await ask(shared, leaveScript, room, socketId, [socketId, '']))
    return left ?? (known && { person: { socketId, userId: known.userId }, newCreator: undefined })
  } catch (error) {
    if (known !== undefined) presence.owe(room, socketId)
    throw error
  }
}

async function list(shared: PresenceShell, tenantId: string | null, start: string): Promise<readonly ListedRoom[]> {
  const { redis, prefix } = shared
  const sets = tenantId === 'all' ? await allSets(shared) : [`${prefix}rooms:${tenantId ?? '-'}`]
  if (sets.length === 0) return []
  const pairs = (await redis.run(listScript, sets, [`${prefix}room:`, start])) as (string | number)[]
  return listed(inPairs(pairs).map(([key, count]) => ({ ...roomOf(String(key)), memberCount: Number(count) })))
}

/** The sets of all tenants; for statistics. */
async function allSets({ redis, prefix }: PresenceShell): Promise<string[]> {
  const found = new Set<string>()
  for (let cursor = '0'; ; ) {
    const pattern = `${prefix.replaceAll(/[*?[\]\\]/g, '\\$&')}rooms:*`
    const [next, keys] = (await redis.call('scan', cursor, 'match', pattern, 'count', 1000)) as [string, string[]]
    for (const key of keys) found.add(key)
    cursor = next
    if (cursor === '0') return [...found]
  }
}

async function orUnavailable<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw unavailable(error)
  }
}

const unavailable = (cause: unknown) =>
  new AppError(503, 'Rooms are not available at the moment, please try again', { cause })

/**
 * This process's share of Redis: the rooms of its sockets, and the sign that it lives. Redis may lose its memory, or
 * other processes may take this one for dead; either way it finds itself unknown, comes back under another name and
 * puts its members back. The first process that notices a dead one removes the members of that one.
 */
type Presence = {
  /** The name under which this process is known at the moment. */
  name(): string
  isAvailable(): boolean
  add(room: Room, entry: JoinedRoom): void
  remove(room: Room, socketId: string): JoinedRoom | undefined
  /** A socket has left while Redis was away, which is yet to be notified. */
  owe(room: Room, socketId: string): void
  /** Resolves when the process is known with all its members. */
  settled(): Promise<void>
  /** Makes the process known, with all its members, unless that has happened since it had this name. */
  restore(unknown: string): Promise<void>
  audit(): Promise<void>
  close(): Promise<void>
}

type PresenceOptions = {
  readonly redis: Redis
  /** SOCKET_REDIS_KEY. */
  readonly prefix: string
  readonly log: Logger
  newId(): string
  /** Somebody is out of a room without having asked: the process behind the socket is dead, or the line was away. */
  onLeft(room: Room, left: Left): void
  /** A socket of this process was put back into a room from which others had seen it leave. */
  onBack(room: Room, joining: JoinRequest): void
  /** A socket of this process is not in the room any more. */
  onRemoved(room: Room, socketId: string): void
}

type JoinedRoom = JoinRequest & { readonly came: string; readonly made: string }
type RoomSocket = { readonly room: Room; readonly socketId: string }

const beatMs = 2000
const deadAfterMs = 10_000
/** Keys live a day beyond their last use, so that nothing stays when all processes are gone. */
const refreshMs = 3_600_000
const atOnce = 50

/** Where a process stands with Redis. */
export type PresenceState = {
  readonly name: string
  /** Whether all members were put under the name; false before the first time, and while some may be missing. */
  readonly isComplete: boolean
  /** Whether Redis has answered the last sign of life. */
  readonly isAvailable: boolean
  /** Changes that Redis has yet to get, the oldest first. */
  readonly owed: readonly RoomSocket[]
  /** When the keys' time limits were extended last, in milliseconds. */
  readonly refreshedAt: number
}

type PresenceInput =
  /** Redis has answered the sign of life of a name. `condemned`: processes whose members are to be removed. */
  | ({ readonly is: 'heard'; readonly at: number } & Heard)
  /** All that followed from a sign of life is done, or something of it has failed. */
  | { readonly is: 'done' }
  | { readonly is: 'failed' }
  /** The process takes another name, which Redis then knows, and under which all members are then put back. */
  | { readonly is: 'renamed'; readonly name: string }
  | { readonly is: 'registered' | 'restored' }
  | { readonly is: 'owed' | 'paid'; readonly place: RoomSocket }

/** The answer to a sign of life of a name: whether it is known, and the processes whose members are to be removed. */
type Heard = { readonly name: string; readonly known: boolean; readonly condemned: readonly string[] }

type PresenceEffect =
  | { readonly do: 'restore'; readonly name: string }
  | { readonly do: 'pay' | 'refresh' }
  | { readonly do: 'sweep'; readonly name: string }

export const newcomer = (name: string, at: number): PresenceState => ({
  name,
  isComplete: false,
  isAvailable: false,
  owed: [],
  refreshedAt: at,
})

/** The reaction to news from Redis; carry out the effects one after the other. */
export function step(state: PresenceState, input: PresenceInput): readonly [PresenceState, readonly PresenceEffect[]] {
  switch (input.is) {
    case 'heard': {
      const isDue = input.at - state.refreshedAt > refreshMs
      const effects: PresenceEffect[] = [
        ...(input.known && state.isComplete ? [] : [{ do: 'restore', name: input.name } as const]),
        { do: 'pay' },
        ...input.condemned.map((name) => ({ do: 'sweep', name }) as const),
        ...(isDue ? [{ do: 'refresh' } as const] : []),
      ]
      return [isDue ? { ...state, refreshedAt: input.at } : state, effects]
    }
    case 'done':
      return [{ ...state, isAvailable: true }, []]
    case 'failed':
      return [{ ...state, isAvailable: false }, []]
    case 'renamed':
      return [{ ...state, name: input.name, isComplete: false }, []]
    case 'registered':
      // Members that have left are not put back under the new name.
      return [{ ...state, owed: [] }, []]
    case 'restored':
      return [{ ...state, isComplete: true }, []]
    case 'owed':
      return [{ ...state, owed: [...state.owed, input.place] }, []]
    case 'paid':
      return [{ ...state, owed: state.owed.filter((one) => one !== input.place) }, []]
  }
}

type Shell = PresenceOptions & {
  readonly keysOf: KeysOf
  readonly members: Map<string, { readonly room: Room; readonly entry: JoinedRoom }>
  state: PresenceState
  restoring: Promise<void> | undefined
}

/** Begins to give signs of life at once, and goes on until it is closed. */
function openPresence(options: PresenceOptions & { readonly keysOf: KeysOf }): Presence {
  const state = newcomer(options.newId(), performance.now())
  const shell: Shell = { ...options, members: new Map(), state, restoring: undefined }
  const { redis, prefix, log, members } = shell
  let closed = false
  let timer: NodeJS.Timeout
  const goOn = async () => {
    try {
      await beat(shell)
      take(shell, { is: 'done' })
    } catch (error) {
      take(shell, { is: 'failed' })
      log.debug({ err: error }, 'a sign of life to Redis failed')
    }
    if (!closed) timer = setTimeout(goOn, beatMs)
  }
  timer = setTimeout(goOn, 0)
  return {
    name: () => shell.state.name,
    isAvailable: () => shell.state.isAvailable,
    add: (room, entry) => void members.set(memberId(room, entry.socketId), { room, entry }),
    remove: (room, socketId) => {
      const found = members.get(memberId(room, socketId))
      members.delete(memberId(room, socketId))
      return found?.entry
    },
    owe: (room, socketId) => void take(shell, { is: 'owed', place: { room, socketId } }),
    settled: async () => {
      if (!shell.state.isComplete) await restore(shell, shell.state.name)
    },
    restore: (unknown) => restore(shell, unknown),
    audit: () => audit(shell),
    close: async () => {
      closed = true
      clearTimeout(timer)
      await redis.call('zrem', `${prefix}processes`, shell.state.name).catch((error: unknown) => {
        log.debug({ err: error }, 'Redis was not notified that the process ends')
      })
    },
  }
}

const memberId = (room: Room, socketId: string) => `${socketId} ${roomKey(room)}`

function take(shell: Shell, input: PresenceInput): readonly PresenceEffect[] {
  const [state, effects] = step(shell.state, input)
  shell.state = state
  return effects
}

async function beat(shell: Shell): Promise<void> {
  const { redis, prefix } = shell
  const { name } = shell.state
  const keys = [`${prefix}processes`, `${prefix}condemned`]
  const answer = (await redis.run(beatScript, keys, [name, deadAfterMs, `${prefix}process:`])) as string[]
  const [answered, ...condemned] = answer
  const heard = { name, known: answered !== 'lost', condemned }
  for (const effect of take(shell, { is: 'heard', at: performance.now(), ...heard })) await perform(shell, effect)
}

function perform(shell: Shell, effect: PresenceEffect): Promise<void> {
  switch (effect.do) {
    case 'restore':
      return restore(shell, effect.name)
    case 'pay':
      return pay(shell)
    case 'sweep':
      return sweep(shell, effect.name)
    case 'refresh':
      return refresh(shell)
  }
}

async function restore(shell: Shell, unknown: string): Promise<void> {
  if (unknown === shell.state.name)
    shell.restoring ??= register(shell).finally(() => {
      shell.restoring = undefined
    })
  await shell.restoring
}

async function register(shell: Shell): Promise<void> {
  const { redis, prefix, members, log } = shell
  const mark = `${prefix}process:${shell.state.name}:swept`
  const name = shell.newId()
  take(shell, { is: 'renamed', name })
  const wasSwept = Number(await redis.run(registerScript, [`${prefix}processes`, mark], [name])) === 1
  take(shell, { is: 'registered' })
  await inTurns([...members.values()], ({ room, entry }) => putBack(shell, room, entry, wasSwept))
  take(shell, { is: 'restored' })
  if (members.size > 0) log.info({ members: members.size }, 'the members of rooms were put back')
}

async function putBack(shell: Shell, room: Room, entry: JoinedRoom, wasSwept: boolean): Promise<void> {
  const { redis, keysOf, members } = shell
  const { name } = shell.state
  const { socketId, userId, metadata = '', came, made } = entry
  const values = [socketId, userId, metadata, roomBounds.members, came, made]
  await redis.run(joinScript, keysOf(room, name, socketId), [name, roomKey(room), ...values])
  // It may have left while it was put back.
  if (!members.has(memberId(room, socketId))) await leaveRooms(shell, name, { room, socketId })
  else if (wasSwept) shell.onBack(room, entry)
}

async function pay(shell: Shell): Promise<void> {
  for (let place = shell.state.owed[0]; place !== undefined; place = shell.state.owed[0]) {
    await leaveForGood(shell, shell.state.name, place)
    take(shell, { is: 'paid', place })
  }
}

async function sweep(shell: Shell, dead: string): Promise<void> {
  const { redis, prefix, log } = shell
  const sockets = (await redis.call('smembers', socketsKey(prefix, dead))) as string[]
  await inTurns(sockets, async (socketId) => {
    const rooms = (await redis.call('smembers', socketRoomsKey(prefix, socketId))) as string[]
    for (const key of rooms) await leaveForGood(shell, dead, { room: roomOf(key), socketId })
  })
  await redis.call('del', socketsKey(prefix, dead))
  await redis.call('srem', `${prefix}condemned`, dead)
  log.info({ process: dead, sockets: sockets.length }, 'the members of a dead process were removed from rooms')
}

async function leaveForGood(shell: Shell, owner: string, place: RoomSocket): Promise<void> {
  const left = leftOf(place.socketId, await leaveRooms(shell, owner, place))
  if (left !== undefined) shell.onLeft(place.room, left)
}

const leaveRooms = ({ redis, keysOf }: Shell, owner: string, { room, socketId }: RoomSocket) =>
  redis.run(leaveScript, keysOf(room, owner, socketId), [owner, roomKey(room), socketId, owner]) as Promise<string[]>

async function refresh({ redis, prefix, keysOf, members, state: { name } }: Shell): Promise<void> {
  await inTurns([...members.values()], async ({ room, entry }) => {
    const keys = keysOf(room, name, entry.socketId).filter((key) => key !== `${prefix}processes`)
    for (const key of keys) await redis.call('expire', key, 86_400)
  })
}

async function audit(shell: Shell): Promise<void> {
  await beat(shell)
  const { redis, keysOf } = shell
  await inTurns([...shell.members.values()], async ({ room, entry: { socketId } }) => {
    const [members] = keysOf(room, shell.state.name, socketId)
    if (Number(await redis.call('hexists', members, socketId)) === 0) shell.onRemoved(room, socketId)
  })
}

/** A few at a time, so that requests in between do not wait for all of them. */
async function inTurns<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  for (let at = 0; at < all.length; at += atOnce) await Promise.all(all.slice(at, at + atOnce).map(work))
}
