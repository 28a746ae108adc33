import { AppError } from '../../../errors.ts'
import { openPresence, type Presence, type PresenceOptions } from './presence.ts'
import {
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
  roomKeysFor,
  roomOf,
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
