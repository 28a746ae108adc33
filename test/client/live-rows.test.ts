import fc from 'fast-check'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createClient } from '../../clients/client.ts'
import { openHttp } from '../../clients/http.ts'
import { type KeptRows, openLive } from '../../clients/live.ts'
import { createRealtime } from '../../clients/realtime.ts'
import { openWriteQueue } from '../../clients/write-queue.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let url: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  url = await api.app.listen({ host: '127.0.0.1', port: 0 })
  await make('counter', {
    id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
    count: { type: 'Integer' },
  })
  await make('note', { text: { type: 'String' }, points: { type: 'Integer' } })
})

async function make(collectionName: string, fields: object): Promise<void> {
  const { status, text } = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
  expect(status, text).toBe(201)
}

/** A client of the administrator, who sees when its writes are sent and lets their answers come. */
async function writer() {
  const sent: string[] = []
  const held: (() => void)[] = []
  let isHeld = false
  const client = createClient({
    url,
    fetch: async (input, init) => {
      const { method = 'GET' } = init ?? {}
      if (method === 'GET' || String(input).includes('/auth/')) return fetch(input, init)
      sent.push(`${method} ${init!.body ?? ''}`)
      if (isHeld) await new Promise<void>((go) => held.push(go))
      return fetch(input, init)
    },
  })
  onTestFinished(() => client.close())
  await client.auth.login(administrator)
  const hold = () => {
    isHeld = true
  }
  const go = () => {
    isHeld = false
    for (const one of held.splice(0)) one()
  }
  return { client, sent, hold, go }
}

/** A reader of notes, and what ends its right. */
async function reader() {
  const user = await api.user([{ collection: 'note', action: 'read' }])
  const forbid = async () => {
    const [row] = await api.sql(`select id from "svc_Permission" where "role_Id" = $1`, [user.roleId])
    expect((await api.admin('DELETE', `/permissions/${row.id}`)).status).toBe(204)
  }
  return { ...user, forbid }
}

/** Live rows of a reader that are kept, as a browser keeps them. */
function keptLive(token: string, kept: Map<string, KeptRows>, owner = async () => 'the reader') {
  const realtime = createRealtime({ url, token })
  const http = openHttp({
    url,
    fetch,
    authorize: async () => ({ authorization: `Bearer ${token}` }),
    onUnauthorized: () => false,
    withCookies: false,
    attempts: 1,
  })
  const queue = openWriteQueue()
  const live = openLive(
    { collection: 'note' },
    {
      http,
      connect: () => realtime,
      store: {
        load: async (name) => kept.get(name),
        save: async (name, rows) => void kept.set(name, rows),
        remove: async (name) => void kept.delete(name),
      },
      owner,
      queue: () => queue,
      onClose: () => undefined,
    },
  )
  onTestFinished(() => realtime.close())
  return live
}

describe('what may not be read any more', () => {
  it('goes from the view and from the store, now and at the next visit', async () => {
    await api.admin('POST', '/items/note', { text: 'secret' })
    const { token, forbid } = await reader()
    const kept = new Map<string, KeptRows>()
    const live = keptLive(token, kept)
    await waitFor(() => (kept.size === 1 ? true : undefined))
    const before = new Map(kept)
    expect(live.view.rows).toMatchObject([{ text: 'secret' }])
    await forbid()
    await waitFor(() => (live.view.status === 'ended' ? true : undefined))
    expect(live.view).toMatchObject({ rows: [], error: { final: true } })
    expect(kept.size).toBe(0)
    const seen: number[] = []
    const next = keptLive(token, before)
    next.subscribe(() => seen.push(next.view.rows.length))
    await waitFor(() => (next.view.status === 'ended' ? true : undefined))
    expect(seen).toEqual([1, 0])
    expect(before.size).toBe(0)
  })

  it('is not looked for where nobody can say whose it is; the rows are fetched', async () => {
    const { token } = await reader()
    const kept = new Map<string, KeptRows>()
    const live = keptLive(token, kept, () => Promise.reject(new Error('no token now')))
    await waitFor(() => (live.view.status === 'live' ? true : undefined))
    expect(kept.size).toBe(0)
  })

  it('goes from a live report', async () => {
    const { token, forbid } = await reader()
    const client = createClient({ url, auth: { token } })
    onTestFinished(() => client.close())
    const report = client.liveReport({ collection: 'note', aggregate: { n: { function: 'count', field: '*' } } })
    await waitFor(() => (report.view.status === 'live' ? true : undefined))
    await forbid()
    await waitFor(() => (report.view.status === 'ended' ? true : undefined))
    expect(report.view).toMatchObject({ rows: [], error: { final: true } })
  })
})

describe('writes of one row', () => {
  const opened = async (collection: string) => {
    const { client, ...rest } = await writer()
    const live = client.live({ collection })
    await waitFor(() => (live.view.status === 'live' ? true : undefined))
    return { client, live, ...rest }
  }

  it('are sent one after the other, and those of other rows at once', async () => {
    const { client, live, sent, hold, go } = await opened('note')
    const other = await client.items('note').create({ text: 'other' })
    sent.length = 0
    hold()
    const id = crypto.randomUUID()
    const writes = [
      live.create({ id, text: 'new', points: 0 }),
      live.update(id, { points: 1 }),
      live.update(id, { points: 2 }),
      live.update(other, { points: 7 }),
    ]
    expect(live.view.rows.find((row) => row.id === id)).toMatchObject({ text: 'new', points: 2 })
    await waitFor(() => (sent.length === 2 ? true : undefined))
    expect(sent).toEqual([expect.stringContaining('POST'), 'PATCH {"points":7}'])
    go()
    await Promise.all(writes)
    expect(sent.slice(2)).toEqual(['PATCH {"points":1}', 'PATCH {"points":2}'])
    expect(await client.items('note').read(id)).toMatchObject({ points: 2 })
    await waitFor(() => (live.view.rows.find((row) => row.id === id)?.createdAt ? true : undefined))
    expect(live.view.rows.find((row) => row.id === id)).toMatchObject({ text: 'new', points: 2 })
    const gone = [live.update(id, { points: 3 }), live.delete(id)]
    await Promise.all(gone)
    expect(live.view.rows.some((row) => row.id === id)).toBe(false)
  })

  it('go to the key that the server makes', async () => {
    const { client, live, hold, go } = await opened('counter')
    await live.create({ count: 0 })
    hold()
    const made = live.create({ count: 1 })
    const shown = live.view.rows.find(({ count }) => count === 1)!
    const changed = live.update(shown.id as string, { count: 2 })
    expect(live.view.rows.find(({ id }) => id === shown.id)).toMatchObject({ count: 2 })
    go()
    const id = await made
    expect(live.view.rows.map(({ count }) => count).sort()).toEqual([0, 2])
    await changed
    expect(await client.items('counter').read(id)).toMatchObject({ count: 2 })
    // Who remembers the first key means the same row.
    await live.update(shown.id as string, { count: 3 })
    expect(await client.items('counter').read(id)).toMatchObject({ count: 3 })
  })

  it('are not sent after a creation that is refused', async () => {
    const { live, sent } = await opened('note')
    const id = crypto.randomUUID()
    const before = live.view.rows.length
    const created = live.create({ id, points: 'many' })
    const changed = live.update(id, { points: 1 })
    await expect(created).rejects.toMatchObject({ status: 400 })
    await expect(changed).rejects.toMatchObject({ code: 'NOT_CREATED', message: expect.stringMatching(/not created/) })
    expect(sent).toHaveLength(1)
    expect(live.view.rows).toHaveLength(before)
    await live.create({ id, points: 1 })
    await live.delete(id)
  })

  it('that wait when the session ends are not sent in the name of the next one', async () => {
    const { client, live, sent, hold, go } = await opened('note')
    const id = await client.items('note').create({ text: 'waits' })
    sent.length = 0
    hold()
    const writes = [live.update(id, { points: 1 }), live.update(id, { points: 2 })]
    await waitFor(() => (sent.length === 1 ? true : undefined))
    const settled = Promise.allSettled(writes)
    await client.auth.logout()
    go()
    expect((await settled)[1]).toMatchObject({ status: 'rejected' })
    expect(sent).toEqual(['PATCH {"points":1}'])
  })
})

const kinds = {
  text: { type: 'String' },
  caseless: { type: 'CiText' },
  word: { type: 'ENUM', values: ['b', 'a', 'Z'] },
  whole: { type: 'Integer' },
  large: { type: 'BigInt' },
  exact: { type: 'Decimal', values: { precision: 30, scale: 4 } },
  about: { type: 'Double' },
  done: { type: 'Boolean' },
  at: { type: 'DateTime' },
  day: { type: 'Date' },
  moment: { type: 'DateTime_NO_TZ' },
  time: { type: 'Time' },
  local: { type: 'Time_NO_TZ' },
  other: { type: 'UUID' },
}

const row = fc.record({
  text: fc.option(fc.constantFrom('a', 'A', 'ab', 'Z', 'ä', 'z', ' ', '10', '9', '\u{1f600}', '\uff5e', '')),
  caseless: fc.option(fc.constantFrom('a', 'B', 'b2', 'c', 'C1', '_', 'ΑΣ', 'ας', 'ασ', 'İ', 'i', 'I')),
  word: fc.option(fc.constantFrom('b', 'a', 'Z')),
  whole: fc.option(fc.integer({ min: -20, max: 20 })),
  large: fc.option(fc.constantFrom('9007199254740993', '9007199254740992', '-9', '10', '9')),
  exact: fc.option(fc.constantFrom('10', '9.5', '-0.25', '-0.5', '12345678901234567890.05', '12345678901234567890.1')),
  about: fc.option(fc.constantFrom(0.1, 1e21, -1e-7, 2, 10, 1e300)),
  done: fc.option(fc.boolean()),
  at: fc.option(fc.constantFrom('2026-01-01T00:00:00.001Z', '2025-12-31T23:59:59Z', '10000-01-01T00:00:00Z')),
  day: fc.option(fc.constantFrom('2026-01-01', '2025-12-31', '0999-01-01', '10000-01-01', '0005-01-01 BC')),
  moment: fc.option(fc.constantFrom('2026-01-01T00:00:00', '1969-12-31T23:59:59', '10000-01-01T00:00:00')),
  time: fc.option(fc.constantFrom('10:00:00+02', '08:00:00+00', '09:00:00-05:30', '07:59:59.5+00')),
  local: fc.option(fc.constantFrom('10:00:00', '09:59:59.25', '00:00:00')),
  other: fc.option(fc.constantFrom('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', 'ffffffff-7a11-4cc1-9f3a-5d1f0c2b7e44')),
})

describe('the order of live rows', () => {
  it.each([
    ['sorts_uuid', {}],
    ['sorts_whole', { id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } } }],
    ['sorts_text', { id: { type: 'String', primaryKey: true } }],
  ])('is that of the list: %s', async (collection, key) => {
    await make(collection, { ...key, ...kinds })
    const { client } = await writer()
    const rows = fc.sample(row, { numRuns: 40, seed: 7 })
    const keyed =
      collection === 'sorts_text' ? rows.map((one, n) => ({ id: `${n % 2 ? 'a' : 'Z'}${n}`, ...one })) : rows
    await client.items(collection).createMany(keyed)
    const names = Object.keys(kinds)
    const sorts = [
      undefined,
      ...names.flatMap((name) => [[name], [`-${name}`]]),
      ...names.map((name, n) => [`-${name}`, names[(n + 3) % names.length]!]),
      ['id'],
      ['-id'],
    ]
    for (const sort of sorts) {
      const query = { fields: ['id', 'text'], limit: 15, ...(sort && { sort }) }
      const live = client.live({ collection, ...query })
      await waitFor(() => (live.view.status === 'live' && live.view.rows.length > 0 ? true : undefined))
      expect(live.view.rows, JSON.stringify(sort)).toEqual((await client.items(collection).list(query)).data)
      live.close()
    }
  })

  it('names what it cannot be', async () => {
    await make('tagged', { title: { type: 'String' }, tags: { type: 'Array_String' }, meta: { type: 'JSON' } })
    const { client } = await writer()
    const refused = async (query: object) => {
      const live = client.live({ collection: 'tagged', ...query })
      await waitFor(() => (live.view.status === 'ended' ? true : undefined))
      return live.view.error!.message
    }
    expect(await refused({ sort: ['nothing'] })).toMatch(/nothing/)
    expect(await refused({ fields: ['title'], sort: ['-nothing'] })).toMatch(/nothing/)
    expect(await refused({ sort: ['tags'] })).toBe('sort: live rows cannot be sorted by tags')
    expect(await refused({ fields: ['title'], sort: ['-meta'] })).toBe('sort: live rows cannot be sorted by meta')
    const { token } = await api.user([{ collection: 'tagged', action: 'read', fields: 'title' }])
    const reader = createClient({ url, auth: { token } })
    onTestFinished(() => reader.close())
    const live = reader.live({ collection: 'tagged', fields: ['title'], sort: ['meta'] })
    await waitFor(() => (live.view.status === 'ended' ? true : undefined))
    expect(live.view.error!.message).toMatch(/meta/)
  })
})

describe('connections', () => {
  it('are closed when nothing is followed on them, so that other tabs of the user have room', async () => {
    const crowded = await startApi({ SOCKET_ENABLED: 'true', SOCKET_LIMIT_PER_USER: '2' })
    const address = await crowded.app.listen({ host: '127.0.0.1', port: 0 })
    const schema = { fields: { text: { type: 'String' } } }
    expect((await crowded.admin('POST', '/schemas', { collectionName: 'note', schema })).status).toBe(201)
    const { token } = (await crowded.anonymous('POST', '/auth/login', administrator)).body
    const tab = () => {
      const client = createClient({ url: address, auth: { token } })
      onTestFinished(() => client.close())
      return client
    }
    const one = tab()
    const open = async (text: string) => {
      const live = one.live({ collection: 'note', filter: { text } })
      await waitFor(() => (live.view.status === 'live' ? true : undefined))
      return live
    }
    const [first, second] = [await open('a'), await open('b')]
    second.close()
    // Another query takes the place of the one before it.
    const third = await open('c')
    const other = tab().live({ collection: 'note' })
    await waitFor(() => (other.view.error?.message === 'Too many connections' ? true : undefined))
    third.close()
    await waitFor(() => (other.view.status === 'live' ? true : undefined))
    expect(first.view.status).toBe('live')
  })
})
