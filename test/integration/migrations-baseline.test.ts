import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { runSetup } from '../../src/setup/setup.ts'
import { startApi } from '../support/api.ts'
import { migrationsDir, noting } from '../support/migrations.ts'
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'

const silent = pino({ level: 'silent' })
const dir = migrationsDir()

/** An installation from before migrations were recorded. */
async function oldDatabase(): Promise<TestDatabase> {
  const database = await createDatabase()
  await withClient(database.url, (client) => client.query('drop table "svc_Migration"'))
  return database
}

const setUp = (database: TestDatabase, env: Record<string, string>) =>
  runSetup(testConfig(database.url, { MIGRATIONS_DIR: dir.path, ...env }), silent)

describe('an installation with svc_User and without svc_Migration', () => {
  it('counts as having everything up to the current version, and runs what comes after', async () => {
    for (const version of ['0.0.5', '20240101_a']) dir.write(version, noting(version))
    const database = await oldDatabase()
    await setUp(database, {})
    const api = await startApi({ MIGRATIONS_DIR: dir.path }, database)
    const status = async () => (await api.admin('GET', '/migrations/status')).body.data
    expect(await status()).toMatchObject({
      isSequelizeUpgrade: true,
      pendingCount: 1,
      lastBatch: 0,
      lastMigration: null,
    })
    const { currentVersion } = await status()
    const [{ metadata, status: state }] = await api.sql(`select * from "svc_Migration" where version = '0.0.5'`)
    expect([state, metadata]).toEqual(['completed', { baseline: currentVersion }])
    expect((await api.admin('POST', '/migrations/run')).body.data.results).toMatchObject([{ version: '20240101_a' }])
    expect(await api.sql('select what from ran')).toEqual([{ what: '20240101_a' }])
    expect((await api.admin('POST', '/migrations/rollback-batch')).body.error.details).toContain('no down function')
    expect((await status()).isUpToDate).toBe(true)
  })

  it('takes the baseline that MIGRATIONS_UPGRADE_BASELINE names, also one that no script has', async () => {
    const database = await oldDatabase()
    const { url } = database
    await setUp(database, { MIGRATIONS_UPGRADE_BASELINE: '20240601' })
    await withClient(url, async (client) => {
      const { rows } = await client.query(
        `select version, name, metadata from "svc_Migration" where version like '2024%' order by 1`,
      )
      expect(rows).toEqual([
        { version: '20240101_a', name: 'step 20240101_a', metadata: { baseline: '20240601' } },
        { version: '20240601', name: 'baseline', metadata: { baseline: '20240601' } },
      ])
      expect((await client.query(`select to_regclass('ran') as ran`)).rows).toEqual([{ ran: null }])
    })
  })

  it('refuses a baseline that is no version, and the database of another program, and changes neither', async () => {
    const old = await oldDatabase()
    await expect(setUp(old, { MIGRATIONS_UPGRADE_BASELINE: 'yesterday' })).rejects.toThrow(
      'MIGRATIONS_UPGRADE_BASELINE',
    )
    const foreign = await createEmptyDatabase()
    await withClient(foreign.url, (client) => client.query('create table "svc_User" (id int)'))
    await expect(setUp(foreign, {})).rejects.toThrow('without the schema of Daybook')
    for (const { url } of [old, foreign])
      await withClient(url, async (client) => {
        expect((await client.query(`select to_regclass('"svc_Migration"') as t`)).rows).toEqual([{ t: null }])
      })
  })
})
