import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openBatches } from '../../src/db/cursor-stream.ts'
import { type Api, call, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

/** Reads that nobody waits for any more, and reads that take too long. */

let api: Api
let address: string
let token: string
let locker: pg.Client

beforeAll(async () => {
  api = await startApi({ TRANSACTION_TIMEOUT_MS: '5000' })
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

const get = (path: string, signal: AbortSignal) =>
  fetch(`${address}${path}`, { headers: { authorization: `Bearer ${token}` }, signal })

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
    await waitFor(() => api.rt.db.pool.totalCount === api.rt.db.pool.idleCount)
  })

  it('ends nobody else’s', async () => {
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

describe('a statement in batches', () => {
  const sleep = 'select n, pg_sleep(60) from generate_series(1, 9) n'

  it('is cancelled by its signal', async () => {
    const leaving = new AbortController()
    const batches = await openBatches(api.rt.db, sleep, [], leaving.signal)
    const refused = expect(batches.next()).rejects.toMatchObject({ status: 499 })
    await runningOne('pg_sleep(60)')
    leaving.abort()
    await refused
    await batches.close(true)
    await waitFor(async () => (await running('pg_sleep(60)')).length === 0)
  })

  it('is cancelled when it is closed while it runs', async () => {
    const batches = await openBatches(api.rt.db, sleep, [])
    const refused = expect(batches.next()).rejects.toThrow()
    const pid = await runningOne('pg_sleep(60)')
    await batches.close(true)
    await refused
    await waitFor(async () => (await states(pid)).length === 0)
  })

  it('is not begun for a signal that has aborted', async () => {
    const batches = await openBatches(api.rt.db, sleep, [], AbortSignal.abort())
    await expect(batches.next()).rejects.toMatchObject({ status: 499 })
    await batches.close(true)
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
})
