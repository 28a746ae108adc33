import { randomUUID } from 'node:crypto'
import pino from 'pino'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { goneSignal, workFor } from '../../src/admission/asker.ts'
import { cancelQuery } from '../../src/db/cancel.ts'
import { openBatches } from '../../src/db/long-reads.ts'
import { type Database, openDatabase, openPool } from '../../src/db/pools.ts'
import { openDatabaseLine } from '../support/database-line.ts'
import { createDatabase, type TestDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'

/*
 * Quick reads that share connections (db/pipeline.ts): to their callers they are statements like any others.
 */

let database: TestDatabase
const closing: (() => Promise<void>)[] = []
beforeAll(async () => {
  database = await createDatabase()
  await withClient(database.url, (client) => client.query('create table thing as select 1 as id, 2 as size'))
})
afterAll(() => Promise.all(closing.map((close) => close())))

type Opening = { max?: number; gone?: AbortSignal; env?: Record<string, string>; url?: string }

function open({ max = 4, gone, env = {}, url = database.url }: Opening = {}): Database & { readonly program: string } {
  const log = pino({ level: 'silent' })
  const name = randomUUID()
  const pool = openPool({ config: testConfig(url, env), log, max, readOnly: true, name })
  closing.push(() => pool.end())
  return Object.assign(openDatabase(pool, { log, logSql: false, onLoss: 'repeat', ends: () => gone }), {
    program: `daybook ${name}`,
  })
}

type Pid = { pid: number }
const pidSql = 'select pg_backend_pid() as pid, $1::int as n'
const pidsOf = async (db: Database, count: number) =>
  Promise.all(Array.from({ length: count }, (_, n) => db.runQuick<Pid>(pidSql, [n])))

/** The state of the connection that works on a statement with this text. */
const working = (text: string) =>
  withClient(database.url, async (client) => {
    const sql = `select pid, application_name as program from pg_stat_activity where query like $1 and state = 'active' and pid <> pg_backend_pid()`
    return (await client.query<Pid & { program: string }>(sql, [`%${text}%`])).rows
  })

const isWorking = async (text: string) => (await working(text)).length > 0

/** Holds the lock that a change of the table holds, for as long as `work` lasts. */
const whileLocked = (work: () => Promise<void>) =>
  withClient(database.url, async (client) => {
    await client.query('begin; lock table thing in access exclusive mode')
    await work()
    await client.query('rollback')
  })

it('statements of one moment share connections, and each gets its own answer', async () => {
  const db = open()
  const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => db.runQuick<Pid & { n: number }>(pidSql, [n])))
  expect(answers.map(([row]) => row!.n)).toEqual(Array.from({ length: 20 }, (_, n) => n))
  expect(new Set(answers.map(([row]) => row!.pid)).size).toBeLessThanOrEqual(2)
  expect(db.pool.totalCount).toBeLessThanOrEqual(2)
})

it('a failed statement fails alone, with its own error', async () => {
  const db = open({ max: 1 })
  const sql = 'select 100 / $1::int as part'
  const answers = await Promise.allSettled([5, 0, 20].map((n) => db.runQuick<{ part: number }>(sql, [n])))
  expect(answers).toMatchObject([
    { status: 'fulfilled', value: [{ part: 20 }] },
    { status: 'rejected', reason: { code: '22012' } },
    { status: 'fulfilled', value: [{ part: 5 }] },
  ])
})

/**
 * The server sends an error at once, and when it is done with the statement, it says so: on a line that delays that, a
 * connection has failed and comes back before it may be shared. `then` is done before the delayed message arrives.
 */
async function afterFailure(then: (pid: number) => Promise<unknown>) {
  const line = await openDatabaseLine(database.url)
  const db = open({ max: 1, url: line.url })
  const shared = () => Promise.all([1, 2, 3].map(async (n) => (await db.runQuick<Pid>(pidSql, [n], true))[0]!.pid))
  const [pid] = (await shared()) as [number, number, number]
  const letThrough = line.holdAfterErrors()
  await expect(db.run('select 1 / 0', [])).rejects.toMatchObject({ code: '22012' })
  expect(line.holding()).toBe(1)
  const answers = shared()
  await waitFor(() => db.pool.idleCount === 0)
  await then(pid)
  letThrough()
  return { before: pid, after: new Set(await answers) }
}

it('a connection whose statement failed is shared when the server is done with it', async () => {
  const { before, after } = await afterFailure(() => Promise.resolve())
  expect(after).toEqual(new Set([before]))
})

it('a connection that is lost before the server is done with its failed statement is not shared', async () => {
  const { before, after } = await afterFailure((pid) =>
    withClient(database.url, (client) => client.query('select pg_terminate_backend($1)', [pid])),
  )
  expect([after.size, after.has(before)]).toEqual([1, false])
})

it('a statement cannot write', async () => {
  const db = open()
  await expect(db.runQuick('delete from thing returning id', [])).rejects.toMatchObject({ code: '25006' })
})

it('a statement that waits for a lock does not hold up the others, and is answered when it gets it', async () => {
  const db = open({ max: 2 })
  const sql = 'select size as "size behind a lock" from thing'
  const settled: string[] = []
  let slow: Promise<unknown> | undefined
  await whileLocked(async () => {
    slow = db.runQuick(sql, []).finally(() => settled.push('slow'))
    await pidsOf(db, 2)
    // Nor those that come later.
    await pidsOf(db, 3)
    expect(settled).toEqual([])
    expect(await working('size behind a lock')).toMatchObject([{ program: db.program }])
  })
  expect(await slow).toEqual([{ 'size behind a lock': 2 }])
})

it('a statement that waits for a lock ends when its asker is gone, and the connection is used again', async () => {
  const client = new AbortController()
  const db = open({ max: 2, gone: client.signal })
  await whileLocked(async () => {
    const slow = db.runQuick('select id as "id of who left" from thing', [])
    const refused = expect(slow).rejects.toMatchObject({ status: 499 })
    const others = pidsOf(db, 2)
    await waitFor(() => isWorking('id of who left'))
    await others
    client.abort()
    await refused
    expect(await isWorking('id of who left')).toBe(false)
  })
  // When the server has dealt with the cancellation.
  await waitFor(() => db.pool.totalCount === db.pool.idleCount)
  await expect(pidsOf(db, 1)).rejects.toMatchObject({ status: 499 })
})

it('a client that leaves ends no other statement of the shared connection', async () => {
  const { pool } = open({ max: 4 })
  const db = openDatabase(pool, { log: pino({ level: 'silent' }), logSql: false, onLoss: 'repeat', ends: goneSignal })
  const [leaving, staying] = [new AbortController(), new AbortController()]
  const ask = ({ signal: gone }: AbortController, name: string) =>
    workFor({ caller: name, gone, places: 0 }, () => db.runQuick(`select id as "id for ${name}" from thing`, []))
  let stayed: Promise<unknown> | undefined
  await whileLocked(async () => {
    const left = expect(ask(leaving, 'one who leaves')).rejects.toMatchObject({ status: 499 })
    stayed = ask(staying, 'one who stays')
    await waitFor(() => isWorking('id for one who leaves'))
    await waitFor(() => isWorking('id for one who stays'))
    leaving.abort()
    await left
    expect(await isWorking('id for one who stays')).toBe(true)
  })
  expect(await stayed).toEqual([{ 'id for one who stays': 1 }])
})

it('a client that leaves while it waits for a shared connection waits no longer, and others still get it', async () => {
  const { pool } = open({ max: 2 })
  const db = openDatabase(pool, { log: pino({ level: 'silent' }), logSql: false, onLoss: 'repeat', ends: goneSignal })
  const connections = [await pool.connect(), await pool.connect()]
  const clients = Array.from({ length: 6 }, () => new AbortController())
  const answers = clients.map(({ signal: gone }, n) =>
    workFor({ caller: `${n}`, gone, places: 0 }, () => db.runQuick<Pid & { n: number }>(pidSql, [n])),
  )
  // Of the batch that has asked for a connection, and all of the one after it.
  const leaving = [0, 4, 5]
  const left = Promise.allSettled(leaving.map((n) => answers[n]!))
  await waitFor(() => pool.waitingCount === 1)
  for (const n of leaving) clients[n]!.abort()
  expect(await left).toEqual(
    leaving.map(() => ({ status: 'rejected', reason: expect.objectContaining({ status: 499 }) })),
  )
  for (const connection of connections) connection.release()
  expect((await Promise.all([1, 2, 3].map((n) => answers[n]!))).map(([row]) => row!.n)).toEqual([1, 2, 3])
  await waitFor(() => pool.totalCount === pool.idleCount)
  expect((await pidsOf(db, 1)).length).toBe(1)
})

it('a client that leaves after its answer ends nothing else on the connection', async () => {
  const client = new AbortController()
  const db = open({ max: 2, gone: client.signal })
  let slow: Promise<unknown> | undefined
  await whileLocked(async () => {
    slow = db.runQuick('select size as "size for who leaves later" from thing', [])
    await pidsOf(db, 1)
  })
  await slow
  const others = openDatabase(db.pool, { log: pino({ level: 'silent' }), logSql: false, onLoss: 'fail' })
  let onBoth: Promise<unknown[]> | undefined
  await whileLocked(async () => {
    onBoth = Promise.all([1, 2].map(() => others.run(`select 'still there' as it from thing`, [])))
    await waitFor(async () => (await working('still there')).length === 2)
    client.abort()
    // By the time that another one has had its effect, a cancellation sent before it would have, too.
    await withClient(database.url, (other) => cancelQuery(other))
  })
  expect(await onBoth).toEqual([1, 2].map(() => [{ it: 'still there' }]))
})

it('the loss of a connection repeats all that were on it', async () => {
  const db = open({ max: 2 })
  await pidsOf(db, 1)
  let all: Promise<[object[], object]> | undefined
  await whileLocked(async () => {
    all = Promise.all([
      db.runQuick<{ size: number }>('select size as "size after a loss" from thing', []),
      pidsOf(db, 2),
    ])
    await waitFor(() => isWorking('size after a loss'))
    const { pid } = (await working('size after a loss'))[0]!
    await withClient(database.url, (client) => client.query('select pg_terminate_backend($1)', [pid]))
    await waitFor(async () => (await working('size after a loss')).some((one) => one.pid !== pid))
  })
  expect((await all!)[0]).toEqual([{ 'size after a loss': 2 }])
})

it('a changed table makes a prepared statement wait for nothing but another round trip', async () => {
  await withClient(database.url, (client) => client.query('create table growing as select 1 as a'))
  const db = open({ max: 1 })
  const sql = 'select * from growing'
  expect(await db.runQuick(sql, [])).toEqual([{ a: 1 }])
  await withClient(database.url, (client) => client.query('alter table growing add b int'))
  const all = await Promise.all([1, 2, 3].map(() => db.runQuick(sql, [])))
  expect(all).toEqual([1, 2, 3].map(() => [{ a: 1, b: null }]))
  await withClient(database.url, (client) => client.query('drop table growing'))
  await expect(Promise.all([1, 2].map(() => db.runQuick(sql, [])))).rejects.toMatchObject({ code: '42P01' })
})

it('a connection that was shared serves transactions and cursors as any other', async () => {
  const db = open({ max: 1 })
  const [[first]] = (await pidsOf(db, 4)) as [[Pid]]
  const reader = await openBatches<Pid>(db, 'select pg_backend_pid() as pid from generate_series(1, 1200)', [])
  const sizes: number[] = []
  for (let rows = await reader.next(); rows.length > 0; rows = await reader.next()) {
    expect(rows[0]!.pid).toBe(first.pid)
    sizes.push(rows.length)
  }
  await reader.close(false)
  expect(sizes).toEqual([500, 500, 200])
  expect((await pidsOf(db, 1))[0]).toMatchObject([first])
})

it('answers 503 where no connection becomes free in time', async () => {
  const db = open({ max: 1, env: { DATABASE_POOL_ACQUIRE: '200' } })
  const client = await db.pool.connect()
  await expect(pidsOf(db, 2)).rejects.toMatchObject({ status: 503 })
  client.release()
  expect(await pidsOf(db, 2)).toHaveLength(2)
})

it('a statement shares connections when it is known to be quick, and no longer when it is not', async () => {
  const db = open()
  const quick = 'select 1 as one'
  expect([db.isQuick(quick, false), db.isQuick(quick, true)]).toEqual([false, true])
  // One run of several that is not disturbed.
  for (let n = 0; n < 10; n += 1) await db.runQuick(quick, [], false)
  expect(db.isQuick(quick, false)).toBe(true)
  const slow = 'select pg_sleep(0.01)::text as slept'
  for (let n = 0; n < 3; n += 1) await db.runQuick(slow, [])
  expect(db.isQuick(slow, true)).toBe(false)
})

it('without prepared statements each runs alone', async () => {
  const db = open()
  const unnamed = openPool({
    config: testConfig(database.url, { DATABASE_PREPARED_STATEMENTS: 'false' }),
    log: pino({ level: 'silent' }),
    max: 4,
    readOnly: true,
    name: 'unnamed',
  })
  closing.push(() => unnamed.end())
  const other = openDatabase(unnamed, { log: pino({ level: 'silent' }), logSql: false, onLoss: 'repeat' })
  expect([db, other].map((one) => one.isQuick(pidSql, true))).toEqual([true, false])
  expect(new Set((await pidsOf(other, 4)).map(([row]) => row!.pid)).size).toBe(4)
})
