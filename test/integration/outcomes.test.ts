import { randomUUID } from 'node:crypto'
import pg from 'pg'
import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { openDatabase, openPool } from '../../src/db/pools.ts'
import { endOfTransaction, transactionIdSql } from '../../src/events/commit.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { type DatabaseLine, openDatabaseLine } from '../support/database-line.ts'
import { createDatabase, startPrivateServer } from '../support/postgres.ts'
import { administrator, testConfig } from '../support/prepare.ts'

let api: Api
let line: DatabaseLine

beforeAll(async () => {
  const database = await createDatabase()
  line = await openDatabaseLine(database.url)
  api = await startApi({}, { ...database, url: line.url })
  const fields = {
    text: { type: 'String', unique: true },
    parent: { relType: 'BelongsTo', target: 'note', foreignKey: 'parent_id' },
  }
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields } })
})

const texts = async () => (await api.sql('select text from note order by text')).map(({ text }) => text)
const events = async (after: bigint) => (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
const unknown = { status: 503, body: { error: { code: 'OUTCOME_UNKNOWN' } } }

/** The answer to a request during which something was lost. */
async function during(
  word: string,
  what: Parameters<DatabaseLine['lose']>[1],
  ask: () => Promise<Answer>,
): Promise<Answer> {
  const loss = line.lose(word, what)
  const answer = await ask()
  expect(loss.happened).toBe(true)
  return answer
}

describe('a transaction whose connection is lost while it commits', () => {
  it('is answered as written when it was: rows, log and jobs are there once', async () => {
    const before = await api.position()
    const rows = [{ text: 'a1' }, { text: 'a2' }]
    const { status, body } = await during('COMMIT', 'answer', () => api.admin('POST', '/items/note/bulk', rows))
    expect([status, body.data.length]).toEqual([201, 2])
    expect(await texts()).toEqual(['a1', 'a2'])
    expect(await events(before)).toEqual(['note create', 'note create'])
  })

  it.each(['message', 'message, unnoticed'] as const)('may be tried again when it was not (%s lost)', async (what) => {
    const before = await api.position()
    const ask = () => api.admin('POST', '/items/note/bulk', [{ text: 'b1' }, { text: 'b2' }])
    const answer = await during('COMMIT', what, ask)
    expect([answer.status, answer.headers['retry-after'], answer.body.error.code]).toEqual([
      503,
      '1',
      'SERVICE_UNAVAILABLE',
    ])
    expect(await texts()).not.toContain('b1')
    expect(await api.log(before)).toEqual([])
  })

  it('is answered as written whatever it changed', async () => {
    const fields = { name: { type: 'String' } }
    const requests: Record<string, () => Promise<Answer>> = {
      schema: () => api.admin('POST', '/schemas', { collectionName: 'other', schema: { fields } }),
      settings: () => api.admin('PATCH', '/settings', { project_name: 'Lost and found' }),
      login: () => api.anonymous('POST', '/auth/login', administrator),
      nested: () => api.admin('POST', '/items/note', { text: 'child', parent: { text: 'parent' } }),
      upserts: () => api.admin('PUT', '/items/note?key=text', [{ text: 'u1' }, { text: 'u2' }]),
      permission: () => api.admin('POST', '/items/svc_Role', { name: 'lost' }, { 'idempotency-key': randomUUID() }),
    }
    for (const [name, ask] of Object.entries(requests)) {
      const { status } = await during('COMMIT', 'answer', ask)
      expect([name, status < 300]).toEqual([name, true])
    }
    expect(await texts()).toEqual(expect.arrayContaining(['child', 'parent', 'u1', 'u2']))
    expect((await api.admin('GET', '/schemas/other')).status).toBe(200)
    expect((await api.admin('GET', '/settings')).text).toContain('Lost and found')
  })

  it('with an Idempotency-Key answers the repeated request as the first', async () => {
    const key = { 'idempotency-key': randomUUID() }
    const ask = () => api.admin('POST', '/items/note', { text: 'keyed' }, key)
    const first = await during('COMMIT', 'answer', ask)
    const second = await ask()
    expect([first.status, second.status, second.text]).toEqual([201, 201, first.text])
    const change = () =>
      api.admin(
        'PATCH',
        `/items/note/${first.body.data.id}`,
        { text: 'keyed once' },
        { 'idempotency-key': randomUUID() },
      )
    expect((await during('COMMIT', 'answer', change)).status).toBe(200)
    expect((await texts()).filter((text) => text.startsWith('keyed'))).toEqual(['keyed once'])
  })
})

describe('one row whose connection is lost before the answer', () => {
  it('is answered as written when the log has it', async () => {
    const before = await api.position()
    const made = await during('one-1', 'answer', () => api.admin('POST', '/items/note', { text: 'one-1' }))
    expect(made.status).toBe(201)
    const { id } = made.body.data
    expect((await api.admin('GET', `/items/note/${id}`)).body.data.text).toBe('one-1')
    const path = `/items/note/${id}`
    const changed = await during('one-2', 'answer', () => api.admin('PATCH', path, { text: 'one-2' }))
    expect([changed.status, changed.body.data]).toEqual([200, { id }])
    const put = await during('one-2', 'answer', () =>
      api.admin('PUT', '/items/note?key=text', { text: 'one-2', parent_id: id }),
    )
    expect(put.status).toBe(200)
    const fresh = await during('one-3', 'answer', () => api.admin('PUT', '/items/note?key=text', { text: 'one-3' }))
    expect(fresh.status).toBe(201)
    const gone = await during(fresh.body.data.id ?? fresh.body.data[0]?.id, 'answer', () =>
      api.admin('DELETE', `/items/note/${fresh.body.data.id ?? fresh.body.data[0]?.id}`),
    )
    expect(gone.status).toBe(200)
    expect(await events(before)).toEqual(['note create', 'note update', 'note update', 'note create', 'note delete'])
  })

  it('is told to be unknown when it is not in the log, and no client is told to send it again as it is', async () => {
    const before = await api.position()
    const answer = await during('nowhere', 'message', () => api.admin('POST', '/items/note', { text: 'nowhere' }))
    expect(answer).toMatchObject(unknown)
    expect(answer.headers['retry-after']).toBeUndefined()
    expect(answer.body.error.message).toContain('Idempotency-Key')
    expect(await api.log(before)).toEqual([])
  })

  it('is not taken for another request that has the same id of its client’s choice', async () => {
    const id = { 'x-request-id': 'chosen' }
    expect((await api.admin('POST', '/items/note', { text: 'chosen-1' }, id)).status).toBe(201)
    const ask = () => api.admin('POST', '/items/note', { text: 'chosen-2' }, id)
    expect(await during('chosen-2', 'message', ask)).toMatchObject(unknown)
    expect(await texts()).not.toContain('chosen-2')
  })
})

describe('a server that was restarted', () => {
  it('after a crash may have given the number to another transaction, after an orderly restart not', async () => {
    const server = await startPrivateServer()
    const log = pino({ level: 'silent' })
    const pool = openPool({ config: testConfig(server.url), log, max: 2, readOnly: true, name: 'outcome test' })
    const db = openDatabase(pool, { log, logSql: false, onLoss: 'repeat' })
    const transaction = async (ending: 'commit' | 'rollback') => {
      const client = new pg.Client({ connectionString: server.url })
      await client.connect()
      await client.query('begin')
      const { rows } = await client.query(`select ${transactionIdSql}`)
      await client.query(ending)
      await client.end()
      return rows[0]
    }
    const ending = (id: Awaited<ReturnType<typeof transaction>>) => endOfTransaction(db, log, id)
    const [done, undone] = [await transaction('commit'), await transaction('rollback')]
    expect([await ending(done), await ending(undone)]).toEqual(['committed', 'aborted'])
    await server.stop()
    await server.start()
    expect([await ending(done), await ending(undone)]).toEqual(['committed', 'aborted'])
    const begun = await transaction('rollback')
    await server.stop('immediate')
    await server.start()
    expect([await ending(done), await ending(begun)]).toEqual(['unknown', 'aborted'])
    await pool.end()
  })
})
