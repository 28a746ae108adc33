import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { migrationScript } from '../../src/features/data/migrations/create.ts'
import { startCluster } from '../support/cluster.ts'
import { connect } from '../support/log.ts'
import { migrationsDir, noting } from '../support/migrations.ts'
import { createDatabase, createEmptyDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { startProcess, type TestProcess, waitFor } from '../support/processes.ts'

const cli = 'src/cli/main.ts'

it('setup leaves the migrations of the user alone without MIGRATIONS_AUTO_RUN', async () => {
  const database = await createEmptyDatabase()
  const dir = migrationsDir()
  dir.write('20240101_a', noting('20240101_a'))
  const env = { ...testEnv(database.url), MIGRATIONS_DIR: dir.path }
  const setUp = async (more: Record<string, string> = {}) =>
    expect(await startProcess('src/setup/main.ts', [], { ...env, ...more }).exited).toMatchObject({ code: 0 })
  const client = await connect(database.url)
  const ran = async () => (await client.query(`select to_regclass('ran') is not null as ran`)).rows[0].ran
  await setUp()
  expect(await ran()).toBe(false)
  await setUp({ MIGRATIONS_AUTO_RUN: 'true' })
  expect(await ran()).toBe(true)
  await client.end()
})

describe('processes that start at once with MIGRATIONS_AUTO_RUN on an empty database', () => {
  it('set it up together and run every script once', async () => {
    const dir = migrationsDir()
    for (const version of ['20240101_a', '20240102_b']) dir.write(version, noting(version))
    const env = { MIGRATIONS_AUTO_RUN: 'true', MIGRATIONS_DIR: dir.path }
    const cluster = await startCluster({ database: await createEmptyDatabase(), web: 2, env })
    expect(await cluster.sql('select what from ran order by what')).toEqual([
      { what: '20240101_a' },
      { what: '20240102_b' },
    ])
    const runs = await cluster.sql(
      `select action, "entityId" from "svc_AuditLog" where type = 'migration' order by position`,
    )
    expect(runs).toEqual([
      { action: 'run', entityId: '20240101_a' },
      { action: 'run', entityId: '20240102_b' },
    ])
    expect(await cluster.sql(`select distinct status from "svc_Migration"`)).toEqual([{ status: 'completed' }])
    const status = await cluster.web[1]!.call('GET', '/migrations/status')
    expect(status.body.data).toMatchObject({ isUpToDate: true, lastBatch: 2, currentVersion: '20240102_b' })
  })
})

describe('a runner that is killed', () => {
  const dir = migrationsDir()
  let env: Record<string, string>
  let client: Awaited<ReturnType<typeof connect>>

  beforeAll(async () => {
    const { url } = await createDatabase()
    env = { ...testEnv(url), MIGRATIONS_DIR: dir.path }
    client = await connect(url)
    await client.query('create table ran (what text); create table gate (open boolean)')
  })
  afterAll(() => client.end())

  const row = async (version: string) =>
    (await client.query('select status, "errorMessage" from "svc_Migration" where version = $1', [version])).rows[0]
  const ran = async () => (await client.query('select what from ran order by what')).rows.map(({ what }) => what)
  const migrate = (...args: string[]): TestProcess => startProcess(cli, ['migrate', ...args], env)
  const setStatus = (version: string, status: string) =>
    client.query('update "svc_Migration" set status = $2 where version = $1', [version, status])

  /** Runs the command until its script is asleep, kills it, and waits until the server has noticed. */
  async function killIn(...args: string[]): Promise<void> {
    const runner = migrate(...args)
    const asleep = `select from pg_stat_activity where query like 'select pg_sleep(600)%' and datname = current_database()`
    await waitFor(async () => (await client.query(asleep)).rowCount === 1)
    await runner.kill('SIGKILL')
    const held = `select from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`
    await waitFor(async () => (await client.query(held)).rowCount === 0)
  }

  const insertAndSleep = `await sql(\`insert into ran values ('half')\`); if ((await sql('select from gate')).length === 0) await sql('select pg_sleep(600)'); return { success: true }`

  it('leaves a transaction undone, is found by the next start, and the operator decides', async () => {
    dir.write('20240101_up', insertAndSleep, { down: insertAndSleep })
    await killIn('run')
    expect([await row('20240101_up'), await ran()]).toMatchObject([{ status: 'running' }, []])
    const { web } = await startCluster({ database: { url: env.DATABASE_URL! }, web: 1, env })
    expect(await row('20240101_up')).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining('has ended'),
    })
    expect((await web[0]!.call('POST', '/migrations/run')).status).toBe(409)
    await client.query('insert into gate values (true)')
    await setStatus('20240101_up', 'pending')
    expect((await web[0]!.call('POST', '/migrations/run')).body.data.summary.completed).toBe(1)
    expect(await ran()).toEqual(['half'])
  })

  it('says of a rollback that the migration is still applied', async () => {
    await client.query('delete from gate')
    await killIn('rollback', '20240101_up')
    expect([await row('20240101_up'), await ran()]).toMatchObject([{ status: 'running' }, ['half']])
    expect(await migrate('run').exited).toMatchObject({ code: 1 })
    expect(await row('20240101_up')).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining('rolled it back'),
    })
    expect(await migrate('mark-completed', '20240101_up').exited).toMatchObject({ code: 0 })
    expect(await row('20240101_up')).toEqual({ status: 'completed', errorMessage: null })
  })

  it('keeps what a script without a transaction has done until then', async () => {
    dir.write('20240102_alone', insertAndSleep, { head: 'export const transaction = false' })
    await killIn('run')
    expect([await row('20240102_alone'), await ran()]).toMatchObject([{ status: 'running' }, ['half', 'half']])
    await client.query('insert into gate values (true)')
    const start = startProcess('src/api/main.ts', [], { ...env, MIGRATIONS_AUTO_RUN: 'true', PORT: '0' })
    expect(await start.exited).toMatchObject({ code: 1 })
    expect(start.lines.at(-1)?.text).toContain('Migration 20240102_alone cannot be run: it has failed')
    expect(await row('20240102_alone')).toMatchObject({ status: 'failed' })
    await setStatus('20240102_alone', 'completed')
  })

  it('has a command line that says what is to be done, does it, and tells scripts by its exit code', async () => {
    dir.write(
      '20240103_lock',
      `await sql('alter table ran add column at timestamptz'); await sql('create index on ran (what)'); return { success: true }`,
    )
    const outputOf = async (...args: string[]) => {
      const { exited, lines } = migrate(...args)
      const { code } = await exited
      return [code, lines.map(({ text }) => text).join('\n')]
    }
    const looks = [['lint'], ['run', '--dry-run', '--sql'], ['run', '--dry-run'], ['run', '--sideways']]
    expect(await Promise.all(looks.map((args) => outputOf(...args)))).toEqual([
      [3, expect.stringContaining('index-not-concurrent ran')],
      [0, expect.stringContaining('create index on ran (what);')],
      [0, expect.stringContaining('pending     20240103_lock')],
      [2, expect.stringContaining('--sideways')],
    ])
    expect(await row('20240103_lock')).toBeUndefined()
    dir.write('20240104_harmless', `await sql('create table harmless (id int)'); return { success: true }`)
    expect(await outputOf('lint', '--version', '20240104_harmless')).toEqual([0, ''])
    expect(await outputOf('run')).toEqual([0, expect.stringContaining('completed   20240103_lock')])
    expect(await Promise.all([outputOf('status'), outputOf('rollback', '20240103_lock')])).toEqual([
      [0, expect.stringContaining('version 20240104_harmless')],
      [1, expect.stringContaining('it has no down function')],
    ])
  })

  it('makes the differences of written changes one after the other, and says where they do not fit', async () => {
    const outputOf = async (...args: string[]) => {
      const { exited, lines } = migrate(...args)
      const { code } = await exited
      return [code, lines.map(({ text }) => text).join('\n')]
    }
    const team = (fields: object) => ({ team: { fields: { name: { type: 'String' }, ...fields } } })
    const changes = [
      ['make team', { team: null }, team({})],
      ['add motto', team({}), team({ motto: { type: 'String' } })],
      ['add color', team({}), team({ color: { type: 'String' } })],
      ['other motto', team({}), team({ motto: { type: 'Integer' } })],
    ] as const
    const versions = changes.map(([name, before, after], i) => {
      const written = migrationScript({ name, definitions: { before, after } }, new Date(Date.UTC(2024, 0, 4, 12, i)))
      writeFileSync(join(dir.path, written.file), written.text)
      return written.version
    })
    const problem = 'team.fields.motto.type is "String" and not "Integer"'
    const shown = await outputOf('lint', '--version', versions[3]!)
    expect(shown).toEqual([3, expect.stringContaining('team is not there')])
    expect(await outputOf('lint')).toEqual([
      3,
      expect.stringMatching(new RegExp(`^-- ${versions[3]}.*\n.*${problem}$`)),
    ])
    expect(await outputOf('run', '--to', versions[2]!)).toEqual([
      0,
      expect.stringContaining(`completed   ${versions[2]}`),
    ])
    expect((await client.query('select name, motto, color from team')).rows).toEqual([])
    expect(await outputOf('run')).toEqual([1, expect.stringContaining(problem)])
    expect(await outputOf('rollback', versions[1]!)).toEqual([0, expect.stringContaining('rolled_back')])
    expect((await client.query('select name, color from team')).rows).toEqual([])
    for (const version of versions) rmSync(join(dir.path, `${version}.ts`))
    await client.query(`delete from "svc_Migration" where version = any($1)`, [versions])
  })

  it('retries what has failed, a run or a rollback, by the rules of the API', async () => {
    const outputOf = async (...args: string[]) => {
      const { exited, lines } = migrate(...args)
      const { code } = await exited
      return [code, lines.map(({ text }) => text).join('\n')]
    }
    const succeed = `await sql('select 1'); return { success: true }`
    const fail = (message: string) => `await sql(\`insert into ran values ('undone')\`); throw new Error('${message}')`
    const version = '20240105_retried'
    const before = await ran()
    const said = (text: string) => expect.stringContaining(text)
    dir.write(version, fail('not yet'), { down: fail('no way back') })
    expect(await outputOf('run')).toEqual([1, said(`failed      ${version}`)])
    expect(await outputOf('retry', version)).toEqual([1, said('not yet')])
    expect(await outputOf('run')).toEqual([1, said(`Migration ${version} cannot be run: it has failed`)])
    dir.write(version, succeed, { down: fail('no way back') })
    expect(await outputOf('retry', version, '--json')).toEqual([0, said('"status": "completed"')])
    expect(await outputOf('retry', version)).toEqual([1, said('cannot be retried: it has not failed')])

    expect(await outputOf('rollback', version)).toEqual([1, said('no way back')])
    expect(await row(version)).toEqual({ status: 'failed', errorMessage: 'Its rollback has failed: no way back' })
    expect(await outputOf('retry', version)).toEqual([1, said('Its rollback has failed: no way back')])
    dir.write(version, succeed, { down: succeed })
    expect(await outputOf('retry', version, '--reason', 'mended')).toEqual([0, said(`rolled_back ${version}`)])
    const { rows } = await client.query(
      `select type, action, changes from "svc_AuditLog" where type = 'migration' and changes->>'version' = $1 order by position`,
      [version],
    )
    expect(rows.map(({ action, changes }) => [action, changes.reason])).toEqual([
      ['run', undefined],
      ['rolled_back', 'mended'],
    ])
    expect(await row(version)).toEqual({ status: 'rolled_back', errorMessage: null })
    expect(await ran()).toEqual(before)

    expect(await outputOf('mark-completed', '--all', '--to', version)).toEqual([0, said(`completed   ${version}`)])
    expect(await Promise.all([outputOf('status'), outputOf('mark-completed', version)])).toEqual([
      [0, said('0 pending')],
      [1, said('it is completed')],
    ])
    const wrong = [['retry'], ['retry', version, 'x'], ['mark-completed'], ['mark-completed', version, '--all']]
    for (const args of [...wrong, ['mark-completed', version, '--to', version]])
      expect((await outputOf(...args))[0]).toBe(2)
    expect(await outputOf('retry', '20990101')).toEqual([1, said('Migration not found')])
    expect(await outputOf('retry', '0.1.0')).toEqual([1, said('cannot be retried')])
  })
})
