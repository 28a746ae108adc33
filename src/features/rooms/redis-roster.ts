import { leftOf, roomOf } from './redis-answers.ts'
import type { KeysOf } from './redis-keys.ts'
import { socketRoomsKey, socketsKey } from './redis-keys.ts'
import { beatScript, joinScript, leaveScript, registerScript } from './redis-scripts.ts'
import type { RedisStoreOptions } from './redis-store.ts'
import { type Joining, type Room, roomBounds, roomKey } from './rooms.ts'

/**
 * What this process answers for in Redis: which of its sockets are in which rooms, and that it lives. Redis may lose its
 * memory, or other processes may take this one for dead; either way it finds itself unknown, comes back under another
 * name and puts its members back. Members of processes that are dead are removed by whoever notices first.
 */
export type Roster = {
  /** The name under which this process is known at the moment. */
  readonly process: string
  isAvailable(): boolean
  add(room: Room, entry: Entry): void
  remove(room: Room, socketId: string): Entry | undefined
  /** A socket has left while Redis was away: it will be told. */
  owe(room: Room, socketId: string): void
  /** Resolves when the process is known with all its members. */
  settled(): Promise<void>
  /** Makes the process known, with all its members, unless that has happened since it had this name. */
  restore(unknown: string): Promise<void>
  audit(): Promise<void>
  close(): Promise<void>
}

export type Entry = Joining & { readonly came: string; readonly made: string }

const beatMs = 2000
const deadAfterMs = 10_000
/** Keys live a day beyond their last use, so that nothing stays when all processes are gone. */
const refreshMs = 3_600_000
const atOnce = 50

export function openRoster({ keysOf, ...options }: RedisStoreOptions & { readonly keysOf: KeysOf }): Roster {
  const { redis, prefix, log } = options
  const here = new Map<string, { readonly room: Room; readonly entry: Entry }>()
  let owed: { readonly room: Room; readonly socketId: string }[] = []
  let process = options.newId()
  let restoring: Promise<void> | undefined
  /** False before the first time, and while some members may not have been put back. */
  let isComplete = false
  let refreshedAt = performance.now()
  let isAvailable = false
  let closed = false
  let timer: NodeJS.Timeout

  const id = (room: Room, socketId: string) => `${socketId} ${roomKey(room)}`
  const leave = (owner: string, room: Room, socketId: string, only: string) =>
    redis.run(leaveScript, keysOf(room, owner, socketId), [owner, roomKey(room), socketId, only]) as Promise<string[]>

  const register = async () => {
    const before = process
    process = options.newId()
    isComplete = false
    const mark = `${prefix}process:${before}:swept`
    const wasSwept = Number(await redis.run(registerScript, [`${prefix}processes`, mark], [process])) === 1
    owed = []
    await inTurns([...here.values()], ({ room, entry }) => putBack(room, entry, wasSwept))
    isComplete = true
    if (here.size > 0) log.info({ members: here.size }, 'the members of rooms were put back')
  }

  const putBack = async (room: Room, entry: Entry, wasSwept: boolean) => {
    const { socketId, userId, metadata = '', came, made } = entry
    const values = [socketId, userId, metadata, roomBounds.members, came, made]
    await redis.run(joinScript, keysOf(room, process, socketId), [process, roomKey(room), ...values])
    // It may have left while it was put back.
    if (!here.has(id(room, socketId))) await leave(process, room, socketId, process)
    else if (wasSwept) options.onBack(room, entry)
  }

  const restore = async (unknown: string) => {
    if (unknown === process)
      restoring ??= register().finally(() => {
        restoring = undefined
      })
    await restoring
  }

  const payDebts = async () => {
    for (let next = owed[0]; next !== undefined; next = owed[0]) {
      const { room, socketId } = next
      const left = leftOf(socketId, await leave(process, room, socketId, process))
      if (left !== undefined) options.onLeft(room, left)
      owed = owed.filter((one) => one !== next)
    }
  }

  const sweep = async (dead: string) => {
    const sockets = (await redis.call('smembers', socketsKey(prefix, dead))) as string[]
    await inTurns(sockets, async (socketId) => {
      for (const key of (await redis.call('smembers', socketRoomsKey(prefix, socketId))) as string[]) {
        const left = leftOf(socketId, await leave(dead, roomOf(key), socketId, dead))
        if (left !== undefined) options.onLeft(roomOf(key), left)
      }
    })
    await redis.call('del', socketsKey(prefix, dead))
    await redis.call('srem', `${prefix}condemned`, dead)
    log.info({ process: dead, sockets: sockets.length }, 'the members of a dead process were removed from rooms')
  }

  const beat = async () => {
    const keys = [`${prefix}processes`, `${prefix}condemned`]
    const asked = process
    const answer = (await redis.run(beatScript, keys, [asked, deadAfterMs, `${prefix}process:`])) as string[]
    const [state, ...condemned] = answer
    if (state === 'lost' || !isComplete) await restore(asked)
    await payDebts()
    for (const dead of condemned) await sweep(dead)
    if (performance.now() - refreshedAt > refreshMs) await refresh()
  }

  const refresh = async () => {
    refreshedAt = performance.now()
    await inTurns([...here.values()], async ({ room, entry }) => {
      const keys = keysOf(room, process, entry.socketId).filter((key) => key !== `${prefix}processes`)
      for (const key of keys) await redis.call('expire', key, 86_400)
    })
  }

  const goOn = async () => {
    try {
      await beat()
      isAvailable = true
    } catch (error) {
      isAvailable = false
      log.debug({ err: error }, 'a sign of life to Redis failed')
    }
    if (!closed) timer = setTimeout(goOn, beatMs)
  }

  timer = setTimeout(goOn, 0)
  return {
    get process() {
      return process
    },
    isAvailable: () => isAvailable,
    add: (room, entry) => void here.set(id(room, entry.socketId), { room, entry }),
    remove: (room, socketId) => {
      const found = here.get(id(room, socketId))
      here.delete(id(room, socketId))
      return found?.entry
    },
    owe: (room, socketId) => void owed.push({ room, socketId }),
    settled: async () => {
      if (!isComplete) await restore(process)
    },
    restore,
    audit: async () => {
      await beat()
      await inTurns([...here.values()], async ({ room, entry: { socketId } }) => {
        const [members] = keysOf(room, process, socketId)
        if (Number(await redis.call('hexists', members, socketId)) === 0) options.onRemoved(room, socketId)
      })
    },
    close: async () => {
      closed = true
      clearTimeout(timer)
      await redis.call('zrem', `${prefix}processes`, process).catch((error: unknown) => {
        log.debug({ err: error }, 'Redis was not told that the process ends')
      })
    },
  }
}

/** A few at a time, so that requests in between do not wait for all of them. */
async function inTurns<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  for (let at = 0; at < all.length; at += atOnce) await Promise.all(all.slice(at, at + atOnce).map(work))
}
