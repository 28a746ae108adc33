import type { Logger } from 'pino'
import type { Redis } from '../../adapters/redis.ts'
import { AppError } from '../../errors.ts'
import { inPairs, leftOf, membersOf, personOf, roomOf } from './redis-answers.ts'
import { type RoomKeys, roomKeysFor } from './redis-keys.ts'
import { openRoster } from './redis-roster.ts'
import { joinScript, kickScript, leaveScript, listScript, membersScript, recordScript } from './redis-scripts.ts'
import {
  type Joined,
  type Joining,
  type Kick,
  type KickRefusal,
  type Left,
  listed,
  type Room,
  type RoomStore,
  roomBounds,
  roomKey,
} from './rooms.ts'

export type RedisStoreOptions = {
  readonly redis: Redis
  /** SOCKET_REDIS_KEY. */
  readonly prefix: string
  readonly log: Logger
  newId(): string
  /** Somebody is out of a room without having asked: the process behind the socket is dead, or the line was away. */
  onLeft(room: Room, left: Left): void
  /** A socket of this process was put back into a room from which others had seen it leave. */
  onBack(room: Room, joining: Joining): void
  /** A socket of this process is not in the room any more. */
  onRemoved(room: Room, socketId: string): void
}

export type RedisStore = RoomStore & {
  /** Whether Redis has answered the last sign of life. */
  isAvailable(): boolean
  /** Forgets that a socket of this process is in a room, after another process has removed it. */
  forget(room: Room, socketId: string): void
  /** Whether sockets were removed from rooms while this process could not be told. */
  audit(): Promise<void>
  /** After all sockets have left. */
  close(): Promise<void>
}

const attempts = 3

/** Rooms whose members are sockets of several processes. While Redis is away every operation is refused. */
export function openRedisStore(options: RedisStoreOptions): RedisStore {
  const { redis, prefix } = options
  const keysOf = roomKeysFor(prefix)
  const run = (script: string, keys: RoomKeys, values: readonly (string | number)[]) =>
    redis.run(script, keys, values) as Promise<string[]>
  const roster = openRoster({ ...options, keysOf })

  /** A process that Redis does not know has to say first who is in its rooms. */
  const ask = async (script: string, room: Room, socketId: string, values: readonly (string | number)[]) => {
    try {
      for (let attempt = 0; attempt < attempts; attempt += 1) {
        await roster.settled()
        const { process } = roster
        const keys = keysOf(room, process, socketId)
        const answer = await run(script, keys, [process, roomKey(room), ...values])
        if (answer[0] !== 'lost') return answer
        await roster.restore(process)
      }
      throw new Error('Redis forgets again and again that this process is there')
    } catch (error) {
      options.log.debug({ err: error }, 'rooms could not be asked for')
      throw unavailable(error)
    }
  }

  const join = async (room: Room, joining: Joining): Promise<Joined | 'full'> => {
    const { socketId, userId, metadata = '' } = joining
    const answer = await ask(joinScript, room, socketId, [socketId, userId, metadata, roomBounds.members, '', ''])
    if (answer[0] === 'full') return 'full'
    const [, isNew, next = '', nextUser = '', came = '', made = '', history] = answer
    roster.add(room, { ...joining, came, made })
    return { history: history as unknown as string[], isNew: Number(isNew) === 1, newCreator: personOf(next, nextUser) }
  }

  const leave = async (room: Room, socketId: string): Promise<Left | undefined> => {
    const known = roster.remove(room, socketId)
    try {
      const answer = await ask(leaveScript, room, socketId, [socketId, ''])
      const left = leftOf(socketId, answer)
      return left ?? (known && { person: { socketId, userId: known.userId }, newCreator: undefined })
    } catch (error) {
      if (known !== undefined) roster.owe(room, socketId)
      throw error
    }
  }

  return {
    join,
    leave,
    record: async (room, socketId, record = '') => {
      const values = [socketId, record, roomBounds.records, roomBounds.history]
      return (await ask(recordScript, room, socketId, values))[0] === 'recorded'
    },
    members: async (room) => membersOf(await ask(membersScript, room, '', [])),
    kick: async (room, socketId, userId): Promise<Kick> => {
      const [outcome, ...sockets] = await ask(kickScript, room, socketId, [socketId, userId, prefix])
      if (outcome === 'kicked') return { outcome, people: sockets.map((target) => ({ socketId: target, userId })) }
      return { outcome: outcome as KickRefusal }
    },
    list: async (tenantId, start) => {
      try {
        const sets = tenantId === 'all' ? await allSets() : [`${prefix}rooms:${tenantId ?? '-'}`]
        if (sets.length === 0) return []
        const pairs = (await redis.run(listScript, sets, [`${prefix}room:`, start])) as (string | number)[]
        return listed(inPairs(pairs).map(([key, count]) => ({ ...roomOf(String(key)), memberCount: Number(count) })))
      } catch (error) {
        throw unavailable(error)
      }
    },
    count: async (room) => {
      try {
        return Number(await redis.call('hlen', keysOf(room, '', '')[0]))
      } catch (error) {
        throw unavailable(error)
      }
    },
    isAvailable: roster.isAvailable,
    forget: (room, socketId) => void roster.remove(room, socketId),
    audit: roster.audit,
    close: roster.close,
  }

  /** The sets of all tenants; for statistics. */
  async function allSets(): Promise<string[]> {
    const found = new Set<string>()
    for (let cursor = '0'; ; ) {
      const pattern = `${prefix.replaceAll(/[*?[\]\\]/g, '\\$&')}rooms:*`
      const [next, keys] = (await redis.call('scan', cursor, 'match', pattern, 'count', 1000)) as [string, string[]]
      for (const key of keys) found.add(key)
      cursor = next
      if (cursor === '0') return [...found]
    }
  }
}

export const unavailable = (cause: unknown) =>
  new AppError(503, 'Rooms are not available at the moment, please try again', { cause })
