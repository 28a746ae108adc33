import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { contextFor, type ExtensionContext } from '../../src/extensions/context.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'
import { connect, type TestSocket } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

const source = `
export default (hooks, { socketService: sockets, notificationService, ItemsService, log }) => {
  sockets.registerMessageHandler('add', (socket, { a, b }) => ({ sum: a + b, by: socket.userId }))
  sockets.registerMessageHandler('later', (socket, payload, ack) => { setImmediate(() => { ack('first'); ack('second') }) })
  sockets.registerMessageHandler('throws', async () => { throw new Error('a secret') })
  sockets.registerMessageHandler('refuses', async () => { throw Object.assign(new Error('Not yours'), { status: 403 }) })
  sockets.registerMessageHandler('large', () => 10n)
  sockets.registerMessageHandler('nothing', (socket) => { socket.emit('to:you', { id: socket.id }) })
  sockets.registerMessageHandler('count', async (socket) =>
    (await new ItemsService('article', { accountability: socket.accountability }).readByQuery()).totalCount)
  sockets.registerMessageHandler('rooms', async (socket, room) => ({
    members: await sockets.getRoomMembers(room),
    count: await sockets.getRoomMemberCount(room),
    exists: [await sockets.roomExists(room), await sockets.roomExists('no such room')],
    rooms: await sockets.getCustomRooms(),
    stats: await sockets.getStats(),
  }))
  sockets.registerRoomValidator('staff:', (socket, room, metadata) => metadata?.badge === 'blue')
  sockets.registerRoomValidator('staff:deep:', () => false)
  const { promise: opened, resolve: open } = Promise.withResolvers()
  sockets.registerMessageHandler('open', () => open())
  sockets.registerRoomValidator('held:', () => opened.then(() => false))
  sockets.registerRoomValidator('broken:', () => { throw new Error('a secret') })
  sockets.registerRoomValidator('grant:', (socket) => socket.accountability.permissions.some(({ collection }) => collection === 'badge'))
  sockets.registerRoomValidator('article:', (socket) => socket.accountability.permissions.some(({ collection }) => collection === 'article'))
  hooks.registerHook('article', 'items.create', async ({ data, accountability }) => {
    const userId = accountability.user.id
    await sockets.broadcastToRoom('staff:news', 'article:soon', { title: data.title })
    await sockets.sendToUser(userId, 'yours', data.title)
    await notificationService.send({ type: 'article', title: data.title, message: 'was written', userIds: [userId] })
    if (data.title === 'bad') throw new Error('refused')
  })
}`

let api: Api
let address: string
let directory: string
let runtime: Runtime
let worker: ExtensionContext
let anna: Awaited<ReturnType<Api['user']>>

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'daybook-rooms-'))
  await mkdir(join(directory, 'svc-hook-rooms'))
  await writeFile(join(directory, 'svc-hook-rooms/index.mjs'), source)
  const env = {
    SOCKET_ENABLED: 'true',
    REALTIME_ROOMS: 'validated',
    SOCKET_MESSAGE_LIMIT: '1000',
    EXTENSIONS_DIR: directory,
  }
  api = await startApi(env)
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  await api.admin('POST', '/schemas', {
    collectionName: 'article',
    schema: { fields: { title: { type: 'String' } } },
  })
  anna = await api.user(['create', 'read'].map((action) => ({ collection: 'article', action, fields: '*' })))
  const config = testConfig(api.database.url, env)
  runtime = await openRuntime({ config, log: pino({ level: 'silent' }), name: 'tasks', worker: true })
  worker = contextFor(runtime, 'svc-schedule-test')
})

afterAll(async () => {
  await runtime.close()
  await rm(directory, { recursive: true })
})

const heard = ({ notices }: TestSocket, name: string) =>
  notices.filter((notice) => notice.name === name).map(({ body }) => body)
const hears = (socket: TestSocket, name: string, count = 1) =>
  waitFor(() => heard(socket, name).length >= count && heard(socket, name), { what: `${count} × ${name}` })
const refused = (message: string, code = 'BAD_REQUEST') => ({ status: 'error', code, message })
const moment = expect.stringMatching(/^\d{4}-.*Z$/)

describe('custom messages', () => {
  it('are answered by handlers, by what they return or acknowledge, the first time', async () => {
    const a = await connect(address, anna.token)
    const custom = (event: unknown, payload?: unknown) => a.emit('custom', { event, payload })
    expect(await custom('add', { a: 1, b: 2 })).toEqual({ status: 'success', data: { sum: 3, by: anna.id } })
    expect(await custom('later')).toBe('first')
    expect(await custom('nothing')).toEqual({ status: 'success', data: null })
    expect(heard(a, 'to:you')).toEqual([{ id: a.socket.id }])
    expect(await custom('count')).toMatchObject({ status: 'success' })
    for (const event of ['unknown', '__proto__', 'constructor'])
      expect(await custom(event)).toEqual(refused(`No handler registered for event: ${event}`, 'UNKNOWN_EVENT'))
    expect(await custom(undefined)).toEqual(refused('No handler registered for event: undefined', 'UNKNOWN_EVENT'))
    expect(await a.emit('custom', null)).toMatchObject({ status: 'error' })
  })

  it('whose handler fails are answered without its words, and nothing else is harmed', async () => {
    const a = await connect(address, anna.token)
    expect(await a.emit('custom', { event: 'throws' })).toEqual(
      refused('Internal server error', 'INTERNAL_SERVER_ERROR'),
    )
    expect(await a.emit('custom', { event: 'add' })).toEqual(refused('Internal server error', 'INTERNAL_SERVER_ERROR'))
    expect(await a.emit('custom', { event: 'large' })).toEqual(
      refused('Internal server error', 'INTERNAL_SERVER_ERROR'),
    )
    expect(await a.emit('custom', { event: 'refuses' })).toEqual(refused('Not yours', 'FORBIDDEN'))
    a.socket.emit('custom', { event: 'throws' })
    expect(await a.emit('custom', { event: 'add', payload: { a: 1, b: 1 } })).toMatchObject({ status: 'success' })
  })
})

describe('validated rooms', () => {
  it('are joined by users whom every validator admits, and there must be one', async () => {
    const a = await connect(address, anna.token)
    const join = (room: string, badge?: string) => a.emit('room:join', { room, metadata: { badge } })
    const no = refused('Not authorized to join this room', 'FORBIDDEN')
    expect(await join('lobby')).toEqual(no)
    expect(await join('staff:1')).toEqual(no)
    expect(await join('staff:1', 'blue')).toMatchObject({ status: 'success' })
    expect(await join('staff:deep:1', 'blue')).toEqual(no)
    expect(await join('broken:1', 'blue')).toEqual(no)
    expect((await a.emit('room:list', {})).rooms).toEqual([{ name: 'staff:1', memberCount: 1 }])
  })

  it('keep who is still admitted by the metadata when the rights change', async () => {
    const user = await api.user([{ collection: 'article', action: 'read' }])
    const a = await connect(address, user.token)
    const room = { room: 'staff:kept' }
    expect(await a.emit('room:join', { ...room, metadata: { badge: 'blue' } })).toMatchObject({ status: 'success' })
    expect(await a.emit('room:join', { room: 'article:1' })).toMatchObject({ status: 'success' })
    const { body } = await api.admin('GET', `/permissions?filter=${JSON.stringify({ role_Id: user.roleId })}`)
    await api.admin('DELETE', `/permissions/${body.data[0].id}`)
    expect(await hears(a, 'room:kicked')).toMatchObject([{ room: 'article:1' }])
    expect(await a.emit('room:message', { ...room, event: 'hello', payload: 1 })).toMatchObject({ status: 'success' })
    expect(heard(a, 'room:kicked')).toHaveLength(1)
  })

  it('are left by who is not admitted any more when the rights change', async () => {
    const badge = { collectionName: 'badge', schema: { fields: { name: { type: 'String' } } } }
    await api.admin('POST', '/schemas', badge)
    const user = await api.user([{ collection: 'badge', action: 'read' }])
    const a = await connect(address, user.token)
    expect(await a.emit('room:join', { room: 'grant:1' })).toMatchObject({ status: 'success' })
    const { body } = await api.admin('GET', `/permissions?filter=${JSON.stringify({ role_Id: user.roleId })}`)
    expect((await api.admin('DELETE', `/permissions/${body.data[0].id}`)).status).toBeLessThan(300)
    expect(await hears(a, 'room:kicked')).toEqual([{ room: 'grant:1', kickedBy: null, timestamp: moment }])
    expect((await a.emit('room:list', { prefix: 'grant:' })).rooms).toEqual([])
  })

  it('are left also by a socket whose requests are refused, as too many are waiting', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'key', schema: { fields: { name: { type: 'String' } } } })
    const user = await api.user(['article', 'key'].map((collection) => ({ collection, action: 'read' })))
    const a = await connect(address, user.token)
    await a.subscribe('key')
    expect(await a.emit('room:join', { room: 'article:left' })).toMatchObject({ status: 'success' })
    a.socket.emit('room:join', { room: 'held:1' })
    const lists = Array.from({ length: 210 }, () => a.emit('room:list', {}))
    try {
      expect(await Promise.race(lists)).toMatchObject({ status: 'error', message: 'Too many requests at once' })
      await api.sql('delete from "svc_Permission" where "role_Id" = $1', [user.roleId])
      await api.runtime.access.reload()
      await hears(a, 'unsubscribed')
    } finally {
      await (await connect(address, anna.token)).emit('custom', { event: 'open' })
    }
    await Promise.all(lists)
    expect(await hears(a, 'room:kicked')).toMatchObject([{ room: 'article:left' }])
  })
})

describe('an extension', () => {
  it('sends to rooms, users and all, from processes without sockets too', async () => {
    const [a, b] = (await Promise.all([connect(address, anna.token), connect(address, (await api.user()).token)])) as [
      TestSocket,
      TestSocket,
    ]
    await a.emit('room:join', { room: 'staff:x', metadata: { badge: 'blue' } })
    const { socketService: sockets } = worker
    const large = { text: 'ä😀"\n'.repeat(5000) }
    await sockets.broadcastToRoom('staff:x', 'room:news', large)
    await sockets.broadcastToAll('all', 1)
    await sockets.sendToUser(anna.id.toUpperCase(), 'one', [2])
    expect(await hears(a, 'one')).toEqual([{ payload: [2], timestamp: moment }])
    expect(heard(a, 'all')).toEqual([{ payload: 1, timestamp: moment }])
    expect(heard(a, 'room:news')).toEqual([{ room: 'staff:x', payload: large, timestamp: moment }])
    await hears(b, 'all')
    expect(b.notices.map(({ name }) => name)).toEqual(['connected', 'all'])
    await expect(sockets.broadcastToAll('disconnect', 1)).rejects.toThrow('no name for an event')
    await expect(sockets.sendToUser('x', 'e', 1)).rejects.toThrow('must be the id of a user')
    await expect(sockets.broadcastToAll('e', 'x'.repeat(300_000))).rejects.toThrow('at most')
    await expect(sockets.getRoomMembers('staff:x')).rejects.toThrow('web processes')
    expect(await sockets.getStats()).toMatchObject({ status: 'not in this process', totalConnections: 0 })
  })

  it('sends what belongs to a change with its commit, or not at all', async () => {
    const a = await connect(address, anna.token)
    const joined = await a.emit('room:join', { room: 'staff:news', metadata: { badge: 'blue' } })
    expect(joined).toMatchObject({ status: 'success' })
    await a.subscribe('svc_Notification')
    const before = await api.position()
    expect((await anna.call('POST', '/items/article', { title: 'bad' })).status).toBe(400)
    expect(await api.position()).toBe(before)
    expect((await anna.call('POST', '/items/article', { title: 'good' })).status).toBe(201)
    await a.frame(({ data }) => data.title === 'good')
    expect((await hears(a, 'yours')).map(({ payload }) => payload)).toEqual(['good'])
    expect(heard(a, 'article:soon').map(({ payload }) => payload)).toEqual([{ title: 'good' }])
    expect(a.frames.map(({ name, data }) => [name, data.title])).toEqual([['svc_Notification:create', 'good']])
    expect((await api.log(before)).map(({ entity, action }) => `${entity} ${action}`).sort()).toEqual([
      'article create',
      'svc_Notification create',
    ])
  })

  it('knows who is where', async () => {
    const a = await connect(address, anna.token)
    await a.emit('room:join', { room: 'staff:who', metadata: { badge: 'blue' } })
    const { data } = await a.emit('custom', { event: 'rooms', payload: 'staff:who' })
    const member = { socketId: a.socket.id, userId: anna.id, isCreator: true, metadata: { badge: 'blue' } }
    expect(data).toMatchObject({ members: [member], count: 1, exists: [true, false] })
    expect(data.rooms).toContainEqual({ name: 'staff:who', tenantId: null, memberCount: 1 })
    expect(data.stats).toEqual({
      status: 'running',
      totalConnections: expect.any(Number),
      uniqueUsers: expect.any(Number),
      rooms: expect.any(Number),
      customRooms: data.rooms.length,
      registeredHandlers: 9,
      registeredValidators: 6,
    })
    expect(data.stats.totalConnections).toBeGreaterThanOrEqual(data.stats.uniqueUsers)
  })

  it('has each name for itself, and gives it back', async () => {
    const { sockets } = runtime
    sockets.registerMessageHandler('one', 'x', () => 1)
    expect(() => sockets.registerMessageHandler('two', 'x', () => 2)).toThrow(
      'one has a message handler for "x" already',
    )
    expect([sockets.unregisterMessageHandler('x'), sockets.unregisterMessageHandler('x')]).toEqual([true, false])
    sockets.registerRoomValidator('one', 'x:', () => true)
    expect(() => sockets.registerRoomValidator('two', 'x:', () => true)).toThrow('room validator')
    expect(() => sockets.registerRoomValidator('two', 'y:', 1 as never)).toThrow(TypeError)
    expect([sockets.unregisterRoomValidator('x:'), sockets.unregisterRoomValidator('x:')]).toEqual([true, false])
  })
})
