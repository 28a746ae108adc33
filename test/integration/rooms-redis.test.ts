import { randomUUID } from 'node:crypto'
import pino from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { openRedis, type Redis } from '../../src/adapters/redis.ts'
import { openRedisStore, type RedisStore } from '../../src/features/messaging/rooms/redis-store.ts'
import type { Room } from '../../src/features/messaging/rooms/room.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'
import { waitFor } from '../support/wait.ts'

const silent = pino({ level: 'silent' })
const room: Room = { tenantId: undefined, name: 'r' }

/** What one process has of rooms, and what it was told. */
type Side = { readonly store: RedisStore; readonly told: [string, string][]; readonly redis: Redis }

function open(url: string, prefix: string): Side {
  const redis = openRedis(url, silent, 2000)
  const told: [string, string][] = []
  const store = openRedisStore({
    redis,
    prefix,
    log: silent,
    newId: randomUUID,
    onLeft: (_room, { person }) => void told.push(['left', person.socketId]),
    onBack: (_room, { socketId }) => void told.push(['back', socketId]),
    onRemoved: (_room, socketId) => void told.push(['removed', socketId]),
  })
  onTestFinished(async () => {
    await store.close()
    redis.close()
  })
  return { store, told, redis }
}

const join = ({ store }: Side, socketId: string, userId = socketId.toUpperCase()) =>
  store.join(room, { socketId, userId, metadata: JSON.stringify({ of: socketId }) })
const members = async ({ store }: Side) =>
  (await store.members(room)).map(({ socketId, isCreator }) => (isCreator ? `${socketId}*` : socketId))
const keys = async ({ redis }: Side, prefix: string) => (await redis.call('keys', `${prefix}*`)) as string[]

describeWithRedis('rooms that several processes share', () => {
  const server = startRedis()
  const twoSides = async (prefix: string) => {
    const { url } = await server
    return [open(url, prefix), open(url, prefix)] as const
  }

  it('are there again after Redis has forgotten everything, in the order in which people came', async () => {
    const [one, two] = await twoSides('flushed:')
    for (const [side, socket] of [
      [one, 'a'],
      [two, 'b'],
      [one, 'c'],
    ] as const)
      await join(side, socket)
    await one.store.leave(room, 'a')
    await join(one, 'a')
    expect(await members(two)).toEqual(['b', 'c', 'a*'])
    await one.redis.call('flushall')
    // The first to ask finds itself unknown; the other one notices with its next heartbeat.
    await waitFor(async () => (await members(two)).length === 3)
    expect(await members(one)).toEqual(['b', 'c', 'a*'])
    expect((await one.store.members(room))[0]).toMatchObject({ userId: 'B', metadata: '{"of":"b"}' })
    expect([...one.told, ...two.told]).toEqual([])
  })

  it('lose the members of a process that was taken for dead, and get them back when it is not', async () => {
    const [one, two] = await twoSides('swept:')
    await join(one, 'a')
    await join(two, 'b')
    const stored = (await one.redis.call('hget', 'swept:room:-:r:members', 'b')) as string
    const [, , process] = stored.split(' ')
    // As another process does with one that has been silent for long.
    await one.redis.call('zrem', 'swept:processes', process!)
    await one.redis.call('set', `swept:process:${process}:swept`, 1)
    await one.redis.call('sadd', 'swept:condemned', process!)
    await one.store.audit()
    expect(one.told).toEqual([['left', 'b']])
    expect(await members(one)).toEqual(['a*'])
    await waitFor(() => two.told.length > 0)
    expect(two.told).toEqual([['back', 'b']])
    expect(await members(one)).toEqual(['a*', 'b'])
    expect(Number(await one.redis.call('scard', 'swept:condemned'))).toBe(0)
  })

  it('are left in the end by who could not say so while Redis was away', async () => {
    const { url, freeze, thaw } = await server
    const one = open(url, 'owed:')
    await join(one, 'a')
    await join(one, 'b')
    freeze()
    await expect(one.store.leave(room, 'a')).rejects.toThrow('Rooms are not available')
    thaw()
    await waitFor(async () => (await members(one)).join() === 'b*')
    await expect(one.store.count({ ...room, name: 'none' })).resolves.toBe(0)
  })

  it('tell a process of removals that it has missed', async () => {
    const [one, two] = await twoSides('missed:')
    await join(one, 'a')
    await join(two, 'b')
    expect(await one.store.kick(room, 'a', 'B')).toMatchObject({ outcome: 'kicked', people: [{ socketId: 'b' }] })
    await two.store.audit()
    expect(two.told).toEqual([['removed', 'b']])
  })

  it('leave nothing behind', async () => {
    const [one, two] = await twoSides('clean:')
    for (const side of [one, two]) for (const socket of ['a', 'b']) await join(side, `${side === one}${socket}`)
    await one.store.record(room, 'truea', '{}')
    expect((await keys(one, 'clean:')).length).toBeGreaterThan(5)
    expect(await one.store.kick(room, 'truea', 'FALSEA')).toMatchObject({ outcome: 'kicked' })
    for (const [side, socket] of [
      [one, 'truea'],
      [one, 'trueb'],
      [two, 'falseb'],
    ] as const)
      await side.store.leave(room, socket)
    expect(await keys(one, 'clean:')).toEqual(['clean:processes'])
    await one.store.close()
    await two.store.close()
    expect(await keys(one, 'clean:')).toEqual([])
  })

  it('do one thing after the other, however many ask at once', async () => {
    const [one, two] = await twoSides('many:')
    const sockets = Array.from({ length: 60 }, (_, i) => `s${i}`)
    const joined = await Promise.all(sockets.map((socket, i) => join(i % 2 ? one : two, socket)))
    expect(joined.every((answer) => answer !== 'full' && answer.isNew)).toBe(true)
    expect((await members(one)).filter((name) => name.endsWith('*'))).toHaveLength(1)
    const left = await Promise.all(sockets.map((socket, i) => (i % 2 ? one : two).store.leave(room, socket)))
    const successions = left.flatMap((one) => one?.newCreator?.socketId ?? [])
    expect(new Set(successions).size).toBe(successions.length)
    expect(await one.store.count(room)).toBe(0)
  })
})
