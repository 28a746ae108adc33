import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

/** Heavy work takes its own places, and what is too much of it is refused; what is light goes on. */

let api: Api
let locker: pg.Client
let id: string

const count = { aggregate: { n: { function: 'count', field: 'id' } } }
const stats = { stats: ['a', 'b', 'c', 'd'].map((name) => ({ name, collection: 'slow', query: count })) }

beforeAll(async () => {
  // Equal reads would otherwise share the one that runs.
  api = await startApi({ HEAVY_READS_AT_ONCE: '2', DATA_CACHE_AUTO: 'false' })
  for (const collectionName of ['slow', 'quick'])
    await api.admin('POST', '/schemas', { collectionName, schema: { fields: { text: { type: 'String' } } } })
  id = (await api.admin('POST', '/items/quick', { text: 'x' })).body.data.id
  // Opens the connections: a server that is busy with other tests may take seconds for that, which would count as the list's own.
  await Promise.all(Array.from({ length: 30 }, () => api.admin('GET', '/items/quick?limit=5')))
  locker = new pg.Client({ connectionString: api.database.url })
  await locker.connect()
})

afterAll(() => locker.end())

async function stalled<T>(work: () => Promise<T>): Promise<T> {
  await locker.query('begin; lock table slow in access exclusive mode')
  try {
    return await work()
  } finally {
    await locker.query('rollback')
  }
}

const refused = (answers: readonly Answer[]) => answers.filter(({ status }) => status === 503)
const inUse = () => api.runtime.db.pool.totalCount - api.runtime.db.pool.idleCount

it.each<[what: string, ask: () => Promise<Answer>]>([
  ['reports', () => api.admin('POST', '/reports/slow', count)],
  ['stats', () => api.admin('POST', '/reports/stats', stats)],
  ['aggregating lists', () => api.admin('GET', `/items/slow?aggregate=${JSON.stringify(count.aggregate)}`)],
  ['exports', () => api.admin('GET', '/items/slow/export')],
  ['lists of the past', () => api.admin('GET', `/items/slow?asOf=${new Date(Date.now() - 1).toISOString()}`)],
])('refuses %s that are too many, and light work never waits for them', async (_what, ask) => {
  const before = api.runtime.admission.stats().refused.heavy
  const asked = await stalled(async () => {
    const answers = Array.from({ length: 30 }, ask)
    await waitFor(() => api.runtime.admission.stats().refused.heavy - before >= 24)
    expect(inUse()).toBe(2)
    const light = await Promise.all([
      ...Array.from({ length: 30 }, () => api.admin('GET', `/items/quick/${id}`)),
      ...Array.from({ length: 30 }, () => api.admin('GET', '/items/quick?limit=5')),
      api.admin('POST', '/items/quick', { text: 'x' }),
      api.anonymous('POST', '/auth/login', administrator),
      ...['/health', '/ready', '/auth/me'].map((path) => api.admin('GET', path)),
    ])
    expect(light.filter(({ status }) => status >= 300)).toEqual([])
    return answers
  })
  const answers = await Promise.all(asked)
  const late = refused(answers)
  for (const { body, headers } of late) {
    expect(body.error).toMatchObject({ code: 'OVERLOADED', statusCode: 503 })
    expect(Number(headers['retry-after'])).toBeGreaterThan(0)
  }
  expect(late.length).toBeGreaterThanOrEqual(24)
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(30 - late.length)
  expect(late.length).toBeLessThan(30)
  await waitFor(() => {
    const { running, waiting } = api.runtime.admission.stats()
    return running.light + running.heavy + waiting.light + waiting.heavy === 0
  })
  expect((await ask()).status).toBe(200)
})

it('takes turns: a caller who asks for little is served between the pieces of one who asks for much', async () => {
  const { call } = await api.user([{ collection: 'slow', action: 'read', fields: ['*'] }])
  const before = api.runtime.admission.stats().refused.heavy
  const [many, one] = await stalled(async () => {
    const flood = Array.from({ length: 30 }, () => api.admin('POST', '/reports/slow', count))
    await waitFor(() => api.runtime.admission.stats().refused.heavy - before >= 24)
    const waiting = call('POST', '/reports/slow', count)
    await waitFor(() => api.runtime.admission.stats().refused.heavy - before >= 25)
    return [flood, waiting] as const
  })
  expect((await one).status).toBe(200)
  expect(refused(await Promise.all(many)).length).toBeGreaterThanOrEqual(25)
})

it('tells /metrics who was admitted and who was refused', async () => {
  const { text } = await api.admin('GET', '/metrics')
  for (const name of ['running', 'waiting', 'admitted_total', 'refused_total'])
    for (const lane of ['reads', 'passwords'])
      expect(text).toMatch(new RegExp(`^daybook_admission_${name}\\{lane="${lane}",weight="heavy"\\} \\d+$`, 'm'))
  expect(text).toMatch(/^daybook_admission_refused_total\{lane="reads",weight="heavy"\} [1-9]/m)
})
