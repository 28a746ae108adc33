import { execFile as run } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Client, createClient, DaybookError } from '../../clients/client.ts'
import { bundleForBrowsers } from '../../src/adapters/bundler.ts'
import { run as types } from '../../src/cli/types.ts'
import { openLine } from '../faults/line.ts'
import { type Api, startApi } from '../support/api.ts'
import { describeWithBrowser, startBrowser } from '../support/browser.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

const execFile = promisify(run)

let api: Api
let url: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  url = await api.app.listen({ host: '127.0.0.1', port: 0 })
  const make = async (collectionName: string, fields: object) => {
    const { status, text } = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
    expect(status, text).toBe(201)
  }
  await make('board', { name: { type: 'String', allowNull: false } })
  await make('counter', {
    id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
    count: { type: 'Integer' },
  })
  await make('card', {
    title: { type: 'String', allowNull: false },
    state: { type: 'ENUM', values: ['open', 'done'], defaultValue: 'open' },
    points: { type: 'Integer' },
    board: { relType: 'BelongsTo', target: 'board', type: 'UUID' },
  })
})

const opened: Client[] = []
afterAll(() => {
  for (const client of opened) client.close()
})

function clientOf(options: Parameters<typeof createClient>[0] = {}): Client {
  const client = createClient({ url, ...options })
  opened.push(client)
  return client
}

/** A client whose requests are counted, and lost where `isLost` says so. */
function watched(isLost: (n: number) => 'request' | 'answer' | undefined = () => undefined) {
  const asked: { method: string; path: string; key: string | null }[] = []
  const client = clientOf({
    fetch: async (input, init) => {
      const headers = new Headers(init?.headers)
      asked.push({
        method: init?.method ?? 'GET',
        path: new URL(String(input)).pathname,
        key: headers.get('idempotency-key'),
      })
      const lost = isLost(asked.length)
      if (lost === 'request') throw new TypeError('fetch failed')
      const response = await fetch(input, init)
      if (lost === 'answer') throw new TypeError('terminated')
      return response
    },
  })
  return { client, asked }
}

describe('sign-in', () => {
  it('keeps the session, tells of it, and ends it', async () => {
    const client = clientOf()
    const told: string[] = []
    client.auth.onChange((state) => told.push(state))
    expect(client.auth.state).toBe('signed out')
    const signedIn = await client.auth.login(administrator)
    expect(signedIn).toMatchObject({ user: { email: administrator.email }, role: { name: expect.any(String) } })
    expect(signedIn).not.toHaveProperty('token')
    expect(await client.auth.me()).toMatchObject({ user: { email: administrator.email } })
    await client.auth.logout()
    expect(told).toEqual(['signed in', 'signed out'])
    await expect(client.auth.me()).rejects.toMatchObject({ status: 401 })
  })

  it('renews a token before it ends, once for all requests', async () => {
    const kept = new Map<string, string>()
    const store = {
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: (name: string, value: string) => void kept.set(name, value),
      removeItem: (name: string) => void kept.delete(name),
    }
    const client = clientOf({ auth: { store } })
    await client.auth.login(administrator)
    const [name, token] = [...kept][0]!
    // As if it had come to another client, which says nothing of when.
    kept.delete(`${name}:received`)
    // As if most of its life were over: what it says of itself is read by the client only.
    const now = Date.now() / 1000
    const real = JSON.parse(Buffer.from(token.split('.')[1]!, 'base64url').toString())
    const { iat, exp } = real
    expect(exp - iat).toBeGreaterThan(0)
    const parse = JSON.parse
    const old = { ...real, iat: now - 900, exp: now + 100 }
    JSON.parse = (text: string, ...rest: []) => (text === JSON.stringify(real) ? old : parse(text, ...rest))
    onTestFinished(() => {
      JSON.parse = parse
    })
    await Promise.all([client.auth.me(), client.auth.me(), client.items('board').list()])
    JSON.parse = parse
    expect(kept.get(name)).not.toBe(token)
    await expect(api.as(token)('GET', '/auth/me')).resolves.toMatchObject({ status: 401 })
    expect(await client.auth.me()).toMatchObject({ user: { email: administrator.email } })
  })

  it('outlives a renewal whose answer is lost', async () => {
    const kept = new Map<string, string>()
    const store = {
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: (name: string, value: string) => void kept.set(name, value),
      removeItem: (name: string) => void kept.delete(name),
    }
    const renewals: number[] = []
    const client = clientOf({
      auth: { store },
      fetch: async (input, init) => {
        const response = await fetch(input, init)
        if (!String(input).endsWith('/auth/refresh')) return response
        renewals.push(response.status)
        if (renewals.length === 1) throw new TypeError('terminated')
        return response
      },
    })
    const told: string[] = []
    client.auth.onChange((state) => told.push(state))
    await client.auth.login(administrator)
    const [[name, token]] = [...kept] as [[string, string]]
    // As if it had come six of its seven days ago.
    kept.set(`${name}:received`, `${Date.now() - 6 * 86_400_000} ${token.slice(-16)}`)
    expect(await client.auth.me()).toMatchObject({ user: { email: administrator.email } })
    expect(renewals).toEqual([200, 200])
    expect(kept.get(name)).not.toBe(token)
    expect(told).toEqual(['signed in'])
    await expect(api.as(token)('POST', '/auth/refresh')).resolves.toMatchObject({ status: 401 })
  })

  it('outlives a renewal while a request is on its way', async () => {
    const kept = new Map<string, string>()
    const store = {
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: (name: string, value: string) => void kept.set(name, value),
      removeItem: (name: string) => void kept.delete(name),
    }
    let isRenewed = false
    const client = clientOf({
      auth: { store },
      fetch: async (input, init) => {
        if (!isRenewed && String(input).endsWith('/auth/me')) {
          isRenewed = true
          const [[name, token]] = [...kept] as [[string, string]]
          kept.set(name, (await api.as(token)('POST', '/auth/refresh', { authMode: 'jwt' })).body.token)
        }
        return fetch(input, init)
      },
    })
    await client.auth.login(administrator)
    expect(await client.auth.me()).toMatchObject({ user: { email: administrator.email } })
    expect(client.auth.state).toBe('signed in')
  })

  it('of a social provider completes for a role that may not read users', async () => {
    const { token, id } = await api.user()
    const client = clientOf()
    const back = `https://app.example/back?token=${token}`
    expect(await client.auth.completeSocialLogin(back)).toEqual({ user: { id }, tenant: null })
    expect(client.auth.state).toBe('signed in')
  })

  it('tells why it was refused', async () => {
    const refused = await clientOf()
      .auth.login({ ...administrator, password: 'another one' })
      .catch((error: DaybookError) => error)
    expect(refused).toBeInstanceOf(DaybookError)
    expect(refused).toMatchObject({ status: 400, code: 'BAD_REQUEST', requestId: expect.any(String) })
  })
})

describe('items', () => {
  let client: Client
  beforeAll(async () => {
    client = clientOf()
    await client.auth.login(administrator)
  })

  it('are made, read with relations, changed and deleted', async () => {
    const board = await client.items('board').create({ name: 'Home' })
    const cards = client.items('card')
    const [first, second] = await cards.createMany([
      { title: 'Sweep', points: 1, board_Id: board },
      { title: 'Dust', points: 2, board_Id: board },
    ])
    const { data, totalCount } = await cards.list({
      fields: ['title', 'board.name'],
      filter: { board_Id: board as string },
      sort: ['-points'],
      count: true,
    })
    expect(data).toEqual([
      { title: 'Dust', board: { id: board, name: 'Home' } },
      { title: 'Sweep', board: { id: board, name: 'Home' } },
    ])
    expect(totalCount).toBe(2)
    const { row, etag } = await cards.readVersion(first!)
    expect(row).toMatchObject({ title: 'Sweep', state: 'open' })
    await cards.update(first!, { state: 'done' }, { ifMatch: etag! })
    await expect(cards.update(first!, { state: 'open' }, { ifMatch: etag! })).rejects.toMatchObject({ status: 412 })
    const report = await cards.report({
      aggregate: { n: { function: 'count', field: '*' } },
      groupBy: ['state'],
      filter: { board_Id: board as string },
      sort: ['state'],
    })
    expect(report.data.map(({ state, n }) => [state, n])).toEqual([
      ['done', 1],
      ['open', 1],
    ])
    const named = await cards.report({
      aggregate: { n: { function: 'count', field: '*' } },
      groupBy: ['board_Id'],
      fields: ['board.name'],
      ...{ search: 'Dust', searchFields: ['title'], sort: { n: 'desc' }, page: 1, limit: 5, count: false },
    })
    expect(named).toEqual({ data: [{ board_Id: board, n: 1, board: { id: board, name: 'Home' } }] })
    const found = await cards.list({ search: 'Dust', sortByRelevance: true, fields: ['title'] })
    expect(found.data).toEqual([{ title: 'Dust' }])
    await cards.delete(second!)
    await expect(cards.read(second!)).rejects.toMatchObject({ status: 403 })
    const trash = await cards.deleted()
    const gone = trash.data.find(({ id }) => id === second)!
    const deletion = (await cards.history(second!)).data[0]!
    expect(gone.requestId).toEqual(expect.any(String))
    expect(deletion).toMatchObject({ action: 'delete', requestId: gone.requestId })
    await cards.restore(second!, { before: gone.event })
    expect(await cards.read(second!)).toMatchObject({ title: 'Dust', board_Id: board })
    const { data: history } = await cards.history(first!)
    expect(history.map(({ action }) => action)).toEqual(['update', 'create'])
  })

  it.each(['', '.', '..'])('are not found by %j, which leads to another address', async (key) => {
    const { client, asked } = watched()
    await client.auth.login(administrator)
    asked.length = 0
    const { files } = client
    const boards = client.items('board')
    const live = client.live({ collection: 'board' })
    const refused = [
      ...[boards.read(key), boards.readVersion(key), boards.update(key, { name: 'a' }), boards.delete(key)],
      ...[boards.history(key), boards.restore(key, { event: '1' }), live.update(key, { name: 'a' }), live.delete(key)],
      ...[files.read(key), files.delete(key), files.signedAddress(key, 60)],
    ]
    const error = { code: 'NO_KEY', status: 0, message: expect.stringContaining(JSON.stringify(key)) }
    for (const one of await Promise.allSettled(refused))
      expect(one).toMatchObject({ status: 'rejected', reason: error })
    expect(asked).toEqual([])
    live.close()
  })

  it('are changed and deleted in one request, all or none', async () => {
    const cards = client.items('card')
    const ids = await cards.createMany([{ title: 'many' }, { title: 'many' }])
    const many = { fields: ['points'], filter: { title: 'many' }, sort: ['points'] } as const
    const changed = (points: number) => ids.map((id, n) => ({ id, data: { points: points + n } }))
    await cards.updateMany(changed(5))
    const unknown = '00000000-0000-4000-8000-000000000000'
    const missed = cards.updateMany([...changed(7), { id: unknown, data: { points: 9 } }])
    await expect(missed).rejects.toMatchObject({ status: 403 })
    expect((await cards.list(many)).data).toEqual([{ points: 5 }, { points: 6 }])
    await expect(cards.deleteMany([...ids, unknown])).rejects.toMatchObject({ status: 403 })
    await cards.deleteMany(ids)
    expect((await cards.list(many)).data).toEqual([])
  })

  it('are read page by page, each once', async () => {
    const board = await client.items('board').create({ name: 'Many' })
    await client.items('card').createMany(Array.from({ length: 25 }, (_, n) => ({ title: `c${n}`, board_Id: board })))
    const seen: unknown[] = []
    for await (const { id } of client.items('card').each({ filter: { board_Id: board as string }, limit: 10 }))
      seen.push(id)
    expect(new Set(seen).size).toBe(25)
    expect(seen).toHaveLength(25)
  })

  it('are asked for by a body where the query is long', async () => {
    const { client: own, asked } = watched()
    await own.auth.login(administrator)
    const names = Array.from({ length: 1500 }, (_, n) => `nobody ${n}`)
    const { data } = await own.items('card').list({ filter: { title: { in: ['Sweep', ...names] } }, fields: ['title'] })
    expect(data).toEqual([{ title: 'Sweep' }])
    expect(asked.at(-1)).toMatchObject({ method: 'POST', path: '/reports/card' })
    await own.items('board').createMany(Array.from({ length: 12 }, (_, n) => ({ name: `long ${n}` })))
    const filter = { name: { in: [...names, ...Array.from({ length: 12 }, (_, n) => `long ${n}`)] } }
    expect((await own.items('board').list({ filter, page: 1 })).data).toHaveLength(10)
    expect((await own.items('board').list({ filter, page: 2 })).data).toHaveLength(2)
    expect((await own.items('board').list({ filter, page: 1, limit: 7 })).data).toHaveLength(7)
    expect(asked.at(-1)).toMatchObject({ method: 'POST', path: '/reports/board' })
    const refused = { status: 431, code: 'QUERY_TOO_LONG', message: expect.stringContaining('with a cursor') }
    await expect(own.items('board').each({ filter }).next()).rejects.toMatchObject(refused)
    await expect(own.items('board').list({ filter, changesCursor: true })).rejects.toMatchObject(refused)
  })
})

describe('an upsert', () => {
  it('finds its item by the primary key, unless fields are named', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const boards = client.items('board')
    const id = crypto.randomUUID()
    const position = await api.position()
    expect(await boards.upsert({ id, name: 'first' })).toBe(id)
    expect(await boards.upsert({ id, name: 'second' })).toBe(id)
    expect(await boards.read(id)).toMatchObject({ name: 'second' })
    const events = (await api.log(position)).filter(({ entity }) => entity === 'board')
    expect(events.map(({ action, entityId }) => [action, entityId])).toEqual([
      ['create', id],
      ['update', id],
    ])
    await expect(boards.upsert({ name: 'keyless' })).rejects.toMatchObject({ status: 400 })
    await expect(boards.upsert({ id, name: 'unique?' }, { by: ['name'] })).rejects.toMatchObject({ status: 400 })
  })
})

describe('a request without an answer', () => {
  it('is sent again, and done once', async () => {
    // The first is the sign-in; the write's answer is lost, and the write after it is lost itself.
    const { client, asked } = watched((n) => (n === 2 ? 'answer' : n === 3 ? 'request' : undefined))
    await client.auth.login(administrator)
    const position = await api.position()
    const id = await client.items('board').create({ name: 'Once' })
    expect(asked).toHaveLength(4)
    expect(new Set(asked.slice(1).map(({ key }) => key)).size).toBe(1)
    const events = (await api.log(position)).filter(({ entity }) => entity === 'board')
    expect(events.map(({ action, entityId }) => [action, entityId])).toEqual([['create', id]])
  })

  it('is told of, where it stays away', async () => {
    const client = clientOf({ url: 'http://127.0.0.1:9', attempts: 2 })
    await expect(client.items('board').list()).rejects.toMatchObject({ status: 0, code: 'NO_ANSWER' })
  })

  it.each(['localhost:8055', 'nonsense', '/api', ''])('is not sent to %j, which is no address', (wrong) => {
    expect(() => createClient({ url: wrong })).toThrow(expect.objectContaining({ code: 'NO_URL', status: 0 }))
  })

  it('waits for the next attempt no longer than its signal says', async () => {
    const controller = new AbortController()
    const { client, asked } = watched(() => {
      queueMicrotask(() => controller.abort(new Error('enough')))
      return 'request'
    })
    await expect(client.items('board').list({ signal: controller.signal })).rejects.toThrow('enough')
    expect(asked).toHaveLength(1)
  })
})

describe('files', () => {
  it('are uploaded in pieces, over lost answers and refusals that pass, and shown by a signed address', async () => {
    let begun = 0
    let pieces = 0
    const { client } = watched()
    await client.auth.login(administrator)
    const content = Buffer.alloc(11 * 1_048_576, 'daybook ')
    const shares: number[] = []
    const lossy = clientOf({
      auth: { token: (await api.anonymous('POST', '/auth/login', administrator)).body.token },
      fetch: async (input, init) => {
        if (init?.method === 'POST' && begun++ === 0) throw new TypeError('fetch failed')
        if (init?.method === 'PATCH' && pieces++ === 0)
          return Response.json({ message: 'Too many requests' }, { status: 429, headers: { 'retry-after': '0' } })
        const response = await fetch(input, init)
        if (init?.method === 'PATCH' && pieces === 3) throw new TypeError('terminated')
        return response
      },
    })
    const id = await lossy.files.upload(new Blob([content], { type: 'text/plain' }), {
      filename: 'ä large.txt',
      title: 'Large',
      onProgress: (share) => shares.push(share),
    })
    expect(await client.files.read(id)).toMatchObject({ originalFilename: 'ä large.txt', size: content.length })
    expect(shares.at(-1)).toBe(1)
    const address = await client.files.signedAddress(id, 60)
    const answer = await fetch(address)
    expect(Buffer.from(await answer.arrayBuffer()).equals(content)).toBe(true)
    await client.files.delete(id)
    expect((await fetch(address)).status).toBe(404)
  })
})

describe('uploads that are given up', () => {
  const unfinished = async () => (await api.sql('select id from "svc_Upload" where "file_Id" is null')).length
  const content = new Blob([Buffer.alloc(6 * 1_048_576)])

  it('end at the server, where they are aborted between pieces or within one', async () => {
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const between = new AbortController()
    const options = { signal: between.signal, onProgress: () => between.abort() }
    const client = clientOf({ auth: { token } })
    await expect(client.files.upload(content, options)).rejects.toMatchObject({ name: 'AbortError' })
    await waitFor(async () => ((await unfinished()) === 0 ? true : undefined))
    const within = new AbortController()
    const slow = clientOf({
      auth: { token },
      fetch: async (input, init) => {
        if (init?.method === 'PATCH') queueMicrotask(() => within.abort())
        return fetch(input, init)
      },
    })
    await expect(slow.files.upload(content, { signal: within.signal })).rejects.toMatchObject({ name: 'AbortError' })
    await waitFor(async () => ((await unfinished()) === 0 ? true : undefined))
  })

  it('end at the server, where they have failed for good', async () => {
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const client = clientOf({
      auth: { token },
      fetch: async (input, init) => {
        if (init?.method !== 'PATCH') return fetch(input, init)
        return Response.json({ message: 'No room', code: 'QUOTA_EXCEEDED' }, { status: 413 })
      },
    })
    await expect(client.files.upload(content)).rejects.toMatchObject({ code: 'QUOTA_EXCEEDED' })
    await waitFor(async () => ((await unfinished()) === 0 ? true : undefined))
  })

  it('are refused at once where there are too many', async () => {
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    let asked = 0
    const client = clientOf({
      auth: { token },
      fetch: async (input, init) => {
        asked += 1
        return fetch(input, init)
      },
    })
    for (let n = 0; n < 100; n += 1) {
      const headers = { authorization: `Bearer ${token}`, 'tus-resumable': '1.0.0', 'upload-length': '9' }
      expect((await fetch(`${url}/files/tus`, { method: 'POST', headers })).status).toBe(201)
    }
    await expect(client.files.upload(content)).rejects.toMatchObject({ status: 429, code: 'TOO_MANY_UPLOADS' })
    expect(asked).toBe(1)
    await api.sql('delete from "svc_Upload"')
  })
})

describe('a server under a path', () => {
  /** Hands to the server what is under the prefix, without it. */
  const proxied = async (prefix: string) => {
    const inside = (request: IncomingMessage) => {
      const isInside = request.url!.startsWith(`${prefix}/`)
      request.url = request.url!.slice(prefix.length)
      return isInside
    }
    const proxy = createServer((request, response) => {
      if (inside(request)) api.app.server.emit('request', request, response)
      else response.writeHead(404).end()
    })
    proxy.on('upgrade', (request, socket, head) => {
      if (inside(request)) api.app.server.emit('upgrade', request, socket, head)
      else socket.destroy()
    })
    await once(proxy.listen(0, '127.0.0.1'), 'listening')
    onTestFinished(() => void proxy.close())
    return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${prefix}`
  }

  it.each(['/api', '/files', '/deep/down'])('has live rows and files there: %s', async (prefix) => {
    const client = clientOf({ url: await proxied(prefix), attempts: 1 })
    await client.auth.login(administrator)
    const live = client.live({ collection: 'board' })
    const report = client.liveReport({ collection: 'board', aggregate: { n: { function: 'count', field: '*' } } })
    await waitFor(() => (live.view.status === 'live' && report.view.status === 'live' ? true : undefined))
    const id = await client.files.upload(new Blob(['under a path']), { filename: 'under.txt' })
    const answer = await fetch(await client.files.signedAddress(id, 60))
    expect(await answer.text()).toBe('under a path')
    await client.files.delete(id)
    client.close()
  })

  it('takes uploads also where the proxy puts the path before the place of one', async () => {
    const client = clientOf({
      url: await proxied('/api'),
      fetch: async (input, init) => {
        const answer = await fetch(input, init)
        const place = answer.headers.get('location')
        if (place === null) return answer
        return new Response(null, { status: answer.status, headers: { location: `/api${place}` } })
      },
    })
    await client.auth.login(administrator)
    const id = await client.files.upload(new Blob(['under a path']))
    expect(await client.files.read(id)).toMatchObject({ size: 12 })
    await client.files.delete(id)
  })
})

describe('changes and undo', () => {
  it('are read by cursor, and taken back', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const { cursor } = await client.changes()
    const id = await client.items('board').create({ name: 'Undone' })
    const page = await waitFor(async () => {
      const found = await client.changes({ since: cursor, collections: ['board'] })
      return found.data.length > 0 ? found : undefined
    })
    expect(page.data[0]).toMatchObject({ action: 'create', id, data: { name: 'Undone' } })
    const plan = await client.undo({ position: page.data[0]!.position, dryRun: true })
    expect(plan).toBeTruthy()
    const { data } = await client.changes({ since: cursor, collections: ['board'], fields: ['board.id'] })
    expect(data[0]!.data).toEqual({ id })
    const listed = await client.items('board').list({ filter: { id }, changesCursor: true })
    await client.undo({ position: page.data[0]!.position })
    const gone = await waitFor(async () => {
      const found = await client.changes({ since: listed.changesCursor, collections: ['board'] })
      return found.data.length > 0 ? found.data : undefined
    })
    expect(gone).toEqual([expect.objectContaining({ collection: 'board', action: 'delete', id })])
    expect(gone[0]).not.toHaveProperty('data')
    await expect(client.items('board').read(id)).rejects.toMatchObject({ status: 403 })
  })
})

describe('live rows', () => {
  it('are true, show writes at once, and take refused ones back', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const board = (await client.items('board').create({ name: 'Live' })) as string
    await client.items('card').create({ title: 'b', board_Id: board })
    const live = client.live({ collection: 'card', filter: { board_Id: board }, sort: ['title'] })
    const titles = () => live.view.rows.map(({ title }) => title)
    await waitFor(() => (live.view.status === 'live' ? true : undefined))
    expect(titles()).toEqual(['b'])
    const made = live.create({ title: 'a', board_Id: board, state: 'open' })
    expect(titles()).toEqual(['a', 'b'])
    const id = await made
    await waitFor(() => (live.view.rows.some((row) => row.id === id && row.createdAt) ? true : undefined))
    expect(titles()).toEqual(['a', 'b'])
    const refused = live.update(id, { state: 'no such state' })
    expect(live.view.rows.find((row) => row.id === id)).toMatchObject({ state: 'no such state' })
    await expect(refused).rejects.toMatchObject({ status: 400 })
    expect(live.view.rows.find((row) => row.id === id)).toMatchObject({ state: 'open' })
    await api.sql(`update card set title = 'z' where id = '${id}'`)
    await waitFor(() => (titles().join() === 'b,z' ? true : undefined))
    const gone = live.delete(id)
    expect(titles()).toEqual(['b'])
    await gone
    // Another query of the same collection, with other rows.
    const other = client.live({ collection: 'card', filter: { title: 'Sweep' } })
    await waitFor(() => (other.view.status === 'live' ? true : undefined))
    expect(other.view.rows.map(({ title }) => title)).toEqual(['Sweep'])
    expect(titles()).toEqual(['b'])
    live.close()
    other.close()
  })

  it('leave nothing of rows that leave the query, nor of what the server has no word about', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const board = await client.items('board').create({ name: 'Leaving' })
    const titles = Array.from({ length: 10 }, (_, n) => `leaves ${n}`)
    const made = titles.map((title) => ({ title, board_Id: board }))
    const ids = await client.items('card').createMany([...made, { title: 'stays', board_Id: board, points: 7 }])
    const filter = { board_Id: board as string, state: 'open' }
    const live = client.live({ collection: 'card', filter, sort: ['title'] })
    await waitFor(() => (live.view.rows.length === 11 ? true : undefined))
    const unchanged = live.update(ids[10]!, { points: '7' })
    expect(live.view.rows.at(-1)).toMatchObject({ points: '7' })
    const elsewhere = live.create({ title: 'elsewhere', state: 'done', board_Id: board })
    expect(live.view.rows).toHaveLength(12)
    await Promise.all([unchanged, elsewhere, ...ids.slice(0, 10).map((id) => live.update(id, { state: 'done' }))])
    const shown = () => live.view.rows.map(({ id, title, points }) => ({ id, title, points }))
    const stays = { id: ids[10], title: 'stays', points: 7 }
    await waitFor(() => (JSON.stringify(shown()) === JSON.stringify([stays]) ? true : undefined))
    // What had to be asked for has cost nothing of what is told.
    await api.admin('PATCH', `/items/card/${ids[0]}`, { state: 'open' })
    await waitFor(() => (live.view.rows.length === 2 ? true : undefined))
    expect(live.view.status).toBe('live')
    live.close()
  })

  it('are told apart by their key, whatever its name, and sorted as the server sorts them', async () => {
    const fields = {
      sku: { type: 'String', primaryKey: true },
      price: { type: 'Decimal', values: { precision: 12, scale: 2 } },
      code: { type: 'String' },
    }
    const { status, text } = await api.admin('POST', '/schemas', { collectionName: 'ware', schema: { fields } })
    expect(status, text).toBe(201)
    const client = clientOf()
    await client.auth.login(administrator)
    const wares = client.items('ware')
    await wares.createMany([
      { sku: 'a', price: 10, code: '10' },
      { sku: 'b', price: 9.5, code: '9' },
    ])
    for (const sort of [['price'], ['code'], ['-price']]) {
      const live = client.live({ collection: 'ware', fields: ['price', 'code'], sort })
      await waitFor(() => (live.view.status === 'live' && live.view.rows.length > 0 ? true : undefined))
      expect(live.view.rows).toEqual((await wares.list({ fields: ['sku', 'price', 'code'], sort })).data)
      live.close()
    }
    const live = client.live({ collection: 'ware', sort: ['price'] })
    const skus = () => live.view.rows.map(({ sku }) => sku).join()
    await waitFor(() => (skus() === 'b,a' ? true : undefined))
    const made = live.create({ sku: 'c', price: 9.75 })
    expect(skus()).toBe('b,c,a')
    expect(await made).toBe('c')
    await waitFor(() => (live.view.rows[1]?.price === '9.75' ? true : undefined))
    await live.delete('a')
    await waitFor(() => (skus() === 'b,c' ? true : undefined))
    live.close()
  })

  it('show at once what gets its key from the server', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const live = client.live({ collection: 'counter', sort: ['count'] })
    await waitFor(() => (live.view.status === 'live' ? true : undefined))
    const seen: number[] = []
    live.subscribe(() => seen.push(live.view.rows.length))
    const first = live.create({ count: 1 })
    expect(live.view.rows).toMatchObject([{ count: 1 }])
    const ids = [await first, await live.create({ count: 2 })]
    expect(ids).toEqual([1, 2])
    await waitFor(() => (live.view.rows.every(({ createdAt }) => createdAt) ? true : undefined))
    expect(live.view.rows.map(({ id }) => id)).toEqual(ids)
    await expect(live.create({ count: 'many' })).rejects.toMatchObject({ status: 400 })
    expect(live.view.rows.map(({ id }) => id)).toEqual(ids)
    live.close()
  })
})

describe('the module', () => {
  it('is served to any page, as it is or not at all', async () => {
    const answer = await fetch(`${url}/client.js`)
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toBe('text/javascript; charset=utf-8')
    expect(answer.headers.get('access-control-allow-origin')).toBe('*')
    const digest = answer.headers.get('content-digest')!
    const body = Buffer.from(await answer.arrayBuffer())
    const hash = Buffer.from(await crypto.subtle.digest('SHA-512', body)).toString('base64')
    expect(digest).toBe(`sha-512=:${hash}:`)
    const again = await fetch(`${url}/client.js`, { headers: { 'if-none-match': answer.headers.get('etag')! } })
    expect(again.status).toBe(304)
  })

  it('is small', async () => {
    const entry = new URL('../../clients/client.ts', import.meta.url).pathname
    const size = gzipSync(await bundleForBrowsers(entry, ['socket.io-client'])).length
    expect(size).toBeLessThan(20_000)
  })
})

/** As text: what loads modules for the tests has no business in a page. */
const load = `import('/client.js').then(({ createClient }) => { window.client = createClient() })`

describeWithBrowser('in a browser', () => {
  it('shares the session between tabs, keeps rows over a reload without a network, and catches up', async () => {
    const browser = await startBrowser()
    const context = await browser.newContext()
    onTestFinished(() => context.close())
    // The browser's own switch leaves sockets to this machine alone.
    const line = await openLine(url)
    onTestFinished(() => line.close())
    const open = async () => {
      const page = await context.newPage()
      // A page of our own origin whose policy lets it run no other scripts.
      await page.goto(`${line.address}/docs`)
      await page.evaluate(load)
      return page
    }
    const first = await open()
    await first.evaluate((who) => (window as any).client.auth.login(who), administrator)
    const second = await open()
    expect(await second.evaluate(() => (window as any).client.auth.state)).toBe('signed in')
    const board = await second.evaluate(() => (window as any).client.items('board').create({ name: 'Tabs' }))
    const look = (id: string) => {
      const live = (window as any).client.live({ collection: 'card', filter: { board_Id: id }, sort: ['title'] })
      Object.assign(window, { live })
    }
    const shown = () => ({
      status: (window as any).live.view.status,
      titles: (window as any).live.view.rows.map(({ title }: { title: string }) => title),
    })
    for (const page of [first, second]) {
      await page.evaluate(look, board)
      await waitFor(async () => ((await page.evaluate(shown)).status === 'live' ? true : undefined))
    }
    await first.evaluate((id) => (window as any).live.create({ title: 'one', board_Id: id }), board)
    await waitFor(async () => ((await second.evaluate(shown)).titles.join() === 'one' ? true : undefined))
    // The rows are kept a moment after they have changed.
    for (const page of [first, second]) await page.evaluate(() => (window as any).live.close())
    await first.evaluate((id) => (window as any).client.items('card').create({ title: 'two', board_Id: id }), board)
    await second.reload()
    await second.evaluate(load)
    line.block(true)
    await second.evaluate(look, board)
    const kept = await waitFor(async () => {
      const found = await second.evaluate(shown)
      return found.titles.length > 0 ? found : undefined
    })
    expect(kept.titles).toEqual(['one'])
    line.block(false)
    await waitFor(async () => ((await second.evaluate(shown)).titles.join() === 'one,two' ? true : undefined))
    await first.evaluate(() => (window as any).client.auth.logout())
    await waitFor(async () =>
      (await second.evaluate(() => (window as any).client.auth.state)) === 'signed out' ? true : undefined,
    )
  })

  it('shows rows in React, those of another query when it changes, and follows none afterwards', async () => {
    const browser = await startBrowser()
    const page = await browser.newPage()
    onTestFinished(() => page.close())
    const boards: string[] = []
    for (const name of ['Here', 'There']) boards.push((await api.admin('POST', '/items/board', { name })).body.data.id)
    const add = (title: string, at: number) => api.admin('POST', '/items/card', { title, board_Id: boards[at] })
    await add('one', 0)
    await add('elsewhere', 1)
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    await page.goto(`${url}/docs`)
    await page.evaluate((text) => {
      const body = (globalThis as any).document.body
      body.innerHTML = '<div id="cards"></div>'
      body.firstChild.textContent = text
    }, JSON.stringify({ boards, token }))
    await page.evaluate((await bundleForBrowsers(join(import.meta.dirname, 'react-page.ts'))).toString())
    const shows = (text: string) =>
      waitFor(async () => ((await page.textContent('output')) === text ? true : undefined))
    await shows('live: one')
    await add('two', 0)
    await shows('live: one,two')
    await page.evaluate(`document.getElementById('add').click()`)
    await shows('live: by React,one,two')
    await page.evaluate(`document.getElementById('other').click()`)
    await shows('live: elsewhere')
    const drawn: [number, string, boolean][] = await page.evaluate('drawn')
    // Not even for a moment the rows of the query before.
    expect(drawn.find(([at]) => at === 1)).toEqual([1, 'loading: ', false])
    expect(drawn.filter(([at, text]) => at === 1 && text.includes('one'))).toEqual([])
    await add('more', 1)
    await shows('live: elsewhere,more')
    await page.evaluate(`document.getElementById('cards').dispatchEvent(new Event('leave'))`)
    expect(await page.textContent('#cards')).toBe('')
  })

  it('shows rows in React again after the next sign-in, unless the hook is gone', async () => {
    const page = await (await startBrowser()).newPage()
    onTestFinished(() => page.close())
    const { id } = (await api.admin('POST', '/items/board', { name: 'Left and entered' })).body.data
    await api.admin('POST', '/items/card', { title: 'kept', board_Id: id })
    await page.goto(`${url}/docs`)
    await page.evaluate(
      (text) => {
        const body = (globalThis as any).document.body
        body.innerHTML = '<div id="cards"></div>'
        body.firstChild.textContent = text
      },
      JSON.stringify({ boards: [id] }),
    )
    await page.evaluate((await bundleForBrowsers(join(import.meta.dirname, 'react-page.ts'))).toString())
    const shows = (text: string) =>
      waitFor(async () => ((await page.textContent('output')) === text ? true : undefined))
    const signIn = `client.auth.login(${JSON.stringify(administrator)})`
    await shows('broken: ')
    await page.evaluate(signIn)
    await shows('live: kept')
    await page.evaluate('client.auth.logout()')
    await shows('ended: ')
    await page.evaluate(signIn)
    await shows('live: kept')
    await page.evaluate(`document.getElementById('cards').dispatchEvent(new Event('leave'))`)
    const drawings = await page.evaluate('drawn.length')
    await page.evaluate(`client.auth.logout().then(() => ${signIn})`)
    expect(await page.evaluate('drawn.length')).toBe(drawings)
  })
})

describe('what is live', () => {
  const memory = () => {
    const kept = new Map<string, string>()
    return {
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: (name: string, value: string) => void kept.set(name, value),
      removeItem: (name: string) => void kept.delete(name),
    }
  }
  const opened = async (client: Client) => {
    const live = client.live({ collection: 'board' })
    const report = client.liveReport({ collection: 'board', aggregate: { n: { function: 'count', field: '*' } } })
    await waitFor(() => (live.view.status === 'live' && report.view.status === 'live' ? true : undefined))
    return [live, report]
  }
  const ended = (error: string | RegExp) => ({
    rows: [],
    status: 'ended',
    error: expect.objectContaining({ final: true, message: expect.stringMatching(error) }),
  })

  it('ends with the session, and begins anew with the next one', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const live = await opened(client)
    await client.auth.logout()
    for (const { view } of live) expect(view).toEqual(ended('signed in'))
    await client.auth.login(administrator)
    for (const { view } of await opened(client)) expect(view.rows.length).toBeGreaterThan(0)
  })

  it('begins with the sign-in where it was opened before', async () => {
    expect((await api.admin('POST', '/items/board', { name: 'There before' })).status).toBe(201)
    const client = clientOf()
    const live = client.live({ collection: 'board' })
    const report = client.liveReport({ collection: 'board', aggregate: { n: { function: 'count', field: '*' } } })
    const refused = { status: 'broken', error: { final: false, message: 'No authentication token provided' } }
    await waitFor(() => (live.view.status === 'loading' ? undefined : true))
    expect(live.view).toMatchObject(refused)
    await client.auth.login(administrator)
    await waitFor(() => (live.view.status === 'live' && report.view.status === 'live' ? true : undefined))
    expect(live.view.rows.length).toBeGreaterThan(0)
  })

  it('ends where the token that was given is empty, since nobody will sign in', async () => {
    const live = clientOf({ auth: { token: '' } }).live({ collection: 'board' })
    await waitFor(() => (live.view.status === 'ended' ? true : undefined))
    expect(live.view).toEqual(ended('No authentication token provided'))
  })

  it('ends where another client signs out, which shares the store or only the server', async () => {
    const store = memory()
    const [one, other] = [clientOf({ auth: { store } }), clientOf({ auth: { store } })]
    await one.auth.login(administrator)
    const live = await opened(other)
    await one.auth.logout()
    await waitFor(() => (live.every(({ view }) => view.status === 'ended') ? true : undefined))
    for (const { view } of live) expect(view).toEqual(ended('signed in'))
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const fixed = await opened(clientOf({ auth: { token } }))
    await api.as(token)('POST', '/auth/logout', {})
    await waitFor(() => (fixed.every(({ view }) => view.status === 'ended') ? true : undefined))
    for (const { view } of fixed) expect(view).toEqual(ended('Invalid or expired token'))
  })
})

describe('a live report', () => {
  it('has the rows of now, over a break of the connection, until it is closed', async () => {
    const line = await openLine(url)
    onTestFinished(() => line.close())
    const client = clientOf({ url: line.address })
    await client.auth.login(administrator)
    const board = await client.items('board').create({ name: 'Counted' })
    const report = client.liveReport({
      collection: 'card',
      aggregate: { cards: { function: 'count', field: '*' } },
      filter: { board_Id: board },
    })
    const seen: string[] = []
    report.subscribe(() => void seen.push(report.view.status))
    const counted = (count: number) =>
      waitFor(() => (report.view.status === 'live' && Number(report.view.rows[0]?.cards) === count ? true : undefined))
    await counted(0)
    await client.items('card').create({ title: 'one', board_Id: board })
    await counted(1)
    line.cut()
    await waitFor(() => (seen.includes('broken') ? true : undefined))
    await api.admin('POST', '/items/card', { title: 'two', board_Id: board })
    await counted(2)
    report.close()
    const last = report.view
    await client.items('card').create({ title: 'three', board_Id: board })
    expect(report.view).toBe(last)
  })

  it('ends with what the server has against it', async () => {
    const client = clientOf()
    await client.auth.login(administrator)
    const report = client.liveReport({ collection: 'nothing', aggregate: { n: { function: 'count', field: '*' } } })
    await waitFor(() => (report.view.status === 'ended' ? true : undefined))
    expect(report.view.error?.message).toMatch(/nothing/)
  })
})

describe('daybook types', () => {
  /** What a page would compile against the written types; an error expected and not there is one, too. */
  const wrong = async (directory: string, schema: string, body: string) => {
    const clients = join(import.meta.dirname, '../../clients')
    await writeFile(join(directory, 'schema.ts'), schema)
    await writeFile(
      join(directory, 'page.ts'),
      `import { createClient } from '${clients}/client.ts'\nimport type { Schema } from './schema.ts'\nconst client = createClient<Schema>()\n${body}`,
    )
    const options = { allowImportingTsExtensions: true, noEmit: true, strict: true, skipLibCheck: true, types: [] }
    const config = { extends: join(clients, 'tsconfig.json'), compilerOptions: options, include: ['.'], exclude: [] }
    await writeFile(join(directory, 'tsconfig.json'), JSON.stringify(config))
    const tsc = join(import.meta.dirname, '../../node_modules/typescript/bin/tsc')
    return execFile(process.execPath, [tsc, '-p', directory]).then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    )
  }

  const typedDirectory = async () => {
    const caches = join(import.meta.dirname, '../../node_modules/.cache')
    await mkdir(caches, { recursive: true })
    const directory = await mkdtemp(join(caches, 'daybook-typed-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    return directory
  }

  it('need the rows that a new one cannot be without, which may be hidden all the same', async () => {
    const directory = await typedDirectory()
    const make = (collectionName: string, schema: object) => api.admin('POST', '/schemas', { collectionName, schema })
    await make('writer', { paranoid: true, fields: { name: { type: 'String' }, fee: { type: 'Decimal' } } })
    const author = { relType: 'BelongsTo', target: 'writer', type: 'UUID', allowNull: false, onDelete: 'CASCADE' }
    const made = await make('essay', { fields: { title: { type: 'String', allowNull: false }, author } })
    expect(made.status, made.text).toBe(201)
    const { text } = await api.admin('GET', '/schemas-types')
    const body = `
      const essays = client.items('essay')
      export const first = essays.create({ title: 'a', author_Id: 'key' })
      export const second = essays.create({ title: 'a', author: { name: 'Ada' } })
      // @ts-expect-error no author
      export const third = essays.create({ title: 'a' })
      export const author = (await essays.list({ fields: ['title', 'author.name'] })).data[0]?.author
      // @ts-expect-error the author may be in the trash
      export const name = author!.name && (await essays.list({ fields: ['author.name'] })).data[0]!.author.name
    `
    expect(await wrong(directory, text, body)).toBe('')
    const client = clientOf()
    await client.auth.login(administrator)
    const writer = await client.items('writer').create({ name: 'Ada', fee: '9.50' })
    await client.items('essay').create({ title: 'a', author_Id: writer })
    const aggregate = { most: { function: 'max', field: 'fee' } } as const
    expect((await client.items('writer').report({ aggregate })).data).toEqual([{ most: 9.5 }])
    const grouped = await client.items('essay').report({
      aggregate: { n: { function: 'count', field: '*' } },
      groupBy: ['author.name', 'date:year:createdAt'],
    })
    const year = new Date().getUTCFullYear()
    expect(grouped.data).toEqual([
      {
        ...{ n: 1, 'author.name': 'Ada', author_name: 'Ada', author: { id: writer, name: 'Ada' } },
        ...{ 'date:year:createdAt': year, year_createdAt: year },
      },
    ])
    await client.items('writer').delete(writer)
    const [essay] = (await client.items('essay').list({ fields: ['title', 'author.name'], filter: {} })).data
    expect(essay).toEqual({ title: 'a', author: null })
  })

  it('hold of system collections what the server takes, and refuse what it refuses', async () => {
    const { text } = await api.admin('GET', '/schemas-types')
    const directory = await typedDirectory()
    const body = `
      export const renamed = client.items('svc_User').update('id', { firstName: 'Ada', password: 'new' })
      export const seen = client.items('svc_Notification').update('id', { seen: true })
      export const role = client.items('svc_Role').create({ name: 'clerk' })
      export const kept = client.items('svc_UserPreference')
        .create({ collectionName: 'task', preferenceType: 'columns', preferenceData: {} })
      export const titled = client.items('svc_File').update('id', { title: 'Plan' })
      export const undone = client.items('svc_AuditLog').delete('1')
      // @ts-expect-error no such field
      export const first = client.items('svc_Notification').update('id', { isRead: true })
      // @ts-expect-error the server says what the content is
      export const second = client.items('svc_File').update('id', { size: 1 })
      // @ts-expect-error files come by uploads
      export const third = client.items('svc_File').create({ title: 'Plan' })
      // @ts-expect-error nobody writes the log
      export const fourth = client.items('svc_AuditLog').create({ entity: 'task' })
      // @ts-expect-error a role has a name
      export const fifth = client.items('svc_Role').create({})
      // @ts-expect-error sessions are made by signing in
      export const sixth = client.items('svc_Sessions').create({})
    `
    expect(await wrong(directory, text, body)).toBe('')
  })

  it('hold each field of a system collection that the server reads, and no other', async () => {
    const { text } = await api.admin('GET', '/schemas-types')
    const { body } = await api.admin('GET', '/schemas')
    /** What switches add is read and left to the server by types; who changed a row last is stamped over. */
    const added = new Set(['createdAt', 'updatedAt', 'deletedAt'])
    const taken: Record<string, unknown> = {}
    const typed: Record<string, unknown> = {}
    for (const { collectionName: name, schema } of body.data) {
      const [lines] = new RegExp(`^ {2}${name}: \\{[\\s\\S]*?\\n {2}\\}$`, 'm').exec(text) ?? []
      if (!name.startsWith('svc_') || lines === undefined) continue
      const isColumn = (field: string) =>
        schema.fields[field]?.relType === undefined && !['JSON', 'JSONB'].includes(schema.fields[field]?.type)
      const columns = Object.keys(schema.fields).filter(isColumn)
      const unfit = Object.fromEntries(columns.map((field) => [field, [[1]]]))
      for (const [payload, method, path] of [
        ['create', 'POST', ''],
        ['update', 'PATCH', schema.fields.id?.type === 'UUID' ? `/${crypto.randomUUID()}` : '/1'],
      ] as const) {
        const answer = await api.admin(method, `/items/${name}${path}`, unfit)
        const read = answer.body.error.details?.errors?.map(({ field }: { field: string }) => field)
        const isLeft = (field: string) => added.has(field) || (payload === 'update' && field === 'userUpdated_Id')
        const those = (names: readonly string[] | undefined) =>
          names?.filter((field) => columns.includes(field) && !isLeft(field)).sort() ?? 'nothing'
        taken[`${payload} ${name}`] = those(read)
        const [members] = new RegExp(`\\n {4}${payload}: \\{[\\s\\S]*?\\n {4}\\}`).exec(lines) ?? []
        typed[`${payload} ${name}`] = those(members?.match(/(?<=^ {6})\w+(?=\??: )/gm) ?? undefined)
      }
    }
    expect(Object.values(taken).filter((names) => names !== 'nothing').length).toBeGreaterThan(20)
    expect(typed).toEqual(taken)
  })

  it('let a row name who has created it, not who has changed it', async () => {
    const fields = { name: { type: 'String' } }
    await api.admin('POST', '/schemas', { collectionName: 'tracked', schema: { usertrack: true, fields } })
    const { text } = await api.admin('GET', '/schemas-types')
    const [tracked = ''] = /^ {2}tracked: \{[\s\S]*?\n {2}\}$/m.exec(text) ?? []
    for (const payload of ['create', 'update']) {
      const [members = ''] = new RegExp(`\\n {4}${payload}: \\{[\\s\\S]*?\\n {4}\\}`).exec(tracked) ?? []
      expect(members).toMatch(/^ {6}userCreated_Id\?: string \| null$/m)
      expect(members).toMatch(/^ {6}userCreated\?: Related</m)
      expect(members).not.toMatch(payload === 'create' ? /createdAt/ : /userUpdated|createdAt/)
      if (payload === 'create') expect(members).toMatch(/^ {6}userUpdated_Id\?: string \| null$/m)
    }
    const creator = (await api.user()).id
    const client = clientOf()
    await client.auth.login(administrator)
    const { id: me } = (await client.auth.me()).user
    const rows = client.items('tracked')
    const id = await rows.create({ userCreated_Id: creator, userUpdated_Id: creator })
    expect(await rows.read(id)).toMatchObject({ userCreated_Id: creator, userUpdated_Id: creator })
    await rows.update(id, { userCreated_Id: me, userUpdated_Id: creator })
    expect(await rows.read(id)).toMatchObject({ userCreated_Id: me, userUpdated_Id: me })
  })

  it('are those of the collections, in an order that stays', async () => {
    const { text, status, headers } = await api.admin('GET', '/schemas-types')
    expect(status).toBe(200)
    expect(text).toMatch(/^\/\/ Written by `npx daybook types`; do not edit. Version [0-9a-f]{16}\n/)
    const card = text.slice(text.indexOf('  card: {'), text.indexOf('  svc_ACL: {'))
    expect(card).toContain('key: string')
    expect(card).toContain('readonly state: "open" | "done" | null')
    expect(card).toMatch(/create: \{[^}]*\n {6}title: string\n/)
    expect(card).toMatch(/update: \{[^}]*\n {6}title\?: string\n/)
    expect(card).toContain('board: { to: "board"; many: false; nullable: true }')
    const board = `<Schema["board"]['key'], Schema["board"]['create'], Schema["board"]['update'], "id">`
    expect(card).toContain(`board?: Related${board} | null`)
    // Passwords are written, and never read.
    expect(text).not.toContain('readonly password')
    expect(text).not.toContain('svc_Sessions')
    const fresh = { 'if-none-match': headers.etag as string }
    expect((await api.admin('GET', '/schemas-types', undefined, fresh)).status).toBe(304)
    expect((await api.anonymous('GET', '/schemas-types')).status).toBe(401)
    expect((await (await api.user()).call('GET', '/schemas-types')).status).toBe(403)
  })

  it('are written from a server and from a file, and compared', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-types-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    const out = join(directory, 'schema.ts')
    const { token } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const server = ['--url', url, '--token', token, '--out', out]
    expect(await types(server)).toBe(0)
    expect(await readFile(out, 'utf8')).toBe((await api.admin('GET', '/schemas-types')).text)
    expect(await types([...server, '--check'])).toBe(0)
    const definitions = join(directory, 'schemas.json')
    await writeFile(definitions, (await api.admin('GET', '/schemas-export')).text)
    expect(await types(['--file', definitions, '--out', out, '--check'])).toBe(0)
    await api.admin('POST', '/schemas', { collectionName: 'later', schema: { fields: { name: { type: 'String' } } } })
    expect(await types([...server, '--check'])).toBe(3)
    await expect(types(['--url', url, '--token', 'none'])).rejects.toThrow(`${url} answered 401`)
    await expect(types(['--check'])).rejects.toThrow('Usage: daybook types')
    await expect(types(['--url', 'nonsense'])).rejects.toThrow('nonsense is no address of a server')
    await expect(types(['--url', 'http://127.0.0.1:9'])).rejects.toThrow(
      'http://127.0.0.1:9/schemas-types does not answer',
    )
    await writeFile(definitions, '{')
    await expect(types(['--file', definitions])).rejects.toThrow(`${definitions} is not JSON`)
    // What cannot take its name leaves nothing.
    await expect(types([...server.slice(0, -1), directory])).rejects.toThrow('EISDIR')
    expect((await readdir(tmpdir())).filter((name) => name.startsWith(`${basename(directory)}.`))).toEqual([])
  })
})
