import { randomBytes } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openTracing } from '../../src/adapters/tracing.ts'
import { isConnectionLoss } from '../../src/db/errors.ts'
import { openBatches, runWithin } from '../../src/db/long-reads.ts'
import { type Line, openLine, plainLine } from '../../src/db/poolers/line.ts'
import { lookAtDatabase, lookAtLine } from '../../src/db/poolers/poolers.ts'
import { type Database, openDatabase, openPool } from '../../src/db/pools.ts'
import { rawQuery, sql } from '../../src/db/sql.ts'
import { openWritePool, type WritePool } from '../../src/db/write-pool.ts'
import { examine } from '../../src/doctor/doctor.ts'
import { verifySealsOf } from '../../src/events/seals/seals.ts'
import { verifyTablesOf } from '../../src/events/verify.ts'
import { openStorages } from '../../src/features/files/storage/storage.ts'
import { writeBackup } from '../../src/features/operations/backup/backup.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { startApi } from '../support/api.ts'
import { describeWithPgbouncer, startPgbouncer, type TestPgbouncer } from '../support/pgbouncer.ts'
import { createDatabase, createEmptyDatabase, startPrivateServer, type TestDatabase } from '../support/postgres.ts'
import { testConfig, testEnv } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { primarySettings, startStandby } from '../support/standby.ts'
import { waitFor } from '../support/wait.ts'

const silent = pino({ level: 'silent' })
const pools: pg.Pool[] = []
afterAll(() => Promise.all(pools.map((pool) => pool.end())))

type Opening = { line?: Line; max?: number; readOnly?: boolean; env?: Record<string, string> }

/** As a process opens one; without a line, one that has not been looked at. */
function open(url: string, { line, max = 4, readOnly = true, env = {} }: Opening = {}): Database {
  const config = testConfig(url, env)
  const pool = openPool({ config, log: silent, max, readOnly, name: 'test', ...(line && { line }) })
  pools.push(pool)
  return openDatabase(pool, { log: silent, logSql: false, onLoss: 'fail' })
}

const looked = async (url: string, named = true) =>
  openLine({ facts: await lookAtLine({ config: testConfig(url), url }), named, log: silent })

/** A PgBouncer as many run it: told not to mind what it does not know. */
const lenient = {
  ignore_startup_parameters: 'extra_float_digits,options,statement_timeout,idle_in_transaction_session_timeout',
}

describe('without a pooler', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase()
  })

  it('everything is kept', async () => {
    expect(await lookAtLine({ config: testConfig(database.url), url: database.url })).toEqual(plainLine)
  })

  it('keeps the guard of reads whatever options the address has', async () => {
    const url = `${database.url}?options=${encodeURIComponent('-c search_path=pg_catalog -c timezone=Asia/Tokyo')}`
    const db = open(url)
    expect(await settings(db)).toMatchObject({ zone: 'UTC', readOnly: 'on', path: 'pg_catalog' })
    expect(await lookAtLine({ config: testConfig(url), url })).toEqual(plainLine)
    const pool = await writePool(url)
    expect(await pool.transaction((tx) => tx.query(`select current_setting('search_path') as path`))).toMatchObject({
      rows: [{ path: 'pg_catalog' }],
    })
  })

  it('a write pool that is closed takes no transaction, whether it has had one or not', async () => {
    const one = (pool: WritePool) => pool.transaction((tx) => tx.query('select 1'))
    for (const before of [[], [one]]) {
      const pool = await writePoolToClose(database.url)
      for (const run of before) await run(pool)
      await pool.close()
      const refused = await one(pool).catch((error: unknown) => error)
      expect(isConnectionLoss(refused), String(refused)).toBe(true)
    }
  })

  it('statements are prepared under the hash of their text', async () => {
    const db = open(database.url, { max: 1 })
    await db.run('select 1 as one', [], 'prepared')
    const { rows } = await db.query('select name, statement from pg_prepared_statements')
    expect(rows).toEqual([{ name: expect.stringMatching(/^svc_[\w-]{32}$/), statement: 'select 1 as one' }])
  })

  it('DATABASE_PREPARED_STATEMENTS=false gives no names, to any statement', async () => {
    const api = await startApi({ DATABASE_PREPARED_STATEMENTS: 'false' }, database)
    await api.admin('GET', '/items/svc_User?fields=id')
    await api.admin('POST', '/items/svc_Tenant', { name: 'unnamed' })
    for (const one of [api.runtime.db, api.runtime.reserved]) {
      const text = 'select count(*)::int as n from pg_prepared_statements'
      expect((await one.query(text)).rows).toEqual([{ n: 0 }])
    }
    expect((await api.anonymous('GET', '/ready')).body.database).toEqual({
      ok: true,
      pooler: false,
      preparedStatements: false,
    })
  })

  describe('a table that has changed under a prepared statement', () => {
    const text = 'select * from changing where id = $1::int'
    const change = (statements: string) => withClient(database.url, (client) => client.query(statements))

    it('is read all the same, and as it is now', async () => {
      await change(
        `drop table if exists changing; create table changing (id int, n int); insert into changing values (1, 2)`,
      )
      const db = open(database.url, { max: 1 })
      expect(await db.run(text, [1], 'prepared')).toEqual([{ id: 1, n: 2 }])
      await change('alter table changing alter n type text')
      expect(await db.run(text, [1], 'prepared')).toEqual([{ id: 1, n: '2' }])
      await change('alter table changing add more int')
      expect(await db.run(text, [1], 'prepared')).toEqual([{ id: 1, n: '2', more: null }])
    })

    it('is written once', async () => {
      await change('drop table if exists changing; create table changing (id int, n int)')
      const db = open(database.url, { max: 1, readOnly: false })
      const insert = 'insert into changing (id) values ($1::int) returning *'
      await db.runWithNotices(insert, [1], 'prepared')
      await change('alter table changing alter n type text')
      expect((await db.runWithNotices(insert, [2], 'prepared')).rows).toEqual([{ id: 2, n: null }])
      expect((await db.query('select id from changing order by id')).rows).toEqual([{ id: 1 }, { id: 2 }])
    })

    it('is no reason to do it again within a transaction', async () => {
      const pool = await writePool(database.url)
      let tries = 0
      const attempt = pool.transaction(async (tx) => {
        tries += 1
        await tx.query('insert into changing (id) values (7)')
        await tx.query(
          `do $$ begin raise exception 'cached plan must not change result type' using errcode = '0A000'; end $$`,
        )
      })
      await expect(attempt).rejects.toMatchObject({ code: '0A000' })
      expect(tries).toBe(1)
      expect(await change('select from changing where id = 7')).toMatchObject({ rowCount: 0 })
    })
  })
})

describeWithPgbouncer('a pooler', () => {
  let database: TestDatabase
  /** As Debian configures it: it refuses startup parameters that it does not know. */
  let strict: TestPgbouncer
  let loose: TestPgbouncer

  beforeAll(async () => {
    database = await createDatabase()
    // So that settings which do not arrive are seen.
    await withClient(database.url, (client) =>
      client.query(`alter database ${database.name} set timezone = 'Asia/Tokyo'`),
    )
    ;[strict, loose] = await Promise.all([startPgbouncer(database.url), startPgbouncer(database.url, lenient)])
  })

  describe('is found', () => {
    const look = (url: string) => lookAtLine({ config: testConfig(url), url })
    const shared = { isPooled: true, keepsSessions: false, keepsSettings: false }

    it('in transaction mode', async () => {
      for (const { url } of [strict, loose]) expect(await look(url)).toMatchObject(shared)
    })

    it('with one connection, and with as many as it likes, in whatever order it takes them', async () => {
      const [narrow, wide] = await Promise.all([
        startPgbouncer(database.url, { default_pool_size: 1 }),
        startPgbouncer(database.url, { default_pool_size: 10, server_round_robin: 1 }),
      ])
      for (const { url } of [narrow, wide, narrow, wide]) expect(await look(url)).toMatchObject(shared)
    })

    it('while others take all that it has', async () => {
      const { url } = await startPgbouncer(database.url, { default_pool_size: 2 })
      await withClient(url, async (busy) => {
        await busy.query('begin')
        expect(await look(url)).toMatchObject(shared)
        await busy.query('rollback')
      })
    })

    it('once others have let go of what they took', async () => {
      const { url } = await startPgbouncer(database.url, { default_pool_size: 1 })
      const start = (attempts: string, log = silent) => {
        const env = { DATABASE_DIRECT_URL: database.url, DATABASE_MAX_RETRY: attempts, DATABASE_RETRY_INTERVAL: '1' }
        return lookAtDatabase(testConfig(url, env), log)
      }
      await withClient(url, async (busy) => {
        await busy.query('begin')
        await expect(start('1')).rejects.toThrow('DATABASE_URL: the pooler has no connection to give')
        const { promise: waits, resolve: onWarning } = Promise.withResolvers<void>()
        const looking = start('1000', pino({ level: 'warn' }, { write: () => onWarning() }))
        await waits
        await busy.query('rollback')
        expect((await looking).facts()).toMatchObject(shared)
      })
    })

    it('in session mode, whose sessions stay', async () => {
      const { url } = await startPgbouncer(database.url, { pool_mode: 'session' })
      expect(await look(url)).toEqual({ ...shared, keepsSessions: true, keepsNames: true })
      const narrow = await startPgbouncer(database.url, { pool_mode: 'session', default_pool_size: 1 })
      expect(await look(narrow.url)).toMatchObject({ ...shared, keepsSessions: true })
    })

    it('that gives no transactions', async () => {
      const { url } = await startPgbouncer(database.url, { pool_mode: 'statement' })
      await expect(openRuntime(runtimeOf({ DATABASE_URL: url, DATABASE_DIRECT_URL: database.url }))).rejects.toThrow(
        /^DATABASE_URL: a pooler is in between that gives no transactions/,
      )
    })
  })

  describe('gives each statement', () => {
    it.each(['strict', 'loose'] as const)('its settings (%s)', async (kind) => {
      const { url } = { strict, loose }[kind]
      const line = await looked(url)
      const expected = { zone: 'UTC', limit: '1min', idle: '1min' }
      const db = open(url, { line })
      for (let i = 0; i < 10; i += 1)
        expect(await settings(db)).toEqual({ ...expected, readOnly: 'on', path: '"$user", public' })
      const writing = open(url, { line, readOnly: false })
      expect(await settings(writing)).toMatchObject({ ...expected, readOnly: 'off' })
      // Neither is seen by the other, nor by anybody else.
      await Promise.all(
        Array.from({ length: 40 }, async (_, i) =>
          expect(await settings(i % 2 ? db : writing)).toMatchObject({ readOnly: i % 2 ? 'on' : 'off' }),
        ),
      )
      await withClient(url, async (client) =>
        expect((await client.query('select current_setting($1) as zone', ['timezone'])).rows).toEqual([
          { zone: 'Asia/Tokyo' },
        ]),
      )
    })

    it('that reads no way to write', async () => {
      const db = open(strict.url, { line: await looked(strict.url) })
      const insert = `insert into "svc_Tenant" (name) values ('x')`
      await expect(db.any(rawQuery(insert))).rejects.toMatchObject({ code: '25006' })
      await expect(db.run(insert, [], 'prepared')).rejects.toMatchObject({ code: '25006' })
      await expect(db.query(insert)).rejects.toMatchObject({ code: '25006' })
      await expect(runWithin(db, { text: insert, values: [] }, performance.now() + 5000)).rejects.toMatchObject({
        code: '25006',
      })
    })

    it('its end', async () => {
      const env = { TRANSACTION_TIMEOUT_MS: '300' }
      const db = open(strict.url, { line: await looked(strict.url), env })
      await expect(db.run('select pg_sleep(20)', [])).rejects.toMatchObject({ code: '57014' })
      const pool = await writePool(strict.url, env)
      await expect(pool.transaction((tx) => tx.query('select pg_sleep(20)'))).rejects.toThrow(/timeout/)
      expect(await settings(db)).toMatchObject({ limit: '300ms', idle: '300ms' })
    })

    it('options of the address', async () => {
      const url = `${strict.url}?options=${encodeURIComponent('-c search_path=pg_catalog')}`
      const line = await looked(url)
      expect(await settings(open(url, { line }))).toMatchObject({ path: 'pg_catalog', readOnly: 'on' })
    })

    it('of a transaction, a cursor and a script the same', async () => {
      const line = await looked(strict.url)
      const db = open(strict.url, { line })
      const text = `select current_setting('timezone') as zone, current_setting('transaction_read_only') as only, current_setting('statement_timeout') as limit`
      const batches = await openBatches(db, text, [])
      expect(await batches.next()).toEqual([{ zone: 'UTC', only: 'on', limit: '1min' }])
      expect(await batches.query(text, [])).toEqual([{ zone: 'UTC', only: 'on', limit: '1min' }])
      await batches.close(false)
      const [row] = await runWithin<{ limit: string; zone: string }>(db, { text, values: [] }, performance.now() + 3000)
      expect(row).toMatchObject({ zone: 'UTC', only: 'on', limit: expect.stringMatching(/^(29\d\d|3000|3)m?s$/) })
      const pool = await writePool(strict.url)
      expect(await pool.transaction((tx) => tx.query(text))).toMatchObject({
        rows: [{ zone: 'UTC', only: 'off', limit: '1min' }],
      })
      expect(await pool.script(text)).toMatchObject({ rows: [{ zone: 'UTC', only: 'off', limit: '1min' }] })
      expect(await pool.script(`select 1 as a; ${text}`)).toMatchObject([
        { rows: [{ a: 1 }] },
        { rows: [{ zone: 'UTC' }] },
      ])
      expect(await pool.script(`${text} where $1::text is not null`, ['x'])).toMatchObject({ rows: [{ zone: 'UTC' }] })
    })

    it('its rows, notices and errors as ever', async () => {
      const db = open(strict.url, { line: await looked(strict.url), readOnly: false, max: 1 })
      expect(await db.run('select g as n from generate_series(1, 3) g where g > $1::int', [1])).toEqual([
        { n: 2 },
        { n: 3 },
      ])
      expect(await db.run('select 1 where false', [])).toEqual([])
      expect(await db.run('', [])).toEqual([])
      await expect(db.run('select $1::int', ['x'])).rejects.toMatchObject({ code: '22P02' })
      await expect(db.run('selec', [])).rejects.toMatchObject({ code: '42601' })
      expect(await db.runWithNotices(`do $$ begin raise notice 'svc_sessions user:1'; end $$`, [])).toMatchObject({
        notices: [{ channel: 'svc_sessions', payload: 'user:1' }],
      })
    })

    it('whose client is gone an end at once', async () => {
      const db = open(strict.url, { line: await looked(strict.url) })
      const gone = new AbortController()
      const marker = `marker_${randomBytes(4).toString('hex')}`
      const answer = db.run(`select pg_sleep(50) as ${marker}`, [], 'unnamed', gone.signal)
      const running = () =>
        withClient(database.url, async (client) => {
          const { rows } = await client.query(
            `select from pg_stat_activity where query like '%${marker}%' and state = 'active' and pid <> pg_backend_pid()`,
          )
          return rows.length
        })
      await expect.poll(running).toBe(1)
      gone.abort()
      await expect(answer).rejects.toMatchObject({ status: 499 })
      await expect.poll(running).toBe(0)
    })
  })

  describe('without detection', () => {
    it('never mixes the statements of two processes up, and neither of them fails', async () => {
      const processes = [open(loose.url), open(loose.url)]
      const texts = Array.from({ length: 30 }, (_, i) => `select ${i} as n${i}, $1::int as given`)
      await Promise.all(
        Array.from({ length: 400 }, async (_, i) => {
          const at = (i * 7) % texts.length
          const rows = await processes[i % 2]!.run(texts[at]!, [i], 'prepared')
          expect(rows).toEqual([{ [`n${at}`]: at, given: i }])
        }),
      )
    })

    it('loses names and settings for good, as soon as that shows', async () => {
      const line = openLine({ named: true, log: silent })
      const [one, two] = [open(loose.url, { line }), open(loose.url, { line })]
      await Promise.all(
        Array.from({ length: 40 }, (_, i) => (i % 2 ? one : two).run(`select ${i % 5} as n`, [], 'prepared')),
      )
      expect(line.facts()).toMatchObject({ keepsSettings: false, keepsNames: false })
      expect(line.isNamed()).toBe(false)
      expect(await settings(one)).toMatchObject({ zone: 'UTC', readOnly: 'on' })
    })

    it('does not let its first read write', async () => {
      await expect(open(loose.url).query(`insert into "svc_Tenant" (name) values ('x')`)).rejects.toMatchObject({
        code: '25006',
      })
    })
  })

  it('that keeps names gets them, together with the settings', async () => {
    const { url } = await startPgbouncer(database.url, { pool_mode: 'session', default_pool_size: 20 })
    const db = open(url, { line: await looked(url), max: 1 })
    const text = `select $1::int as n, current_setting('timezone') as zone`
    for (let i = 0; i < 3; i += 1) expect(await db.run(text, [i], 'prepared')).toEqual([{ n: i, zone: 'UTC' }])
    // One that PostgreSQL refuses is no longer known either.
    for (let i = 0; i < 2; i += 1)
      await expect(db.run('select nothing', [], 'prepared')).rejects.toMatchObject({ code: '42703' })
    const { rows } = await db.query(
      `select statement from pg_prepared_statements where name like 'svc_%' and name not like 'svc_look%'`,
    )
    expect(rows).toEqual([{ statement: text }])
  })

  describe('refuses to start', () => {
    const start = (env: Record<string, string>) => openRuntime(runtimeOf(env))

    it('without a direct way, naming the variable', async () => {
      await expect(start({ DATABASE_URL: strict.url })).rejects.toThrow(
        /^DATABASE_DIRECT_URL: missing, for DATABASE_URL leads through a pooler in transaction mode/,
      )
      await expect(runSetup(testConfig(strict.url), silent)).rejects.toThrow(/^DATABASE_DIRECT_URL: missing/)
    })

    it('nor a command that needs a connection of its own', async () => {
      const config = testConfig(strict.url)
      const host = { config, log: silent, storages: openStorages(config) }
      const missing = /^DATABASE_DIRECT_URL: missing/
      await expect(writeBackup(host, join(tmpdir(), `${randomBytes(9).toString('hex')}.daybook`))).rejects.toThrow(
        missing,
      )
      await expect(verifyTablesOf(config)).rejects.toThrow(missing)
      await expect(verifySealsOf(config, { keys: [], heads: [] })).rejects.toThrow(missing)
    })

    it('with a direct way that is none', async () => {
      const env = { DATABASE_URL: strict.url, DATABASE_DIRECT_URL: loose.url }
      await expect(start(env)).rejects.toThrow(/^DATABASE_DIRECT_URL: it leads through a pooler in transaction mode/)
      await expect(runSetup(testConfig(strict.url, env), silent)).rejects.toThrow(/^DATABASE_DIRECT_URL: it leads/)
    })

    it('with a direct way to another database', async () => {
      const other = await createDatabase()
      await expect(start({ DATABASE_URL: strict.url, DATABASE_DIRECT_URL: other.url })).rejects.toThrow(
        'DATABASE_DIRECT_URL: names another database than DATABASE_URL',
      )
    })

    it('with a direct way to other tables', async () => {
      const direct = `${database.url}?options=${encodeURIComponent('-c search_path=public,pgboss')}`
      await expect(start({ DATABASE_URL: strict.url, DATABASE_DIRECT_URL: direct })).rejects.toThrow(
        'DATABASE_DIRECT_URL: tables are looked for in {public,pgboss} there, and in {public} by DATABASE_URL',
      )
    })
  })

  it('in session mode needs no other way', async () => {
    const { url } = await startPgbouncer(database.url, { pool_mode: 'session', default_pool_size: 60 })
    const api = await startApi({}, { ...database, url })
    expect((await verifyTablesOf(testConfig(url))).filter(({ different }) => different > 0)).toEqual([])
    expect(await settings(api.runtime.db)).toMatchObject({ zone: 'UTC', readOnly: 'on' })
    expect((await api.anonymous('GET', '/ready')).body).toMatchObject({
      status: 'ready',
      database: { ok: true, pooler: true, preparedStatements: true },
    })
    await expect.poll(() => api.runtime.listener.isLive()).toBe(true)
  })

  it('serves a setup, which goes past it', async () => {
    const empty = await createEmptyDatabase()
    const { url, console } = await startPgbouncer(empty.url)
    const config = testConfig(url, { DATABASE_DIRECT_URL: empty.url })
    expect(await runSetup(config, silent)).toMatchObject({ admin: { email: 'admin@example.com' } })
    expect(await runSetup(config, silent)).toEqual({ admin: undefined })
    // But for the look whether it answers.
    expect((await console('show stats')).find((row) => row.database === empty.name)?.total_query_count ?? '0').toBe('0')
  })

  it('may stand before a replica', async () => {
    const primary = await startPrivateServer(primarySettings)
    const { url } = await startPgbouncer((await startStandby(primary)).url)
    // Without answers from memory, which a slow machine finds worth keeping.
    const replicas = {
      DATABASE_READ_REPLICA_ENABLED: 'true',
      DATABASE_READ_REPLICA_URLS: url,
      DATA_CACHE_AUTO: 'false',
    }
    const api = await startApi(replicas, { url: primary.url, name: 'daybook', drop: async () => undefined })
    await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
    await api.admin('POST', '/items/note', { text: 'read there' })
    const replica = () => api.runtime.replicas!.stats().replicas[0]!
    await waitFor(() => replica().serving)
    const answers = await Promise.all(Array.from({ length: 30 }, () => api.admin('GET', '/items/note?fields=text')))
    expect(new Set(answers.map(({ text }) => text))).toEqual(
      new Set(['{"data":[{"text":"read there"}],"totalCount":1}']),
    )
    await waitFor(async () => {
      await api.admin('GET', '/items/note?fields=text')
      return replica().reads > 0
    })
    expect(replica().faults).toBe(0)
  })

  describe('is told of by the doctor', () => {
    const look = async (env: Record<string, string>) => {
      const findings = await examine({ ...testEnv(database.url), ...env })
      return (check: string) => findings.filter((finding) => finding.check === check)
    }

    it('with what it keeps', async () => {
      const of = await look({ DATABASE_URL: strict.url, DATABASE_DIRECT_URL: database.url })
      expect(of('pooler')).toMatchObject([
        {
          status: 'warning',
          says: 'one in transaction mode; settings go with each transaction, statements are sent without names, as it does not keep them',
        },
      ])
      expect(of('session settings')).toMatchObject([
        { status: 'ok', says: 'time zone, time limits and read-only connections arrive, with each transaction' },
      ])
      expect(of('notifications')).toMatchObject([{ status: 'ok' }])
      expect(of('connections')).toMatchObject([{ status: 'ok' }])
    })

    it('with what is missing', async () => {
      const of = await look({ DATABASE_URL: strict.url })
      expect(of('notifications')).toMatchObject([
        { status: 'problem', remedy: 'set DATABASE_DIRECT_URL to the address of the server itself' },
      ])
      const past = await look({ DATABASE_URL: strict.url, DATABASE_DIRECT_URL: strict.url })
      expect(past('notifications')).toMatchObject([
        { status: 'problem', says: 'DATABASE_DIRECT_URL leads through a pooler in transaction mode: nothing starts' },
      ])
    })

    it('that there is none', async () => {
      const of = await look({})
      expect(of('pooler')).toMatchObject([{ status: 'ok', says: 'none; statements are sent by name' }])
    })
  })
})

const runtimeOf = (env: Record<string, string>) => ({
  config: testConfig(env.DATABASE_URL!, env),
  log: silent,
  name: 'web',
  worker: false,
})

async function writePool(url: string, env: Record<string, string> = {}) {
  const pool = await writePoolToClose(url, env)
  closers.push(() => pool.close())
  return pool
}

async function writePoolToClose(url: string, env: Record<string, string> = {}) {
  const config = testConfig(url, env)
  const tracing = await openTracing(config, 'test', silent)
  return openWritePool({
    config,
    log: silent,
    line: await looked(url),
    transactions: 1,
    hot: 2,
    name: 'test',
    tracing,
  })
}

const closers: (() => Promise<void>)[] = []
afterAll(() => Promise.all(closers.map((close) => close())))

const settings = async (db: Database) =>
  db.one(sql`select current_setting('timezone') as zone, current_setting('transaction_read_only') as "readOnly",
    current_setting('statement_timeout') as limit, current_setting('idle_in_transaction_session_timeout') as idle,
    current_setting('search_path') as path`)
