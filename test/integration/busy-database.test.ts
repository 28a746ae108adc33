import pg from 'pg'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

let api: Api

beforeAll(async () => {
  // A new connection must come within the first also on a machine that others keep busy, and what waits must outlast the sign-ins.
  api = await startApi({
    DATABASE_POOL_ACQUIRE: '2000',
    TRANSACTION_TIMEOUT_MS: '6000',
    EXPOSE_ERROR_DETAILS: 'false',
  })
  const fields = Object.fromEntries(['text', ...others].map((name) => [name, { type: 'String' }]))
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields } })
})

const others = Array.from({ length: 10 }, (_, i) => `other${i}`)
const count = { aggregate: { n: { function: 'count', field: 'id' } } }
/** Equal reads and writes would share one. */
let n = 0
const nth = () => {
  n += 1
  return n
}
const requests: Record<string, () => Promise<Answer>> = {
  lists: () => api.admin('GET', `/items/note?limit=5&offset=${nth()}`),
  'unlimited lists': () => api.admin('GET', `/items/note?limit=-1&offset=${nth()}`),
  reports: () => api.admin('POST', '/reports/note', { ...count, filter: { text: { neq: `${nth()}` } } }),
  writes: () => api.admin('POST', '/items/note', { [others[nth() % others.length]!]: 'x' }),
}

it('requests that wait for a lock, more than there are connections, keep no user from signing in and end in time', async () => {
  const blocker = new pg.Client({ connectionString: api.database.url })
  await blocker.connect()
  onTestFinished(() => blocker.end())
  await blocker.query('begin; alter table note add column held integer')
  const waiting = Object.values(requests).map((ask) => Promise.all(Array.from({ length: 30 }, ask)))
  await waitFor(() => ['read', 'hot'].every(isFull))

  const { status, body } = await api.anonymous('POST', '/auth/login', administrator)
  const session = api.as(body.token)
  expect([status, (await session('GET', '/auth/me')).status]).toEqual([200, 200])
  const wrong = { ...administrator, password: 'not the right one' }
  expect((await api.anonymous('POST', '/auth/login', wrong)).status).toBe(400)
  for (const path of ['/health', '/ready', '/auth/check', '/auth/logout'])
    expect([path, (await session('GET', path)).status]).toEqual([path, 200])

  const answers = (await Promise.all(waiting)).flat()
  await blocker.query('rollback')
  // Without a connection, and with one that the statement timeout has set free again; reports have an answer of their own.
  const isUnavailable = ({ status }: Answer) => status === 503
  const isTooLong = ({ status, text }: Answer) => status === 408 || /took too long/.test(text)
  expect([answers.some(isUnavailable), answers.some(isTooLong)]).toEqual([true, true])
  const rest = answers.filter((answer) => !isUnavailable(answer) && !isTooLong(answer))
  expect(rest.map(({ status, text }) => [status, text])).toEqual([])
  expect(await api.sql('select from note')).toEqual([])
  for (const ask of Object.values(requests)) expect((await ask()).status).toBeLessThan(300)
  for (const { name, open, idle, waiting } of api.runtime.pools())
    expect([name, open - idle, waiting]).toEqual([name, 0, 0])
})

/** Of the connections for reads, two are left to what is never admitted. */
const isFull = (name: string) => {
  const { open, max, idle } = api.runtime.pools().find((pool) => pool.name === name)!
  return open - idle >= max - (name === 'read' ? 2 : 0)
}
