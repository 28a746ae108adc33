import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type LocalPostgres, localVersion, startLocalPostgres } from '../../scripts/local-postgres.ts'
import { verifySealsOf } from '../../src/events/seals/seals.ts'
import { verifyTablesOf } from '../../src/events/verify.ts'
import { verifyFiles } from '../../src/features/files/files/files.ts'
import { openStorages } from '../../src/features/files/storage/storage.ts'
import { type BackupHost, restoreBackup, writeBackup } from '../../src/features/operations/backup/backup.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { openSeals } from '../../src/workers/log-upkeep.ts'
import { type Api, startApi } from '../support/api.ts'
import { contentOf } from '../support/database-content.ts'
import { atEnd, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { urlOf, withClient } from '../support/server.ts'
import { storeFile } from '../support/stored-files.ts'
import { waitFor } from '../support/wait.ts'

/** From one major version of PostgreSQL to another: the one that the machine has installed, and that of the suite. */

const silent = pino({ level: 'silent' })
const version = localVersion()

const hostOf = (url: string): BackupHost => {
  const config = testConfig(url)
  return { config, log: silent, storages: openStorages(config) }
}

/** Without the chain of seals, which a restore goes on with by a link of its own; it is verified by itself. */
async function rowsOf(url: string): Promise<Record<string, string>> {
  const { 'svc_log.seal': _, ...rows } = await contentOf(url)
  return rows
}

describe.skipIf(version === undefined)(`PostgreSQL ${version ?? 15}, where it is installed`, () => {
  let dir: string
  let local: LocalPostgres
  let old: Api
  let moved: TestDatabase

  /** A database of the older server; it goes with the server. */
  async function createOld(name: string): Promise<TestDatabase> {
    await withClient(local.url, (client) => client.query(`create database ${name}`))
    return { url: urlOf(local.url, name), name, drop: async () => undefined }
  }

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'daybook-versions-'))
    local = await startLocalPostgres(version!, { fsync: 'off' })
    atEnd(local.stop)
    const database = await createOld('installation')
    await runSetup(testConfig(database.url), silent)
    old = await startApi({}, database)
    const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
    const fields = {
      ...{ id: serial, title: { type: 'String' }, price: { type: 'Decimal', values: { precision: 12, scale: 4 } } },
      ...{ facts: { type: 'JSON' }, words: { type: 'Array', values: { type: 'String' } }, at: { type: 'DateTime' } },
      twice: { type: 'VIRTUAL', calculated: 'price * 2' },
    }
    const made = await old.admin('POST', '/schemas', { collectionName: 'book', schema: { fields } })
    expect([made.status, made.text]).toEqual([201, expect.anything()])
    await old.sql(`insert into book (title, price, facts, words, at)
      select 'b' || i, i + 0.0001, jsonb_build_object('n', i, 'ü', null), array['a"', null, E'\\n'], now() - make_interval(secs => i)
      from generate_series(1, 300) i`)
    await old.admin('PATCH', '/items/book/7', { title: 'changed' })
    await old.admin('DELETE', '/items/book/8')
    await storeFile(old, { content: 'kept', name: 'a.txt', type: 'text/plain' })
    await old.sql(`create table plain (n integer primary key, part text) partition by range (n)`)
    await old.sql(`create table plain_low partition of plain for values from (0) to (100)`)
    await old.sql(`create view dear as select id, price from book where price > 100`)
    await old.sql(`insert into plain select i, 'p' from generate_series(0, 99) i`)
    const seals = await openSeals(old.runtime, { paceMs: 20, lookMs: 50 })
    await waitFor(async () => (await verifySealsOf(old.runtime.config, { keys: [], heads: [] })).unsealed === 0)
    await seals.stop(2000)
    moved = await createEmptyDatabase()
  })

  afterAll(async () => {
    await rm(dir, { recursive: true, force: true })
  })

  it('moves by backup and restore to the server of the suite, with everything as it was', async () => {
    const major = await withClient(moved.url, async (client) => (await client.query('show server_version_num')).rows[0])
    expect(Math.floor(Number(major.server_version_num) / 10_000)).toBeGreaterThan(version!)
    const place = join(dir, 'old.daybook')
    const { header } = await writeBackup(hostOf(old.database.url), place)
    expect(header.server).toMatch(new RegExp(`^${version}\\.`))
    const content = await rowsOf(old.database.url)
    expect(await restoreBackup(hostOf(moved.url), place)).toMatchObject({ files: 1, notes: [] })
    expect(await rowsOf(moved.url)).toEqual(content)
    const config = testConfig(moved.url)
    await runSetup(config, silent)
    const verified = await verifyTablesOf(config)
    expect(verified.filter(({ different }) => different > 0)).toEqual([])
    expect(await verifySealsOf(config, { keys: [], heads: [] })).toMatchObject({ found: 0 })
    const there = await startApi({}, moved)
    expect((await verifyFiles(there.runtime, { hashes: true })).differences).toEqual([])
    const [before, after] = [
      await old.admin('GET', '/items/book?sort=id&limit=5'),
      await there.admin('GET', '/items/book?sort=id&limit=5'),
    ]
    expect(after.text).toBe(before.text)
    expect((await there.admin('GET', '/items/book/7/history')).body.data).toHaveLength(2)
    expect((await there.admin('POST', '/items/book', { title: 'new' })).body.data.id).toBe(301)
  })

  it('takes a backup of the newer server back as well', async () => {
    const place = join(dir, 'new.daybook')
    await writeBackup(hostOf(moved.url), place)
    const back = await createOld('back')
    expect(await restoreBackup(hostOf(back.url), place)).toMatchObject({ files: 1, notes: [] })
    expect(await rowsOf(back.url)).toEqual(await rowsOf(moved.url))
    await runSetup(testConfig(back.url), silent)
    expect((await verifyTablesOf(testConfig(back.url))).filter(({ different }) => different > 0)).toEqual([])
  })
})
