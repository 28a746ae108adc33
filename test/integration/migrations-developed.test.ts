import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { openRuntime } from '../../src/process/runtime.ts'
import { runSetup } from '../../src/setup.ts'
import { startApi } from '../support/api.ts'
import { createDatabase, type TestDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'

/** What a development version has recorded, in the order in which it ran. Its schema is that of today. */
const recorded =
  `0.1.0 system schema|0.2.0 field types|0.2.1 system rules|0.3.0 idempotency keys|0.4.0 code tries|0.4.1 ends of sessions
0.4.2 rate limits|0.4.3 factors and keys|0.4.4 social accounts|0.5.0 history|0.6.0 settings|0.6.1 development mail|0.6.2 templates
0.8.0 tasks|0.8.1 task order|0.8.2 session leases|0.9.2 write marks|0.9.3 log functions|0.9.4 plain log|0.9.5 one-row updates
0.10.2 identities|0.10.4 pages|0.10.5 log doors|0.10.8 seeds|0.10.9 links told`.split(/[|\n]/)

const setUp = ({ url }: TestDatabase) => runSetup(testConfig(url), pino({ level: 'silent' }))
const rowsOf = ({ url }: TestDatabase, text: string) =>
  withClient(url, async (client) => (await client.query(text)).rows)
const records = (database: TestDatabase) =>
  rowsOf(database, 'select version, name, status from "svc_Migration" order by version')

/** A database as a development version left it, without the records of `without`. Later migrations have been run. */
async function developed({ without = [] as readonly string[], failed = '' } = {}): Promise<TestDatabase> {
  const database = await createDatabase()
  await withClient(database.url, async (client) => {
    await client.query(`delete from "svc_Migration" where version = '0.1.0'`)
    for (const line of recorded) {
      const [version, ...name] = line.split(' ')
      if (without.includes(version!)) continue
      await client.query(
        `insert into "svc_Migration" (version, name, type, status, batch, checksum, "executedAt") values ($1, $2, 'upgrade', $3, 1, 'old', now())`,
        [version, name.join(' '), version === failed ? 'failed' : 'completed'],
      )
    }
  })
  return database
}

describe('a database of the last development version', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await developed()
    // Two at the same time, and once more.
    await Promise.all([setUp(database), setUp(database)])
    await setUp(database)
  })

  it('counts as 0.1.0, and keeps when it was set up', async () => {
    const [first, ...later] = await records(database)
    expect(first).toEqual({ version: '0.1.0', name: 'schema', status: 'completed' })
    expect(later.filter(({ version }) => recorded.some((line) => line.startsWith(`${version} `)))).toEqual([])
    const [record] = await rowsOf(
      database,
      `select batch, checksum, "executedAt" from "svc_Migration" where version = '0.1.0'`,
    )
    expect(record).toMatchObject({ batch: 1, executedAt: expect.any(Date) })
    expect(record.checksum).toMatch(/^[0-9a-f]{32}$/)
  })

  it('is ready, up to date and served', async () => {
    const api = await startApi({}, database)
    expect((await api.anonymous('GET', '/ready')).status).toBe(200)
    expect((await api.admin('GET', '/migrations/status')).body.data).toMatchObject({
      isUpToDate: true,
      pendingCount: 0,
      drifted: [],
    })
  })
})

describe('a database of an earlier development version', () => {
  it.each([
    ['0.10.9', { without: ['0.10.9'] }],
    ['0.9.4, 0.10.8', { without: ['0.9.4', '0.10.8'] }],
    ['0.10.2', { failed: '0.10.2' }],
  ])('is refused, unchanged, and told to lack %s', async (missing, state) => {
    const database = await developed(state)
    const before = await records(database)
    await expect(setUp(database)).rejects.toThrow(`made this database, and its migrations ${missing} are missing`)
    expect(await records(database)).toEqual(before)
    const ready = await (await startApi({}, database)).anonymous('GET', '/ready')
    const pending = expect.arrayContaining(missing.split(', '))
    expect([ready.status, ready.body.migrations]).toEqual([503, { ok: false, pending }])
  })

  it('is refused where only the first was recorded', async () => {
    const others = recorded.map((line) => line.split(' ')[0]!).slice(1)
    await expect(setUp(await developed({ without: others }))).rejects.toThrow('0.2.0, 0.2.1, ')
  })
})

describe('a database of a newer program', () => {
  it('is refused by setup and by every process, which change nothing', async () => {
    const database = await createDatabase()
    const [{ metadata }] = await rowsOf(database, `select metadata from "svc_Migration" where version = '0.1.0'`)
    expect(metadata).toEqual({ setUpBy: expect.stringMatching(/^\d+\.\d+\.\d+/) })
    await rowsOf(
      database,
      `insert into "svc_Migration" (version, name, type, status, batch, metadata)
       values ('0.99.1', 'later', 'upgrade', 'completed', 9, '{"setUpBy": "0.99.2"}')`,
    )
    const before = await records(database)
    const refusal = /^DATABASE_URL: Daybook 0\.99\.2 has set this database up \(migration 0\.99\.1\), and this is /
    await expect(setUp(database)).rejects.toThrow(refusal)
    const log = pino({ level: 'silent' })
    const opened = openRuntime({ config: testConfig(database.url), log, name: 'web', worker: false })
    await expect(opened).rejects.toThrow(refusal)
    expect(await records(database)).toEqual(before)
  })

  it('is not one with migrations of the user that are gone, whatever their version', async () => {
    const database = await createDatabase()
    await rowsOf(
      database,
      `insert into "svc_Migration" (version, name, type, status, batch, metadata)
       values ('0.99.1', 'mine', 'upgrade', 'completed', 9, '{}'), ('20240101_a', 'mine', 'upgrade', 'completed', 9, '{"setUpBy": "x"}')`,
    )
    await setUp(database)
  })
})
