import type { Logger } from 'pino'
import type { Redis } from '../../../adapters/redis.ts'
import { AppError } from '../../../errors.ts'
import {
  type JoinRequest,
  type JoinResult,
  type Kick,
  type KickRefusal,
  type Left,
  type ListedRoom,
  listed,
  type Participant,
  type Room,
  type RoomMember,
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
  /** A user is out of a room without having asked: the process behind the socket is dead, or the line was away. */
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

/*
 * The operations on rooms as scripts, which Redis runs as a whole: the keys that they take, their texts, and what they
 * answer. All of one installation are on one Redis, no cluster. A member is stored as `{came} {userId} {process}
 * {metadata}`, where `came` is Redis's time in microseconds: as text, because Lua's numbers would lose its last digits.
 */

/** The keys that the scripts take, in their order. */
type RoomKeys = readonly [members: string, ...others: string[]]

type KeysOf = (room: Room, process: string, socketId: string) => RoomKeys

/** Keys under SOCKET_REDIS_KEY (docs/rooms.md). */
function roomKeysFor(prefix: string): KeysOf {
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
const socketsKey = (prefix: string, process: string) => `${prefix}process:${process}:sockets`

const socketRoomsKey = (prefix: string, socketId: string) => `${prefix}socket:${socketId}:rooms`

const head = `
local members, creator, original, history, size = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local rooms, processes = KEYS[6], KEYS[7]
local process = ARGV[1]
local function parts(value) return string.match(value, '^(%S+) (%S+) (%S+) (.*)$') end
local function elect()
  local maker = string.match(redis.call('GET', original) or '', ' (.+)$')
  local best, bestCame, bestMade, bestUser
  local all = redis.call('HGETALL', members)
  for i = 1, #all, 2 do
    local came, user = parts(all[i + 1])
    local made = user == maker
    if not best or (made and not bestMade) or (made == bestMade and came < bestCame) then
      best, bestCame, bestMade, bestUser = all[i], came, made, user
    end
  end
  if not best or best == redis.call('GET', creator) then return '', '' end
  redis.call('SET', creator, best)
  return best, bestUser
end
local function remove(socket)
  redis.call('HDEL', members, socket)
  if redis.call('EXISTS', members) == 0 then
    redis.call('DEL', creator, original, history, size)
    redis.call('SREM', rooms, ARGV[2])
    return '', ''
  end
  if redis.call('GET', creator) == socket then return elect() end
  return '', ''
end
local function refresh()
  for i = 1, 6 do redis.call('EXPIRE', KEYS[i], 86400) end
end
local isLost = not redis.call('ZSCORE', processes, process)
`

/** Says first whether the process is known: after Redis has lost its memory it has to say again who is there. */
const known = `${head}
if isLost then return { 'lost' } end
`

/**
 * ARGV: process, room, socket, user, metadata, most members, came, made. The last two are empty, or what an earlier
 * `join` answered, where a member is put back.
 */
const joinScript = `${known}
local socket, user, came, made = ARGV[3], ARGV[4], ARGV[7], ARGV[8]
local before = redis.call('HGET', members, socket)
if not before and redis.call('HLEN', members) >= tonumber(ARGV[6]) then return { 'full' } end
local time = redis.call('TIME')
if came == '' then came = before and parts(before) or time[1] .. string.format('%06d', time[2]) end
redis.call('HSET', members, socket, came .. ' ' .. user .. ' ' .. process .. ' ' .. ARGV[5])
if made == '' then made = came .. ' ' .. user end
local maker = redis.call('GET', original)
if not maker or made < maker then redis.call('SET', original, made) end
local wasEmpty = redis.call('EXISTS', creator) == 0
local next, nextUser = '', ''
if wasEmpty or ARGV[7] ~= '' or string.match(redis.call('GET', original), ' (.+)$') == user then next, nextUser = elect() end
if wasEmpty then next, nextUser = '', '' end
redis.call('SADD', rooms, ARGV[2])
redis.call('SADD', KEYS[8], socket)
redis.call('SADD', KEYS[9], ARGV[2])
redis.call('EXPIRE', KEYS[8], 86400)
redis.call('EXPIRE', KEYS[9], 86400)
refresh()
return { 'joined', before and 0 or 1, next, nextUser, came, redis.call('GET', original), redis.call('LRANGE', history, 0, -1) }
`

/** ARGV: process, room, socket, and whose member it must be, or nothing. */
const leaveScript = `${head}
local socket = ARGV[3]
local before = redis.call('HGET', members, socket)
local _, user, owner
if before then _, user, owner = parts(before) end
if before and ARGV[4] ~= '' and owner ~= ARGV[4] then return { 'absent' } end
redis.call('SREM', KEYS[9], ARGV[2])
if redis.call('EXISTS', KEYS[9]) == 0 then redis.call('SREM', KEYS[8], socket) end
if not before then return { 'absent' } end
local next, nextUser = remove(socket)
return { 'left', user, next, nextUser }
`

/** ARGV: process, room, socket, record or nothing, most records, most characters of all. */
const recordScript = `${known}
if redis.call('HEXISTS', members, ARGV[3]) == 0 then return { 'absent' } end
local record = ARGV[4]
if record ~= '' then
  redis.call('RPUSH', history, record)
  local length = redis.call('INCRBY', size, #record)
  while redis.call('LLEN', history) > tonumber(ARGV[5]) or length > tonumber(ARGV[6]) do
    length = redis.call('DECRBY', size, #redis.call('LPOP', history))
  end
end
refresh()
return { 'recorded' }
`

/** ARGV: process, room, socket of the caller, user to go, prefix of the keys. */
const kickScript = `${known}
if redis.call('EXISTS', members) == 0 then return { 'no room' } end
if redis.call('GET', creator) ~= ARGV[3] then return { 'not the creator' } end
local gone = { 'kicked' }
local all = redis.call('HGETALL', members)
for i = 1, #all, 2 do
  local _, user, owner = parts(all[i + 1])
  if user == ARGV[4] then
    remove(all[i])
    local left = ARGV[5] .. 'socket:' .. all[i] .. ':rooms'
    redis.call('SREM', left, ARGV[2])
    if redis.call('EXISTS', left) == 0 then redis.call('SREM', ARGV[5] .. 'process:' .. owner .. ':sockets', all[i]) end
    table.insert(gone, all[i])
  end
end
if #gone == 1 then return { 'not in the room' } end
return gone
`

/** ARGV: process, room. Answers the creator, then socket and member in turn. */
const membersScript = `${known}
local answer = redis.call('HGETALL', members)
table.insert(answer, 1, redis.call('GET', creator) or '')
table.insert(answer, 1, 'members')
return answer
`

/** KEYS: sets of names. ARGV: prefix of the keys of each set's rooms, then what their names begin with. */
const listScript = `
local answer = {}
for i, set in ipairs(KEYS) do
  for _, room in ipairs(redis.call('SMEMBERS', set)) do
    local name = string.match(room, '^[^:]*:(.*)$')
    if string.sub(name, 1, #ARGV[2]) == ARGV[2] then
      table.insert(answer, room)
      table.insert(answer, redis.call('HLEN', ARGV[1] .. room .. ':members'))
    end
  end
end
return answer
`

/**
 * A sign of life. KEYS: processes, condemned. ARGV: process, milliseconds without a sign after which one counts as dead,
 * prefix of its marks. Answers whether the process is known, then the dead ones whose members are to be removed.
 */
const beatScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local isKnown = redis.call('ZSCORE', KEYS[1], ARGV[1])
if isKnown then redis.call('ZADD', KEYS[1], now, ARGV[1]) end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))) do
  redis.call('ZREM', KEYS[1], dead)
  redis.call('SADD', KEYS[2], dead)
  redis.call('SET', ARGV[3] .. dead .. ':swept', 1, 'EX', 86400)
end
local answer = redis.call('SMEMBERS', KEYS[2])
table.insert(answer, 1, isKnown and 'known' or 'lost')
return answer
`

/** KEYS: processes, mark of the process's earlier life. ARGV: process. Answers whether that was taken for dead. */
const registerScript = `
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
return redis.call('DEL', KEYS[2])
`

/** The effect of a `leaveScript`; undefined when there was nothing to leave. */
function leftOf(
  socketId: string,
  [outcome, userId = '', next = '', nextUser = '']: readonly string[],
): Left | undefined {
  return outcome === 'left' ? { person: { socketId, userId }, newCreator: personOf(next, nextUser) } : undefined
}

const personOf = (socketId: string, userId: string): Participant | undefined =>
  socketId === '' ? undefined : { socketId, userId }

/** The room of a key as `roomKey` makes it. */
function roomOf(key: string): Room {
  const at = key.indexOf(':')
  const tenant = key.slice(0, at)
  return { tenantId: tenant === '-' ? undefined : tenant, name: key.slice(at + 1) }
}

/** In the order in which they came, which is what they are stored with first. */
function membersOf([, creator, ...pairs]: readonly string[]): readonly RoomMember[] {
  return inPairs(pairs)
    .toSorted(([, a], [, b]) => (a < b ? -1 : 1))
    .map(([socketId, stored]) => {
      const [, userId = '', metadata = ''] = /^\S+ (\S+) \S+ (.*)$/s.exec(stored) ?? []
      return { socketId, userId, metadata: metadata === '' ? undefined : metadata, isCreator: socketId === creator }
    })
}

const inPairs = <T>(flat: readonly T[]): [T, T][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])
