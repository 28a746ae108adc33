import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import pino from 'pino'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { checkBackups } from '../../src/doctor/work.ts'
import { newestHead, sealLag, verifySealsOf } from '../../src/events/seals/seals.ts'
import { verifyFiles } from '../../src/features/files/files/files.ts'
import { openStorages } from '../../src/features/files/storage/storage.ts'
import {
  type BackupHost,
  makeScheduledBackup,
  restoreBackup,
  restoreCollection,
  writeBackup,
} from '../../src/features/operations/backup/backup.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { openSeals } from '../../src/workers/log-upkeep.ts'
import { type Api, startApi } from '../support/api.ts'
import { samplesOf } from '../support/exposition.ts'
import { asSuperuser } from '../support/log.ts'
import { createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { type S3, startS3 } from '../support/s3.ts'
import { withClient } from '../support/server.ts'
import { connect } from '../support/socket.ts'
import { storeFile } from '../support/stored-files.ts'
import { waitFor } from '../support/wait.ts'

/** What goes on after a restore, and backups in a place that is no directory. */

const silent = pino({ level: 'silent' })

let dir: string
let s3: S3
let api: Api
let env: Record<string, string>

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'daybook-restored-'))
  s3 = await startS3()
  env = { STORAGE_SERVICES_ENABLED: 'local,s3', ...s3.env('S3'), SOCKET_ENABLED: 'true' }
  api = await startApi(env)
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const fields = { id: serial, title: { type: 'String', allowNull: true } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields } })).status).toBe(201)
  await api.sql(`insert into note (title) select 'n' || i from generate_series(1, 50) i`)
  await storeFile(api, { content: 'in a bucket', name: 'b.txt', type: 'text/plain', storage: 's3', folder: 'a/b' })
  await storeFile(api, { content: 'in a directory', name: 'd.txt', type: 'text/plain', storage: 'local' })
})

afterEach(() => {
  s3.fault = () => undefined
})

afterAll(async () => {
  await s3?.close()
  await rm(dir, { recursive: true })
})

const hostOf = (url: string, more: Record<string, string> = env): BackupHost => {
  const config = testConfig(url, more)
  return { config, log: silent, storages: openStorages(config) }
}

/** Another server's disk and bucket, where nothing is. */
async function elsewhere(): Promise<Record<string, string>> {
  const other = await startS3()
  onTestFinished(() => other.close())
  return { ...env, ...other.env('S3'), LOCAL_STORAGE_PATH: join(dir, randomBytes(4).toString('hex')) }
}

const keysIn = async ({ storages }: BackupHost) => {
  const keys: string[] = []
  for await (const { key } of storages.named('s3').list('backups/')) keys.push(key)
  return keys.sort()
}

describe('a backup in S3', () => {
  it('is written in parts while it is made, read again, and restored with the content of every service', async () => {
    // Nothing of it can be compressed: more than S3 takes in one part.
    await api.sql('create table much (bytes bytea)')
    for (let i = 0; i < 6; i += 1) await api.sql('insert into much values ($1)', [randomBytes(2 * 1024 * 1024)])
    const host = hostOf(api.database.url)
    const from = s3.requests.length
    const result = await writeBackup(host, 's3://backups/whole.daybook')
    expect(result).toMatchObject({ verified: true, files: 2, notes: [] })
    expect(s3.requests.slice(from).filter((request) => request === 'PUT backups/whole.daybook').length).toBeGreaterThan(
      1,
    )
    await expect(writeBackup(host, 's3://backups/whole.daybook')).rejects.toMatchObject({ code: 'BACKUP_EXISTS' })
    const empty = await createEmptyDatabase()
    const there = hostOf(empty.url, await elsewhere())
    const restored = await restoreBackup(there, 's3://backups/whole.daybook', { from: host })
    expect(restored).toMatchObject({ files: 2, notes: [] })
    const found = await api.sql('select storage, storage_folder as folder, filename from "svc_File" order by storage')
    const contents = found.map(async ({ storage, folder, filename }) =>
      text((await there.storages.named(storage).read([folder, filename].filter((one) => one !== null).join('/')))!),
    )
    expect(await Promise.all(contents)).toEqual(['in a directory', 'in a bucket'])
    await expect(restoreBackup(there, 's3://backups/nothing')).rejects.toMatchObject({ status: 404 })
  })

  it.each(['503', 'cut'] as const)('leaves nothing of it where the service fails on the way (%s)', async (fault) => {
    const host = hostOf(api.database.url)
    const before = await keysIn(host)
    let puts = 0
    s3.fault = (request) => {
      if (request.startsWith('PUT backups/')) puts += 1
      return puts > 1 ? fault : undefined
    }
    await expect(writeBackup(host, 's3://backups/broken.daybook')).rejects.toMatchObject({ status: 503 })
    s3.fault = () => undefined
    expect(puts).toBeGreaterThan(1)
    expect(await keysIn(host)).toEqual(before)
  })

  it('is refused by restore where its answer is cut off, and nothing of it remains', async () => {
    const host = hostOf(api.database.url)
    const empty = await createEmptyDatabase()
    let gets = 0
    s3.fault = (request) => {
      if (!request.startsWith('GET backups/')) return undefined
      gets += 1
      return 'cut'
    }
    await expect(restoreBackup(hostOf(empty.url), 's3://backups/whole.daybook', { from: host })).rejects.toThrow()
    expect(gets).toBeGreaterThan(0)
    s3.fault = () => undefined
    // It is still as empty as it was.
    const there = hostOf(empty.url, await elsewhere())
    expect(await restoreBackup(there, 's3://backups/whole.daybook', { from: host })).toMatchObject({ files: 2 })
  })

  it('is made by the schedule, found by restore, and shows its age to metrics and doctor', async () => {
    const schedule = {
      BACKUP_SCHEDULE: '0 2 * * *',
      BACKUP_STORAGE: 's3',
      BACKUP_KEEP: '2',
      BACKUP_MAX_AGE_HOURS: '36',
    }
    const config = testConfig(api.database.url, { ...env, ...schedule })
    const runtime = await openRuntime({ config, log: silent, name: 'web', worker: false })
    onTestFinished(() => runtime.close())
    const age = async () => {
      const ended = samplesOf((await api.admin('GET', '/metrics')).text).get(
        'daybook_backup_last_success_timestamp_seconds',
      )
      return ended === undefined ? undefined : Date.now() / 1000 - ended
    }
    expect(await age()).toBeUndefined()
    expect(await checkBackups(runtime.db, config)).toMatchObject([{ status: 'warning', says: 'none was made yet' }])
    const others = await keysIn(runtime)
    for (let i = 0; i < 3; i += 1) await makeScheduledBackup(runtime)
    const made = (await keysIn(runtime)).filter((key) => !others.includes(key))
    expect(made).toHaveLength(2)
    await waitFor(async () => Math.abs((await age()) ?? 1e9) < 60)
    expect(await checkBackups(runtime.db, config)).toMatchObject([{ status: 'ok' }])
    await api.sql(`update svc_log.backup set "endedAt" = "endedAt" - interval '40 hours'`)
    // A moment ago another user has asked for it.
    await waitFor(async () => (await age())! > 39 * 3600)
    expect(await checkBackups(runtime.db, config)).toMatchObject([
      { status: 'problem', says: 'the last one is 40 hours old' },
    ])
    // One that fails makes it no younger.
    s3.fault = (request) => (request.startsWith('PUT ') ? '503' : undefined)
    await expect(makeScheduledBackup(runtime)).rejects.toMatchObject({ status: 503 })
    s3.fault = () => undefined
    expect(await age()).toBeGreaterThan(39 * 3600)
    expect(await checkBackups(runtime.db, config)).toMatchObject([
      { status: 'problem', remedy: expect.stringContaining('not available') },
    ])
    const empty = await createEmptyDatabase()
    await restoreBackup(hostOf(empty.url, await elsewhere()), `s3://${made[1]}`, { from: runtime })
  })
})

describe('a row whose content cannot be', () => {
  it('keeps no backup from being made, and is named', async () => {
    const { id } = await storeFile(api, { content: 'x', name: 'x.txt', type: 'text/plain', isStored: false })
    await api.sql(`update "svc_File" set storage_folder = '../..', filename = '../x' where id = $1`, [id])
    const result = await writeBackup(hostOf(api.database.url), join(dir, 'odd.daybook'))
    expect(result).toMatchObject({ verified: true, notes: ['the content of local ../../../x is missing'] })
    await api.sql('delete from "svc_File" where id = $1', [id])
  })
})

describe('a client from before a restore', () => {
  it('is told to read its lists again, on the socket as by GET /changes, and then goes on', async () => {
    const token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    const before = await connect(await api.app.listen({ port: 0, host: '127.0.0.1' }), token)
    await before.subscribe('note')
    await api.admin('POST', '/items/note', { title: 'before' })
    const { cursor } = await before.frame(({ data }) => data.title === 'before')
    const place = join(dir, 'lineage.daybook')
    await writeBackup(hostOf(api.database.url), place)
    const empty = await createEmptyDatabase()
    const own = await elsewhere()
    await restoreBackup(hostOf(empty.url, own), place)
    await runSetup(testConfig(empty.url, own), silent)
    const restored = await startApi(own, empty)
    const address = await restored.app.listen({ port: 0, host: '127.0.0.1' })
    // The session of then holds here as well.
    const client = await connect(address, token)
    await client.subscribe('note', cursor)
    await waitFor(() => client.notices.some(({ name, body }) => name === 'resync' && body.collection === 'note'))
    expect((await restored.admin('GET', `/changes?since=${cursor}`)).status).toBe(410)
    expect(client.frames).toEqual([])
    await client.subscribe('note')
    await restored.admin('POST', '/items/note', { title: 'after' })
    const frame = await client.frame(({ data }) => data.title === 'after')
    // A cursor of this history is one to go on from.
    await restored.admin('POST', '/items/note', { title: 'later' })
    const again = await connect(address, token)
    await again.subscribe('note', frame.cursor)
    await again.frame(({ data }) => data.title === 'later')
    expect(again.notices.map(({ name }) => name)).not.toContain('resync')
    // To the server from which the backup came, the history of the copy is another one as well.
    const strayed = await connect(`http://127.0.0.1:${(api.app.server.address() as { port: number }).port}`, token)
    await strayed.subscribe('note', frame.cursor)
    await waitFor(() => strayed.notices.some(({ name }) => name === 'resync'))
  })
})

describe('seals of the log', () => {
  const sealing = async (own: Api): Promise<{ stop(waitMs: number): Promise<void> }> => {
    const worker = await openSeals(own.runtime, { paceMs: 20, lookMs: 50 })
    await waitFor(async () => {
      const { unsealed, found } = await verifySealsOf(own.runtime.config, { keys: [], heads: [] })
      return found === 0 && unsealed === 0
    })
    return worker
  }
  const events = async (own: Api) => (await own.sql('select count(*)::int as n from "svc_AuditLog"'))[0].n
  let sealed: Api
  let database: TestDatabase
  let place: string

  beforeAll(async () => {
    sealed = await startApi({ ...env })
    const fields = { id: { type: 'Integer', primaryKey: true }, title: { type: 'String', allowNull: true } }
    expect((await sealed.admin('POST', '/schemas', { collectionName: 'page', schema: { fields } })).status).toBe(201)
    const worker = await sealing(sealed)
    await sealed.sql(`insert into page select i, 'p' || i from generate_series(1, 1200) i`)
    await worker.stop(2000)
    await (await sealing(sealed)).stop(2000)
    place = join(dir, 'sealed.daybook')
    await writeBackup(hostOf(sealed.database.url), place)
    database = await createEmptyDatabase()
  })

  it('verify after a whole restore, and go on there in one chain with what was sealed before', async () => {
    const { number } = await sealLag(sealed.runtime.db)
    const head = await newestHead(sealed.runtime.db)
    const own = await elsewhere()
    await restoreBackup(hostOf(database.url, own), place)
    const found = await verifySealsOf(testConfig(database.url, own), { keys: [], heads: [head!] })
    expect(found).toMatchObject({ found: 0, heads: { compared: 1 } })
    expect(found.verified).toBeGreaterThan(1200)
    await runSetup(testConfig(database.url, own), silent)
    const restored = await startApi(own, database)
    await restored.sql(`update page set title = 'changed' where id <= 10`)
    const worker = await sealing(restored)
    await worker.stop(2000)
    expect(await verifySealsOf(restored.runtime.config, { keys: [], heads: [head!] })).toMatchObject({
      found: 0,
      unsealed: 0,
      verified: await events(restored),
      heads: { compared: 1 },
    })
    expect((await sealLag(restored.runtime.db)).number).toBeGreaterThan(number)
    expect((await verifyFiles(restored.runtime, { hashes: true })).differences).toEqual([])
  })

  it('verify after a part came back, whose events are sealed like all others', async () => {
    const head = await newestHead(sealed.runtime.db)
    await sealed.sql('delete from page where id <= 100')
    await sealed.sql(`update page set title = 'other' where id between 101 and 150`)
    const choices = { dryRun: false, setNull: false, skip: false, force: false }
    const report = await restoreCollection(sealed.runtime, 'page', { file: place }, choices)
    expect(report.counts).toMatchObject([{ create: 100, update: 50, delete: 0 }])
    await (await sealing(sealed)).stop(2000)
    expect(await verifySealsOf(sealed.runtime.config, { keys: [], heads: [head!] })).toMatchObject({
      found: 0,
      unsealed: 0,
      verified: await events(sealed),
      heads: { compared: 1 },
    })
    // They would tell of one that is not what it was.
    await withClient(asSuperuser(sealed.database.url), async (client) => {
      await client.query('set session_replication_role = replica')
      await client.query(`update "svc_AuditLog" set "userId" = gen_random_uuid()
        where position = (select max(position) from "svc_AuditLog" where entity = 'page' and action = 'create')`)
    })
    expect(await verifySealsOf(sealed.runtime.config, { keys: [], heads: [] })).toMatchObject({ found: 1 })
  })
})
