import { type Left, type Participant, type Room, type RoomMember, roomKey } from './room.ts'

/*
 * The operations on rooms as scripts, which Redis runs as a whole: the keys that they take, their texts, and what they
 * answer. All of one installation are on one Redis, no cluster. A member is stored as `{came} {userId} {process}
 * {metadata}`, where `came` is Redis's time in microseconds: as text, because Lua's numbers would lose its last digits.
 */

/** The keys that the scripts take, in their order. */
type RoomKeys = readonly [members: string, ...others: string[]]

export type KeysOf = (room: Room, process: string, socketId: string) => RoomKeys

/** Keys under SOCKET_REDIS_KEY (docs/rooms.md). */
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
export const joinScript = `${known}
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
export const leaveScript = `${head}
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
export const recordScript = `${known}
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

/** ARGV: process, room, socket of who asks, user to go, prefix of the keys. */
export const kickScript = `${known}
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
export const membersScript = `${known}
local answer = redis.call('HGETALL', members)
table.insert(answer, 1, redis.call('GET', creator) or '')
table.insert(answer, 1, 'members')
return answer
`

/** KEYS: sets of names. ARGV: prefix of the keys of each set's rooms, then what their names begin with. */
export const listScript = `
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
export const beatScript = `
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
export const registerScript = `
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
return redis.call('DEL', KEYS[2])
`

/** The effect of a `leaveScript`; undefined when there was nothing to leave. */
export function leftOf(
  socketId: string,
  [outcome, userId = '', next = '', nextUser = '']: readonly string[],
): Left | undefined {
  return outcome === 'left' ? { person: { socketId, userId }, newCreator: personOf(next, nextUser) } : undefined
}

export const personOf = (socketId: string, userId: string): Participant | undefined =>
  socketId === '' ? undefined : { socketId, userId }

/** The room of a key as `roomKey` makes it. */
export function roomOf(key: string): Room {
  const at = key.indexOf(':')
  const tenant = key.slice(0, at)
  return { tenantId: tenant === '-' ? undefined : tenant, name: key.slice(at + 1) }
}

/** In the order in which they came, which is what they are stored with first. */
export function membersOf([, creator, ...pairs]: readonly string[]): readonly RoomMember[] {
  return inPairs(pairs)
    .toSorted(([, a], [, b]) => (a < b ? -1 : 1))
    .map(([socketId, stored]) => {
      const [, userId = '', metadata = ''] = /^\S+ (\S+) \S+ (.*)$/s.exec(stored) ?? []
      return { socketId, userId, metadata: metadata === '' ? undefined : metadata, isCreator: socketId === creator }
    })
}

export const inPairs = <T>(flat: readonly T[]): [T, T][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])
