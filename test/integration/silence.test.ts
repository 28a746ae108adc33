import { beforeAll, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { type DatabaseLine, openDatabaseLine } from '../support/database-line.ts'
import { createDatabase } from '../support/postgres.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let line: DatabaseLine

beforeAll(async () => {
  const database = await createDatabase()
  line = await openDatabaseLine(database.url)
  api = await startApi({ DATABASE_POOL_IDLE: '600000' }, { ...database, url: line.url })
  const fields = { text: { type: 'String' } }
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields } })
  await api.admin('POST', '/items/note', { text: 'there' })
})

const list = () => api.admin('GET', '/items/note?limit=5')
const rows = [{ text: 'b' }, { text: 'c' }]

it('a read on a line that swallows it is answered by another connection', async () => {
  // Reads that come while a connection is made may share those there are, so it takes more of them on a slow machine.
  const ofReads = `select from pg_stat_activity where datname = current_database() and application_name ~ $1`
  await waitFor(async () => {
    await Promise.all(Array.from({ length: 10 }, list))
    return (await api.sql(ofReads, ['daybook web (read|reserved)'])).length > 2
  })
  expect(line.swallow(/daybook web (read|reserved)/)).toBeGreaterThan(2)
  const answers = await Promise.all(Array.from({ length: 10 }, list))
  expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200))
})

it('a write of one row on such a line is not told to be repeated, and the next one is written', async () => {
  await api.admin('POST', '/items/note', { text: 'warm' })
  expect(line.swallow(/daybook web hot/)).toBeGreaterThan(0)
  const lost = await api.admin('POST', '/items/note', { text: 'swallowed' })
  expect(lost).toMatchObject({ status: 503, body: { error: { code: 'OUTCOME_UNKNOWN' } } })
  expect((await api.admin('POST', '/items/note', { text: 'next' })).status).toBe(201)
  expect((await api.sql('select text from note order by text')).map(({ text }) => text)).toEqual([
    'next',
    'there',
    'warm',
  ])
})

it('a transaction that could not begin may be repeated at once', async () => {
  expect((await api.admin('POST', '/items/note/bulk', rows)).status).toBe(201)
  expect(line.swallow(/daybook web write/)).toBeGreaterThan(0)
  const lost = await api.admin('POST', '/items/note/bulk', rows)
  expect([lost.status, lost.headers['retry-after'], lost.body.error.code]).toEqual([503, '1', 'SERVICE_UNAVAILABLE'])
  expect((await api.admin('POST', '/items/note/bulk', rows)).status).toBe(201)
})

it('a statement that takes long is not taken for a dead line', async () => {
  expect(await api.runtime.db.run('select pg_sleep(6) is not null as slept', [])).toEqual([{ slept: true }])
})

it('notifications come again', async () => {
  expect(line.swallow(/daybook listen/)).toBe(1)
  await waitFor(() => !api.runtime.listener.isLive())
  await waitFor(() => api.runtime.listener.isLive())
})
