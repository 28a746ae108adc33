import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'
import { connect, type TestSocket } from '../support/socket.ts'
import { createRole, createTenant, createUser } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

const moment = expect.stringMatching(/^\d{4}-.*Z$/)

/** What a socket was told of one event. */
const heard = ({ notices }: TestSocket, name: string) =>
  notices.filter((notice) => notice.name === name).map(({ body }) => body)

const hears = (socket: TestSocket, name: string, count = 1) =>
  waitFor(() => heard(socket, name).length >= count && heard(socket, name), { what: `${count} × ${name}` })

type Person = { readonly id: string; readonly token: string }

const stores: [string, typeof describe | typeof describeWithRedis, () => Promise<Record<string, string>>][] = [
  ['of one process', describe, async () => ({})],
  [
    'in Redis',
    describeWithRedis,
    async () => ({
      SOCKET_REDIS_ENABLED: 'true',
      SOCKET_REDIS_URL: (await startRedis()).url,
      SOCKET_REDIS_KEY: 'daybook[test]',
    }),
  ],
]

for (const [where, suite, variables] of stores)
  suite(`rooms ${where}`, () => {
    let api: Api
    let address: string
    let anna: Person
    let bert: Person
    let count = 0

    beforeAll(async () => {
      api = await startApi({
        SOCKET_ENABLED: 'true',
        SOCKET_MESSAGE_LIMIT: '100000',
        RATE_LIMIT: '100000',
        ...(await variables()),
      })
      address = await api.app.listen({ host: '127.0.0.1', port: 0 })
      anna = await api.user()
      bert = await api.user()
    })

    const as = ({ token }: Person) => connect(address, token)
    const newRoom = () => {
      count += 1
      return `room ${count}`
    }

    async function joined(person: Person, room: string, metadata?: unknown): Promise<TestSocket> {
      const socket = await as(person)
      expect(await socket.emit('room:join', { room, metadata })).toMatchObject({ status: 'success', room })
      return socket
    }

    it('tell members of joins and leaves, and answer with the history', async () => {
      const room = newRoom()
      const a = await joined(anna, room)
      const b = await as(bert)
      await a.emit('room:message', { room, event: 'said', payload: { text: 'before' } })
      await a.emit('room:message', { room, event: 'said', payload: 'not kept', history: false })
      const sender = { userId: anna.id, socketId: a.socket.id }
      expect(await b.emit('room:join', { room, metadata: { color: 'red', list: [] } })).toEqual({
        status: 'success',
        room,
        history: [{ event: 'said', payload: { text: 'before' }, sender, timestamp: moment }],
      })
      expect(await hears(a, 'room:user:joined')).toEqual([
        { room, userId: bert.id, socketId: b.socket.id, metadata: { color: 'red', list: [] }, timestamp: moment },
      ])
      await b.emit('room:message', { room, event: 'said', payload: [1, null] })
      for (const socket of [a, b])
        expect((await hears(socket, 'room:said', socket === a ? 3 : 1)).at(-1)).toEqual({
          room,
          event: 'said',
          payload: [1, null],
          sender: { userId: bert.id, socketId: b.socket.id },
          timestamp: moment,
        })
      expect(await b.emit('room:members', { room })).toEqual({
        status: 'success',
        members: [
          { socketId: a.socket.id, userId: anna.id, isCreator: true, metadata: null },
          { socketId: b.socket.id, userId: bert.id, isCreator: false, metadata: { color: 'red', list: [] } },
        ],
      })
      expect(await b.emit('room:leave', { room })).toEqual({ status: 'success', room })
      expect(await b.emit('room:leave', { room })).toEqual({ status: 'success', room })
      expect(await hears(a, 'room:user:left')).toEqual([
        { room, userId: bert.id, socketId: b.socket.id, timestamp: moment },
      ])
      await a.emit('room:message', { room, event: 'said', payload: 'alone' })
      await hears(a, 'room:said', 4)
      expect(heard(b, 'room:said')).toHaveLength(1)
      expect(heard(b, 'room:user:joined')).toEqual([])
      expect(await b.emit('room:message', { room, event: 'said' })).toEqual(
        refused('Not a member of this room', 'FORBIDDEN'),
      )
      expect(await b.emit('room:members', { room })).toEqual(refused('Not a member of this room', 'FORBIDDEN'))
      expect(await b.emit('room:members', { room: 'no such room' })).toEqual(refused('Room not found'))
    })

    it('that are joined again keep their members, with new metadata', async () => {
      const room = newRoom()
      const a = await joined(anna, room, { n: 1 })
      const b = await joined(bert, room)
      await hears(a, 'room:user:joined')
      expect(await a.emit('room:join', { room, metadata: { n: 2 } })).toMatchObject({ status: 'success', history: [] })
      const { members } = await b.emit('room:members', { room })
      expect(members.map(({ metadata }: any) => metadata)).toEqual([{ n: 2 }, null])
      expect(heard(b, 'room:user:joined')).toEqual([])
    })

    it('pass to the next when their creator goes, and back', async () => {
      const room = newRoom()
      const a = await joined(anna, room)
      const b = await joined(bert, room)
      const c = await joined(bert, room)
      a.close()
      const changed = { room, newCreatorSocketId: b.socket.id, newCreatorUserId: bert.id, timestamp: moment }
      expect(await hears(c, 'room:creator:changed')).toEqual([changed])
      expect(await hears(c, 'room:user:left')).toMatchObject([{ socketId: expect.any(String), userId: anna.id }])
      await b.emit('room:leave', { room })
      expect((await hears(c, 'room:creator:changed', 2))[1]).toMatchObject({ newCreatorSocketId: c.socket.id })
      await b.emit('room:join', { room })
      const again = await joined(anna, room)
      expect((await hears(b, 'room:creator:changed', 2))[1]).toMatchObject({ newCreatorSocketId: again.socket.id })
      const { members } = await b.emit('room:members', { room })
      expect(members.filter(({ isCreator }: any) => isCreator)).toMatchObject([{ socketId: again.socket.id }])
    })

    it('forget everything when the last member goes', async () => {
      const room = newRoom()
      const a = await joined(anna, room)
      await a.emit('room:message', { room, event: 'said', payload: 1 })
      await a.emit('room:leave', { room })
      expect(await a.emit('room:list', { prefix: room })).toEqual({ status: 'success', rooms: [] })
      const b = await as(bert)
      expect(await b.emit('room:join', { room })).toEqual({ status: 'success', room, history: [] })
      expect((await b.emit('room:members', { room })).members).toMatchObject([{ userId: bert.id, isCreator: true }])
    })

    it('are left by their creator’s word', async () => {
      const room = newRoom()
      const a = await joined(anna, room)
      const b = await joined(bert, room)
      const second = await joined(bert, room)
      const absent = await api.user()
      const kick = (socket: TestSocket, userId: unknown, name = room) =>
        socket.emit('room:kick', { room: name, userId })
      expect(await kick(b, anna.id)).toEqual(refused('Only the room creator can kick users'))
      expect(await kick(b, bert.id)).toEqual(refused('Only the room creator can kick users'))
      expect(await kick(a, anna.id)).toEqual(refused('Room creator cannot kick themselves'))
      expect(await kick(a, absent.id)).toEqual(refused('Target user is not connected'))
      await as(absent)
      expect(await kick(a, absent.id)).toEqual(refused('Target user is not in this room'))
      expect(await kick(a, bert.id, 'no such room')).toEqual(refused('Room not found'))
      expect(await kick(a, undefined)).toEqual(refused('userId is required'))
      expect(await kick(a, bert.id.toUpperCase())).toEqual({ status: 'success' })
      for (const socket of [b, second])
        expect(await hears(socket, 'room:kicked')).toEqual([{ room, kickedBy: anna.id, timestamp: moment }])
      const left = await hears(a, 'room:user:left', 2)
      expect(left.map(({ socketId }) => socketId).sort()).toEqual([b.socket.id, second.socket.id].sort())
      await a.emit('room:message', { room, event: 'said', payload: 1 })
      await hears(a, 'room:said')
      expect(heard(b, 'room:said')).toEqual([])
      expect(await b.emit('room:message', { room, event: 'said' })).toEqual(
        refused('Not a member of this room', 'FORBIDDEN'),
      )
      expect(await b.emit('room:join', { room })).toMatchObject({ status: 'success' })
    })

    it('are listed by prefix, with how many are in them', async () => {
      const a = await joined(anna, 'list:one')
      await a.emit('room:join', { room: 'list:two' })
      await joined(bert, 'list:two')
      expect(await a.emit('room:list', { prefix: 'list:' })).toEqual({
        status: 'success',
        rooms: [
          { name: 'list:one', memberCount: 1 },
          { name: 'list:two', memberCount: 2 },
        ],
      })
      expect((await a.emit('room:list', {})).rooms.length).toBeGreaterThanOrEqual(2)
      expect(await a.emit('room:list', { prefix: 7 })).toEqual(refused('Invalid room name'))
    })

    it('keep the last 200 records, and no more than a quarter of a megabyte', async () => {
      const room = newRoom()
      const a = await joined(anna, room)
      for (let n = 0; n < 205; n += 41)
        await Promise.all(
          Array.from({ length: 41 }, (_, i) => a.emit('room:message', { room, event: 'said', payload: n + i })),
        )
      const history = async () => (await a.emit('room:join', { room })).history.map(({ payload }: any) => payload)
      expect(await history()).toEqual(Array.from({ length: 200 }, (_, i) => i + 5))
      for (let n = 0; n < 5; n += 1)
        await a.emit('room:message', { room, event: 'said', payload: `${n}`.repeat(60_000) })
      expect((await history()).map((payload: string) => payload[0])).toEqual(['1', '2', '3', '4'])
    })

    it.each([
      ['no request', 'room:join', undefined, 'Invalid room name'],
      ['a name that is no text', 'room:join', { room: { a: 1 } }, 'Invalid room name'],
      ['an empty name', 'room:join', { room: ' ' }, 'Invalid room name'],
      ['a long name', 'room:join', { room: 'x'.repeat(129) }, 'Invalid room name'],
      ['control characters', 'room:join', { room: 'a\nb' }, 'Invalid room name'],
      [
        'large metadata',
        'room:join',
        { room: 'r', metadata: 'x'.repeat(2000) },
        'metadata must be at most 1024 characters of JSON',
        'PAYLOAD_TOO_LARGE',
      ],
      [
        'binary metadata',
        'room:join',
        { room: 'r', metadata: { a: Buffer.from('x') } },
        'metadata must be JSON, without binary data',
      ],
      ['a server’s event', 'room:message', { room: 'r', event: 'user:joined' }, 'Invalid event name'],
      ['another one', 'room:message', { room: 'r', event: 'kicked' }, 'Invalid event name'],
      [
        'a large payload',
        'room:message',
        { room: 'r', event: 'e', payload: 'x'.repeat(70_000) },
        'payload must be at most 65536 characters of JSON',
        'PAYLOAD_TOO_LARGE',
      ],
      [
        'a room that it is not in',
        'room:message',
        { room: 'collection:note', event: 'e' },
        'Not a member of this room',
        'FORBIDDEN',
      ],
    ])('refuse %s', async (_what, event, request, message, code = 'BAD_REQUEST') => {
      const a = await as(anna)
      expect(await a.emit(event, request)).toEqual(refused(message, code))
    })

    it.each(['message', 'join', 'leave', 'list', 'members', 'kick', 'user:typing', 'creator:away'])(
      'carry the event %s, which the server does not send',
      async (event) => {
        const room = newRoom()
        const [a, b] = [await joined(anna, room), await joined(bert, room)]
        expect(await a.emit('room:message', { room, event, payload: 1 })).toEqual({ status: 'success' })
        for (const socket of [a, b]) expect(await hears(socket, `room:${event}`)).toMatchObject([{ event, payload: 1 }])
      },
    )

    it('have no way to those of the platform, and no client can speak as the server', async () => {
      const a = await as(anna)
      const b = await as(bert)
      const names = [`user:${bert.id}`, 'tenant:-', 'collection:svc_User', b.socket.id!, '__proto__', 'constructor']
      for (const room of names) {
        expect(await a.emit('room:join', { room })).toMatchObject({ status: 'success', room })
        expect(await a.emit('room:message', { room, event: 'hello', payload: 1 })).toEqual({ status: 'success' })
      }
      await hears(a, 'room:hello', names.length)
      a.socket.emit('svc_User:create', { data: 1 })
      a.socket.emit('room:user:joined', { room: names[0] })
      await joined(bert, newRoom())
      expect(b.notices.map(({ name }) => name)).toEqual(['connected'])
    })

    it('are at most fifty for a connection', async () => {
      const a = await as(anna)
      const answers = await Promise.all(
        Array.from({ length: 51 }, (_, n) => a.emit('room:join', { room: `many ${n}` })),
      )
      expect(answers.filter(({ status }) => status === 'success')).toHaveLength(50)
      expect(answers[50]).toEqual(refused('Too many rooms on one connection'))
    })

    it('take requests of a socket in their order', async () => {
      const room = newRoom()
      const a = await as(anna)
      const answers = await Promise.all([
        a.emit('room:join', { room }),
        a.emit('room:message', { room, event: 'said', payload: 1 }),
        a.emit('room:leave', { room }),
        a.emit('room:message', { room, event: 'said', payload: 2 }),
      ])
      expect(answers.map(({ status }) => status)).toEqual(['success', 'success', 'success', 'error'])
    })

    it('are left when the session ends', async () => {
      const room = newRoom()
      const email = (await api.sql('select email from "svc_User" where id = $1', [bert.id]))[0].email
      const { body } = await api.anonymous('POST', '/auth/login', { email, password: 'password of a user' })
      const a = await joined(anna, room)
      await joined({ id: bert.id, token: body.token }, room)
      await api.as(body.token)('GET', '/auth/logout')
      expect(await hears(a, 'room:user:left')).toMatchObject([{ userId: bert.id }])
      expect((await a.emit('room:members', { room })).members).toHaveLength(1)
    })
  })

describe('with tenants', () => {
  it('rooms of the same name have nothing to do with each other', async () => {
    const api = await startApi({ SOCKET_ENABLED: 'true', MULTI_TENANT: 'true' })
    const address = await api.app.listen({ host: '127.0.0.1', port: 0 })
    const role = await createRole(api, { isTenantSpecific: true })
    const [one, two] = await Promise.all(['one', 'two'].map((name) => createTenant(api, name)))
    const users = await Promise.all([one!, one!, two!].map((tenant) => createUser(api, role, tenant)))
    const [a, b, c] = (await Promise.all(users.map(({ token }) => connect(address, token)))) as [
      TestSocket,
      TestSocket,
      TestSocket,
    ]
    const admin = await connect(address, (await api.anonymous('POST', '/auth/login', administrator)).body.token)
    const room = 'lobby'
    for (const socket of [a, b, c, admin])
      expect(await socket.emit('room:join', { room })).toMatchObject({ status: 'success', history: [] })
    await hears(a, 'room:user:joined')
    await a.emit('room:message', { room, event: 'said', payload: 'among us' })
    await hears(b, 'room:said')
    expect(await c.emit('room:message', { room, event: 'said', payload: 'elsewhere' })).toEqual({ status: 'success' })
    expect((await c.emit('room:members', { room })).members).toMatchObject([{ userId: users[2]!.id, isCreator: true }])
    expect((await a.emit('room:members', { room })).members).toHaveLength(2)
    expect(await c.emit('room:kick', { room, userId: users[0]!.id })).toEqual(
      refused('Target user is not in this room'),
    )
    expect((await c.emit('room:list', {})).rooms).toEqual([{ name: room, memberCount: 1 }])
    for (const name of [`${one}:${room}`, `-:${room}`, `room:${one}:${room}`]) await c.emit('room:join', { room: name })
    await a.emit('room:message', { room, event: 'said', payload: 'again' })
    await hears(b, 'room:said', 2)
    c.close()
    await admin.emit('room:leave', { room })
    expect(heard(a, 'room:user:joined')).toHaveLength(1)
    expect(heard(a, 'room:user:left')).toEqual([])
    expect(heard(c, 'room:said').map(({ payload }) => payload)).toEqual(['elsewhere'])
    expect(heard(admin, 'room:said')).toEqual([])
  })
})

const refused = (message: string, code = 'BAD_REQUEST') => ({ status: 'error', code, message })
