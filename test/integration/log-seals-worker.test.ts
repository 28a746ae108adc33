import { mkdir, mkdtemp, readFile, rename, rm, truncate } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import pino from 'pino'
import { afterEach, beforeAll, expect, it, onTestFinished } from 'vitest'
import { examine } from '../../src/doctor/doctor.ts'
import { consumerStates } from '../../src/events/consumer.ts'
import { headsAfter, isSweepDue, readHeads, sealLag, verifySealsOf } from '../../src/events/seals/seals.ts'
import { openInstruments } from '../../src/features/operations/metrics/metrics.ts'
import type { Runtime } from '../../src/process/runtime.ts'
import type { OpenedService } from '../../src/workers/capabilities.ts'
import { openSeals } from '../../src/workers/log-upkeep.ts'
import { type Api, startApi } from '../support/api.ts'
import { samplesOf } from '../support/exposition.ts'
import { testEnv } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
const open: OpenedService[] = []

beforeAll(async () => {
  api = await startApi()
  const fields = { id: { type: 'Integer', primaryKey: true }, note: { type: 'String', allowNull: true } }
  await api.admin('POST', '/schemas', { collectionName: 'thing', schema: { fields } })
})

afterEach(() => Promise.all(open.splice(0).map((one) => one.stop(2000))))

const withLog = (log: Partial<Runtime['config']['log']>): Runtime => ({
  ...api.runtime,
  config: { ...api.runtime.config, log: { ...api.runtime.config.log, ...log } },
})
const start = async (runtime: Runtime = api.runtime) =>
  void open.push(await openSeals(runtime, { paceMs: 20, lookMs: 50 }))
const stop = () => Promise.all(open.splice(0).map((one) => one.stop(2000)))
const insert = (from: number, to: number) =>
  api.sql(`insert into thing (id) select generate_series($1::int, $2::int)`, [from, to])
const verify = (heads = '') =>
  verifySealsOf(api.runtime.config, { keys: [], heads: heads === '' ? [] : readHeads(heads).heads })
const allSealed = () =>
  waitFor(async () => {
    const { unsealed, found } = await verify()
    return found === 0 && unsealed === 0
  })
/** A log, and the lines of it that match. */
function loggedTo() {
  const lines: { msg: string; failures?: number }[] = []
  const stream = new Writable({
    write(line, _encoding, done) {
      lines.push(JSON.parse(line))
      done()
    },
  })
  return { log: pino({ level: 'info' }, stream), said: (text: RegExp) => lines.filter(({ msg }) => text.test(msg)) }
}
const events = async () => (await api.sql('select count(*)::int from "svc_AuditLog"'))[0].count
const findings = async () => (await examine(testEnv(api.database.url))).filter(({ check }) => check === 'log seals')

it('seals everything since setup, beside another worker, and writes the heads down', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'daybook-heads-'))
  onTestFinished(() => rm(dir, { recursive: true }))
  const sealFile = join(dir, 'heads.ndjson')
  expect(await findings()).toMatchObject([{ status: 'warning', says: 'nothing is sealed yet' }])
  await start(withLog({ sealFile }))
  await start()
  const rounds = Array.from({ length: 4 }, async (_, writer) => {
    for (let i = 0; i < 25; i += 1) await insert(writer * 1000 + i, writer * 1000 + i)
  })
  await Promise.all(rounds)
  await insert(10_000, 11_499)
  await allSealed()
  const { number } = await sealLag(api.runtime.db)
  const heads = await waitFor(async () => {
    const text = await readFile(sealFile, 'utf8')
    return readHeads(text).heads.at(-1)!.number === number && text
  })
  const result = await verify(String(heads))
  expect(result).toMatchObject({ found: 0, verified: await events(), head: { number } })
  expect(result.heads.compared).toBe(readHeads(String(heads)).heads.length)
  expect(await findings()).toMatchObject([{ status: 'ok', says: `${number} links` }])
})

it('appends every head to a file that was away, and says meanwhile that it was', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'daybook-heads-'))
  onTestFinished(() => rm(dir, { recursive: true }))
  const [mount, away] = [join(dir, 'mount'), join(dir, 'away')]
  const sealFile = join(mount, 'heads.ndjson')
  await mkdir(mount)
  const { log, said } = loggedTo()
  const runtime: Runtime = { ...withLog({ sealFile }), instruments: openInstruments(), log }
  const numbers = async () => readHeads(await readFile(sealFile, 'utf8')).heads.map(({ number }) => number)
  const newest = async () => (await sealLag(api.runtime.db)).number
  const isWhole = async () => (await numbers().catch(() => [])).at(-1) === (await newest())
  /** Several heads. */
  const sealSome = async (from: number) => {
    for (const id of [from, from + 1, from + 2]) {
      await insert(id, id)
      await allSealed()
    }
  }
  const up = async () => samplesOf((await runtime.instruments.metrics.scrape()).text).get('daybook_log_seal_file_up')
  const inDoctor = async () => {
    const found = await examine({ ...testEnv(api.database.url), LOG_SEAL_FILE: sealFile })
    return found.filter(({ says }) => says.startsWith('LOG_SEAL_FILE'))
  }

  const sealing = await openSeals(runtime, { paceMs: 20, lookMs: 50 })
  open.push(sealing)
  await sealSome(60_000)
  await waitFor(isWhole)
  const first = (await numbers())[0]!
  expect(await sealing.readiness!()).toMatchObject({ seals: { ok: true }, sealFile: { ok: true } })
  expect([await up(), await inDoctor()]).toMatchObject([1, [{ status: 'ok' }]])

  await rename(mount, away)
  await sealSome(61_000)
  const warned = () => said(/^LOG_SEAL_FILE cannot be appended to/).map(({ failures }) => failures)
  await waitFor(() => warned().length > 0)
  expect(await sealing.readiness!()).toMatchObject({ seals: { ok: true }, sealFile: { ok: false, reason: 'ENOENT' } })
  expect(await up()).toBe(0)
  const [finding] = await inDoctor()
  expect(finding).toMatchObject({
    status: 'warning',
    says: expect.stringContaining(`${sealFile} cannot be appended to`),
  })

  await rename(away, mount)
  await waitFor(isWhole)
  await waitFor(() => said(/^works again, after: LOG_SEAL_FILE/).length === 1)
  expect(warned()).toEqual([1])
  expect(await numbers()).toEqual(Array.from({ length: (await newest()) - first + 1 }, (_, i) => first + i))
  expect(await sealing.readiness!()).toMatchObject({ sealFile: { ok: true } })
  await stop()

  // By another process, while the file was away from its start on.
  await rename(mount, away)
  open.push(await openSeals({ ...runtime, instruments: openInstruments() }, { paceMs: 20, lookMs: 50 }))
  await sealSome(62_000)
  await rename(away, mount)
  await waitFor(isWhole)
  expect(await numbers()).toEqual(Array.from({ length: (await newest()) - first + 1 }, (_, i) => first + i))
  await stop()

  // Its last line is cut off in the middle: it stays, and its head is written again.
  const text = await readFile(sealFile, 'utf8')
  const lines = text.split('\n').length - 1
  await truncate(sealFile, text.length - 20)
  open.push(await openSeals({ ...runtime, instruments: openInstruments() }, { paceMs: 20, lookMs: 50 }))
  await waitFor(isWhole)
  await stop()
  expect(readHeads(await readFile(sealFile, 'utf8')).cutOff).toEqual([lines])
  expect(await numbers()).toEqual(Array.from({ length: (await newest()) - first + 1 }, (_, i) => first + i))
  expect(() => readHeads(`${text}{"number": 1}`)).toThrow(`line ${lines + 1} of the file is no head of the log`)
  expect(() => readHeads('{"number": 1')).toThrow('there is no head in the file')

  // A file of another chain: before a restore, it was longer.
  const others = { number: (await newest()) + 10, hash: 'of another chain' }
  for (const kept of [undefined, others, { ...others, number: first }])
    expect((await headsAfter(api.runtime.db, kept)).map(({ number }) => number)).toEqual([await newest()])
})

it('is off with LOG_SEALS=false, keeps no log for it then, and makes up for it afterwards', async () => {
  await start()
  await waitFor(async () => (await consumerStates(api.runtime.db)).some(({ name }) => name === 'seals'))
  await stop()
  await start(withLog({ seals: false }))
  expect((await consumerStates(api.runtime.db)).map(({ name }) => name)).not.toContain('seals')
  const { number } = await sealLag(api.runtime.db)
  await insert(30_000, 30_700)
  await stop()
  await start()
  await insert(31_000, 31_000)
  await allSealed()
  expect((await sealLag(api.runtime.db)).number).toBeGreaterThan(number)
  expect(await verify()).toMatchObject({ found: 0, verified: await events() })
})

it('goes on by itself where retention went past it', async () => {
  await start()
  await waitFor(async () => (await consumerStates(api.runtime.db)).find(({ name }) => name === 'seals')?.held)
  await api.sql(
    `update svc_log.consumer set state = 'stopped', reason = 'log removed', token = null where name = 'seals'`,
  )
  await insert(40_000, 40_010)
  await allSealed()
  expect(await verify()).toMatchObject({ found: 0, verified: await events() })
})

it('has nothing to sweep once all is sealed, until a sweep is opened or its place was moved', async () => {
  const isDue = () => isSweepDue(api.runtime.db, 'seals', undefined)
  await start()
  await insert(50_000, 50_010)
  await allSealed()
  await stop()
  expect(await isDue()).toBe(false)
  const [{ place }] = await api.sql(`select snapshot::text as place from svc_log.consumer where name = 'seals'`)
  await insert(51_000, 51_000)
  await api.sql(`update svc_log.consumer set snapshot = pg_current_snapshot() where name = 'seals'`)
  expect(await isDue()).toBe(true)
  await api.sql(`update svc_log.consumer set snapshot = $1::pg_snapshot where name = 'seals'`, [place])
  expect(await isDue()).toBe(false)
  await api.sql('update svc_log.seal_state set sweep = pg_current_snapshot()')
  expect(await isDue()).toBe(true)
  await api.sql('update svc_log.seal_state set sweep = null')
  await start()
  await allSealed()
  expect(await verify()).toMatchObject({ found: 0, verified: await events() })
})
