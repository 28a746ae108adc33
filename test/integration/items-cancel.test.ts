import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openBatches } from '../../src/db/long-reads.ts'
import { type Api, call, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

/** Reads whose client is gone, and reads that take too long. */

let api: Api
let address: string
let token: string
let locker: pg.Client

beforeAll(async () => {
  // Equal reads would otherwise share the one that runs.
  api = await startApi({ DATA_CACHE_AUTO: 'false' })
  for (const collectionName of ['slow', 'quick'])
    await api.admin('POST', '/schemas', { collectionName, schema: { fields: { text: { type: 'String' } } } })
  address = await api.app.listen({ port: 0, host: '127.0.0.1' })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  locker = new pg.Client({ connectionString: api.database.url })
  await locker.connect()
})

afterAll(() => locker.end())

/** While `work` runs, every statement that reads `slow` takes as long as it likes. */
async function stalled<T>(work: () => Promise<T>): Promise<T> {
  await locker.query('begin; lock table slow in access exclusive mode')
  try {
    return await work()
  } finally {
    await locker.query('rollback')
  }
}

const get = (path: string, signal: AbortSignal) => send('GET', path, signal)

const send = (method: string, path: string, signal: AbortSignal, body?: object | FormData) =>
  fetch(`${address}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body !== undefined && !(body instanceof FormData) && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: body instanceof FormData ? body : JSON.stringify(body) }),
    signal,
  })

/** Backends of this database that run a statement with `text` in it. */
const running = (text: string): Promise<{ pid: number }[]> =>
  api.sql(
    `select pid from pg_stat_activity where datname = current_database() and state = 'active'
     and query like $1 and pid <> pg_backend_pid()`,
    [`%${text}%`],
  )

async function runningOne(text: string): Promise<number> {
  const [backend] = await waitFor(async () => {
    const found = await running(text)
    return found.length === 1 && found
  })
  return backend!.pid
}

const states = (pid: number) => api.sql('select state from pg_stat_activity where pid = $1', [pid])

describe('a client that closes its socket', () => {
  it.each([
    ['a list', '/items/slow?limit=5'],
    ['a list without a limit', '/items/slow'],
    ['a page by cursor', '/items/slow?cursor='],
    ['a single item', '/items/slow/00000000-0000-4000-8000-000000000001'],
  ])('ends the statement of %s and leaves its connection usable', async (_what, path) => {
    await stalled(async () => {
      const leaving = new AbortController()
      const answer = get(path, leaving.signal).catch((error: Error) => error.name)
      const pid = await runningOne('from "slow" t')
      leaving.abort()
      expect(await answer).toBe('AbortError')
      await waitFor(async () => (await running('from "slow" t')).length === 0)
      expect(await states(pid)).toEqual([{ state: 'idle' }])
    })
    await waitFor(() => api.runtime.db.pool.totalCount === api.runtime.db.pool.idleCount)
  })

  it('ends no other request’s', async () => {
    const others = await stalled(async () => {
      const leaving = new AbortController()
      const answers = Array.from({ length: 3 }, () => api.admin('GET', '/items/slow?limit=5'))
      const left = get('/items/slow?limit=6', leaving.signal).catch((error: Error) => error.name)
      await waitFor(async () => (await running('from "slow" t')).length === 4)
      leaving.abort()
      expect(await left).toBe('AbortError')
      await waitFor(async () => (await running('from "slow" t')).length === 3)
      return answers
    })
    for (const { status, body } of await Promise.all(others)) {
      expect(status).toBe(200)
      expect(body.data).toEqual([])
    }
  })

  it('harms no later statement, however often and whenever it leaves', async () => {
    for (let round = 0; round < 25; round += 1) {
      const leaving = new AbortController()
      const left = get('/items/quick', leaving.signal).catch((error: Error) => error.name)
      // After a number of turns of the loop that differs: before, in and after the statement.
      for (let turn = 0; turn < round; turn += 1) await new Promise(setImmediate)
      leaving.abort()
      const [next] = await Promise.all([api.admin('GET', '/items/quick?limit=1'), left])
      expect(next.status).toBe(200)
    }
  })
})

const item = '00000000-0000-4000-8000-000000000001'
const other = '00000000-0000-4000-8000-000000000002'
const counted = { aggregate: { n: { function: 'count', field: 'id' } } }
const file = (name: string, part: string, text: string) => {
  const form = new FormData()
  form.append(part, new Blob([text]), name)
  return form
}

describe('a client that leaves', () => {
  it.each<[what: string, method: string, path: string, body?: object]>([
    ['a report', 'POST', '/reports/slow', counted],
    [
      'a report by parameters',
      'GET',
      `/reports/slow?aggregate=${encodeURIComponent(JSON.stringify(counted.aggregate))}`,
    ],
    ['several reports', 'POST', '/reports/stats', { stats: [1, 2, 3, 4, 5].map((n) => stat(`n${n}`)) }],
    ['an export', 'GET', '/items/slow/export'],
    ['an aggregating list', 'GET', '/items/slow?groupBy=text&aggregate[n][function]=count&aggregate[n][field]=id'],
    ['what is explained', 'GET', `/permissions/explain?collection=slow&action=read&role=administrator&id=${item}`],
  ])('ends the statements of %s, and no further one begins', async (_what, method, path, body) => {
    await stalled(async () => {
      const leaving = new AbortController()
      const answer = send(method, path, leaving.signal, body).catch((error: Error) => error.name)
      await waitFor(blocked)
      leaving.abort()
      expect(await answer).toBe('AbortError')
      await waitFor(async () => !(await blocked()))
      await waitFor(() => api.runtime.db.pool.totalCount === api.runtime.db.pool.idleCount)
      expect(await blocked()).toBe(false)
    })
  })

  it.each<[what: string, path: () => string]>([
    ['a history', () => `/items/slow/${item}/history`],
    ['the past', () => `/items/slow?asOf=${new Date().toISOString()}`],
    ['changes', () => `/changes?since=${cursor}`],
  ])('ends the statements of %s', async (_what, path) => {
    cursor = (await api.admin('GET', '/changes')).body.cursor
    await locker.query('begin; lock table "svc_AuditLog" in access exclusive mode')
    try {
      const leaving = new AbortController()
      const answer = get(path(), leaving.signal).catch((error: Error) => error.name)
      await waitFor(blocked)
      leaving.abort()
      expect(await answer).toBe('AbortError')
      await waitFor(async () => !(await blocked()))
    } finally {
      await locker.query('rollback')
    }
    await waitFor(() => api.runtime.db.pool.totalCount === api.runtime.db.pool.idleCount)
  })

  it.each<[what: string, method: string, path: string, body: object]>([
    ['a CSV import', 'POST', '/items/slow/import-csv', file('rows.csv', 'csvFile', 'text\nabandoned\n')],
    ['a JSON import', 'POST', '/items/slow/import-json', file('rows.json', 'jsonFile', '[{"text":"abandoned"}]')],
    ['a bulk write', 'POST', '/items/slow/bulk', [{ text: 'abandoned' }, { text: 'abandoned' }]],
    ['a bulk write that answers rows', 'POST', '/items/slow/bulk?fields=text', [{ text: 'abandoned' }]],
    ['an upsert of many', 'PUT', '/items/slow?key=id', [item, other].map((id) => ({ id, text: 'abandoned' }))],
    [
      'a new field',
      'PATCH',
      '/schemas/slow',
      { schema: { fields: { text: { type: 'String' }, abandoned: { type: 'String' } } } },
    ],
  ])('takes back %s', async (_what, method, path, body) => {
    const before = await api.position()
    await stalled(async () => {
      const leaving = new AbortController()
      const answer = send(method, path, leaving.signal, body).catch((error: Error) => error.name)
      await waitFor(blocked)
      leaving.abort()
      expect(await answer).toBe('AbortError')
      await waitFor(async () => !(await blocked()))
    })
    await waitFor(() => api.runtime.pools().every(({ open, idle, waiting }) => open === idle && waiting === 0))
    expect((await api.admin('GET', '/items/slow')).body.data).toEqual([])
    expect(await api.log(before)).toEqual([])
  })

  it('does not keep a place in the line for a connection', async () => {
    await stalled(async () => {
      const staying = new AbortController()
      const leaving = new AbortController()
      const held = Array.from({ length: api.runtime.db.pool.options.max }, () => api.runtime.db.pool.connect())
      const connections = await Promise.all(held)
      const answer = get(`/items/quick/${item}`, leaving.signal).catch((error: Error) => error.name)
      await waitFor(() => api.runtime.db.pool.waitingCount === 1)
      const next = get('/items/quick?limit=1', staying.signal)
      leaving.abort()
      expect(await answer).toBe('AbortError')
      for (const connection of connections) connection.release()
      expect((await next).status).toBe(200)
    })
  })

  it('has signed out all the same', async () => {
    const { token: other } = (await api.anonymous('POST', '/auth/login', administrator)).body
    const sessions = new pg.Client({ connectionString: api.database.url })
    await sessions.connect()
    await sessions.query('begin; lock table "svc_Sessions" in access exclusive mode')
    const leaving = new AbortController()
    const answer = fetch(`${address}/auth/logout`, {
      method: 'POST',
      headers: { authorization: `Bearer ${other}` },
      signal: leaving.signal,
    }).catch((error: Error) => error.name)
    await waitFor(blocked)
    leaving.abort()
    expect(await answer).toBe('AbortError')
    await sessions.query('rollback')
    await sessions.end()
    await waitFor(async () => (await api.as(other)('GET', '/auth/me')).status === 401)
  })
})

const stat = (name: string) => ({ name, collection: 'slow', query: counted })
let cursor: string

/** Whether anybody waits for a lock. */
const blocked = async () =>
  (
    await api.sql(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and pid <> pg_backend_pid()`,
    )
  ).length > 0

describe('a statement in batches', () => {
  const sleep = 'select n, pg_sleep(60) from generate_series(1, 9) n'

  it('is cancelled by its signal', async () => {
    const leaving = new AbortController()
    const batches = await openBatches(api.runtime.db, sleep, [], leaving.signal)
    const refused = expect(batches.next()).rejects.toMatchObject({ status: 499 })
    await runningOne('pg_sleep(60)')
    leaving.abort()
    await refused
    await batches.close(true)
    await waitFor(async () => (await running('pg_sleep(60)')).length === 0)
  })

  it('is cancelled when it is closed while it runs', async () => {
    const batches = await openBatches(api.runtime.db, sleep, [])
    const refused = expect(batches.next()).rejects.toThrow()
    const pid = await runningOne('pg_sleep(60)')
    await batches.close(true)
    await refused
    await waitFor(async () => (await states(pid)).length === 0)
  })

  it('is not begun for a signal that has aborted', async () => {
    await expect(openBatches(api.runtime.db, sleep, [], AbortSignal.abort())).rejects.toMatchObject({ status: 499 })
  })
})

describe('a statement that takes too long', () => {
  it('answers 408 when the statement timeout ends it, and the connection lives on', async () => {
    const ask = call(await configured(api.database, { TRANSACTION_TIMEOUT_MS: '300' }), token)
    await stalled(async () => {
      for (const path of ['/items/slow?limit=5', '/items/slow', '/items/slow?cursor='])
        expect(await ask('GET', path)).toMatchObject({
          status: 408,
          body: { error: { message: 'The request took too long' } },
        })
    })
    expect((await ask('GET', '/items/slow')).status).toBe(200)
  })

  it('answers 408 on a connection that stays longer than the statement may take', async () => {
    const standard = await configured(api.database, { TRANSACTION_TIMEOUT_MS: '60000' })
    expect(standard.server.timeout).toBeGreaterThan(60_000)
    const impatient = await configured(api.database, { TRANSACTION_TIMEOUT_MS: '300' })
    const at = await impatient.listen({ port: 0, host: '127.0.0.1' })
    await stalled(async () => {
      const answer = await fetch(`${at}/items/slow?limit=5`, { headers: { authorization: `Bearer ${token}` } })
      expect([answer.status, await answer.json()]).toMatchObject([408, { error: { code: 'REQUEST_TIMEOUT' } }])
    })
  })
})
