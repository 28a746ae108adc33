import { once } from 'node:events'
import { request as openRequest } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { administrator } from '../support/prepare.ts'

type Style = 'auth' | 'general'
type Bad = {
  method?: string
  path: string
  /** An object is sent as JSON, a text as it is. */
  body?: unknown
  headers?: Record<string, string>
  status: number
  /** It is answered before its body, which is only announced. */
  isUnread?: boolean
}

let cluster: Cluster
let web: Web

beforeAll(async () => {
  cluster = await startCluster({ env: { EXPOSE_ERROR_DETAILS: 'false', BODY_SIZE_LIMIT: '5mb', LOG_LEVEL: 'debug' } })
  web = cluster.web[0]!
  const fields = {
    text: { type: 'String', values: { stringLength: 100 } },
    stars: { type: 'Integer' },
    due: { type: 'DateTime' },
    meta: { type: 'JSON' },
  }
  expect((await web.call('POST', '/schemas', { collectionName: 'note', schema: { fields } })).status).toBe(201)
})

const json = (text: string) => ({ body: text, headers: { 'content-type': 'application/json' } })
const upload = (body: string): Bad => ({
  method: 'POST',
  path: '/items/note/import-csv',
  body,
  headers: { 'content-type': 'multipart/form-data; boundary=x' },
  status: 400,
})
const anonymous = { authorization: '' }
const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)
const post = (path: string, body: unknown, status = 400): Bad => ({ method: 'POST', path, body, status })
const query = (parameter: string, value: string, status = 400): Bad => ({
  path: `/items/note?${parameter}=${encodeURIComponent(value)}`,
  status,
})
const ids = (count: number) =>
  Array.from({ length: count }, (_, i) => `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`)

const cases: Record<string, Record<string, Bad>> = {
  'a malformed body': {
    'cut JSON': { method: 'POST', path: '/items/note', ...json('{"text":'), status: 400 },
    'cut JSON under /auth': { method: 'POST', path: '/auth/login', ...json('{"email":'), status: 400 },
    'no object': post('/items/note', []),
    'a number': { method: 'POST', path: '/items/note', ...json('3'), status: 400 },
    null: { method: 'POST', path: '/items/note', ...json('null'), status: 400 },
    'a list for an account': post('/auth/register', []),
    'no list for bulk': post('/items/note/bulk', { text: 'x' }),
    __proto__: { method: 'POST', path: '/items/note', ...json('{"text":"x","__proto__":{"admin":true}}'), status: 400 },
    '__proto__ under /auth': {
      method: 'POST',
      path: '/auth/login',
      ...json('{"__proto__":{"email":"x"}}'),
      status: 400,
    },
    XML: {
      method: 'POST',
      path: '/items/note',
      body: '<a/>',
      headers: { 'content-type': 'application/xml' },
      status: 415,
    },
    'a form': {
      method: 'POST',
      path: '/auth/login',
      body: 'email=x',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      status: 415,
    },
    'plain text under /auth': {
      method: 'POST',
      path: '/auth/login',
      body: '{}',
      headers: { 'content-type': 'text/plain' },
      status: 415,
    },
    'multipart without a boundary': { ...upload('x'), headers: { 'content-type': 'multipart/form-data' } },
    'multipart that is cut': upload(
      '--x\r\ncontent-disposition: form-data; name="file"; filename="a.csv"\r\n\r\ntext\r\na',
    ),
    'multipart without parts': upload('--x--\r\n'),
    'multipart that is none': upload('text\na'),
    'no content type': {
      method: 'POST',
      path: '/items/note',
      body: '{}',
      headers: { 'content-type': '' },
      status: 415,
    },
  },
  'too much': {
    'a body over the limit': post('/items/note', { text: 'x'.repeat(6_000_000) }, 413),
    'a body over the limit of /auth': post('/auth/login', { email: 'x'.repeat(20_000), password: 'x' }, 413),
    'a password of a megabyte': post(
      '/auth/register',
      { email: 'a@mail.example', password: 'x'.repeat(1_000_000), firstName: 'A', lastName: 'A' },
      413,
    ),
    'a password of a megabyte at login': post(
      '/auth/login',
      { email: 'a@mail.example', password: 'x'.repeat(1_000_000) },
      413,
    ),
    'a body of unknown length over the limit of /auth': {
      method: 'POST',
      path: '/auth/login',
      body: { email: 'x'.repeat(20_000) },
      headers: { 'transfer-encoding': 'chunked' },
      status: 413,
    },
    // A caller that may not write there is refused before the body is read.
    'two megabytes without a token': {
      ...post('/items/note', { text: 'x'.repeat(2_000_000) }, 403),
      headers: anonymous,
    },
    'more than a megabyte without a token, of unknown length': {
      ...post('/items/note', { text: 'x'.repeat(1_100_000) }, 403),
      headers: { ...anonymous, 'transfer-encoding': 'chunked' },
    },
    'megabytes to a path that is none of ours': {
      ...post('/nothing', { text: 'x'.repeat(4_000_000) }, 404),
      isUnread: true,
    },
    'ten thousand levels in a column': {
      method: 'POST',
      path: '/items/note',
      ...json(`{"meta":${nested(10_000)}}`),
      status: 400,
    },
    'a million levels in a column': {
      method: 'POST',
      path: '/items/note',
      ...json(`{"meta":${nested(1_000_000)}}`),
      status: 400,
    },
    'five thousand levels under /auth': {
      method: 'POST',
      path: '/auth/register',
      ...json(`{"email":${nested(5_000)}}`),
      status: 400,
    },
    'levels in a filter': query('filter', `{"meta":${nested(1_500)}}`),
    'conditions in a filter': query('filter', `${'{"NOT":'.repeat(200)}{}${'}'.repeat(200)}`),
    'deletions of what is not there': { method: 'DELETE', path: '/items/note/bulk', body: ids(100_000), status: 403 },
    'changes of what is not there': {
      method: 'PATCH',
      path: '/items/note/bulk',
      body: ids(20_000).map((id) => ({ id, text: 'x' })),
      status: 403,
    },
    'a text longer than its column': post('/items/note', { text: 'x'.repeat(300) }),
    'a list of values': query('filter', `{"stars":{"in":[${'1,'.repeat(7_000)}1]}}`, 431),
    'a header': { path: '/items/note', headers: { 'x-much': 'x'.repeat(20_000) }, status: 431 },
    'a name': { path: `/items/${'x'.repeat(501)}`, status: 414 },
    'sort keys': query('sort', 'text,'.repeat(500)),
  },
  'something unknown': {
    collection: { path: '/items/nowhere', status: 404 },
    'collection to write': post('/items/nowhere', { text: 'x' }, 404),
    'collection that objects inherit': { path: '/items/__proto__', status: 404 },
    constructor: { path: '/items/constructor', status: 404 },
    'field in a filter': query('filter', '{"nothing":1}'),
    'field to sort by': query('sort', 'nothing'),
    'field to select': query('fields', 'nothing'),
    operator: query('filter', '{"text":{"resembles":"x"}}'),
    'inherited operator': query('filter', '{"text":{"constructor":"x"}}'),
    item: { path: `/items/note/${ids(1)[0]}`, status: 403 },
    path: { path: '/nothing', status: 404 },
    'path under /auth': { path: '/auth/nothing', status: 404 },
    method: { method: 'PUT', path: '/permissions', status: 404 },
    'method under /auth': { method: 'DELETE', path: '/auth/login', status: 404 },
  },
  'a wrong type': {
    'text for a number': post('/items/note', { stars: 'many' }),
    'an object for a number': post('/items/note', { stars: {} }),
    'too large a number': post('/items/note', { stars: 1e12 }),
    'no date': post('/items/note', { due: 'yesterday' }),
    'a list for a text': post('/items/note', { text: ['x'] }),
    'a key that is none': { path: '/items/note/first', status: 400 },
    'a list as address': post('/auth/login', { email: ['a@mail.example'], password: 'x' }),
    'an object as password': post('/auth/login', { email: 'a@mail.example', password: { $ne: '' } }),
    'a text as filter': query('filter', 'text'),
    'a filter of another type': query('filter', '{"stars":{"gt":"x"}}'),
    'a huge limit': query('limit', '1e18'),
    'a broken page': query('page', '1.5'),
  },
  SQL: {
    'as collection': { path: `/items/${encodeURIComponent('note"; drop table "note"; --')}`, status: 404 },
    'as field to sort by': query('sort', 'text"; drop table "note"; --'),
    'as field to select': query('fields', 'text" from "svc_User" --'),
    'as filter key': query('filter', JSON.stringify({ "text' or '1'='1": 'x' })),
    'as limit': query('limit', '10; drop table note'),
    'as key': { path: `/items/note/${encodeURIComponent("' or '1'='1")}`, status: 400 },
    'as new collection': post('/schemas', { collectionName: 'x"; drop table note; --', schema: { fields: {} } }),
    'as new field': post('/schemas', {
      collectionName: 'x',
      schema: { fields: { 'a" int); drop table note; --': { type: 'String' } } },
    }),
    'as type': post('/schemas', { collectionName: 'x', schema: { fields: { a: { type: 'text; drop table note' } } } }),
    'as token': { path: '/auth/me', headers: { authorization: "Bearer ' or '1'='1" }, status: 401 },
    'as verification token': { path: `/auth/email/verify/${encodeURIComponent("' or '1'='1")}`, status: 400 },
  },
  'a NUL character': {
    'in a value': post('/items/note', { text: 'a\0b' }),
    'in a column of JSON': post('/items/note', { meta: { a: 'a\0b' } }),
    'in a filter': query('filter', '{"text":"a\\u0000b"}'),
    'in a search': query('search', 'a\0b'),
    'in a key': { path: '/items/note/%00', status: 400 },
    'in a collection': { path: '/items/%00', status: 404 },
    'in an address': post('/auth/login', { email: 'a\0@mail.example', password: 'x' }),
    'in a name': post('/auth/register', {
      email: 'a@mail.example',
      password: 'long enough',
      firstName: 'a\0',
      lastName: 'A',
    }),
    'in a new schema': post('/schemas', { collectionName: 'a\0', schema: { fields: {} } }),
  },
  'a path that is none of ours': Object.fromEntries(
    [
      ...[
        '/.env',
        '/.git/config',
        '/package.json',
        '/pgboss',
        '/items/..%2f..%2f.env',
        '/items/../../.env',
        '//etc/passwd',
        '//[',
        '//a:b',
        '//[?EIO=4',
      ],
      ...['/auth/../../.env', '/items/note/..%5c..%5c.env', '/%2e%2e/%2e%2e/etc/passwd'],
    ].map((path) => [path, { path, status: path.startsWith('/items/note/') ? 400 : 404 }]),
  ),
  'a broken request line': {
    'a broken escape': { path: '/items/%E0%A4%A', status: 400 },
    'a broken address': { path: 'http://[', status: 400 },
    'a broken address with the sign of sockets': { path: 'http://[?EIO=4', status: 400 },
    'a broken escape under /auth': { path: '/auth/email/verify/%E0%A4%A', status: 400 },
    TRACE: { method: 'TRACE', path: '/items/note', status: 404 },
    'TRACE under /auth': { method: 'TRACE', path: '/auth/login', status: 404 },
  },
}

describe.each(Object.entries(cases))('%s', (_what, bad) => {
  it('is refused, changes nothing and does no harm', async () => {
    const before = await state()
    const found: Record<string, unknown> = {}
    for (const [name, spec] of Object.entries(bad)) found[name] = await outcomeOf(spec)
    expect(found).toEqual(Object.fromEntries(Object.entries(bad).map(([name, { status }]) => [name, status])))
    await isAlive()
    expect(await state()).toEqual(before)
  })
})

describe('requests that are not HTTP', () => {
  it.each([
    ['garbage', '\0\x01\x02 garbage\r\n\r\n'],
    ['an unknown method', 'STEAL / HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['two lengths', 'POST /items/note HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}'],
    [
      'two framings',
      'POST /items/note HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}',
    ],
    [
      'a broken chunk',
      'POST /auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n',
    ],
  ])('%s is refused and its line cut', async (_what, bytes) => {
    const answer = await send(bytes)
    const [head = '', body = ''] = answer.split('\r\n\r\n')
    expect(head).toMatch(/^HTTP\/1\.1 400 /)
    expect(JSON.parse(body)).toMatchObject({ error: { message: expect.any(String), statusCode: 400 } })
    await isAlive()
  })
})

describe('SQL as a value', () => {
  it('is a value', async () => {
    const value = `'); drop table "note"; --`
    const { body } = await web.call('POST', '/items/note', { text: value })
    const found = await web.call('GET', `/items/note?filter=${encodeURIComponent(JSON.stringify({ text: value }))}`)
    expect(found.body.data).toEqual([expect.objectContaining({ id: body.data.id, text: value })])
  })
})

describe('a fault of ours with EXPOSE_ERROR_DETAILS=false', () => {
  const cases: [what: string, table: string, right: string, ask: () => Promise<Answer>][] = [
    ['in a read', 'note', 'select', () => web.call('GET', '/items/note')],
    ['in a write', 'note', 'insert', () => web.call('POST', '/items/note', { text: 'x' })],
    ['under /auth', 'svc_User', 'select', () => web.call('POST', '/auth/login', administrator, null)],
  ]

  it.each(cases)(
    '%s says nothing but a reference, which is in the log beside the reason',
    async (_, table, right, ask) => {
      await cluster.sql(`revoke ${right} on "${table}" from current_user`)
      const { status, text, body } = await ask()
      await cluster.sql(`grant ${right} on "${table}" to current_user`)
      expect(status).toBe(500)
      const { message, details } = body.error ?? body
      expect([message, text]).toEqual(['Internal server error', expect.not.stringMatching(leak)])
      expect(details).toMatch(/^Reference: \w{8,}$/)
      const line = await web.waitForLine(({ reference }) => details === `Reference: ${reference}`)
      expect(line.sqlState).toBe(insufficientPrivilege)
      expect((await ask()).status).toBeLessThan(300)
    },
  )
})

describe('the log', () => {
  it('is one line of JSON per event, whatever clients say', async () => {
    const evil = '\n{"level":"error","msg":"forged"}\r\x1b[2J\u2028'
    const login = { email: `a${evil}@mail.example`, password: evil }
    const account = { email: 'log@mail.example', password: 'long enough', firstName: evil, lastName: evil }
    await web.call('POST', '/auth/login', login, null)
    expect((await web.call('POST', '/auth/register', account, null)).status).toBe(200)
    await ask({ path: `/items/${encodeURIComponent(evil)}`, headers: { 'user-agent': '\x9b2J' }, status: 404 })
    await ask({ path: '/nowhere', headers: { 'x-request-id': '{"forged"}' }, status: 404 })
    await ask({ path: '/the-end', status: 404 })
    await web.waitForLine(({ path }) => path === '/the-end')
    expect(web.lines.filter(({ msg, text }) => msg === undefined || /[\p{Cc}\u2028]|forged/u.test(text))).toEqual([])
  })
})

const insufficientPrivilege = '42501'

/** Statements, stacks, files and the database's own words. */
const leak =
  /\b(select|insert|update|delete)\s.+\b(from|into|set)\b|\n\s+at |node_modules|\.ts\b|pg_|syntax error|relation "/i

/** The status, or what is wrong with the answer. */
async function outcomeOf(spec: Bad): Promise<unknown> {
  const { status, body } = await ask(spec)
  if (leak.test(body)) return `leaks: ${body}`
  const style: Style = spec.path.startsWith('/auth/') ? 'auth' : 'general'
  const { message, error } = JSON.parse(body)
  const words = style === 'auth' ? message : error?.message
  return typeof words === 'string' && words !== '' ? status : `${status} ${body}`
}

/**
 * Unlike `fetch` it sends paths, methods and headers as they are. A body that is too long is only announced: who
 * goes on sending it may find the line cut before having read why.
 */
async function ask({
  method = 'GET',
  path,
  body,
  headers = {},
  status,
  isUnread = status === 413,
}: Bad): Promise<{ status: number; body: string }> {
  const { hostname, port } = new URL(web.address)
  const payload = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
  const isAnnounced = !('transfer-encoding' in headers)
  const request = openRequest({
    hostname,
    port,
    method,
    path,
    agent: false,
    headers: {
      authorization: `Bearer ${cluster.token}`,
      ...(payload !== undefined && isAnnounced && { 'content-length': Buffer.byteLength(payload) }),
      ...(payload !== body && { 'content-type': 'application/json' }),
      ...headers,
    },
  })
  if (isUnread && isAnnounced) request.flushHeaders()
  else request.end(payload)
  const [response] = await once(request, 'response')
  const answer = { status: response.statusCode, body: await text(response) }
  request.destroy()
  return answer
}

async function send(bytes: string): Promise<string> {
  const { hostname, port } = new URL(web.address)
  const socket = connect(Number(port), hostname)
  socket.write(bytes)
  return text(socket)
}

async function isAlive(): Promise<void> {
  process.kill(web.pid, 0)
  expect((await web.call('GET', '/health', undefined, null)).status).toBe(200)
}

/** Rows of every table and the end of the log. */
async function state(): Promise<unknown> {
  return cluster.sql(`
    select table_name, (xpath('//n/text()', query_to_xml(format('select count(*) as n from %I', table_name), false, true, '')))[1]::text as rows
    from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'
    union all select 'log', coalesce(max(position), 0)::text from "svc_AuditLog" order by 1`)
}
