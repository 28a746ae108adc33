import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { systemVersions } from '../../src/features/data/migrations/records.ts'
import { openStorages } from '../../src/features/files/storage/storage.ts'
import { restoreBackup } from '../../src/features/operations/backup/backup.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { startApi } from '../support/api.ts'
import { structureOf } from '../support/database-structure.ts'
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'

/** The records of the last development version, in the order of their runs. Its schema is that of today. */
const recorded =
  `0.1.0 schema|0.1.1 log consumers|0.1.2 webhooks|0.1.3 requests of the log|0.1.4 log seals|0.1.5 files|0.1.7 workflows|0.1.10 oauth
0.1.12 scope_of_executions|0.1.13 lineage|0.1.14 preview|0.1.17 views|0.1.20 file usage|0.1.21 parallel uploads|0.1.22 row batches
0.1.23 images in one go`.split(/[|\n]/)

/** Those of a database that the first development versions have set up. */
const recordedFirst = ['0.1.0 system schema', '0.2.0 field types', '0.10.9 links told']

/** A backup of a database of the last development version, as its setup has left it. */
const backup = new URL('../fixtures/databases/developed.daybook', import.meta.url).pathname

const silent = pino({ level: 'silent' })
const setUp = ({ url }: TestDatabase) => runSetup(testConfig(url), silent)
const rowsOf = ({ url }: TestDatabase, text: string) =>
  withClient(url, async (client) => (await client.query(text)).rows)
const records = (database: TestDatabase) =>
  rowsOf(database, 'select version, name, status from "svc_Migration" order by version')

/** A database with the records of a development version, but for those of `without`. */
async function developed({
  of = recorded,
  without = [] as readonly string[],
  failed = '',
} = {}): Promise<TestDatabase> {
  const database = await createDatabase()
  await withClient(database.url, async (client) => {
    await client.query(`delete from "svc_Migration" where version = '0.1.0'`)
    for (const line of of) {
      const [version, ...name] = line.split(' ')
      if (without.includes(version!)) continue
      await client.query(
        `insert into "svc_Migration" (version, name, type, status, batch, checksum, "executedAt", metadata)
         values ($1, $2, 'upgrade', $3, 1, 'old', now(), $4)`,
        [
          version,
          name.join(' '),
          version === failed ? 'failed' : 'completed',
          of === recorded ? { setUpBy: '0.1.0' } : {},
        ],
      )
    }
  })
  return database
}

describe('a database of the last development version', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createEmptyDatabase()
    const config = testConfig(database.url)
    const host = { config, log: silent, storages: openStorages(config) }
    await restoreBackup(host, backup)
    expect((await records(database)).map(({ version, name }) => `${version} ${name}`).sort()).toEqual(
      [...recorded].sort(),
    )
    // Two at the same time, and once more.
    await Promise.all([setUp(database), setUp(database)])
    await setUp(database)
  })

  it('counts as 0.1.0, keeps when it was set up, and has run what came later', async () => {
    expect(await records(database)).toEqual([
      { version: '0.1.0', name: 'initial schema', status: 'completed' },
      { version: '0.1.24', name: 'index of requests', status: 'completed' },
      { version: '0.1.25', name: 'index of requests and times', status: 'completed' },
      { version: '0.1.26', name: 'messages of workflows', status: 'completed' },
      { version: '0.1.27', name: 'images that fit', status: 'completed' },
      { version: '0.1.28', name: 'changes told to their actor', status: 'completed' },
      { version: '0.1.29', name: 'events of changed keys', status: 'completed' },
    ])
    const [record] = await rowsOf(
      database,
      `select batch, checksum, "executedAt" from "svc_Migration" where version = '0.1.0'`,
    )
    expect(record).toMatchObject({ batch: 1, executedAt: expect.any(Date) })
    expect(record.checksum).toMatch(/^[0-9a-f]{32}$/)
  })

  it('has the structure of a database that is set up today', async () => {
    const fresh = await createDatabase()
    const structure = await structureOf(fresh.url)
    expect(structure.length).toBeGreaterThan(1000)
    expect(await structureOf(database.url)).toEqual(structure)
    const definitions = 'select "collectionName", schema from "svc_SchemaDefinition" order by 1'
    expect(await rowsOf(database, definitions)).toEqual(await rowsOf(fresh, definitions))
    const rules = 'select name, description, fields, conditions, system from "svc_ACL" order by 1'
    expect(await rowsOf(database, rules)).toEqual(await rowsOf(fresh, rules))
  })

  it('is ready, up to date and served', async () => {
    const api = await startApi({}, database)
    expect((await api.anonymous('GET', '/ready')).status).toBe(200)
    expect((await api.admin('GET', '/migrations/status')).body.data).toMatchObject({
      isUpToDate: true,
      pendingCount: 0,
      drifted: [],
    })
    expect((await api.admin('POST', '/items/svc_Role', { name: 'editor' })).status).toBe(201)
    const events = await api.sql(
      `select action from "svc_AuditLog" where entity = 'svc_Role' and changes->'after'->>'name' = 'editor'`,
    )
    expect(events).toEqual([{ action: 'create' }])
  })
})

describe('a database at 0.1.24', () => {
  const indexes = `select indexdef from pg_indexes where schemaname = 'public' and tablename = 'svc_AuditLog' order by 1`

  it('gets the index of requests and times instead of that of requests', async () => {
    const [database, fresh] = [await createDatabase(), await createDatabase()]
    await withClient(database.url, (client) =>
      client.query(`delete from "svc_Migration" where version = '0.1.25';
        drop index "svc_AuditLog_request_time_idx";
        create index "svc_AuditLog_request_idx" on "svc_AuditLog" ("logRequestId")`),
    )
    await setUp(database)
    expect((await rowsOf(database, indexes)).map(({ indexdef }) => indexdef.replace(/.* USING /, ''))).toEqual([
      "btree (((cause ->> 'request'::text))) WHERE (cause IS NOT NULL)",
      'btree ("createdAt")',
      'btree (entity, "entityId", "position")',
      'btree ("logRequestId", "createdAt")',
      'btree (xid)',
      'btree (id, "createdAt")',
    ])
    expect(await structureOf(database.url)).toEqual(await structureOf(fresh.url))
  })
})

describe('a database at 0.1.25', () => {
  it('gets the table of messages that began executions', async () => {
    const [database, fresh] = [await createDatabase(), await createDatabase()]
    await withClient(database.url, (client) =>
      client.query(`delete from "svc_Migration" where version = '0.1.26'; drop table "svc_WorkflowMessage"`),
    )
    await setUp(database)
    expect(await structureOf(database.url)).toEqual(await structureOf(fresh.url))
  })
})

describe('a database at 0.1.26', () => {
  it('gets the function that tells which values of the log do not fit', async () => {
    const [database, fresh] = [await createDatabase(), await createDatabase()]
    await withClient(database.url, (client) =>
      client.query(
        `delete from "svc_Migration" where version = '0.1.27'; drop function svc_log.misfits(anyelement, jsonb)`,
      ),
    )
    await setUp(database)
    expect(await structureOf(database.url)).toEqual(await structureOf(fresh.url))
  })
})

describe('a database at 0.1.27', () => {
  it('gets the function that tells who changes rights of it', async () => {
    const [database, fresh] = [await createDatabase(), await createDatabase()]
    await withClient(database.url, (client) =>
      client.query(`delete from "svc_Migration" where version = '0.1.28';
        create or replace function svc_notify() returns trigger language plpgsql as $$
          begin perform pg_notify(tg_argv[0], ''); return null; end $$`),
    )
    await setUp(database)
    expect(await structureOf(database.url)).toEqual(await structureOf(fresh.url))
  })
})

describe('a database at 0.1.28', () => {
  it('gets the functions by which its tables log, those of its own collections too', async () => {
    const database = await createDatabase()
    const api = await startApi({}, database)
    for (const collectionName of ['pupil', 'course'])
      await api.admin('POST', '/schemas', {
        collectionName,
        schema: { fields: { id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } } } },
      })
    await api.admin('POST', '/schemas/pupil/relationships', {
      type: 'M2M',
      name: 'courses',
      target: 'course',
      alias: 'courses',
      through: 'attendance',
    })
    const structure = await structureOf(database.url)
    expect(
      structure.filter((line) =>
        /^function CREATE OR REPLACE FUNCTION svc_log\.(pupil|course|attendance|"svc_Role")\(/.test(line),
      ),
    ).toHaveLength(4)
    await withClient(database.url, (client) =>
      client.query(`delete from "svc_Migration" where version = '0.1.29';
        do $do$ declare f regproc; begin
          for f in select oid::regproc from pg_proc where pronamespace = 'svc_log'::regnamespace
              and prorettype = 'trigger'::regtype and oid in (select tgfoid from pg_trigger where tgname = 'svc_log_update') loop
            execute format('create or replace function %s() returns trigger language plpgsql security definer
              as $fn$ begin return null; end $fn$', f);
          end loop;
        end $do$`),
    )
    expect(await structureOf(database.url)).not.toEqual(structure)
    await setUp(database)
    expect(await structureOf(database.url)).toEqual(structure)
  })
})

describe('a database of an earlier development version', () => {
  it.each([
    ['0.1.23', { without: ['0.1.23'] }],
    ['0.1.4, 0.1.20', { without: ['0.1.4', '0.1.20'] }],
    ['0.1.14', { failed: '0.1.14' }],
    ['0.1.0, 0.1.1, 0.1.2', { of: recordedFirst }],
  ])('is refused, unchanged, and told to lack %s', async (missing, state) => {
    const database = await developed(state)
    const before = await records(database)
    await expect(setUp(database)).rejects.toThrow(
      new RegExp(
        `^DATABASE_URL: a development version made this database, and its migrations ${missing}\\b.* are missing`,
      ),
    )
    expect(await records(database)).toEqual(before)
    const ready = await (await startApi({}, database)).anonymous('GET', '/ready')
    const pending = expect.arrayContaining(missing.split(', '))
    expect([ready.status, ready.body.migrations]).toEqual([503, { ok: false, pending }])
  })

  it('is refused where only the first was recorded', async () => {
    const others = recorded.map((line) => line.split(' ')[0]!).slice(1)
    await expect(setUp(await developed({ without: others }))).rejects.toThrow('0.1.1, 0.1.2, ')
  })
})

describe('the migrations of the program', () => {
  it('use no version of a development migration again', () => {
    const used = recorded.map((line) => line.split(' ')[0]!)
    expect([...systemVersions()].filter((version) => used.includes(version))).toEqual(['0.1.0'])
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
