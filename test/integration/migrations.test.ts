import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { connect } from '../support/log.ts'
import { migrationsDir, noting } from '../support/migrations.ts'
import { waitFor } from '../support/wait.ts'

const dir = migrationsDir()
let api: Api

beforeAll(async () => {
  api = await startApi({ MIGRATIONS_DIR: dir.path, MIGRATIONS_LOCK_TIMEOUT: '200' })
})

const row = async (version: string) => (await api.sql('select * from "svc_Migration" where version = $1', [version]))[0]
const ran = async (): Promise<string[]> => {
  const [{ there }] = await api.sql(`select to_regclass('ran') is not null as there`)
  return there ? (await api.sql('select what from ran')).map(({ what }) => what) : []
}
const run = (body: object = {}) => api.admin('POST', '/migrations/run', body)
const status = async () => (await api.admin('GET', '/migrations/status')).body.data
const setStatus = (version: string, to: string) =>
  api.sql('update "svc_Migration" set status = $2 where version = $1', [version, to])
/** The events of a migration, as the log tells them: domain events and what its row went through. */
const story = async (version: string) =>
  (
    await api.sql(
      `select l.type, l.action, l.changes->'after'->>'status' as status, "userAgent" as agent from "svc_AuditLog" l
       left join "svc_Migration" m on l."entityId" = m.id::text
       where entity = 'svc_Migration' and (l."entityId" = $1 or m.version = $1) order by position`,
      [version],
    )
  ).map(({ type, action, status, agent }) => (type === 'migration' ? `migration.${action}` : `${status} by ${agent}`))

describe('status, list and one', () => {
  it('count what the program needs as applied, and what lies in MIGRATIONS_DIR as pending', async () => {
    const before = await status()
    expect(before).toMatchObject({ pendingCount: 0, isUpToDate: true, isSequelizeUpgrade: false, drifted: [] })
    expect(before.totalMigrations).toBe(before.appliedCount)
    expect(before.currentVersion).toMatch(/^0\.\d+\.\d+$/)
    expect(before.lastMigration).toMatchObject({ status: 'completed', version: before.currentVersion })
    dir.write('20240101_b', noting('b'), { down: `await sql('delete from ran'); return { success: true }` })
    dir.write('1.0.0-alpha.7', noting('a'))
    expect(await status()).toMatchObject({
      ...before,
      pendingCount: 2,
      isUpToDate: false,
      totalMigrations: before.totalMigrations + 2,
    })
    const { body } = await api.admin('GET', '/migrations/check')
    expect(body.data).toEqual({
      needed: true,
      hasPending: true,
      lastVersion: '20240101_b',
      currentVersion: before.currentVersion,
      pendingCount: 2,
    })
  })

  it('are in the order of versions, can be filtered, and are found one by one', async () => {
    const pending = (await api.admin('GET', '/migrations/pending')).body.data
    expect(pending.map((record: any) => [record.version, record.name, record.status, record.canRollback])).toEqual([
      ['1.0.0-alpha.7', 'step 1.0.0-alpha.7', 'pending', false],
      ['20240101_b', 'step 20240101_b', 'pending', true],
    ])
    expect((await api.admin('GET', '/migrations?status=pending&limit=1')).body.data).toEqual([pending[0]])
    const all = (await api.admin('GET', '/migrations')).body
    expect((await api.admin('GET', '/migrations?limit=-1')).body).toEqual(all)
    for (const limit of [0, -2, 'x']) expect((await api.admin('GET', `/migrations?limit=${limit}`)).status).toBe(400)
    expect((await api.admin('GET', '/migrations?status=nonsense')).status).toBe(400)
    expect((await api.admin('GET', '/migrations/20240101_b')).body.data).toEqual(pending[1])
    for (const version of ['nothing', '..%2F..%2Fsrc%2Fconfig', '%2Fetc%2Fpasswd', '20240101_b.ts'])
      expect((await api.admin('GET', `/migrations/${version}`)).status).toBe(404)
  })
})

describe('run', () => {
  it('shows with dryRun what would run and executes and stores nothing', async () => {
    const position = await api.position()
    const { body } = await run({ dryRun: true })
    expect(body.data.summary).toEqual({ total: 2, completed: 0, failed: 0 })
    expect(body.data.results.map((record: any) => [record.version, record.status, record.metadata])).toEqual([
      ['1.0.0-alpha.7', 'pending', { dryRun: true }],
      ['20240101_b', 'pending', { dryRun: true }],
    ])
    expect([await ran(), await row('20240101_b'), await api.position()]).toEqual([[], undefined, position])
  })

  it('shows with sql as well what it would execute and stop, on a transaction that only reads', async () => {
    const position = await api.position()
    dir.write(
      '20240101_lint',
      `const [{ n }] = await sql('select count(*)::int as n from "svc_User"');
       await sql('create table made (n int)'); await sql('insert into made values ($1)', [n]);
       await sql('create index on "svc_User" ("lastName")');
       await schemaManager.createCollections(db, [{ collectionName: 'moon', schema: { fields: { name: { type: 'String' } } } }]);
       return { success: n > 0, message: 'nobody is there' }`,
    )
    const { body } = await run({ dryRun: true, sql: true, version: '20240101_lint' })
    const [{ sql: statements, sqlProblem, findings, status: state, metadata }] = body.data.results
    expect([state, metadata, sqlProblem]).toEqual(['pending', { dryRun: true }, null])
    expect(statements.slice(0, 3)).toEqual([
      'create table made (n int)',
      'insert into made values ($1)',
      'create index on "svc_User" ("lastName")',
    ])
    expect(statements.some((text: string) => text.startsWith('create table "moon"'))).toBe(true)
    expect(findings.map((finding: any) => [finding.statement, finding.rule, finding.object])).toEqual([
      [3, 'index-not-concurrent', 'svc_User'],
    ])
    expect(await api.position()).toBe(position)
    expect(await api.sql(`select to_regclass('made') as made, to_regclass('moon') as moon`)).toEqual([
      { made: null, moon: null },
    ])
    rmSync(join(dir.path, '20240101_lint.ts'))
  })

  it.each([
    [{ toVersion: '20990101' }, 400],
    [{ version: '20990101' }, 400],
    [{ version: '20240101_b', toVersion: '20240101_b' }, 400],
    [{ version: '0.1.0' }, 409],
    [{ dryRun: 'perhaps' }, 400],
  ])('refuses %j', async (body, expected) => {
    expect((await run(body)).status).toBe(expected)
    expect(await ran()).toEqual([])
  })

  it('runs up to a version, as one batch, in the log by the migration and for the administrator', async () => {
    const { lastBatch } = await status()
    dir.write('20240102_c', noting('c'), {
      down: `await sql(\`delete from ran where what = 'c'\`); return { success: true }`,
    })
    const { body } = await run({ toVersion: '20240101_b' })
    expect(body.data.summary).toEqual({ total: 2, completed: 2, failed: 0 })
    expect(await ran()).toEqual(['a', 'b'])
    expect(body.data.results[1]).toMatchObject({
      status: 'completed',
      batch: lastBatch + 1,
      errorMessage: null,
      canRollback: true,
    })
    expect(await row('1.0.0-alpha.7')).toMatchObject({
      status: 'completed',
      batch: lastBatch + 1,
      checksum: expect.any(String),
    })
    const agent = 'migration 20240101_b'
    expect(await story('20240101_b')).toEqual([`running by ${agent}`, `completed by ${agent}`, 'migration.run'])
    const [event] = await api.sql(
      `select "userId", changes from "svc_AuditLog" where type = 'migration' and "entityId" = '20240101_b'`,
    )
    const [{ id }] = await api.sql(`select id from "svc_User" where email = 'admin@example.com'`)
    expect(event).toEqual({ userId: id, changes: { version: '20240101_b', batch: lastBatch + 1 } })
    expect(await status()).toMatchObject({ currentVersion: '20240101_b', pendingCount: 1, lastBatch: lastBatch + 1 })
    expect((await run({ version: '20240101_b' })).status).toBe(409)
    expect(await ran()).toEqual(['a', 'b'])
  })

  it('stops at the first failure, undoes its transaction, keeps its message, and waits for the operator', async () => {
    dir.write('20240103_d', `await sql('create table half (id int)'); throw new Error('out of ideas')`)
    dir.write('20240104_e', noting('e'))
    const { status: code, body } = await run()
    expect(code).toBe(200)
    expect(body.data.summary).toEqual({ total: 2, completed: 1, failed: 1 })
    expect(body.data.results[1]).toMatchObject({
      version: '20240103_d',
      status: 'failed',
      errorMessage: 'out of ideas',
    })
    expect(body.data.results[1].errorStack).toContain('20240103_d')
    expect(await ran()).toEqual(['a', 'b', 'c'])
    expect(await api.sql(`select to_regclass('half') as half`)).toEqual([{ half: null }])
    expect(await status()).toMatchObject({ pendingCount: 2, isUpToDate: false })
    expect((await story('20240103_d')).map((line) => line.split(' ')[0])).toEqual(['running', 'failed'])
    expect((await run()).status).toBe(409)
    dir.write('20240103_d', `return { success: false, message: 'still none' }`)
    await setStatus('20240103_d', 'pending')
    expect((await run({ toVersion: '20240103_d' })).body.data.results[0]).toMatchObject({ errorMessage: 'still none' })
    dir.write('20240103_d', noting('d'))
    await setStatus('20240103_d', 'pending')
    expect((await run()).body.data.summary).toEqual({ total: 2, completed: 2, failed: 0 })
    expect(await row('20240103_d')).toMatchObject({ status: 'completed', errorMessage: null, errorStack: null })
    expect(await ran()).toEqual(['a', 'b', 'c', 'd', 'e'])
  })

  it('leaves what the operator has set to skipped', async () => {
    dir.write('20240105_f', noting('f'))
    await api.sql(`insert into "svc_Migration" (version, name, status) values ('20240105_f', 'f', 'skipped')`)
    expect(await status()).toMatchObject({ pendingCount: 0, isUpToDate: true })
    expect((await run()).body.data.results).toEqual([])
    expect((await run({ version: '20240105_f' })).status).toBe(409)
    expect(await ran()).not.toContain('f')
  })

  it('gives a script the documented context, and its result into the row', async () => {
    dir.write(
      '20240106_context',
      `const [{ one }] = await sql('select $1::int as one', [1]);
       await schemaManager.createCollections(db, [{ collectionName: 'planet', schema: { fields: { name: { type: 'String' } } } }]);
       log('made'); return { success: true, message: 'done', metadata: { one, env: typeof env } }`,
    )
    expect((await run()).body.data.results[0].metadata).toEqual({ one: 1, env: 'object' })
    expect((await api.admin('POST', '/items/planet', { name: 'Venus' })).status).toBe(201)
  })

  it('lets a script opt out of the transaction', async () => {
    dir.write(
      '20240107_alone',
      `await sql('create index concurrently planet_name on planet (name)'); return { success: true }`,
      {
        head: 'export const transaction = false',
      },
    )
    expect((await run()).body.data.results[0]).toMatchObject({ status: 'completed', errorMessage: null })
    dir.write(
      '20240108_half',
      `await sql(\`insert into planet (name) values ('Mars')\`); throw new Error('after the fact')`,
      {
        head: 'export const transaction = false',
      },
    )
    expect((await run()).body.data.results[0]).toMatchObject({ status: 'failed', errorMessage: 'after the fact' })
    const [{ userAgent }] = await api.sql(
      `select "userAgent" from "svc_AuditLog" where entity = 'planet' order by position desc limit 1`,
    )
    expect(userAgent).toBe('migration 20240108_half')
    await setStatus('20240108_half', 'skipped')
  })

  it('does not wait long for a lock, so that no one waits long after it', async () => {
    dir.write('20240109_blocked', `await sql('alter table planet add column rings int'); return { success: true }`)
    const reader = await connect(api.database.url)
    await reader.query('begin; select * from planet')
    const { body } = await run()
    expect(body.data.results[0]).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining('lock timeout'),
    })
    await reader.query('rollback')
    await reader.end()
    await setStatus('20240109_blocked', 'pending')
    expect((await run()).body.data.summary.completed).toBe(1)
  })

  it('lets one runner in, the other is told 409', async () => {
    await api.sql('create table gate (open boolean)')
    dir.write(
      '20240110_slow',
      `while ((await sql('select from gate')).length === 0) await sql('select pg_sleep(0.02)'); ${noting('slow')}`,
    )
    const first = run()
    await waitFor(async () => (await row('20240110_slow'))?.status === 'running')
    const others = await Promise.all([run(), api.admin('POST', '/migrations/rollback-batch')])
    expect(others.map(({ status, body }) => [status, body.error.code])).toEqual([
      [409, 'MIGRATIONS_RUNNING'],
      [409, 'MIGRATIONS_RUNNING'],
    ])
    await api.sql('insert into gate values (true)')
    expect((await first).body.data.summary).toEqual({ total: 1, completed: 1, failed: 0 })
    expect((await ran()).filter((what) => what === 'slow')).toEqual(['slow'])
  })

  it('reports a file that was changed after it was run', async () => {
    dir.write('20240104_e', noting('something else'))
    expect((await status()).drifted).toEqual(['20240104_e'])
    expect((await api.admin('GET', '/migrations/20240104_e')).body.data).toMatchObject({
      drifted: true,
      status: 'completed',
    })
    expect((await run()).body.data.results).toEqual([])
    dir.write('20240104_e', noting('e'))
    expect((await status()).drifted).toEqual([])
    // The program's own scripts come with its version.
    const touched = `update "svc_Migration" set checksum = 'of an earlier version' where version = '0.1.0' returning version`
    expect(await api.sql(touched)).toHaveLength(1)
    expect((await status()).drifted).toEqual([])
  })

  it('refuses two files of one version, naming both, and files that are no migration', async () => {
    dir.write('20240104_e', noting('e'), { file: 'again.ts' })
    const { status: code, body } = await run()
    expect([code, body.error.code]).toEqual([409, 'DUPLICATE_MIGRATION_VERSION'])
    expect(body.error.message).toMatch(/20240104_e\.ts.*again\.ts|again\.ts.*20240104_e\.ts/)
    rmSync(join(dir.path, 'again.ts'))
    for (const text of [
      'export const version = 1',
      'syntax error',
      `export const version = '../x', name = 'x', up = () => {}`,
    ]) {
      writeFileSync(join(dir.path, 'broken.ts'), text)
      expect((await run()).body.error.message).toContain('broken.ts')
    }
    rmSync(join(dir.path, 'broken.ts'))
  })
})

describe('rollback', () => {
  it.each([
    ['what is unknown', '20990101', 'it is not known'],
    ['what has no down', '20240104_e', 'it has no down function'],
    ['what is not completed', '20240105_f', 'its status is skipped'],
    ['what the program needs', '0.1.0', 'belongs to the program'],
  ])('refuses %s', async (_what, version, problem) => {
    const position = await api.position()
    const { status: code, body } = await api.admin('POST', `/migrations/rollback/${version}`)
    expect([code, body.error.message]).toEqual([400, 'Failed to rollback migration'])
    expect(body.error.details).toContain(problem)
    expect(await api.position()).toBe(position)
  })

  it('rolls one back, with its reason, and lets it run again', async () => {
    const { status: code, body } = await api.admin('POST', '/migrations/rollback/20240102_c', { reason: 'too early' })
    expect(code).toBe(200)
    expect(body.data).toMatchObject({ status: 'rolled_back', metadata: { rollbackReason: 'too early' } })
    expect(body.data.rolledBackAt).toEqual(expect.any(String))
    expect(await ran()).not.toContain('c')
    expect((await story('20240102_c')).slice(-3).map((line) => line.split(' ')[0])).toEqual([
      'running',
      'rolled_back',
      'migration.rolled_back',
    ])
    expect((await run()).body.data.results).toMatchObject([
      { version: '20240102_c', status: 'completed', rolledBackAt: null },
    ])
    expect(await ran()).toContain('c')
  })

  it('says why a down failed; the row too', async () => {
    dir.write('20240111_bad', noting('bad'), { down: `await sql('delete from ran'); throw new Error('no way back')` })
    await run()
    const { status: code, body } = await api.admin('POST', '/migrations/rollback/20240111_bad')
    expect([code, body.error.details]).toEqual([400, '20240111_bad: no way back'])
    expect(await row('20240111_bad')).toMatchObject({
      status: 'failed',
      errorMessage: 'Its rollback has failed: no way back',
      metadata: { direction: 'down' },
    })
    expect(await ran()).toContain('bad')
    await setStatus('20240111_bad', 'skipped')
  })

  it('rolls the last batch back, the newest first', async () => {
    const noteDown = (what: string) =>
      `await sql('insert into ran values ($1)', ['down ${what}']); return { success: true }`
    for (const what of ['20240201_x', '20240202_y']) dir.write(what, noting(what), { down: noteDown(what) })
    await run()
    const { body } = await api.admin('POST', '/migrations/rollback-batch')
    expect(body.data.summary).toEqual({ total: 2, completed: 2, failed: 0 })
    expect(body.data.results.map((record: any) => [record.version, record.status])).toEqual([
      ['20240202_y', 'rolled_back'],
      ['20240201_x', 'rolled_back'],
    ])
    expect((await ran()).slice(-2)).toEqual(['down 20240202_y', 'down 20240201_x'])
  })
})

describe('mark', () => {
  it('completes one without running it', async () => {
    const position = await api.position()
    const { body } = await api.admin('POST', '/migrations/mark-completed/20240201_x', { metadata: { by: 'hand' } })
    expect(body.data).toMatchObject({ status: 'completed', metadata: { by: 'hand' }, rolledBackAt: null })
    expect((await ran()).at(-1)).toBe('down 20240201_x')
    expect((await api.log(position)).map(({ type, action }) => `${type} ${action}`)).toEqual([
      'data update',
      'migration marked_completed',
    ])
    expect((await api.admin('POST', '/migrations/mark-completed/20240201_x')).status).toBe(409)
    // Its rollback has failed: what it did is still there.
    await setStatus('20240201_x', 'failed')
    const again = await api.admin('POST', '/migrations/mark-completed/20240201_x')
    expect(again.body.data).toMatchObject({ status: 'completed', errorMessage: null })
    expect((await ran()).at(-1)).toBe('down 20240201_x')
    expect((await api.admin('POST', '/migrations/mark-completed/20990101')).status).toBe(404)
    const polluted = '{"metadata":{"__proto__":{"x":1}}}'
    const headers = { 'content-type': 'application/json' }
    expect((await api.admin('POST', '/migrations/mark-completed/20240202_y', polluted, headers)).status).toBe(400)
  })

  it('completes a failed one whose file is gone, which keeps later ones from running until then', async () => {
    dir.write('20240250_gone', noting('20240250_gone'))
    await setStatus('20240202_y', 'completed')
    await api.admin('POST', '/migrations/run', { version: '20240250_gone' })
    await setStatus('20240250_gone', 'failed')
    rmSync(join(dir.path, '20240250_gone.ts'))
    const refused = await api.admin('POST', '/migrations/run', {})
    expect([refused.status, refused.body.error.message]).toEqual([
      409,
      expect.stringContaining('it has failed, and its file is missing; mark it as completed'),
    ])
    const position = await api.position()
    const marked = await api.admin('POST', '/migrations/mark-completed/20240250_gone', { metadata: { by: 'hand' } })
    expect(marked.body.data).toMatchObject({
      version: '20240250_gone',
      status: 'completed',
      canRollback: false,
      metadata: { by: 'hand' },
    })
    expect((await api.log(position)).map(({ type, action }) => `${type} ${action}`)).toEqual([
      'data update',
      'migration marked_completed',
    ])
    expect((await api.admin('POST', '/migrations/run', {})).status).toBe(200)
    await setStatus('20240202_y', 'rolled_back')
  })

  it('completes all, up to a version', async () => {
    for (const version of ['20240301_p', '20240302_q']) dir.write(version, noting(version))
    const markAll = (body: object) => api.admin('POST', '/migrations/mark-all-completed', body)
    expect((await markAll({ toVersion: '20990101' })).status).toBe(400)
    expect((await markAll({ toVersion: '20240301_p' })).body.data).toMatchObject({
      summary: { total: 2 },
      results: [{ version: '20240202_y' }, { version: '20240301_p', status: 'completed', batch: null }],
    })
    expect((await markAll({})).body.data.results).toMatchObject([{ version: '20240302_q' }])
    expect(await status()).toMatchObject({ pendingCount: 0, isUpToDate: true })
    expect(await ran()).not.toContain('20240301_p')
  })
})

describe('create', () => {
  const create = (body: object) => api.admin('POST', '/migrations/create', body)

  it('writes a script that runs and rolls back, whatever its texts hold', async () => {
    const description = `It's "odd" \\ \${x} \`y\` */ \n export const z = 1`
    const { status: code, body } = await create({ name: 'Add country-code', type: 'schema', description })
    expect([code, body.data.message]).toEqual([201, 'Migration created successfully'])
    const file = readdirSync(dir.path).find((name) => name.endsWith('_add_country_code.ts'))!
    expect(body.data.filepath.endsWith(file)).toBe(true)
    expect(readFileSync(join(dir.path, file), 'utf8')).not.toContain('\n export const z')
    const text = readFileSync(join(dir.path, file), 'utf8')
    const biome = ['node_modules/@biomejs/biome/bin/biome', 'format', `--stdin-file-path=migrations/${file}`]
    expect(text).toBe(execFileSync(process.execPath, biome, { input: text, encoding: 'utf8' }))
    const version = file.slice(0, -3)
    expect((await api.admin('GET', `/migrations/${version}`)).body.data).toMatchObject({
      name: 'Add country-code',
      type: 'schema',
      description,
      canRollback: true,
    })
    expect((await run({ version })).body.data.results).toMatchObject([{ status: 'completed' }])
    expect((await api.admin('POST', `/migrations/rollback/${version}`)).body.data.status).toBe('rolled_back')
  })

  it.each([
    '../../src/api/x',
    'a/b',
    '..\\',
    'a\0b',
    'x'.repeat(81),
    'x'.repeat(300),
    '',
    ' ',
    'añb',
    '名前',
    'a.js',
    "a'+b",
    '-a',
  ])('refuses the name %j', async (name) => {
    const before = readdirSync(dir.path)
    expect((await create({ name })).status).toBe(400)
    expect(readdirSync(dir.path)).toEqual(before)
  })

  it('refuses what is no name or type', async () => {
    for (const body of [{}, { name: { a: 1 } }, { name: 'a', type: 'custom' }])
      expect((await create(body)).status).toBe(400)
  })
})

const endpoints = [
  ['GET', '/migrations/status'],
  ['HEAD', '/migrations/status'],
  ['GET', '/migrations'],
  ['GET', '/migrations/pending'],
  ['GET', '/migrations/check'],
  ['GET', '/migrations/0.1.0'],
  ['POST', '/migrations/run'],
  ['POST', '/migrations/create'],
  ['POST', '/migrations/rollback/20240101_b'],
  ['POST', '/migrations/rollback-batch'],
  ['POST', '/migrations/mark-completed/20240101_b'],
  ['POST', '/migrations/mark-all-completed'],
] as const

describe('access', () => {
  it('is the administrators alone', async () => {
    const { call } = await api.user([{ collection: 'svc_Migration', action: 'read', fields: ['*'] }])
    const position = await api.position()
    for (const [method, path] of endpoints) {
      expect([path, (await api.anonymous(method, path)).status]).toEqual([path, 401])
      expect([path, (await api.as('expired.or.forged')(method, path)).status]).toEqual([path, 401])
      expect([path, (await call(method, path)).status]).toEqual([path, 403])
    }
    expect(await api.position()).toBe(position)
  })
})

describe('a script that does not await a statement', () => {
  it.each([
    ['in a transaction', ''],
    ['without one', 'export const transaction = false'],
  ])('fails with what that says, %s', async (_where, head) => {
    const version = head === '' ? '20300101_lost' : '20300102_lost'
    dir.write(version, `sql('select 1/0'); await sql('select 1'); return { success: true }`, { head })
    const { body } = await run({ version })
    expect(body.data.results[0]).toMatchObject({ version, status: 'failed', errorMessage: 'division by zero' })
    await setStatus(version, 'skipped')
  })

  it('fails where it is a change of collections', async () => {
    const version = '20300103_lost'
    dir.write(version, `schemaManager.deleteCollection(db, 'never there'); return { success: true }`)
    const { body } = await run({ version })
    expect(body.data.results[0]).toMatchObject({ version, status: 'failed', errorMessage: 'Schema not found' })
    await setStatus(version, 'skipped')
  })

  it('is waited for, and fails by nothing that it caught itself', async () => {
    const version = '20300104_caught'
    const caught = `await sql('savepoint a'); try { await db.one({ text: 'select 1/0', values: [] }) } catch { await sql('rollback to savepoint a') }`
    const late = `const later = async () => { await sql('select 1'); await sql('select 2'); await sql('create table late ()') }; later()`
    dir.write(version, `${caught}; ${late}; return { success: true }`)
    const { body } = await run({ version })
    expect(body.data.results[0]).toMatchObject({ version, status: 'completed', errorMessage: null })
    expect(await api.sql(`select to_regclass('late') is not null as there`)).toEqual([{ there: true }])
  })
})
