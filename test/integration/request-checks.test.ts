import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

/** In which order a request is checked, and how much of its body is read before. */

let api: Api
let port: number
let nobody: string
let writer: string
let token: string
const sockets: Socket[] = []

beforeAll(async () => {
  api = await startApi({ BULK_MAX_ITEMS: '2000' })
  for (const collectionName of ['note', 'other'])
    await api.admin('POST', '/schemas', { collectionName, schema: { fields: { text: { type: 'String' } } } })
  port = Number(new URL(await api.app.listen({ port: 0, host: '127.0.0.1' })).port)
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  nobody = (await api.user([{ collection: 'other', action: 'create', fields: ['*'] }])).token
  const actions = ['create', 'read', 'update', 'delete']
  writer = (await api.user(actions.map((action) => ({ collection: 'note', action, fields: ['*'] })))).token
})

afterAll(() => {
  for (const socket of sockets) socket.destroy()
})

let position: bigint
beforeEach(async () => {
  position = await api.position()
})

/** A request over a line of its own, of which only `sent` of the body is sent. */
function open(method: string, path: string, token: string | undefined, headers: Record<string, string>, sent = '') {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  const line = { text: '', isClosed: false, socket }
  socket.on('data', (data) => {
    line.text += data
  })
  socket.on('error', () => undefined)
  socket.on('close', () => {
    line.isClosed = true
  })
  const all = { host: 'x', ...(token !== undefined && { authorization: `Bearer ${token}` }), ...headers }
  const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.write(`${method} ${path} HTTP/1.1\r\n${head.join('')}\r\n${sent}`)
  return line
}

const statusOf = ({ text }: { text: string }) => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1])
const answered = (line: { text: string }) => waitFor(() => statusOf(line))

const json = { 'content-type': 'application/json' }
const tooLarge = { ...json, 'content-length': String(21 * 1024 * 1024) }

/** What can be wrong with a request, in the order in which it is told. */
type Fault = {
  readonly status: number
  readonly path?: string
  readonly token?: () => string | undefined
  readonly headers?: Record<string, string>
}
const faults: readonly Fault[] = [
  { status: 404, path: '/nowhere' },
  { status: 401, path: '/items/note/import-json', token: () => undefined },
  { status: 403, token: () => nobody },
  { status: 413, headers: { 'content-length': tooLarge['content-length'] } },
  { status: 415, headers: { 'content-type': 'application/xml' } },
  { status: 400 },
]
const pairs = faults.flatMap((first, i) =>
  faults.slice(i + 1).map((second) => [first.status, second.status, first, second] as const),
)

describe('the order of checks', () => {
  it.each(pairs)('tells %i before %i', async (status, _later, first, second) => {
    const { path = '/items/note', token = () => writer, headers } = { ...second, ...first }
    const broken = { ...json, 'content-length': '2', ...second.headers, ...headers }
    const line = open('POST', path, token(), broken, '{]')
    expect(await answered(line)).toBe(status)
    expect(await api.log(position)).toEqual([])
  })

  it('tells of an unknown collection as of a missing permission: after the caller, before the body', async () => {
    const line = open('POST', '/items/nothing/bulk', nobody, tooLarge)
    expect(await answered(line)).toBe(404)
    expect(line.text).toContain('UNKNOWN_COLLECTION')
    expect(await answered(open('POST', '/items/nothing/import-csv', undefined, tooLarge))).toBe(401)
  })
})

describe('a body that is not wanted', () => {
  const size = { ...json, 'content-length': String(20 * 1024 * 1024) }
  it.each([
    ['POST', '/items/note', 'create'],
    ['PUT', '/items/note?key=id', 'create'],
    ['PATCH', '/items/note/00000000-0000-4000-8000-000000000001', 'update'],
    ['POST', '/items/note/bulk', 'create'],
    ['PATCH', '/items/note/bulk', 'update'],
    ['DELETE', '/items/note/bulk', 'delete'],
    ['POST', '/items/note/import-csv', 'create'],
    ['POST', '/items/note/import-json', 'create'],
    ['POST', '/workflows', 'create', 'svc_Workflow'],
    ['PATCH', '/workflows/00000000-0000-4000-8000-000000000001', 'update', 'svc_Workflow'],
    ['POST', '/webhooks', 'create', 'svc_Webhook'],
    ['PATCH', '/webhooks/00000000-0000-4000-8000-000000000001', 'update', 'svc_Webhook'],
  ])('is not waited for by %s %s', async (method, path, action, collection = 'note') => {
    const line = open(method, path, nobody, size)
    expect(await answered(line)).toBe(403)
    expect(line.text).toContain(`You don't have permission to ${action} items in '${collection}'`)
    expect(line.text).toMatch(/connection: close/i)
    // The line is closed although the body never came.
    await waitFor(() => line.isClosed)
    expect(await api.log(position)).toEqual([])
  })

  it('is refused in the words of a report', async () => {
    const line = open('POST', '/reports/note', nobody, { ...json, 'content-length': '1000000' })
    expect(await answered(line)).toBe(403)
    expect(line.text).toContain('Insufficient permissions')
  })

  /** Sends as much as the server takes; the bytes that it has taken from the line until that is closed. */
  const flood = async (bytes: number): Promise<number> => {
    const connected = once(api.app.server, 'connection')
    const line = open('POST', '/items/note/bulk', nobody, { ...json, 'content-length': String(bytes) })
    const block = Buffer.alloc(65_536, 0x20)
    let sent = 0
    const pump = () => {
      while (!line.socket.destroyed && sent < bytes) {
        sent += block.length
        if (!line.socket.write(block)) return
      }
    }
    line.socket.on('drain', pump)
    pump()
    expect(await answered(line)).toBe(403)
    await waitFor(() => line.isClosed)
    expect(line.text).toContain("You don't have permission")
    const [taken] = (await connected) as [Socket]
    return taken.bytesRead
  }

  it('is drained to its end, so that clients which send all of it first hear the answer', async () => {
    expect(await flood(4 * 1024 * 1024)).toBeGreaterThan(4 * 1024 * 1024)
  })

  it('is drained for no more than some 16 MB, what is on its way included', async () => {
    expect(await flood(60 * 1024 * 1024)).toBeLessThan(32 * 1024 * 1024)
  })

  it('is not asked for where the client waits for 100 Continue', async () => {
    const refused = open('POST', '/items/note', nobody, { ...json, 'content-length': '11', expect: '100-continue' })
    expect(await answered(refused)).toBe(403)
    await waitFor(() => refused.isClosed)
    const wanted = open('POST', '/items/note', writer, { ...json, 'content-length': '11', expect: '100-continue' })
    await waitFor(() => wanted.text.startsWith('HTTP/1.1 100 Continue\r\n\r\n'))
    wanted.socket.write('{"text":"x"}'.slice(0, 11))
    await waitFor(() => /HTTP\/1\.1 400/.test(wanted.text))
    const whole = open('POST', '/items/note', writer, { ...json, 'content-length': '12', expect: '100-continue' })
    await waitFor(() => whole.text.startsWith('HTTP/1.1 100 Continue\r\n\r\n'))
    whole.socket.write('{"text":"x"}')
    await waitFor(() => /HTTP\/1\.1 201/.test(whole.text))
  })
})

describe('a grant that this process has not heard of', () => {
  it('is found before anybody is refused', async () => {
    const { call, roleId } = await api.user()
    expect((await call('POST', '/items/note', { text: 'before' })).status).toBe(403)
    // No trigger tells of it.
    await api.sql(`begin; alter table "svc_Permission" disable trigger user;
      insert into "svc_Permission" (id, "role_Id", collection, action, fields, "createdAt", "updatedAt")
        values (gen_random_uuid(), '${roleId}', 'note', 'create', '["*"]', now(), now());
      alter table "svc_Permission" enable trigger user; commit`)
    expect((await call('POST', '/items/note', { text: 'after' })).status).toBe(201)
  })
})

describe('a long list', () => {
  const items = (amount: number, text = 'x') => Array.from({ length: amount }, () => ({ text }))

  it.each([
    ['POST', '/items/other/bulk'],
    ['PUT', '/items/other?key=id'],
    ['PATCH', '/items/other/bulk'],
    ['DELETE', '/items/other/bulk'],
  ])('of too many is refused by %s %s, however it comes', async (method, path) => {
    const small = await api.admin(method, path, Array(2001).fill({}))
    expect([small.status, small.body.error.code]).toEqual([413, 'TOO_MANY_ITEMS'])
    const declared = open(
      method,
      path,
      token,
      { ...json, 'content-length': String(20 * 1024 * 1024) },
      `[${'{},'.repeat(3000)}`,
    )
    expect(await answered(declared)).toBe(413)
    const chunk = `[${'{},'.repeat(3000)}`
    const chunked = open(
      method,
      path,
      token,
      { ...json, 'transfer-encoding': 'chunked' },
      `${chunk.length.toString(16)}\r\n${chunk}\r\n`,
    )
    expect(await answered(chunked)).toBe(413)
    expect(await api.log(position)).toEqual([])
  })

  it('of more than a megabyte is written whole, in order, with its events', async () => {
    const list = items(1500, 'é'.repeat(500)).map(({ text }, n) => ({ text: `${n} ${text}` }))
    const { status, body } = await api.admin('POST', '/items/other/bulk', list)
    expect([status, body.data.length]).toEqual([201, 1500])
    const stored = await api.sql('select id, text from other where text like $1', ['%é%'])
    const texts = new Map(stored.map(({ id, text }) => [id, text]))
    expect(body.data.map((id: string) => texts.get(id))).toEqual(list.map(({ text }) => text))
    const events = await api.log(position)
    expect(events.filter(({ entity, action }) => entity === 'other' && action === 'create')).toHaveLength(1500)
  })

  it('is told from another one by its Idempotency-Key, and done once', async () => {
    const list = items(1200, 'y'.repeat(1000))
    const headers = { 'idempotency-key': 'a-long-list' }
    const first = await api.admin('POST', '/items/other/bulk', list, headers)
    const again = await api.admin('POST', '/items/other/bulk', list, headers)
    expect([first.status, again.status]).toEqual([201, 201])
    expect(again.body).toEqual(first.body)
    const another = await api.admin('POST', '/items/other/bulk', [...list.slice(1), { text: 'z' }], headers)
    expect([another.status, another.body.error.code]).toEqual([409, 'IDEMPOTENCY_KEY_REUSED'])
    expect(await api.sql('select from other where text like $1', ['yyy%'])).toHaveLength(1200)
  })

  it.each([
    ['is no JSON', `[{"text":"${'x'.repeat(1_100_000)}"},}]`, 'The request body is not valid JSON'],
    ['has no end', `[{"text":"${'x'.repeat(1_100_000)}"}`, 'The request body is not valid JSON'],
    [
      'would reach a prototype',
      `[{"__proto__":{"text":"${'x'.repeat(1_100_000)}"}}]`,
      'The request body has the key "__proto__", which is not allowed',
    ],
    ['is no list', `{"text":"${'x'.repeat(1_100_000)}"}`, 'Request body must be an array'],
  ])('that %s is refused', async (_what, payload, message) => {
    const { status, body } = await api.admin('POST', '/items/other/bulk', payload, json)
    expect([status, body.error.message]).toEqual([400, message])
    expect(await api.log(position)).toEqual([])
  })

  it('inside one item is bounded, too', async () => {
    const payload = `{"text":[${'{},'.repeat(1_100_000)}{}]}`
    const { status, body } = await api.admin('POST', '/items/other', payload, json)
    expect([status, body.error.code]).toEqual([413, 'TOO_MANY_VALUES'])
  })
})
