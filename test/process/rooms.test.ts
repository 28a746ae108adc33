import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { changesOf, streamFaults } from '../support/ledger.ts'
import { createDatabase } from '../support/postgres.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/processes.ts'
import { describeWithRedis, startRedis, type TestRedis } from '../support/redis.ts'
import { connect, type TestSocket } from '../support/socket.ts'

const heard = ({ notices }: TestSocket, name: string) =>
  notices.filter((notice) => notice.name === name).map(({ body }) => body)
const hears = (socket: TestSocket, name: string, count = 1, timeout?: number) =>
  waitFor(() => heard(socket, name).length >= count && heard(socket, name), {
    what: `${count} × ${name}`,
    ...(timeout !== undefined && { timeout }),
  })
const unavailable = {
  status: 'error',
  code: 'SERVICE_UNAVAILABLE',
  message: 'Rooms are not available at the moment, please try again',
}

const noteSchema = { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } }

type User = { readonly id: string; readonly token: string }

/** A user of whom nothing is known but that it can sign in. */
async function createUser({ web }: Cluster, name: string): Promise<User> {
  const email = `${name}@example.com`
  const password = 'password of a user'
  const [first] = web as [Web]
  const created = await first.call('POST', '/items/svc_User', { firstName: name, email, password, emailVerified: true })
  const role = await first.call('GET', `/items/svc_Role?filter=${JSON.stringify({ name: 'user' })}`)
  const { id } = created.body.data
  await first.call('POST', '/items/svc_UserRole', { user_Id: id, role_Id: role.body.data[0].id })
  const { body } = await first.call('POST', '/auth/login', { email, password }, null)
  return { id, token: body.token }
}

describeWithRedis('two web processes with Redis', () => {
  let redis: TestRedis
  let cluster: Cluster
  let anna: User
  let bert: User

  beforeAll(async () => {
    redis = await startRedis()
    const env = { SOCKET_REDIS_ENABLED: 'true', SOCKET_REDIS_URL: redis.url, SOCKET_REDIS_KEY: 'daybook' }
    cluster = await startCluster({ env, web: 2 })
    await cluster.web[0]!.call('POST', '/schemas', noteSchema)
    anna = await createUser(cluster, 'anna')
    bert = await createUser(cluster, 'bert')
  })

  const at = (web: number, { token }: User) => connect(cluster.web[web]!.address, token)
  const say = (socket: TestSocket, room: string, payload: unknown) =>
    socket.emit('room:message', { room, event: 'said', payload })
  const socketsIn = async (socket: TestSocket, room: string): Promise<string[]> =>
    ((await socket.emit('room:members', { room })).members ?? []).map(({ socketId }: any) => socketId)

  async function inRoom(room: string): Promise<[TestSocket, TestSocket]> {
    const [a, b] = await Promise.all([at(0, anna), at(1, bert)])
    for (const socket of [a, b])
      await waitFor(async () => (await socket.emit('room:join', { room })).status === 'success')
    return [a, b]
  }

  it('share members, messages, history, creator and kicks', async () => {
    const room = 'shared'
    const [a, b] = await inRoom(room)
    expect(await hears(a, 'room:user:joined')).toMatchObject([{ room, userId: bert.id, socketId: b.socket.id }])
    await say(a, room, 1)
    await say(b, room, 2)
    for (const socket of [a, b]) {
      const said = await hears(socket, 'room:said', 2)
      expect(said.map(({ payload }) => payload).sort()).toEqual([1, 2])
      expect(said.map(({ sender }) => sender.userId).sort()).toEqual([anna.id, bert.id].sort())
    }
    const third = await at(1, anna)
    expect((await third.emit('room:join', { room })).history.map(({ payload }: any) => payload)).toEqual([1, 2])
    expect(await socketsIn(b, room)).toEqual([a.socket.id, b.socket.id, third.socket.id])
    expect((await b.emit('room:list', {})).rooms).toEqual([{ name: room, memberCount: 3 }])
    const kick = (userId: string) => a.emit('room:kick', { room, userId })
    expect(await kick(bert.id)).toEqual({ status: 'success' })
    expect(await hears(b, 'room:kicked')).toMatchObject([{ room, kickedBy: anna.id }])
    expect(await kick(bert.id)).toMatchObject({ message: 'Target user is not in this room' })
    b.close()
    await waitFor(async () => (await kick(bert.id)).message === 'Target user is not connected')
    await say(third, room, 3)
    await hears(a, 'room:said', 3)
    expect(heard(b, 'room:said')).toHaveLength(2)
    a.close()
    expect(await hears(third, 'room:creator:changed')).toMatchObject([{ newCreatorSocketId: third.socket.id }])
  })

  it('refuse rooms while Redis is dead and go on with everything else; come back without losing a change', async () => {
    const room = 'outage'
    const [a, b] = await inRoom(room)
    const subscribers = await Promise.all([0, 1].map((web) => connect(cluster.web[web]!.address, cluster.token)))
    for (const subscriber of subscribers) await subscriber.subscribe('note')
    const before = (await changesOf(cluster, 'note')).length
    const write = async (text: string) => {
      for (const { call } of cluster.web) expect((await call('POST', '/items/note', { text })).status).toBe(201)
    }
    await write('with Redis')
    await redis.stop()
    for (const socket of [a, b]) {
      expect(await say(socket, room, 'lost')).toEqual(unavailable)
      expect(await socket.emit('room:join', { room: 'new' })).toEqual(unavailable)
      expect(await socket.emit('room:list', {})).toEqual(unavailable)
    }
    const ready = async () => (await cluster.web[0]!.call('GET', '/ready')).body
    await waitFor(async () => (await ready()).realtime.rooms.available === false)
    expect(await ready()).toMatchObject({ status: 'ready', realtime: { rooms: { shared: true, available: false } } })
    await write('without Redis')
    expect((await cluster.web[1]!.call('POST', '/auth/login', administrator, null)).status).toBe(200)
    for (const subscriber of subscribers) await subscriber.frame(({ data }) => data.text === 'without Redis')
    await redis.start()
    for (const socket of [a, b]) {
      await hears(socket, 'room:resync')
      await waitFor(async () => (await socketsIn(socket, room)).length === 2, { what: 'both to be back' })
    }
    expect(await socketsIn(a, room)).toEqual([a.socket.id, b.socket.id])
    // The subscriptions come back on a line of their own.
    await waitFor(async () => {
      await say(a, room, 'again')
      return heard(b, 'room:said').length > 0
    })
    await waitFor(async () => (await ready()).realtime.rooms.available)
    await write('with Redis again')
    const committed = (await changesOf(cluster, 'note')).slice(before)
    expect(committed).toHaveLength(6)
    for (const subscriber of subscribers) {
      await waitFor(() => subscriber.frames.length >= 6)
      expect(streamFaults(subscriber.frames, committed)).toEqual([])
    }
    for (const { lines } of cluster.web) expect(lines.filter(({ level }) => Number(level) >= 50)).toEqual([])
  })

  it('wait for nothing while Redis hangs', async () => {
    const [a] = await inRoom('frozen')
    redis.freeze()
    expect(await say(a, 'frozen', 1)).toEqual(unavailable)
    expect((await cluster.web[0]!.call('GET', '/health')).status).toBe(200)
    redis.thaw()
    await waitFor(async () => (await say(a, 'frozen', 2)).status === 'success')
  })

  it('remove the members of a process that is killed, and no others', async () => {
    const room = 'killed'
    const [a, b] = await inRoom(room)
    await b.emit('room:join', { room: 'its own' })
    const socketId = b.socket.id
    await cluster.web[1]!.kill('SIGKILL')
    const restarted = cluster.web[1]!.restart()
    expect(await hears(a, 'room:user:left', 1, 40_000)).toMatchObject([{ room, socketId }])
    expect(await socketsIn(a, room)).toEqual([a.socket.id])
    await waitFor(async () => (await a.emit('room:list', { prefix: 'its own' })).rooms.length === 0)
    await restarted
    const again = await at(1, bert)
    await waitFor(async () => (await again.emit('room:join', { room })).status === 'success')
    expect(await socketsIn(a, room)).toEqual([a.socket.id, again.socket.id])
  })

  it('leave their rooms when they are asked to end', async () => {
    const room = 'ended'
    const [a, b] = await inRoom(room)
    const socketId = b.socket.id
    await cluster.web[1]!.kill('SIGTERM')
    expect(await hears(a, 'room:user:left')).toMatchObject([{ socketId }])
    await cluster.web[1]!.restart()
  })
})

describe('two web processes without Redis, which poll', () => {
  let cluster: Cluster
  let directory: string
  let anna: User

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'daybook-rooms-'))
    await mkdir(join(directory, 'svc-hook-note'))
    await writeFile(
      join(directory, 'svc-hook-note/index.mjs'),
      `export default (hooks, { socketService: sockets }) =>
        hooks.registerHook('note', 'items.create', async ({ data }) => {
          const [user, room] = data.text.split(' ')
          await sockets.sendToUser(user, 'for:you', room)
          await sockets.broadcastToRoom(room, 'for:room', data.text)
          await sockets.broadcastToAll('for:all', data.text)
        })`,
    )
    const env = { REALTIME_WAL_CONSUMER_ENABLED: 'false', EXTENSIONS_DIR: directory }
    const database = await createDatabase()
    cluster = await startCluster({ database, env })
    const other = await startCluster({ database, env })
    cluster = { ...cluster, web: [...cluster.web, ...other.web] }
    await cluster.web[0]!.call('POST', '/schemas', noteSchema)
    anna = await createUser(cluster, 'anna')
  })

  afterAll(() => rm(directory, { recursive: true }))

  it('have rooms of their own, and tell what the server says at all of them', async () => {
    const sockets = await Promise.all(cluster.web.map(({ address }) => connect(address, anna.token)))
    const strangers = await Promise.all(cluster.web.map(({ address }) => connect(address, cluster.token)))
    for (const socket of sockets) {
      await socket.emit('room:join', { room: 'r' })
      expect((await socket.emit('room:members', { room: 'r' })).members).toHaveLength(1)
    }
    await cluster.web[0]!.call('POST', '/items/note', { text: `${anna.id} r` })
    for (const socket of sockets) {
      await hears(socket, 'for:all')
      expect(heard(socket, 'for:you')).toMatchObject([{ payload: 'r' }])
      expect(heard(socket, 'for:room')).toMatchObject([{ room: 'r', payload: `${anna.id} r` }])
    }
    for (const stranger of strangers) {
      await hears(stranger, 'for:all')
      expect(stranger.notices.map(({ name }) => name)).toEqual(['connected', 'for:all'])
    }
  })

  it('deliver notifications and changes, whichever made them', async () => {
    const sockets = await Promise.all(cluster.web.map(({ address }) => connect(address, anna.token)))
    for (const socket of sockets) await socket.subscribe('svc_Notification')
    const admins = await Promise.all(cluster.web.map(({ address }) => connect(address, cluster.token)))
    for (const socket of admins) await socket.subscribe('note')
    const before = (await changesOf(cluster, 'note')).length
    for (const [i, web] of cluster.web.entries()) {
      const notification = { type: 'info', title: `from ${i}`, message: 'm', userIds: [anna.id] }
      expect((await web.call('POST', '/notifications/send', notification)).status).toBe(200)
      await web.call('POST', '/items/note', { text: `${anna.id} elsewhere` })
    }
    for (const socket of sockets) {
      await socket.frame(({ data }) => data.title === 'from 1')
      expect(socket.frames.map(({ data }) => data.title)).toEqual(['from 0', 'from 1'])
    }
    const committed = (await changesOf(cluster, 'note')).slice(before)
    for (const socket of admins) {
      await waitFor(() => socket.frames.length >= 2)
      expect(streamFaults(socket.frames, committed)).toEqual([])
    }
  })

  it('tell how far a task is at both', async () => {
    const [{ id }] = await cluster.sql(
      `insert into "svc_Tasks" (type, task_status, scheduled_time) values ('t', 'Not started', now() + interval '1 year') returning id`,
    )
    const sockets = await Promise.all(cluster.web.map(({ address }) => connect(address, cluster.token)))
    for (const socket of sockets)
      expect(await socket.emit('task:join', { taskId: id })).toMatchObject({ status: 'success' })
    await cluster.sql(`select pg_notify('svc_progress', $1)`, [String(id)])
    for (const socket of sockets) expect(await hears(socket, 'task:progress')).toMatchObject([{ id }])
  })
})
