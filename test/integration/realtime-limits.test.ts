import { io } from 'socket.io-client'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { samplesOf } from '../support/exposition.ts'
import { chain, node } from '../support/flows.ts'
import { administrator } from '../support/prepare.ts'
import { openRaw, type RawSocket } from '../support/raw-socket.ts'
import { withClient } from '../support/server.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let address: string
let token: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true', SOCKET_SUBSCRIPTION_LIMIT: '3', SOCKET_BUFFER_SIZE: '2mb' })
  address = await listen(api)
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  for (const collectionName of ['note', 'one', 'two', 'three'])
    await api.admin('POST', '/schemas', { collectionName, schema: { fields: { text: { type: 'Text' } } } })
})

const listen = ({ app }: Api) => app.listen({ host: '127.0.0.1', port: 0 })
const serve = async (env: Record<string, string>) =>
  listen(await startApi({ SOCKET_ENABLED: 'true', ...env }, api.database))
const blocked = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
const subscription = '420["subscribe",{"collection":"one"}]'
const subscriptionsAt = async ({ admin }: Api) =>
  samplesOf((await admin('GET', '/metrics')).text).get('daybook_socket_subscriptions')
const isAlive = async () => expect((await fetch(`${address}/health`)).status).toBe(200)

describe('connections', () => {
  it('of one user are limited, and free again when they end', async () => {
    const limited = await serve({ SOCKET_LIMIT_PER_USER: '3' })
    const attempts = await Promise.allSettled(Array.from({ length: 8 }, () => connect(limited, token)))
    const opened = attempts.filter((attempt) => attempt.status === 'fulfilled')
    const refused = attempts.filter((attempt) => attempt.status === 'rejected')
    expect(opened).toHaveLength(3)
    expect(refused.map(({ reason }) => reason.message)).toEqual(Array(5).fill('Too many connections'))
    const other = await api.user([])
    expect((await connect(limited, other.token)).socket.connected).toBe(true)
    opened[0]!.value.close()
    await waitFor(async () => (await connect(limited, token)).socket.connected)
  })

  it('of one user are free again also when they end while their token is looked up', async () => {
    const limited = await serve({ SOCKET_LIMIT_PER_USER: '1', SOCKET_LIMIT_PER_ADDRESS: '1' })
    await withClient(api.database.url, async (locker) => {
      await locker.query('begin; lock table "svc_Sessions" in access exclusive mode')
      const left = io(limited, { path: '/realtime', auth: { token }, transports: ['websocket'], forceNew: true })
      await waitFor(async () => (await api.sql(blocked)).length > 0)
      left.close()
      // The server has noticed when the address may connect again.
      await waitFor(async () => {
        const next = await openRaw(limited)
        next.close()
        return next.packets[0]!.includes('101')
      })
      await locker.query('rollback')
    })
    await waitFor(async () => (await connect(limited, token)).socket.connected)
  })

  it('of one address are limited', async () => {
    const limited = await serve({ SOCKET_LIMIT_PER_ADDRESS: '2' })
    const [first] = [await connect(limited, token), await connect(limited, token)]
    await expect(connect(limited, token)).rejects.toThrow()
    const polling = await fetch(`${limited}/realtime/?EIO=4&transport=polling`)
    expect([polling.status, await polling.json()]).toEqual([403, { code: 4, message: 'Too many connections' }])
    first!.close()
    await waitFor(async () => (await connect(limited, token)).socket.connected)
  })

  it('are not begun faster than allowed, by address also behind a proxy', async () => {
    const limited = await serve({ SOCKET_CONNECT_LIMIT: '5', TRUST_PROXY: 'loopback' })
    const statusFrom = async (client: string) =>
      (await fetch(`${limited}/realtime/?EIO=4&transport=polling`, { headers: { 'x-forwarded-for': client } })).status
    const statuses: number[] = []
    for (let i = 0; i < 7; i += 1) statuses.push(await statusFrom('192.0.2.1, 127.0.0.1'))
    expect(statuses).toEqual([200, 200, 200, 200, 200, 403, 403])
    expect(await statusFrom('192.0.2.2')).toBe(200)
  })

  it('without a token are closed after five seconds, also those that have left the channel', async () => {
    const [silent, refused] = [await openRaw(address), await openRaw(address)]
    refused.send('40{"token":"garbage"}')
    await refused.packet('44')
    const left = await openRaw(address, token)
    left.send('41')
    await waitFor(() => left.closed)
    const joined = await openRaw(address, token)
    await waitFor(() => silent.closed && refused.closed)
    expect(joined.closed).toBe(false)
  })
})

describe('messages', () => {
  it('are limited per second; the socket is told and disconnected', async () => {
    const client = await connect(address, token)
    for (let i = 0; i < 200; i += 1) client.socket.emit('nothing', i)
    await waitFor(() => !client.socket.connected)
    expect(client.notices.at(-1)).toEqual({ name: 'limited', body: { message: 'Too many messages' } })
    await isAlive()
  })

  it('count by themselves where they are pings of the WebSocket protocol, which are answered until there are too many', async () => {
    const client = await openRaw(address, token)
    client.ping()
    await waitFor(() => client.pongs === 1)
    client.pause()
    for (let i = 0; i < 200; i += 1) client.ping()
    client.resume()
    await waitFor(() => client.closed)
    expect(client.pongs).toBeLessThan(200)
    await isAlive()
  })

  it('are limited in size', async () => {
    const client = await openRaw(address, token)
    client.send(`420["subscribe",{"collection":"${'x'.repeat(1_200_000)}"}]`)
    await waitFor(() => client.closed)
    await isAlive()
  })

  it('are answered without a payload, and with more than one', async () => {
    const { socket } = await connect(address, token)
    const refusal = { status: 'error', code: 'BAD_REQUEST', message: 'collection is required' }
    for (const name of ['subscribe', 'unsubscribe', 'report:subscribe'])
      expect(await socket.timeout(5000).emitWithAck(name)).toEqual(refusal)
    expect(await socket.timeout(5000).emitWithAck('report:unsubscribe')).toEqual({ status: 'success' })
    expect(await socket.timeout(5000).emitWithAck('subscribe', {}, 'more')).toEqual(refusal)
    socket.emit('subscribe')
  })

  it('that no one listens to are answered with an error and reach no client', async () => {
    const [sender, other] = [await connect(address, token), await connect(address, token)]
    await other.subscribe('note')
    for (const name of [
      'note:create',
      'connected',
      'resync',
      'constructor',
      '__proto__',
      'toString',
      'error',
      'collection:note',
    ])
      expect(await sender.emit(name, { collection: 'note' })).toEqual({
        status: 'error',
        code: 'UNKNOWN_EVENT',
        message: 'Unknown event',
      })
    await api.admin('POST', '/items/note', { text: 'real' })
    await other.frame(({ data }) => data.text === 'real')
    expect(other.frames).toHaveLength(1)
    expect(other.notices.map(({ name }) => name)).toEqual(['connected'])
  })

  it.each([
    ['a number as the name', ['42[5,{}]']],
    ['an object as the name', ['42[{"a":1}]']],
    ['a reserved name', ['42["disconnecting"]']],
    ['no name', ['42[]']],
    ['broken JSON', ['42["subscribe",{']],
    ['a placeholder without attachments', ['451-["subscribe",{"_placeholder":true,"num":9}]', Buffer.from('x')]],
    ['a negative placeholder', ['451-["subscribe",{"_placeholder":true,"num":-1}]', Buffer.from('x')]],
    ['a thousand attachments', ['451000-["subscribe"]']],
    ['text amid attachments', ['452-["subscribe",{"_placeholder":true,"num":0}]', '42["subscribe"]']],
    ['an attachment of nothing', [Buffer.from('x')]],
    ['an unknown packet', ['49']],
    ['a second CONNECT', ['40{}']],
    ['another namespace', ['42/other,["subscribe"]']],
    ['a packet of the engine that only servers send', ['2']],
  ] as [string, (string | Buffer)[]][])('with %s close the socket', async (_what, packets) => {
    const client = await openRaw(address, token)
    for (const packet of packets) client.send(packet)
    await waitFor(() => client.closed)
    await isAlive()
  })

  it.each([
    ['another namespace', '40/admin,{}', '44/admin,{"message":"Invalid namespace"}'],
    [
      'a huge number for the answer',
      '4299999999999999999999["unsubscribe",{"collection":"note"}]',
      '43100000000000000000000[',
    ],
    ['a prototype as the request', '421["subscribe",{"__proto__":{"collection":"note"}}]', '431[{"status":"error"'],
    ['a list as the request', '421["subscribe",["note"]]', '431[{"status":"error"'],
    ['an answer to nothing', '4377["x"]', ''],
  ])('with %s are answered', async (_what, packet, answer) => {
    const client = await openRaw(address, token)
    client.send(packet)
    await client.packet(answer)
    client.send('4255["unsubscribe",{"collection":"note"}]')
    await client.packet('4355[{"status":"success"}]')
    expect(client.closed).toBe(false)
  })
})

describe('subscriptions', () => {
  it.each([
    ['leaves', ['41', subscription]],
    ['is cut off', [subscription, ...Array(500).fill('420["nothing"]')]],
  ])('of a client that %s before its request is read are none', async (_what, packets) => {
    const own = await startApi({ SOCKET_ENABLED: 'true' }, api.database)
    const client = await openRaw(await listen(own), token)
    client.send('421["subscribe",{"collection":"note"}]')
    await client.packet('431[{"status":"success"')
    expect(await subscriptionsAt(own)).toBe(1)
    client.send(...packets)
    await waitFor(() => client.closed)
    await waitFor(async () => (await subscriptionsAt(own)) === 0)
  })

  it('of one socket are limited, also when all are asked for at once', async () => {
    const client = await connect(address, token)
    const answers = await Promise.all(['note', 'one', 'two', 'three'].map((name) => client.subscribe(name)))
    expect(answers.map(({ status }) => status)).toEqual(['success', 'success', 'success', 'error'])
    expect(answers[3].message).toBe('Too many subscriptions on one connection')
    expect(await client.subscribe('note')).toMatchObject({ status: 'success' })
    await client.emit('unsubscribe', { collection: 'one' })
    expect(await client.subscribe('three')).toMatchObject({ status: 'success' })
  })
})

describe('tasks and executions', () => {
  it('that one socket follows are limited, also when all are asked for at once', async () => {
    const client = await connect(await serve({ SOCKET_MESSAGE_LIMIT: '1000' }), token)
    const tasks = await api.sql(`insert into "svc_Tasks" (type, scheduled_time)
      select 't', now() + interval '1 year' from generate_series(1, 103) returning id`)
    const joined = await Promise.all(tasks.map(({ id }) => client.emit('task:join', { taskId: id })))
    expect(joined.filter(({ status }) => status === 'success')).toHaveLength(100)
    expect(joined.find(({ status }) => status === 'error').message).toBe('Too many tasks on one connection')

    const { body } = await api.admin('POST', '/workflows', {
      name: 'w',
      flow_data: chain(node('wait', 'delay', { delay: 1 })),
    })
    const executions = await api.sql(
      `insert into "svc_WorkflowExecution" ("workflow_Id", status)
         select $1, 'running' from generate_series(1, 53) returning id`,
      [body.data.id],
    )
    const names = () => client.notices.map(({ name }) => name).filter((name) => name.startsWith('workflow:'))
    for (const { id } of executions) client.socket.emit('workflow:execution:join', { executionId: id })
    await waitFor(() => names().length === 53)
    expect(names().filter((name) => name === 'workflow:execution:update')).toHaveLength(50)
  })
})

describe('a subscriber that stops to read', () => {
  it('is dropped with resync; the others get everything, and it can go on from its last cursor', async () => {
    const rows = 6000
    const slow = await openRaw(address, token)
    slow.send('421["subscribe",{"collection":"note"}]')
    await slow.packet('431')
    slow.pause()
    const quick = await connect(address, token)
    await quick.subscribe('note')
    const rss = process.memoryUsage.rss()
    for (let i = 0; i < rows; i += 500)
      await api.sql(`insert into note (text) select n || repeat('x', 4000) from generate_series($1::int, $2::int) n`, [
        i + 1,
        i + 500,
      ])
    await waitFor(() => quick.frames.length === rows)
    process.stderr.write(`slow subscriber: RSS grew by ${Math.round((process.memoryUsage.rss() - rss) / 2 ** 20)} MB\n`)
    expect(quick.notices.map(({ name }) => name)).toEqual(['connected'])
    slow.resume()
    await slow.packet('42["resync",{"collection":"note","reason":"slow"}]')
    const received = slow.packets
      .filter((packet) => packet.startsWith('42["note:create"'))
      .map((p) => JSON.parse(p.slice(2))[1])
    expect(received.length).toBeLessThan(rows)
    slow.send(`422${JSON.stringify(['subscribe', { collection: 'note', since: received.at(-1)?.cursor }])}`)
    await slow.packet('432[{"status":"success"')
    const numbers = slow.packets
      .filter((packet) => packet.startsWith('42["note:create"'))
      .map((packet) => Number.parseInt(JSON.parse(packet.slice(2))[1].data.text, 10))
    expect([...new Set(numbers)].sort((a, b) => a - b)).toEqual(Array.from({ length: rows }, (_, i) => i + 1))
  })

  it.each<[string, (silent: RawSocket, other: RawSocket) => void]>([
    ['its own requests', (silent) => silent.send('421["room:join",{"room":"full"}]')],
    ['others in its room', (_silent, other) => other.send(said)],
  ])('is cut off when %s go on adding to what it has not read', async (_what, add) => {
    const limited = await serve({ SOCKET_BUFFER_SIZE: '64kb', SOCKET_MESSAGE_LIMIT: '1000000' })
    const [other, silent] = [await openRaw(limited, token), await openRaw(limited, token)]
    for (const client of [other, silent]) {
      client.send('420["room:join",{"room":"full"}]')
      await client.packet('430')
    }
    for (let i = 0; i < 30; i += 1) other.send(said)
    silent.pause()
    await waitFor(() => {
      for (let i = 0; i < 20; i += 1) add(silent, other)
      return other.packets.some((packet) => packet.startsWith('42["room:user:left"'))
    })
    silent.resume()
    await waitFor(() => silent.closed)
    expect(other.closed).toBe(false)
  })
})

const said = `42["room:message",{"room":"full","event":"said","payload":"${'x'.repeat(8000)}"}]`
